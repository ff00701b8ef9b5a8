//! The face of the library.

mod action;
mod audit;
mod calls;
mod combiner;
mod config;
#[cfg(feature = "audit")]
mod evidence;
mod floods;
mod history;
mod journal;
mod trace;
mod upkeep;
mod wait;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::check::Check;
use crate::decision::Decision;
use crate::entry::{History, Page};
use crate::error::Result;
use crate::migrate;
use crate::store::{Address, Joined, Pool, Store};
use calls::{Passing, call, ended, flat, only, request, until};
use combiner::Combiner;
use floods::Floods;
use wait::Waiters;
use zones::Zones;

pub use action::{Charged, Combined};
pub use config::{BatchConfig, Config};
pub use journal::Journal;
pub use zones::ZoneSetting;

/// How long after its deadline a call may still hold a connection. The database ends its lock waits at the
/// deadline; this is for a database that does not answer at all.
const GRACE: Duration = Duration::from_secs(5);

/// The longest deadline; a longer one counts as this.
const DEADLINE_MAX: Duration = Duration::from_secs(86_400);

/// Decides checks, and reads what was decided. Cheap to clone; clones share their connections, so use them from
/// one runtime.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::{Check, Limiter, Policy};
///
/// let limiter = Limiter::connect("sqlite::memory:").await?;
/// limiter.set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
/// for _ in 0..5 {
///     assert!(limiter.check(Check::new("login", "user:42")).await?.is_allowed());
/// }
/// let decision = limiter.check(Check::new("login", "user:42")).await?;
/// assert!(decision.blocked);
/// assert!(decision.retry_after().unwrap() <= Duration::from_secs(60));
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
    /// What passes while the database does not answer.
    journal: Option<Journal>,
}

struct Inner {
    store: Store,
    config: Config,
    combiner: Arc<Combiner>,
    /// Blocked checks that no row stands for yet.
    floods: Floods,
    zones: Zones,
    waiters: Waiters,
}

