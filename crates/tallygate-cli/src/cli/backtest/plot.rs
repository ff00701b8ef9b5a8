//! The charts of a back-test, as SVG.

use chrono::{DateTime, TimeDelta, Utc};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tallygate::backtest::BacktestReport;

use super::told::{Told, percent};
use crate::cli::{Failure, Result, duration};
use tallygate::page::{AMBER, BLUE, FAINT, GREEN, GRID, RED, VIOLET};

pub const ALLOWED: RGBColor = GREEN;
pub const BLOCKED: RGBColor = RED;
/// Lines of a sweep, one a policy; from there on they repeat.
const LINES: [RGBColor; 4] = [RED, BLUE, AMBER, VIOLET];

const WIDTH: u32 = 1000;
const SIZE: (u32, u32) = (WIDTH, 260);
const LEFT: i32 = 62;
const RIGHT: i32 = 20;
const TOP: i32 = 10;
const BOTTOM: i32 = 24;
/// Labels of an axis at most.
const LABELS_MAX: usize = 7;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Chart<'c, 'a> = ChartContext<'c, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub type Drawn<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a bar of the timeline counts.
pub fn per_slice(report: &BacktestReport) -> String {
    format!("Events per {}", duration::show(report.slice_us))
}

/// Allowed and blocked over time: a bar a slice, the blocked ones on top.
pub fn timeline(report: &BacktestReport) -> Result<String> {
    svg(SIZE, |root| {
        let step_s = report.slice_us as f64 / 1e6;
        let bars: Vec<_> = report
            .timeline
            .iter()
            .filter_map(|slice| Some((seconds(slice.from?), slice.allowed as f64, slice.blocked as f64)))
            .collect();
        let (Some(first), Some(last)) = (bars.first(), bars.last()) else { return Ok(()) };
        let (start_s, end_s) = (first.0, last.0 + step_s);
        let top = bars.iter().map(|(_, allowed, blocked)| allowed + blocked).fold(1.0, f64::max);
        let mut chart = axes(root, start_s..end_s, top, |count| format!("{count}"))?;
        // A hair between bars, where they are wide enough for it.
        let gap_s =
            (end_s - start_s) / f64::from(WIDTH) * if (end_s - start_s) / step_s > 100.0 { 0.0 } else { 0.5 };
        let bar = |at_s: f64, from: f64, to: f64, color: RGBColor| {
            Rectangle::new([(at_s + gap_s, from), (at_s + step_s - gap_s, to)], color.filled())
        };
        let filled = |from: f64, to: f64| to > from;
        chart.draw_series(
            bars.iter()
                .filter(|bar| filled(0.0, bar.1))
                .map(|&(at_s, allowed, _)| bar(at_s, 0.0, allowed, ALLOWED)),
        )?;
        chart.draw_series(
            bars.iter()
                .filter(|bar| filled(0.0, bar.2))
                .map(|&(at_s, allowed, blocked)| bar(at_s, allowed, allowed + blocked, BLOCKED)),
        )?;
        times(root, &chart, start_s, end_s)
    })
}

/// A line of a sweep: a policy's other terms, and what was found with each value.
pub struct Line<'t> {
    pub name: &'t str,
    pub color: RGBColor,
    found: &'t [Told],
}

/// The lines of a sweep. What is of one line stands together.
pub fn lines(told: &[Told]) -> Vec<Line<'_>> {
    told.chunk_by(|a, b| a.series == b.series)
        .zip(LINES.into_iter().cycle())
        .map(|(found, color)| Line { name: &found[0].series, color, found })
        .collect()
}

/// The blocked share over the values that were swept.
pub fn sweep(lines: &[Line<'_>]) -> Result<String> {
    let values: Vec<&str> = lines
        .first()
        .map_or(&[][..], |line| line.found)
        .iter()
        .filter_map(|one| one.value.as_deref())
        .collect();
    svg(SIZE, |root| {
        let top =
            lines.iter().flat_map(|line| line.found).map(|one| percent(&one.report)).fold(1.0, f64::max);
        let end = values.len().max(2) as f64 - 0.5;
        let mut chart = axes(root, -0.5..end, top, |share| format!("{share} %"))?;
        for Line { color, found, .. } in lines {
            let points = || found.iter().enumerate().map(|(n, one)| (n as f64, percent(&one.report)));
            chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        }
        let every = values.len().div_ceil(20).max(1);
        for (n, value) in values.iter().enumerate().step_by(every) {
            label_below(root, &chart, n as f64, value)?;
        }
        Ok(())
    })
}

pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = draw(&root).and_then(|()| Ok(root.present()?));
    drop(root);
    drawn.map_err(|error| Failure::new(format!("the chart could not be drawn: {error}")))?;
    Ok(svg)
}

