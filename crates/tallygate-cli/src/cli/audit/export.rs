//! `tallygate audit export`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use tallygate::audit::export::{Export, ExportFormat};

use super::files;
use crate::cli::output::Answer;
use crate::cli::{Result, duration, moment, open};

const EXAMPLES: &str = "\
Examples:
  tallygate audit export --to ledger-2026
  tallygate audit export --to login-jan --zone login --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z
  tallygate audit export --to lake --as parquet

The files have every column of every row, bucket by bucket, with the hashes and what they are made of. After an interruption \
the same command goes on where it stopped. The folder holds people's addresses and cards: keep it as you keep \
the ledger.";

/// Writes the ledger into files, for auditors with tools of their own
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder for the files and their manifest
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The format of the files
    #[arg(long = "as", value_name = "FORMAT", default_value = "csv")]
    written_as: WrittenAs,
    /// Only this zone
    #[arg(long)]
    zone: Option<String>,
    /// Only rows of this time or later
    #[arg(long, value_name = "TIME", value_parser = moment::parse_written)]
    since: Option<DateTime<Utc>>,
    /// Only rows before this time [default: 15 minutes ago]
    #[arg(long, value_name = "TIME", value_parser = moment::parse_written)]
    until: Option<DateTime<Utc>>,
    /// The most rows in a file
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    part_rows: u32,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WrittenAs {
    // With a header.
    Csv,
    // An object in each line.
    Jsonl,
    // Apache Parquet.
    Parquet,
}

pub async fn run(url: &str, args: Args) -> Result {
    let format = match args.written_as {
        WrittenAs::Csv => ExportFormat::Csv,
        WrittenAs::Jsonl => ExportFormat::JsonLines,
        WrittenAs::Parquet => ExportFormat::Parquet,
    };
    let mut export = Export::new(args.to, format).part_rows(args.part_rows);
    (export.zone, export.since, export.until) = (args.zone, args.since, args.until);
    let limiter = open(url).await?;
    let bar = files::counter("rows");
    let manifest = limiter.auditor().export(&export, |rows| bar.set_position(rows)).await;
    bar.finish_and_clear();
    let manifest = manifest?;
    match args.format {
        Answer::Text => {
            let (rows, files) = (manifest.rows, manifest.parts.len());
            let left_out = match export.until {
                Some(_) => String::new(),
                None => format!(
                    "; rows of the last 15 minutes, from {} on, are left out: some may not be committed yet (--until names another \
                     time)",
                    duration::show_micros(manifest.until)
                ),
            };
            writeln!(
                stdout(),
                "{rows} rows in {files} files, removals.jsonl and manifest.json in {}{left_out}",
                export.to.display()
            )?;
        }
        Answer::Json => writeln!(stdout(), "{}", serde_json::to_string(&manifest)?)?,
    }
    Ok(ExitCode::SUCCESS)
}
