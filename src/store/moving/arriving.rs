//! The parts of a bucket that arrive at its new database, as lists that each take one argument of one
//! statement.

use chrono::DateTime;

use crate::chain::Hash;
use crate::decide::{Carried, Exception, Hold, Load};
use crate::engine::Kept;
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::store::list::{List, Value};
use crate::store::removal::Removing;
use crate::store::shapes::text_of;
use crate::store::{Bucket, StoredHead, StoredItem};

/// Items that arrive with one statement.
const ITEMS: usize = 256;

/// The writes of one transaction.
pub(in crate::store) struct Arriving<'a> {
    pub bucket: &'a Bucket,
    /// The hash of the head that is there, which has the mark.
    pub was: &'a Hash,
    /// Nothing of the bucket is there yet.
    pub begins: bool,
    /// The head that is to be there, with the mark.
    pub head: &'a StoredHead,
    /// The head that rows left behind that are nowhere any more, before the first one.
    pub dropped: Option<&'a StoredHead>,
    pub rows: &'a [LedgerRow],
    pub overrides: Vec<Exception>,
    /// All that stands in the bucket; None where it stays as it is.
    pub stands: Option<&'a Stands<'a>>,
}

/// The parts of a bucket besides its head.
pub(in crate::store) struct Stands<'a> {
    pub holds: &'a [Hold],
    pub kept: Kept,
    pub items: Vec<StoredItem>,
}

/// The lists, for statements in this order.
pub(in crate::store) struct Lists {
    pub dropped: List,
    pub rows: List,
    pub overrides: List,
    /// None where what stands there stays as it is.
    pub stands: Option<Standing>,
    pub head: List,
}

/// The lists of what stands in a bucket.
pub(in crate::store) struct Standing {
    pub holds: List,
    pub load: List,
    /// One after the other: payloads may be long.
    pub items: Vec<List>,
}

impl Arriving<'_> {
    /// Fails unless the head is where it was when this was read.
    pub fn is_still(&self, row_hash: Option<&[u8]>) -> Result<()> {
        if row_hash == Some(&self.was[..]) {
            return Ok(());
        }
        Err(Error::transient("somebody else moves the bucket too, or has moved it; move it again"))
    }

    /// The record of rows that are nowhere any more, as of those that upkeep drops.
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
            stands: self.stands.map(|stands| stands.lists(zone_id, key)),
            head: head(zone_id, key, self.head),
        }
    }
}

impl Stands<'_> {
    fn lists(&self, zone_id: i32, key: &str) -> Standing {
        let Kept { load: Load { waiting, away }, settled_us } = self.kept;
        let load = [zone_id.into(), key.into(), waiting.into(), away.into(), settled_us.into()];
        Standing {
            holds: List::of(self.holds.iter().map(|hold| held(zone_id, key, hold))),
            load: if self.items.is_empty() { List::default() } else { List::of([load]) },
            items: self
                .items
                .chunks(ITEMS)
                .map(|items| List::of(items.iter().map(|stored| item(zone_id, key, stored))))
                .collect(),
        }
    }
}

/// An item of a queue.
fn item<'s>(zone_id: i32, key: &'s str, StoredItem { item, payload, .. }: &'s StoredItem) -> [Value<'s>; 14] {
    [
        zone_id.into(),
        key.into(),
        item.seq.into(),
        (&item.txn).into(),
        item.cost.into(),
        i32::from(item.band).into(),
        item.offered_us.into(),
        item.deadline_us.into(),
        item.place.as_str().into(),
        item.due_us.into(),
        item.takes.into(),
        item.last.into(),
        item.receipt.into(),
        payload.as_deref().into(),
    ]
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

/// The part of a charge that ends by itself.
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
    let shapes = text_of(&stored.shapes);
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
        shapes.as_deref().into(),
    ]])
}

/// A row of the ledger, but for its number.
fn ledger<'r>(zone_id: i32, key: &'r str, row: &'r LedgerRow) -> [Value<'r>; 30] {
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
        row.band.map(i32::from).into(),
    ]
}
