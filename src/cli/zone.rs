//! `tallygate zone`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use comfy_table::Table;
use serde::Serialize;
use tallygate::{Algorithm, BlockedRows, Durability, Limiter, Policy, Zone, ZoneVersion};

use super::output::{Format, bold, plain, render, table};
use super::{Failure, Result, duration, units};

const SET_EXAMPLES: &str = "\
Examples:
  tallygate zone set login --rate 5 --per 60s
  tallygate zone set api --rate 100 --per 1s --algorithm token-bucket --burst 500
  tallygate zone set search --rate 10 --per 1s --durability relaxed --blocked-rows coalesced
  tallygate zone set payments --rate 50000 --per 24h --description \"cents per card and day\"

Setting what is already set changes nothing and makes no version. The next check anywhere decides \
by the new policy. The answer is the zone, with the id that SQL callers use: \
CALL check_velocity(1, 'user:42').";

const LIST_EXAMPLES: &str = "\
Examples:
  tallygate zone list
  tallygate zone list --format json";

const SHOW_EXAMPLES: &str = "\
Examples:
  tallygate zone show login
  tallygate zone show login --format json";

/// Makes, changes and shows zones: what is limited, and how much
#[derive(clap::Subcommand)]
pub enum Command {
    /// Makes a zone, or changes its policy
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Shows every zone
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Shows a zone and every version that it had
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Name of the zone
        name: String,
        /// How to print
        #[arg(long, default_value = "table")]
        format: Format,
    },
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// Name of the zone
    name: String,
    /// How much it admits per window, in the zone's unit: attempts, cents, …
    #[arg(long, value_name = "N", value_parser = units::parse, allow_negative_numbers = true)]
    rate: i64,
    /// Length of the window, with its unit: 60s, 15m, 24h, 30d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    per: Duration,
    /// sliding-log admits at most the rate in any window, exactly; token-bucket fills at the rate and lets
    /// through up to its burst at once
    #[arg(long, default_value = "sliding-log", value_parser = algorithm())]
    algorithm: Algorithm,
    /// Capacity of a token bucket [default: the rate]
    #[arg(long, value_name = "N", value_parser = units::parse, allow_negative_numbers = true)]
    burst: Option<i64>,
    /// durable waits with each answer until it is on the disk; relaxed does not, and a crash can forget the
    /// last decisions
    #[arg(long, default_value = "durable", value_parser = durability())]
    durability: Durability,
    /// each writes a row for every blocked check; with coalesced one row may stand for many
    #[arg(long, value_name = "ROWS", default_value = "each", value_parser = blocked_rows())]
    blocked_rows: BlockedRows,
    /// What the zone is for [default: as it was]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Who changes the zone, for its history [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// How to print
    #[arg(long, default_value = "table")]
    format: Format,
}

fn algorithm() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new([Algorithm::SlidingLog, Algorithm::TokenBucket].map(Algorithm::as_str))
        .try_map(|name| name.parse::<Algorithm>())
}

fn durability() -> impl TypedValueParser<Value = Durability> {
    PossibleValuesParser::new([Durability::Durable, Durability::Relaxed].map(Durability::as_str))
        .try_map(|name| name.parse::<Durability>())
}

fn blocked_rows() -> impl TypedValueParser<Value = BlockedRows> {
    PossibleValuesParser::new([BlockedRows::Each, BlockedRows::Coalesced].map(BlockedRows::as_str))
        .try_map(|name| name.parse::<BlockedRows>())
}

/// A zone with its history, as JSON shows it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    zone: Zone,
    versions: Vec<ZoneVersion>,
}

pub async fn run(url: &str, command: Command) -> Result {
    match command {
        Command::Set(args) => set(url, args).await,
        Command::List { format } => list(url, format).await,
        Command::Show { name, format } => show(url, &name, format).await,
    }
}

async fn set(url: &str, args: SetArgs) -> Result {
    let policy = Policy::new(args.algorithm, args.rate, args.per, args.burst)?
        .with_durability(args.durability)
        .with_blocked_rows(args.blocked_rows);
    let by = args.by.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned());
    let limiter = Limiter::connect(url).await?;
    let zone = limiter.set_zone(&args.name, &policy, args.description.as_deref(), &by).await?;
    let mut out = stdout().lock();
    match args.format {
        Format::Table => out.write_all(zones_table(&[zone]).as_bytes())?,
        Format::Json => writeln!(out, "{}", serde_json::to_string(&zone)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(url: &str, format: Format) -> Result {
    let zones = Limiter::connect(url).await?.zones().await?;
    let mut out = stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&zones)?)?,
        Format::Table if zones.is_empty() => {
            writeln!(out, "no zones yet; make one: tallygate zone set login --rate 5 --per 60s")?;
        }
        Format::Table => out.write_all(zones_table(&zones).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(url: &str, name: &str, format: Format) -> Result {
    let limiter = Limiter::connect(url).await?;
    let zone = limiter.zone(name).await?.ok_or_else(|| {
        Failure::new(format!("there is no zone {name:?}; list them with: tallygate zone list"))
    })?;
    let versions = limiter.zone_versions(&zone).await?;
    let mut out = stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&Shown { zone, versions })?)?,
        Format::Table => {
            out.write_all(zones_table(&[zone]).as_bytes())?;
            writeln!(out, "\n{}", bold("Versions"))?;
            out.write_all(versions_table(&versions).as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn zones_table(zones: &[Zone]) -> String {
    let mut table = table(&["id", "name", "policy", "algorithm", "version", "updated at", "description"]);
    for zone in zones {
        table.add_row([
            zone.id.to_string(),
            plain(&zone.name),
            policy(&zone.policy),
            zone.policy.algorithm().to_string(),
            zone.version.to_string(),
            duration::show_moment(zone.updated_at),
            plain(&zone.description),
        ]);
    }
    render(&table, 0)
}

fn versions_table(versions: &[ZoneVersion]) -> String {
    let mut table: Table = table(&["version", "policy", "algorithm", "changed at", "by", "description"]);
    for version in versions {
        table.add_row([
            version.version.to_string(),
            policy(&version.policy),
            version.policy.algorithm().to_string(),
            duration::show_moment(version.changed_at),
            plain(&version.changed_by),
            plain(&version.description),
        ]);
    }
    render(&table, 0)
}

/// `5 per 1m`; `100 per 1s, burst 500, relaxed, blocked rows coalesced`.
fn policy(policy: &Policy) -> String {
    let mut text = format!("{} per {}", policy.rate(), duration::show(policy.window_us()));
    if let Some(burst) = policy.burst() {
        text += &format!(", burst {burst}");
    }
    if policy.durability() != Durability::default() {
        text += &format!(", {}", policy.durability());
    }
    if policy.blocked_rows() != BlockedRows::default() {
        text += &format!(", blocked rows {}", policy.blocked_rows());
    }
    text
}
