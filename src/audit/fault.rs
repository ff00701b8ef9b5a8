//! FaultKind is wrong with a ledger.

use serde::Serialize;
use uuid::Uuid;

/// Something that is not as the library leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The zone's name; `number 7` where there is none.
    pub zone: String,
    /// The bucket's key; None for what concerns the zone.
    pub key: Option<String>,
    /// The row; None for what concerns the bucket.
    pub seq: Option<i64>,
    /// The row's transaction.
    pub txn_id: Option<Uuid>,
    /// FaultKind was done.
    pub what: FaultKind,
    /// FaultKind shows it, in words.
    pub detail: String,
}

/// FaultKind was done to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
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
        }
    }
}
