//! `tallygate backtest`.

pub mod candidates;
mod charts;
pub mod events;
mod judge;
mod ledger;
mod moment;
mod page;
pub mod plot;
mod suggest;
pub mod told;
pub mod trials;

use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tallygate::policy::parse_units;

use super::output::Answer;
use super::private::Private;
use super::{Failure, Result, url};
use candidates::{Candidate, Options, Written};
use events::{Columns, Skipped};
use judge::Judging;
use ledger::{Ledger, Part};
use trials::Trials;

const EXAMPLES: &str = "\
Examples:
  tallygate backtest logins.csv --key-column ip --rate 5 --per 10m
  tallygate backtest logins.csv --key-column ip --policy rate=5,per=10m --policy rate=5,per=10m,algorithm=token-bucket
  tallygate backtest logins.csv --key-column ip --per 10m --sweep rate=3..20 --html logins.html
  tallygate backtest payments.jsonl --key-column card --cost-column cents --zones zones.toml
  tallygate backtest calls.csv --key-column tenant --cost-column tokens --guess 1000 --shape-column route --rate 9000 --per 60s
  tallygate backtest logins.csv --key-column ip --baseline '5 per 10m' --policy strict='3 per 10m' --policy lax='9 per 10m'
  tallygate backtest logins.csv --key-column ip --outcome-column outcome --good accepted --per 10m --sweep rate=3..20
  tallygate backtest --from-ledger login --rate 3 --per 60s
  tallygate backtest --from-ledger payments --key card:9f3c --since 7d --rate 60000 --per 24h
  tallygate backtest suggest logins.csv --key-column ip --outcome-column outcome --good accepted
  zcat logins.csv.gz | tallygate backtest - --rate 5 --per 60s --format json

EVENTS is a CSV file with a header, or JSON lines where its name ends in .jsonl, .ndjson or .json, or where standard \
input begins with {. Events are put in the order of their times, 262,144 of them at once. Lines that cannot be read are left out and counted.

A bare number as a time is of the calendar, like 20260131080000, or Unix time: up to 11 digits are seconds, 12 to 14 \
milliseconds, 15 to 17 microseconds.

Nothing is written to the database. For a policy in shadow mode, the checks that it would have blocked count as blocked. The \
flags of a policy are those of zone set; those that change no decision (--on-outage, --running-buckets, --durability, \
--blocked-rows, --description) are taken and change nothing.";

/// Shows what a policy would have done to past traffic
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    override_usage = "tallygate backtest [OPTIONS] EVENTS\n       tallygate backtest [OPTIONS] --from-ledger ZONE\n       \
                      tallygate backtest suggest [OPTIONS] EVENTS",
    subcommand_negates_reqs = true,
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The file of events; - for standard input
    #[arg(required_unless_present = "from_ledger")]
    events: Option<PathBuf>,
    #[command(flatten)]
    ledger: Part,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    judging: Judging,
    /// Play each event as a reservation of N that is settled at once with its cost; with --shape-column once more by prediction
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    guess: Option<i64>,
    #[command(flatten)]
    candidates: Options,
    /// Compare each policy with this one: the name of a policy, or a policy like '5 per 10m'; none for no baseline [default: for
    /// a ledger the policy that was in force, for a file none]
    #[arg(long, value_name = "POLICY")]
    baseline: Option<String>,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The number of keys to show of those that were blocked most, newly blocked or freed
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(0..=10_000), allow_negative_numbers = true)]
    top: u16,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// Other questions about past traffic.
#[derive(clap::Subcommand)]
enum Command {
    Suggest(Box<suggest::Args>),
}

/// One event, wherever it is from.
pub struct Event<'e> {
    pub at_us: i64,
    pub key: &'e str,
    pub cost: i64,
    pub member: Option<&'e str>,
    pub critical: bool,
    /// The shape by which its cost is predicted.
    pub shape: Option<&'e str>,
    /// The outcome of the attempt.
    pub outcome: Option<&'e str>,
}

