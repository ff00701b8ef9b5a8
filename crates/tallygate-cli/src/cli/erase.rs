//! `tallygate erase`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use super::output::{Answer, many, plain};
use super::{Result, open, who};

const EXAMPLES: &str = "\
Examples:
  tallygate erase login user:42 --note \"request 2026-117\"
  tallygate erase login user:42 --note \"request 2026-117\" --by privacy --format json

Hashes that nobody can guess take the place of the key, of members, notes and authors, and `tallygate audit verify` \
still proves every row. Erased data cannot be brought back. The next check of the key begins a new bucket with its \
whole limit. The time, the note and the person who erased it are kept for good: the note must not name the person. \
The role must own the tables.";

/// Erases the personal data of a bucket; its ledger stays, and can still be verified
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the zone
    zone: String,
    /// The bucket
    #[arg(allow_negative_numbers = true)]
    key: String,
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
    let erased = open(url).await?.owner().erase(&args.zone, &args.key, &args.note, &who(args.by)).await?;
    let mut out = stdout().lock();
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
    Ok(ExitCode::SUCCESS)
}
