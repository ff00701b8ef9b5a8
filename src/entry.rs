//! The ledger: its rows, and how to ask for them.

mod row;

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::check::validate_bytes;
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{Limit, validate_name};

pub use row::{Kind, LedgerRow};

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Entry {
    /// Number of the row, unique in the ledger.
    pub id: i64,
    /// The database's time of the decision.
    pub decided_at: DateTime<Utc>,
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// Position in the bucket, from 1 without gaps.
    pub seq: i64,
    /// The transaction that was decided.
    pub txn_id: Uuid,
    /// The kind of thing that the row records.
    pub kind: Kind,
    /// The number of checks that the row stands for: 1, or more in a coalesced one.
    pub checks: i32,
    /// True when the transaction could not pass.
    pub blocked: bool,
    /// The reason.
    pub reason: Reason,
    /// True when the check could take from the reserve.
    pub critical: bool,
    /// The importance: 0 is the most; None but for leases and items of queues.
    pub band: Option<u8>,
    /// The member that the check was about, where members are counted.
    pub member: Option<String>,
    /// The cost that was asked for; what a refund, a cancellation or a release gave back; what a settlement
    /// came to.
    pub cost: i64,
    /// The units that were spent.
    pub spent: i64,
    /// Sum of `spent` over the bucket up to and with this row.
    pub spent_total: i64,
    /// The units that could still be spent after the decision.
    pub remaining: i64,
    /// The wait that was promised, from `decided_at`.
    pub retry_after_us: Option<i64>,
    /// The wait for its turn that the caller was told, from `decided_at`; None but for a leaky queue.
    pub delay_us: Option<i64>,
    /// The level after the row, in fractions of a token; None for algorithms without one.
    pub level: Option<i64>,
    /// The time of the charge that the row ends.
    pub target_at: Option<DateTime<Utc>>,
    /// When what the row began ends by itself: a reservation, a slot, a member, a ban, an override.
    pub ends_at: Option<DateTime<Utc>>,
    /// Why, as people wrote it.
    pub note: Option<String>,
    /// The person who did it, as was said, for acts of people.
    pub actor: Option<String>,
    /// By which name the database knows the session that did it, for what people do: the user on PostgreSQL, user and
    /// host on MySQL and MariaDB, None on SQLite, which knows no users. The database wrote it; no caller can choose it.
    pub login: Option<String>,
    /// The version of the zone that decided.
    pub zone_version: i32,
}

/// A record of something besides checks: a refund, a settlement, a ban, an override, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Recorded {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// The transaction: of a charge that ended, the one that made it.
    pub txn_id: Uuid,
    /// The kind of the ledger row, see [`Entry::kind`].
    pub kind: Kind,
    /// The units that were given back, or that a settlement came to; 0 for what concerns no charge.
    pub cost: i64,
    /// The units that a settlement charged beyond its reservation; else 0.
    pub spent: i64,
    /// The units that can be spent now, rounded down; never negative.
    pub remaining: i64,
    /// When it ends: a ban, an override.
    pub ends_at: Option<DateTime<Utc>>,
    /// Position in the bucket's ledger.
    pub seq: i64,
    /// The version of the zone in force.
    pub zone_version: i32,
    /// The database's time.
    pub recorded_at: DateTime<Utc>,
    /// True when it had been recorded before and nothing happened now.
    pub replayed: bool,
}

/// A bucket with a limit of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Overridden {
    /// The bucket's key.
    pub key: String,
    /// Its limit; None keeps the zone's.
    pub limit: Option<Limit>,
    /// True when blocked checks do not lead to a ban.
    pub ban_exempt: bool,
    /// The time when it ends; None for never.
    pub ends_at: Option<DateTime<Utc>>,
    /// Why, as people wrote it.
    pub note: Option<String>,
    /// The person who set it, as was said.
    pub set_by: Option<String>,
    /// By which name the database knows the session that set it, see [`Entry::login`].
    pub login: Option<String>,
    /// The time.
    pub set_at: DateTime<Utc>,
}

