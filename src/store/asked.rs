//! The questions that a store is asked: checks, actions, settings, pages of the ledger.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::chain::{self, Hash, Salt};
use crate::decide::{Head, Item, Shape};
use crate::entry::{Cursor, History, Kind};
use crate::error::{Error, Result};
use crate::item::payload_hash;
use crate::shard::Among;
use crate::zone::{BlockedRows, ClockSpan, OnOutage, Policy, ZoneVersion};

/// Bounds that every database can store: the years 1000 to 9999.
const FIRST_US: i64 = -30_610_224_000_000_000;
const LAST_US: i64 = 253_402_300_799_000_000;

/// A bucket's name: the zone's number and the key.
pub(crate) type Bucket = (i32, String);

/// A place in a bucket's ledger: a time, and `seq` among rows of that time.
pub(crate) type At = (DateTime<Utc>, i64);

/// An item of a queue as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredItem {
    pub item: Item,
    pub payload: Option<String>,
    /// The part of the payload that its row says.
    pub recorded: Option<String>,
}

impl StoredItem {
    /// Is the payload what was offered?
    pub fn is_genuine(&self) -> bool {
        self.payload.as_deref().map(payload_hash) == self.recorded
    }
}

/// The charge of a transaction's check in one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Spending {
    pub zone: String,
    pub key: String,
    /// The kind of its ledger row.
    pub kind: Kind,
    pub spent: i64,
    /// It holds a reservation or a slot.
    pub holds: bool,
}

/// The result for a zone that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneRemoved {
    Removed,
    /// There is none of this name.
    Unknown,
    /// Something that stays names it.
    Used,
}

/// A clock as one text, for one argument of one statement.
pub(super) fn spans_of(clock: &[ClockSpan]) -> String {
    let spans = clock.iter().map(|span| {
        let ClockSpan { starts_us, ends_us, offset_us, shown_us } = span;
        format!("[{starts_us},{ends_us},{offset_us},{shown_us}]")
    });
    format!("[{}]", spans.collect::<Vec<_>>().join(","))
}

pub(super) fn hash_of(bytes: &[u8]) -> Result<Hash> {
    sized("row_hash", bytes)
}

pub(super) fn salt_of(bytes: &[u8]) -> Result<Salt> {
    sized("salt", bytes)
}

fn sized<const N: usize>(column: &str, bytes: &[u8]) -> Result<[u8; N]> {
    let why = |_| Error::database(format!("{column:?}: it has {} bytes instead of {N}", bytes.len()));
    bytes.try_into().map_err(why)
}

/// Buckets of a zone, by their keys: from one to another, both among them.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub zone_id: i32,
    pub from: String,
    pub to: String,
}

impl Range {
    /// Every bucket of a zone.
    pub fn all(zone_id: i32) -> Self {
        // No key has as many bytes.
        Self { zone_id, from: String::new(), to: "\u{10ffff}".repeat(64) }
    }

    /// The buckets of a zone whose keys begin so.
    pub fn beginning(zone_id: i32, prefix: &str) -> Self {
        Self { from: prefix.to_owned(), to: prefix.to_owned() + &Self::all(zone_id).to, zone_id }
    }

    /// One bucket.
    pub fn only((zone_id, key): &Bucket) -> Self {
        Self { zone_id: *zone_id, from: key.clone(), to: key.clone() }
    }

    /// The buckets of it behind one.
    pub fn behind(&self, key: &str) -> Self {
        // Keys have no control characters, so the next one is not before this.
        Self { from: format!("{key}\u{1}"), ..self.clone() }
    }
}

/// The head of a bucket as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub key: String,
    /// But for its override.
    pub head: Head,
    pub override_seq: Option<i64>,
    pub holding: bool,
    /// None once it is erased.
    pub salt: Option<Salt>,
    /// Over that of its last row and the name, where the bucket was moved.
    pub row_hash: Hash,
    /// The database that has the bucket now.
    pub moved_to: Option<String>,
    /// The user of the database who said so.
    pub moved_by: Option<String>,
    /// The shapes that its settlements taught.
    pub shapes: Vec<Shape>,
}

