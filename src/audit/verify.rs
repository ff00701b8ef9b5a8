//! Walks the ledger and says what in it is not as the library left it.
//!
//! Buckets are read in the order of their zone and key, in ranges of some 20,000 rows; several ranges at once, each on a
//! connection of its own. Every statement is short, reads a page by its key and sees what is committed then, so nothing is
//! held up and buckets may be in use. Memory holds a few pages, and of each bucket what its longest window does.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::Auditor;
use super::places::astray;
use super::walk::walk;
use super::zones::{Stored, unlike};
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, Result};
use crate::store::{Range, Store, StoredHead};
use crate::zone::Zone;

pub use super::fault::{Fault, FaultKind};

/// Heads that are read at a time.
const HEADS: u32 = 1_000;

/// About so many rows are a range.
const ROWS: i64 = 20_000;

/// The part of the ledger to verify.
///
/// ```
/// use tallygate::audit::verify::Verify;
/// let login = Verify::default().zone("login").jobs(4);
/// # let _ = login;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Verify {
    /// Only this zone.
    pub zone: Option<String>,
    /// Only this bucket; needs `zone`.
    pub key: Option<String>,
    /// Only what comes behind this bucket, as a verification told that was ended early: its zone and key.
    pub after: Option<(String, String)>,
    /// The number of connections to use: 1 or more.
    pub jobs: usize,
}

impl Default for Verify {
    fn default() -> Self {
        Self { zone: None, key: None, after: None, jobs: 1 }
    }
}

impl Verify {
    /// Only this zone.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Only this bucket; needs a zone.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Only what comes behind this bucket, as a verification told that was ended early.
    pub fn after(self, zone: impl Into<String>, key: impl Into<String>) -> Self {
        Self { after: Some((zone.into(), key.into())), ..self }
    }

    /// Sets the number of connections to use: 1 or more.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs, ..self }
    }
}

/// The news that a verification tells on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verifying {
    /// Something is wrong.
    Fault(Fault),
    /// This many faults more are in a bucket of which many were told.
    More(u64),
    /// This many decisions of one bucket cannot be derived again, since rows that they may depend on were
    /// dropped.
    NotDerivable(u64),
    /// This much was read since it told so last.
    Read {
        /// Buckets.
        buckets: u64,
        /// Rows.
        rows: u64,
    },
    /// This zone has rows up to this time, for which it is not time yet, by more than a minute: a clock was ahead. That is no
    /// fault of a row.
    Ahead(String, DateTime<Utc>),
    /// All up to this bucket, its zone and key, is verified.
    Passed(String, String),
}

/// The extent of what was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Verified {
    /// Zones.
    pub zones: u64,
    /// Buckets.
    pub buckets: u64,
    /// Rows.
    pub rows: u64,
    /// Parts into which the buckets were cut by their heads: as many were walked to their end as were planned.
    pub parts: u64,
    /// Faults.
    pub faults: u64,
    /// Rows that upkeep dropped before: they are not among those that were read, and nothing is said of their windows.
    pub dropped: u64,
    /// Rows, among those that were read, whose decision cannot be derived again, since rows that it may depend on were
    /// dropped. Their hashes are verified all the same.
    pub not_derivable: u64,
    /// The buckets of those rows: of their windows nothing is said.
    pub not_derivable_buckets: u64,
    /// Zones with rows for which it is not time yet, by more than a minute.
    pub ahead: u64,
    /// The database is one of tests, whose clock is set by hand: the times of its rows prove nothing.
    pub test_clock: bool,
}

impl AddAssign for Verified {
    /// Of another database with the same zones.
    fn add_assign(&mut self, other: Self) {
        self.zones = self.zones.max(other.zones);
        self.buckets += other.buckets;
        self.rows += other.rows;
        self.parts += other.parts;
        self.faults += other.faults;
        self.dropped += other.dropped;
        self.not_derivable += other.not_derivable;
        self.not_derivable_buckets += other.not_derivable_buckets;
        self.ahead += other.ahead;
        self.test_clock |= other.test_clock;
    }
}

/// A range of buckets of a zone, with their heads.
pub(super) struct Part {
    pub number: u64,
    pub zone: Arc<Stored>,
    pub range: Range,
    pub heads: Vec<StoredHead>,
}

