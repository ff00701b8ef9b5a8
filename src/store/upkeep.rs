//! Upkeep: what is made ahead, what is removed, and what must stay.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Datelike, Months, NaiveDate, TimeDelta, Utc};
use serde::Serialize;

use super::removal::Removing;
use crate::error::{Error, Result};
use crate::zone::{RunningBuckets, ZoneVersion};

/// The settings of upkeep, see [`Owner::maintain`](crate::schema::Owner::maintain).
///
/// ```
/// use std::time::Duration;
/// use tallygate::schema::Upkeep;
/// let day = Duration::from_secs(86_400);
/// let upkeep = Upkeep::default().keep(400 * day).idle(90 * day);
/// # let _ = upkeep;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Upkeep {
    /// Rows of the ledger that are older are removed, by whole partitions where there are any. None keeps all.
    pub keep: Option<Duration>,
    /// Partitions are there for so long from now on. SQLite has none.
    pub ahead: Duration,
    /// Rows of buckets that were quiet for longer are removed. They come back from the ledger. None keeps all.
    pub idle: Option<Duration>,
    /// Nothing is done; what would be is told.
    pub dry_run: bool,
}

impl Default for Upkeep {
    /// Nothing is removed; partitions for 62 days.
    fn default() -> Self {
        Self { keep: None, ahead: Duration::from_secs(62 * 86_400), idle: None, dry_run: false }
    }
}

impl Upkeep {
    /// Removes rows of the ledger that are older, by whole partitions where there are any.
    pub fn keep(self, keep: Duration) -> Self {
        Self { keep: Some(keep), ..self }
    }

    /// Makes partitions for so long from now on.
    pub fn ahead(self, ahead: Duration) -> Self {
        Self { ahead, ..self }
    }

    /// Removes rows of buckets that were quiet for longer; they come back from the ledger.
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle: Some(idle), ..self }
    }

    /// Does nothing, and tells what would be done.
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }
}

/// The account of what upkeep did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Maintained {
    /// Nothing was done.
    pub dry_run: bool,
    /// Partitions of the ledger that were made.
    pub partitions_made: Vec<String>,
    /// Partitions that were removed, and those that an earlier run had left behind.
    pub partitions_dropped: Vec<String>,
    /// Rows of the ledger that were removed one by one, where it has no partitions.
    pub rows_removed: u64,
    /// Refunds, reservations, slots and members that had ended and that no window needs any more.
    pub holds_removed: u64,
    /// Rows of idle buckets that were removed.
    pub heads_removed: u64,
}

impl Maintained {
    /// With what was done in another database, of this name.
    pub(crate) fn and(mut self, name: Option<&str>, other: Self) -> Self {
        let named = |partition: String| name.map_or(partition.clone(), |name| format!("{name}: {partition}"));
        self.dry_run |= other.dry_run;
        self.partitions_made.extend(other.partitions_made.into_iter().map(named));
        self.partitions_dropped.extend(other.partitions_dropped.into_iter().map(named));
        self.rows_removed += other.rows_removed;
        self.holds_removed += other.holds_removed;
        self.heads_removed += other.heads_removed;
        self
    }
}

/// The state of upkeep, see [`Auditor::maintenance`](crate::audit::Auditor::maintenance).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Maintenance {
    /// When it last came to its end, by the database's clock; None where it never did.
    pub finished_at: Option<DateTime<Utc>>,
    /// The time up to which the ledger has partitions. Rows of later go to the last one, which has no end. None on
    /// SQLite, which has no partitions, on MySQL and MariaDB before the first upkeep, and where these do not show them
    /// to an auditor.
    pub partitions_until: Option<DateTime<Utc>>,
}

impl Maintenance {
    /// With another database: as the one of them that lags.
    pub(crate) fn and(self, other: Self) -> Self {
        let earlier = |a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            finished_at: self.finished_at.zip(other.finished_at).map(|(a, b)| a.min(b)),
            // Not every database has partitions.
            partitions_until: earlier(self.partitions_until, other.partitions_until),
        }
    }
}

/// The facts of a zone besides its versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub zone_id: i32,
    /// The longest window of an override in force.
    pub override_us: Option<i64>,
    /// The time of the oldest charge that has not ended yet.
    pub open: Option<DateTime<Utc>>,
    /// The time when the oldest item of a queue was offered that has not gone yet.
    pub offered: Option<DateTime<Utc>>,
}

/// From when on a zone's rows are needed.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    pub zone_id: i32,
    pub zone: String,
    pub since: DateTime<Utc>,
    /// The same of the rows that items of queues have, idle as they may be.
    pub rows_since: DateTime<Utc>,
}

/// Upkeep that was found to be good for every zone.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub dry_run: bool,
    /// Rows before this go.
    pub keep_from: Option<DateTime<Utc>>,
    pub ahead_until: DateTime<Utc>,
    /// Buckets that were quiet since then lose their rows.
    pub idle_since: Option<DateTime<Utc>>,
    pub zones: Vec<Needed>,
}

