//! The charts of a back-test.

use chrono::{DateTime, Utc};
use plotters::style::RGBColor;
use tallygate::backtest::Outcomes;
use tallygate::page::{AMBER, BLUE, Bar, FAINT, GREEN, Mark, Pattern, Plot, RED, ROSE, VIOLET, second};

use super::plot::times;
use super::told::{Told, percent, share};
use crate::cli::duration;
use crate::cli::output::plain;

/// The mark of the policy that others are compared with.
const BASELINE: Mark = Mark { color: FAINT, pattern: Pattern::Solid };
/// The marks of the others, told apart without colour too.
const OTHERS: [Mark; 6] = [
    mark(RED, Pattern::Slanted),
    mark(BLUE, Pattern::Dotted),
    mark(VIOLET, Pattern::Standing),
    mark(AMBER, Pattern::Lying),
    mark(GREEN, Pattern::Solid),
    mark(ROSE, Pattern::Tinted),
];

/// The most policies that have a line of their own, beside the baseline.
pub const LINES_MAX: usize = OTHERS.len();

const HEIGHT: u32 = 240;
/// Labels below an axis.
const LABELS_MAX: usize = 8;

const fn mark(color: RGBColor, pattern: Pattern) -> Mark {
    Mark { color, pattern }
}

/// The checks that each policy blocks over time: a line for each policy, and the numbers of all policies at each time.
pub fn over_time(told: &[Told]) -> Plot {
    let drawn: Vec<&Told> = drawn(told).collect();
    let slice_us = drawn.first().map_or(1, |told| told.report.slice_us);
    let number = |at: Option<DateTime<Utc>>| at.map(|at| at.timestamp_micros().div_euclid(slice_us));
    let slices = || drawn.iter().flat_map(|told| &told.report.timeline);
    let first = slices().filter_map(|slice| number(slice.from)).min().unwrap_or(0);
    let last = slices().filter_map(|slice| number(slice.from)).max().unwrap_or(0);
    let most = slices().map(|slice| slice.blocked).max().unwrap_or(0);
    let title = format!("Blocked checks per {}, over time in UTC", duration::show(slice_us));
    let mut plot = Plot::new(&title, HEIGHT, most as f64);
    let width = (last - first + 1) as f64;
    let place = |number: i64| ((number - first) as f64 + 0.5) / width;
    let mut all = vec![String::new(); usize::try_from(last - first + 1).unwrap_or(0)];
    for (told, mark) in drawn.iter().zip(marks(&drawn)) {
        let baseline = if told.baseline { " (baseline)" } else { "" };
        let series = plot.series(&format!("{}{baseline}", plain(&told.name)), mark);
        let mut blocked = vec![(0, 0); all.len()];
        for slice in &told.report.timeline {
            let at = number(slice.from).and_then(|number| usize::try_from(number - first).ok());
            if let Some(place) = at.and_then(|at| blocked.get_mut(at)) {
                *place = (slice.blocked, slice.blocked + slice.allowed);
            }
        }
        for (text, (blocked, events)) in all.iter_mut().zip(&blocked) {
            *text += &format!("; {}: {blocked} of {events} blocked", plain(&told.name));
        }
        let points = (first..).zip(&blocked).map(|(number, (blocked, _))| (place(number), *blocked as f64));
        plot.line(series, &points.collect::<Vec<_>>(), &[]);
    }
    for (number, text) in (first..).zip(all) {
        let at = DateTime::from_timestamp_micros(number * slice_us).unwrap_or_default();
        let (from, to) = ((number - first) as f64 / width, (number - first + 1) as f64 / width);
        plot.bar(Bar { at: (from, to), title: format!("{}{text}", second(at)), ..Bar::default() });
    }
    let seconds = |number: i64| (number * slice_us) as f64 / 1e6;
    let (start_s, end_s) = (seconds(first), seconds(last + 1));
    for (at_s, label) in times(start_s, end_s) {
        plot.below((at_s - start_s) / (end_s - start_s), &label);
    }
    plot
}

/// The share of checks that is blocked, and the number of keys of which something is, over the values that were swept. A level
/// line is the baseline.
pub fn sweep(told: &[Told], name: &str) -> [Plot; 2] {
    let keys = |told: &Told| told.report.blocked_keys as f64;
    let most = |of: &dyn Fn(&Told) -> f64| told.iter().map(of).fold(1.0, f64::max);
    let share_of = |told: &Told| percent(&told.report);
    let mut plots = [
        Plot::new(&format!("Share of checks that are blocked, by {name}"), HEIGHT, most(&share_of))
            .unit(in_percent),
        Plot::new(&format!("Keys of which something is blocked, by {name}"), HEIGHT, most(&keys)),
    ];
    let lines: Vec<&[Told]> = told
        .chunk_by(|a, b| a.series == b.series && a.baseline == b.baseline)
        .filter(|line| line.iter().all(|told| !told.baseline))
        .collect();
    let values: Vec<&str> =
        lines.first().map_or(&[][..], |line| line).iter().filter_map(|told| told.value.as_deref()).collect();
    let place = |n: usize| (n as f64 + 0.5) / values.len().max(1) as f64;
    let title = |told: &Told, of: &str| {
        format!(
            "{}{of}: {} blocked, of {} keys",
            plain(&told.name),
            share(&told.report),
            told.report.blocked_keys
        )
    };
    for (plot, height) in plots.iter_mut().zip([&share_of as &dyn Fn(&Told) -> f64, &keys]) {
        if let Some(baseline) = told.iter().find(|told| told.baseline) {
            let series = plot.series(&format!("baseline: {}", plain(&baseline.name)), BASELINE);
            let level = height(baseline);
            plot.line(series, &[(0.0, level), (1.0, level)], &[]);
            let same =
                lines.first().and_then(|line| line.iter().position(|told| is_at(told, baseline, name)));
            if let Some(n) = same {
                plot.line(series, &[(place(n), level)], &[title(baseline, " (baseline)")]);
            }
        }
        for (line, mark) in lines.iter().zip(OTHERS.into_iter().cycle()) {
            let series = plot.series(&line.first().map(|told| plain(&told.series)).unwrap_or_default(), mark);
            let points: Vec<_> = line.iter().enumerate().map(|(n, told)| (place(n), height(told))).collect();
            let titles: Vec<_> = line.iter().map(|told| title(told, "")).collect();
            plot.line(series, &points, &titles);
        }
        for (n, value) in values.iter().enumerate().step_by(values.len().div_ceil(LABELS_MAX).max(1)) {
            plot.below(place(n), &plain(value));
        }
    }
    plots
}

