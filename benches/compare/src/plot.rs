//! Plots: decisions a second as bars on a logarithmic scale, grouped by what survives.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::Keys;
use crate::results::{Group, Results, Role, Row};

const WIDTH: i32 = 960;
const LEFT: i32 = 330;
const RIGHT: i32 = 70;
const TOP: i32 = 64;
const BOTTOM: i32 = 48;
const LINE: i32 = 24;

// One solid background, so that the picture reads the same on a light page and on a dark one.
const PAPER: RGBColor = RGBColor(250, 250, 247);
const INK: RGBColor = RGBColor(34, 40, 49);
const FAINT: RGBColor = RGBColor(108, 117, 125);
const GRID: RGBColor = RGBColor(222, 222, 216);

pub fn draw(results: &Results, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for (keys, file, title) in [
        (Keys::Distinct, "compare-distinct.svg", format!("{} distinct keys", results.terms.keys)),
        (Keys::Hot, "compare-hot.svg", "one hot key".to_owned()),
    ] {
        let rows =
            results.rows.iter().filter(|row| row.keys == keys && row.best && row.decisions_per_s > 0.0);
        let rows = rows.collect::<Vec<_>>();
        if !rows.is_empty() {
            let path = directory.join(file);
            bars(&path, &title, results, &rows)
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            eprintln!("compare: wrote {}", path.display());
        }
    }
    Ok(())
}

enum Line<'a> {
    Heading(&'static str),
    Bar(&'a Row),
    Gap,
}

/// The groups, each with its bars from the longest.
fn lines<'a>(rows: &[&'a Row]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        let mut bars = rows.iter().filter(|row| row.contestant.group == group).copied().collect::<Vec<_>>();
        bars.sort_by(|a, b| b.decisions_per_s.total_cmp(&a.decisions_per_s));
        if !bars.is_empty() {
            lines.push(Line::Heading(group.describe()));
            lines.extend(bars.into_iter().map(Line::Bar));
            lines.push(Line::Gap);
        }
    }
    lines.pop();
    lines
}

fn bars(
    path: &Path,
    title: &str,
    results: &Results,
    rows: &[&Row],
) -> Result<(), Box<dyn std::error::Error>> {
    let lines = lines(rows);
    let height = TOP + LINE * i32::try_from(lines.len())? + BOTTOM;
    let root = SVGBackend::new(path, (u32::try_from(WIDTH)?, u32::try_from(height)?)).into_drawing_area();
    root.fill(&PAPER)?;
    let text =
        |size: i32, color: &RGBColor, h, v| ("sans-serif", size).into_font().color(color).pos(Pos::new(h, v));
    let heading = format!("Decisions a second, {title}, {} callers", results.terms.callers);
    root.draw_text(&heading, &text(20, &INK, HPos::Left, VPos::Center), (16, 22))?;
    let machine = &results.machine;
    let below = format!(
        "{}, {} cores for clients and servers; fdatasync {:.0} to {:.0} µs; 100 per 60 s; logarithmic scale",
        machine.processor, machine.cores, machine.overwrite_us, machine.append_us
    );
    root.draw_text(&below, &text(13, &FAINT, HPos::Left, VPos::Center), (16, 46))?;

    let rates = || rows.iter().map(|row| row.decisions_per_s);
    // Room on the left, so that the shortest bar still is one.
    let low = (rates().fold(f64::MAX, f64::min).log10() - 0.2).floor();
    let high = (rates().fold(1.0, f64::max).log10() + 0.05).max(low + 1.0);
    let x = |rate: f64| {
        LEFT + (f64::from(WIDTH - LEFT - RIGHT) * (rate.log10() - low) / (high - low)).round() as i32
    };
    let bottom = height - BOTTOM;
    for power in low as i32..=high.floor() as i32 {
        let at = x(10_f64.powi(power));
        root.draw(&PathElement::new([(at, TOP - 4), (at, bottom)], GRID))?;
        root.draw_text(
            &rounded(10_f64.powi(power)),
            &text(13, &FAINT, HPos::Center, VPos::Center),
            (at, bottom + 16),
        )?;
    }
    for (number, line) in lines.iter().enumerate() {
        let top = TOP + LINE * i32::try_from(number)?;
        let middle = top + LINE / 2;
        match line {
            Line::Gap => {}
            Line::Heading(words) => {
                // Over the grid.
                root.draw(&Rectangle::new([(0, top + 2), (WIDTH, top + LINE - 2)], PAPER.filled()))?;
                root.draw_text(words, &text(14, &FAINT, HPos::Left, VPos::Center), (16, middle))?;
            }
            Line::Bar(row) => {
                let end = x(row.decisions_per_s).max(LEFT + 2);
                root.draw(&Rectangle::new([(LEFT, top + 4), (end, top + LINE - 4)], color(row).filled()))?;
                let ink = if row.contestant.role == Role::Tallygate { &INK } else { &FAINT };
                let name = format!("{}: {}", row.contestant.family, row.contestant.name);
                root.draw_text(&name, &text(14, ink, HPos::Right, VPos::Center), (LEFT - 8, middle))?;
                let rate = rounded(row.decisions_per_s);
                root.draw_text(&rate, &text(14, ink, HPos::Left, VPos::Center), (end + 6, middle))?;
            }
        }
    }
    root.present()?;
    Ok(())
}

fn color(row: &Row) -> RGBColor {
    match (row.contestant.role, row.contestant.group) {
        (Role::Tallygate, _) => RGBColor(0, 109, 91),
        (Role::Spread | Role::Single, _) => RGBColor(112, 168, 156),
        (Role::Seed, _) => RGBColor(138, 161, 177),
        (Role::Bare | Role::Floor, _) => RGBColor(206, 208, 204),
        (_, Group::Memory) => RGBColor(170, 150, 190),
        (_, Group::NotDurable) => RGBColor(222, 160, 140),
        _ => RGBColor(196, 92, 72),
    }
}

/// Two or three digits that count: 940, 8.5 k, 120 k, 3.2 M.
fn rounded(rate: f64) -> String {
    let (number, unit) = match rate {
        _ if rate >= 1e6 => (rate / 1e6, " M"),
        _ if rate >= 1e3 => (rate / 1e3, " k"),
        _ => (rate, ""),
    };
    let digits = if number < 10.0 && number.fract() >= 0.05 { 1 } else { 0 };
    format!("{number:.digits$}{unit}")
}
