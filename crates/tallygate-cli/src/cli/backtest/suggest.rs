//! `tallygate backtest suggest`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tallygate::Policy;
use tallygate::backtest::{Grid, Outcomes, front};
use tallygate::policy::{Algorithm, parse_units};

use super::candidates::{CANDIDATES_MAX, Candidate, values};
use super::events::{self, Columns};
use super::judge::{JUDGED, Judging};
use super::told::Told;
use super::{Trials, can_be_written, page, write_page};
use crate::cli::output::{Answer, plain, render, table};
use crate::cli::{Failure, Result, duration};

const EXAMPLES: &str = "\
Examples:
  tallygate backtest suggest logins.csv --key-column ip --outcome-column outcome --good accepted
  tallygate backtest suggest logins.csv --outcome-column outcome --good accepted --rates 1..20 --windows 10m,1h --html front.html
  tallygate backtest suggest logins.csv --outcome-column outcome --good accepted --algorithms sliding-log --format json

It tries 308 policies: sliding-log, fixed-window, sliding-counter of ten slots and token-bucket; 1, 2, 3, 4, 5, 8, 10, 15, 20, \
50 and 100; per 10s, 1m, 5m, 10m, 1h, 6h and 24h. They are told apart by two numbers: the attacks that they stop, and the \
legitimate attempts that they hit. The answer is the policies to which no other is better in one \
number and at least as good in the other.

The suggestions fit this traffic. Try them on other traffic, or in shadow mode, before they are in force.";

/// With fewer attempts of a kind, a share of them is chance.
const FEW: u64 = 30;

/// Suggests policies for traffic whose outcomes are known: those that stop most attacks for the legitimate attempts that they hit
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file of events, as backtest takes it; - for standard input
    events: PathBuf,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    judging: Judging,
    /// Algorithms to try
    #[arg(long, value_name = "ALGORITHM", value_delimiter = ',', value_enum)]
    algorithms: Vec<Algorithm>,
    /// Rates to try: 1..20, 10..100:10, 3,5,8
    #[arg(long, value_name = "VALUES", value_parser = values)]
    rates: Option<Values>,
    /// Windows to try: 30s,10m,1h
    #[arg(long, value_name = "VALUES", value_parser = values)]
    windows: Option<Values>,
    /// Write a page with a chart to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// Values as they are written. A name of its own keeps clap from taking each for an argument.
type Values = Vec<String>;

pub fn run(mut args: Args) -> Result {
    let policies = policies(&args)?;
    args.html.as_deref().map_or(Ok(()), can_be_written)?;
    args.columns.outcome_column.clone_from(&args.judging.outcome_column);
    let Some(judge) = args.judging.judge() else {
        return Err(Failure::new(
            "suggestions are made from outcomes; name with --outcome-column where they are, and with --good a legitimate one",
        ));
    };
    let candidates = policies.into_iter().map(Candidate::of).collect();
    let mut trials = Trials::new(None, candidates, None, false, Some(judge))?;
    let skipped = events::read(&args.events, &args.columns, |event| trials.play(event))?;
    trials.have_seen_all()?;
    let (told, _) = trials.told(0, &skipped);
    let outcomes: Vec<Outcomes> =
        told.iter().filter_map(|told| Some(told.outcomes.as_ref()?.outcomes)).collect();
    let places = front(&outcomes);
    let points = told.len();
    let mut told: Vec<Option<Told>> = told.into_iter().map(Some).collect();
    let front: Vec<Told> = places.iter().filter_map(|&place| told.get_mut(place)?.take()).collect();
    if let Some(path) = &args.html {
        write_page(path, &page::front(&args.events.display().to_string(), &outcomes, &front))?;
    }
    let text = match args.format {
        Answer::Text => text(points, &front),
        Answer::Json => serde_json::to_string(&front)? + "\n",
    };
    stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The policies of the grid, within the bounds that were given.
fn policies(args: &Args) -> Result<Vec<Policy>> {
    let mut grid = Grid::default();
    if !args.algorithms.is_empty() {
        grid.algorithms.clone_from(&args.algorithms);
    }
    if let Some(rates) = &args.rates {
        let rate = |text: &String| {
            parse_units(text).map_err(|remedy| format!("rate {text:?} cannot be used; {remedy}"))
        };
        grid.rates = rates.iter().map(rate).collect::<Result<_, _>>().map_err(Failure::new)?;
    }
    if let Some(windows) = &args.windows {
        let window = |text: &String| {
            duration::parse(text).map_err(|remedy| format!("window {text:?} cannot be used; {remedy}"))
        };
        grid.windows =
            windows.iter().map(window).collect::<Result<Vec<Duration>, _>>().map_err(Failure::new)?;
    }
    let many = grid.algorithms.len() * grid.rates.len() * grid.windows.len();
    if many > CANDIDATES_MAX {
        return Err(Failure::new(format!(
            "{many} policies are too many at once; use up to {CANDIDATES_MAX}"
        )));
    }
    Ok(grid.policies()?)
}

/// A row for each point of the front, with the first policy that comes to it.
fn text(tried: usize, front: &[Told]) -> String {
    let mut policies = table(&HEADER);
    policies.add_rows(rows(front));
    let span = front.first().map(Told::span).unwrap_or_default();
    format!(
        "{}\n{span}\nOf {tried} policies no other stops more of these attacks for as few legitimate attempts.\n{}",
        render(&policies, 0),
        few(front).map(|warning| warning + "\n").unwrap_or_default()
    )
}

/// A warning where there are too few attempts of one kind for their shares to say much.
pub fn few(front: &[Told]) -> Option<String> {
    let Outcomes { legitimate, attacks, .. } = front.first()?.outcomes.as_ref()?.outcomes;
    (legitimate.min(attacks) < FEW).then(|| {
        format!(
            "These numbers say little: of {legitimate} legitimate attempts and {attacks} attacks one kind is below {FEW}. Try more \
             traffic before a policy is chosen by them."
        )
    })
}

/// The names of the columns of [`rows`].
pub const HEADER: [&str; 7] = {
    let [policy, hit, of_legitimate, stopped, of_attacks, precision] = JUDGED;
    [policy, hit, of_legitimate, stopped, of_attacks, precision, "as good"]
};

/// The points of the front: the first of the policies that do the same, and the number of the others.
pub fn rows(front: &[Told]) -> Vec<Vec<String>> {
    let outcomes = |told: &Told| told.outcomes.as_ref().map(|judged| judged.outcomes);
    let row = |alike: &[Told]| {
        let first = alike.first()?;
        let others = alike.len() - 1;
        let cells = [plain(&first.label)].into_iter().chain(first.outcomes.as_ref()?.row());
        Some(cells.chain([if others == 0 { "-".to_owned() } else { format!("{others} more") }]).collect())
    };
    front.chunk_by(|a, b| outcomes(a) == outcomes(b)).filter_map(row).collect()
}
