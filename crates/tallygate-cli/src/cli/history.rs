//! `tallygate history`.

use std::io::Write;
use std::process::ExitCode;

use tallygate::ledger::{Cursor, Entry, History, Kind};
use tallygate::{Limiter, Reason};
use uuid::Uuid;

use super::clock::{Clock, Typed};
use super::output::{Format, Table, by, cell, plain, render, render_more, table};
use super::pager::Pager;
use super::terminal::{self, quoted, tell};
use super::{Failure, Result, duration, open, txn};

const EXAMPLES: &str = "\
Examples:
  tallygate history                                          the last 50 decisions
  tallygate history --zone login --blocked --since 1h        who was blocked in the last hour
  tallygate history --zone login --key user:42 --limit 5     the last 5 decisions about user 42
  tallygate history --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate history --since 2026-01-01T00:00:00Z --limit 1000000 --format csv > ledger.csv

Newest first. Times are the database's.";

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

/// Shows past decisions: the rows of the ledger
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Show only this zone
    #[arg(long)]
    zone: Option<String>,
    /// Show only this key: in all zones, unless one is named
    #[arg(long)]
    key: Option<String>,
    /// Show only keys that begin so, at most 1,000 of them: user:, 203.0.113.
    #[arg(long, value_name = "TEXT", conflicts_with = "key")]
    key_prefix: Option<String>,
    /// Show only this transaction
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
    /// Show only what was blocked
    #[arg(long, conflicts_with = "allowed")]
    blocked: bool,
    /// Show only what was allowed
    #[arg(long)]
    allowed: bool,
    /// Show only decisions of this time or later: a time, or how long ago, like 1h
    #[arg(long, value_name = "TIME")]
    since: Option<Typed>,
    /// Show only decisions before this time: a time, or how long ago, like 15m
    #[arg(long, value_name = "TIME")]
    until: Option<Typed>,
    /// The clock by which times are read and shown: UTC, local, or a name like Europe/Berlin. JSON and CSV are in UTC
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: Clock,
    /// The most rows to show
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Show only rows that are older than this place, which the end of a page names
    #[arg(long, value_name = "PLACE")]
    before: Option<Cursor>,
    /// Print everything at once, on a terminal too [default: through PAGER, or less -FRX]
    #[arg(long)]
    no_pager: bool,
    /// The form of the list
    #[arg(long, default_value = "text")]
    format: Format,
}

pub async fn run(url: &str, args: Args) -> Result {
    let limiter = open(url).await?;
    let mut history = History::default();
    (history.zone, history.key, history.txn) = (args.zone, args.key, args.txn);
    history.key_prefix = args.key_prefix;
    history.blocked = (args.blocked || args.allowed).then_some(args.blocked);
    let begin = |typed: Option<Typed>| typed.map(|typed| typed.begin(args.time_zone)).transpose();
    history.since = begin(args.since).map_err(Failure::new)?;
    history.until = begin(args.until).map_err(Failure::new)?;
    history.before = args.before;
    let mut printer = None;
    let mut left = args.limit;
    while left > 0 {
        history.limit = PAGE.min(u32::try_from(left).unwrap_or(PAGE));
        let page = limiter.auditor().history(&history).await?;
        // Only now: a request that the library refuses prints nothing.
        let printer =
            printer.get_or_insert_with(|| Printer::new(args.format, args.time_zone, !args.no_pager));
        printer.print(&page.rows)?;
        left -= page.rows.len() as u64;
        match page.next {
            Some(next) => history.before = Some(next),
            None => {
                history.before = None;
                break;
            }
        }
    }
    let near = match &history.key {
        Some(key)
            if args.format == Format::Text && printer.as_ref().is_some_and(|printer| printer.rows == 0) =>
        {
            limiter.auditor().near(history.zone.as_deref(), key).await?
        }
        _ => Vec::new(),
    };
    let more = if args.format == Format::Text && !terminal::is_quiet() {
        older(&limiter, history).await?
    } else {
        None
    };
    printer.map_or(Ok(()), |printer| printer.finish(more, &near))?;
    Ok(ExitCode::SUCCESS)
}

/// The place in front of which there are older rows, if there are any.
async fn older(limiter: &Limiter, history: History) -> Result<Option<Cursor>> {
    let Some(before) = history.before else { return Ok(None) };
    let next = limiter.auditor().history(&history.limit(1)).await?;
    Ok(Some(before).filter(|_| !next.rows.is_empty()))
}

/// Writes page after page, so that a long history needs no more memory than a short one.
struct Printer {
    format: Format,
    clock: Clock,
    out: Pager,
    rows: u64,
}

