//! `tallygate bench`.

mod load;
mod proof;
mod report;
mod retries;
mod told;

use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::time::Duration;

use tallygate::ledger::History;
use tallygate::{Config, Limiter, Policy};
use uuid::Uuid;

use super::failure::verdict;
use super::output::Answer;
use super::{Failure, Result};
use load::Load;
use report::{Report, Settings};

/// A zone that nobody else uses.
const ZONE: &str = "tallygate bench";

/// Enough for a bucket of its own to be allowed, and too little for a hot one.
const RATE: i64 = 100;
const WINDOW: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  tallygate bench --database postgres://bench@db/bench
  tallygate bench --database postgres://bench@db/bench --hot
  tallygate bench --seconds 60 --callers 256 --connections 32 --format json

It writes real rows, one for each decision, in the zone \"tallygate bench\" (100 per 60s), and nothing takes \
them back: use a database of its own, made for this and dropped afterwards, on the server in question. \
It asks before it writes into a ledger that has rows of other zones. The default is the file tallygate.db.

Afterwards the rows are read back and compared with what the callers were told: each answer is a row, no \
bucket has a gap, and none admitted more than its limit in any window.

Exit codes: 0 the ledger agrees, 7 it does not, 2 wrong usage or another error, 3 the database does not answer now.";

/// Measures how many decisions the database carries, and proves from the ledger that they are right
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The number of seconds for which checks are sent
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// The number of callers that wait for an answer at the same time
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    callers: u32,
    /// The most connections to the database
    #[arg(long, value_name = "N", default_value_t = Config::default().connections, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections: u32,
    /// The number of keys; each check is about one of them, drawn evenly
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Send all checks about one key
    #[arg(long, conflicts_with = "keys")]
    hot: bool,
    /// The cost of each check, of the 100 that a key may spend in 60s
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(i64).range(1..=RATE), allow_negative_numbers = true)]
    cost: i64,
    /// Send each check by itself instead of those that wait together in one call
    #[arg(long)]
    no_batch: bool,
    /// Write into a ledger that is in use, without asking
    #[arg(long)]
    yes: bool,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, args: Args) -> Result {
    let retries = retries::count()?;
    let default = Config::default();
    let batch = if args.no_batch { None } else { default.batch };
    let config = Config { connections: args.connections, batch, ..default };
    let limiter = Limiter::connect_with(url, config).await?;
    if !args.yes && is_in_use(&limiter).await? {
        consent()?;
    }
    let policy = Policy::sliding_log(RATE, WINDOW)?;
    limiter.operator().set_zone(ZONE, &policy, Some("made by: tallygate bench"), "tallygate bench").await?;
    // The database's clock, which is not ours.
    let start = limiter.peek(ZONE, "start").await?.decided_at;

    let run = Uuid::now_v7().simple().to_string();
    let keys = if args.hot { 1 } else { args.keys };
    let load = Load { zone: ZONE, run: run.as_str().into(), keys, cost: args.cost, callers: args.callers };
    let told = load.send(&limiter, Duration::from_secs(args.seconds.into())).await?;
    let ledger = proof::read(&limiter, &load, &policy, start, &told).await?;

    let settings = Settings {
        database: kind(url),
        zone: ZONE,
        rate: RATE,
        window_us: policy.window_us(),
        run: &run,
        seconds: args.seconds,
        callers: args.callers,
        connections: args.connections,
        keys,
        cost: args.cost,
        batch: batch.is_some(),
    };
    let report = Report::new(&told, retries.get(), ledger, settings);
    let told = match args.format {
        Answer::Text => report.show(),
        Answer::Json => writeln!(stdout(), "{}", serde_json::to_string(&report)?).map_err(Failure::from),
    };
    verdict(told, report.verdict())
}

/// Has the ledger rows that no benchmark made? The newest row of each other zone tells, so it costs a probe for each.
async fn is_in_use(limiter: &Limiter) -> Result<bool> {
    for zone in limiter.operator().zones().await? {
        let newest = History::default().zone(&zone.name).limit(1);
        if zone.name != ZONE && !limiter.auditor().history(&newest).await?.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Asks the person at the terminal.
fn consent() -> Result<()> {
    let refused = |why: &str| {
        Err(Failure::new(format!(
            "this ledger is in use, and a benchmark writes rows that nothing takes back{why}; use a database of its own, or \
             say --yes"
        )))
    };
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return refused("");
    }
    write!(stderr(), "This ledger is in use. Write rows into it that nothing takes back? [y/N] ").ok();
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => refused(", which was not wished"),
    }
}

/// The kind of the database, and nothing else of its URL, which may hold a password.
fn kind(url: &str) -> &str {
    match url.split_once(':') {
        Some((name, _)) if name.contains('=') => "several databases",
        Some(("postgresql", _)) => "postgres",
        Some((scheme, _)) => scheme,
        None => "",
    }
}
