//! `tallygate audit explain`.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use clap::ValueEnum;
use serde::Serialize;
use tallygate::audit::explain::{Cause, Counted, Explained, ExplainedRow};
use tallygate::ledger::Kind;
use tallygate::{Limiter, Reason};
use uuid::Uuid;

use super::customer;
use super::words::Words;
use crate::cli::clock::{Clock, Typed};
use crate::cli::exit::Exit;
use crate::cli::output::{Answer, bold, by, dim, green, paragraph, plain, red, render, table};
use crate::cli::{Failure, Result, open, txn};

const EXAMPLES: &str = "\
Examples:
  tallygate audit explain 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate audit explain --key card:9f3c                          its last block, in whichever zone
  tallygate audit explain --zone login --key user:42 --at '2026-11-22 03:00'
  tallygate audit explain --zone login --key user:42 --at 2h --time-zone Europe/Berlin
  tallygate audit explain --key card:9f3c --for customer           one sentence that may be read to the customer
  tallygate audit explain 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --limit 100 --format json

With --at it is the last decision at that time or before it; a day, a minute or a second stands for all of it. Each bucket \
that the transaction touched is read from its first row, a page at a time: some 10 µs for each row. Times are the \
database's. Exit code 5 when a row cannot be derived again from the rows before it.";

/// Explains why a transaction was decided as it was
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The transaction
    #[arg(value_name = "TXN", required_unless_present = "key", conflicts_with = "key", value_parser = txn::parse)]
    txn: Option<Uuid>,
    /// The key whose last block is explained, of all zones or of --zone
    #[arg(long)]
    key: Option<String>,
    /// Only this zone
    #[arg(long, requires = "key")]
    zone: Option<String>,
    /// The last decision by this time instead: RFC 3339, "2026-01-31 08:00", 2026-01-31, yesterday, or how long ago
    #[arg(long, value_name = "TIME", requires = "key")]
    at: Option<Typed>,
    /// The reader of the explanation
    #[arg(long = "for", value_name = "READER", default_value = "auditor")]
    reader: Reader,
    /// The clock by which times are read and shown: UTC, local, or a name like Europe/Berlin. JSON is in UTC
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: Clock,
    /// List at most this many of the charges that counted
    #[arg(long, value_name = "N", default_value = "20")]
    limit: u32,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reader {
    // Everything that it was decided from.
    Auditor,
    // One sentence, without limits, counts and anything else that an answer over HTTP does not tell.
    Customer,
}

/// The sentence for a customer, as JSON shows it.
#[derive(Serialize)]
struct Told {
    txn_id: Uuid,
    for_customer: String,
}

/// An explanation, as JSON shows it.
#[derive(Serialize)]
struct Shown<'e> {
    #[serde(flatten)]
    explained: &'e Explained,
    /// The sentences of each row, in order.
    in_words: Vec<Vec<String>>,
    /// The sentence that may be read to a customer.
    for_customer: String,
}

pub async fn run(url: &str, args: Args) -> Result {
    let limiter = open(url).await?;
    let txn = match args.txn {
        Some(txn) => txn,
        None => find(&limiter, &args).await?,
    };
    let explained = limiter.auditor().explain(txn, args.limit as usize).await?;
    let mut out = stdout().lock();
    match (args.format, args.reader) {
        (Answer::Text, Reader::Auditor) => out.write_all(text(&explained, args.time_zone).as_bytes())?,
        (Answer::Text, Reader::Customer) => {
            let sentence = customer::sentence(&explained, args.time_zone);
            out.write_all(paragraph(&sentence, 0).as_bytes())?;
        }
        (Answer::Json, reader) => {
            let words = Words { all: &explained, clock: Clock::UTC };
            let in_words = explained.rows.iter().map(|row| words.sentences(row)).collect();
            let for_customer = customer::sentence(&explained, Clock::UTC);
            let json = match reader {
                Reader::Auditor => {
                    serde_json::to_string(&Shown { explained: &explained, in_words, for_customer })?
                }
                Reader::Customer => serde_json::to_string(&Told { txn_id: explained.txn_id, for_customer })?,
            };
            writeln!(out, "{json}")?;
        }
    }
    let reproduced = explained.rows.iter().all(|row| row.reproduced == Some(true));
    Ok(if reproduced { Exit::Good } else { Exit::Faults }.into())
}