/// Has a policy the baseline's value of the swept term?
fn is_at(told: &Told, baseline: &Told, swept: &str) -> bool {
    let value = |told: &Told| match swept {
        "rate" => told.report.policy.rate(),
        "burst" => told.report.policy.limit(),
        _ => told.report.policy.window_us(),
    };
    value(told) == value(baseline)
}

/// The attacks that each policy stops, over the legitimate attempts that it hits; policies that were swept are a line.
pub fn outcomes(told: &[Told]) -> Plot {
    let known = || told.iter().filter_map(|told| Some(told.outcomes.as_ref()?.outcomes));
    let (mut plot, right) = judged_plot(known());
    let drawn: Vec<&Told> = if told.iter().any(|told| told.value.is_some()) {
        told.iter().collect()
    } else {
        drawn(told).collect()
    };
    let lines: Vec<&[&Told]> = drawn.chunk_by(|a, b| a.value.is_some() && a.series == b.series).collect();
    let mut others = OTHERS.into_iter().cycle();
    for line in lines {
        let Some(first) = line.first() else { continue };
        let name = if first.value.is_some() { &first.series } else { &first.name };
        let mark = if first.baseline { BASELINE } else { others.next().unwrap_or(BASELINE) };
        let series = plot.series(&plain(name), mark);
        let points = line.iter().filter_map(|told| {
            let outcomes = told.outcomes.as_ref()?.outcomes;
            Some((place(&outcomes, right), told_of(&plain(&told.name), &outcomes)))
        });
        let (points, titles): (Vec<_>, Vec<_>) = points.unzip();
        plot.line(series, &points, &titles);
    }
    plot
}

/// All policies that were tried, and the line of those to which no other is better in both.
pub fn front(tried: &[Outcomes], front: &[Told]) -> Plot {
    let (mut plot, right) = judged_plot(tried.iter().copied());
    let others = plot.series("tried", mark(BLUE, Pattern::Dotted));
    let mut points: Vec<_> = tried.iter().map(|one| (one.legitimate_hit, one.attacks_stopped, one)).collect();
    points.sort_unstable_by_key(|&(hit, stopped, _)| (hit, stopped));
    for alike in points.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let Some((_, _, outcomes)) = alike.first() else { continue };
        plot.line(
            others,
            &[place(outcomes, right)],
            &[told_of(&format!("{} policies", alike.len()), outcomes)],
        );
    }
    let best = plot.series("none is better in both", mark(RED, Pattern::Solid));
    let points = front.iter().filter_map(|told| Some((told, told.outcomes.as_ref()?.outcomes)));
    let (points, titles): (Vec<_>, Vec<_>) =
        points.map(|(told, one)| (place(&one, right), told_of(&plain(&told.name), &one))).unzip();
    plot.line(best, &points, &titles);
    plot
}

/// An empty chart of attacks stopped over legitimate attempts hit, and the percentage of these at its right edge.
fn judged_plot(known: impl Iterator<Item = Outcomes>) -> (Plot, f64) {
    const STEPS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let most = known.filter_map(|one| one.hit()).fold(0.0, f64::max) * 100.0;
    let right = STEPS.into_iter().find(|step| *step >= most).unwrap_or(100.0);
    let title = "Attacks that are stopped (up), over legitimate attempts that are hit (to the right)";
    let mut plot = Plot::new(title, HEIGHT, 100.0).unit(in_percent);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        plot.below(MARGIN + part * (1.0 - 2.0 * MARGIN), &format!("{} %", part * right));
    }
    (plot, right)
}

fn in_percent(share: f64) -> String {
    format!("{} %", (share * 10.0).round() / 10.0)
}

/// The part of the width that is left free at either side, so that points at the edges are seen whole.
const MARGIN: f64 = 0.02;

fn place(outcomes: &Outcomes, right: f64) -> (f64, f64) {
    let hit = outcomes.hit().unwrap_or(0.0) * 100.0 / right;
    (MARGIN + hit * (1.0 - 2.0 * MARGIN), 100.0 * outcomes.recall().unwrap_or(0.0))
}

fn told_of(name: &str, outcomes: &Outcomes) -> String {
    let Outcomes { legitimate, legitimate_hit, attacks, attacks_stopped, .. } = outcomes;
    format!("{name}: hits {legitimate_hit} of {legitimate}, stops {attacks_stopped} of {attacks}")
}

/// The baseline, and as many of the others as have a line of their own.
fn drawn(told: &[Told]) -> impl Iterator<Item = &Told> {
    let baselines = told.iter().filter(|told| told.baseline).count();
    told.iter().take(LINES_MAX + baselines)
}

fn marks(told: &[&Told]) -> Vec<Mark> {
    let mut others = OTHERS.into_iter();
    told.iter().map(|told| if told.baseline { BASELINE } else { others.next().unwrap_or(BASELINE) }).collect()
}
