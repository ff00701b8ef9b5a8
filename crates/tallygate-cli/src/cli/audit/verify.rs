//! `tallygate audit verify`.

use std::fmt::Display;
use std::io::{Write, stdout};
use std::path::PathBuf;

use indicatif::ProgressBar;
use serde::Serialize;
use tallygate::Config;
use tallygate::audit::verify::{Fault, Verified, Verify, Verifying};
use tallygate::page::second;

use super::super::exit::Exit;
use super::super::failure::verdict;
use super::super::output::{Answer, count, green, many, paragraph, plain, red};
use super::super::progress::progress;
use super::super::{Failure, Result, URL_VARIABLE, open_with};
use super::checkpoint::Compared;
use super::files;

const EXAMPLES: &str = "\
Examples:
  tallygate audit verify
  tallygate audit verify --zone payments --jobs 4
  tallygate audit verify --zone login --key user:42
  tallygate audit verify --format json
  tallygate audit verify --after login=user:42      go on where a run was interrupted
  tallygate audit verify --since monday.json        and is it still the ledger of that checkpoint?

It reads every row once, in short statements, while the ledger is in use. It verifies that each row says what it said when it \
was hashed behind the one before it; that none is missing, inserted or moved; that the core, given the rows before it, \
decides the same again, so that no window ever held more than its limit; and that heads, holds, overrides and zones are \
those that the rows lead to.

Exit codes: 0 all is well, 5 faults were found, 2 it could not be verified or there are no zones, 3 the database does not answer now, or the \
checkpoint of --since cannot be compared since rows were dropped.";

/// Verifies that the ledger is as the library left it
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this zone
    #[arg(long)]
    zone: Option<String>,
    /// Only this bucket; needs --zone
    #[arg(long, requires = "zone")]
    key: Option<String>,
    /// Only the buckets behind this one
    #[arg(long, value_name = "ZONE=KEY", conflicts_with = "key", value_parser = bucket)]
    after: Option<(String, String)>,
    /// Compare with this checkpoint too: whole chains that were rewritten, and buckets that are gone
    #[arg(long, value_name = "CHECKPOINT", conflicts_with_all = ["zone", "after"])]
    since: Option<PathBuf>,
    /// The ends of the chains that were written with the checkpoint, to name the buckets
    #[arg(long, value_name = "FILE", requires = "since")]
    heads: Option<PathBuf>,
    /// The public key whose signature the checkpoint must have
    #[arg(long, value_name = "KEY", requires = "since")]
    public_key: Option<String>,
    /// The number of connections that read at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(Serialize)]
struct Shown<'v> {
    #[serde(flatten)]
    verified: Verified,
    found: &'v [Fault],
    #[serde(skip_serializing_if = "Option::is_none")]
    since: &'v Option<Compared>,
}

/// The findings so far.
struct Seen {
    bar: ProgressBar,
    format: Answer,
    found: Vec<Fault>,
    rows: u64,
    passed: Option<(String, String)>,
}

