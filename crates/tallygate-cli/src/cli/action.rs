//! Acts on charges and buckets: `refund`, `settle`, `cancel`, `release`, `ban`, `unban`, `override`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use tallygate::ledger::Kind;
use tallygate::policy::{Limit, Override, parse_units};
use tallygate::{Charged, Limiter, Recorded};
use uuid::Uuid;

use super::clock::Clock;
use super::output::{Answer, Format, by, dim, plain, render, table};
use super::{Failure, Result, duration, open, spreadsheet, txn, who};

const REFUND_EXAMPLES: &str = "\
Examples:
  tallygate refund 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate refund 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --zone login --key user:42

When the password was right after an attempt was counted, the attempt is given back, once. The same refund again does \
nothing, and says so. A transaction that was blocked has nothing to give back; a reservation is settled or cancelled, a slot \
released.";

const SETTLE_EXAMPLES: &str = "\
Examples:
  tallygate reserve payments card:9f3c --cost 10000 --ttl 15m --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate settle 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --cost 7350
  tallygate cancel 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11

The part of the reservation beyond the cost is given back. A cost above the reservation, or one after it has run out, is \
charged without asking for room: later checks feel it.";

const RELEASE_EXAMPLES: &str = "\
Examples:
  tallygate check jobs worker:7 --txn 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11
  tallygate release 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11

A slot that is not released is free again when its time to live is over.";

const BAN_EXAMPLES: &str = "\
Examples:
  tallygate ban login ip:203.0.113.66 --for 24h --note \"credential stuffing, ticket 4711\"
  tallygate unban login ip:203.0.113.66 --note \"the customer's own scanner\"";

const OVERRIDE_EXAMPLES: &str = "\
Examples:
  tallygate override set api tenant:acme --rate 5000 --per 1s --for 30d --note \"launch week\"
  tallygate override set login ip:198.51.100.7 --no-ban --note \"office gateway\"
  tallygate override list api
  tallygate override remove api tenant:acme --note \"launch is over\"";

/// The fields of an override, in the order in which serde writes them.
const OVERRIDE_FIELDS: [&str; 8] =
    ["key", "limit", "ban_exempt", "ends_at", "note", "set_by", "login", "set_at"];