/// Horizontal lines with their labels, and room for what is drawn above them.
pub fn axes<'c, 'a>(
    root: &'c Area<'a>,
    x: std::ops::Range<f64>,
    top: f64,
    label: impl Fn(f64) -> String,
) -> Drawn<Chart<'c, 'a>> {
    let mut chart = ChartBuilder::on(root)
        .margin_top(TOP)
        .margin_bottom(BOTTOM)
        .margin_left(LEFT)
        .margin_right(RIGHT)
        .build_cartesian_2d(x.clone(), 0.0..top * 1.04)?;
    let step = round_step(top);
    let lines = (0..).map(|n| f64::from(n) * step).take_while(|&y| y <= top);
    for y in lines {
        let color = if y == 0.0 { FAINT } else { GRID };
        chart.draw_series(LineSeries::new([(x.start, y), (x.end, y)], color))?;
        let at = chart.backend_coord(&(x.start, y));
        root.draw_text(&label(y), &style(13, &FAINT, HPos::Right), (at.0 - 8, at.1))?;
    }
    Ok(chart)
}

/// 1, 2 or 5 times a power of ten, so that up to five of them make the top; whole numbers.
fn round_step(top: f64) -> f64 {
    let mut step = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if top / step <= 5.0 {
            break;
        }
        step *= factor;
    }
    step
}

/// Times below the axis, at round ones.
fn times(root: &Area<'_>, chart: &Chart<'_, '_>, start_s: f64, end_s: f64) -> Drawn {
    const STEPS_S: [i64; 24] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
        172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
    ];
    let span_s = end_s - start_s;
    let fits = |step_s: &&i64| span_s / (**step_s as f64) <= LABELS_MAX as f64;
    let Some(&step_s) = STEPS_S.iter().find(fits) else {
        // More than years: the ends are enough.
        label_below(root, chart, start_s, &date(start_s, "%Y"))?;
        return label_below(root, chart, end_s, &date(end_s, "%Y"));
    };
    let form = match step_s {
        ..60 => "%H:%M:%S",
        60..86_400 => "%H:%M",
        _ => "%Y-%m-%d",
    };
    let first = (start_s as i64).div_euclid(step_s) + 1;
    let ticks = (first..).map(|n| (n * step_s) as f64).take_while(|&at_s| at_s <= end_s);
    let mut day = String::new();
    for at_s in ticks {
        // The day is told where it changes.
        let today = date(at_s, "%m-%d");
        let text = date(at_s, form);
        let text = if step_s < 86_400 && today != day { format!("{today} {text}") } else { text };
        day = today;
        let (x, y) = chart.backend_coord(&(at_s, 0.0));
        root.draw(&PathElement::new([(x, y), (x, y + 4)], FAINT))?;
        label_below(root, chart, at_s, &text)?;
    }
    Ok(())
}

pub fn label_below(root: &Area<'_>, chart: &Chart<'_, '_>, at: f64, text: &str) -> Drawn {
    let (x, y) = chart.backend_coord(&(at, 0.0));
    Ok(root.draw_text(text, &style(13, &FAINT, HPos::Center), (x, y + 16))?)
}

pub fn style<'s>(size: i32, color: &'s RGBColor, h: HPos) -> TextStyle<'s> {
    ("sans-serif", size).into_font().color(color).pos(Pos::new(h, VPos::Center))
}

fn seconds(at: DateTime<Utc>) -> f64 {
    at.timestamp_micros() as f64 / 1e6
}

fn date(at_s: f64, form: &str) -> String {
    let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(at_s as i64);
    at.format(form).to_string()
}
