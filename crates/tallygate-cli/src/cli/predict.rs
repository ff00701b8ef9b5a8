//! `tallygate predict`: the cost that is predicted for a request of a shape, and reservations of it.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use tallygate::{Check, Prediction};

use super::clock::Clock;
use super::exit::Exit;
use super::failure::verdict;
use super::output::{Answer, plain};
use super::{Failure, Result, decision, open};

const EXAMPLES: &str = "\
Examples:
  tallygate reserve llm tenant:7 --shape chat/small --cost 1000 --ttl 30s
  tallygate settle TXN --cost 240
  tallygate predict llm tenant:7 chat/small

The prediction is a moving average of the recent costs of settled reservations of one shape in one bucket. It is forgotten 15 \
minutes after the last settlement. Nothing is reserved here.";

/// Tells the predicted cost of a request of a shape
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the zone
    zone: String,
    /// The key that is limited
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The shape, which makes requests alike in cost: such as route and size class
    #[arg(allow_negative_numbers = true)]
    shape: String,
    /// The form of the answer
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

/// Reserves the predicted cost.
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
                Clock::UTC.show(at)
            )
        }
        _ => format!("{shape}  nothing is known: none was settled within 15 minutes"),
    }
}
