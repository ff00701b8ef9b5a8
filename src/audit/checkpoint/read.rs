//! Reads the ends of all chains as they stood at a time.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::heads::{Head, Sorted, Sorter};
use super::merkle::{self, Tree};
use super::{Checkpoint, CheckpointZone};
use crate::audit::Auditor;
use crate::audit::dropped::{self, Dropped};
use crate::audit::removals::Removals;
use crate::boxed::{BoxFuture, boxed};
use crate::chain::{self, hex};
use crate::error::{Error, Result};
use crate::private;
use crate::store::{BucketAt, HEADS, Range, StoredHead, ZoneAt};

/// A checkpoint of the rows up to `margin` ago. With `heads`, the ends of all chains are written there.
pub(crate) fn take<'a>(
    auditor: &'a Auditor,
    margin: Duration,
    heads: Option<&'a Path>,
    progress: &'a mut (dyn FnMut(u64) + Send),
) -> BoxFuture<'a, Result<Checkpoint>> {
    boxed(async move {
        let made_at = auditor.read(|store| store.now()).await?;
        let cut_at = made_at.checked_sub_signed(chrono::TimeDelta::from_std(margin).unwrap_or_default());
        let cut_at = cut_at.unwrap_or(made_at);
        let mut file = match heads {
            Some(path) => Some((BufWriter::new(private::anew(path).map_err(|e| unwritten(path, e))?), path)),
            None => None,
        };
        let mut each = |head: &Head| match &mut file {
            Some((file, path)) if !head.is_lost() => {
                file.write_all(&head.bytes()).map_err(|e| unwritten(path, e))
            }
            _ => Ok(()),
        };
        let mut zones = Vec::new();
        let mut read = 0;
        for zone in auditor.read(|store| store.zones_at(cut_at)).await? {
            let told = zone_at(auditor, &zone, cut_at, &mut each, &mut |more| progress(read + more)).await?;
            zones.push(told.zone);
            read += zones.last().map_or(0, |zone| zone.buckets);
        }
        if let Some((mut file, path)) = file {
            file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| unwritten(path, e))?;
        }
        Checkpoint::new(made_at, cut_at, zones)
    })
}

/// A zone as it stood at a time, and what became of its rows since.
pub(super) struct Told {
    pub zone: CheckpointZone,
    /// Of so many buckets the last row of that time, and later ones, were dropped.
    pub lost: u64,
    /// The number of rows of the other buckets that upkeep dropped.
    pub dropped: u64,
    /// The number of rows that upkeep had dropped at that time, of whatever time they were.
    pub dropped_before: u64,
    /// The number of rows that are not there by `zone_txn_dropped`, though no run of upkeep dropped rows of their age
    /// or as many.
    pub unexplained: u64,
}