pub(super) enum Told {
    Zone(Arc<Stored>),
    /// Of the zone of this number.
    Gone(i32, Gone),
    Say(Verifying),
    /// All parts are given out: so many.
    Planned(u64),
    /// The part of this number is done; up to where it went.
    Done(u64, Option<(String, String)>),
}

/// Rows that are not there, and those that may be about to go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone {
    /// Upkeep dropped them.
    pub dropped: u64,
    /// They are missing, as was told.
    pub missing: u64,
    /// They are older than what the last run of upkeep was to remove, and still there.
    pub old: u64,
}

impl AddAssign for Gone {
    fn add_assign(&mut self, more: Self) {
        self.dropped += more.dropped;
        self.missing += more.missing;
        self.old += more.old;
    }
}

pub(super) type Says = mpsc::Sender<Result<Told>>;

/// Every database by itself, and whether the zones of all are those of the first.
pub(crate) fn verify_all<'a>(
    auditor: &'a Auditor,
    what: &'a Verify,
    tell: &'a mut (dyn FnMut(Verifying) + Send),
) -> BoxFuture<'a, Result<Verified>> {
    boxed(async move {
        if !auditor.are_several() {
            return verify(auditor, what, tell).await;
        }
        if what.after.is_some() {
            return auditor.alone("a place to go on from").map(|()| Verified::default());
        }
        let mut all = Verified::default();
        let of_bucket = match (&what.zone, &what.key) {
            (Some(zone), Some(key)) => Some(auditor.of_bucket(zone, key).await?),
            _ => None,
        };
        for (name, one) in auditor.shards() {
            let is_asked = of_bucket.is_none_or(|of_bucket| std::ptr::eq(of_bucket, one));
            let mut say = |told| match told {
                Verifying::Fault(fault) => {
                    tell(Verifying::Fault(Fault { shard: Some(name.to_owned()), ..fault }))
                }
                // Elsewhere, other buckets come before it.
                Verifying::Passed(..) => {}
                told => tell(told),
            };
            if is_asked {
                all += verify(one, what, &mut say).await.map_err(|error| error.at(name))?;
            }
            for fault in unlike(auditor, one, what).await.map_err(|error| error.at(name))? {
                all.faults += 1;
                say(Verifying::Fault(fault));
            }
        }
        let mut say = |fault| {
            all.faults += 1;
            tell(Verifying::Fault(fault));
        };
        astray(auditor, what, &mut say).await?;
        Ok(all)
    })
}

async fn verify(
    auditor: &Auditor,
    what: &Verify,
    tell: &mut (dyn FnMut(Verifying) + Send),
) -> Result<Verified> {
    let jobs = what.jobs.max(1);
    let (says, mut said) = mpsc::channel(256);
    let (give, parts) = mpsc::channel(jobs);
    let parts = Arc::new(Mutex::new(parts));
    // They end with this call, also where it is dropped.
    let mut work = JoinSet::new();
    let (planned, plan, to) = (auditor.clone(), what.clone(), says.clone());
    work.spawn(async move { report(&to, planning(&planned, &plan, &give, &to).await).await });
    for _ in 0..jobs {
        let (auditor, parts, says) = (auditor.clone(), Arc::clone(&parts), says.clone());
        work.spawn(async move {
            while let Some(part) = { parts.lock().await.recv().await } {
                let walked = walk(&auditor, &part, &says).await;
                let walked = walked.map_err(|error| error.at(format!("zone {:?}", part.zone.name)));
                report(&says, walked).await;
            }
        });
    }
    // Where all who walk have died, nobody is left to give a part to.
    drop((says, parts));
    let mut verified = Verified::default();
    let (mut planned, mut next, mut done) = (None, 0, BTreeMap::new());
    let (mut zones, mut gone) = (Vec::new(), BTreeMap::<i32, Gone>::new());
    let mut unread = None;
    while let Some(told) = said.recv().await {
        let told = match told {
            // The faults of everything else are told first.
            Err(error) if !error.is_transient() => {
                unread.get_or_insert(error);
                continue;
            }
            told => told?,
        };
        match told {
            Told::Zone(zone) => zones.push(zone),
            Told::Gone(zone_id, more) => {
                verified.dropped += more.dropped;
                *gone.entry(zone_id).or_default() += more;
            }
            Told::Say(say) => {
                match &say {
                    Verifying::Fault(_) => verified.faults += 1,
                    Verifying::More(more) => verified.faults += more,
                    Verifying::NotDerivable(rows) => {
                        verified.not_derivable += rows;
                        verified.not_derivable_buckets += 1;
                    }
                    Verifying::Read { buckets, rows } => {
                        verified.buckets += buckets;
                        verified.rows += rows;
                    }
                    Verifying::Ahead(..) | Verifying::Passed(..) => {}
                }
                tell(say);
            }
            Told::Planned(parts) => planned = Some(parts),
            Told::Done(number, to) => {
                done.insert(number, to);
                while let Some(to) = done.remove(&next) {
                    next += 1;
                    to.into_iter().for_each(|(zone, key)| tell(Verifying::Passed(zone, key)));
                }
            }
        }
    }
    unread.map_or(Ok(()), Err)?;
    all_walked(work, planned, next).await?;
    (verified.zones, verified.parts) = (zones.len() as u64, next);
    let schema = auditor.read(Store::schema).await?;
    verified.test_clock = schema.is_some_and(|schema| schema.test_clock);
    if what.key.is_none() && what.after.is_none() {
        for zone in zones {
            if let Some(fault) = count(auditor, &zone, gone.remove(&zone.id).unwrap_or_default()).await? {
                verified.faults += 1;
                tell(Verifying::Fault(fault));
            }
            if let Some(at) = auditor.ahead(zone.id).await? {
                verified.ahead += 1;
                tell(Verifying::Ahead(zone.name.clone(), at));
            }
        }
    }
    Ok(verified)
}

