//! `tallygate check`.

use std::io::{self, Write, stdout};
use std::process::ExitCode;

use tallygate::{Check, Limiter};
use uuid::Uuid;

use super::output::Answer;
use super::{Failure, Result, decision, stream, units};

const EXAMPLES: &str = "\
Examples:
  tallygate check login user:42
  tallygate check payments card:9f3c --cost 1250 --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  if tallygate check login \"$IP\" > /dev/null; then echo welcome; fi

  printf '%s\\n' '{\"zone\":\"login\",\"key\":\"42\"}' '{\"zone\":\"login\",\"key\":\"43\",\"cost\":2}' |
    tallygate check --stdin

Exit codes: 0 allowed, 1 blocked, 2 error; with --stdin 0 when every line was decided, 2 when one was not.

The same transaction on the same bucket again gives the recorded decision and spends nothing. \
Cost 0 is a peek: it is answered and leaves no row.

With --stdin: one JSON object a line in, {\"zone\":…,\"key\":…,\"cost\":1,\"txn\":\"…\"}, where cost and txn \
are optional; one decision a line out, in the order of the input. A line that cannot be decided gives \
{\"line\":7,\"error\":\"…\"} in its place and the rest goes on. Blank lines are skipped. Lines that are \
under way together may be decided in any order, also two of one bucket: use --concurrency 1 where that \
matters.";

/// Decides whether a transaction may pass, spends its cost if it may, and records the decision
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "tallygate check [OPTIONS] ZONE KEY\n       tallygate check [OPTIONS] --stdin")]
pub struct Args {
    /// Name of the zone
    #[arg(required_unless_present = "stdin")]
    zone: Option<String>,
    /// Who is limited: a user, an address, a card. 1 to 255 bytes
    #[arg(required_unless_present = "stdin", allow_negative_numbers = true)]
    key: Option<String>,
    /// How much to spend, in the zone's unit
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::parse, allow_negative_numbers = true)]
    cost: i64,
    /// Your name for the transaction; made when not given
    #[arg(long, value_name = "UUID")]
    txn: Option<Uuid>,
    /// How to print [default: text; with --stdin always json]
    #[arg(long)]
    format: Option<Answer>,
    /// Read checks from stdin, one JSON object a line
    #[arg(long, conflicts_with_all = ["zone", "key", "cost", "txn"])]
    stdin: bool,
    /// How many lines are under way at a time
    #[arg(long, value_name = "N", default_value = "32", requires = "stdin", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
}

pub async fn run(url: &str, args: Args) -> Result {
    match (args.zone, args.key) {
        (Some(zone), Some(key)) => {
            let mut check = Check::new(zone, key).cost(args.cost);
            check = args.txn.into_iter().fold(check, Check::txn);
            one(url, check, args.format.unwrap_or(Answer::Text)).await
        }
        _ if args.format == Some(Answer::Text) => {
            Err(Failure::new("--stdin answers in JSON; leave out --format text"))
        }
        _ => stream::run(url, args.concurrency).await,
    }
}

async fn one(url: &str, check: Check, format: Answer) -> Result {
    // Before connecting, which may make the file.
    check.validate()?;
    let decision = Limiter::connect(url).await?.check(check).await?;
    let line = match format {
        Answer::Text => decision::line(&decision),
        Answer::Json => serde_json::to_string(&decision)?,
    };
    // The exit code is an answer too, so it is given even when nobody reads the line.
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(ExitCode::from(u8::from(decision.blocked)))
}
