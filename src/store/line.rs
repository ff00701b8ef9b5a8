//! Rows of the ledger as a report reads them: only what is counted.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::decision::Reason;
use crate::entry::{Cursor, Kind};

/// One row; each field as in [`Entry`](crate::ledger::Entry).
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub id: i64,
    pub txn_id: Uuid,
    pub decided_at: DateTime<Utc>,
    pub key: String,
    pub kind: Kind,
    pub checks: i32,
    pub blocked: bool,
    pub reason: Reason,
    pub cost: i64,
    pub spent: i64,
    pub remaining: i64,
    /// The most that a check like it could have spent.
    pub limit: i64,
    pub ends_at: Option<DateTime<Utc>>,
    pub note: Option<String>,
    pub actor: Option<String>,
    pub login: Option<String>,
}

/// Rows of one zone, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    pub zone_id: i32,
    /// Those behind this place; the first place of all has the number 0.
    pub after: Cursor,
    /// Those before this time.
    pub until: DateTime<Utc>,
    /// Of several databases: a bucket that was moved is counted where it is now.
    pub of_several: bool,
}