/// Fails where a task died, which says nothing by itself, or where not every part that was planned was walked to its end.
async fn all_walked(mut work: JoinSet<()>, planned: Option<u64>, walked: u64) -> Result<()> {
    while let Some(ended) = work.join_next().await {
        ended.map_err(|died| {
            Error::database(format!("not all was verified: a part of the verification died: {died}"))
                .caused_by(died)
        })?;
    }
    if planned == Some(walked) {
        return Ok(());
    }
    let planned = planned.map_or("more".to_owned(), |planned| planned.to_string());
    Err(Error::database(format!(
        "not all was verified: {walked} parts were walked to their end, and {planned} were planned"
    )))
}

/// Did upkeep drop as many rows of a zone as are gone? Nothing is said where it went on meanwhile.
async fn count(auditor: &Auditor, zone: &Stored, gone: Gone) -> Result<Option<Fault>> {
    let Gone { dropped, missing, old } = gone;
    let (told, seq) = (zone.removals.dropped, zone.removals.seq);
    if (dropped..=dropped + missing + old).contains(&told)
        || !zone.faults.is_empty()
        || !auditor.read(|store| store.removals(zone.id, seq)).await?.is_empty()
    {
        return Ok(None);
    }
    let why = format!(
        "upkeep dropped {told} rows; by zone_txn_dropped and the rows that are left it were {dropped}"
    );
    Ok(Some(Fault::of_zone(&zone.name, FaultKind::WrongRemoval, why)))
}

/// The last that is said of some work: that it failed.
async fn report(says: &Says, result: Result<()>) {
    if let Err(error) = result {
        // The listener is gone with its call.
        let _ = says.send(Err(error)).await;
    }
}

pub(super) async fn say(says: &Says, told: Told) -> Result<()> {
    says.send(Ok(told)).await.map_err(|_| Error::transient("the verification was ended"))
}

