//! `tallygate audit check-proof`.

use std::io::{Write, stdout};
use std::path::PathBuf;

use serde::Serialize;
use tallygate::audit::checkpoint::{Checkpoint, Proof, ProvenRow};

use super::files;
use crate::cli::exit::Exit;
use crate::cli::failure::verdict;
use crate::cli::output::{Answer, many, plain};
use crate::cli::{Failure, Result, duration};

const EXAMPLES: &str = "\
Examples:
  tallygate audit check-proof proof.json monday.json
  tallygate audit check-proof proof.json monday.json --public-key KEY --format json

The check needs no database. Without --public-key it proves only what the maker of the checkpoint says. It proves \
the rows that it tells, and not that the transaction has no others.

Exit codes: 0 it is proven, 6 it is not, 2 a file cannot be used.";

/// Checks a proof with its checkpoint, without a database
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The proof that tallygate audit prove wrote
    #[arg(value_name = "PROOF")]
    proof: PathBuf,
    /// The checkpoint that it was made with
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// The public key whose signature the checkpoint must have
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

/// The rows that are proven, as JSON shows them.
#[derive(Serialize)]
struct Shown<'p> {
    checkpoint: &'p str,
    signed_by: Option<&'p str>,
    /// The number of buckets that they are in. The transaction may have more, and more rows.
    buckets: usize,
    rows: &'p [ProvenRow],
}

pub fn run(args: &Args) -> Result {
    let checkpoint = files::checkpoint(&args.checkpoint, args.public_key.as_deref())?;
    let proof = Proof::parse(&files::read(&args.proof)?).map_err(|error| files::at(&args.proof, &error))?;
    let rows = proof.check(&checkpoint);
    let rows = rows.map_err(|error| files::at(&args.proof, &error).meaning(Exit::Unproven))?;
    let mut out = stdout().lock();
    let told = match args.format {
        Answer::Text => rows
            .iter()
            .try_for_each(|row| writeln!(out, "{}", text(row)))
            .and_then(|()| writeln!(out, "{}", extent(&rows, proof.buckets.len()))),
        Answer::Json => {
            let Checkpoint { digest, public_key, .. } = &checkpoint;
            let shown = Shown {
                checkpoint: digest,
                signed_by: public_key.as_deref(),
                buckets: proof.buckets.len(),
                rows: &rows,
            };
            writeln!(out, "{}", serde_json::to_string(&shown)?)
        }
    };
    verdict(told.map_err(Failure::from), Exit::Good)
}

/// The extent of a proof. Nothing in a checkpoint says that it is all of a transaction.
fn extent(rows: &[ProvenRow], buckets: usize) -> String {
    format!(
        "that is {} of the transaction in {}\nIt may have more rows: a proof shows what is in it, and not that nothing was \
         left out.",
        many(rows.len(), "row"),
        many(buckets, "bucket")
    )
}

fn text(row: &ProvenRow) -> String {
    let bucket = row.key.as_ref().map_or_else(|| row.bucket.clone(), |key| plain(key));
    let member = row.member.as_ref().map(|member| format!(", member {}", plain(member))).unwrap_or_default();
    format!(
        "proven: {}  {} / {bucket}{member}  row {}  {} {}, cost {}",
        duration::show_micros(row.decided_at),
        plain(&row.zone),
        row.seq,
        plain(&row.kind),
        plain(&row.reason),
        row.cost,
    )
}
