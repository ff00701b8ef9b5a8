//! The findings of a back-test, for people and for programs.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tallygate::backtest::{BacktestReport, Changed, ChangedKey};
use tallygate::page::second;

use super::events::Skipped;
use super::judge::{self, JUDGED, Judged};
use crate::cli::output::{Table, bold, plain, render, table};

/// The findings about one policy.
#[derive(Serialize)]
pub struct Told {
    pub name: String,
    #[serde(skip)]
    pub label: String,
    #[serde(skip)]
    pub series: String,
    #[serde(skip)]
    pub value: Option<String>,
    /// Are the others compared with it?
    pub baseline: bool,
    /// The numbers of its versions, where it is the zone's own policy.
    pub versions: Option<Vec<i32>>,
    /// The number of checks that were blocked when they were recorded, where it is the zone's own policy.
    pub recorded_blocked: Option<u64>,
    #[serde(flatten)]
    pub report: BacktestReport,
    pub skipped: Skipped,
    /// The checks that pass by the baseline, and not by this.
    pub newly_blocked: Option<Changed>,
    /// The checks that pass by this, and not by the baseline.
    pub freed: Option<Changed>,
    /// The attempts that it hits and stops, where outcomes are known.
    pub outcomes: Option<Judged>,
}

/// The keys that were blocked most, with the number of checks that each policy blocks.
pub struct Most {
    /// The number of policies, of which the first have a number in each row.
    pub of: usize,
    pub rows: Vec<(String, Vec<u64>)>,
}

/// A table for each question: the policies; the keys that each would newly block, and those that it would free; the keys that are
/// blocked most.
pub fn text(told: &[Told], most: &Most) -> String {
    let mut text = render(&policies(told), 0);
    if let Some(first) = told.first() {
        text += &format!("\n{}\n", first.span());
        text += &recorded(first).map(|sentence| sentence + "\n").unwrap_or_default();
    }
    let judged = judged(told);
    if !judged.is_empty() {
        let mut outcomes = table(&JUDGED);
        outcomes.add_rows(judged);
        text += &format!("\n{}\n{}", bold(judge::TITLE), render(&outcomes, 0));
    }
    if told.iter().any(|told| told.value.is_some()) {
        return text;
    }
    for (title, of) in CHANGES {
        let rows: Vec<_> = told.iter().flat_map(|told| changes(told, of(told))).collect();
        if !rows.is_empty() {
            let mut keys = table(&CHANGED);
            keys.add_rows(rows);
            text += &format!("\n{}\n{}", bold(title), render(&keys, 0));
        }
    }
    text + &blocked_most(told, most)
}

/// A row for each policy, with its differences from the baseline.
fn policies(told: &[Told]) -> Table {
    let has_reserved = told.iter().any(|told| told.report.reserved.is_some());
    let has_baseline = told.iter().any(|told| told.baseline);
    let off: &[_] = if has_reserved { &["reserved too much", "too little"] } else { &[] };
    let change: &[_] = if has_baseline { &["newly blocked", "freed"] } else { &[] };
    let mut policies =
        table(&[&["policy", "allowed", "blocked", "share", "keys", "blocked keys"], change, off].concat());
    for told in told {
        let report = &told.report;
        let mut row = told.row();
        row.extend(told.change().into_iter().filter(|_| has_baseline));
        let off = report.reserved.unwrap_or_default();
        row.extend([off.over, off.under].map(|units| units.to_string()).into_iter().filter(|_| has_reserved));
        policies.add_row(row);
    }
    policies
}

impl Told {
    /// The cells of the columns `policy`, `allowed`, `blocked`, `share`, `keys` and `blocked keys`.
    pub fn row(&self) -> Vec<String> {
        let report = &self.report;
        vec![
            plain(&self.label),
            report.allowed.to_string(),
            report.blocked.to_string(),
            share(report),
            report.keys.to_string(),
            report.blocked_keys.to_string(),
        ]
    }

