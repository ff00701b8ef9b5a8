//! `tallygate check`.

use std::io::{Write, stdout};
use std::time::Duration;

use tallygate::capacity::parse_band;
use tallygate::policy::parse_units;
use tallygate::{Check, Config};
use uuid::Uuid;

use super::exit::Exit;
use super::failure::verdict;
use super::output::Answer;
use super::{Failure, Result, decision, duration, open_with, predict, stream, txn};

const EXAMPLES: &str = "\
Examples:
  tallygate check login user:42
  tallygate check payments card:9f3c --cost 1250 --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate check cards ip:203.0.113.7 --member card:9f3c
  tallygate check login user:42 --also login-by-address=203.0.113.7 --also signups=acme:2
  tallygate check exports user:42 --wait 10s
  if tallygate check login \"$IP\" > /dev/null; then echo welcome; fi

  printf '%s\\n' '{\"zone\":\"login\",\"key\":\"42\"}' '{\"zone\":\"login\",\"key\":\"43\",\"cost\":2}' |
    tallygate check --stdin

Exit codes: 0 allowed, 1 blocked, 2 wrong usage or another error, 3 the database does not answer now, 4 to migrate; with --stdin 0 when \
every line was decided, 2 when one was not.

The same transaction on the same bucket again gives the recorded decision and spends nothing. \
Cost 0 is a peek: it is answered and leaves no row.

With --also all limits pass, or none is spent from; the answer names the one that binds. In ZONE=KEY:COST the \
part after the last colon is the cost if it is a whole number: a key that itself ends like that needs its cost, login=user:42:1.

With --wait a blocked check waits and asks again, under a new transaction each time, until it passes or the time is over.

With --stdin each line in is one JSON object, {\"zone\":…,\"key\":…,\"cost\":1,\"txn\":\"…\",\"critical\":false,\"member\":\"…\"}, \
where all but zone and key are optional. Each line out is one decision, in the order of the input. A line that cannot be decided \
gives {\"line\":7,\"error\":\"…\"} in its place, and the rest goes on. Blank lines are skipped. Lines that are \
under way together may be decided in any order, also two of one bucket: use --concurrency 1 where that \
matters.";

const RESERVE_EXAMPLES: &str = "\
Examples:
  tallygate reserve payments card:9f3c --cost 10000 --ttl 15m
  tallygate settle TXN --cost 7350
  tallygate cancel TXN
  tallygate reserve llm tenant:7 --shape chat/small --cost 1000 --ttl 30s

Exit codes: 0 reserved, 1 blocked, 2 wrong usage or another error, 3 the database does not answer now, 4 to migrate.";

/// The importance of a check.
#[derive(clap::Args)]
struct Claim {
    /// Let it take from the zone's reserve
    #[arg(long)]
    critical: bool,
    /// Its importance: critical-plus, or 0, may take from the reserve; critical, sheddable-plus, sheddable or 1 to 255 may not
    #[arg(long, value_name = "BAND", value_parser = parse_band, allow_negative_numbers = true)]
    band: Option<u8>,
}

impl Claim {
    fn of(&self, check: Check) -> Check {
        let check = self.band.into_iter().fold(check, Check::band);
        if self.critical { check.critical() } else { check }
    }
}

/// Decides whether a transaction may pass, spends its cost if it may, and records the decision
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "tallygate check [OPTIONS] ZONE KEY\n       tallygate check [OPTIONS] --stdin")]
pub struct Args {
    /// Name of the zone
    #[arg(required_unless_present = "stdin")]
    zone: Option<String>,
    /// The key that is limited: a user, an address, a card. 1 to 255 bytes
    #[arg(required_unless_present = "stdin", allow_negative_numbers = true)]
    key: Option<String>,
    /// The cost, in the zone's unit
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_units, allow_negative_numbers = true)]
    cost: i64,
    /// Your UUID of the transaction [default: a new one]
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
    #[command(flatten)]
    claim: Claim,
    /// The member that it is about, in a zone that counts distinct members
    #[arg(long, allow_hyphen_values = true)]
    member: Option<String>,
    /// Another limit of the same transaction: all pass, or none is spent from
    #[arg(long, value_name = "ZONE=KEY[:COST]", value_parser = also)]
    also: Vec<Check>,
    /// Wait at most this long until it passes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["also", "txn"], allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// End with an error when there is no decision after this time [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    deadline: Option<Duration>,
    /// The form of the answer [default: text; with --stdin always json]
    #[arg(long)]
    format: Option<Answer>,
    /// Read checks from stdin, one JSON object a line
    #[arg(long, conflicts_with_all = ["zone", "key", "cost", "txn", "critical", "band", "member", "also", "wait"])]
    stdin: bool,
    /// The number of lines that are under way at the same time
    #[arg(long, value_name = "N", default_value = "32", requires = "stdin", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
}

