//! The faults that a verification finds in a ledger.

use serde::Serialize;
use uuid::Uuid;

/// Something that is not as the library leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Fault {
    /// The database that it is in, among several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The zone's name; `number 7` where there is none.
    pub zone: String,
    /// The bucket's key; None for what concerns the zone.
    pub key: Option<String>,
    /// The row; None for what concerns the bucket.
    pub seq: Option<i64>,
    /// The row's transaction.
    pub txn_id: Option<Uuid>,
    /// Its kind.
    pub what: FaultKind,
    /// The evidence, in words.
    pub detail: String,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A row does not say what it said when it was hashed, or is not the one that was hashed behind the row before it.
    Edited,
    /// Rows are not there.
    Missing,
    /// A row is there that does not belong there: its place in the bucket is another one's.
    Inserted,
    /// Rows stand in another order than their numbers.
    Reordered,
    /// Rows at a bucket's end are not there.
    Truncated,
    /// A transaction was decided, or ended, twice in one bucket.
    Repeated,
    /// The rows before it lead to another decision.
    NotReproducible,
    /// The head of a bucket, what it holds, or its override is not what its rows lead to.
    WrongHead,
    /// A zone, or a version of one, is not what was hashed, or is missing.
    WrongZone,
    /// The record of an owner's removals is not what was hashed, or does not explain what is not there any
    /// more.
    WrongRemoval,
    /// Of several databases two have a bucket open, or one has it to which its key does not belong and no mark leads.
    WrongPlace,
}

impl Fault {
    pub(super) fn of_zone(zone: &str, what: FaultKind, detail: String) -> Self {
        Self { shard: None, zone: zone.to_owned(), key: None, seq: None, txn_id: None, what, detail }
    }
}

impl FaultKind {
    /// Its name in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Missing => "missing",
            Self::Inserted => "inserted",
            Self::Reordered => "reordered",
            Self::Truncated => "truncated",
            Self::Repeated => "repeated",
            Self::NotReproducible => "decision not reproducible",
            Self::WrongHead => "wrong head",
            Self::WrongZone => "wrong zone",
            Self::WrongRemoval => "wrong removal",
            Self::WrongPlace => "wrong place",
        }
    }
}