impl Limiter {
    /// Connects with the default [`Config`] to `postgres://…`, `mysql://…`, `mariadb://…` or `sqlite:FILE`.
    ///
    /// A SQLite file that is not there is made, with its schema. Any other database must have been migrated:
    /// the error says what to run.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Config::default()).await
    }

    /// Connects with settings.
    pub async fn connect_with(url: &str, config: Config) -> Result<Self> {
        let store = Store::connect(&Address::parse(url)?, config.connections.max(1)).await?;
        Self::open(store, config).await
    }

    /// Uses a pool that the caller's service already has. Give it an `after_release` hook that pings with a
    /// timeout when it uses rustls: see `docs/operations.md`.
    pub async fn with_pool(pool: impl Into<Pool>, config: Config) -> Result<Self> {
        Self::open(pool.into().0, config).await
    }

    async fn open(store: Store, config: Config) -> Result<Self> {
        migrate::gate(store.schema_version().await?)?;
        Ok(Self::over(store, config))
    }

    fn over(store: Store, config: Config) -> Self {
        let combiner = Combiner::new(store.clone(), &config);
        Self {
            inner: Arc::new(Inner {
                store,
                config,
                combiner,
                floods: Floods::default(),
                zones: Zones::default(),
                waiters: Waiters::default(),
            }),
            journal: None,
        }
    }

    /// Decides one check and records it; the answer is a committed ledger row.
    ///
    /// One round trip (three under SERIALIZABLE), and one more the first time that a zone is named. Locks
    /// the bucket's row until the decision is committed, and nothing else.
    ///
    /// Dropping the future, or its deadline, stops the waiting and not the database: no transaction and no
    /// lock is left behind, and what was decided is learned by asking again with the same transaction id.
    ///
    /// # Errors
    /// Invalid: an unknown zone, a key or a cost that cannot be stored. Conflict: the transaction was
    /// decided with another cost. Transient: the deadline passed, or conflicts did not end.
    pub async fn check(&self, check: Check) -> Result<Decision> {
        check.validate()?;
        let deadline = check.deadline.unwrap_or(self.inner.config.deadline);
        let txn = check.txn.unwrap_or_else(Uuid::now_v7);
        let until = until(deadline);
        let asked = self.journal.is_some().then(|| check.clone());
        let decision = ended(timeout_at(until, self.inner.check(check, txn, until)).await, deadline, txn);
        match (decision, asked) {
            (Err(error), Some(check)) if error.is_transient() => self.outage(check, txn, error).await,
            (decision, asked) => {
                if asked.is_some() {
                    self.catch_up();
                }
                decision
            }
        }
    }

    /// Decides several checks in one transaction and one call: the same decisions as one after the other.
    ///
    /// Each is decided by itself: one that is blocked does not hold back the others. Locks all their buckets
    /// in one order, so that callers with overlapping buckets cannot deadlock.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); then none of them happened.
    pub async fn check_many(&self, checks: Vec<Check>) -> Result<Vec<Decision>> {
        for check in &checks {
            check.validate()?;
        }
        let deadline =
            checks.iter().filter_map(|check| check.deadline).min().unwrap_or(self.inner.config.deadline);
        let until = until(deadline);
        let txns = checks.iter().map(|check| check.txn.unwrap_or_else(Uuid::now_v7)).collect::<Vec<_>>();
        let first = txns.first().copied().unwrap_or_default();
        // A task of its own: the caller may go away, the protocol with the database goes on to its end.
        let inner = Arc::clone(&self.inner);
        let work = tokio::spawn(async move { inner.check_many(checks, txns, Passing::Each, until).await });
        ended(timeout_at(until, work).await.map(flat), deadline, first)
    }

    /// Decides inside the caller's own transaction: the spent limit and the caller's rows are committed, or
    /// taken back, together.
    ///
    /// One round trip, and one more the first time that a zone is named. Holds the bucket's lock until the
    /// caller's transaction ends, so keep that short. Not retried: after a transient error the caller rolls back
    /// and runs its transaction again. The database's
    /// own lock timeout holds. On SQLite begin with `BEGIN IMMEDIATE`.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let folder = std::env::temp_dir().join(format!("tallygate-doc-{}", uuid::Uuid::now_v7()));
    /// # std::fs::create_dir(&folder).unwrap();
    /// # let url = format!("sqlite:{}", folder.join("test.db").display());
    /// # let limiter = Limiter::connect(&url).await?;
    /// # limiter.set_zone("payments", &Policy::sliding_log(10_000, Duration::from_secs(86_400))?, None, "docs").await?;
    /// # let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    /// let decision = limiter.check_in(&mut *tx, Check::new("payments", "card:9f3c").cost(1_250)).await?;
    /// if decision.is_allowed() {
    ///     // insert the payment in the same transaction
    ///     tx.commit().await.unwrap();
    /// }
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn check_in(&self, transaction: impl Into<Joined<'_>>, check: Check) -> Result<Decision> {
        check.validate()?;
        let Joined(mut caller) = transaction.into();
        let inner = &self.inner;
        let txn = check.txn.unwrap_or_else(Uuid::now_v7);
        // The caller's own connection looks for the zone: another one might not be had while this one is held.
        let zone = match inner.zones.known(&check.zone) {
            Some(zone) => zone,
            None => {
                let found = inner.store.find_zone_in(&mut caller, &check.zone).await?;
                inner.zones.remember(&check.zone, found)?
            }
        };
        let requests = [request(check, zone.id, txn)];
        let asked = Instant::now();
        let decisions = trace::call(1, inner.store.check_in(caller, &requests)).await;
        let decision = decisions.and_then(only);
        trace::decided(&requests[0].zone, decision.as_ref(), asked.elapsed());
        decision
    }

    /// What a check would find: the decision on cost 0, without a lock, a row or a charge.
    pub async fn peek(&self, zone: &str, key: &str) -> Result<Decision> {
        self.check(Check::new(zone, key).cost(0)).await
    }

    /// Records the blocked checks that were answered from memory and have no row yet, in zones whose
    /// [`BlockedRows`](crate::BlockedRows) are coalesced. They get theirs within a second or so by themselves; call this before the
    /// program ends.
    pub async fn flush(&self) -> Result<()> {
        let mut result = Ok(());
        for bucket in self.inner.floods.buckets() {
            result = result.and(self.inner.record(&bucket).await);
        }
        result
    }

    /// Reads the ledger, newest row first, a page at a time.
    ///
    /// By transaction, by bucket (zone and key) or by zone a page is one index range; by nothing at all it is
    /// one for each zone. Rows that are decided while one pages backwards do not shift the pages.
    pub async fn history(&self, history: &History) -> Result<Page> {
        history.validate()?;
        self.inner.within(self.read_history(history)).await
    }

    /// The same limiter with its time read from a counter of microseconds since 1970. Tests only; the
    /// embedded engine only.
    #[cfg(all(feature = "sqlite", feature = "test-clock"))]
    #[doc(hidden)]
    pub fn with_test_clock(self, us: Arc<std::sync::atomic::AtomicI64>) -> Self {
        let mut store = self.inner.store.clone();
        #[allow(irrefutable_let_patterns, reason = "with SQLite alone it always is one")]
        if let Store::Sqlite(sqlite) = &mut store {
            sqlite.set_clock(us);
        }
        Self::over(store, self.inner.config)
    }
}