/// Reserves a cost for a time: charged now, given back by itself unless it is settled or cancelled before
#[derive(clap::Args)]
#[command(after_help = RESERVE_EXAMPLES)]
pub struct ReserveArgs {
    /// Name of the zone
    zone: String,
    /// The key that is limited: a user, an address, a card. 1 to 255 bytes
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The cost to reserve, in the zone's unit; with --shape only where nothing is known of the shape
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_units, allow_negative_numbers = true)]
    cost: i64,
    /// Reserve the recent cost of requests of this shape in the bucket: see tallygate predict
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    shape: Option<String>,
    /// The time for which it is reserved
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Duration,
    /// Your UUID of the transaction [default: a new one]
    #[arg(long, value_name = "UUID", value_parser = txn::parse)]
    txn: Option<Uuid>,
    #[command(flatten)]
    claim: Claim,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, args: Args) -> Result {
    let config = Config::default();
    let config = Config { deadline: args.deadline.unwrap_or(config.deadline), ..config };
    match (args.zone, args.key) {
        (Some(zone), Some(key)) => {
            let mut check = Check::new(zone, key).cost(args.cost);
            check = args.txn.into_iter().fold(check, Check::txn);
            check = args.member.into_iter().fold(check, Check::member);
            check = args.claim.of(check);
            let format = args.format.unwrap_or(Answer::Text);
            if args.also.is_empty() {
                one(url, config, check, args.wait, format).await
            } else {
                several(url, config, check, args.also, format).await
            }
        }
        _ if args.format == Some(Answer::Text) => {
            Err(Failure::new("--stdin answers in JSON; leave out --format text"))
        }
        _ => stream::run(url, config, args.concurrency).await,
    }
}

pub async fn reserve(url: &str, args: ReserveArgs) -> Result {
    let mut check = Check::new(args.zone, args.key).cost(args.cost).reserved_for(args.ttl);
    check = args.txn.into_iter().fold(check, Check::txn);
    check = args.claim.of(check);
    match args.shape {
        Some(shape) => predict::reserve(url, check, args.ttl, &shape, args.format).await,
        None => one(url, Config::default(), check, None, args.format).await,
    }
}

async fn one(url: &str, config: Config, check: Check, wait: Option<Duration>, format: Answer) -> Result {
    // Before connecting: a wrong check is told whatever the database says.
    check.validate()?;
    let limiter = open_with(url, config).await?;
    let decision = match wait {
        Some(wait) => limiter.check_until(check, wait).await?,
        None => limiter.check(check).await?,
    };
    let line = match format {
        Answer::Text => decision::line(&decision),
        Answer::Json => serde_json::to_string(&decision)?,
    };
    say(&line, decision.blocked)
}

async fn several(url: &str, config: Config, first: Check, also: Vec<Check>, format: Answer) -> Result {
    let checks: Vec<Check> = [first].into_iter().chain(also).collect();
    checks.iter().try_for_each(Check::validate)?;
    let combined = open_with(url, config).await?.check_all(checks).await?;
    let text = match format {
        Answer::Text => {
            let lines: Vec<_> = combined.decisions.iter().map(decision::line).collect();
            lines.join("\n")
        }
        Answer::Json => serde_json::to_string(&combined)?,
    };
    say(&text, combined.blocked)
}

fn say(line: &str, blocked: bool) -> Result {
    verdict(writeln!(stdout(), "{line}").map_err(Failure::from), Exit::of_blocked(blocked))
}

/// `ZONE=KEY`, `ZONE=KEY:COST`.
fn also(text: &str) -> std::result::Result<Check, String> {
    let (zone, rest) =
        text.split_once('=').ok_or("another limit is a zone and a key, ZONE=KEY or ZONE=KEY:COST")?;
    let cost = rest.rsplit_once(':').and_then(|(key, cost)| Some((key, cost.parse().ok()?)));
    Ok(match cost {
        Some((key, cost)) => Check::new(zone, key).cost(cost),
        None => Check::new(zone, rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_last_colon_is_the_cost_if_it_is_a_number() {
        for (text, zone, key, cost) in [
            ("login=42", "login", "42", 1),
            ("pay=card:9f3c", "pay", "card:9f3c", 1),
            ("pay=card:9f3c:1250", "pay", "card:9f3c", 1250),
            ("login=user:42:1", "login", "user:42", 1),
            ("a=b=c", "a", "b=c", 1),
            ("a=::1:3", "a", "::1", 3),
        ] {
            assert_eq!(also(text), Ok(Check::new(zone, key).cost(cost)), "{text}");
        }
        assert!(also("login").is_err());
    }
}
