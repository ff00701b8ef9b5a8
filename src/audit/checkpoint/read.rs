//! Reads the ends of all chains as they stood at a time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::heads::{Head, Sorted, Sorter};
use super::merkle::{self, Tree};
use super::{Checkpoint, CheckpointZone};
use crate::audit::dropped::{self, Dropped};
use crate::chain::{self, hex};
use crate::error::{Error, Result};
use crate::limiter::Limiter;
use crate::store::{BucketAt, HEADS, Range, StoredHead, ZoneAt};

/// A checkpoint of the rows up to `margin` ago. With `heads`, the ends of all chains are written there.
pub(crate) async fn take(
    limiter: &Limiter,
    margin: Duration,
    heads: Option<&Path>,
    progress: &mut impl FnMut(u64),
) -> Result<Checkpoint> {
    let made_at = limiter.read(async |store| store.now().await).await?;
    let cut_at = made_at.checked_sub_signed(chrono::TimeDelta::from_std(margin).unwrap_or_default());
    let cut_at = cut_at.unwrap_or(made_at);
    let mut file = match heads {
        Some(path) => Some((BufWriter::new(File::create(path).map_err(|e| unwritten(path, e))?), path)),
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
    for zone in limiter.read(async |store| store.zones_at(cut_at).await).await? {
        let (zone, _) = zone_at(limiter, &zone, cut_at, &mut each, &mut |more| progress(read + more)).await?;
        zones.push(zone);
        read += zones.last().map_or(0, |zone| zone.buckets);
    }
    if let Some((mut file, path)) = file {
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| unwritten(path, e))?;
    }
    Checkpoint::new(made_at, cut_at, zones)
}

/// A zone as it stood at a time, and how many of its buckets are lost; calls `each` with the ends of its chains in their
/// order.
pub(super) async fn zone_at(
    limiter: &Limiter,
    zone: &ZoneAt,
    at: DateTime<Utc>,
    each: &mut impl FnMut(&Head) -> Result<()>,
    progress: &mut impl FnMut(u64),
) -> Result<(CheckpointZone, u64)> {
    let mut read = 0;
    let mut count = |_: &BucketAt| {
        read += 1;
        if read % HEADS as u64 == 0 {
            progress(read);
        }
    };
    let mut heads = sorted(limiter, zone.id, at, &mut count).await?;
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
    };
    Ok((zone, lost))
}

/// The ends of a zone's chains as they stood at a time, in their order; calls `seen` with every bucket.
pub(super) async fn sorted(
    limiter: &Limiter,
    zone_id: i32,
    at: DateTime<Utc>,
    seen: &mut impl FnMut(&BucketAt),
) -> Result<Sorted> {
    let (mut sorter, mut pushed) = (Sorter::new(), Ok(()));
    each_bucket(limiter, zone_id, at, |bucket| {
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
    limiter: &Limiter,
    zone_id: i32,
    at: DateTime<Utc>,
    mut each: impl FnMut(BucketAt),
) -> Result<()> {
    let mut after = String::new();
    let mut dropped = Dropped::of(Range::all(zone_id));
    let read =
        async |range: &Range| limiter.read(async |store| store.dropped(range, dropped::PAGE).await).await;
    loop {
        let page = limiter.read(async |store| store.heads_at(zone_id, &after, at).await).await?;
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
