//! The face of the library.

mod action;
mod calls;
mod combiner;
mod config;
mod floods;
mod following;
mod holding;
mod journal;
mod leases;
mod load;
mod local;
mod moving;
mod operator;
mod outage;
mod owner;
mod predicted;
mod queues;
mod region;
mod routines;
mod shards;
mod shield;
mod spanning;
mod tenant;
mod trace;
mod wait;
mod waking;
mod zones;
mod zones_alike;

use std::sync::Arc;
use std::time::{self, Duration, SystemTime};

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

#[cfg(feature = "audit")]
use crate::audit::Auditor;
use crate::boxed::{BoxFuture, boxed, spawn};
use crate::check::Check;
use crate::decision::{Decision, Reason};
use crate::error::{Error, Result};
use crate::migrate;
use crate::shard::{Shard, databases};
use crate::store::{Address, Joined, Pool, Store, in_time};
#[cfg(feature = "testing")]
use crate::store::{Isolation, Terms};
use crate::zone::{Policy, validate_name};
use calls::{Passing, answer, call, ended, flat, only, until};
use combiner::Combiner;
use floods::Floods;
use local::Local;
use outage::Outage;
use shards::Shards;
use shield::Shielding;
use wait::Waiters;
use waking::Waking;
use zones::Zones;

pub use action::{Charged, Combined};
pub use config::{BatchConfig, Config, Spanning};
pub use journal::Journal;
pub use leases::Leases;
pub use load::Load;
pub use local::LocalJournal;
pub use moving::{Moved, Rebalanced};
pub use operator::Operator;
pub use owner::Owner;
pub use predicted::{Predicted, Prediction};
pub use queues::Queues;
pub use region::{Demand, Lent, Region, ServerLeases, Upstream};
pub use shield::Shield;
pub use tenant::{Lapsed, Tenant};
pub use trace::{CHECKS, SECONDS, describe};

/// The time after its deadline for which a call may still hold a connection. The database ends its lock waits
/// at the deadline; this is for a database that does not answer at all.
const GRACE: Duration = Duration::from_secs(5);

/// The longest deadline; a longer one counts as this.
const DEADLINE_MAX: Duration = Duration::from_secs(86_400);

/// Decides checks, and reads what was decided. Cheap to clone; clones share their connections, so use them from
/// one runtime.
///
/// # Errors
/// Each method that asks the database can give these. Transient: the database did not answer within
/// [`Config::deadline`], a lock or a connection was not had in time, or a connection broke. Schema: it is missing, or
/// not one that this program can work with. Refused: the database turned the program away, for want of a right.
/// Database: anything else of the database's, or of the machine's.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::{Check, Limiter, Policy};
///
/// let limiter = Limiter::connect("sqlite::memory:").await?;
/// limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
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
    shards: Shards,
    /// The limiters whose rights are used for what an app may not do, where they are not its own.
    others: Others,
    /// The journal of checks that pass while the database does not answer.
    journal: Option<Journal>,
    /// The journal of local decisions.
    local_journal: Option<LocalJournal>,
}

#[derive(Clone, Default)]
struct Others {
    operator: Option<Shards>,
    auditor: Option<Shards>,
    owner: Option<Shards>,
}

struct Inner {
    /// Its place among several databases.
    shard: Option<Shard>,
    store: Store,
    config: Config,
    combiner: Arc<Combiner>,
    /// Blocked checks that no row stands for yet.
    floods: Floods,
    local: Local,
    outage: Outage,
    shield: Option<Shielding>,
    zones: Zones,
    waiters: Waiters,
    waking: Waking,
}

