//! `tallygate erase`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use super::output::{Answer, many, plain};
use super::{Result, open, who};

const EXAMPLES: &str = "\
Examples:
  tallygate erase login user:42 --note \"request 2026-117\"
  tallygate erase login user:42 --note \"request 2026-117\" --by privacy --format json
  tallygate erase --key user:42 --note \"request 2026-117\"

Hashes that nobody can guess take the place of the key, of members, notes and authors, and `tallygate audit verify` \
still proves every row. Erased data cannot be brought back. The next check of the key begins a new bucket with its \
whole limit. The time, the note and the person who erased it are kept for good: the note must not name the person. \
The role must own the tables.";

/// Erases the personal data of a bucket, or of a key in all zones; the ledger stays, and can still be verified
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the zone
    #[arg(required_unless_present = "everywhere", requires = "key")]
    zone: Option<String>,
    /// The bucket
    #[arg(allow_negative_numbers = true)]
    key: Option<String>,
    /// The key whose buckets are erased in all zones
    #[arg(
        id = "everywhere",
        long = "key",
        value_name = "KEY",
        conflicts_with = "zone",
        allow_hyphen_values = true
    )]
    everywhere: Option<String>,
    /// The reason, which is kept: it must not name the person
    #[arg(long, value_name = "TEXT")]
    note: String,
    /// The person who erases it, which is kept [default: $USER]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, args: Args) -> Result {
    let (owner, by) = (open(url).await?.owner(), who(args.by));
    let (zone, key) = (args.zone.unwrap_or_default(), args.key.unwrap_or_default());
    let erased = match &args.everywhere {
        Some(key) => owner.erase_everywhere(key, &args.note, &by).await?,
        None => vec![owner.erase(&zone, &key, &args.note, &by).await?],
    };
    let mut out = stdout().lock();
    for erased in erased {
        match args.format {
            Answer::Json => writeln!(out, "{}", serde_json::to_string(&erased)?)?,
            Answer::Text => writeln!(
                out,
                "erased a bucket of zone {} with {} of the ledger; it is now {}",
                plain(&erased.zone),
                many(erased.rows, "row"),
                erased.key
            )?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
