//! What a back-test found, for people and for programs.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tallygate::backtest::BacktestReport;
use tallygate::page::second;

use crate::cli::Result;
use crate::cli::output::{bold, plain, render, table};

/// What was found of one policy.
#[derive(Serialize)]
pub struct Told {
    pub name: String,
    #[serde(skip)]
    pub series: String,
    #[serde(skip)]
    pub value: Option<String>,
    #[serde(flatten)]
    pub report: BacktestReport,
}

/// One object, or a list where there are several.
pub fn json(told: &[Told]) -> Result<String> {
    let text = match told {
        [one] => serde_json::to_string(one)?,
        several => serde_json::to_string(several)?,
    };
    Ok(text + "\n")
}

/// A table of the policies, and for each who was blocked, unless values were swept.
pub fn text(told: &[Told]) -> String {
    let has_reserved = told.iter().any(|told| told.report.reserved.is_some());
    let off: &[_] = if has_reserved { &["reserved too much", "too little"] } else { &[] };
    let mut policies =
        table(&[&["policy", "allowed", "blocked", "share", "keys", "blocked keys"], off].concat());
    for Told { name, report, .. } in told {
        let mut row = vec![
            plain(name),
            report.allowed.to_string(),
            report.blocked.to_string(),
            share(report),
            report.keys.to_string(),
            report.blocked_keys.to_string(),
        ];
        let off = report.reserved.unwrap_or_default();
        row.extend([off.over, off.under].map(|units| units.to_string()).into_iter().filter(|_| has_reserved));
        policies.add_row(row);
    }
    let mut text = render(&policies, 0);
    if let Some(first) = told.first() {
        text += &format!("\n{}\n", span(&first.report));
    }
    for Told { name, report, .. } in told.iter().filter(|told| told.value.is_none()) {
        if report.top_blocked.is_empty() {
            continue;
        }
        let mut keys = table(&["key", "blocked", "first blocked", "last blocked"]);
        for key in &report.top_blocked {
            keys.add_row([
                plain(&key.key),
                key.blocked.to_string(),
                moment(key.first_at),
                moment(key.last_at),
            ]);
        }
        let title = if told.len() > 1 { format!("{}\n", bold(&plain(name))) } else { String::new() };
        text += &format!("\n{title}{}", render(&keys, 0));
    }
    text
}

/// `528 events from … to … (UTC), 3 of them late`.
pub fn span(report: &BacktestReport) -> String {
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
    format!("{} events from {first} to {last} (UTC){late}", report.events)
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