impl Limiter {
    /// Connects with the default [`Config`] to `postgres://…`, `mysql://…`, `mariadb://…` or `sqlite:FILE`.
    ///
    /// Several servers of the same data are named together, `postgres://user@one:5432,two:5432/name?target=primary`: the first of
    /// them that takes writes (`primary`, the default), only reads (`replica`) or answers (`any`) is worked with, and calls go on at
    /// another one when it is gone.
    ///
    /// Databases that [decide together](Self::sharded) are named each before its URL, with white space between them:
    /// `eu-1=postgres://… eu-2=mysql://…`.
    ///
    /// A SQLite file that is not there is made, with its schema, unless [`Config::create`] says otherwise. Any other
    /// database must have been migrated.
    ///
    /// # Errors
    /// Those of [`connect_with`](Self::connect_with); where the database was not migrated, the error says what to run.
    pub fn connect(url: &str) -> BoxFuture<'_, Result<Self>> {
        boxed(async move { Self::connect_with(url, Config::default()).await })
    }

    /// Connects with settings.
    ///
    /// # Errors
    /// Transient: the server cannot be reached, or did not answer before [`Config::deadline`]. Schema: it is missing, older
    /// or newer than this program. Invalid: the URL cannot be read, or the clock of the runtime is paused
    /// (`tokio::time::pause`), under which every wait for a database is over at once; for tests that move time there is
    /// `testing::Clock`, behind the feature `testing`.
    pub fn connect_with(url: &str, config: Config) -> BoxFuture<'_, Result<Self>> {
        boxed(async move {
            if let Some(databases) = databases(url)? {
                return Box::pin(Self::sharded(databases, config)).await;
            }
            let address = Address::parse(url)?;
            let began = (Instant::now(), time::Instant::now());
            Self::connect_to(&address, config).await.map_err(|error| match began.0.elapsed() > 2 * began.1.elapsed() {
                true if error.is_transient() => Error::invalid(
                    "the clock of the runtime is paused, and jumps to the end of every wait for the database; resume it, and \
                     let tests move tallygate's own testing::Clock",
                )
                .caused_by(error),
                _ => error,
            })
        })
    }

    async fn connect_to(address: &Address, config: Config) -> Result<Self> {
        let until = until(config.deadline);
        let store = Self::store_at(address, &config, until).await?;
        let config = Self::open(&store, config, until).await?;
        Ok(Self::over(store, config))
    }

    async fn store_at(address: &Address, config: &Config, until: Instant) -> Result<Store> {
        let store = Store::connect(address, config.connections.max(1), config.create, until).await?;
        migrate::embed(&store).await?;
        Ok(store)
    }

    /// Uses a pool that the caller's service already has. Give it [`Pool::still_good`] as its hook `after_release`:
    /// a caller that goes away in the midst of a call can leave a connection on which what later callers are told is not
    /// committed, or is the answer to something else. See `docs/operations.md`.
    ///
    /// # Errors
    /// Schema: it is missing, older or newer than this program. Invalid: the clock of this host is before 1970. And
    /// those of [`Limiter`].
    pub async fn with_pool(pool: impl Into<Pool>, config: Config) -> Result<Self> {
        let store = pool.into().0;
        let config = Self::open(&store, config, until(config.deadline)).await?;
        Ok(Self::over(store, config))
    }

    /// Whether a database can be worked with, and by which settings.
    fn open(store: &Store, config: Config, until: Instant) -> BoxFuture<'_, Result<Config>> {
        boxed(async move {
            dated(SystemTime::now())?;
            let schema = in_time(until, store.schema()).await?;
            migrate::gate(schema.as_ref())?;
            if schema.is_some_and(|schema| schema.test_clock) {
                store.guess_no_time();
            }
            let batch = if in_time(until, store.is_distributed()).await? { None } else { config.batch };
            Ok(Config { batch, deadline: config.deadline.min(DEADLINE_MAX), ..config })
        })
    }

    fn over(store: Store, config: Config) -> Self {
        Self::of(Shards::one(Inner::new(None, store, config, Floods::default(), Local::default())))
    }

    fn of(shards: Shards) -> Self {
        Self { shards, others: Others::default(), journal: None, local_journal: None }
    }

    /// Decides one check and records it; the answer is a committed ledger row.
    ///
    /// One round trip where this process remembers the bucket, else two; two more under SERIALIZABLE, and one more the first time
    /// that a zone is named. Locks the bucket's row until the decision is committed, and nothing else.
    ///
    /// Dropping the future, or its deadline, stops the waiting and not the database: no transaction and no
    /// lock is left behind, and what was decided is learned by asking again with the same transaction id.
    ///
    /// # Errors
    /// Unknown zone. Invalid: a key or a cost that cannot be stored, or what the zone's algorithm has no use for.
    /// Conflict: the transaction was decided with another cost, or about another member. Transient: the deadline passed, or
    /// conflicts did not end.
    pub fn check(&self, check: Check) -> BoxFuture<'_, Result<Decision>> {
        boxed(async move {
            check.validate()?;
            let deadline = check.deadline.unwrap_or(self.shards.first().config.deadline);
            let (named, txn) = (check.txn.is_some(), check.txn.unwrap_or_else(Uuid::now_v7));
            let (until, cost) = (until(deadline), check.cost);
            let decide = move |check: Check, until| async move {
                match self.shards.are_several() {
                    // Boxed, as it is larger than all the rest.
                    true => Box::pin(self.shards.check(check, txn, until, deadline)).await,
                    false => {
                        let inner = self.shards.first();
                        inner.told(ended(
                            timeout_at(until, inner.check(check, txn, until)).await,
                            deadline,
                            txn,
                        ))
                    }
                }
            };
            let decision = match self.opens(std::slice::from_ref(&check)) {
                None => decide(check, until).await?,
                Some(open) => {
                    let decide = |until| {
                        let decided = decide(check.clone(), until);
                        async move { decided.await.map(|decision| vec![decision]) }
                    };
                    // Boxed: it is rare, and larger than all the rest.
                    Box::pin(open.or_unchecked(txn, until, decide)).await.and_then(only)?
                }
            };
            if let Some(journal) = &self.local_journal
                && let Some(take) = decision.local
            {
                journal.write(&decision, take, cost)?;
            }
            if decision.reason != Reason::Unchecked {
                self.catch_up();
            }
            Ok(answer(decision, named))
        })
    }

    /// Decides several checks in one transaction and one call: the same decisions as one after the other.
    ///
    /// Each is decided by itself: one that is blocked does not hold back the others. Locks all their buckets
    /// in one order, so that callers with overlapping buckets cannot deadlock.
    ///
    /// Of [several databases](Self::sharded) each decides its own in a transaction of its own, all at the same time.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); then none of them happened. Of several databases, those of one that did not fail may
    /// have happened: what became of them is learned by asking again with the same transactions.
    pub fn check_many(&self, checks: Vec<Check>) -> BoxFuture<'_, Result<Vec<Decision>>> {
        boxed(async move {
            for check in &checks {
                check.validate()?;
            }
            let deadline = self.shards.deadline(&checks);
            let until = until(deadline);
            let named: Vec<_> = checks.iter().map(|check| check.txn.is_some()).collect();
            let txns = checks.iter().map(|check| check.txn.unwrap_or_else(Uuid::now_v7)).collect::<Vec<_>>();
            let first = txns.first().copied().unwrap_or_default();
            // A task of its own: the caller may go away, the protocol with the database goes on to its end.
            let shards = self.shards.clone();
            let work = spawn(async move { shards.check_many(checks, txns, until).await });
            let decisions = ended(timeout_at(until, work).await.map(flat), deadline, first)?;
            Ok(decisions.into_iter().zip(named).map(|(decision, named)| answer(decision, named)).collect())
        })
    }

    /// Decides inside the caller's own transaction: the spent limit and the caller's rows are committed, or
    /// taken back, together.
    ///
    /// Two round trips; one more the first time that a zone is named, and on PostgreSQL where the transaction was begun by a
    /// statement, which the driver knows nothing of. Holds the bucket's lock until the caller's transaction ends, so keep that short. Not retried: after a transient error the caller rolls back and runs its
    /// transaction again. The database's own lock timeout holds. On SQLite begin with `BEGIN IMMEDIATE`.
    ///
    /// Everything that charges joins so: [`check_all_in`](Self::check_all_in), [`reserve_in`](Self::reserve_in),
    /// [`settle_in`](Self::settle_in), [`cancel_in`](Self::cancel_in), [`refund_in`](Self::refund_in),
    /// [`release_in`](Self::release_in).
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and those of joining. Invalid: the connection is of another database than the
    /// limiter's, or no transaction is open on it. Transient: a conflict, a deadlock, or a lock
    /// that was not had in time; on MySQL and MariaDB also a bucket that changed after the transaction began to read.
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
    /// # limiter.operator().set_zone("payments", &Policy::sliding_log(10_000, Duration::from_secs(86_400))?, None, "docs").await?;
    /// # let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    /// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    /// let decision = limiter.check_in(&mut tx, Check::new("payments", "card:9f3c").cost(1_250)).await?;
    /// if decision.is_allowed() {
    ///     // insert the payment in the same transaction
    ///     tx.commit().await.unwrap();
    /// }
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn check_in(&self, transaction: impl Into<Joined<'_>>, check: Check) -> Result<Decision> {
        check.validate()?;
        let (inner, caller) = self.shards.joined(transaction.into()).await?;
        let txn = check.txn.unwrap_or_else(Uuid::now_v7);
        inner.check_in(caller, vec![check], vec![txn], Passing::Each).await.and_then(only)
    }

    /// Looks at what a check would find: the decision on cost 0, without a lock, a row or a charge.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Invalid: a name or a key that cannot be stored. And those of
    /// [`Limiter`].
    pub fn peek<'a>(&'a self, zone: &'a str, key: &'a str) -> BoxFuture<'a, Result<Decision>> {
        boxed(async move { self.check(Check::new(zone, key).cost(0)).await })
    }

    /// The policy of a zone that is in force, with its version, as far as this limiter knows: it asks once, remembers, and
    /// asks again when a decision of the zone was made by a later version. [`Operator::zone`](crate::policy::Operator::zone)
    /// asks each time.
    ///
    /// At most one round trip; none for a zone that was asked for before. Needs no more rights than a check.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Schema: the policy has something in it that only a newer program knows. And
    /// those of [`Limiter`].
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// let (version, policy) = limiter.policy("login").await?;
    /// assert_eq!((version, policy.limit()), (1, 5));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn policy<'a>(&'a self, zone: &'a str) -> BoxFuture<'a, Result<(i32, Policy)>> {
        boxed(async move {
            validate_name(zone)?;
            let asked = zone.to_owned();
            let zone_of = move |inner: Arc<Inner>| {
                let zone = asked.clone();
                async move { inner.within(inner.zone(&zone)).await }
            };
            let found = match self.shards.all().find_map(|inner| inner.zones.known(zone)) {
                Some(known) => known,
                // Boxed, as it is rare and large.
                None => Box::pin(self.shards.any(zone_of)).await?,
            };
            let newer =
                || Error::schema(format!("zone {zone:?} has a policy of a newer tallygate; install that"));
            Ok((found.version, found.policy.ok_or_else(newer)?))
        })
    }

    /// Records the blocked checks that were answered from memory and have no row yet, in zones whose
    /// [`BlockedRows`](crate::policy::BlockedRows) are coalesced. They get theirs within a second or so by themselves; call this before the
    /// program ends. And [gives back](Self::settle_local) what was taken for local decisions.
    ///
    /// # Errors
    /// Those of [`Limiter`]. Invalid: more than a minute has passed since the check was blocked that the others
    /// followed. Every bucket is tried; the first error is told, and what could not be recorded is not tried again.
    pub fn flush(&self) -> BoxFuture<'_, Result<()>> {
        boxed(async move {
            let mut result = Ok(());
            for inner in self.shards.all() {
                for bucket in inner.floods.buckets() {
                    result = result.and(Box::pin(inner.record(&bucket)).await);
                }
            }
            result.and(Box::pin(self.settle_local()).await)
        })
    }

    /// For clients of capacity: leases. Shares the connections.
    pub fn leases(&self) -> Leases {
        Leases { shards: self.shards.clone() }
    }

    /// For those who offer items to queues, and for workers. Shares the connections.
    pub fn queues(&self) -> Queues {
        Queues { shards: self.shards.clone(), owner: None }
    }

    /// The acts of an operator: zones, bans, overrides.
    pub fn operator(&self) -> Operator {
        Operator { shards: self.others.operator.as_ref().unwrap_or(&self.shards).clone() }
    }

    /// The questions of an auditor: read the ledger, verify it, report on it.
    #[cfg(feature = "audit")]
    pub fn auditor(&self) -> Auditor {
        let shards = self.others.auditor.as_ref().unwrap_or(&self.shards);
        let one = |inner: &Arc<Inner>| {
            let Inner { shard, store, config, .. } = &**inner;
            (shard.clone(), Auditor::new(store.clone(), config.attempts, config.deadline))
        };
        Auditor::of(one(shards.first()).1, shards.all().map(one).collect())
    }

    /// The acts of the owner of the tables: upkeep, and erasing.
    pub fn owner(&self) -> Owner {
        Owner { shards: self.others.owner.as_ref().unwrap_or(&self.shards).clone() }
    }

    /// The same limiter, whose [`operator`](Self::operator) works with the connections and the rights of another one.
    /// A service that checks as *app* and sets zones needs it: an app may not.
    #[must_use]
    pub fn with_operator(mut self, operator: &Self) -> Self {
        self.others.operator = Some(operator.shards.clone());
        self
    }

    /// The same limiter, which writes each check that it decided locally into a file before it is answered.
    #[must_use]
    pub fn with_local_journal(self, journal: LocalJournal) -> Self {
        Self { local_journal: Some(journal), ..self }
    }

    /// As [`with_operator`](Self::with_operator), for the [`auditor`](Self::auditor).
    #[cfg(feature = "audit")]
    #[must_use]
    pub fn with_auditor(mut self, auditor: &Self) -> Self {
        self.others.auditor = Some(auditor.shards.clone());
        self
    }

    /// As [`with_operator`](Self::with_operator), for the [`owner`](Self::owner).
    #[must_use]
    pub fn with_owner(mut self, owner: &Self) -> Self {
        self.others.owner = Some(owner.shards.clone());
        self
    }

    /// Asks the database whether it is there and has a schema that this program can work with: what a service is asked
    /// before it gets traffic. Works with the rights of any role.
    ///
    /// One round trip. Takes no lock. Of [several databases](Self::sharded) one that answers is enough: where one is down, the
    /// buckets of the others are decided all the same.
    ///
    /// # Errors
    /// Transient: the database did not answer within the deadline. Schema: it was not migrated, or too far. Refused: the
    /// program may not ask.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let limiter = tallygate::Limiter::connect("sqlite::memory:").await?;
    /// limiter.ping().await?;
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn ping(&self) -> BoxFuture<'_, Result<()>> {
        boxed(async move {
            let fits = |inner: Arc<Inner>| async move {
                let schema = inner.within(inner.store.schema()).await?;
                migrate::fits(schema.as_ref()).map(drop)
            };
            self.shards.any(fits).await
        })
    }

    /// Ends well: records what is known from memory only, as [`flush`](Self::flush) does, and closes the connections. A pool
    /// that was given by [`with_pool`](Self::with_pool) stays open. Calls of other clones fail from then on.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush); the connections are closed nevertheless.
    pub fn close(self) -> BoxFuture<'static, Result<()>> {
        boxed(async move {
            let flushed = self.flush().await;
            for inner in self.shards.all() {
                inner.waking.end();
                Box::pin(inner.store.close()).await;
            }
            flushed
        })
    }

    /// The same limiter by a clock that a test moves.
    ///
    /// # Errors
    /// Invalid: it is not on the embedded engine. A server's database decides by its own clock; one of tests has one that is
    /// [set](Owner::set_clock).
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub fn with_clock(self, clock: &crate::testing::Clock) -> Result<Self> {
        let shards = self.shards.try_map(|inner| {
            let mut store = inner.store.clone();
            store.set_clock(clock)?;
            let local = Local::by(clock);
            Ok(Inner::new(inner.shard.clone(), store, inner.config, Floods::default(), local))
        });
        Ok(Self::of(shards?))
    }

    /// Decides what is remembered by this clock, which a test has put in the place of the database's as well; for this
    /// project's own tests.
    #[cfg(all(any(feature = "postgres", feature = "mysql"), feature = "testing"))]
    #[doc(hidden)]
    pub fn assume_clock(&self, clock: &crate::testing::Clock) {
        self.shards.all().for_each(|inner| inner.store.assume_clock(clock));
    }

    /// A row for so many blocked checks, as a flood leaves it; for this project's own tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn record_blocked<'a>(
        &'a self,
        zone_id: i32,
        key: &'a str,
        txn: Uuid,
        cost: i64,
        checks: u32,
    ) -> BoxFuture<'a, Result<()>> {
        boxed(async move {
            let request = calls::request(Check::new("", key).cost(cost).txn(txn), zone_id, txn);
            let terms = Terms { isolation: Isolation::RowLock, until: until(Duration::from_secs(30)) };
            self.shards.of(key).store.record_blocked(&request, checks, terms).await
        })
    }
}

