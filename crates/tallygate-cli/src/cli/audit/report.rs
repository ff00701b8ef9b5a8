//! `tallygate audit report`.

mod text;
mod why;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use tallygate::Limiter;
use tallygate::audit::report::{Imprint, Report, ReportOn};

use crate::cli::output::{Format, cell};
use crate::cli::private::Private;
use crate::cli::progress::progress;
use crate::cli::{Failure, Result, moment, open, who};

const EXAMPLES: &str = "\
Examples:
  tallygate audit report                                     the last 30 days of all zones
  tallygate audit report --zone login --since 7d             one zone, hour by hour
  tallygate audit report --since 7d --html report.html       a page with charts, in one file
  tallygate audit report --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z --format json
  tallygate audit report --since 24h --format csv            volumes over time, for a spreadsheet

The page explains the transactions that it names, as audit explain does: for each of them its bucket is read from its first
row. The page names its database, without users and passwords.

Volumes are by minute for up to 3 hours, by hour for up to 14 days, else by day, in UTC. The csv is the volumes; the
json is everything. Checks go on meanwhile: the ledger is read in short statements.";

/// Reports on a time: volumes, the keys that were blocked most, bans, overrides, changes of policy
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this zone
    #[arg(long)]
    zone: Option<String>,
    /// Only decisions of this time or later: a time, or how long ago, like 24h [default: 30d before the end]
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    since: Option<DateTime<Utc>>,
    /// Only decisions before this time: a time, or how long ago, like 15m [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<DateTime<Utc>>,
    /// The number of buckets to name, 1 to 1000
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    top: u32,
    /// Write a page with charts into this file
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    html: Option<PathBuf>,
    /// Explain at most this many of the transactions that the page names
    #[arg(long, value_name = "N", default_value = "20", requires = "html", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    explain: u32,
    /// The maker of the page, which it names [default: $USER]
    #[arg(long, value_name = "NAME", requires = "html")]
    by: Option<String>,
    /// The form of the report
    #[arg(long, default_value = "text")]
    format: Format,
}

pub async fn run(url: &str, args: Args) -> Result {
    let mut on = ReportOn::default().top(args.top);
    (on.zone, on.since, on.until) = (args.zone, args.since, args.until);
    let limiter = open(url).await?;
    let Some(path) = args.html else {
        let report = read(&limiter, &on).await?;
        let printed = match args.format {
            Format::Text => text::text(&report),
            Format::Json => serde_json::to_string(&report)? + "\n",
            Format::Csv => csv(&report)?,
        };
        stdout().lock().write_all(printed.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let page = Page { path: &path, url, by: &who(args.by), explain: args.explain as usize };
    page.write(&limiter, &on).await?;
    writeln!(stdout(), "wrote {}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// A page with charts, in a file of its own.
pub struct Page<'p> {
    pub path: &'p Path,
    /// The database that it is of.
    pub url: &'p str,
    /// Its maker.
    pub by: &'p str,
    /// The number of transactions that it explains.
    pub explain: usize,
}

impl Page<'_> {
    pub async fn write(&self, limiter: &Limiter, on: &ReportOn) -> Result<()> {
        let unwritable = |error| Failure::new(format!("{} cannot be written: {error}", self.path.display()));
        // Before the reading, which may take long.
        let file = Private::begin(self.path).map_err(unwritable)?;
        let report = read(limiter, on).await?;
        let why = why::explanations(limiter, &report, self.explain).await?;
        let imprint = Imprint::new(self.url, self.by).explanations(why);
        file.end(&report.page(&imprint)).map_err(unwritable)
    }
}

async fn read(limiter: &Limiter, on: &ReportOn) -> Result<Report> {
    let bar = progress(Some(1_000), "  reading the ledger  {bar:40.cyan/dim} {percent}%  {elapsed}");
    let report = limiter.auditor().report(on, |part| bar.set_position((part * 1_000.0) as u64)).await;
    bar.finish_and_clear();
    Ok(report?)
}

fn csv(report: &Report) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header =
        ["starts_at", "zone", "checks", "allowed", "blocked", "soft", "shadowed", "coalesced", "unchecked"];
    let mut write = || {
        writer.write_record(header)?;
        report.volumes.iter().try_for_each(|volume| {
            let counts = &volume.counts;
            let starts_at = volume.starts_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            writer.serialize((
                starts_at,
                cell(&volume.zone),
                counts.checks,
                counts.allowed,
                counts.blocked,
                counts.soft,
                counts.shadowed,
                counts.coalesced,
                counts.unchecked,
            ))
        })
    };
    write().map_err(|error: csv::Error| Failure::new(format!("no CSV could be made: {error}")))?;
    Ok(String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned())
}