/// Which rows of the ledger to read, newest first unless it says otherwise.
///
/// ```
/// use tallygate::ledger::History;
/// let blocked = History::default().zone("login").blocked(true);
/// # let _ = blocked;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct History {
    /// Only this zone.
    pub zone: Option<String>,
    /// Only this key: in all zones, unless one is named.
    pub key: Option<String>,
    /// Only keys that begin so, of buckets whose heads are there: at most 1,000.
    pub key_prefix: Option<String>,
    /// Only this transaction, in every bucket that it touched.
    pub txn: Option<Uuid>,
    /// Only blocked (true) or only allowed (false) rows.
    pub blocked: Option<bool>,
    /// Rows decided at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Rows decided before this time.
    pub until: Option<DateTime<Utc>>,
    /// At most so many rows in a page: 1 to 10,000.
    pub limit: u32,
    /// The place where the page before this one ended.
    pub before: Option<Cursor>,
    /// Oldest first, for a whole zone: needs `zone`, without `key` and `txn`.
    pub oldest_first: bool,
}

impl Default for History {
    fn default() -> Self {
        Self {
            zone: None,
            key: None,
            key_prefix: None,
            txn: None,
            blocked: None,
            since: None,
            until: None,
            limit: 100,
            before: None,
            oldest_first: false,
        }
    }
}

impl History {
    /// Only this zone.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Only this key: in all zones, unless one is named.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Only keys that begin so, of buckets whose heads are there: at most 1,000.
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        Self { key_prefix: Some(prefix.into()), ..self }
    }

    /// Only this transaction, in every bucket that it touched.
    pub fn txn(self, txn: Uuid) -> Self {
        Self { txn: Some(txn), ..self }
    }

    /// Only blocked (true) or only allowed (false) rows.
    pub fn blocked(self, blocked: bool) -> Self {
        Self { blocked: Some(blocked), ..self }
    }

    /// Rows decided at this time or later.
    pub fn since(self, since: DateTime<Utc>) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Rows decided before this time.
    pub fn until(self, until: DateTime<Utc>) -> Self {
        Self { until: Some(until), ..self }
    }

    /// At most so many rows in a page: 1 to 10,000. 100 if it is not said.
    pub fn limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// From where the page before this one ended.
    pub fn before(self, before: Cursor) -> Self {
        Self { before: Some(before), ..self }
    }

    /// Oldest first, for a whole zone: needs a zone, and neither a key nor a transaction.
    pub fn oldest_first(self) -> Self {
        Self { oldest_first: true, ..self }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if !(1..=10_000).contains(&self.limit) {
            return Err(Error::invalid(format!("limit {} is out of range; use 1 to 10000", self.limit)));
        }
        if let Some(zone) = &self.zone {
            validate_name(zone)?;
        }
        if let Some(key) = &self.key {
            validate_bytes("bucket key", "key", key)?;
        }
        if let Some(prefix) = &self.key_prefix {
            validate_bytes("key prefix", "prefix", prefix)?;
            if self.key.is_some() {
                return Err(Error::invalid("a key has no prefix beside it; name one of the two"));
            }
        }
        let is_of_keys = self.key.is_some() || self.key_prefix.is_some();
        if self.oldest_first && (self.zone.is_none() || is_of_keys || self.txn.is_some()) {
            return Err(Error::invalid(
                "the oldest first are only the rows of a whole zone; name a zone, and neither a key nor a transaction",
            ));
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            return Err(Error::invalid(format!(
                "since {} is after until {}; swap them",
                since.to_rfc3339(),
                until.to_rfc3339()
            )));
        }
        Ok(())
    }
}

/// One page of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Page {
    /// The rows, newest first; oldest first if that was asked for.
    pub rows: Vec<Entry>,
    /// The place to go on from: the next page's [`History::before`]. None when this was the last.
    pub next: Option<Cursor>,
}

/// A place in the ledger, to read on from. As text it is two numbers, such as `1774310402123456-42`, that go into a URL as
/// they are.
///
/// ```
/// let cursor: tallygate::ledger::Cursor = "1774310402123456-42".parse()?;
/// assert_eq!(cursor.to_string(), "1774310402123456-42");
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) at: DateTime<Utc>,
    pub(crate) id: i64,
}

impl From<&Entry> for Cursor {
    fn from(row: &Entry) -> Self {
        Self { at: row.decided_at, id: row.id }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.timestamp_micros(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let place = text.rsplit_once('-').and_then(|(at, id)| {
            Some(Self { at: DateTime::from_timestamp_micros(at.parse().ok()?)?, id: id.parse().ok()? })
        });
        place.ok_or_else(|| {
            Error::invalid(format!("{text:?} is no place in the ledger; use the one that a page ended with"))
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
