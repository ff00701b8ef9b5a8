//! What of a bucket arrives at its new database, as lists that each take one argument of one statement.

use chrono::DateTime;

use crate::chain::Hash;
use crate::decide::{Carried, Exception, Hold};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::store::list::{List, Value};
use crate::store::removal::Removing;
use crate::store::{Bucket, StoredHead};

/// What is written in one transaction.
pub(in crate::store) struct Arriving<'a> {
    pub bucket: &'a Bucket,
    /// The hash of the head that is there, which has the mark.
    pub was: &'a Hash,
    /// Nothing of the bucket is there yet.
    pub begins: bool,
    /// The head that is to be there, with the mark.
    pub head: &'a StoredHead,
    /// What rows left behind that are nowhere any more, before the first one.
    pub dropped: Option<&'a StoredHead>,
    pub rows: &'a [LedgerRow],
    pub overrides: Vec<Exception>,
    /// All that the bucket holds.
    pub holds: Option<&'a [Hold]>,
}

/// The lists, for statements in this order.
pub(in crate::store) struct Lists {
    pub dropped: List,
    pub rows: List,
    pub overrides: List,
    /// None where what is held stays as it is.
    pub holds: Option<List>,
    pub head: List,
}

impl Arriving<'_> {
    /// Fails unless the head is where it was when this was read.
    pub fn is_still(&self, row_hash: Option<&[u8]>) -> Result<()> {
        if row_hash == Some(&self.was[..]) {
            return Ok(());
        }
        Err(Error::transient("somebody else moves the bucket too, or has moved it; move it again"))
    }

    /// What is recorded of rows that are nowhere any more, as of those that upkeep drops.
    pub fn removing(&self) -> Option<Removing<'static>> {
        let head = &self.dropped?.head;
        let cut_at = DateTime::from_timestamp_micros(head.last_us.saturating_add(1))?;
        Some(Removing::Drop { cut_at, buckets: 1, rows: head.seq.unsigned_abs() })
    }

    pub fn lists(&self) -> Lists {
        let (zone_id, key) = (self.bucket.0, self.bucket.1.as_str());
        let dropped = self.dropped.iter().map(|dropped| {
            let head = &dropped.head;
            [
                zone_id.into(),
                key.into(),
                head.seq.into(),
                head.spent_total.into(),
                head.level.into(),
                head.strikes.into(),
                head.last_us.into(),
                head.zone_version.into(),
                dropped.salt.as_ref().map(|salt| &salt[..]).into(),
                dropped.row_hash[..].into(),
            ]
        });
        Lists {
            dropped: List::of(dropped),
            rows: List::of(self.rows.iter().map(|row| ledger(zone_id, key, row))),
            overrides: List::of(self.overrides.iter().map(|own| limited(zone_id, key, own))),
            holds: self.holds.map(|holds| List::of(holds.iter().map(|hold| held(zone_id, key, hold)))),
            head: head(zone_id, key, self.head),
        }
    }
}

/// A limit of the bucket's own.
pub(in crate::store) fn limited<'k>(zone_id: i32, key: &'k str, own: &Exception) -> [Value<'k>; 9] {
    let limit = own.limit;
    [
        zone_id.into(),
        key.into(),
        own.seq.into(),
        limit.map(|limit| limit.rate).into(),
        limit.map(|limit| limit.window_us).into(),
        limit.and_then(|limit| limit.burst).into(),
        limit.map(|limit| limit.gcd).into(),
        own.ban_exempt.into(),
        own.until_us.into(),
    ]
}

/// What of a charge ends by itself.
pub(in crate::store) fn held<'h>(zone_id: i32, key: &'h str, hold: &'h Hold) -> [Value<'h>; 7] {
    [
        zone_id.into(),
        key.into(),
        hold.seq.into(),
        hold.charged_us.into(),
        hold.amount.into(),
        hold.ends_us.into(),
        hold.member.as_deref().into(),
    ]
}

/// A head with all that it says.
pub(in crate::store) fn head(zone_id: i32, key: &str, stored: &StoredHead) -> List {
    let head = &stored.head;
    let carried = |of: fn(Carried) -> i64| head.carried.map(of).into();
    List::of([[
        zone_id.into(),
        key.into(),
        head.seq.into(),
        head.last_us.into(),
        head.spent_total.into(),
        head.level.into(),
        head.zone_version.into(),
        head.strikes.into(),
        head.banned_until_us.into(),
        head.bans.into(),
        head.ban_strikes.into(),
        carried(|carried| carried.amount),
        carried(|carried| carried.at_us),
        carried(|carried| carried.total),
        carried(|carried| carried.seq),
        stored.override_seq.into(),
        stored.holding.into(),
        stored.salt.as_ref().map(|salt| &salt[..]).into(),
        stored.row_hash[..].into(),
        stored.moved_to.as_deref().into(),
    ]])
}

/// A row of the ledger, but for its number.
fn ledger<'r>(zone_id: i32, key: &'r str, row: &'r LedgerRow) -> [Value<'r>; 29] {
    [
        (&row.txn_id).into(),
        zone_id.into(),
        row.zone_version.into(),
        key.into(),
        row.seq.into(),
        row.kind.as_str().into(),
        row.checks.into(),
        row.blocked.into(),
        row.reason.as_str().into(),
        row.critical.into(),
        row.cost.into(),
        row.spent.into(),
        row.spent_total.into(),
        row.remaining.into(),
        row.zone_limit.into(),
        row.retry_after_us.into(),
        row.delay_us.into(),
        row.level.into(),
        row.strikes.into(),
        row.target_us.into(),
        row.at_us.into(),
        row.prev_us.into(),
        row.ends_us.into(),
        row.member.as_deref().into(),
        row.note.as_deref().into(),
        row.actor.as_deref().into(),
        row.login.as_deref().into(),
        row.salt.as_ref().map(|salt| &salt[..]).into(),
        row.row_hash[..].into(),
    ]
}
