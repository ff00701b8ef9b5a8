//! The reads of checkpoints, proofs and exports.

use chrono::{DateTime, Utc};

use crate::chain::{Hash, Salt};
use crate::decide::Exception;
use crate::entry::LedgerRow;

/// The number of buckets of a page of heads, unless it is the last.
pub(crate) const HEADS: usize = 1_000;

/// The number of rows of a page of evidence, unless it is the last.
pub(crate) const ROWS: usize = 2_000;

/// A bucket as it stood at a time.
#[derive(Clone, Debug)]
pub(crate) struct BucketAt {
    pub key: String,
    pub salt: Option<Salt>,
    /// `seq` and hash of its last row at the time; None when it had none.
    pub last: Option<(i64, Hash)>,
    /// Rows up to a later one than that were dropped: it is not known.
    pub is_lost: bool,
    /// `seq` of the last row that was dropped, and when that was decided, in microseconds since 1970.
    pub dropped: Option<(i64, i64)>,
}

/// A zone as it stood at a time.
#[derive(Clone, Debug)]
pub(crate) struct ZoneAt {
    pub id: i32,
    pub name: String,
    /// Its version, and the hash of that.
    pub version: i32,
    pub version_hash: Hash,
}

/// A row with all that its hash is made of, and that hash.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub key: String,
    pub row: LedgerRow,
    pub exception: Option<Exception>,
    /// The bucket's, in its first row.
    pub salt: Option<Salt>,
    pub row_hash: Hash,
}

/// Rows of one zone, bucket by bucket.
#[derive(Clone, Debug)]
pub(crate) struct EvidenceOf {
    pub zone_id: i32,
    /// Those behind this place: a key, a time, and `seq` among rows of that time.
    pub after: (String, DateTime<Utc>, i64),
    /// Those of this time or later.
    pub since: DateTime<Utc>,
    /// Those before this time.
    pub until: DateTime<Utc>,
}
