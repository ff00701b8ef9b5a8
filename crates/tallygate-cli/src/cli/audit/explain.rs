//! `tallygate audit explain`.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use serde::Serialize;
use tallygate::audit::explain::{Counted, Explained, ExplainedRow};
use uuid::Uuid;

use super::super::exit::Exit;
use super::super::output::{Answer, bold, by, dim, green, plain, red, render, table};
use super::super::{Result, duration, open};
use super::words;

const EXAMPLES: &str = "\
Examples:
  tallygate audit explain 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate audit explain 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --limit 100
  tallygate audit explain 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --format json

Each bucket that the transaction touched is read from its first row, a page at a time: some 10 µs for each row. Times are \
the database's, in UTC. Exit code 5 when a row cannot be derived again from the rows before it.";

/// Explains why a transaction was decided as it was
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The transaction
    #[arg(value_name = "TXN")]
    txn: Uuid,
    /// List at most so many of the charges that counted
    #[arg(long, value_name = "N", default_value = "20")]
    limit: u32,
    /// How to print
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// An explanation, as JSON shows it.
#[derive(Serialize)]
struct Shown<'e> {
    #[serde(flatten)]
    explained: &'e Explained,
    /// Of each row, in order.
    in_words: Vec<Vec<String>>,
}

pub async fn run(url: &str, args: Args) -> Result {
    let explained = open(url).await?.auditor().explain(args.txn, args.limit as usize).await?;
    let mut out = stdout().lock();
    match args.format {
        Answer::Text => out.write_all(text(&explained).as_bytes())?,
        Answer::Json => {
            let in_words = explained.rows.iter().map(|row| words::sentences(row, &explained)).collect();
            writeln!(out, "{}", serde_json::to_string(&Shown { explained: &explained, in_words })?)?;
        }
    }
    let reproduced = explained.rows.iter().all(|row| row.reproduced == Some(true));
    Ok(if reproduced { Exit::Good } else { Exit::Faults }.into())
}

fn text(explained: &Explained) -> String {
    let mut text = format!("Transaction {}\n", explained.txn_id);
    for row in &explained.rows {
        let told = &row.row;
        let verdict = match (row.is_check(), told.blocked) {
            (false, _) => told.kind.as_str().replace('_', " ").to_uppercase(),
            (true, true) => red("BLOCKED"),
            (true, false) => green("ALLOWED"),
        };
        let bucket = format!("{} / {}", plain(&told.zone), plain(&told.key));
        let at = duration::show_micros(told.decided_at);
        let _ = writeln!(text, "\n{}  {verdict}  {at}  {}", bold(&bucket), dim(&format!("row {}", told.seq)));
        if let Some(version) = &row.policy {
            let _ = writeln!(
                text,
                "  Policy: {}, {}; version {}, by {} since {}.",
                version.policy,
                version.policy.algorithm(),
                version.version,
                by(&version.changed_by, version.login.as_deref()),
                duration::show_moment(version.changed_at),
            );
        }
        for sentence in words::sentences(row, explained) {
            let _ = writeln!(text, "  {sentence}");
        }
        if let Some(counted) = row.counted.as_ref().filter(|counted| !counted.charges.is_empty()) {
            text += &charges(row, counted);
        }
    }
    text
}

/// The charges that counted, in columns.
fn charges(row: &ExplainedRow, counted: &Counted) -> String {
    let held = counted.from.is_none();
    let named = counted.charges.iter().any(|charge| charge.member.is_some());
    let mut header =
        vec!["charged at", "cost", "given back", if held { "held until" } else { "transaction" }];
    if held {
        header.push(if named { "member" } else { "transaction" });
    }
    let mut table = table(&header);
    for charge in &counted.charges {
        let txn = charge.txn_id.map_or_else(|| format!("row {}", charge.seq), |txn| txn.to_string());
        let mut cells = vec![
            duration::show_moment(charge.at),
            charge.cost.to_string(),
            if charge.given_back > 0 { charge.given_back.to_string() } else { String::new() },
        ];
        if held {
            cells.push(charge.ends_at.map(duration::show_moment).unwrap_or_default());
        }
        cells.push(match &charge.member {
            Some(member) => plain(member),
            None => txn,
        });
        table.add_row(cells);
    }
    let title = if row.row.blocked || row.is_check() { "What counted:" } else { "What counted then:" };
    let mut text = format!("  {title}\n{}", render(&table, 4));
    let more = counted.transactions - counted.charges.len() as u64;
    if more > 0 {
        let _ = writeln!(text, "    and {more} older; list more with --limit");
    }
    text
}
