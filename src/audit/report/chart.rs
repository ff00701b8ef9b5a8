//! The charts of a report.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};

use super::{Counts, Report};
use crate::page::{
    ALLOWED, BLOCKED, Bar, COALESCED, Mark, Plot, SHADOWED, SOFT, UNCHECKED, count, second, short,
};
use crate::zone::show_duration;

/// Bars of a chart at most, where the quiet time before and after the checks is shown too.
const BARS: i64 = 400;
/// Bars that have their number above them.
const NUMBERED: usize = 14;
/// Labels below a chart, about.
const LABELS: i64 = 8;

const DAY_US: i64 = 86_400_000_000;

/// A part of a bar: its name, how it looks, and its checks.
type Part = (&'static str, Mark, fn(&Counts) -> u64);

/// The parts of a bar, from the bottom up. Each check is in one part.
const PARTS: [Part; 6] = [
    ("allowed", ALLOWED, |c| c.allowed.saturating_sub(c.soft + c.shadowed + c.unchecked)),
    ("soft", SOFT, |c| c.soft),
    ("shadowed", SHADOWED, |c| c.shadowed),
    ("unchecked", UNCHECKED, |c| c.unchecked),
    ("blocked", BLOCKED, |c| c.blocked.saturating_sub(c.coalesced)),
    ("blocked from memory", COALESCED, |c| c.coalesced.min(c.blocked)),
];

/// The checks of a slice of the time.
pub(super) struct Slice {
    pub starts_at: DateTime<Utc>,
    pub counts: Counts,
}

/// The slices that the charts show, without a gap, and how each is cut.
pub(super) struct Slices<'r> {
    report: &'r Report,
    length: TimeDelta,
    first: DateTime<Utc>,
    number: usize,
}

impl<'r> Slices<'r> {
    /// Those of the whole time of the report; where the checks are in a small part of it, those of that part. None without
    /// checks.
    pub fn of(report: &'r Report) -> Option<Self> {
        let slices = &report.timeline.slices;
        let (first, last) = (slices.first()?.starts_at, slices.last()?.starts_at);
        let length = TimeDelta::microseconds(report.timeline.slice_us);
        let steps = |from: DateTime<Utc>, to: DateTime<Utc>| {
            (to - from).num_microseconds().unwrap_or(i64::MAX) / report.timeline.slice_us
        };
        let before = steps(report.since, first) + i64::from(report.since < first);
        let used = steps(first, last) + 1;
        let after = (steps(last, report.until) + i64::from(last < report.until) - 1).max(0);
        let all = before.saturating_add(used).saturating_add(after);
        let (first, number) = if all <= BARS && used.saturating_mul(3) >= all {
            (first.checked_sub_signed(TimeDelta::microseconds(before * report.timeline.slice_us)), all)
        } else {
            (Some(first), used)
        };
        Some(Self { report, length, first: first?, number: usize::try_from(number).ok()? })
    }

    /// Does it show less than the time of the report?
    pub fn is_part(&self) -> bool {
        let Some((from, to)) = self.starts_at(0).zip(self.starts_at(self.number)) else { return false };
        from > self.report.since || to < self.report.until
    }

    /// The length of a slice: `hour`, `10 minutes`.
    pub fn each(&self) -> String {
        match self.report.timeline.slice_us {
            60_000_000 => "minute".to_owned(),
            3_600_000_000 => "hour".to_owned(),
            DAY_US => "day".to_owned(),
            us if us == 7 * DAY_US => "week".to_owned(),
            1_000_000 => "second".to_owned(),
            us => show_duration(us),
        }
    }

    pub fn starts_at(&self, number: usize) -> Option<DateTime<Utc>> {
        self.first.checked_add_signed(self.length.checked_mul(i32::try_from(number).ok()?)?)
    }

    pub fn ends_at(&self, starts_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        starts_at.checked_add_signed(self.length)
    }

    /// The zones that are wanted, slice by slice.
    pub fn slices(&self, wanted: impl Fn(&str) -> bool) -> Vec<Slice> {
        let slices = (0..self.number).filter_map(|number| self.starts_at(number));
        let mut slices: Vec<_> =
            slices.map(|starts_at| Slice { starts_at, counts: Counts::default() }).collect();
        for volume in self.report.timeline.slices.iter().filter(|volume| wanted(&volume.zone)) {
            let place = slices.partition_point(|slice| slice.starts_at <= volume.starts_at);
            if let Some(slice) = place.checked_sub(1).and_then(|place| slices.get_mut(place)) {
                slice.counts = slice.counts + volume.counts;
            }
        }
        slices
    }

