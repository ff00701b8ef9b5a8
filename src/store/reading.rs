//! The reads of the audit: each call a statement of its own, which takes no lock.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    At, Bucket, BucketAt, Chained, Evidence, EvidenceOf, Line, Lines, Range, Removal, Store, StoredHead,
    StoredItem, ZoneAt,
};
use crate::decide::{Exception, Hold};
use crate::engine::Kept;
use crate::entry::LedgerRow;
use crate::error::Result;

impl Store {
    /// A page of a zone's rows, in a statement of its own; the last page is empty.
    pub async fn lines(&self, lines: Lines) -> Result<Vec<Line>> {
        each!(self, s => s.lines(lines).await)
    }

    /// All rows of a transaction, bucket by bucket, in order.
    pub async fn ledger_txn(&self, txn: Uuid) -> Result<Vec<(Bucket, LedgerRow)>> {
        each!(self, s => s.ledger_txn(txn).await)
    }

    /// The rows of a bucket after a place, in order.
    pub async fn ledger_bucket(&self, bucket: &Bucket, after: At, limit: u32) -> Result<Vec<LedgerRow>> {
        each!(self, s => s.ledger_bucket(bucket, after, limit).await)
    }

    /// The last row of a bucket before a time; None where nothing that old is left.
    pub async fn ledger_before(&self, bucket: &Bucket, at: DateTime<Utc>) -> Result<Option<LedgerRow>> {
        each!(self, s => s.ledger_before(bucket, at).await)
    }

    /// The first rows of a range of buckets, bucket by bucket, in order.
    pub async fn ledger_range(&self, range: &Range, limit: u32) -> Result<Vec<(String, LedgerRow)>> {
        each!(self, s => s.ledger_range(range, limit).await)
    }

    /// All limits that buckets ever had of their own, by bucket and seq.
    pub async fn bucket_overrides(&self, range: &Range) -> Result<Vec<(String, Exception)>> {
        each!(self, s => s.bucket_overrides(range).await)
    }

    /// The first heads of a range of buckets.
    pub async fn heads(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
        each!(self, s => s.heads(range, limit).await)
    }

    /// The first buckets of a range of which rows were dropped, as the last of these left them.
    pub async fn dropped(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
        each!(self, s => s.dropped(range, limit).await)
    }

    /// The first buckets of a range that hold something, or have items, and have no head.
    pub async fn strays(&self, range: &Range, limit: u32) -> Result<Vec<String>> {
        each!(self, s => s.strays(range, limit).await)
    }

    /// Was a head of the zone ever removed by upkeep?
    pub async fn heads_removed(&self, zone_id: i32) -> Result<bool> {
        each!(self, s => s.heads_removed(zone_id).await)
    }

    /// Removals by owners from the ledger of a zone, after a place: a page, in order.
    pub async fn removals(&self, zone_id: i32, after: i64) -> Result<Vec<Removal>> {
        each!(self, s => s.removals(zone_id, after).await)
    }

    /// The holds of a bucket, and the seq of its head at that moment; 0 without a head.
    pub async fn bucket_holds(&self, bucket: &Bucket) -> Result<(i64, Vec<Hold>)> {
        each!(self, s => s.bucket_holds(bucket).await)
    }

    /// The load of a queue, and the seq of its head at that moment; 0 without a head.
    pub async fn bucket_load(&self, bucket: &Bucket) -> Result<(i64, Kept)> {
        each!(self, s => s.bucket_load(bucket).await)
    }

    /// The items of a queue that were offered after a row: a page, in the order of their offers.
    pub async fn bucket_items(&self, bucket: &Bucket, after: i64) -> Result<Vec<StoredItem>> {
        each!(self, s => s.bucket_items(bucket, after).await)
    }

    /// Every version of a zone as it is stored.
    pub async fn zone_chain(&self, zone_id: i32) -> Result<Vec<Chained>> {
        each!(self, s => s.zone_chain(zone_id).await)
    }

    /// The next zone that the ledger has rows of.
    pub async fn ledger_zone_after(&self, zone_id: i32) -> Result<Option<i32>> {
        each!(self, s => s.ledger_zone_after(zone_id).await)
    }

    /// The database's time.
    pub async fn now(&self) -> Result<DateTime<Utc>> {
        each!(self, s => s.now().await)
    }

    /// The delay of a replica; None where it does not tell, and of a server that is none.
    pub async fn behind(&self) -> Result<Option<Duration>> {
        each!(self, s => s.behind().await)
    }

    /// The zones that there were at a time, by number.
    pub async fn zones_at(&self, at: DateTime<Utc>) -> Result<Vec<ZoneAt>> {
        each!(self, s => s.zones_at(at).await)
    }

    /// The buckets of a zone after a key, as they stood at a time.
    pub async fn heads_at(&self, zone_id: i32, after: &str, at: DateTime<Utc>) -> Result<Vec<BucketAt>> {
        each!(self, s => s.heads_at(zone_id, after, at).await)
    }

    /// A page of a zone's rows, bucket by bucket.
    pub async fn evidence(&self, of: &EvidenceOf) -> Result<Vec<Evidence>> {
        each!(self, s => s.evidence(of).await)
    }
}
