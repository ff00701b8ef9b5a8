//! `tallygate audit prove`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use uuid::Uuid;

use super::files;
use crate::cli::{Result, open, txn};

const EXAMPLES: &str = "\
Examples:
  tallygate audit prove 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --checkpoint monday.json > proof.json
  tallygate audit prove 0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11 --checkpoint monday.json --disclose > proof.json

Others check it with the checkpoint alone: tallygate audit check-proof proof.json monday.json. The proof \
holds the hashed form of each row of the bucket from the transaction to the checkpoint, some 500 bytes each. Keys, members, \
notes and authors are in it as salted hashes. With --disclose it tells the key, the transaction's member and the salt. Anybody \
who has these can find out by trying which members, notes and authors the other rows in the proof have.";

/// Proves to others that a transaction was in the ledger at a checkpoint
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The transaction
    #[arg(value_name = "TXN", value_parser = txn::parse)]
    txn: Uuid,
    /// The checkpoint by which it is proven
    #[arg(long, value_name = "FILE")]
    checkpoint: PathBuf,
    /// Tell whose bucket it is, and the salt that shows it
    #[arg(long)]
    disclose: bool,
    /// The most rows of a bucket
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
}

pub async fn run(url: &str, args: Args) -> Result {
    let checkpoint = files::checkpoint(&args.checkpoint, None)?;
    let limiter = open(url).await?;
    let proof = limiter.auditor().prove(args.txn, &checkpoint, args.disclose, args.rows).await?;
    writeln!(stdout(), "{}", serde_json::to_string_pretty(&proof)?)?;
    Ok(ExitCode::SUCCESS)
}
