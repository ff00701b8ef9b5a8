//! `tallygate history`.

use std::io::{StdoutLock, Write, stdout};
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use tallygate::Reason;
use tallygate::ledger::{Entry, History};
use uuid::Uuid;

use super::output::{Format, Table, by, cell, plain, render, table};
use super::{Failure, Result, duration, moment, open};

const EXAMPLES: &str = "\
Examples:
  tallygate history                                          the last 50 decisions
  tallygate history --zone login --blocked --since 1h        who was blocked in the last hour
  tallygate history --zone login --key user:42 --limit 5     the last 5 decisions about user 42
  tallygate history --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate history --since 2026-01-01T00:00:00Z --limit 1000000 --format csv > ledger.csv

Newest first. Times are the database's, in UTC.";

/// Rows that are read from the database at a time.
const PAGE: u32 = 1_000;

/// The fields of an entry, in the order in which serde writes them.
const FIELDS: [&str; 26] = [
    "id",
    "decided_at",
    "zone",
    "key",
    "seq",
    "txn_id",
    "kind",
    "checks",
    "blocked",
    "reason",
    "critical",
    "band",
    "member",
    "cost",
    "spent",
    "spent_total",
    "remaining",
    "retry_after_us",
    "delay_us",
    "level",
    "target_at",
    "ends_at",
    "note",
    "actor",
    "login",
    "zone_version",
];

/// Shows what was decided: the rows of the ledger
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this zone
    #[arg(long)]
    zone: Option<String>,
    /// Only this bucket; needs --zone or --txn
    #[arg(long)]
    key: Option<String>,
    /// Only this transaction
    #[arg(long, value_name = "UUID")]
    txn: Option<Uuid>,
    /// Only what was blocked
    #[arg(long, conflicts_with = "allowed")]
    blocked: bool,
    /// Only what was allowed
    #[arg(long)]
    allowed: bool,
    /// Decided at this time or later: a time, or how long ago, like 1h
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    since: Option<DateTime<Utc>>,
    /// Decided before this time: a time, or how long ago, like 15m
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<DateTime<Utc>>,
    /// At most so many rows
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// How to print
    #[arg(long, default_value = "text")]
    format: Format,
}

