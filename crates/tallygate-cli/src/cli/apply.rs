//! `tallygate apply`: zones as code.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;
use tallygate::Limiter;
use tallygate::policy::{Terms, Zone, ZoneSetting, zone_file, zone_terms};

use super::output::{Answer, bold, green, plain};
use super::zone::keep_sql_callers;
use super::{Failure, Result, duration, open, who};

const EXAMPLES: &str = "\
Examples:
  tallygate apply zones.toml --dry-run
  tallygate apply zones.toml --by \"release 4711\"

zones.toml:
  [zone.login]
  rate = 5
  per = \"60s\"
  ban-after = 10
  ban-within = \"1h\"
  ban-for = \"15m\"
  description = \"login attempts of an address\"

  [zone.exports]
  rate = 5000
  algorithm = \"fixed-window\"
  calendar = \"month\"
  time-zone = \"Europe/Berlin\"

The names are those of the flags of: tallygate zone set --help. All zones are made or changed in one transaction. \
Applying the same file again changes nothing. Zones that are not in the file stay as they are.";

/// Makes and changes zones as a file says
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file of zones
    file: PathBuf,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// The person who changes the zones, for their history [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Make zones more than plain even where callers in SQL used them lately; they are refused from then on
    #[arg(long)]
    not_for_sql: bool,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(Serialize)]
struct Applied {
    dry_run: bool,
    zones: Vec<Difference>,
    /// Zones of the database that the file does not name.
    others: Vec<String>,
}

#[derive(Serialize)]
struct Difference {
    name: String,
    action: &'static str,
    changes: Vec<Change>,
    /// The version after it; in a dry run the one that would be next.
    version: i32,
    /// The policy in words.
    #[serde(skip)]
    policy: String,
}

#[derive(Serialize)]
struct Change {
    field: String,
    from: Value,
    to: Value,
}

pub async fn run(url: &str, args: Args) -> Result {
    let settings = read(&args.file, zone_file)?;
    let limiter = if args.dry_run { open(url).await? } else { Limiter::connect(url).await? };
    let before = limiter.operator().zones().await?;
    let mut zones = Vec::with_capacity(settings.len());
    for setting in &settings {
        let zone = before.iter().find(|zone| zone.name == setting.name);
        if let Some(zone) = zone {
            keep_sql_callers(&limiter, zone, &setting.policy, args.not_for_sql).await?;
        }
        zones.push(Difference::between(zone, setting)?);
    }
    let named = |zone: &&Zone| !settings.iter().any(|setting| setting.name == zone.name);
    let others = before.iter().filter(named).map(|zone| zone.name.clone()).collect();
    if !args.dry_run {
        for (zone, difference) in
            limiter.operator().set_zones(settings, &who(args.by)).await?.iter().zip(&mut zones)
        {
            difference.version = zone.version;
        }
    }
    let applied = Applied { dry_run: args.dry_run, zones, others };
    let mut out = stdout().lock();
    match args.format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&applied)?)?,
        Answer::Text => out.write_all(applied.text().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The zones of a file.
pub fn zones(path: &Path) -> Result<BTreeMap<String, Terms>> {
    read(path, zone_terms)
}

fn read<T>(path: &Path, parse: impl Fn(&str) -> tallygate::Result<T>) -> Result<T> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{shown} cannot be read: {error}; name a file of zones")))?;
    parse(&text).map_err(|error| Failure::new(format!("{shown}: {error}")))
}

impl Difference {
    fn between(zone: Option<&Zone>, setting: &ZoneSetting) -> Result<Self> {
        let mut changes = Vec::new();
        let before = zone.map(|zone| fields(&zone.policy)).transpose()?.unwrap_or_default();
        for (field, to) in fields(&setting.policy)? {
            let from = before.get(&field).cloned().unwrap_or_default();
            // The treatment of buckets in use is no change by itself.
            if from != to && (zone.is_none() || field != "running_buckets") {
                changes.push(Change { field, from, to });
            }
        }
        let description = zone.map(|zone| zone.description.as_str());
        if let Some(to) = setting.description.as_deref().filter(|&to| description != Some(to)) {
            changes.push(Change { field: "description".to_owned(), from: description.into(), to: to.into() });
        }
        let (action, version) = match zone {
            None => ("create", 1),
            Some(zone) if setting.changes(zone)? => ("change", zone.version + 1),
            Some(zone) => ("keep", zone.version),
        };
        let policy = format!("{}; {}", setting.policy, setting.policy.algorithm());
        Ok(Self { name: setting.name.clone(), action, changes, version, policy })
    }
}

/// The name of a setting without its unit, which its value carries.
fn word(field: &str) -> &str {
    field.strip_suffix("_us").unwrap_or(field)
}

/// A setting as people type it.
fn shown(field: &str, value: &Value) -> String {
    match (value, value.as_i64()) {
        (Value::Null, _) => "none".to_owned(),
        (_, Some(us)) if field.ends_with("_us") => duration::show(us),
        (Value::Object(parts), _) => {
            let parts = parts.iter().map(|(name, value)| format!("{} {}", word(name), shown(name, value)));
            parts.collect::<Vec<_>>().join(", ")
        }
        _ => plain(&value.to_string()),
    }
}

fn fields(policy: &tallygate::Policy) -> Result<serde_json::Map<String, Value>> {
    match serde_json::to_value(policy)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Failure::new("a policy has no fields")),
    }
}

impl Applied {
    fn text(&self) -> String {
        let mut text = String::new();
        for zone in &self.zones {
            let sign = match zone.action {
                "create" => "+",
                "change" => "~",
                _ => " ",
            };
            text += &format!(
                "{} {}  {}, version {}\n",
                green(sign),
                bold(&plain(&zone.name)),
                zone.action,
                zone.version
            );
            if zone.action == "create" {
                text += &format!("    {}\n", zone.policy);
                continue;
            }
            for Change { field, from, to } in &zone.changes {
                let (from, to) = (shown(field, from), shown(field, to));
                text += &format!("    {}: {from} -> {to}\n", word(field));
            }
        }
        let changed = self.zones.iter().filter(|zone| zone.action != "keep").count();
        let word = if self.dry_run { "would change" } else { "changed" };
        text + &format!(
            "{changed} of {} zones {word}; {} are not in the file\n",
            self.zones.len(),
            self.others.len()
        )
    }
}