/// The charge that is meant.
#[derive(clap::Args)]
pub struct Of {
    /// The transaction
    #[arg(value_name = "TXN", value_parser = txn::parse)]
    txn: Uuid,
    /// Only in this zone; needs --key [default: in every bucket that it charged]
    #[arg(long, requires = "key")]
    zone: Option<String>,
    /// Only in this bucket; needs --zone
    #[arg(long, requires = "zone")]
    key: Option<String>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

impl Of {
    fn charged(&self) -> Charged {
        match (&self.zone, &self.key) {
            (Some(zone), Some(key)) => Charged::by(self.txn).in_bucket(zone, key),
            _ => Charged::by(self.txn),
        }
    }
}

/// Gives back what a check spent, once
#[derive(clap::Args)]
#[command(after_help = REFUND_EXAMPLES)]
pub struct Refund {
    #[command(flatten)]
    of: Of,
}

/// Turns a reservation into a charge
#[derive(clap::Args)]
#[command(after_help = SETTLE_EXAMPLES)]
pub struct Settle {
    #[command(flatten)]
    of: Of,
    /// The cost that it came to
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    cost: i64,
}

/// Gives a reservation back
#[derive(clap::Args)]
#[command(after_help = SETTLE_EXAMPLES)]
pub struct Cancel {
    #[command(flatten)]
    of: Of,
}

/// Gives a slot of concurrency back
#[derive(clap::Args)]
#[command(after_help = RELEASE_EXAMPLES)]
pub struct Release {
    #[command(flatten)]
    of: Of,
}

/// The bucket that is meant, and the reason.
#[derive(clap::Args)]
pub struct Bucket {
    /// Name of the zone
    zone: String,
    /// The key that is limited
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The reason, which is kept in the ledger
    #[arg(long, value_name = "TEXT")]
    note: String,
    /// The person who does it [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// Bans a bucket for a time: nothing passes
#[derive(clap::Args)]
#[command(after_help = BAN_EXAMPLES)]
pub struct Ban {
    #[command(flatten)]
    bucket: Bucket,
    /// The length of the ban
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    time: Duration,
}

/// Ends a bucket's ban, and forgets those before it
#[derive(clap::Args)]
#[command(after_help = BAN_EXAMPLES)]
pub struct Unban {
    #[command(flatten)]
    bucket: Bucket,
}

/// Limits of single buckets
#[derive(clap::Subcommand)]
#[command(after_help = OVERRIDE_EXAMPLES)]
pub enum Overrides {
    /// Gives a bucket a limit of its own, in place of one that it has
    #[command(after_help = OVERRIDE_EXAMPLES)]
    Set(Set),
    /// Shows the overrides in force in a zone
    #[command(after_help = OVERRIDE_EXAMPLES)]
    List {
        /// Name of the zone
        zone: String,
        /// The form of the list
        #[arg(long, default_value = "text")]
        format: Format,
    },
    /// Ends a bucket's override
    #[command(after_help = OVERRIDE_EXAMPLES)]
    Remove(Bucket),
}

#[derive(clap::Args)]
pub struct Set {
    #[command(flatten)]
    bucket: Bucket,
    /// The limit per window [default: as the zone]
    #[arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true)]
    rate: Option<i64>,
    /// Length of the window [default: as the zone's is now]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "rate", allow_hyphen_values = true)]
    per: Option<Duration>,
    /// Capacity, where the zone's algorithm has one [default: the rate]
    #[arg(long, value_name = "N", value_parser = parse_units, requires = "rate", allow_negative_numbers = true)]
    burst: Option<i64>,
    /// Blocked checks do not lead to a ban
    #[arg(long)]
    no_ban: bool,
    /// The time for which it holds [default: until it is removed]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    time: Option<Duration>,
}

pub async fn refund(url: &str, Refund { of }: Refund) -> Result {
    print(&open(url).await?.refund(of.charged()).await?, of.format)
}

pub async fn settle(url: &str, Settle { of, cost }: Settle) -> Result {
    print(&open(url).await?.settle(of.charged(), cost).await?, of.format)
}

pub async fn cancel(url: &str, Cancel { of }: Cancel) -> Result {
    print(&open(url).await?.cancel(of.charged()).await?, of.format)
}

pub async fn release(url: &str, Release { of }: Release) -> Result {
    print(&open(url).await?.release(of.charged()).await?, of.format)
}

pub async fn ban(url: &str, Ban { bucket, time }: Ban) -> Result {
    let Bucket { zone, key, note, by, format } = bucket;
    let recorded = open(url).await?.operator().ban(&zone, &key, time, &note, &who(by)).await?;
    print(&[recorded], format)
}

pub async fn unban(url: &str, Unban { bucket }: Unban) -> Result {
    let Bucket { zone, key, note, by, format } = bucket;
    let recorded = open(url).await?.operator().unban(&zone, &key, &note, &who(by)).await?;
    print(&[recorded], format)
}

pub async fn overrides(url: &str, command: Overrides) -> Result {
    let limiter = open(url).await?;
    match command {
        Overrides::Set(set) => {
            let over = set.terms(&limiter).await?;
            let Bucket { zone, key, note, by, format } = set.bucket;
            print(&[limiter.operator().set_override(&zone, &key, over, &note, &who(by)).await?], format)
        }
        Overrides::Remove(Bucket { zone, key, note, by, format }) => {
            print(&[limiter.operator().remove_override(&zone, &key, &note, &who(by)).await?], format)
        }
        Overrides::List { zone, format } => list(&limiter, &zone, format).await,
    }
}

impl Set {
    async fn terms(&self, limiter: &Limiter) -> Result<Override> {
        let limit = match (self.rate, self.per) {
            (None, _) => None,
            (Some(rate), Some(per)) => Some(Limit::new(rate, per, self.burst)?),
            (Some(rate), None) => {
                let zone = limiter.operator().zone(&self.bucket.zone).await?.ok_or_else(|| {
                    Failure::new(format!(
                        "there is no zone {:?}; list them with: tallygate zone list",
                        self.bucket.zone
                    ))
                })?;
                let window = Duration::from_micros(zone.policy.asked().window_us().unsigned_abs());
                Some(Limit::new(rate, window, self.burst)?)
            }
        };
        let for_us = self.time.map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
        Ok(Override { limit, ban_exempt: self.no_ban, for_us })
    }
}

async fn list(limiter: &Limiter, zone: &str, format: Format) -> Result {
    let overrides = limiter.operator().overrides(zone).await?;
    let mut out = stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&overrides)?)?,
        Format::Csv => out.write_all(spreadsheet::list(&OVERRIDE_FIELDS, &overrides)?.as_bytes())?,
        Format::Text if overrides.is_empty() => writeln!(out, "no overrides in zone {}", plain(zone))?,
        Format::Text => {
            let mut table = table(&["key", "limit", "bans", "until", "note", "by", "set at"]);
            for over in &overrides {
                let limit = over.limit.map(|limit| {
                    let burst = limit.burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
                    format!("{} per {}{burst}", limit.rate, duration::show(limit.window_us))
                });
                table.add_row([
                    plain(&over.key),
                    limit.unwrap_or_else(|| "as the zone".to_owned()),
                    if over.ban_exempt { "exempt" } else { "as the zone" }.to_owned(),
                    over.ends_at.map_or_else(|| "removed".to_owned(), |at| Clock::UTC.show_end(at)),
                    plain(over.note.as_deref().unwrap_or_default()),
                    by(over.set_by.as_deref().unwrap_or_default(), over.login.as_deref()),
                    Clock::UTC.show(over.set_at),
                ]);
            }
            out.write_all(render(&table, 0).as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `refund  login user:42  1 given back  4 left  txn …`, a line for each bucket; in JSON one list.
fn print(recorded: &[Recorded], format: Answer) -> Result {
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(recorded)?)?,
        Answer::Text => {
            for row in recorded {
                writeln!(out, "{}", line(row))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(row: &Recorded) -> String {
    let (zone, key) = (plain(&row.zone), plain(&row.key));
    let until = row.ends_at.map(|at| format!("  until {}", Clock::UTC.show_end(at))).unwrap_or_default();
    let what = match row.kind {
        Kind::Settle if row.spent > 0 => {
            format!("  came to {}, of which {} was not reserved", row.cost, row.spent)
        }
        Kind::Settle => format!("  came to {}", row.cost),
        Kind::Refund | Kind::Cancel | Kind::Release => format!("  {} given back", row.cost),
        _ => until,
    };
    let replayed = if row.replayed { "  recorded before" } else { "" };
    let txn = dim(&format!("txn {}", row.txn_id));
    format!("{}  {zone} {key}{what}  {} left{replayed}  {txn}", row.kind, row.remaining)
}
