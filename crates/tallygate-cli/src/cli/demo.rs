//! `tallygate demo`.

mod events;
mod place;
mod report;
mod show;
mod storm;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tallygate::{Config, Limiter, Policy};

use super::output::Answer;
use super::{Failure, Result};
use place::Place;
use report::Report;
use show::Found;

const RATE: i64 = 5;
const WINDOW: Duration = Duration::from_secs(60);
const CLIENTS: usize = 8;

/// Rows of the table of keys.
const KEYS_SHOWN: usize = 10;

const EXAMPLES: &str = "\
Examples:
  tallygate demo
  tallygate demo --events logins.csv --key-column ip
  tallygate demo --format json

It makes a SQLite file and a report of its own in the user's folder for caches, anew each time; \
TALLYGATE_DATABASE_URL is left alone. With --database it uses that database, in a zone named demo-login.";

/// Shows a login storm being limited, a decision explained, and a report of it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Play the attempts of this CSV file instead, at the times that it names: a back-test, which writes nothing
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Name of the column with the time, as backtest reads it
    #[arg(long, value_name = "NAME", default_value = "at", requires = "events")]
    at_column: String,
    /// Name of the column with the key
    #[arg(long, value_name = "NAME", default_value = "key", requires = "events")]
    key_column: String,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(database: Option<String>, args: Args) -> Result {
    let policy = Policy::sliding_log(RATE, WINDOW)?;
    if let Some(file) = &args.events {
        if database.is_some() {
            return Err(Failure::new("a back-test of --events needs no database; leave out --database"));
        }
        return events::play(file, &args, policy);
    }
    let place = Place::prepare(database)?;
    let connections = CLIENTS as u32;
    let limiter = Limiter::connect_with(&place.url, Config { connections, ..Config::default() }).await?;
    limiter
        .operator()
        .set_zone(place.zone, &policy, Some("made by: tallygate demo"), "tallygate demo")
        .await?;
    // The database's clock, which is not ours.
    let start = limiter.peek(place.zone, "demo").await?.decided_at;

    let attempts = storm::attempts();
    if args.format == Answer::Text {
        show::opening(&place, attempts.len())?;
    }
    let began = Instant::now();
    storm::send(&limiter, place.zone, attempts).await?;
    let took = began.elapsed();
    let report = Report::read(&limiter, place.zone, &policy, start).await?;
    match args.format {
        Answer::Text => Found { limiter: &limiter, place: &place, report: &report, start }.show(took).await?,
        Answer::Json => writeln!(stdout(), "{}", serde_json::to_string(&report)?)?,
    }
    if report.most_in_any_window > report.limit {
        return Err(Failure::new(format!(
            "the ledger shows a key that was let through {} times in one window; please report this",
            report.most_in_any_window
        )));
    }
    Ok(ExitCode::SUCCESS)
}
