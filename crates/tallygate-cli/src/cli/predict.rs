//! `tallygate predict`: what a request of a shape will cost, and reservations of that.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use tallygate::{Check, Prediction};

use super::exit::Exit;
use super::failure::verdict;
use super::output::{Answer, plain};
use super::{Failure, Result, decision, duration, open};

const EXAMPLES: &str = "\
Examples:
  tallygate reserve llm tenant:7 --shape chat/small --cost 1000 --ttl 30s
  tallygate settle TXN --cost 240
  tallygate predict llm tenant:7 chat/small

What settlements of reservations of one shape in one bucket came to lately, as a moving average: nothing is reserved here. It is \
forgotten 15 minutes after the last one.";

/// Tells what a request of a shape is predicted to cost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the zone
    zone: String,
    /// Who is limited
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// What makes requests alike in cost, such as route and size class
    #[arg(allow_negative_numbers = true)]
    shape: String,
    /// How to print
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, Args { zone, key, shape, format }: Args) -> Result {
    let told = open(url).await?.predict(&zone, &key, &shape).await?;
    let line = match format {
        Answer::Text => line(&told),
        Answer::Json => serde_json::to_string(&told)?,
    };
    writeln!(stdout(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Reserves what is predicted.
pub async fn reserve(url: &str, check: Check, ttl: Duration, shape: &str, format: Answer) -> Result {
    check.validate()?;
    let told = open(url).await?.reserve_predicted(check, ttl, shape).await?;
    let line = match format {
        Answer::Text => format!("{}  cost {}", decision::line(&told.decision), told.cost),
        Answer::Json => serde_json::to_string(&told)?,
    };
    let exit = Exit::of_blocked(told.decision.blocked);
    verdict(writeln!(stdout(), "{line}").map_err(Failure::from), exit)
}

/// `chat/small  cost 240  from 8 settlements, the last at …`
fn line(told: &Prediction) -> String {
    let shape = plain(&told.shape);
    match (told.cost, told.learned_at) {
        (Some(cost), Some(at)) => {
            let shared = if told.shared { " of all shapes that are not kept apart" } else { "" };
            format!(
                "{shape}  cost {cost}  from {} settlements{shared}, the last at {}",
                told.samples,
                duration::show_micros(at)
            )
        }
        _ => format!("{shape}  nothing is known: none was settled within 15 minutes"),
    }
}
