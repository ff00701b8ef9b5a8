//! Compares the ledger with what it was at a checkpoint.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;

use serde::Serialize;

use super::heads::Head;
use super::merkle::{self, Tree};
use super::read::{Told, each_bucket, head, zone_at};
use super::{Checkpoint, CheckpointZone};
use crate::audit::Auditor;
use crate::boxed::{BoxFuture, boxed};
use crate::chain::{Hash, hex};
use crate::error::{Error, Result};

/// The most buckets that are named.
const NAMED: usize = 1_000;

/// The ledger beside what it was at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Comparison {
    /// The places where it is not what it was; empty when it is. Of buckets the first 1,000.
    pub differences: Vec<HeadDifference>,
    /// The number of buckets that differ and are not named among them.
    pub unnamed: u64,
    /// True when rows are missing and nothing else differs, as after an older backup was restored: each bucket that differs
    /// ends earlier than it did, or is gone. Without the heads nobody can tell, and it is false.
    pub ends_earlier: bool,
    /// The number of rows of the checkpoint that upkeep dropped, as far as that is known; all others are
    /// there.
    pub dropped: u64,
    /// The number of those that were dropped since the checkpoint.
    pub dropped_since: u64,
}

/// A place where the ledger is not what it was at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct HeadDifference {
    /// The zone.
    pub zone: String,
    /// The thing that is not as it was.
    pub changed: Changed,
    /// The bucket, by the hash that its chain begins with; None for what concerns the whole zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// The bucket's key, if it has one still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number that there were: buckets, versions, rows of the bucket.
    pub was: u64,
    /// The number that there are.
    pub is: u64,
}

/// The things that can differ from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Changed {
    /// The zone is gone, or no longer has that number and name.
    ZoneGone,
    /// There is a zone that says it is as old and was not there.
    ZoneAdded,
    /// A version of the zone of before was changed, removed or added.
    Versions,
    /// Rows of before were changed, removed or added in some bucket of the zone.
    Buckets,
    /// Of some buckets of the zone the rows of before and later ones were dropped by upkeep: the zone's root cannot be
    /// made anew, so nothing can be said of them; without the heads, nor of the others. `is` is how many they are.
    BucketsDropped,
    /// Rows of before are not there any more, and no run of upkeep dropped rows of their age, or as many. `was` is how many
    /// are gone, `is` how many of these upkeep dropped.
    RowsGone,
    /// The record of earlier removals by owners, by runs of upkeep and erasures, is no longer as it was.
    Removals,
    /// A bucket is gone.
    BucketGone,
    /// There is a bucket with rows that say they are as old and were not there.
    BucketAdded,
    /// The bucket has as many rows of before, but they are other ones.
    BucketRewritten,
    /// The bucket has fewer rows of before.
    BucketShortened,
    /// The bucket has more rows that say they are from before: slipped in, or committed later than the margin.
    BucketLengthened,
}

impl fmt::Display for HeadDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, was, is, .. } = self;
        let bucket = match (&self.key, &self.bucket) {
            (Some(key), _) => format!("bucket {key:?}"),
            (None, bucket) => format!("bucket {}", bucket.as_deref().unwrap_or_default()),
        };
        write!(f, "zone {zone:?}: ")?;
        match self.changed {
            Changed::ZoneGone => write!(f, "is gone or has another name"),
            Changed::ZoneAdded => write!(f, "was not there at the checkpoint and says that it was"),
            Changed::Versions => {
                write!(f, "its versions up to {was} were changed, or there are others: now {is}")
            }
            Changed::Buckets => {
                write!(f, "rows of its {was} buckets were changed, removed or added: now {is} buckets")
            }
            Changed::BucketsDropped => write!(
                f,
                "its root cannot be recomputed, since {is} buckets have dropped rows of later than the checkpoint; take \
                 a checkpoint before each tallygate maintain --keep"
            ),
            Changed::RowsGone => {
                write!(f, "{was} of its rows are gone, and upkeep dropped no more than {is} of them")
            }
            Changed::Removals => {
                write!(f, "its record of {was} removals by owners was changed, or there are others: now {is}")
            }
            Changed::BucketGone => write!(f, "{bucket} is gone, with {was} rows"),
            Changed::BucketAdded => {
                write!(f, "{bucket} was not there, and now has {is} rows of before the checkpoint")
            }
            Changed::BucketRewritten => write!(f, "{bucket}: its {was} rows are not those that it had"),
            Changed::BucketShortened => write!(f, "{bucket} had {was} rows and has {is}"),
            Changed::BucketLengthened => {
                write!(f, "{bucket} had {was} rows and has {is} that say they are from before the checkpoint")
            }
        }
    }
}

