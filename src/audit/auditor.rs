//! The face of the audit.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::explain::{self, Explained};
use super::verify::{self, Verified, Verify, Verifying};
use crate::boxed::{BoxFuture, boxed};
use crate::decision::is_ahead;
use crate::entry::{History, Page};
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::shard::{Shard, owners};
use crate::store::{Maintenance, Of, Span, Store};
use crate::zone::{Zone, validate_name};

/// Auditors and analysts read the ledger by this, and change nothing. Made by
/// [`Limiter::auditor`](crate::Limiter::auditor).
///
/// Its connections need the rights of the role *auditor*. It takes no lock; each page that it reads is a statement of its
/// own, which is tried again when the database failed for a passing reason.
#[derive(Clone)]
pub struct Auditor {
    pub(super) store: Store,
    attempts: u32,
    deadline: Duration,
    /// Where several databases decide: each, with its name.
    shards: Arc<[(Shard, Self)]>,
}

impl Auditor {
    pub(crate) fn new(store: Store, attempts: u32, deadline: Duration) -> Self {
        Self { store, attempts, deadline, shards: Arc::default() }
    }

    /// Over all of several databases; what is the same in all is read in the first.
    pub(crate) fn of(first: Self, all: Vec<(Option<Shard>, Self)>) -> Self {
        if all.len() < 2 {
            return first;
        }
        Self { shards: all.into_iter().filter_map(|(shard, one)| Some((shard?, one))).collect(), ..first }
    }

    /// Each of several databases with its name; empty where there is one.
    pub(super) fn shards(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.shards.iter().map(|(shard, one)| (&*shard.name, one))
    }

    /// Of several databases the one to which a key belongs, and the one to which it will, by their names.
    pub(super) fn homes(&self, key: &str) -> Option<(&str, &str)> {
        let (was, will) = owners(self.shards.iter().map(|(shard, _)| shard), key)?;
        let name = |place: usize| self.shards.get(place).map(|(shard, _)| &*shard.name);
        name(was).zip(name(will))
    }