pub async fn run(url: &str, args: Args) -> Result {
    let since = args.since.as_deref().map(|path| files::checkpoint(path, args.public_key.as_deref()));
    let since = since.transpose()?;
    let config = Config { connections: args.jobs + 1, ..Config::default() };
    let auditor = open_with(url, config).await?.auditor();
    let mut what = Verify::default().jobs(args.jobs as usize);
    (what.zone, what.key, what.after) = (args.zone, args.key, args.after);
    let mut seen = Seen {
        bar: progress(None, "{spinner} {human_pos} rows verified, {per_sec}, {elapsed}"),
        format: args.format,
        found: Vec::new(),
        rows: 0,
        passed: None,
    };
    let verified = tokio::select! {
        verified = auditor.verify(&what, |told| seen.hear(told)) => verified,
        _ = tokio::signal::ctrl_c() => return Err(seen.ended(&"interrupted")),
    };
    let verified = match verified {
        Err(error) if error.is_transient() => return Err(seen.ended(&error).meaning(Exit::Unknown)),
        verified => {
            seen.bar.finish_and_clear();
            if verified.is_err() && !seen.found.is_empty() {
                writeln!(stdout(), "{}", serde_json::json!({ "found": seen.found })).ok();
            }
            verified?
        }
    };
    let since = match since {
        Some(checkpoint) => Some(Compared::of(&auditor, checkpoint, args.heads.as_deref()).await?),
        None => None,
    };
    if verified.zones == 0 && since.as_ref().is_none_or(|since| !since.altered()) {
        return Err(Failure::new(format!(
            "{} holds no zones, so there was nothing to verify; name the database with --database or {URL_VARIABLE}",
            place(url)
        )));
    }
    if let Some(key) = what.key.filter(|_| verified.buckets == 0 && verified.faults == 0) {
        return Err(Failure::new(format!(
            "there is no bucket {key:?}, so there was nothing to verify; look at its name, and at the zone's"
        )));
    }
    let exit = match &since {
        _ if verified.faults > 0 => Exit::Faults,
        Some(since) => since.exit(),
        None => Exit::Good,
    };
    verdict(tell(args.format, verified, &seen.found, &since), exit)
}

fn tell(format: Answer, verified: Verified, found: &[Fault], since: &Option<Compared>) -> Result<()> {
    let mut out = stdout().lock();
    match format {
        Answer::Json => {
            writeln!(out, "{}", serde_json::to_string(&Shown { verified, found, since })?)?;
        }
        Answer::Text => {
            let Verified { zones, buckets, rows, parts, faults, .. } = verified;
            let read = format!(
                "{} of {} in {} ({} planned, {} walked)",
                many(count(rows), "row"),
                many(count(buckets), "bucket"),
                many(count(zones), "zone"),
                many(count(parts), "part"),
                parts
            );
            if faults == 0 {
                let told = format!("{}  {read}: {}", green("verified"), proven(&verified));
                out.write_all(paragraph(&told, 0).as_bytes())?;
            } else {
                writeln!(out, "{}  {faults} found in {read}", red("faults"))?;
            }
            for (name, why) in unproven(&verified) {
                out.write_all(paragraph(&format!("{name}  {why}"), 0).as_bytes())?;
            }
            if let Some(since) = since {
                out.write_all(since.text().as_bytes())?;
            }
        }
    }
    Ok(())
}

/// The claim about the rows that were read, no further than they were derived.
fn proven(verified: &Verified) -> String {
    let hashed = "each row is where it was and says what it said";
    if verified.not_derivable == 0 {
        return format!(
            "{hashed}, each decision follows from the rows before it, and no window held more than its limit"
        );
    }
    format!(
        "{hashed}, and each decision but {} follows from the rows before it; in {} no window held more than its limit",
        verified.not_derivable,
        many(count(verified.buckets.saturating_sub(verified.not_derivable_buckets)), "bucket")
    )
}

/// The rest, of which nothing is claimed, and why.
fn unproven(verified: &Verified) -> impl Iterator<Item = (&'static str, String)> {
    let Verified { dropped, not_derivable, not_derivable_buckets, test_clock, .. } = *verified;
    let not_derivable = (not_derivable > 0).then(|| {
        let why = format!(
            "{} in {}, since rows that they may depend on were dropped; of the windows of these buckets nothing is said",
            many(count(not_derivable), "decision"),
            many(count(not_derivable_buckets), "bucket")
        );
        ("not derivable", why)
    });
    let dropped = (dropped > 0).then(|| {
        (
            "dropped",
            format!("{} by upkeep before; of their windows nothing is said", many(count(dropped), "row")),
        )
    });
    let test_clock = test_clock.then(|| {
        (
            "test clock",
            "a database of tests: its clock is set by hand, so the times of its rows prove nothing"
                .to_owned(),
        )
    });
    not_derivable.into_iter().chain(dropped).chain(test_clock)
}