pub async fn run(url: &str, args: Args) -> Result {
    let limiter = open(url).await?;
    let mut history = History::default();
    (history.zone, history.key, history.txn) = (args.zone, args.key, args.txn);
    history.blocked = (args.blocked || args.allowed).then_some(args.blocked);
    (history.since, history.until) = (args.since, args.until);
    let mut printer = None;
    let mut left = args.limit;
    while left > 0 {
        history.limit = PAGE.min(u32::try_from(left).unwrap_or(PAGE));
        let page = limiter.auditor().history(&history).await?;
        // Only now: a request that the library refuses prints nothing.
        let printer = printer.get_or_insert_with(|| Printer::new(args.format));
        printer.print(&page.rows)?;
        left -= page.rows.len() as u64;
        match page.next {
            Some(next) => history.before = Some(next),
            None => break,
        }
    }
    printer.map_or(Ok(()), Printer::finish)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes page after page, so that a long history needs no more memory than a short one.
struct Printer {
    format: Format,
    out: StdoutLock<'static>,
    rows: u64,
}

impl Printer {
    fn new(format: Format) -> Self {
        Self { format, out: stdout().lock(), rows: 0 }
    }

    fn print(&mut self, rows: &[Entry]) -> Result<()> {
        let text = match self.format {
            Format::Text => self.table(rows),
            Format::Json => self.json(rows)?,
            Format::Csv => self.csv(rows)?,
        };
        self.rows += rows.len() as u64;
        Ok(self.out.write_all(text.as_bytes())?)
    }

    fn finish(mut self) -> Result<()> {
        match self.format {
            Format::Text if self.rows == 0 => writeln!(self.out, "no decisions match")?,
            Format::Json if self.rows == 0 => writeln!(self.out, "[]")?,
            Format::Json => writeln!(self.out, "\n]")?,
            _ => {}
        }
        Ok(())
    }

    fn table(&self, rows: &[Entry]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let rendered = render(&entries(rows), 0);
        let header = usize::from(self.rows > 0);
        rendered.split_inclusive('\n').skip(header).collect()
    }

    fn json(&self, rows: &[Entry]) -> Result<String> {
        let mut text = String::new();
        for (index, row) in rows.iter().enumerate() {
            text.push_str(if self.rows == 0 && index == 0 { "[\n" } else { ",\n" });
            text.push_str(&serde_json::to_string(row)?);
        }
        Ok(text)
    }

    fn csv(&self, rows: &[Entry]) -> Result<String> {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        let write = |writer: &mut csv::Writer<_>| {
            if self.rows == 0 {
                writer.write_record(FIELDS)?;
            }
            rows.iter().try_for_each(|row| {
                let mut row = row.clone();
                for text in [
                    Some(&mut row.zone),
                    Some(&mut row.key),
                    row.member.as_mut(),
                    row.note.as_mut(),
                    row.actor.as_mut(),
                ] {
                    text.into_iter().for_each(|text| *text = cell(text));
                }
                writer.serialize(row)
            })
        };
        write(&mut writer)
            .map_err(|error: csv::Error| Failure::new(format!("no CSV could be made: {error}")))?;
        Ok(String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned())
    }
}

/// What a person wants to see of each row.
pub fn entries(rows: &[Entry]) -> Table {
    let mut table = table(&[
        "decided at",
        "zone",
        "key",
        "seq",
        "decision",
        "cost",
        "left",
        "try again in",
        "transaction",
    ]);
    for row in rows {
        table.add_row([
            duration::show_moment(row.decided_at),
            plain(&row.zone),
            plain(&row.key),
            row.seq.to_string(),
            decision(row),
            row.cost.to_string(),
            row.remaining.to_string(),
            row.retry_after_us.map(duration::show_wait).unwrap_or_default(),
            row.txn_id.to_string(),
        ]);
    }
    table
}

/// `within_limit`; `over_limit, 17 checks` where one row stands for many; `ban until … by alice: why`.
fn decision(row: &Entry) -> String {
    if row.reason == Reason::Recorded {
        let until = row.ends_at.map(|at| format!(" until {}", duration::show_moment(at))).unwrap_or_default();
        let note = row.note.as_ref().map(|note| format!(": {}", plain(note))).unwrap_or_default();
        let by = row.actor.as_ref().map(|actor| format!(" by {}", by(actor, row.login.as_deref())));
        return format!("{}{until}{}{note}", row.kind, by.unwrap_or_default());
    }
    let shadowed = if !row.blocked && !row.reason.allows() { ", shadowed" } else { "" };
    match row.checks {
        1 => format!("{}{shadowed}", row.reason),
        checks => format!("{}{shadowed}, {checks} checks", row.reason),
    }
}

#[cfg(test)]
mod tests {
    use tallygate::ledger::Kind;

    use super::*;

    #[test]
    fn the_header_of_the_csv_names_the_fields_of_an_entry_in_their_order() {
        let entry = Entry {
            id: 1,
            decided_at: DateTime::UNIX_EPOCH,
            zone: "z".into(),
            key: "k".into(),
            seq: 1,
            txn_id: Uuid::nil(),
            kind: Kind::Check,
            checks: 1,
            blocked: false,
            reason: Reason::WithinLimit,
            critical: false,
            band: None,
            member: None,
            cost: 1,
            spent: 1,
            spent_total: 1,
            remaining: 0,
            retry_after_us: None,
            delay_us: None,
            level: None,
            target_at: None,
            ends_at: None,
            note: None,
            actor: None,
            login: None,
            zone_version: 1,
        };
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(entry).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(text.lines().next().unwrap(), FIELDS.join(","));
    }
}
