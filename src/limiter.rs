//! The face of the library.

mod combiner;
mod config;
mod floods;
mod history;
mod trace;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::check::Check;
use crate::decision::Decision;
use crate::entry::{History, Page};
use crate::error::{Error, Result};
use crate::migrate;
use crate::retry::Tries;
use crate::store::{Address, Joined, Pool, Request, Store, Terms};
use crate::zone::{BlockedRows, Policy, Zone, ZoneVersion, validate_name, validate_text};
use combiner::Combiner;
use floods::Floods;
use zones::Zones;

pub use config::{BatchConfig, Config};

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
}

struct Inner {
    store: Store,
    config: Config,
    combiner: Arc<Combiner>,
    /// Blocked checks that no row stands for yet.
    floods: Floods,
    zones: Zones,
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
            }),
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
        ended(timeout_at(until, self.inner.check(check, txn, until)).await, deadline, txn)
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
        let work = tokio::spawn(async move { inner.check_many(checks, txns, until).await });
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
    /// # let path = std::env::temp_dir().join(format!("tallygate-doc-{}.db", uuid::Uuid::now_v7()));
    /// # let url = format!("sqlite:{}", path.display());
    /// # let limiter = Limiter::connect(&url).await?;
    /// # limiter.set_zone("payments", &Policy::sliding_log(10_000, Duration::from_secs(86_400))?, None, "docs").await?;
    /// # let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    /// let decision = limiter.check_in(&mut *tx, Check::new("payments", "card:9f3c").cost(1_250)).await?;
    /// if decision.is_allowed() {
    ///     // insert the payment in the same transaction
    ///     tx.commit().await.unwrap();
    /// }
    /// # std::fs::remove_file(path).ok();
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
    /// [`BlockedRows`] are coalesced. They get theirs within a second or so by themselves; call this before the
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

    /// Makes a zone, or changes the policy of one; the next check anywhere decides by it.
    ///
    /// `description` None keeps the old one. `by` says who, for the version history. Setting what is already
    /// set changes nothing and makes no version. Buckets go on as they are: sliding windows judge their
    /// history by the new policy; token levels keep their tokens, capped by the new capacity, and a bucket
    /// that had no level starts full.
    pub async fn set_zone(
        &self,
        name: &str,
        policy: &Policy,
        description: Option<&str>,
        by: &str,
    ) -> Result<Zone> {
        validate_name(name)?;
        validate_text("description", description.unwrap_or_default())?;
        validate_text("the name of who changes the zone", by)?;
        self.inner
            .within(async {
                let mut tries = self.inner.tries(until(self.inner.config.deadline));
                loop {
                    match self.inner.store.set_zone(name, policy, description, by).await {
                        Err(error) if tries.again(&error).await => {}
                        result => return result,
                    }
                }
            })
            .await
    }

    /// Every zone, by name.
    pub async fn zones(&self) -> Result<Vec<Zone>> {
        self.inner.within(self.inner.store.zones()).await
    }

    /// One zone; None when there is none of this name.
    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        validate_name(name)?;
        self.inner.within(self.inner.store.zone(name)).await
    }

    /// Every version of a zone, oldest first.
    pub async fn zone_versions(&self, zone: &Zone) -> Result<Vec<ZoneVersion>> {
        self.inner.within(self.inner.store.zone_versions(zone.id)).await
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

impl Inner {
    async fn check(self: &Arc<Self>, check: Check, txn: Uuid, until: Instant) -> Result<Decision> {
        let asked = Instant::now();
        let zone = match self.zones.known(&check.zone) {
            Some(zone) => zone,
            None => {
                let (this, zone) = (Arc::clone(self), check.zone.clone());
                flat(tokio::spawn(async move { this.find_zone(&zone).await }).await)?
            }
        };
        let request = request(check, zone.id, txn);
        if !request.leaves_row() {
            let this = Arc::clone(self);
            return only(flat(tokio::spawn(async move { this.decide(vec![request], until).await }).await)?);
        }
        let coalesced = (zone.blocked_rows == BlockedRows::Coalesced).then(|| request.clone());
        if let Some(request) = &coalesced
            && let Some(decision) = self.floods.answer(request, asked)
        {
            trace::decided(&request.zone, Ok(&decision), asked.elapsed());
            return Ok(decision);
        }
        let decision = self.combiner.check(request, until).await?;
        if decision.zone_version > zone.version {
            self.renew_zone(&decision.zone);
        } else if let Some(request) = &coalesced {
            self.watch(request, &decision, asked);
        }
        Ok(decision)
    }

    async fn check_many(&self, checks: Vec<Check>, txns: Vec<Uuid>, until: Instant) -> Result<Vec<Decision>> {
        let mut requests = Vec::with_capacity(checks.len());
        for (check, txn) in checks.into_iter().zip(txns) {
            let zone = self.zone(&check.zone).await?;
            requests.push(request(check, zone.id, txn));
        }
        self.decide(requests, until).await
    }

    /// Decides requests in a call of their own.
    async fn decide(&self, mut requests: Vec<Request>, until: Instant) -> Result<Vec<Decision>> {
        let asked = Instant::now();
        let terms = Terms { isolation: self.config.isolation, until };
        let held = requests.iter().filter(|request| request.leaves_row()).map(Request::bucket).collect();
        let _entered = self.combiner.enter(held, until).await?;
        let mut tries = self.tries(until);
        let result = loop {
            match call(requests.len(), until, self.store.check(&requests, terms)).await {
                Err(error) if tries.again(&error).await => {
                    trace::count_retry();
                    // This attempt may have been committed after all.
                    requests.iter_mut().for_each(|request| request.fresh = false);
                }
                result => break result,
            }
        };
        trace::all_decided(&requests, &result, asked.elapsed());
        result
    }

    fn tries(&self, until: Instant) -> Tries {
        Tries::new(self.config.attempts, until)
    }

    /// Ends `work` that is not a check at the deadline.
    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.config.deadline;
        let late =
            |_| Err(Error::transient(format!("the database did not answer within {deadline:?}; try again")));
        timeout_at(until(deadline), work).await.unwrap_or_else(late)
    }
}

