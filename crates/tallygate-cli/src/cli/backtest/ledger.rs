//! The content of a zone's ledger: its checks as events, and the policies by which they were decided.

use chrono::{DateTime, TimeDelta, Utc};
use tallygate::Limiter;
use tallygate::decide::Version;
use tallygate::ledger::{Entry, History, Kind};
use tallygate::policy::Zone;

use super::candidates::Candidate;
use super::{Event, Trials, events};
use crate::cli::{Failure, Result, duration, moment, open};

/// Rows that are read from the ledger at a time.
const PAGE: u32 = 1_000;

/// Each decision depends on those before it, and they on earlier ones. Where counting begins later than the
/// ledger, this many times the time that the policies look back on is played first: nothing earlier matters much then.
const LOOKED_BACK: i64 = 5;

/// The part of the ledger that is played.
#[derive(clap::Args)]
pub struct Part {
    /// Play the recorded checks of this zone instead of a file, beside the policy that was in force
    #[arg(long, value_name = "ZONE", conflicts_with_all = ["events", "at_column", "key_column", "cost_column", "member_column", "critical_column", "shape_column", "outcome_column", "strict", "sorted", "any_time"])]
    pub from_ledger: Option<String>,
    /// Play only the ledger's checks of this key
    #[arg(long)]
    key: Option<String>,
    /// Count only the ledger's checks of this time or later: a time, or how long ago, like 7d
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    since: Option<DateTime<Utc>>,
    /// Play only the ledger's checks before this time: a time, or how long ago, like 1d
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<DateTime<Utc>>,
}

impl Part {
    /// Refuses flags that mean nothing for a file beside one.
    pub fn is_of_a_ledger(&self) -> Result<()> {
        let flags = [
            ("--key", self.key.is_some()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
        ];
        match flags.into_iter().find(|(_, given)| *given && self.from_ledger.is_none()) {
            Some((flag, _)) => {
                Err(Failure::new(format!("{flag} is for a ledger; name its zone with --from-ledger")))
            }
            None => Ok(()),
        }
    }
}

/// A zone, and the part of its ledger that is to be played.
pub struct Ledger {
    limiter: Limiter,
    zone: Zone,
    key: Option<String>,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
}

impl Ledger {
    pub async fn open(url: &str, zone: &str, part: Part) -> Result<Self> {
        let Part { key, since, until, .. } = part;
        if let (Some(since), Some(until)) = (since, until)
            && since >= until
        {
            return Err(Failure::new(format!(
                "--since {} is not before --until {}; exchange them",
                duration::show_micros(since),
                duration::show_micros(until)
            )));
        }
        let limiter = open(url).await?;
        let zone = limiter.operator().zone(zone).await?.ok_or_else(|| {
            Failure::new(format!("there is no zone {zone:?}; list them with: tallygate zone list"))
        })?;
        if let Some(key) = &key {
            let any = History::default().zone(&zone.name).key(key).limit(1);
            if limiter.auditor().history(&any).await?.rows.is_empty() {
                return Err(Failure::new(format!(
                    "zone {:?} has no row of key {key:?}; list the keys that it has with: tallygate history --zone {}",
                    zone.name, zone.name
                )));
            }
        }
        Ok(Self { limiter, zone, key, since, until })
    }

    /// The source of the checks, for people: `zone payments, key card:9f3c`.
    pub fn shown(&self) -> String {
        let key = self.key.iter().map(|key| format!(", key {key}"));
        format!("zone {}{}", self.zone.name, key.collect::<String>())
    }

    /// The policy that was in force, with all its versions until the end of the part that is played.
    pub async fn in_force(&self) -> Result<Candidate> {
        let versions = self.limiter.operator().zone_versions(&self.zone).await?;
        let mut versions: Vec<Version> = versions.iter().map(Version::from).collect();
        versions.sort_by_key(|version| version.version);
        if let Some(until) = self.until {
            let until_us = until.timestamp_micros();
            let known = versions.partition_point(|version| version.changed_us < until_us).max(1);
            versions.truncate(known);
        }
        let policy = versions.last().map_or(self.zone.policy, |last| last.policy);
        let admits = format!("{} {policy}", policy.algorithm());
        let since_us = self.since.map_or(i64::MIN, |since| since.timestamp_micros());
        let changes = versions.iter().skip(1).filter(|version| version.changed_us > since_us).count();
        let changed = if changes == 0 { String::new() } else { format!(", {} versions", changes + 1) };
        Ok(Candidate {
            name: "in force".to_owned(),
            label: format!("in force: {admits}{changed}"),
            series: "in force".to_owned(),
            value: None,
            policy,
            versions: Some(versions),
        })
    }

    /// Plays the recorded checks, and tells how many of those that count were blocked when they were recorded. Other rows
    /// (refunds, bans, …) are left out: they belong to the decisions that were made, not to those that would have been.
    pub async fn play(&self, trials: &mut Trials) -> Result<u64> {
        let mut played = Played { trials, zone: &self.zone.name, since: self.since, blocked: 0 };
        if self.since.is_some() {
            played.trials.wait_with_counting();
        }
        let back = TimeDelta::microseconds(played.trials.looks_back_us().saturating_mul(LOOKED_BACK));
        let mut history = History::default().zone(&self.zone.name).limit(PAGE);
        // Of one key everything is played, so that the answer is exact; so it is where the time is before the calendar's.
        history.since =
            self.since.filter(|_| self.key.is_none()).and_then(|since| since.checked_sub_signed(back));
        history.until = self.until;
        history.key.clone_from(&self.key);
        history.oldest_first = self.key.is_none();
        let progress = events::counter(None, "rows");
        // The rows of one key can be read newest first only.
        let mut newest_first = Vec::new();
        loop {
            let page = self.limiter.auditor().history(&history).await?;
            progress.inc(page.rows.len() as u64);
            match self.key {
                None => page.rows.iter().try_for_each(|row| played.row(row))?,
                Some(_) => newest_first.extend(page.rows.into_iter().filter(|row| row.kind.is_check())),
            }
            match page.next {
                Some(next) => history.before = Some(next),
                None => break,
            }
        }
        newest_first.iter().rev().try_for_each(|row| played.row(row))?;
        played.count_from_here();
        Ok(played.blocked)
    }
}

/// The rows on their way to the policies.
struct Played<'p> {
    trials: &'p mut Trials,
    zone: &'p str,
    /// The time when counting begins, as long as it has not begun.
    since: Option<DateTime<Utc>>,
    blocked: u64,
}

impl Played<'_> {
    fn row(&mut self, row: &Entry) -> Result<()> {
        if !row.kind.is_check() {
            return Ok(());
        }
        if self.since.is_some_and(|since| row.decided_at >= since) {
            self.count_from_here();
        }
        let event = Event {
            at_us: row.decided_at.timestamp_micros(),
            key: &row.key,
            cost: row.cost,
            // The member of a reservation is its shape.
            member: row.member.as_deref().filter(|_| row.kind != Kind::Reserve),
            critical: row.critical,
            shape: None,
            outcome: None,
        };
        for _ in 0..row.checks {
            self.trials.play(&event).map_err(|error| {
                Failure::new(format!("zone {:?}, key {:?}, row {}: {error}", self.zone, row.key, row.seq))
            })?;
        }
        if self.since.is_none() && !row.reason.allows() {
            self.blocked += u64::from(row.checks.unsigned_abs());
        }
        Ok(())
    }

    fn count_from_here(&mut self) {
        if self.since.take().is_some() {
            self.trials.count_from_here();
        }
    }
}
