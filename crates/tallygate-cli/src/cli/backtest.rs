//! `tallygate backtest`.

pub mod candidates;
pub mod events;
mod moment;
mod page;
pub mod plot;
mod told;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tallygate::backtest::Backtest;
use tallygate::decide::Ask;
use tallygate::ledger::{History, Kind};
use tallygate::policy::parse_units;

use super::output::Answer;
use super::private::Private;
use super::{Failure, Result, open, url};
use candidates::{Candidate, Options};
use events::Columns;
use told::Told;

const EXAMPLES: &str = "\
Examples:
  tallygate backtest logins.csv --key-column ip --rate 5 --per 10m
  tallygate backtest logins.csv --key-column ip --policy rate=5,per=10m --policy rate=5,per=10m,algorithm=token-bucket
  tallygate backtest logins.csv --key-column ip --per 10m --sweep rate=3..20 --html logins.html
  tallygate backtest payments.jsonl --key-column card --cost-column cents --zones zones.toml
  tallygate backtest calls.csv --key-column tenant --cost-column tokens --guess 1000 --shape-column route --rate 9000 --per 60s
  tallygate backtest --from-ledger login --rate 3 --per 60s
  zcat logins.csv.gz | tallygate backtest - --rate 5 --per 60s --format json

EVENTS is a CSV file with a header, or JSON lines where its name ends in .jsonl, .ndjson or .json, or where standard \
input begins with {. Events of a key are to come in the order of their times.

A bare number as a time is Unix time: up to 11 digits are seconds, 12 to 14 milliseconds, 15 to 17 microseconds.

Nothing is written to the database. A policy in shadow mode counts as blocked what it would have blocked. The flags \
of a policy are those of zone set; those that change no decision (--on-outage, --running-buckets, --durability, \
--blocked-rows, --description) are taken and change nothing.";

/// Rows that are read from the ledger at a time.
const PAGE: u32 = 1_000;

/// Shows what a policy would have done to traffic that has been
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "tallygate backtest [OPTIONS] EVENTS\n       tallygate backtest [OPTIONS] --from-ledger ZONE",
)]
pub struct Args {
    /// The file of events; - for standard input
    #[arg(required_unless_present = "from_ledger")]
    events: Option<PathBuf>,
    /// The recorded checks of this zone instead of a file
    #[arg(long, value_name = "ZONE", conflicts_with_all = ["events", "at_column", "key_column", "cost_column", "member_column", "critical_column", "shape_column"])]
    from_ledger: Option<String>,
    #[command(flatten)]
    columns: Columns,
    /// Play each event as a reservation of so much, settled at once with its cost; with --shape-column once more by prediction
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    guess: Option<i64>,
    #[command(flatten)]
    candidates: Options,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show so many of the keys that were blocked most
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(0..=10_000), allow_negative_numbers = true)]
    top: u16,
    /// How to print
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// What a reservation takes: always the same, or what is predicted by its shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Fixed,
    Predicted,
}

/// One event, wherever it is from.
pub struct Event<'e> {
    pub at_us: i64,
    pub key: &'e str,
    pub cost: i64,
    pub member: Option<&'e str>,
    pub critical: bool,
    /// By which its cost is predicted.
    pub shape: Option<&'e str>,
}

pub async fn run(database: Option<String>, args: Args) -> Result {
    let swept = args.candidates.sweep.as_ref().map(|sweep| sweep.name.clone());
    let candidates = candidates::all(args.candidates)?;
    args.html.as_deref().map_or(Ok(()), can_be_written)?;
    let has_shapes = args.columns.have_shapes();
    if has_shapes && args.guess.is_none() {
        return Err(Failure::new(
            "--shape-column is for predictions; name with --guess what is reserved where none is known",
        ));
    }
    let mut tests = Vec::new();
    for candidate in candidates {
        let ways: &[_] = if has_shapes { &[Way::Fixed, Way::Predicted] } else { &[Way::Fixed] };
        for &way in ways {
            tests.push((candidate.clone(), way, Backtest::new(candidate.policy)?));
        }
    }
    let each = |event: &Event<'_>| {
        let Event { cost, critical, member, shape, .. } = *event;
        let ask = Ask { cost, critical, member, ..Ask::default() };
        tests.iter_mut().try_for_each(|(_, way, test)| {
            let outcome = match args.guess {
                Some(units) => {
                    let shape = shape.filter(|_| *way == Way::Predicted);
                    test.reserve(event.key, &ask, units, shape, event.at_us)
                }
                None => test.check(event.key, &ask, event.at_us),
            };
            outcome.map(drop)
        })
    };
    let source = match (args.events, args.from_ledger) {
        (Some(path), _) => {
            events::read(&path, &args.columns, each)?;
            path.display().to_string()
        }
        (None, zone) => {
            let zone = zone.unwrap_or_default();
            ledger(&url(database)?, &zone, each).await?;
            format!("zone {zone}")
        }
    };
    let told = |(candidate, way, test): (Candidate, Way, Backtest)| {
        let Candidate { name, series, value, .. } = candidate;
        let way = match (args.guess, way) {
            (None, _) => String::new(),
            (Some(units), Way::Fixed) => format!(", guess {units}"),
            (Some(_), Way::Predicted) => ", predicted".to_owned(),
        };
        let report = test.report(usize::from(args.top));
        Told { name: name + &way, series: series + &way, value, report }
    };
    let told: Vec<Told> = tests.into_iter().map(told).collect();
    if let Some(path) = &args.html {
        write_page(path, &page::page(&source, &told, swept.as_deref())?)?;
    }
    let text = match args.format {
        Answer::Text => told::text(&told),
        Answer::Json => told::json(&told)?,
    };
    stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Plays the recorded checks of a zone, a page at a time. What else was recorded (refunds, bans, …) is left out: it
/// belongs to the decisions that were made, not to those that would have been.
async fn ledger(
    url: &str,
    zone: &str,
    mut each: impl FnMut(&Event<'_>) -> tallygate::Result<()>,
) -> Result<()> {
    let limiter = open(url).await?;
    let progress = events::counter(None, "rows");
    let mut history = History::default().zone(zone).oldest_first().limit(PAGE);
    loop {
        let page = limiter.auditor().history(&history).await?;
        for row in &page.rows {
            if !row.kind.is_check() {
                continue;
            }
            let event = Event {
                at_us: row.decided_at.timestamp_micros(),
                key: &row.key,
                cost: row.cost,
                // Of a reservation it is its shape.
                member: row.member.as_deref().filter(|_| row.kind != Kind::Reserve),
                critical: row.critical,
                shape: None,
            };
            for _ in 0..row.checks {
                each(&event).map_err(|error| {
                    Failure::new(format!("zone {zone:?}, key {:?}, row {}: {error}", row.key, row.seq))
                })?;
            }
        }
        progress.inc(page.rows.len() as u64);
        match page.next {
            Some(next) => history.before = Some(next),
            None => return Ok(()),
        }
    }
}

/// Better known before hours of traffic are read.
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