/// A zone as it stood at a time; calls `each` with the ends of its chains in their order.
pub(super) async fn zone_at(
    auditor: &Auditor,
    zone: &ZoneAt,
    at: DateTime<Utc>,
    each: &mut (impl FnMut(&Head) -> Result<()> + Send),
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Told> {
    // A removal is recorded before the first row goes: those that are read later are explained by it, or have come
    // since.
    let (mut removals, mut before) = (Removals::of(zone.id), None);
    while {
        let page = auditor.read(|store| store.removals(zone.id, removals.seq)).await?;
        removals.go_on(page, |so_far, next| {
            if next.removed_at > at && before.is_none() {
                before = Some((so_far.seq, so_far.hash, so_far.dropped));
            }
        })
    } {}
    let (removed, removals_hash, dropped_before) =
        before.unwrap_or((removals.seq, removals.hash, removals.dropped));
    let (mut read, mut dropped, mut unexplained) = (0, 0, 0);
    let mut count = |bucket: &BucketAt| {
        if let Some((seq, last_us)) = bucket.dropped {
            let of_then = bucket
                .last
                .map_or(if bucket.is_lost { 1 } else { 0 }, |(last, _)| last.min(seq))
                .unsigned_abs();
            if last_us >= removals.cut_us {
                unexplained += of_then;
            } else if !bucket.is_lost {
                dropped += of_then;
            }
        }
        read += 1;
        if read % HEADS as u64 == 0 {
            progress(read);
        }
    };
    let mut heads = sorted(auditor, zone.id, at, &mut count).await?;
    let (mut tree, mut rows, mut lost) = (Tree::default(), 0, 0);
    while let Some(head) = heads.next().map_err(unsorted)? {
        each(&head)?;
        if head.is_lost() {
            lost += 1;
            continue;
        }
        tree.push(merkle::leaf(&head.bytes()), false);
        rows += head.seq.unsigned_abs();
    }
    let (buckets, root, _) = tree.finish();
    let zone = CheckpointZone {
        zone_id: zone.id,
        zone: zone.name.clone(),
        version: zone.version,
        version_hash: hex(&zone.version_hash),
        buckets,
        rows,
        buckets_root: hex(&root),
        removals: removed.unsigned_abs(),
        removals_hash: hex(&removals_hash),
    };
    unexplained += dropped.saturating_sub(removals.dropped);
    dropped = dropped.min(removals.dropped);
    Ok(Told { zone, lost, dropped, dropped_before: dropped_before.min(dropped), unexplained })
}

/// The ends of a zone's chains as they stood at a time, in their order; calls `seen` with every bucket.
pub(super) async fn sorted(
    auditor: &Auditor,
    zone_id: i32,
    at: DateTime<Utc>,
    seen: &mut (impl FnMut(&BucketAt) + Send),
) -> Result<Sorted> {
    let (mut sorter, mut pushed) = (Sorter::new(), Ok(()));
    each_bucket(auditor, zone_id, at, |bucket| {
        seen(&bucket);
        if let (Some(head), Ok(())) = (head(zone_id, &bucket), &pushed) {
            pushed = sorter.push(head);
        }
    })
    .await?;
    pushed.and_then(|()| sorter.sorted()).map_err(unsorted)
}

/// Every bucket of a zone by its key, with what is remembered of those whose rows were dropped. A page is a statement and a transaction of its own and locks nothing.
pub(super) async fn each_bucket(
    auditor: &Auditor,
    zone_id: i32,
    at: DateTime<Utc>,
    mut each: impl FnMut(BucketAt) + Send,
) -> Result<()> {
    let mut after = String::new();
    let mut dropped = Dropped::of(Range::all(zone_id));
    let read = async |range: &Range| auditor.read(|store| store.dropped(range, dropped::PAGE)).await;
    loop {
        let page = auditor.read(|store| store.heads_at(zone_id, &after, at)).await?;
        let is_last = page.len() < HEADS;
        if let Some(last) = page.last() {
            after.clone_from(&last.key);
        }
        for bucket in page {
            let mut own = None;
            while let Some(next) = dropped.next_up_to(Some(&bucket.key), read).await? {
                if next.key == bucket.key {
                    own = Some(next);
                } else {
                    each(of_dropped(None, next, at));
                }
            }
            match own {
                Some(own) => each(of_dropped(Some(bucket), own, at)),
                None => each(bucket),
            }
        }
        if is_last {
            break;
        }
    }
    while let Some(next) = dropped.next_up_to(None, read).await? {
        each(of_dropped(None, next, at));
    }
    Ok(())
}

/// A bucket of which rows were dropped: where none of the time is left, the last that was dropped stands for it, unless
/// that is younger.
fn of_dropped(bucket: Option<BucketAt>, dropped: StoredHead, at: DateTime<Utc>) -> BucketAt {
    let StoredHead { key, head, salt, row_hash, .. } = dropped;
    let last = bucket.as_ref().and_then(|bucket| bucket.last);
    let is_old = head.last_us <= at.timestamp_micros();
    BucketAt {
        key,
        salt: bucket.and_then(|bucket| bucket.salt).or(salt),
        dropped: Some((head.seq, head.last_us)),
        last: last.or(is_old.then_some((head.seq, row_hash))),
        is_lost: last.is_none() && !is_old,
    }
}

/// The end of a bucket's chain.
pub(super) fn head(zone_id: i32, bucket: &BucketAt) -> Option<Head> {
    let lost = (Head::LOST, [0; 32]);
    let (seq, row_hash) = bucket.last.or(bucket.is_lost.then_some(lost))?;
    Some(Head { zone_id, start: chain::bucket(bucket.salt.as_ref(), zone_id, &bucket.key), seq, row_hash })
}

pub(super) fn unsorted(e: io::Error) -> Error {
    Error::database(format!(
        "the buckets could not be sorted in the folder for temporary files: {e}; set TMPDIR to one with room"
    ))
    .caused_by(e)
}

fn unwritten(path: &Path, e: io::Error) -> Error {
    Error::invalid(format!("{} cannot be written: {e}", path.display())).caused_by(e)
}