impl Inner {
    fn new(shard: Option<Shard>, store: Store, config: Config, floods: Floods, local: Local) -> Arc<Self> {
        let combiner = Combiner::new(store.clone(), &config);
        Arc::new(Self {
            shard,
            store,
            config,
            combiner,
            floods,
            local,
            outage: Outage::default(),
            shield: config.shield.map(Shielding::from),
            zones: Zones::default(),
            waiters: Waiters::default(),
            waking: Waking::default(),
        })
    }
}

/// Ids of transactions begin with the time.
fn dated(now: SystemTime) -> Result<()> {
    match now < SystemTime::UNIX_EPOCH {
        true => Err(Error::invalid("the clock of this host is before 1970; set it")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_from_before_the_time_of_ids_is_refused() {
        assert!(dated(SystemTime::UNIX_EPOCH).is_ok());
        let error = dated(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{error}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_told_from_a_slow_database() {
        let Err(error) = Limiter::connect("sqlite::memory:").await else { panic!("connected") };
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("clock of the runtime is paused"), "{error}");
    }

    /// Each call allocates its future.
    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_check_is_small_enough_to_be_allocated_each_time() {
        let limiter = Limiter::connect("sqlite::memory:").await.unwrap();
        assert!(size_of_val(&*limiter.check(Check::new("login", "42"))) <= 2_048);
        assert!(size_of_val(&*limiter.policy("login")) <= 2_048);
        assert!(size_of_val(&*limiter.clone().close()) <= 2_048);
    }
}
