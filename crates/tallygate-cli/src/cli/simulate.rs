//! `tallygate simulate`.

mod page;
mod picture;
mod plot;
mod told;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tallygate::backtest::{Request, Shape, Traffic, simulate};
use tallygate::policy::parse_units;

use super::backtest::candidates::{self, Candidate, Options};
use super::backtest::events::{self, Columns};
use super::backtest::{Event, can_be_written, write_page};
use super::output::Answer;
use super::{Failure, Result, duration};
use told::{Played, Told};

const EXAMPLES: &str = "\
Examples:
  tallygate simulate --shape border --rate 5 --per 60s --policy rate=5,per=60s,algorithm=fixed-window
  tallygate simulate --shape burst --shape flood --rate 5 --per 60s --html through.html
  tallygate simulate --shape steady --offer 30 --for 10m --rate 5 --per 60s --algorithm leaky-queue
  tallygate simulate --shape two-clients --zones zones.toml --format json
  tallygate simulate --events logins.csv --key-column ip --rate 5 --per 10m
  tallygate simulate --shape border --rate 12 --per 60s --svg border.svg

steady comes at even distances; burst in the first tenth of every second window; border just before and just after a \
window's border; sine swells and ebbs; flood is ten times as much in its middle third; two-clients are a polite one and \
a greedy one that share one bucket. All are made by a seed, so the same flags print the same.

The flags of a policy are those of backtest. A request that waits in a queue passes when its turn comes; workers take it as \
soon as they may, and are done with it at once. Slots of concurrency are held for their whole time. Of a capacity each client \
keeps a lease, and lets through what it has. Nothing is written to a database, and none is needed.";

/// The most events of a file that are taken; the library simulates no more.
const EVENTS_MAX: usize = 1_000_000;

/// The number of windows of made-up traffic, unless its length is given.
const WINDOWS: i64 = 6;

/// Shows what policies let through of traffic that is made up
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    made: Made,
    /// Play the events of this file instead, at most 1,000,000, as backtest takes them; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "offer", "length", "members", "seed"])]
    events: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    candidates: Options,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the charts as one picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// Traffic that is made up.
#[derive(clap::Args)]
struct Made {
    /// The shape in which traffic comes; may be given more than once [default: all of them]
    #[arg(long, value_enum)]
    shape: Vec<Shape>,
    /// The number of requests in a window of the first policy on the whole [default: twice its rate]
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    offer: Option<i64>,
    /// The time for which they come [default: six windows of the first policy]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    length: Option<Duration>,
    /// The number of different members that they are about, where a policy counts members
    #[arg(long, value_name = "N", default_value = "20")]
    members: u32,
    /// The seed of the random times: another seed, other times
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

pub fn run(args: Args) -> Result {
    let candidates = candidates::all(args.candidates)?;
    [&args.html, &args.svg].into_iter().flatten().try_for_each(|path| can_be_written(path))?;
    let traffic = match &args.events {
        Some(path) => vec![recorded(path, &args.columns)?],
        None => args.made.traffic(&candidates)?,
    };
    let play = |(traffic, requests): (String, Vec<Request>)| {
        let told = |Candidate { label: name, policy, .. }: &Candidate| {
            let figures = simulate(*policy, &requests);
            let figures = figures.map_err(|error| Failure::new(format!("{name}: {error}")))?;
            Ok(Told { name: name.clone(), figures })
        };
        Ok(Played { traffic, policies: candidates.iter().map(told).collect::<Result<_>>()? })
    };
    let played: Vec<Played> = traffic.into_iter().map(play).collect::<Result<_>>()?;
    if let Some(path) = &args.html {
        write_page(path, &page::page(&played)?)?;
    }
    if let Some(path) = &args.svg {
        write_page(path, &picture::picture(&played)?)?;
    }
    let text = match args.format {
        Answer::Text => told::text(&played),
        Answer::Json => serde_json::to_string(&played)? + "\n",
    };
    stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl Made {
    /// The requests of each shape, with its name.
    fn traffic(&self, candidates: &[Candidate]) -> Result<Vec<(String, Vec<Request>)>> {
        let Some(Candidate { policy, .. }) = candidates.first() else { return Ok(Vec::new()) };
        let window_us = policy.window_us();
        let rate = self.offer.unwrap_or_else(|| policy.rate().saturating_mul(2));
        let length_us = match self.length {
            Some(length) => i64::try_from(length.as_micros()).unwrap_or(i64::MAX),
            None => window_us.saturating_mul(WINDOWS),
        };
        let shapes = if self.shape.is_empty() { Shape::ALL } else { &self.shape };
        let requests = |shape: &Shape| {
            let Self { members, seed, .. } = *self;
            let made = Traffic { shape: *shape, rate, window_us, length_us, members, seed }.requests();
            let told = |error| {
                Failure::new(format!(
                    "{shape}: {error} (--offer is the rate, --for the length, --members their number)"
                ))
            };
            Ok((shape.to_string(), made.map_err(told)?))
        };
        shapes.iter().map(requests).collect()
    }
}

/// The requests of a file, with its name and the lines that were left out.
fn recorded(path: &Path, columns: &Columns) -> Result<(String, Vec<Request>)> {
    let mut requests = Vec::new();
    let skipped = events::read(path, columns, |event: &Event<'_>| {
        let Event { at_us, key, cost, member, critical, .. } = *event;
        if requests.len() == EVENTS_MAX {
            return Err(format!(
                "more than {EVENTS_MAX} events are too many to simulate; take a part of them"
            ));
        }
        let (key, member) = (key.to_owned(), member.map(str::to_owned));
        requests.push(Request { at_us, key, cost, member, critical, client: None });
        Ok(())
    })?;
    Ok((path.display().to_string() + &skipped.told(), requests))
}
