//! `tallygate zone`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tallygate::policy::{Terms, Zone, ZoneVersion};
use tallygate::{Limiter, Policy};

use super::clock::Clock;
use super::output::{Answer, Format, bold, by, plain, render, table};
use super::terminal::tell;
use super::{Failure, Result, open, spreadsheet, who};

const SET_EXAMPLES: &str = "\
Examples:
  tallygate zone set login --rate 5 --per 60s
  tallygate zone set api --rate 100 --per 1s --algorithm token-bucket --burst 500
  tallygate zone set exports --rate 5000 --algorithm fixed-window --calendar month --time-zone Europe/Berlin
  tallygate zone set cards --rate 5 --per 1h --algorithm distinct
  tallygate zone set jobs --rate 4 --algorithm concurrency --slot-ttl 10m
  tallygate zone set signin --rate 5 --per 1m --ban-after 10 --ban-within 1h --ban-for 15m --ban-factor 2 --ban-max 24h
  tallygate zone set search --rate 10 --per 1s --durability relaxed --blocked-rows coalesced
  tallygate zone set payments --rate 50000 --per 24h --description \"cents per card and day\"

Setting what is already set changes nothing and makes no version. The next check anywhere decides \
by the new policy. The answer is the zone, with the id that SQL callers use: \
CALL check_velocity(1, 'user:42').";

const LIST_EXAMPLES: &str = "\
Examples:
  tallygate zone list
  tallygate zone list --format json
  tallygate zone list --format csv > zones.csv";

const SHOW_EXAMPLES: &str = "\
Examples:
  tallygate zone show login
  tallygate zone show login --format json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  tallygate zone remove lgoin

Only the owner of the tables can remove a zone, and only one that no bucket and no row of the ledger was ever made in: a zone \
that the ledger names stays. Switch off a zone that was used: tallygate zone set NAME … --mode off.";

/// Callers in SQL of so long ago still call.
const SQL_CALLERS_WITHIN: Duration = Duration::from_secs(30 * 24 * 3600);

/// The fields of a zone, in the order in which serde writes them.
const FIELDS: [&str; 25] = [
    "id",
    "name",
    "description",
    "algorithm",
    "rate",
    "window_us",
    "burst",
    "slots",
    "calendar",
    "soft_rate",
    "reserve",
    "mode",
    "count_blocked",
    "ban",
    "on_outage",
    "running_buckets",
    "durability",
    "blocked_rows",
    "sharing",
    "queueing",
    "local_us",
    "version",
    "created_at",
    "updated_at",
    "beyond_sql",
];

/// Makes, changes, shows and removes zones: the use cases that are limited, each with its policy
#[derive(clap::Subcommand)]
pub enum Command {
    /// Makes a zone, or changes its policy
    #[command(after_help = SET_EXAMPLES)]
    Set(Box<SetArgs>),
    /// Shows every zone
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// The form of the list
        #[arg(long, default_value = "text")]
        format: Format,
    },
    /// Shows a zone and every version that it had
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Name of the zone
        #[arg(id = "zone", value_name = "NAME")]
        name: String,
        /// The form of the answer
        #[arg(long, default_value = "text")]
        format: Answer,
    },
    /// Removes a zone that was never used
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// Name of the zone
        #[arg(id = "zone", value_name = "NAME")]
        name: String,
    },
    /// A zone keeps its name
    #[command(hide = true)]
    Rename {
        #[arg(hide = true, num_args = 0.., allow_hyphen_values = true)]
        names: Vec<String>,
    },
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// Name of the zone
    #[arg(id = "zone", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    terms: Terms,
    /// The person who changes the zone, for its history [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Make a zone more than plain even where callers in SQL used it lately; they are refused from then on
    #[arg(long)]
    not_for_sql: bool,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// A zone, and the part of its policy that no SQL routine decides.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    zone: Zone,
    beyond_sql: Option<&'static str>,
}

/// A zone with its history, as JSON shows it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    zone: Zone,
    versions: Vec<ShownVersion>,
}

#[derive(Serialize)]
struct ShownVersion {
    #[serde(flatten)]
    version: ZoneVersion,
    tzdata: Option<&'static str>,
}

pub async fn run(url: &str, command: Command) -> Result {
    match command {
        Command::Set(args) => set(url, *args).await,
        Command::List { format } => list(url, format).await,
        Command::Show { name, format } => show(url, &name, format).await,
        Command::Remove { name } => remove(url, &name).await,
        Command::Rename { .. } => Err(Failure::new(
            "a zone keeps its name: the hashes of its versions, checkpoints and proofs are made of it; make a zone of the new \
             name, and set the old one to --mode off",
        )),
    }
}