impl HeadDifference {
    /// Is it what an older state of the ledger has?
    fn ends_earlier(&self) -> bool {
        match self.changed {
            Changed::ZoneGone | Changed::Buckets | Changed::BucketGone | Changed::BucketShortened => true,
            Changed::Versions | Changed::Removals => self.is < self.was,
            _ => false,
        }
    }
}

/// The places where the ledger is not what it was at the checkpoint; nothing when it is. With the `heads` that were
/// written with the checkpoint, buckets are named: the first 1,000.
///
/// Compares the ends of chains as they are recorded. That the rows are what their hashes say is for the verification of
/// the chain: both together prove the ledger of before.
pub(crate) fn check<'a>(
    auditor: &'a Auditor,
    checkpoint: &'a Checkpoint,
    heads: Option<&'a Path>,
    progress: &'a mut (dyn FnMut(u64) + Send),
) -> BoxFuture<'a, Result<Comparison>> {
    boxed(async move {
        let mut old = match heads {
            Some(path) => Some(Old::open(path, checkpoint)?),
            None => None,
        };
        let mut found = Vec::new();
        let (mut unnamed, mut is_other) = (0, heads.is_none());
        let (mut dropped, mut dropped_before) = (0, 0);
        let now = auditor.read(|store| store.zones_at(checkpoint.cut_at)).await?;
        for was in &checkpoint.zones {
            if !now.iter().any(|zone| zone.id == was.zone_id && zone.name == was.zone) {
                found.push(of_zone(was, Changed::ZoneGone, 0, 0));
            }
        }
        let mut read = 0;
        for zone in &now {
            let was = checkpoint.zone(zone.id).filter(|was| was.zone == zone.name);
            let mut compared = Differing::default();
            let mut each = |head: &Head| match &mut old {
                Some(old) => old.compare(Some(head), zone.id, &mut compared),
                None => Ok(()),
            };
            let progress = &mut |more| progress(read + more);
            let told = zone_at(auditor, zone, checkpoint.cut_at, &mut each, progress).await?;
            let Told { zone: is, mut lost, unexplained, .. } = told;
            if let Some(old) = &mut old {
                old.compare(None, zone.id, &mut compared)?;
                lost = std::mem::take(&mut old.lost);
            }
            read += is.buckets;
            let Some(was) = was else {
                found.push(of_zone(&is, Changed::ZoneAdded, 0, 0));
                continue;
            };
            if (was.version, &was.version_hash) != (is.version, &is.version_hash) {
                let versions = |zone: &CheckpointZone| u64::from(zone.version.unsigned_abs());
                found.push(of_zone(was, Changed::Versions, versions(was), versions(&is)));
            }
            dropped += told.dropped;
            dropped_before += told.dropped_before;
            if (was.removals, &was.removals_hash) != (is.removals, &is.removals_hash) {
                found.push(of_zone(was, Changed::Removals, was.removals, is.removals));
            }
            if unexplained > 0 {
                found.push(of_zone(was, Changed::RowsGone, told.dropped + unexplained, told.dropped));
            }
            if (was.buckets, was.rows, &was.buckets_root) != (is.buckets, is.rows, &is.buckets_root) {
                if lost > 0 {
                    found.push(of_zone(was, Changed::BucketsDropped, was.buckets, lost));
                    if compared.named.is_empty() {
                        continue;
                    }
                }
                found.push(of_zone(was, Changed::Buckets, was.buckets, is.buckets));
                let Differing { mut named, unnamed: more, is_other: other } = compared;
                let many = named.len() as u64 + more;
                named.truncate(NAMED.saturating_sub(found.len()));
                unnamed += many - named.len() as u64;
                is_other |= other;
                let keys = keys(auditor, checkpoint, zone.id, &named).await?;
                found.extend(named.into_iter().map(|(start, changed, was_rows, is_rows)| HeadDifference {
                    bucket: Some(hex(&start)),
                    key: keys.get(&start).cloned(),
                    ..of_zone(was, changed, was_rows, is_rows)
                }));
            }
        }
        let ends_earlier = !is_other && found.iter().any(HeadDifference::ends_earlier);
        let ends_earlier = ends_earlier && found.iter().all(HeadDifference::ends_earlier);
        let dropped_since = dropped - dropped_before;
        Ok(Comparison { differences: found, unnamed, ends_earlier, dropped, dropped_since })
    })
}

fn of_zone(zone: &CheckpointZone, changed: Changed, was: u64, is: u64) -> HeadDifference {
    HeadDifference { zone: zone.zone.clone(), changed, bucket: None, key: None, was, is }
}