/// The transaction that is asked about by its key.
async fn find(limiter: &Limiter, args: &Args) -> Result<Uuid> {
    let (auditor, zone) = (limiter.auditor(), args.zone.as_deref());
    let key = args.key.as_deref().unwrap_or_default();
    let place = match zone {
        Some(zone) => format!("key \"{}\" in zone \"{}\"", plain(key), plain(zone)),
        None => format!("key \"{}\" in any zone", plain(key)),
    };
    // The key itself may hold something that no shell should read.
    let elsewhere = "see what there is with: tallygate history --key KEY";
    match args.at {
        Some(typed) => {
            let at = typed.end(args.time_zone).map_err(Failure::new)?;
            let found = auditor.last_decision(zone, key, at).await?;
            let until = args.time_zone.show(at);
            let none =
                || Failure::new(format!("nothing was decided about {place} up to {until}; {elsewhere}"));
            found.map(|row| row.txn_id).ok_or_else(none)
        }
        None => {
            let found = auditor.last_block(zone, key).await?;
            let none = || {
                Failure::new(format!(
                    "nothing was ever blocked of {place}; name a time with --at, or {elsewhere}"
                ))
            };
            found.map(|row| row.txn_id).ok_or_else(none)
        }
    }
}

/// The explanation for a person.
pub fn text(explained: &Explained, clock: Clock) -> String {
    let words = Words { all: explained, clock };
    let mut text = format!("Transaction {}\n", explained.txn_id);
    for row in &explained.rows {
        let told = &row.row;
        let verdict = match (row.is_check(), told.blocked) {
            (false, _) => told.kind.as_str().replace('_', " ").to_uppercase(),
            (true, true) => red("BLOCKED"),
            (true, false) => green("ALLOWED"),
        };
        let bucket = format!("{} / {}", plain(&told.zone), plain(&told.key));
        let at = clock.show(told.decided_at);
        let _ = writeln!(text, "\n{}  {verdict}  {at}  {}", bold(&bucket), dim(&format!("row {}", told.seq)));
        if let Some(version) = &row.policy {
            let policy = format!(
                "Policy: {}, {}; version {}, by {} since {}.",
                version.policy,
                version.policy.algorithm(),
                version.version,
                by(&version.changed_by, version.login.as_deref()),
                clock.show(version.changed_at),
            );
            text += &paragraph(&policy, 2);
        }
        words.sentences(row).iter().for_each(|sentence| text += &paragraph(sentence, 2));
        let is_about_a_ban = told.kind == Kind::Ban || told.reason == Reason::Banned;
        let cause = row.ban.as_ref().and_then(|ban| ban.cause.as_ref()).filter(|_| is_about_a_ban);
        let counted = row.counted.as_ref().filter(|counted| !counted.charges.is_empty() && !is_about_a_ban);
        text += &cause.map(|cause| blocked_checks(cause, clock)).unwrap_or_default();
        text += &counted.map(|counted| charges(row, counted, clock)).unwrap_or_default();
    }
    text
}

/// The blocked checks that brought about a ban, in columns.
fn blocked_checks(cause: &Cause, clock: Clock) -> String {
    let mut table = table(&["blocked at", "transaction"]);
    for check in &cause.checks {
        table.add_row([clock.show(check.at), check.txn_id.to_string()]);
    }
    let more = cause.blocked - cause.checks.len() as u64;
    format!("  The checks that brought it about:\n{}{}", render(&table, 4), older(more))
}

fn older(more: u64) -> String {
    if more == 0 { String::new() } else { format!("    and {more} older; list more with --limit\n") }
}

/// The charges that counted, in columns.
fn charges(row: &ExplainedRow, counted: &Counted, clock: Clock) -> String {
    let held = counted.from.is_none();
    let named = counted.charges.iter().any(|charge| charge.member.is_some());
    let given = counted.charges.iter().any(|charge| charge.given_back > 0);
    let mut header = vec!["charged at", "cost"];
    header.extend(given.then_some("given back"));
    header.extend(held.then_some("held until"));
    header.push(if held && named { "member" } else { "transaction" });
    let mut table = table(&header);
    for charge in &counted.charges {
        let txn = charge.txn_id.map_or_else(|| format!("row {}", charge.seq), |txn| txn.to_string());
        let mut cells = vec![clock.show(charge.at), charge.cost.to_string()];
        if given {
            let back = Some(charge.given_back).filter(|back| *back > 0);
            cells.push(back.map(|back| back.to_string()).unwrap_or_default());
        }
        if held {
            cells.push(charge.ends_at.map(|at| clock.show_end(at)).unwrap_or_default());
        }
        cells.push(match &charge.member {
            Some(member) => plain(member),
            None => txn,
        });
        table.add_row(cells);
    }
    let title = if row.row.blocked || row.is_check() {
        "The charges that counted:"
    } else {
        "The charges that counted then:"
    };
    let more = counted.transactions - counted.charges.len() as u64;
    format!("  {title}\n{}{}", render(&table, 4), older(more))
}
