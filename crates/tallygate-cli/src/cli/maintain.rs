//! `tallygate maintain`.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use tallygate::schema::{Maintained, Upkeep};

use super::output::{Answer, dim};
use super::{Result, duration, open};

const EXAMPLES: &str = "\
Examples:
  tallygate maintain --database postgres://owner@db/app
  tallygate maintain --keep 400d --idle 90d
  tallygate maintain --keep 400d --dry-run --format json

Run it daily, by cron. One run works at a time: another one says so, tells when a run last came to its end, and ends with 3. \
The next run finishes what a run that was cut off has left behind. The role must own the tables.";

/// Makes partitions of the ledger ahead, and removes what is not needed any more
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Remove rows of the ledger that are older, by whole partitions where there are any [default: none]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    keep: Option<Duration>,
    /// The time for which partitions are made ahead
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "62d", allow_hyphen_values = true)]
    ahead: Duration,
    /// Remove the rows of buckets that were quiet for longer; they come back from the ledger [default: none]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    idle: Option<Duration>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

pub async fn run(url: &str, args: Args) -> Result {
    let Args { keep, ahead, idle, dry_run, format } = args;
    let mut upkeep = Upkeep::default().ahead(ahead);
    (upkeep.keep, upkeep.idle, upkeep.dry_run) = (keep, idle, dry_run);
    let done = open(url).await?.owner().maintain(upkeep).await?;
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", serde_json::to_string(&done)?)?,
        Answer::Text => out.write_all(text(&done).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(done: &Maintained) -> String {
    let mut text = String::new();
    let [made, dropped, removed] = match done.dry_run {
        true => ["would make", "would drop", "would remove"],
        false => ["made", "dropped", "removed"],
    };
    for (what, names) in [(made, &done.partitions_made), (dropped, &done.partitions_dropped)] {
        names.iter().for_each(|name| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{what} partition {name}");
        });
    }
    let rows = [
        (done.rows_removed, "rows of the ledger"),
        (done.holds_removed, "ended charges"),
        (done.heads_removed, "rows of idle buckets"),
    ];
    for (count, what) in rows {
        if count > 0 {
            let _ = writeln!(text, "{removed} {count} {what}");
        }
    }
    if text.is_empty() {
        text.push_str("nothing to do\n");
    }
    if done.dry_run {
        let _ = writeln!(text, "{}", dim("a dry run: nothing was done"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_would_be() {
        let mut done = Maintained::default();
        assert_eq!(text(&done), "nothing to do\n");
        done.partitions_made = vec!["zone_txn_2026_12".to_owned()];
        done.rows_removed = 7;
        assert_eq!(text(&done), "made partition zone_txn_2026_12\nremoved 7 rows of the ledger\n");
        done.dry_run = true;
        let told = "would make partition zone_txn_2026_12\nwould remove 7 rows of the ledger\n";
        assert!(text(&done).starts_with(told), "{}", text(&done));
    }
}
