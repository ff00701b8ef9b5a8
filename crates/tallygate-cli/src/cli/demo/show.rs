//! The demo as a person reads it.

use std::io::{Write, stdout};
use std::time::Duration;

use tallygate::Limiter;
use tallygate::ledger::{Entry, History};

use super::place::Place;
use super::report::Report;
use super::{Attempts, RATE, WINDOW};
use crate::cli::output::{Table, bold, dim, green, plain, red, render, table};
use crate::cli::terminal::quoted;
use crate::cli::{Result, duration};

/// Rows of the table of keys.
const KEYS_SHOWN: usize = 10;

pub fn opening(place: &Place, attempts: &Attempts, clients: usize) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", bold("A login storm"))?;
    let window = duration::show(i64::try_from(WINDOW.as_micros()).unwrap_or_default());
    writeln!(out, "  Zone {} lets each key through {RATE} times in any {window}.", bold(place.zone))?;
    writeln!(out, "  {clients} clients at once send {}.", attempts.story)?;
    writeln!(out, "  {}\n", dim(&format!("database {}", place.shown())))?;
    Ok(())
}

pub async fn findings(limiter: &Limiter, place: &Place, report: &Report, took: Duration) -> Result<()> {
    let rows = match report.keys.first() {
        Some(worst) => {
            let history = History::default().zone(&report.zone).key(&worst.key).limit(4);
            limiter.auditor().history(&history).await?.rows
        }
        None => Vec::new(),
    };
    let mut out = stdout().lock();
    let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    writeln!(out, "\n{}", bold("What the ledger says"))?;
    writeln!(
        out,
        "  {} decisions in {}: {}, {}.\n",
        report.attempts,
        duration::show_wait(took_us),
        green(&format!("{} allowed", report.allowed)),
        red(&format!("{} blocked", report.blocked)),
    )?;
    out.write_all(keys(report).as_bytes())?;
    if let Some(worst) = report.keys.first() {
        writeln!(out, "\n  {}", bold(&format!("The last decisions about {}", plain(&worst.key))))?;
        out.write_all(render(&decisions(&rows), 2).as_bytes())?;
    }
    writeln!(out, "\n  {}", exactness(report))?;
    next(&mut out, place, report)
}

fn keys(report: &Report) -> String {
    let mut table = table(&["key", "attempts", "allowed", "blocked", "first blocked at"]);
    (1..=3).for_each(|column| table.align_right(column));
    for key in report.keys.iter().take(KEYS_SHOWN) {
        table.add_row([
            plain(&key.key),
            key.attempts.to_string(),
            key.allowed.to_string(),
            key.blocked.to_string(),
            key.first_blocked_at.map(duration::show_moment).unwrap_or_default(),
        ]);
    }
    let more = report.keys.len().saturating_sub(KEYS_SHOWN);
    let rest = if more > 0 { format!("  {}\n", dim(&format!("and {more} more"))) } else { String::new() };
    render(&table, 2) + &rest
}

fn decisions(rows: &[Entry]) -> Table {
    let mut table = table(&["seq", "decided at", "decision", "left", "try again in"]);
    for row in rows {
        table.add_row([
            row.seq.to_string(),
            duration::show_moment(row.decided_at),
            row.reason.to_string(),
            row.remaining.to_string(),
            row.retry_after_us.map(duration::show_wait).unwrap_or_default(),
        ]);
    }
    table
}

/// The promise, and what it was checked with.
fn exactness(report: &Report) -> String {
    let window = duration::show(report.window_us);
    let most = report.most_in_any_window;
    let found = if most > report.limit {
        format!("{} A key was let through {most} times in {window}", red("✗"))
    } else {
        format!("{} No key was ever let through more than {} times in {window}", green("✓"), report.limit)
    };
    let span = if report.span_us < report.window_us { "All fell in one window; the" } else { "The" };
    format!("{found}.\n    {span} most found was {most}, recomputed from {} ledger rows.", report.attempts)
}

/// Commands that work with what the demo left behind.
fn next(out: &mut impl Write, place: &Place, report: &Report) -> Result<()> {
    let program = std::env::args().next().unwrap_or_else(|| "tallygate".to_owned());
    let zone = place.zone;
    let key = report.keys.first().map_or("user:42", |key| key.key.as_str());
    writeln!(out, "\n{}", bold("Try next"))?;
    match place.export() {
        Some(export) => writeln!(out, "  {export}")?,
        None => {
            writeln!(out, "  {}", dim("# with the same --database, or its URL in TALLYGATE_DATABASE_URL"))?
        }
    }
    for command in [
        format!("check {zone} {}", quoted(key)),
        format!("check {zone} user:newcomer --format json"),
        format!("history --zone {zone} --blocked --limit 10"),
        "zone set payments --rate 50000 --per 24h".to_owned(),
        "check payments card:9f3c --cost 1250".to_owned(),
    ] {
        writeln!(out, "  {} {command}", quoted(&program))?;
    }
    Ok(())
}
