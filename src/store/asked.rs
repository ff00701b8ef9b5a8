//! The questions that a store is asked: checks, actions, settings, pages of the ledger.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::chain::{self, Hash, Salt};
use crate::decide::{Head, Item, Load, Override, Shape, Undo};
use crate::decision::Reason;
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

/// A check as a store wants it: validated, its zone resolved, its transaction named.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub zone: String,
    pub zone_id: i32,
    pub key: String,
    pub txn: Uuid,
    pub cost: i64,
    /// The id was just made here. Where nobody else can say so, on SQLite, the ledger need not be asked for it.
    pub fresh: bool,
    pub record: bool,
    /// It may take from the reserve.
    pub critical: bool,
    /// The member that it is about, where members are counted.
    pub member: Option<String>,
    /// A reservation, which ends by itself after so long.
    pub ttl_us: Option<i64>,
    /// Of which shape the reservation is, whose cost is predicted by that.
    pub shape: Option<String>,
}

impl Request {
    /// Its bucket.
    pub fn bucket(&self) -> Bucket {
        (self.zone_id, self.key.clone())
    }

    /// The text of its row in the column `member`.
    pub fn about(&self) -> Option<&str> {
        self.member.as_deref().or(self.shape.as_deref())
    }

    /// True when both are of one bucket.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.zone_id == other.zone_id && self.key == other.key
    }

    /// True when it leaves a row, and so must hold the bucket's lock. A peek only looks.
    pub fn leaves_row(&self) -> bool {
        self.cost > 0 || self.record
    }
}

/// Units that a process takes of a bucket, to decide checks by itself.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    pub zone_id: i32,
    pub key: String,
    pub txn: Uuid,
    /// The units that are taken, if they are to be had.
    pub wants: i64,
    /// An attempt before may have taken them.
    pub again: bool,
}

/// Something that happens to a bucket besides checks, under a transaction: once.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub zone: String,
    pub zone_id: i32,
    pub key: String,
    /// For an undo the one that made the charge.
    pub txn: Uuid,
    pub what: What,
    /// The reason.
    pub note: Option<String>,
    /// The person who does it.
    pub actor: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Undo(Undo),
    /// For so many microseconds.
    Ban(i64),
    Unban,
    Override(Option<Override>),
    /// A check of this cost, which is noted and not charged.
    Unchecked(i64),
}

impl What {
    /// The kind of its ledger row.
    pub fn kind(self) -> Kind {
        match self {
            Self::Undo(Undo::Refund) => Kind::Refund,
            Self::Undo(Undo::Settle(_) | Undo::Used(_)) => Kind::Settle,
            Self::Undo(Undo::Cancel) => Kind::Cancel,
            Self::Undo(Undo::Release) => Kind::Release,
            Self::Ban(_) => Kind::Ban,
            Self::Unban => Kind::Unban,
            Self::Override(Some(_)) => Kind::Override,
            Self::Override(None) => Kind::OverrideEnd,
            Self::Unchecked(_) => Kind::Unchecked,
        }
    }

    /// May only an operator do it?
    pub fn is_an_operators(self) -> bool {
        matches!(self, Self::Ban(_) | Self::Unban | Self::Override(_))
    }
}

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

/// Units that a process decides by itself with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Took {
    pub txn: Uuid,
    /// The reason why a check that is decided with them passes.
    pub reason: Reason,
    pub units: i64,
    /// The limit of the zone, and what was left in the bucket.
    pub limit: i64,
    pub remaining: i64,
    /// When they were taken, and until when they may be spent.
    pub at_us: i64,
    pub ends_us: i64,
    pub zone_version: i32,
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

/// The load of a queue as it is stored, and by when its items have become something else without a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub load: Load,
    pub settled_us: Option<i64>,
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