/// The file of an embedded database; nothing of a server's URL, which may hold a password.
fn place(url: &str) -> String {
    match url.strip_prefix("sqlite:") {
        Some(file) => format!("{:?}", file.trim_start_matches("//").split('?').next().unwrap_or_default()),
        None => "the database".to_owned(),
    }
}

impl Seen {
    fn hear(&mut self, told: Verifying) {
        match told {
            Verifying::Fault(fault) => {
                if self.format == Answer::Text {
                    let line = line(&fault);
                    // The reader of our output may be gone; the end of it will tell.
                    self.bar.suspend(|| writeln!(stdout(), "{line}").ok());
                }
                if self.format == Answer::Json {
                    self.found.push(fault);
                }
            }
            Verifying::More(more) if self.format == Answer::Text => {
                self.bar.suspend(|| writeln!(stdout(), "  and {more} more in this bucket").ok());
            }
            Verifying::Read { rows, .. } => {
                self.rows += rows;
                self.bar.set_position(self.rows);
            }
            Verifying::Ahead(zone, at) if self.format == Answer::Text => {
                let line = format!(
                    "{}  {}: its rows go up to {} UTC, for which it is not time yet: a clock was ahead, and such buckets wait until \
                     it is",
                    red("ahead"),
                    plain(&zone),
                    second(at)
                );
                self.bar.suspend(|| writeln!(stdout(), "{line}").ok());
            }
            Verifying::Passed(zone, key) => self.passed = Some((zone, key)),
            // The end tells the numbers of everything else.
            _ => {}
        }
    }

    /// The reason why it ended early, and the place to go on from.
    fn ended(&self, why: &dyn Display) -> Failure {
        self.bar.finish_and_clear();
        Failure::new(match &self.passed {
            Some((zone, key)) => format!("{why}; go on with: tallygate audit verify --after '{zone}={key}'"),
            None => format!("{why}; nothing is verified yet, begin again"),
        })
    }
}

/// `edited  login / user:42  row 3  txn …: remaining is 2, the rows before it lead to 0`.
fn line(fault: &Fault) -> String {
    let mut place =
        fault.shard.as_deref().map(|shard| format!("{shard}: ")).unwrap_or_default() + &plain(&fault.zone);
    fault.key.iter().for_each(|key| place += &format!(" / {}", plain(key)));
    fault.seq.iter().for_each(|seq| place += &format!("  row {seq}"));
    fault.txn_id.iter().for_each(|txn| place += &format!("  txn {txn}"));
    format!("{}  {place}: {}", red(fault.what.in_words()), plain(&fault.detail))
}

fn bucket(text: &str) -> Result<(String, String), String> {
    let (zone, key) = text.split_once('=').ok_or("a bucket is ZONE=KEY, as it was told at the interrupt")?;
    Ok((zone.to_owned(), key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_windows_no_more_is_said_than_was_derived() {
        let mut verified = Verified::default();
        (verified.buckets, verified.rows) = (5, 40);
        assert!(proven(&verified).ends_with("before it, and no window held more than its limit"));
        assert_eq!(unproven(&verified).count(), 0);
        (verified.dropped, verified.not_derivable, verified.not_derivable_buckets) = (9, 3, 2);
        let told = proven(&verified);
        assert!(
            told.contains("each decision but 3 ")
                && told.ends_with("in 3 buckets no window held more than its limit")
        );
        let told: Vec<_> = unproven(&verified).map(|(name, why)| format!("{name}: {why}")).collect();
        assert!(told[0].starts_with("not derivable: 3 decisions in 2 buckets, since rows"), "{told:?}");
        assert!(told[1].starts_with("dropped: 9 rows by upkeep"), "{told:?}");
        verified.test_clock = true;
        assert!(unproven(&verified).any(|(name, _)| name == "test clock"));
    }
}
