//! Axes of charts, and drawings as SVG.

use chrono::{DateTime, TimeDelta};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use tallygate::page::{FAINT, GRID};

use crate::cli::{Failure, Result};

const LEFT: i32 = 62;
const RIGHT: i32 = 20;
const TOP: i32 = 10;
const BOTTOM: i32 = 24;
/// The most labels of an axis.
const LABELS_MAX: usize = 7;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Chart<'c, 'a> = ChartContext<'c, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub type Drawn<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

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

/// The step of an axis: 1, 2 or 5 times a power of ten, a whole number, so that up to five steps make the top.
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

/// Round times, in seconds, with their labels.
pub fn times(start_s: f64, end_s: f64) -> Vec<(f64, String)> {
    const STEPS_S: [i64; 24] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
        172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
    ];
    let span_s = end_s - start_s;
    let fits = |step_s: &&i64| span_s / (**step_s as f64) <= LABELS_MAX as f64;
    let Some(&step_s) = STEPS_S.iter().find(fits) else {
        // Of very many years the ends are enough.
        return [start_s, end_s].map(|at_s| (at_s, date(at_s, "%Y"))).into();
    };
    let form = match step_s {
        ..60 => "%H:%M:%S",
        60..86_400 => "%H:%M",
        _ => "%-d %b",
    };
    let first = (start_s as i64).div_euclid(step_s) + 1;
    let ticks = (first..).map(|n| (n * step_s) as f64).take_while(|&at_s| at_s <= end_s);
    let mut before = String::new();
    let label = |at_s: f64| {
        // The day, or the year, is told where it changes.
        let around = date(at_s, if step_s < 86_400 { "%-d %b" } else { "%Y" });
        let text = date(at_s, form);
        let label = match (around == before, step_s < 86_400) {
            (true, _) => text,
            (false, true) => format!("{around} {text}"),
            (false, false) => format!("{text} {around}"),
        };
        before = around;
        (at_s, label)
    };
    ticks.map(label).collect()
}

pub fn label_below(root: &Area<'_>, chart: &Chart<'_, '_>, at: f64, text: &str) -> Drawn {
    let (x, y) = chart.backend_coord(&(at, 0.0));
    Ok(root.draw_text(text, &style(13, &FAINT, HPos::Center), (x, y + 16))?)
}

pub fn style<'s>(size: i32, color: &'s RGBColor, h: HPos) -> TextStyle<'s> {
    ("sans-serif", size).into_font().color(color).pos(Pos::new(h, VPos::Center))
}

fn date(at_s: f64, form: &str) -> String {
    let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(at_s as i64);
    at.format(form).to_string()
}