    pub(super) fn are_several(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Each database by itself.
    pub(super) fn each(&self) -> impl Iterator<Item = &Self> {
        let alone = self.shards.is_empty().then_some(self);
        alone.into_iter().chain(self.shards.iter().map(|(_, one)| one))
    }

    /// The time of a zone's last row, where it is not time for it yet: a clock was ahead.
    pub(super) async fn ahead(&self, zone_id: i32) -> Result<Option<DateTime<Utc>>> {
        let span = Span::new(Of::Zone(zone_id), &History { limit: 1, ..History::default() });
        let mut ahead: Option<DateTime<Utc>> = None;
        for one in self.each() {
            let last = one.page(move |store| async move { store.history(&span).await }).await?;
            let now = one.page(Store::now).await?;
            ahead = ahead.max(last.first().map(|row| row.decided_at).filter(|&at| is_ahead(at, now)));
        }
        Ok(ahead)
    }

    /// The database that has a bucket: to which its key belongs, unless it was moved.
    pub(super) async fn of_bucket(&self, zone: &str, key: &str) -> Result<&Self> {
        let Some((was, will)) = owners(self.shards.iter().map(|(shard, _)| shard), key) else {
            return Ok(self);
        };
        let at = |place: usize| self.shards.get(place).map(|(_, one)| one);
        let others = self.shards.iter().map(|(_, one)| one);
        let mut failed = None;
        for one in at(will).into_iter().chain(at(was)).chain(others) {
            match one.has(zone, key).await {
                Ok(true) => return Ok(one),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or_else(|| Ok(at(will).unwrap_or(self)), Err)
    }

    /// Fails where there are several databases, for what is asked of each by itself.
    pub(super) fn alone(&self, what: &str) -> Result<()> {
        match self.shards.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{what} is of one database, and this is a list of {}; do it for each by itself, with its own URL",
                self.shards.len()
            ))),
        }
    }

    /// Reads the ledger, newest row first, a page at a time.
    ///
    /// By transaction, by bucket (zone and key) or by zone a page is one index range; by a key alone, or by nothing at
    /// all, it is one for each zone. Rows that are decided while one pages backwards do not shift the pages. Of [several databases](crate::Limiter::sharded) a
    /// page has a few rows more where rows of the same time would else be parted.
    ///
    /// # Errors
    /// Unknown zone. Invalid: a key that no bucket can have, a limit out of range, `since` after `until`. Transient: the
    /// database did not answer within the deadline.
    pub fn history<'a>(&'a self, history: &'a History) -> BoxFuture<'a, Result<Page>> {
        boxed(async move {
            history.validate()?;
            super::history::pages(self, history).await
        })
    }

    /// Up to three keys that have a text in them, each behind its zone: for who does not know a key exactly. Only buckets whose heads
    /// are there are found, among the first 10,000 of each zone.
    ///
    /// # Errors
    /// Transient: the database did not answer within the deadline.
    pub fn near<'a>(
        &'a self,
        zone: Option<&'a str>,
        text: &'a str,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        boxed(async move {
            let mut found = Vec::new();
            for one in self.each() {
                found.extend(one.page(|store| super::history::near(store, zone, text)).await?);
            }
            Ok(found)
        })
    }

    /// The delay of the server behind the one whose data it shows, where it is a replica that can tell: the age of the
    /// last transaction that a standby of PostgreSQL shows, and zero where it shows all that it was sent. A node of
    /// Galera or of a replication group is asked nothing before it has caught up. None otherwise.
    ///
    /// # Errors
    /// Transient: the database did not answer within the deadline.
    pub fn behind(&self) -> BoxFuture<'_, Result<Option<Duration>>> {
        boxed(async move { self.page(|store| store.behind()).await })
    }

    /// When upkeep last came to its end, and how far partitions reach: what is watched of
    /// [`Owner::maintain`](crate::schema::Owner::maintain).
    ///
    /// One round trip. Takes no lock. Of several databases, what is told is that of the one that lags.
    ///
    /// # Errors
    /// Transient: the database did not answer within the deadline. Refused: the connection has not the rights of an auditor.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let limiter = tallygate::Limiter::connect("sqlite::memory:").await?;
    /// assert_eq!(limiter.auditor().maintenance().await?.finished_at, None);
    /// limiter.owner().maintain(tallygate::schema::Upkeep::default()).await?;
    /// assert!(limiter.auditor().maintenance().await?.finished_at.is_some());
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn maintenance(&self) -> BoxFuture<'_, Result<Maintenance>> {
        boxed(async move {
            let mut all: Option<Maintenance> = None;
            for one in self.each() {
                let stands = one.page(|store| store.maintenance()).await?;
                all = Some(all.map_or(stands.clone(), |all| all.and(stands)));
            }
            Ok(all.unwrap_or_default())
        })
    }

    /// Why a transaction was decided as it was: each of its rows with the policy, the charges, the level, the ban and the
    /// override that it was decided from, and whether it can be derived again. Of the charges that counted, the newest
    /// `charges` are listed.
    ///
    /// Takes no lock. Reads each bucket that the transaction touched from its first row, 2,000 rows at a time, each page
    /// a statement of its own: some 10 µs for each row before it. Has no deadline.
    ///
    /// # Errors
    /// Invalid: no row of the ledger has this transaction.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// let decision = limiter.check(Check::new("login", "user:42")).await?;
    /// let explained = limiter.auditor().explain(decision.txn_id, 20).await?;
    /// assert_eq!(explained.rows[0].left_before, Some(5));
    /// assert_eq!(explained.rows[0].reproduced, Some(true));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn explain(&self, txn: Uuid, charges: usize) -> BoxFuture<'_, Result<Explained>> {
        boxed(async move { explain::explain_all(self, txn, charges).await })
    }

    /// Walks every bucket and tells what in it is not as the library left it: rows that were edited, removed, inserted or
    /// moved, decisions that the rows before them do not lead to, heads and holds that are not what the rows lead to, zones
    /// whose versions were changed. Where nothing is told and every decision was derived, no window held more than its
    /// limit; [`Verified`] says what was walked and what could not be derived.
    ///
    /// Of [several databases](crate::Limiter::sharded) each is walked, one after the other, and held to have the zones of the first;
    /// a fault says which one it is in.
    ///
    /// Takes no lock and holds no snapshot: each page of rows is a statement of its own, and buckets may be in use. Reads
    /// every row once, on as many connections as there are jobs. Has no deadline; dropping the call ends it.
    ///
    /// # Errors
    /// Unknown zone. Invalid: a key without its zone; of several databases a place to go on from.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::audit::verify::{Verify, Verifying};
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// let everything = Verify::default();
    /// let auditor = limiter.auditor();
    /// let verified = auditor.verify(&everything, |told| {
    ///     if let Verifying::Fault(fault) = told {
    ///         println!("{fault:?}");
    ///     }
    /// });
    /// let verified = verified.await?;
    /// assert_eq!((verified.rows, verified.faults), (1, 0));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn verify(&self, what: &Verify, mut tell: impl FnMut(Verifying) + Send) -> Result<Verified> {
        if what.key.is_some() && what.zone.is_none() {
            return Err(Error::invalid("a key names a bucket only inside a zone; name the zone too"));
        }
        verify::verify_all(self, what, &mut tell).await
    }

    pub(super) async fn zones(&self) -> Result<Vec<Zone>> {
        self.page(|store| store.zones()).await
    }

    pub(super) async fn zone(&self, name: &str) -> Result<Zone> {
        validate_name(name)?;
        let zone = self.page(|store| store.zone(name)).await?;
        zone.ok_or_else(|| {
            Error::unknown_zone(format!("there is no zone {name:?}; list them with: tallygate zone list"))
        })
    }

    /// Reads what people wait for: within the deadline, tried again whatever went wrong that passes.
    pub(super) async fn page<'s, T, F>(&'s self, read: impl Fn(&'s Store) -> F + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 's,
    {
        let late = |_| {
            let deadline = self.deadline;
            Err(Error::transient(format!("the database did not answer within {deadline:?}; try again")))
        };
        timeout(self.deadline, self.until(Instant::now() + self.deadline, &|store| boxed(read(store))))
            .await
            .unwrap_or_else(late)
    }

    /// Reads one page of many: as [`page`](Self::page), without a deadline.
    pub(super) async fn read<'s, T, F>(&'s self, read: impl Fn(&'s Store) -> F + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 's,
    {
        self.until(Instant::now() + Duration::from_secs(86_400), &|store| boxed(read(store))).await
    }

    async fn until<'s, T>(
        &'s self,
        until: Instant,
        read: &(dyn Fn(&'s Store) -> BoxFuture<'s, Result<T>> + Sync),
    ) -> Result<T> {
        let read = |_| async { self.store.heed(read(&self.store).await) };
        Tries::new(self.attempts, until).run(read).await
    }
}