/// Verifies the zones, and cuts them into parts by the heads of their buckets.
async fn planning(auditor: &Auditor, what: &Verify, give: &mpsc::Sender<Part>, says: &Says) -> Result<()> {
    let zones = auditor.read(|store| store.zones()).await?;
    let by_name = |name: &str| {
        let zone = zones.iter().find(|zone| zone.name == name);
        zone.ok_or_else(|| {
            Error::unknown_zone(format!("there is no zone {name:?}; list them with: tallygate zone list"))
        })
    };
    let after =
        what.after.as_ref().map(|(zone, key)| Ok::<_, Error>((by_name(zone)?.id, key))).transpose()?;
    let mut ids: Vec<i32> = match &what.zone {
        Some(name) => vec![by_name(name)?.id],
        None => {
            let mut ids: Vec<i32> = zones.iter().map(|zone| zone.id).collect();
            // Rows of a zone that is gone would else be seen by nobody.
            let mut last = i32::MIN;
            while let Some(id) = auditor.read(|store| store.ledger_zone_after(last)).await? {
                ids.push(id);
                last = id;
            }
            ids
        }
    };
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|&id| after.is_none_or(|(zone_id, _)| id >= zone_id));
    let mut number = 0;
    for id in ids {
        let mut range = match &what.key {
            Some(key) => Range::only(&(id, key.clone())),
            None => Range::all(id),
        };
        if let Some((_, key)) = after.filter(|&(zone_id, _)| zone_id == id) {
            range = range.behind(key);
        }
        let zone = zones.iter().find(|zone| zone.id == id);
        match parts(auditor, zone, range, &mut number, give, says).await {
            Err(error) if !error.is_transient() => report(says, Err(error)).await,
            given => given?,
        }
    }
    say(says, Told::Planned(number)).await
}

/// Verifies a zone, and cuts a range of its buckets into parts.
async fn parts(
    auditor: &Auditor,
    zone: Option<&Zone>,
    mut rest: Range,
    number: &mut u64,
    give: &mpsc::Sender<Part>,
    says: &Says,
) -> Result<()> {
    let stored = Arc::new(stored_zone(auditor, rest.zone_id, zone).await?);
    say(says, Told::Zone(Arc::clone(&stored))).await?;
    for fault in &stored.faults {
        say(says, Told::Say(Verifying::Fault(fault.clone()))).await?;
    }
    let mut given = async |range, heads| {
        let part = Part { number: *number, zone: Arc::clone(&stored), range, heads };
        *number += 1;
        // Where all who walk have died, their ends tell it.
        give.send(part).await.is_ok()
    };
    let mut heads = Vec::new();
    let mut rows = 0;
    let mut pages = Heads::of(rest.clone());
    loop {
        let page = pages.next(auditor).await.map_err(|error| error.at(format!("zone {:?}", stored.name)))?;
        if page.is_empty() {
            given(rest, heads).await;
            return Ok(());
        }
        for head in page {
            rows += head.head.seq;
            let key = head.key.clone();
            heads.push(head);
            if rows >= ROWS || heads.len() >= HEADS as usize {
                if !given(Range { to: key.clone(), ..rest.clone() }, std::mem::take(&mut heads)).await {
                    return Ok(());
                }
                (rows, rest) = (0, rest.behind(&key));
            }
        }
    }
}

async fn stored_zone(auditor: &Auditor, id: i32, zone: Option<&Zone>) -> Result<Stored> {
    let stored = async {
        let versions = auditor.read(|store| store.zone_chain(id)).await?;
        let mut stored = Stored::new(id, zone, &versions);
        stored.remove(auditor, &versions).await?;
        Ok(stored)
    };
    stored.await.map_err(|error: Error| error.at(format!("the zone with the number {id}")))
}

/// The heads of a range of buckets, in order, a page at a time: each tells the seq and the hash of its bucket's last row.
pub(crate) struct Heads {
    rest: Option<Range>,
}

impl Heads {
    pub fn of(range: Range) -> Self {
        Self { rest: Some(range) }
    }

    /// The next page; empty at the end. A statement of its own: each bucket is as it is at that moment.
    pub async fn next(&mut self, auditor: &Auditor) -> Result<Vec<StoredHead>> {
        let Some(rest) = self.rest.take() else { return Ok(Vec::new()) };
        let page = auditor.read(|store| store.heads(&rest, HEADS)).await?;
        if let Some(last) = page.last().filter(|_| page.len() >= HEADS as usize) {
            self.rest = Some(rest.behind(&last.key));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_was_walked_to_its_end_is_verified() {
        let work = |dies: bool| {
            let mut work = JoinSet::new();
            work.spawn(async {});
            work.spawn(async move { assert!(!dies, "as a driver does") });
            work
        };
        assert!(all_walked(work(false), Some(2), 2).await.is_ok());
        for (dies, planned) in [(true, Some(2)), (false, Some(3)), (false, None)] {
            let error = all_walked(work(dies), planned, 2).await.unwrap_err();
            assert!(error.to_string().starts_with("not all was verified"), "{error}");
        }
    }
}