impl StoredHead {
    /// Is its hash that of a head behind a row with this one?
    pub fn follows(&self, row_hash: &Hash) -> bool {
        let moved = self.moved_to.as_ref().map(|to| chain::moved(row_hash, to));
        self.row_hash == moved.unwrap_or(*row_hash)
    }
}

/// A version of a zone, with what follows from its policy, its hash and its clock as they are stored.
#[derive(Clone, Debug)]
pub(crate) struct Chained {
    pub version: ZoneVersion,
    pub gcd: i64,
    /// That of the zone itself; None where there is no zone.
    pub zone_gcd: Option<i64>,
    pub row_hash: Hash,
    pub clock: Vec<ClockSpan>,
}

/// The facts of a zone that are known before it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub id: i32,
    pub version: i32,
    /// May a row of that version stand for many blocked checks?
    pub blocked_rows: BlockedRows,
    /// Do blocked checks lead to bans, so that only those of banned buckets may be answered from memory?
    pub bans: bool,
    pub on_outage: OnOutage,
    /// None where a newer program has chosen what this one does not know; checks are decided all the same.
    pub policy: Option<Policy>,
}

/// The word of a database about its schema.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The number of the last migration.
    pub version: i32,
    /// The number of the last one which programs that do not know it cannot work with.
    pub breaking: Option<i32>,
    /// The database's own name among several; the names of those now, and once their list has changed, with a space between
    /// them. None where it is alone.
    pub shard: Option<(String, Among)>,
    /// It is one of tests, whose clock its owner sets.
    pub test_clock: bool,
}

/// The version, that of the last breaking migration, the name and those of all, now and later, and whether it is one of tests.
type SchemaRow = (Option<i32>, Option<i32>, Option<String>, Option<String>, Option<String>, bool);

impl Schema {
    /// From the answer to the question: tables or routines that are missing are no schema.
    pub fn told(answer: Result<SchemaRow>) -> Result<Option<Self>> {
        match answer {
            Err(error) if error.is_schema() => Ok(None),
            answer => answer.map(|(version, breaking, shard, among, will, test_clock)| {
                Some(Self { version: version?, breaking, shard: shard.zip(among.zip(will)), test_clock })
            }),
        }
    }
}

/// Rows of one transaction, one bucket or one zone, newest first but for [`Of::ZoneUpwards`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'h> {
    pub of: Of<'h>,
    pub blocked: Option<bool>,
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
    pub before: Cursor,
    pub limit: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'h> {
    Txn(Uuid),
    Bucket(i32, &'h str),
    Zone(i32),
    /// Oldest first.
    ZoneUpwards(i32),
}

impl<'h> Span<'h> {
    /// The rows of `of` that the history asks for.
    pub fn new(of: Of<'h>, history: &History) -> Self {
        let at = |us| DateTime::from_timestamp_micros(us).unwrap_or_default();
        let (first, last) = (at(FIRST_US), at(LAST_US));
        let start = match of {
            Of::ZoneUpwards(_) => Cursor { at: first, id: 0 },
            _ => Cursor { at: last, id: i64::MAX },
        };
        Self {
            of,
            blocked: history.blocked,
            since: history.since.unwrap_or(first).clamp(first, last),
            until: history.until.unwrap_or(last).clamp(first, last),
            before: history.before.unwrap_or(start),
            limit: history.limit,
        }
    }
}

/// Before every row that any database can store.
pub(crate) fn beginning() -> At {
    (DateTime::from_timestamp_micros(FIRST_US).unwrap_or_default(), 0)
}

/// After every row that any database can store.
pub(crate) fn ending() -> DateTime<Utc> {
    DateTime::from_timestamp_micros(LAST_US).unwrap_or_default()
}
