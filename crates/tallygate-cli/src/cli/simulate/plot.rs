//! The requests that were offered and those that passed over time, as SVG.

use plotters::prelude::*;
use tallygate::backtest::Point;
use tallygate::page::{BLUE, FAINT, GREEN, RED};

use super::told::Told;
use crate::cli::backtest::plot::{Area, Chart, Drawn, axes, label_below, svg};
use crate::cli::{Result, duration};

/// The lines, told apart without colour too.
pub const LEGEND: [(RGBColor, &str); 3] =
    [(BLUE, "offered (dashed)"), (GREEN, "passed (thick)"), (RED, "the rate (thin)")];

/// The size of a chart, about as wide as it is shown, so that its words can be read.
pub const SIZE: (u32, u32) = (330, 190);
const LABELS_MAX: i64 = 4;

/// The chart of one policy, with axes that it shares with the others.
pub fn through(told: &Told, others: &[Told]) -> Result<String> {
    let points = || others.iter().flat_map(|other| &other.figures.curve);
    let start_us = points().map(|point| point.from_us).min().unwrap_or(0);
    let end_us = points().map(|point| point.from_us).max().unwrap_or(0).max(start_us + 1);
    let rate = told.figures.policy.rate() as f64;
    let rates = others.iter().map(|other| other.figures.policy.rate());
    let most = points().map(|point| point.offered.max(point.passed)).chain(rates).max().unwrap_or(1);
    let end_s = seconds(end_us - start_us);
    svg(SIZE, |root| {
        let mut chart = axes(root, 0.0..end_s, most as f64, |count| format!("{count}"))?;
        let line = |count: fn(&Point) -> i64| {
            let at = move |point: &Point| (seconds(point.from_us - start_us), count(point) as f64);
            told.figures.curve.iter().map(at)
        };
        chart.draw_series(DashedLineSeries::new(line(|point| point.offered), 5, 4, BLUE.stroke_width(1)))?;
        // The rate is that of each key.
        if told.figures.keys == 1 {
            chart.draw_series(LineSeries::new([(0.0, rate), (end_s, rate)], RED))?;
        }
        chart.draw_series(LineSeries::new(line(|point| point.passed), GREEN.stroke_width(3)))?;
        times(root, &chart, end_us - start_us)
    })
}

/// The times after the first, at round numbers.
fn times(root: &Area<'_>, chart: &Chart<'_, '_>, span_us: i64) -> Drawn {
    const STEPS_S: [i64; 16] = [
        1,
        5,
        15,
        30,
        60,
        120,
        300,
        900,
        3_600,
        21_600,
        86_400,
        604_800,
        2_419_200,
        31_449_600,
        314_496_000,
        3_144_960_000,
    ];
    let steps_us = STEPS_S.into_iter().map(|step_s| step_s * 1_000_000);
    let mut steps_us = [1, 1_000, 10_000, 100_000, 200_000].into_iter().chain(steps_us);
    let step_us = steps_us.find(|step_us| span_us / step_us <= LABELS_MAX).unwrap_or(span_us);
    for at_us in (0..=LABELS_MAX).map(|n| n * step_us).take_while(|at_us| *at_us <= span_us) {
        let (x, y) = chart.backend_coord(&(seconds(at_us), 0.0));
        root.draw(&PathElement::new([(x, y), (x, y + 4)], FAINT))?;
        label_below(root, chart, seconds(at_us), &duration::show(at_us))?;
    }
    Ok(())
}

fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}