    /// The part of a slice that the report is about, as times; None where it is all of it.
    pub fn cut(&self, starts_at: DateTime<Utc>) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let ends_at = self.ends_at(starts_at)?;
        let Report { since, until, .. } = self.report;
        let part = (starts_at.max(*since), ends_at.min(*until));
        (part != (starts_at, ends_at)).then_some(part)
    }

    /// When a slice begins, as short as it can be said below a table's header.
    pub fn name(&self, starts_at: DateTime<Utc>) -> String {
        match self.report.timeline.slice_us {
            us if us >= DAY_US => starts_at.format("%Y-%m-%d").to_string(),
            us if us >= 1_000_000 => second(starts_at),
            _ => starts_at.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        }
    }

    /// The id of a slice in the table, which its bar leads to.
    pub fn id(&self, starts_at: DateTime<Utc>) -> String {
        let form =
            if self.report.timeline.slice_us >= DAY_US { "at-%Y-%m-%d" } else { "at-%Y-%m-%d-%H-%M-%S%.f" };
        starts_at.format(form).to_string()
    }

    /// Checks over time.
    pub fn volumes(&self, title: &str, height_px: u32, slices: &[Slice]) -> Plot {
        let most = slices.iter().map(|slice| slice.counts.checks).max().unwrap_or(0);
        let mut plot = Plot::new(title, height_px, most as f64);
        let parts = PARTS.map(|(name, mark, part)| (plot.series(name, mark), part));
        let mut numbered = slices.len() > NUMBERED;
        self.bars(&mut plot, slices, |counts| {
            // Of many bars only the highest says its number.
            let highest = counts.checks == most && std::mem::take(&mut numbered);
            let value =
                if slices.len() <= NUMBERED || highest { short(counts.checks) } else { String::new() };
            (parts.iter().map(|(series, part)| (*series, part(counts) as f64)).collect(), value)
        });
        plot
    }

    /// The blocked share over time.
    pub fn share(&self, title: &str, height_px: u32, slices: &[Slice]) -> Plot {
        let share = |counts: &Counts| counts.blocked as f64 / counts.checks.max(1) as f64;
        let most = slices.iter().map(|slice| share(&slice.counts)).fold(0.0, f64::max);
        let mut plot =
            Plot::new(title, height_px, most).unit(|share| format!("{} %", (share * 1_000.0).round() / 10.0));
        let blocked = plot.series("blocked", BLOCKED);
        self.bars(&mut plot, slices, |counts| (vec![(blocked, share(counts))], String::new()));
        plot
    }

    fn bars(
        &self,
        plot: &mut Plot,
        slices: &[Slice],
        mut parts: impl FnMut(&Counts) -> (Vec<(usize, f64)>, String),
    ) {
        let width = 1.0 / slices.len().max(1) as f64;
        // A little room between bars that are wide enough for it.
        let gap = if slices.len() <= 200 { width * 0.1 } else { 0.0 };
        for (n, slice) in slices.iter().enumerate() {
            let (from, counts) = (n as f64 * width, &slice.counts);
            if let Some((since, until)) = self.cut(slice.starts_at) {
                let part = |at: DateTime<Utc>| {
                    (at - slice.starts_at).as_seconds_f64() / self.length.as_seconds_f64() * width
                };
                for (from, to) in [(from, from + part(since)), (from + part(until), from + width)] {
                    if to > from {
                        plot.shade((from, to), "not in this report");
                    }
                }
            }
            if counts.checks > 0 {
                let (parts, value) = parts(counts);
                let at = (from + gap, from + width - gap);
                plot.bar(Bar {
                    at,
                    parts,
                    title: self.told(slice),
                    to: Some(self.id(slice.starts_at)),
                    value,
                });
            }
        }
        self.labels(plot, slices, width);
    }

    /// A slice in words.
    fn told(&self, slice: &Slice) -> String {
        let parts = PARTS.iter().map(|(name, _, part)| (*name, part(&slice.counts)));
        let parts = parts.filter(|(_, checks)| *checks > 0);
        let parts: Vec<_> = parts.map(|(name, checks)| format!("{} {name}", count(checks))).collect();
        let cut = if self.cut(slice.starts_at).is_some() { " (incomplete)" } else { "" };
        format!("{}{cut}: {}", self.name(slice.starts_at), parts.join(", "))
    }

    /// Round times below the bars. The year, the day or the second is said once and where it changes.
    fn labels(&self, plot: &mut Plot, slices: &[Slice], width: f64) {
        const STEPS_S: [i64; 19] = [
            1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800,
            604_800, 2_419_200,
        ];
        let slice_us = self.report.timeline.slice_us;
        let least_us = (slices.len() as i64).saturating_mul(slice_us) / LABELS;
        let step_us = STEPS_S.into_iter().map(|step_s| step_s * 1_000_000);
        let step_us =
            step_us.chain([100_000]).filter(|step_us| *step_us >= slice_us && *step_us >= least_us).min();
        let step_us =
            step_us.unwrap_or_else(|| least_us.div_euclid(slice_us).max(1).saturating_mul(slice_us));
        let days = slice_us >= DAY_US;
        let mut before: Option<DateTime<Utc>> = None;
        for (n, slice) in slices.iter().enumerate() {
            let at = slice.starts_at;
            // Weeks, and what is longer, begin on Mondays.
            let round =
                (at.timestamp_micros() - if days { 4 * DAY_US } else { 0 }).rem_euclid(step_us) < slice_us;
            if !(round || slices.len() as i64 <= LABELS) {
                continue;
            }
            let same =
                |of: fn(&DateTime<Utc>) -> i32| before.as_ref().is_some_and(|before| of(before) == of(&at));
            let form = match (slice_us, days) {
                (_, true) if same(|at| at.year()) => "%-d %b",
                (_, true) => "%-d %b %Y",
                (1_000_000.., _) if same(|at| at.num_days_from_ce()) => {
                    if step_us < 60_000_000 {
                        "%H:%M:%S"
                    } else {
                        "%H:%M"
                    }
                }
                (1_000_000.., _) => {
                    if step_us < 60_000_000 {
                        "%-d %b %H:%M:%S"
                    } else {
                        "%-d %b %H:%M"
                    }
                }
                _ if same(|at| at.second() as i32) => "%.3f",
                _ => "%H:%M:%S%.3f",
            };
            // A day is its bar; an hour is where it begins.
            let place = (n as f64 + if days || slices.len() <= NUMBERED { 0.5 } else { 0.0 }) * width;
            plot.below(place, &at.format(form).to_string());
            before = Some(at);
        }
    }
}