/// Makes a call to the database that carries so many checks and ends soon after the deadline in any case.
async fn call<T>(checks: usize, until: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let silent = |_| Err(Error::transient("the database did not answer; try again"));
    timeout_at(until + GRACE, trace::call(checks, call)).await.unwrap_or_else(silent)
}

/// What the caller of a check is told: an error that may hide a decision says how that is learned.
fn ended<T>(result: Result<Result<T>, Elapsed>, deadline: Duration, txn: Uuid) -> Result<T> {
    let ask_again = format!("whether it was decided is learned by asking again with transaction {txn}");
    match result {
        Ok(Err(error)) if error.is_transient() => {
            Err(Error::transient(format!("{error}; {ask_again}")).caused_by(error))
        }
        Ok(result) => result,
        Err(_) => Err(Error::transient(format!("no decision within {deadline:?}; {ask_again}"))),
    }
}

/// The result of work in a task of its own.
fn flat<T>(result: Result<Result<T>, JoinError>) -> Result<T> {
    result.unwrap_or_else(|failed| Err(Error::transient("the decision was cut short").caused_by(failed)))
}

fn only(mut decisions: Vec<Decision>) -> Result<Decision> {
    decisions.pop().ok_or_else(|| Error::database("the database gave no decision"))
}

fn until(deadline: Duration) -> Instant {
    Instant::now() + deadline.min(DEADLINE_MAX)
}

fn request(check: Check, zone_id: i32, txn: Uuid) -> Request {
    Request {
        zone: check.zone,
        zone_id,
        key: check.key,
        txn,
        cost: check.cost,
        fresh: check.txn.is_none(),
        record: check.record,
    }
}
