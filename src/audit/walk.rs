//! Reads the rows of a part of the ledger, bucket by bucket.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::bucket::Checking;
use super::fault::{Fault, FaultKind};
use super::replay::Replay;
use super::verify::{Part, Says, Told, Verifying, say};
use super::zones::Stored;
use crate::decide::{BucketOverride, Version};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::store::{At, Bucket, Range, Store, StoredHead};

/// Rows that are read at a time.
const PAGE: u32 = 5_000;

/// Verifies the buckets of a part.
pub(super) async fn walk(store: &Store, part: &Part, says: &Says) -> Result<()> {
    let Part { number, zone, range, heads } = part;
    let mut heads: HashMap<&str, &StoredHead> = heads.iter().map(|head| (head.key.as_str(), head)).collect();
    let mut overrides: HashMap<String, Vec<BucketOverride>> = HashMap::new();
    for (key, own) in store.bucket_overrides(range).await? {
        overrides.entry(key).or_default().push(own);
    }
    let mut walking = Walking {
        store,
        zone,
        says,
        replay: Some(Replay::new(Arc::clone(&zone.versions), Vec::new())),
        buckets: 0,
    };
    let mut rest = range.clone();
    let mut checking: Option<Checking<'_>> = None;
    loop {
        let page = store.ledger_range(&rest, PAGE).await?;
        let full = page.len() >= PAGE as usize;
        let rows = page.len() as u64;
        let mut at = None;
        for (key, row) in page {
            if checking.as_ref().is_none_or(|checking| checking.key() != key) {
                walking.end(checking.take()).await?;
                let head = heads.remove(key.as_str()).cloned();
                let own = overrides.remove(&key).unwrap_or_default();
                checking = Some(walking.begin(key, &row, head, own));
            }
            if let Some(checking) = &mut checking {
                walking.next(checking, &row).await?;
            }
            at = Some((time(row.at_us)?, row.seq));
        }
        walking.read(rows).await?;
        if !full {
            break;
        }
        // The last bucket may go on.
        if let (Some(current), Some(at)) = (&mut checking, at) {
            walking.rest_of_bucket(current, at).await?;
            rest = rest.behind(current.key());
        }
    }
    walking.end(checking.take()).await?;
    // Heads without rows: their rows are gone, unless there never were any.
    for head in heads.into_values().filter(|head| head.head.seq > 0) {
        let fault = Fault {
            zone: zone.name.clone(),
            key: Some(head.key.clone()),
            seq: Some(1),
            txn_id: None,
            what: FaultKind::Truncated,
            detail: format!("rows 1 to {} are not there", head.head.seq),
        };
        say(says, Told::Say(Verifying::Fault(fault))).await?;
    }
    walking.read(0).await?;
    let to = (range.to.len() <= 255).then(|| (zone.name.clone(), range.to.clone()));
    say(says, Told::Done(*number, to)).await
}

/// A part on its way.
struct Walking<'w> {
    store: &'w Store,
    zone: &'w Stored,
    says: &'w Says,
    /// At hand between two buckets.
    replay: Option<Replay>,
    buckets: u64,
}

impl<'w> Walking<'w> {
    fn begin(
        &mut self,
        key: String,
        first: &LedgerRow,
        head: Option<StoredHead>,
        overrides: Vec<BucketOverride>,
    ) -> Checking<'w> {
        let versions = Arc::clone(&self.zone.versions);
        let replay = match self.replay.take() {
            Some(mut replay) => {
                replay.restart(versions, overrides.clone());
                replay
            }
            None => Replay::new(versions, overrides.clone()),
        };
        Checking::new((self.zone.id, &self.zone.name), key, first, head, overrides, replay)
    }

    async fn next(&self, checking: &mut Checking<'_>, row: &LedgerRow) -> Result<()> {
        let mut charging = None;
        if checking.is_behind(row) {
            let bucket = (self.zone.id, checking.key().to_owned());
            let versions = self.store.zone_versions(self.zone.id).await?;
            let overrides = self.store.bucket_overrides(&Range::only(&bucket)).await?;
            let overrides = overrides.into_iter().map(|(_, own)| own).collect();
            checking.catch_up(versions.iter().map(Version::from).collect(), overrides);
        }
        if checking.lacks(row) {
            let bucket = (self.zone.id, checking.key().to_owned());
            let rows = self.store.ledger_txn(row.txn_id).await?;
            let mut rows = rows.into_iter().filter(|(other, row)| *other == bucket && row.kind.is_check());
            charging = rows.next().map(|(_, row)| row);
        }
        checking.next(row, charging.as_ref());
        Ok(())
    }

    /// The rows of a bucket behind a place; where that is.
    async fn rest_of_bucket(&self, checking: &mut Checking<'_>, mut at: At) -> Result<At> {
        let bucket = (self.zone.id, checking.key().to_owned());
        loop {
            let page = self.store.ledger_bucket(&bucket, at, PAGE).await?;
            for row in &page {
                self.next(checking, row).await?;
                at = (time(row.at_us)?, row.seq);
            }
            self.read_rows(page.len() as u64, 0).await?;
            if page.len() < PAGE as usize {
                return Ok(at);
            }
        }
    }

    async fn end(&mut self, checking: Option<Checking<'_>>) -> Result<()> {
        let Some(mut checking) = checking else { return Ok(()) };
        let bucket: Bucket = (self.zone.id, checking.key().to_owned());
        if checking.holds() {
            // Where checks came since, nothing is said of what is held.
            let (seq, holds) = self.store.bucket_holds(&bucket).await?;
            if seq == checking.seq() {
                checking.compare_holds(&holds);
            }
        }
        let mut now = None;
        if checking.lacks_head() {
            now = self.store.heads(&Range::only(&bucket), 1).await?.into_iter().next();
        }
        let (replay, faults, more) = checking.end(now.as_ref());
        self.replay = Some(replay);
        self.buckets += 1;
        for fault in faults {
            say(self.says, Told::Say(Verifying::Fault(fault))).await?;
        }
        if more > 0 {
            say(self.says, Told::Say(Verifying::More(more))).await?;
        }
        Ok(())
    }

    async fn read(&mut self, rows: u64) -> Result<()> {
        let buckets = std::mem::take(&mut self.buckets);
        self.read_rows(rows, buckets).await
    }

    async fn read_rows(&self, rows: u64, buckets: u64) -> Result<()> {
        say(self.says, Told::Say(Verifying::Read { buckets, rows })).await
    }
}

fn time(us: i64) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(us)
        .ok_or_else(|| Error::database(format!("{us} µs is no time that the calendar knows")))
}
