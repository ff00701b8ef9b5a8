//! `tallygate audit checkpoint`.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tallygate::audit::Auditor;
use tallygate::audit::checkpoint::{Changed, Checkpoint, Comparison, HeadDifference};

use super::{files, key};
use crate::cli::exit::Exit;
use crate::cli::failure::verdict;
use crate::cli::output::{Answer, plain};
use crate::cli::{Failure, Result, duration, open};

const EXAMPLES: &str = "\
Examples:
  tallygate audit checkpoint > monday.json                   the state of the ledger 15 minutes ago
  tallygate audit checkpoint --key audit.key > monday.json   signed
  tallygate audit checkpoint --heads monday.heads > monday.json
  tallygate audit checkpoint --check monday.json             is the ledger of before still the same?
  tallygate audit checkpoint --check monday.json --heads monday.heads --public-key KEY

Keep checkpoints where the ledger's owner cannot change them. With --heads, 76 bytes for each bucket are written beside it, \
and a later check names the buckets that were changed, not only their zone. The margin must be longer than any transaction takes \
from its check to its commit. Neither file holds personal data. A check compares the ends of the chains; \
audit verify tells whether rows are what their hashes say.

At most 20 buckets are printed; JSON names 1,000. With --heads it is told when rows are missing and nothing else differs, as \
after an older backup was restored.

Exit codes: 0 unaltered, 5 something was changed or is missing, 2 it could not be compared, 3 it cannot be told: rows were dropped by upkeep, \
or the database does not answer now.";

/// The most buckets that are printed for people.
const PRINTED: u64 = 20;

/// Writes down the state of the ledger, to find out later whether it was altered
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Compare the ledger with this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "margin"])]
    check: Option<PathBuf>,
    /// The file of the ends of the buckets' chains: written, or with --check read
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// Sign with this key: see tallygate audit key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The public key whose signature the checkpoint must have
    #[arg(long, value_name = "KEY", requires = "check")]
    public_key: Option<String>,
    /// The time between its end and now
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::parse)]
    margin: Duration,
    /// The form of the answer to a check
    #[arg(long, default_value = "text", requires = "check")]
    format: Answer,
}

/// The findings of a comparison with a checkpoint.
#[derive(Serialize)]
pub struct Compared {
    unaltered: bool,
    /// True when it was changed. Where rows were dropped, it may be neither.
    altered: bool,
    /// True when rows are missing at the end, and nothing else differs.
    ends_earlier: bool,
    checkpoint: String,
    cut_at: String,
    buckets: u64,
    rows: u64,
    /// The number of these rows that upkeep dropped, before the checkpoint and since.
    rows_dropped: u64,
    rows_dropped_since: u64,
    differences: Vec<HeadDifference>,
    /// The number of buckets that differ and are not among them.
    unnamed: u64,
    #[serde(skip)]
    cut: DateTime<Utc>,
}

pub async fn run(url: &str, args: Args) -> Result {
    let Some(path) = &args.check else {
        let key = args.key.as_deref().map(key::read).transpose()?;
        let auditor = open(url).await?.auditor();
        let bar = files::counter("buckets");
        let checkpoint =
            auditor.checkpoint(args.margin, args.heads.as_deref(), |read| bar.set_position(read)).await;
        bar.finish_and_clear();
        let mut checkpoint = checkpoint?;
        if let Some(key) = key {
            checkpoint.sign(&key);
        }
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&checkpoint)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let checkpoint = files::checkpoint(path, args.public_key.as_deref())?;
    let auditor = open(url).await?.auditor();
    let compared = Compared::of(&auditor, checkpoint, args.heads.as_deref()).await?;
    let text = match args.format {
        Answer::Text => compared.text(),
        Answer::Json => serde_json::to_string(&compared)? + "\n",
    };
    verdict(stdout().write_all(text.as_bytes()).map_err(Failure::from), compared.exit())
}

impl Compared {
    pub fn altered(&self) -> bool {
        self.altered
    }

    /// Compares the ledger with a checkpoint.
    pub async fn of(auditor: &Auditor, checkpoint: Checkpoint, heads: Option<&Path>) -> Result<Self> {
        let bar = files::counter("buckets");
        let compared = auditor.compare(&checkpoint, heads, |read| bar.set_position(read)).await;
        bar.finish_and_clear();
        let Comparison { differences, unnamed, ends_earlier, dropped, dropped_since, .. } = compared?;
        let Checkpoint { digest, cut_at, buckets, rows, .. } = checkpoint;
        Ok(Self {
            unaltered: differences.is_empty(),
            altered: differences.iter().any(|found| found.changed != Changed::BucketsDropped),
            ends_earlier,
            checkpoint: digest,
            cut_at: cut_at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
            buckets,
            rows,
            rows_dropped: dropped,
            rows_dropped_since: dropped_since,
            differences,
            unnamed,
            cut: cut_at,
        })
    }

    /// The meaning of the comparison to a script.
    pub fn exit(&self) -> Exit {
        match (self.unaltered, self.altered) {
            (true, _) => Exit::Good,
            (_, true) => Exit::Faults,
            _ => Exit::Unknown,
        }
    }

    pub fn text(&self) -> String {
        let Self { buckets, rows, .. } = self;
        let at = duration::show_micros(self.cut);
        if self.unaltered {
            let (dropped, since) = (self.rows_dropped, self.rows_dropped_since);
            return match dropped {
                0 => format!(
                    "unaltered: the {rows} rows of {buckets} buckets up to {at} are those of the checkpoint\n"
                ),
                _ => format!(
                    "unaltered: of the {rows} rows of {buckets} buckets up to {at}, {} are there and those of the checkpoint; \
                     upkeep dropped {dropped}, {since} of them since the checkpoint\n",
                    rows.saturating_sub(dropped)
                ),
            };
        }
        let (mut lines, mut buckets) = (String::new(), 0);
        for difference in &self.differences {
            buckets += u64::from(difference.bucket.is_some());
            if difference.bucket.is_none() || buckets <= PRINTED {
                lines += &format!("  {}\n", plain(&difference.to_string()));
            }
        }
        let more = (buckets + self.unnamed).saturating_sub(PRINTED);
        if more > 0 {
            lines += &format!("  and {more} more buckets\n");
        }
        let told = if self.ends_earlier {
            format!(
                "ENDS EARLIER: the ledger up to {at} lacks rows of the checkpoint, and nothing else differs; was an older backup \
                 restored?"
            )
        } else if self.altered {
            format!("ALTERED: the ledger up to {at} is not what it was at the checkpoint")
        } else {
            format!(
                "NOT COMPARABLE: rows of the ledger up to {at} were dropped by upkeep; nothing else is altered as far \
                     as can be seen"
            )
        };
        format!("{told}\n{lines}")
    }
}