/// The start of a bucket's chain, what changed, how many rows there were, how many there are.
type Compared = (Hash, Changed, u64, u64);

/// The buckets of a zone that differ.
#[derive(Default)]
struct Differing {
    /// The first of them.
    named: Vec<Compared>,
    /// The number of the others.
    unnamed: u64,
    /// Does one differ otherwise than by its end?
    is_other: bool,
}

impl Differing {
    fn tell(&mut self, differs: Compared) {
        self.is_other |= !matches!(differs.1, Changed::BucketGone | Changed::BucketShortened);
        if self.named.len() < NAMED {
            self.named.push(differs);
        } else {
            self.unnamed += 1;
        }
    }
}

/// The keys of buckets that differ and are still there.
async fn keys(
    auditor: &Auditor,
    checkpoint: &Checkpoint,
    zone_id: i32,
    compared: &[Compared],
) -> Result<HashMap<Hash, String>> {
    let mut keys = HashMap::new();
    if compared.iter().any(|(_, changed, ..)| *changed != Changed::BucketGone) {
        each_bucket(auditor, zone_id, checkpoint.cut_at, |bucket| {
            let start = head(zone_id, &bucket).map(|head| head.start);
            if let Some(start) = start.filter(|start| compared.iter().any(|differs| differs.0 == *start)) {
                keys.insert(start, bucket.key);
            }
        })
        .await?;
    }
    Ok(keys)
}

/// The heads of a checkpoint, from the file that was written with it.
struct Old {
    file: BufReader<File>,
    next: Option<Head>,
    /// The number of those that it has and that are lost in the ledger.
    lost: u64,
}

impl Old {
    /// Opens the file, and makes sure that it is that of the checkpoint.
    fn open(path: &Path, checkpoint: &Checkpoint) -> Result<Self> {
        let unread = |e| Error::invalid(format!("{} cannot be read: {e}", path.display())).caused_by(e);
        let other = || {
            Error::invalid(format!(
                "{} is not the list of heads that was written with the checkpoint; use that one",
                path.display()
            ))
        };
        let mut file = BufReader::new(File::open(path).map_err(unread)?);
        let mut next = Head::read(&mut file).map_err(|_| other())?;
        for zone in &checkpoint.zones {
            let mut tree = Tree::default();
            while let Some(head) = next.filter(|head| head.zone_id == zone.zone_id) {
                tree.push(merkle::leaf(&head.bytes()), false);
                next = Head::read(&mut file).map_err(|_| other())?;
            }
            let (buckets, root, _) = tree.finish();
            if (buckets, hex(&root)) != (zone.buckets, zone.buckets_root.clone()) {
                return Err(other());
            }
        }
        if next.is_some() {
            return Err(other());
        }
        file.rewind().map_err(unread)?;
        next = Head::read(&mut file).map_err(unread)?;
        Ok(Self { file, next, lost: 0 })
    }

    /// Goes on up to and with the bucket that the ledger has next; None behind the last one of the zone.
    fn compare(&mut self, is: Option<&Head>, zone_id: i32, found: &mut Differing) -> Result<()> {
        loop {
            let before = |old: &Head| match is {
                Some(is) => old.bucket() < is.bucket(),
                None => old.zone_id <= zone_id,
            };
            let Some(gone) = self.next.filter(before) else { break };
            if gone.zone_id == zone_id {
                found.tell((gone.start, Changed::BucketGone, gone.seq.unsigned_abs(), 0));
            }
            self.advance()?;
        }
        let Some(is) = is else { return Ok(()) };
        match self.next.filter(|old| old.bucket() == is.bucket()) {
            None if is.is_lost() => {}
            None => found.tell((is.start, Changed::BucketAdded, 0, is.seq.unsigned_abs())),
            Some(was) => {
                if is.is_lost() {
                    self.lost += 1;
                } else if was != *is {
                    let changed = match is.seq.cmp(&was.seq) {
                        std::cmp::Ordering::Less => Changed::BucketShortened,
                        std::cmp::Ordering::Equal => Changed::BucketRewritten,
                        std::cmp::Ordering::Greater => Changed::BucketLengthened,
                    };
                    found.tell((is.start, changed, was.seq.unsigned_abs(), is.seq.unsigned_abs()));
                }
                self.advance()?;
            }
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        let unread =
            |e| Error::invalid(format!("the list of heads cannot be read to its end: {e}")).caused_by(e);
        self.next = Head::read(&mut self.file).map_err(unread)?;
        Ok(())
    }
}
