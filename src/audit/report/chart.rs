//! The drawings of a report.

use std::error::Error;

use chrono::{DateTime, Utc};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Counts, Grain, Report};
use crate::page::{AMBER, BLUE, FAINT, GREEN, GRID, RED, ROSE, VIOLET, count};

const WIDTH: u32 = 1000;
const LEFT: u32 = 62;
const RIGHT: u32 = 8;

/// Bars in a drawing at most; beyond that neighbours become one.
const BARS: usize = 365;

/// A part of a bar: its name, its colour and its checks.
type Part = (&'static str, RGBColor, fn(&Counts) -> u64);

/// What a bar is made of, from the bottom up. Each check is in one part.
const PARTS: [Part; 6] = [
    ("allowed", GREEN, |c| c.allowed.saturating_sub(c.soft + c.shadowed + c.unchecked)),
    ("soft", AMBER, |c| c.soft),
    ("shadowed", VIOLET, |c| c.shadowed),
    ("unchecked", BLUE, |c| c.unchecked),
    ("blocked", RED, |c| c.blocked.saturating_sub(c.coalesced)),
    ("blocked from memory", ROSE, |c| c.coalesced.min(c.blocked)),
];

/// What was decided in a time.
pub(super) struct Bar {
    starts_at: DateTime<Utc>,
    grain: Grain,
    counts: Counts,
}

/// The bars of the zones that are wanted, without a gap from the report's beginning to its end.
pub(super) fn bars(report: &Report, wanted: impl Fn(&str) -> bool) -> Vec<Bar> {
    let Report { grain, volumes, .. } = report;
    let length = grain.length();
    let mut first = grain.of(report.since);
    let mut steps = steps_from(first, grain.of(report.until), *grain) + 1;
    if steps > BARS
        && let (Some(from), Some(to)) = (volumes.first(), volumes.last())
    {
        // Of a long time only what was used.
        first = from.starts_at;
        steps = steps_from(first, to.starts_at, *grain) + 1;
    }
    let together = steps.div_ceil(BARS);
    let mut counts = vec![Counts::default(); steps.div_ceil(together)];
    for volume in volumes.iter().filter(|volume| wanted(&volume.zone)) {
        if let Some(bar) = counts.get_mut(steps_from(first, volume.starts_at, *grain) / together) {
            *bar = *bar + volume.counts;
        }
    }
    let starts = (0..).map(|n: i32| first + length * n * together as i32);
    starts.zip(counts).map(|(starts_at, counts)| Bar { starts_at, grain: *grain, counts }).collect()
}

fn steps_from(first: DateTime<Utc>, at: DateTime<Utc>, grain: Grain) -> usize {
    usize::try_from((at - first).num_seconds() / grain.length().num_seconds()).unwrap_or(0)
}

/// The parts that the bars have, with their colours.
pub(super) fn legend(bars: &[Bar]) -> Vec<(RGBColor, &'static str)> {
    let there = PARTS.into_iter().filter(|(_, _, part)| bars.iter().any(|bar| part(&bar.counts) > 0));
    there.map(|(name, color, _)| (color, name)).collect()
}

/// Checks over time, as stacked bars.
pub(super) fn volumes(bars: &[Bar], height: u32) -> Result<String, Box<dyn Error>> {
    let most = bars.iter().map(|bar| bar.counts.checks).max().unwrap_or(0).max(1);
    let step = step(most);
    draw(bars, height, (most as f64, step as f64), &|value| short(value as u64), |x, bar| {
        let mut below = 0;
        PARTS
            .iter()
            .filter_map(|(_, color, part)| {
                let part = part(&bar.counts);
                let from = below;
                below += part;
                (part > 0).then_some((x, from as f64, below as f64, *color))
            })
            .collect()
    })
}

/// The blocked share over time.
pub(super) fn share(bars: &[Bar], height: u32) -> Result<String, Box<dyn Error>> {
    draw(bars, height, (1.0, 0.25), &|value| format!("{:.0} %", value * 100.0), |x, bar| {
        let Counts { checks, blocked, .. } = bar.counts;
        if blocked == 0 { vec![] } else { vec![(x, 0.0, blocked as f64 / checks as f64, RED)] }
    })
}

/// A piece of a bar: its place, from where to where, and its colour.
type Piece = (usize, f64, f64, RGBColor);

fn draw(
    bars: &[Bar],
    height: u32,
    (most, step): (f64, f64),
    label: &dyn Fn(f64) -> String,
    pieces: impl Fn(usize, &Bar) -> Vec<Piece>,
) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let text = |h, v| ("sans-serif", 13).into_font().color(&FAINT).pos(Pos::new(h, v));
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_bottom(24)
            .margin_left(LEFT)
            .margin_right(RIGHT)
            .build_cartesian_2d(0.0..bars.len() as f64, 0.0..most)?;
        for n in 0..=(most / step) as usize {
            let y = n as f64 * step;
            chart.draw_series(LineSeries::new([(0.0, y), (bars.len() as f64, y)], GRID))?;
            let (x, y_px) = chart.backend_coord(&(0.0, y));
            root.draw_text(&label(y), &text(HPos::Right, VPos::Center), (x - 8, y_px))?;
        }
        // A little room between bars that are wide enough for it.
        let gap = if bars.len() <= 200 { 0.08 } else { 0.0 };
        let drawn = bars.iter().enumerate().flat_map(|(x, bar)| pieces(x, bar));
        chart.draw_series(drawn.map(|(x, from, to, color)| {
            Rectangle::new([(x as f64 + gap, from), (x as f64 + 1.0 - gap, to)], color.filled())
        }))?;
        let (_, bottom) = chart.backend_coord(&(0.0, 0.0));
        for (n, label) in times(bars) {
            let (x, _) = chart.backend_coord(&(n as f64, 0.0));
            root.draw_text(&label, &text(HPos::Left, VPos::Top), (x, bottom + 6))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// The bars that say when they begin: some eight, at round times.
fn times(bars: &[Bar]) -> Vec<(usize, String)> {
    let Some(grain) = bars.first().map(|bar| bar.grain) else { return Vec::new() };
    let (length_s, steps, form) = match grain {
        Grain::Minute => (60, [1, 5, 10, 15, 30], "%H:%M"),
        Grain::Hour => (3_600, [1, 3, 12, 24, 48], "%d %b %H:%M"),
        Grain::Day => (86_400, [1, 2, 7, 28, 56], "%d %b %Y"),
    };
    let most = bars.len().div_ceil(9) as i64;
    let step = steps.into_iter().find(|step| *step >= most).unwrap_or(most);
    let is_round = |bar: &Bar| bar.starts_at.timestamp() / length_s % step == 0;
    let round = bars.iter().enumerate().filter(|(n, bar)| is_round(bar) && n + bars.len() / 12 <= bars.len());
    round.map(|(n, bar)| (n, bar.starts_at.format(form).to_string())).collect()
}

/// A round step that makes two to five of the most.
fn step(most: u64) -> u64 {
    let mut power = 1;
    while most / power >= 10 {
        power *= 10;
    }
    match most / power {
        1 => (power / 2).max(1),
        2..=4 => power,
        _ => 2 * power,
    }
}

/// `950`, `1.5k`, `20M`.
fn short(number: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) if number.is_multiple_of(unit) => format!("{}{name}", number / unit),
        Some((unit, name)) => format!("{:.1}{name}", number as f64 / unit as f64),
        None => count(number),
    }
}
