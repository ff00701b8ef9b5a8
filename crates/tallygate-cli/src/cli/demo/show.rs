//! The demo as a person reads it.

use std::io::{Write, stdout};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tallygate::Limiter;
use tallygate::audit::report::ReportOn;

use super::place::Place;
use super::report::Report;
use super::storm::CAST;
use super::{CLIENTS, KEYS_SHOWN, RATE, WINDOW};
use crate::cli::audit::explain;
use crate::cli::audit::report::Page;
use crate::cli::clock::Clock;
use crate::cli::output::{bold, dim, green, paragraph, plain, red, render, table};
use crate::cli::terminal::quoted;
use crate::cli::{Result, duration};

/// Charges of the explanation.
const CHARGES_SHOWN: usize = 5;

pub fn opening(place: &Place, attempts: usize) -> Result<()> {
    let mut out = stdout().lock();
    let window = duration::show(i64::try_from(WINDOW.as_micros()).unwrap_or_default());
    let story = format!(
        "Zone {} lets each key through {RATE} times in any {window}. {CLIENTS} clients at once send {attempts} attempts by {} \
         users and addresses, two of them attackers.",
        place.zone,
        CAST.len()
    );
    writeln!(out, "{}", bold("A login storm"))?;
    out.write_all(paragraph(&story, 2).as_bytes())?;
    writeln!(out, "  {}\n", dim(&format!("database {}", place.shown())))?;
    Ok(())
}

/// The things that the demo left behind.
pub struct Found<'f> {
    pub limiter: &'f Limiter,
    pub place: &'f Place,
    pub report: &'f Report,
    pub start: DateTime<Utc>,
}

impl Found<'_> {
    pub async fn show(&self, took: Duration) -> Result<()> {
        let Self { limiter, place, report, start } = self;
        let worst = report.keys.first().map_or("user:42", |key| &key.key);
        let explained = match limiter.auditor().last_block(Some(&report.zone), worst).await? {
            Some(row) => Some(limiter.auditor().explain(row.txn_id, CHARGES_SHOWN).await?),
            None => None,
        };
        if let Some(path) = &place.page {
            let on = ReportOn::default().zone(place.zone).since(*start);
            let page = Page { path, url: &place.url, by: "tallygate demo", explain: 20 };
            page.write(limiter, &on).await?;
        }
        let mut out = stdout().lock();
        let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        writeln!(out, "\n{}", bold("What does the ledger say?"))?;
        writeln!(
            out,
            "  {} decisions in {}: {}, {}.\n",
            report.attempts,
            duration::show_wait(took_us),
            green(&format!("{} allowed", report.allowed)),
            red(&format!("{} blocked", report.blocked)),
        )?;
        out.write_all(keys(report).as_bytes())?;
        write!(out, "\n{}", exactness(report))?;
        if let Some(explained) = &explained {
            writeln!(out, "\n{}", bold(&format!("Why was {} blocked?", plain(worst))))?;
            out.write_all(explain::text(explained, Clock::UTC).as_bytes())?;
        }
        if let Some(page) = &place.page {
            writeln!(out, "\n{}", bold("What happened?"))?;
            writeln!(out, "  A report with charts, for a browser:\n  {}", page.display())?;
        }
        let zone = place.zone;
        let worst = quoted(worst);
        next(
            &mut out,
            Some(place),
            &[
                format!("check {zone} {worst}"),
                format!("audit explain --zone {zone} --key {worst} --for customer"),
                format!("history --zone {zone} --blocked --limit 10"),
                format!("backtest --from-ledger {zone} --rate 3 --per 60s"),
                format!("audit report --zone {zone} --since 1h"),
                "audit verify".to_owned(),
            ],
        )
    }
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
            key.first_blocked_at.map(|at| Clock::UTC.show(at)).unwrap_or_default(),
        ]);
    }
    let more = report.keys.len().saturating_sub(KEYS_SHOWN);
    let rest = if more > 0 { format!("  {}\n", dim(&format!("and {more} more"))) } else { String::new() };
    render(&table, 2) + &rest
}

/// The promise, and the rows that it was checked with.
fn exactness(report: &Report) -> String {
    let window = duration::show(report.window_us);
    let most = report.most_in_any_window;
    let found = if most > report.limit {
        format!("{} A key was let through {most} times in {window}", red("✗"))
    } else {
        format!("{} No key was ever let through more than {} times in {window}", green("✓"), report.limit)
    };
    let span = if report.span_us < report.window_us { "All fell in one window; the" } else { "The" };
    let told = format!("{span} most found was {most}, counted from {} ledger rows.", report.attempts);
    format!("  {found}.\n{}", paragraph(&told, 4))
}

/// Commands to go on with. The program has its name in them, also where it is not among the commands of the shell, and the
/// database of a place is named once.
pub fn next(out: &mut impl Write, place: Option<&Place>, commands: &[String]) -> Result<()> {
    writeln!(out, "\n{}", bold("Try next"))?;
    let program = std::env::args().next().filter(|program| program.contains('/'));
    if let Some(program) = program {
        writeln!(out, "  alias tallygate={}", quoted(&program))?;
    }
    match place.map(Place::export) {
        Some(Some(export)) => writeln!(out, "  {export}")?,
        Some(None) => {
            writeln!(out, "  {}", dim("# with the same --database, or its URL in TALLYGATE_DATABASE_URL"))?;
        }
        None => {}
    }
    for command in commands {
        writeln!(out, "  tallygate {}", plain(command))?;
    }
    Ok(())
}
