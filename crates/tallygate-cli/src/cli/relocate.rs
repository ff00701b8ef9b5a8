//! `tallygate move`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use tallygate::schema::Owner;

use super::output::{Answer, count, many, plain};
use super::progress::progress;
use super::{Result, open};

const EXAMPLES: &str = "\
Examples:
  export TALLYGATE_DATABASE_URL='eu-1=postgres://one/app eu-2=postgres://two/app eu-3/joining=mysql://three/app'
  tallygate move                               give eu-3 the buckets of its keys
  tallygate move login user:42 --to eu-2       one bucket, to a database of the list

Checks go on meanwhile: each bucket is decided where it is, and by one database at a time. Its rows stay behind as a chain that \
is closed, and new rows follow where it went. After an interruption the same command goes on. docs/sharding.md tells how a \
database is added to the list, and how one is taken out. The role must own the tables of all.";

/// Moves buckets between databases that decide together: all to where their keys belong, or one to a database that you name
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Zone of the one bucket that is moved
    #[arg(requires = "key")]
    zone: Option<String>,
    /// The bucket
    #[arg(requires = "to", allow_negative_numbers = true)]
    key: Option<String>,
    /// Name of the database in the list that is to have it
    #[arg(long, value_name = "NAME", requires = "key")]
    to: Option<String>,
    /// The number of buckets that are moved at the same time
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, args: Args) -> Result {
    let owner = open(url).await?.owner();
    match (&args.zone, &args.key, &args.to) {
        (Some(zone), Some(key), Some(to)) => one(&owner, zone, key, to, args.format).await,
        _ => all(&owner, &args).await,
    }
}

async fn one(owner: &Owner, zone: &str, key: &str, to: &str, format: Answer) -> Result {
    let moved = owner.move_to(zone, key, to).await?;
    let mut out = stdout().lock();
    let key = plain(&moved.key);
    match format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&moved)?)?,
        Answer::Text if moved.from == moved.to => writeln!(out, "{key} is in {} already", moved.to)?,
        Answer::Text => writeln!(
            out,
            "moved {key} from {} to {}, with {} of the ledger",
            moved.from,
            moved.to,
            many(moved.rows, "row")
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(owner: &Owner, args: &Args) -> Result {
    let bar = progress(None, "  {spinner} {human_pos} buckets seen, {msg} moved  {elapsed}");
    let told = |done: &tallygate::schema::Rebalanced| {
        bar.set_position(done.buckets);
        bar.set_message(count(done.moved));
    };
    let done = owner.rebalance(args.jobs.into(), told).await;
    bar.finish_and_clear();
    let done = done?;
    let mut out = stdout().lock();
    match args.format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&done)?)?,
        Answer::Text => writeln!(
            out,
            "moved {} with {} of the ledger; every bucket is where its key belongs among {}",
            many(count(done.moved), "bucket"),
            many(count(done.rows), "row"),
            done.among.join(", ")
        )?,
    }
    Ok(ExitCode::SUCCESS)
}
