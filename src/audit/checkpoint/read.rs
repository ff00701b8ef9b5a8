//! Reads the ends of all chains as they stood at a time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::heads::{Head, Sorted, Sorter};
use super::merkle::{self, Tree};
use super::{Checkpoint, CheckpointZone};
use crate::chain::{self, hex};
use crate::error::{Error, Result};
use crate::limiter::Limiter;
use crate::store::{BucketAt, HEADS, ZoneAt};

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
        Some((file, path)) => file.write_all(&head.bytes()).map_err(|e| unwritten(path, e)),
        None => Ok(()),
    };
    let mut zones = Vec::new();
    let mut read = 0;
    for zone in limiter.read(async |store| store.zones_at(cut_at).await).await? {
        zones.push(zone_at(limiter, &zone, cut_at, &mut each, &mut |more| progress(read + more)).await?);
        read += zones.last().map_or(0, |zone| zone.buckets);
    }
    if let Some((mut file, path)) = file {
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| unwritten(path, e))?;
    }
    Checkpoint::new(made_at, cut_at, zones)
}

/// A zone as it stood at a time; calls `each` with the ends of its chains in their order.
pub(super) async fn zone_at(
    limiter: &Limiter,
    zone: &ZoneAt,
    at: DateTime<Utc>,
    each: &mut impl FnMut(&Head) -> Result<()>,
    progress: &mut impl FnMut(u64),
) -> Result<CheckpointZone> {
    let mut read = 0;
    let mut count = |_: &BucketAt| {
        read += 1;
        if read % HEADS as u64 == 0 {
            progress(read);
        }
    };
    let mut heads = sorted(limiter, zone.id, at, &mut count).await?;
    let (mut tree, mut rows) = (Tree::default(), 0);
    while let Some(head) = heads.next().map_err(unsorted)? {
        tree.push(merkle::leaf(&head.bytes()), false);
        rows += head.seq.unsigned_abs();
        each(&head)?;
    }
    let (buckets, root, _) = tree.finish();
    Ok(CheckpointZone {
        zone_id: zone.id,
        zone: zone.name.clone(),
        version: zone.version,
        version_hash: hex(&zone.version_hash),
        buckets,
        rows,
        buckets_root: hex(&root),
    })
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

/// Every bucket of a zone by its key. A page is a statement and a transaction of its own and locks nothing.
pub(super) async fn each_bucket(
    limiter: &Limiter,
    zone_id: i32,
    at: DateTime<Utc>,
    mut each: impl FnMut(BucketAt),
) -> Result<()> {
    let mut after = String::new();
    loop {
        let page = limiter.read(async |store| store.heads_at(zone_id, &after, at).await).await?;
        let is_last = page.len() < HEADS;
        if let Some(last) = page.last() {
            after.clone_from(&last.key);
        }
        page.into_iter().for_each(&mut each);
        if is_last {
            return Ok(());
        }
    }
}

/// The end of a bucket's chain. Where the ledger lets old rows go, this is the seam: for a bucket whose rows of the time
/// are gone, it is what is remembered of the last row that went.
pub(super) fn head(zone_id: i32, bucket: &BucketAt) -> Option<Head> {
    let (seq, row_hash) = bucket.last?;
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
