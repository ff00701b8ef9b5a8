//! A report, as plain values.

use std::collections::BTreeMap;
use std::ops::Add;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::entry::Kind;
use crate::zone::Policy;

/// The question that a [`Report`] answers.
///
/// ```
/// use tallygate::audit::report::ReportOn;
/// let login = ReportOn::default().zone("login").top(5);
/// # let _ = login;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ReportOn {
    /// Only this zone; None for all.
    pub zone: Option<String>,
    /// Rows decided at this time or later; None for 30 days before `until`.
    pub since: Option<DateTime<Utc>>,
    /// Rows decided before this time; None for now.
    pub until: Option<DateTime<Utc>>,
    /// The number of buckets that the lists name: 1 to 1,000.
    pub top: u32,
}

impl Default for ReportOn {
    fn default() -> Self {
        Self { zone: None, since: None, until: None, top: 20 }
    }
}

impl ReportOn {
    /// Only this zone.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Rows decided at this time or later.
    pub fn since(self, since: DateTime<Utc>) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Rows decided before this time.
    pub fn until(self, until: DateTime<Utc>) -> Self {
        Self { until: Some(until), ..self }
    }

    /// The number of buckets that the lists name: 1 to 1,000.
    pub fn top(self, top: u32) -> Self {
        Self { top, ..self }
    }
}

/// The answer of the ledger about a time. Checks are counted by [`Entry::checks`](crate::ledger::Entry::checks), so that one row may
/// stand for many.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Report {
    /// Rows decided at this time or later.
    pub since: DateTime<Utc>,
    /// Rows decided before this time.
    pub until: DateTime<Utc>,
    /// The number of rows that were read.
    pub rows: u64,
    /// The length of time that each of the volumes is of: a minute for up to 3 hours, an hour for up to 14 days, else a day.
    pub grain: Grain,
    /// The zones in the order of their names.
    pub zones: Vec<ZoneReport>,
    /// Over time, then by zone. Where no check was decided nothing is written. The first and the last one may be cut
    /// by `since` and `until`.
    pub volumes: Vec<Volume>,
    /// The same as for a chart of the time in which there were checks, however short it is.
    pub timeline: Timeline,
    /// The same length of time before; None where that would begin before 1970.
    pub before: Option<Before>,
    /// The buckets of which most checks were blocked.
    pub blocked_most: Top<BlockedBucket>,
    /// The buckets of which most checks would have been blocked, if the zone's mode were not
    /// [`Mode::Shadow`](crate::policy::Mode::Shadow).
    pub shadowed_most: Top<BlockedBucket>,
    /// The buckets that were never blocked or shadowed, and came nearest to their limits.
    pub near_limit: Top<NearBucket>,
    /// Bans that blocked checks led to.
    pub bans: Acts,
    /// Actions of people: bans, the lifting of bans, overrides and their ends.
    pub actions: Acts,
    /// New versions of zones, oldest first.
    pub changes: Vec<PolicyChange>,
    /// Zones with rows for which it is not time yet, by more than a minute, each with the time of the last: a clock was ahead.
    pub ahead: BTreeMap<String, DateTime<Utc>>,
}

/// Checks over time, in slices that are as long as fits the time from the first check to the last: at most 120 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Timeline {
    /// The length of a slice, in microseconds: 0.1, 1 or 10 seconds, a minute, 10 minutes, an hour, a day, a week, or a week doubled
    /// as often as is needed. Weeks begin on Mondays.
    pub slice_us: i64,
    /// Over time, then by zone. Where no check was decided nothing is written.
    pub slices: Vec<Volume>,
}

/// The time before, to compare with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Before {
    /// Rows decided at this time or later.
    pub since: DateTime<Utc>,
    /// Rows decided before this time, which is when the report begins.
    pub until: DateTime<Utc>,
    /// The time at which the first of its rows was decided; None where there are none. Where the ledger began within this time, it is no
    /// measure for what came later.
    pub first_at: Option<DateTime<Utc>>,
    /// The zones in the order of their names.
    pub zones: Vec<ZoneReport>,
}

/// Checks, by what became of them. Everything is allowed or blocked; the rest says how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Counts {
    /// All.
    pub checks: u64,
    /// Passed.
    pub allowed: u64,
    /// Did not pass.
    pub blocked: u64,
    /// Of those allowed: with a warning.
    pub soft: u64,
    /// Of those allowed: would have been blocked, if the zone's mode were not [`Mode::Shadow`](crate::policy::Mode::Shadow).
    pub shadowed: u64,
    /// Answered from memory, many to a row.
    pub coalesced: u64,
    /// Of those allowed: passed while the database did not answer.
    pub unchecked: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            checks: self.checks + other.checks,
            allowed: self.allowed + other.allowed,
            blocked: self.blocked + other.blocked,
            soft: self.soft + other.soft,
            shadowed: self.shadowed + other.shadowed,
            coalesced: self.coalesced + other.coalesced,
            unchecked: self.unchecked + other.unchecked,
        }
    }
}

