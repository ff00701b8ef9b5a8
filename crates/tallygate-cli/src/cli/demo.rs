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

const RATE: i64 = 5;
const WINDOW: Duration = Duration::from_secs(60);
const CLIENTS: usize = 8;

const EXAMPLES: &str = "\
Examples:
  tallygate demo
  tallygate demo --events logins.csv --key-column ip
  tallygate demo --format json

Makes a SQLite file of its own in the directory for temporary files, anew each time; \
TALLYGATE_DATABASE_URL is left alone. With --database it uses that database, in a zone named demo-login.";

/// Shows a login storm being limited, and what the ledger says about it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Send the attempts of this CSV file instead of made-up ones
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Name of the column with the time (RFC 3339). All events are sent now; the time is only shown
    #[arg(long, value_name = "NAME", default_value = "at", requires = "events")]
    at_column: String,
    /// Name of the column that says who is limited
    #[arg(long, value_name = "NAME", default_value = "key", requires = "events")]
    key_column: String,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// The attempts that are sent: who tries, in which order.
struct Attempts {
    keys: Vec<String>,
    story: String,
}

pub async fn run(database: Option<String>, args: Args) -> Result {
    let attempts = match &args.events {
        Some(file) => events::read(file, &args.at_column, &args.key_column)?,
        None => storm::attempts(),
    };
    let place = Place::prepare(database)?;
    let connections = CLIENTS as u32;
    let limiter = Limiter::connect_with(&place.url, Config { connections, ..Config::default() }).await?;
    let policy = Policy::sliding_log(RATE, WINDOW)?;
    limiter
        .operator()
        .set_zone(place.zone, &policy, Some("made by: tallygate demo"), "tallygate demo")
        .await?;
    // The database's clock, which is not ours.
    let start = limiter.peek(place.zone, "demo").await?.decided_at;

    if args.format == Answer::Text {
        show::opening(&place, &attempts, CLIENTS)?;
    }
    let began = Instant::now();
    storm::send(&limiter, place.zone, attempts.keys).await?;
    let took = began.elapsed();
    let report = Report::read(&limiter, place.zone, &policy, start).await?;
    match args.format {
        Answer::Text => show::findings(&limiter, &place, &report, took).await?,
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