async fn set(url: &str, args: SetArgs) -> Result {
    let policy = args.terms.policy()?;
    policy.validate()?;
    let limiter = Limiter::connect(url).await?;
    let description = args.terms.description.as_deref();
    if let Some(before) = limiter.operator().zone(&args.name).await? {
        keep_sql_callers(&limiter, &before, &policy, args.not_for_sql).await?;
    }
    let zone = limiter.operator().set_zone(&args.name, &policy, description, &who(args.by)).await?;
    let mut out = stdout().lock();
    match args.format {
        Answer::Text => out.write_all(zones_table(&[zone]).as_bytes())?,
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&zone)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a change that makes a zone more than plain where that would refuse callers in SQL, unless it is said twice.
pub async fn keep_sql_callers(
    limiter: &Limiter,
    before: &Zone,
    policy: &Policy,
    not_for_sql: bool,
) -> Result<()> {
    let beyond = policy.beyond_sql().filter(|_| before.policy.beyond_sql().is_none());
    if let Some(beyond) = beyond
        && limiter.operator().called_in_sql(before, SQL_CALLERS_WITHIN).await?
    {
        let said = format!("zone {} would not be plain any more ({beyond})", plain(&before.name));
        if !not_for_sql {
            return Err(Failure::new(format!(
                "{said}, and the database would refuse the callers in SQL who used it within 30 days; let them use the library or \
                 POST /v1/check first, or add --not-for-sql"
            )));
        }
        tell(format!("{said}: the database refuses callers in SQL from now on"));
    }
    Ok(())
}

async fn list(url: &str, format: Format) -> Result {
    let zones = open(url).await?.operator().zones().await?;
    let mut out = stdout().lock();
    let listed = |zones: Vec<Zone>| -> Vec<Listed> {
        zones.into_iter().map(|zone| Listed { beyond_sql: zone.policy.beyond_sql(), zone }).collect()
    };
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&listed(zones))?)?,
        Format::Csv => out.write_all(spreadsheet::list(&FIELDS, &listed(zones))?.as_bytes())?,
        Format::Text if zones.is_empty() => {
            writeln!(out, "no zones yet; make one: tallygate zone set login --rate 5 --per 60s")?;
        }
        Format::Text => out.write_all(zones_table(&zones).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(url: &str, name: &str, format: Answer) -> Result {
    let limiter = open(url).await?;
    let zone = limiter.operator().zone(name).await?.ok_or_else(|| {
        Failure::new(format!("there is no zone {name:?}; list them with: tallygate zone list"))
    })?;
    let versions = limiter.operator().zone_versions(&zone).await?;
    let mut out = stdout().lock();
    match format {
        Answer::Json => {
            let told = |version: ZoneVersion| ShownVersion { tzdata: tzdata(&version.policy), version };
            let shown = Shown { zone, versions: versions.into_iter().map(told).collect() };
            writeln!(out, "{}", serde_json::to_string(&shown)?)?;
        }
        Answer::Text => {
            out.write_all(zones_table(&[zone]).as_bytes())?;
            writeln!(out, "\n{}", bold("Versions"))?;
            out.write_all(versions_table(&versions).as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(url: &str, name: &str) -> Result {
    open(url).await?.owner().remove_zone(name).await?;
    writeln!(stdout(), "removed  {}", plain(name))?;
    Ok(ExitCode::SUCCESS)
}

fn zones_table(zones: &[Zone]) -> String {
    let mut table =
        table(&["id", "name", "policy", "algorithm", "plain", "version", "updated at", "description"]);
    for zone in zones {
        table.add_row([
            zone.id.to_string(),
            plain(&zone.name),
            zone.policy.to_string(),
            zone.policy.algorithm().to_string(),
            zone.policy.beyond_sql().map_or("yes".to_owned(), |beyond| format!("no: {beyond}")),
            zone.version.to_string(),
            Clock::UTC.show(zone.updated_at),
            plain(&zone.description),
        ]);
    }
    render(&table, 0)
}

/// The release of the rules by which a policy counts the periods of its calendar.
fn tzdata(policy: &Policy) -> Option<&'static str> {
    policy.by_calendar().map(|calendar| calendar.time_zone.release())
}

fn versions_table(versions: &[ZoneVersion]) -> String {
    let mut table = table(&["version", "policy", "algorithm", "changed at", "by", "description"]);
    for version in versions {
        let rules = tzdata(&version.policy).map(|release| format!(", tzdata {release}")).unwrap_or_default();
        table.add_row([
            version.version.to_string(),
            version.policy.to_string() + &rules,
            version.policy.algorithm().to_string(),
            Clock::UTC.show(version.changed_at),
            by(&version.changed_by, version.login.as_deref()),
            plain(&version.description),
        ]);
    }
    render(&table, 0)
}