impl Printer {
    fn new(format: Format, clock: Clock, paged: bool) -> Self {
        Self { format, clock, out: Pager::begin(paged && format == Format::Text), rows: 0 }
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

    /// Ends the answer. Rows that were left out since they were too many are told of, with the command that shows them.
    /// Near keys are told in place of rows.
    fn finish(mut self, more: Option<Cursor>, near: &[(String, String)]) -> Result<()> {
        match self.format {
            Format::Text if self.rows == 0 => {
                let near = near.iter().map(|(zone, key)| format!("{} {}", plain(zone), plain(key)));
                let near = near.collect::<Vec<_>>().join(", ");
                let hint = if near.is_empty() { near } else { format!("; near keys: {near}") };
                writeln!(self.out, "no decisions match{hint}")?;
            }
            Format::Json if self.rows == 0 => writeln!(self.out, "[]")?,
            Format::Json => writeln!(self.out, "\n]")?,
            _ => {}
        }
        self.out.flush()?;
        if let Some(before) = more {
            let command = command_before(std::env::args().skip(1), before);
            let told = format!("There are older rows. Show them with: {command}");
            // Beside the rows for a person who pages through them, and apart from them for a program.
            if self.out.is_paged() { writeln!(self.out, "{told}")? } else { tell(told) }
        }
        Ok(self.out.end()?)
    }

    fn table(&self, rows: &[Entry]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let table = entries(rows, self.clock);
        if self.rows == 0 { render(&table, 0) } else { render_more(&table, 0) }
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

/// The same command, for the rows that are older than this place.
fn command_before(arguments: impl Iterator<Item = String>, before: Cursor) -> String {
    let mut words = vec!["tallygate".to_owned()];
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--before" => drop(arguments.next()),
            // A password may be in it.
            "--database" => {
                let url = arguments.next().filter(|url| url.starts_with("sqlite:"));
                words.extend([argument, url.map_or_else(|| "URL".to_owned(), |url| quoted(&url))]);
            }
            _ if argument.starts_with("--before=") => {}
            _ if argument.starts_with("--database=") => words.push("--database=URL".to_owned()),
            _ => words.push(quoted(&argument)),
        }
    }
    words.extend(["--before".to_owned(), before.to_string()]);
    words.join(" ")
}

/// The parts of each row that a person wants to see.
fn entries(rows: &[Entry], clock: Clock) -> Table {
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
            clock.show(row.decided_at),
            plain(&row.zone),
            plain(&row.key),
            row.seq.to_string(),
            decision(row, clock),
            cost(row).to_string(),
            row.remaining.to_string(),
            wait(row).map(duration::show_wait).unwrap_or_default(),
            row.txn_id.to_string(),
        ]);
    }
    table
}

/// The cost; of what was handed out, how much of it was had.
fn cost(row: &Entry) -> i64 {
    if matches!(row.kind, Kind::Lease | Kind::Local) { row.spent } else { row.cost }
}

/// The wait of who was blocked.
fn wait(row: &Entry) -> Option<i64> {
    row.retry_after_us.filter(|_| row.kind != Kind::Lease)
}

/// `within_limit`; `over_limit, 17 checks` where one row stands for many; `ban until … by alice: why`; `take until … by w1`.
fn decision(row: &Entry, clock: Clock) -> String {
    let handed_out = matches!(row.kind, Kind::Lease | Kind::Local | Kind::Take);
    if row.reason == Reason::Recorded || handed_out {
        let end = row.ends_at.map(|at| clock.show_end(at));
        let until = match (row.kind, end) {
            (Kind::Requeue, _) if row.member.is_some() => String::new(),
            (Kind::Requeue, Some(end)) => format!(", again from {end}"),
            (_, Some(end)) => format!(" until {end}"),
            (_, None) => String::new(),
        };
        let note = row.note.as_ref().map(|note| format!(": {}", plain(note))).unwrap_or_default();
        let whose = row.member.as_deref().filter(|_| row.kind.is_of_queue() || row.kind == Kind::Lease);
        let whose = whose.map(|member| match row.kind {
            Kind::Lease | Kind::Evict => format!(" for {}", plain(member)),
            _ => format!(" by {}", plain(member)),
        });
        let by = row.actor.as_ref().map(|actor| format!(" by {}", by(actor, row.login.as_deref())));
        let by = whose.or(by).unwrap_or_default();
        let banned = if row.reason == Reason::Banned { ", banned" } else { "" };
        return format!("{}{until}{by}{banned}{note}", row.kind);
    }
    if row.kind == Kind::Offer {
        return format!("offer, {}", row.reason);
    }
    let shadowed = if !row.blocked && !row.reason.allows() { ", shadowed" } else { "" };
    match row.checks {
        1 => format!("{}{shadowed}", row.reason),
        checks => format!("{}{shadowed}, {checks} checks", row.reason),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
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