pub async fn run(database: Option<String>, mut args: Args) -> Result {
    if let Some(Command::Suggest(args)) = args.command {
        return suggest::run(*args);
    }
    let swept = args.candidates.sweep.as_ref().map(|sweep| sweep.name.clone());
    let mut candidates = candidates::all(args.candidates)?;
    args.html.as_deref().map_or(Ok(()), can_be_written)?;
    args.ledger.is_of_a_ledger()?;
    let has_shapes = args.columns.have_shapes();
    if has_shapes && args.guess.is_none() {
        return Err(Failure::new(
            "--shape-column is for predictions; name with --guess what is reserved where none is known",
        ));
    }
    let mut baseline = args.baseline.as_deref().map_or(Ok(None), |text| baseline(text, &mut candidates))?;
    let ledger = match &args.ledger.from_ledger {
        Some(zone) => Some(Ledger::open(&url(database)?, &zone.clone(), args.ledger).await?),
        None => None,
    };
    if let (Some(ledger), None) = (&ledger, &args.baseline) {
        baseline = Some(ledger.in_force().await?);
    }
    have_names_of_their_own(baseline.iter().chain(&candidates))?;
    args.columns.outcome_column.clone_from(&args.judging.outcome_column);
    let judge = args.judging.judge();
    let mut trials = Trials::new(baseline, candidates, args.guess, has_shapes, judge)?;
    let (source, skipped, recorded) = match (args.events, &ledger) {
        (Some(path), _) => {
            let skipped = events::read(&path, &args.columns, |event| trials.play(event))?;
            (path.display().to_string(), skipped, None)
        }
        (None, Some(ledger)) => (ledger.shown(), Skipped::default(), Some(ledger.play(&mut trials).await?)),
        (None, None) => {
            return Err(Failure::new("there are no events; name a file, or a zone with --from-ledger"));
        }
    };
    trials.have_seen_all()?;
    let (mut told, most) = trials.told(usize::from(args.top), &skipped);
    if let Some(in_force) = told.first_mut().filter(|told| told.versions.is_some()) {
        in_force.recorded_blocked = recorded;
    }
    if let Some(path) = &args.html {
        write_page(path, &page::page(&source, &told, swept.as_deref()))?;
    }
    let text = match args.format {
        Answer::Text => told::text(&told, &most),
        Answer::Json => serde_json::to_string(&told)? + "\n",
    };
    stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The candidate of this name, taken from among them, or a policy as it is written; None where the text says none.
fn baseline(text: &str, candidates: &mut Vec<Candidate>) -> Result<Option<Candidate>> {
    if text == "none" {
        return Ok(None);
    }
    if let Some(place) = candidates.iter().position(|candidate| candidate.name == text) {
        return Ok(Some(candidates.remove(place)));
    }
    let written = text.parse::<Written>().map_err(|remedy| {
        Failure::new(format!(
            "--baseline {text:?} is neither the name of one of the policies nor a policy like '5 per 10m': {remedy}"
        ))
    })?;
    written.candidate().map(Some)
}

/// Names that were given tell policies apart.
fn have_names_of_their_own<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> Result<()> {
    let mut names = BTreeSet::new();
    for candidate in candidates.filter(|candidate| candidate.name != candidate.label) {
        if !names.insert(&candidate.name) {
            return Err(Failure::new(format!(
                "two policies are called {:?}; give each a name of its own",
                candidate.name
            )));
        }
    }
    Ok(())
}

/// Fails where the page could not be written, before hours of traffic are read.
pub fn can_be_written(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match () {
        () if path.is_dir() => Err(unwritable(path, "it is a directory")),
        () if !folder.is_dir() => Err(unwritable(path, "there is no such directory")),
        () => Ok(()),
    }
}

pub fn write_page(path: &Path, page: &str) -> Result<()> {
    let unwritten = |error: std::io::Error| unwritable(path, &error.to_string());
    Private::begin(path).and_then(|file| file.end(page)).map_err(unwritten)
}

fn unwritable(path: &Path, because: &str) -> Failure {
    Failure::new(format!("{} cannot be written: {because}; name another file", path.display()))
}