impl Needed {
    /// A window looks back twice its length at most: a sliding counter needs the slot before. A change that rescaled
    /// what was used is carried out when a bucket is next asked for, and then looks back from the time of the change.
    pub fn of(zone: &str, versions: &[ZoneVersion], facts: &Facts, now: DateTime<Utc>) -> Self {
        let back = |from: DateTime<Utc>, us: i64| {
            let us = TimeDelta::microseconds(us.saturating_mul(2));
            from.checked_sub_signed(us).unwrap_or(DateTime::<Utc>::MIN_UTC)
        };
        let mut since = now;
        let mut later: Option<&ZoneVersion> = None;
        for version in versions.iter().rev() {
            let window_us = version.policy.window_us();
            match later {
                None => {
                    let banned_us = version.policy.ban().map_or(0, |ban| ban.within_us);
                    since =
                        back(now, window_us.max(facts.override_us.unwrap_or(0))).min(back(now, banned_us));
                }
                Some(later) if later.changed_at <= since => break,
                Some(later) if later.policy.running_buckets() == RunningBuckets::Proportional => {
                    since = since.min(back(later.changed_at, window_us));
                }
                Some(_) => {}
            }
            later = Some(version);
        }
        since = facts.open.map_or(since, |open| since.min(open));
        let rows_since = facts.offered.map_or(since, |offered| since.min(offered));
        Self { zone_id: facts.zone_id, zone: zone.to_owned(), since, rows_since }
    }

    /// Fails when rows would be kept for less than the zone needs.
    pub fn keeps_rows(&self, from: DateTime<Utc>, now: DateTime<Utc>) -> Result<()> {
        self.allows("keeping rows for", self.rows_since, from, now)
    }

    /// Fails when the quiet of buckets would be kept for less than the zone needs.
    pub fn keeps_idle(&self, since: DateTime<Utc>, now: DateTime<Utc>) -> Result<()> {
        self.allows("removing buckets that were idle for", self.since, since, now)
    }

    fn allows(
        &self,
        what: &str,
        needed: DateTime<Utc>,
        from: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<()> {
        if from <= needed {
            return Ok(());
        }
        let needed = now.signed_duration_since(needed).num_seconds().saturating_add(1);
        let asked = now.signed_duration_since(from).num_seconds();
        Err(Error::invalid(format!(
            "{what} {asked}s is too short for zone {:?}, whose windows, bans, open reservations and waiting items reach back {needed}s; \
             use {needed}s or more",
            self.zone
        )))
    }
}

/// Rows that are to go: of how many buckets, and how many, by zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Going(BTreeMap<i32, (u64, u64)>);

impl Going {
    pub fn add(&mut self, zone_id: i32, rows: u64) {
        if rows > 0 {
            let zone = self.0.entry(zone_id).or_default();
            *zone = (zone.0 + 1, zone.1 + rows);
        }
    }

    /// The record of each zone's removals, before the first row goes.
    pub(super) fn removing(&self, cut_at: DateTime<Utc>) -> impl Iterator<Item = (i32, Removing<'static>)> {
        let zones = self.0.iter();
        zones.map(move |(id, &(buckets, rows))| (*id, Removing::Drop { cut_at, buckets, rows }))
    }
}

/// Somebody else is at it. The time since one came to its end tells whether that is as usual.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn elsewhere(finished: Option<DateTime<Utc>>) -> Error {
    let last = match finished {
        Some(at) => format!("maintain last came to its end at {}", at.format("%FT%TZ")),
        None => "no maintain has come to its end yet".to_owned(),
    };
    Error::transient(format!(
        "another maintain or erase is at work on this database and nothing was done here; try again when it has ended; \
         {last}"
    ))
}

/// A partition of the ledger: the rows from one time up to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub name: String,
    pub to: Option<DateTime<Utc>>,
}

/// The months from a time until another one is covered. The first of them begins at `from`.
pub(crate) fn months(from: DateTime<Utc>, until: DateTime<Utc>) -> Vec<(String, DateTime<Utc>)> {
    let mut months = Vec::new();
    let mut from = from;
    while from < until && months.len() < 1200 {
        let Some(to) = next_month(from) else { break };
        months.push((from.format("zone_txn_%Y_%m").to_string(), to));
        from = to;
    }
    months
}

/// The first moment of the month after that of a time.
pub(crate) fn next_month(at: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let first = NaiveDate::from_ymd_opt(at.year(), at.month(), 1)?;
    Some(first.checked_add_months(Months::new(1))?.and_hms_opt(0, 0, 0)?.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn months_cover_what_is_ahead() {
        let (from, until) = (at("2026-11-15T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let names: Vec<_> = months(from, until).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["zone_txn_2026_11", "zone_txn_2026_12"]);
        assert_eq!(months(until, until), []);
        assert_eq!(months(from, until)[1].1, until);
    }
}