    /// `528 events from … to … (UTC); 3 of them late; 1 line that …`.
    pub fn span(&self) -> String {
        let report = &self.report;
        if report.events == 0 {
            return "no events".to_owned();
        }
        let late = match report.late {
            0 => String::new(),
            late => {
                format!("; {late} came late and were decided at the time of the one before them of their key")
            }
        };
        let [first, last] = [report.first_at, report.last_at].map(moment);
        let events = if report.events == 1 { "event" } else { "events" };
        format!("{} {events} from {first} to {last} (UTC){late}{}", report.events, self.skipped.told())
    }

    /// The cells of the columns `newly blocked` and `freed`.
    pub fn change(&self) -> [String; 2] {
        [&self.newly_blocked, &self.freed].map(|changed| {
            changed.as_ref().map_or_else(|| "-".to_owned(), |changed| changed.checks.to_string())
        })
    }
}

/// A row for each policy, where outcomes are known.
pub fn judged(told: &[Told]) -> Vec<Vec<String>> {
    let row = |told: &Told| {
        let judged = told.outcomes.as_ref()?;
        Some([plain(&told.label)].into_iter().chain(judged.row()).collect())
    };
    told.iter().filter_map(row).collect()
}

/// The tables of what would change.
type Change = fn(&Told) -> Option<&Changed>;
pub const CHANGES: [(&str, Change); 2] = [
    ("Newly blocked, by key", |told| told.newly_blocked.as_ref()),
    ("Freed, by key", |told| told.freed.as_ref()),
];

/// The names of the columns of [`changes`].
pub const CHANGED: [&str; 5] = ["policy", "key", "checks", "blocked by baseline", "blocked by policy"];

/// A row for each key of which a policy decided otherwise.
pub fn changes(told: &Told, changed: Option<&Changed>) -> Vec<Vec<String>> {
    let row = |key: &ChangedKey| {
        let [checks, baseline, policy] =
            [key.checks, key.blocked_by_baseline, key.blocked].map(|count| count.to_string());
        vec![plain(&told.name), plain(&key.key), checks, baseline, policy]
    };
    changed.map_or_else(Vec::new, |changed| changed.top.iter().map(row).collect())
}

/// The keys that were blocked most: with the times for one policy, with the numbers of each for several.
fn blocked_most(told: &[Told], most: &Most) -> String {
    if let [one] = told {
        if one.report.top_blocked.is_empty() {
            return String::new();
        }
        let mut keys = table(&["key", "blocked", "first blocked", "last blocked"]);
        for key in &one.report.top_blocked {
            keys.add_row([
                plain(&key.key),
                key.blocked.to_string(),
                moment(key.first_at),
                moment(key.last_at),
            ]);
        }
        return format!("\n{}", render(&keys, 0));
    }
    let Some((_, shown)) = most.rows.first() else { return String::new() };
    let names: Vec<String> = told.iter().take(shown.len()).map(|told| plain(&told.name)).collect();
    let mut keys = table(&["key"].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
    for (key, blocked) in &most.rows {
        keys.add_row([plain(key)].into_iter().chain(blocked.iter().map(u64::to_string)));
    }
    format!("\n{}\n{}", bold(&most.title()), render(&keys, 0))
}

impl Most {
    /// Its title.
    pub fn title(&self) -> String {
        let shown = self.rows.first().map_or(0, |(_, blocked)| blocked.len());
        let of = if shown < self.of { format!(" of the first {shown} policies") } else { String::new() };
        format!("Blocked most, by key{of}")
    }
}

/// A line where the ledger blocked otherwise than its own policy does by itself.
pub fn recorded(told: &Told) -> Option<String> {
    let recorded = told.recorded_blocked.filter(|recorded| *recorded != told.report.blocked)?;
    Some(format!(
        "When they were recorded, {recorded} were blocked: refunds, bans by people and limits of a bucket's own are not \
         played, nor is what was long before --since."
    ))
}

/// The blocked part of all events, in percent.
pub fn percent(report: &BacktestReport) -> f64 {
    if report.events == 0 { 0.0 } else { 100.0 * report.blocked as f64 / report.events as f64 }
}

pub fn share(report: &BacktestReport) -> String {
    format!("{:.1} %", percent(report))
}

pub fn moment(at: Option<DateTime<Utc>>) -> String {
    at.map(second).unwrap_or_default()
}