/// One zone in the whole time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ZoneReport {
    /// Its name.
    pub zone: String,
    /// Its checks. The offer of an item is one.
    #[serde(flatten)]
    pub counts: Counts,
    /// Which part of the checks was blocked, 0 to 1; 0 where there were none.
    pub blocked_share: f64,
    /// Checks by the name of their [`Reason`](crate::Reason).
    pub reasons: BTreeMap<&'static str, u64>,
    /// By kind, `refund`, `settle`, `cancel` or `release`: how often it happened, and what it came to.
    pub undone: BTreeMap<Kind, Sum>,
    /// By kind, what else is no check: leases, units taken for local decisions, and what became of items that were offered.
    pub handed_out: BTreeMap<Kind, Sum>,
    /// Bans that blocked checks led to.
    pub bans: u64,
    /// Actions of people.
    pub actions: u64,
}

/// The rows of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Sum {
    /// The number of them.
    pub rows: u64,
    /// The cost that was given back; of settlements, what they came to; of leases and takes, what was had.
    pub cost: i64,
}

/// One zone in one minute, hour or day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Volume {
    /// The beginning of that.
    pub starts_at: DateTime<Utc>,
    /// The zone's name.
    pub zone: String,
    /// Its checks. The offer of an item is one.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The first of a long list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Top<T> {
    /// True when they are the right ones with the right numbers; false when there were more buckets than are counted in
    /// bounded memory, see the fields of the list.
    pub exact: bool,
    /// Those at the top first.
    pub buckets: Vec<T>,
}

impl<T> Default for Top<T> {
    fn default() -> Self {
        Self { exact: true, buckets: Vec::new() }
    }
}

/// A bucket of which many checks were blocked, or would have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BlockedBucket {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// The number of checks that were blocked: never less than there were.
    pub blocked: u64,
    /// By how much `blocked` may be too high: at most a 65,536th of the zone's blocked checks; 0 for an exact number.
    pub error: u64,
    /// The time at which the first of them was blocked; with an `error`, the first that was counted one by one.
    pub first_at: DateTime<Utc>,
    /// The time at which the last one was.
    pub last_at: DateTime<Utc>,
    /// The transaction of the last one.
    pub last_txn: Uuid,
}

/// A bucket that came near to its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct NearBucket {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// The least that could still be spent, by its part of the limit.
    pub remaining: i64,
    /// The limit.
    pub limit: i64,
    /// The last time that was so.
    pub decided_at: DateTime<Utc>,
    /// The transaction of that.
    pub txn_id: Uuid,
    /// The number of checks that left just as little, as far as they were remembered: all of them, unless the list is not exact.
    pub checks: u64,
}

/// Events of buckets besides checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Acts {
    /// The number of them.
    pub total: u64,
    /// The newest 1,000 of them, newest first.
    pub newest: Vec<Act>,
}

/// One of them, as its ledger row says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Act {
    /// The database's time.
    pub recorded_at: DateTime<Utc>,
    /// The transaction that did it, or that brought about the ban.
    pub txn_id: Uuid,
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// `ban`, `unban`, `override` or `override_end`.
    pub kind: Kind,
    /// The time at which it ends by itself.
    pub ends_at: Option<DateTime<Utc>>,
    /// Of overrides and their ends: the most that could be spent from then on.
    pub limit: Option<i64>,
    /// The person who did it, as was said.
    pub actor: Option<String>,
    /// The name by which the database knows the session that did it, see [`Entry::login`](crate::ledger::Entry::login).
    pub login: Option<String>,
    /// The reason, as was said.
    pub note: Option<String>,
}

/// A new version of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct PolicyChange {
    /// The zone's name.
    pub zone: String,
    /// The new version; 1 when the zone was made.
    pub version: i32,
    /// The time at which it came into force.
    pub changed_at: DateTime<Utc>,
    /// The person who made it, as was said.
    pub changed_by: String,
    /// The name by which the database knows the session that made it, see [`Entry::login`](crate::ledger::Entry::login).
    pub login: Option<String>,
    /// The policy of this version.
    pub policy: Policy,
    /// The fields that are not as they were before; empty for version 1.
    pub fields: Vec<FieldChange>,
}

/// A field that changed, by the names and values that a zone has in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct FieldChange {
    /// Its name.
    pub field: String,
    /// Its value before.
    pub from: Value,
    /// Its value now.
    pub to: Value,
}

/// A length of time, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Grain {
    pub(super) fn for_time(time: TimeDelta) -> Self {
        // A caller who asks for the last 3 hours says so a moment before they end.
        match time {
            time if time < TimeDelta::hours(3) + TimeDelta::minutes(1) => Self::Minute,
            time if time < TimeDelta::days(14) + TimeDelta::hours(1) => Self::Hour,
            _ => Self::Day,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Its length.
    pub fn length(self) -> TimeDelta {
        match self {
            Self::Minute => TimeDelta::minutes(1),
            Self::Hour => TimeDelta::hours(1),
            Self::Day => TimeDelta::days(1),
        }
    }

    /// When the minute, hour or day begins that a time is in.
    pub fn of(self, at: DateTime<Utc>) -> DateTime<Utc> {
        let into_it = at.timestamp_micros().rem_euclid(self.length().num_milliseconds() * 1_000);
        at.checked_sub_signed(TimeDelta::microseconds(into_it)).unwrap_or(at)
    }
}

impl Serialize for Grain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
