//! The databases. Only this room and `migrate` know sqlx; a store moves state and nothing else.

#[macro_use]
mod row;
#[macro_use]
mod stored;

mod asked;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod connections;
mod erase;
mod evidence;
mod fault;
mod line;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod upkeep;
mod url;

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;
use uuid::Uuid;

use crate::decision::Decision;
use crate::entry::{Entry, Overridden, Recorded};
use crate::error::{Error, Result};
use crate::zone::{Zone, ZoneVersion};

pub(crate) use asked::{
    Action, At, Bucket, Chained, Found, Of, Range, Request, Setting, Span, Spending, StoredHead, What,
    beginning,
};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use asked::{clock_of, hash_of, salt_of, spans_of};
pub use erase::Erased;
pub(crate) use erase::Erasing;
pub(crate) use evidence::{BucketAt, Evidence, EvidenceOf, HEADS, ROWS, ZoneAt};
pub(crate) use line::{Line, Lines};
#[cfg(feature = "mysql")]
pub(crate) use mysql::MySql;
#[cfg(feature = "postgres")]
pub(crate) use postgres::Postgres;
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::Sqlite;
pub(crate) use upkeep::{Facts, Needed, Plan};
pub use upkeep::{Maintained, Upkeep};
pub(crate) use url::{Address, Engine};

/// How decisions of the same bucket are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// READ COMMITTED and the bucket's row lock: one round trip, waiters queue at the lock.
    #[default]
    RowLock,
    /// SERIALIZABLE: three round trips, and conflicts are decided again. For databases or policies of a
    /// house that ask for it; the answers are the same. SQLite is always serializable.
    Serializable,
}

/// How to carry out a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub isolation: Isolation,
    /// No connection and no lock is waited for longer.
    pub until: Instant,
}

/// What is done about a bucket that another transaction holds.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Wait,
    /// Its requests come back undecided.
    Skip,
}

/// How the requests of a call are decided.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy)]
enum Passing {
    /// Each by itself.
    Each(Held),
    /// All pass, or none is spent from.
    Together,
}

/// The decisions of a call that waited for every bucket.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn all(decisions: Vec<Option<Decision>>) -> Result<Vec<Decision>> {
    let all: Option<Vec<_>> = decisions.into_iter().collect();
    all.ok_or_else(|| Error::database("the database left a check undecided"))
}

/// A connection of the caller's, with the caller's transaction open on it.
///
/// Made from a mutable reference: `limiter.check_in(&mut *tx, check)`.
pub struct Joined<'c>(pub(crate) Caller<'c>);

pub(crate) enum Caller<'c> {
    #[cfg(feature = "postgres")]
    Postgres(&'c mut sqlx::PgConnection),
    #[cfg(feature = "mysql")]
    MySql(&'c mut sqlx::MySqlConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(&'c mut sqlx::SqliteConnection),
    #[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
    None(std::convert::Infallible, std::marker::PhantomData<&'c ()>),
}

#[cfg(feature = "postgres")]
impl<'c> From<&'c mut sqlx::PgConnection> for Joined<'c> {
    fn from(connection: &'c mut sqlx::PgConnection) -> Self {
        Self(Caller::Postgres(connection))
    }
}

#[cfg(feature = "mysql")]
impl<'c> From<&'c mut sqlx::MySqlConnection> for Joined<'c> {
    fn from(connection: &'c mut sqlx::MySqlConnection) -> Self {
        Self(Caller::MySql(connection))
    }
}

#[cfg(feature = "sqlite")]
impl<'c> From<&'c mut sqlx::SqliteConnection> for Joined<'c> {
    fn from(connection: &'c mut sqlx::SqliteConnection) -> Self {
        Self(Caller::Sqlite(connection))
    }
}

/// One of the databases.
#[derive(Clone)]
pub(crate) enum Store {
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "mysql")]
    MySql(MySql),
    #[cfg(feature = "sqlite")]
    Sqlite(Sqlite),
}

/// An existing sqlx pool of any of the databases; made by `into()`.
pub struct Pool(pub(crate) Store);

#[cfg(feature = "postgres")]
impl From<sqlx::PgPool> for Pool {
    fn from(pool: sqlx::PgPool) -> Self {
        Self(Store::Postgres(Postgres::new(pool)))
    }
}

#[cfg(feature = "mysql")]
impl From<sqlx::MySqlPool> for Pool {
    fn from(pool: sqlx::MySqlPool) -> Self {
        Self(Store::MySql(MySql::new(pool)))
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Pool {
    fn from(pool: sqlx::SqlitePool) -> Self {
        Self(Store::Sqlite(Sqlite::new(pool)))
    }
}

/// What tests ask of a store before anything else does.
#[cfg(feature = "test-clock")]
#[doc(hidden)]
impl Pool {
    pub async fn record_blocked(
        &self,
        zone_id: i32,
        key: &str,
        txn: Uuid,
        cost: i64,
        checks: u32,
    ) -> Result<()> {
        let (zone, key) = (String::new(), key.to_owned());
        let (member, ttl_us) = (None, None);
        let request = Request {
            zone,
            zone_id,
            key,
            txn,
            cost,
            fresh: false,
            record: false,
            critical: false,
            member,
            ttl_us,
        };
        let until = Instant::now() + Duration::from_secs(30);
        self.0.record_blocked(&request, checks, Terms { isolation: Isolation::RowLock, until }).await
    }

    #[cfg(feature = "sqlite")]
    pub fn set_test_clock(&mut self, us: std::sync::Arc<std::sync::atomic::AtomicI64>) {
        #[allow(irrefutable_let_patterns, reason = "with SQLite alone it always is one")]
        if let Store::Sqlite(sqlite) = &mut self.0 {
            sqlite.set_clock(us);
        }
    }
}

/// Calls the same method of whichever store it is.
macro_rules! each {
    ($store:expr, $s:ident => $call:expr) => {
        match *$store {
            #[cfg(feature = "postgres")]
            Store::Postgres(ref $s) => $call,
            #[cfg(feature = "mysql")]
            Store::MySql(ref $s) => $call,
            #[cfg(feature = "sqlite")]
            Store::Sqlite(ref $s) => $call,
        }
    };
}

// Behind the macro, which it uses.
mod reading;

impl Store {
    /// Opens a pool for the address. SQLite's file is created and migrated on first use; other databases
    /// are migrated by an explicit command.
    pub async fn connect(address: &Address, connections: u32) -> Result<Self> {
        match address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => Postgres::connect(address, connections).await.map(Self::Postgres),
            #[cfg(feature = "mysql")]
            Engine::MySql => MySql::connect(address, connections).await.map(Self::MySql),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => Sqlite::connect(address, connections).await.map(Self::Sqlite),
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => Err(engine.missing()),
        }
    }

    /// How many connections it may open.
    pub fn connections(&self) -> u32 {
        each!(self, s => s.connections())
    }

    /// Number of the last migration; None where there is no schema.
    pub async fn schema_version(&self) -> Result<Option<i32>> {
        each!(self, s => s.schema_version().await)
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        each!(self, s => s.find_zone(name).await)
    }

    /// On the caller's connection.
    pub async fn find_zone_in(&self, caller: &mut Caller<'_>, name: &str) -> Result<Option<Found>> {
        match caller {
            #[cfg(feature = "postgres")]
            Caller::Postgres(connection) => postgres::find_zone(connection, name).await,
            #[cfg(feature = "mysql")]
            Caller::MySql(connection) => mysql::find_zone(connection, name).await,
            #[cfg(feature = "sqlite")]
            Caller::Sqlite(connection) => sqlite::find_zone(connection, name).await,
            #[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            Caller::None(never, _) => match *never {},
        }
    }

    /// Decides and commits: each request in order, all in one transaction.
    pub async fn check(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        each!(self, s => s.check(requests, terms).await)
    }

    /// As [`check`](Self::check), but a bucket that another transaction holds is not waited for: its requests
    /// come back undecided and nothing is recorded for them.
    pub async fn check_free(&self, requests: &[Request], terms: Terms) -> Result<Vec<Option<Decision>>> {
        each!(self, s => s.check_free(requests, terms).await)
    }

    /// Decides inside the caller's transaction.
    pub async fn check_in(&self, caller: Caller<'_>, requests: &[Request]) -> Result<Vec<Decision>> {
        match (self, caller) {
            #[cfg(feature = "postgres")]
            (Self::Postgres(_), Caller::Postgres(connection)) => {
                Postgres::check_in(connection, requests).await
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(_), Caller::MySql(connection)) => MySql::check_in(connection, requests).await,
            #[cfg(feature = "sqlite")]
            (Self::Sqlite(store), Caller::Sqlite(connection)) => store.check_in(connection, requests).await,
            #[allow(unreachable_patterns, reason = "with one database compiled in, the pair always matches")]
            _ => Err(Error::invalid(
                "the connection is of another database than the limiter's; join one of its own kind",
            )),
        }
    }

    /// Records so many checks that were answered blocked from memory as one row, in a transaction of its own.
    /// Nothing is decided or spent; the bucket's state is brought to now. Once for each transaction id.
    pub async fn record_blocked(&self, request: &Request, checks: u32, terms: Terms) -> Result<()> {
        let checks = i32::try_from(checks).ok().filter(|&checks| checks >= 1).ok_or_else(|| {
            Error::invalid(format!("a row cannot stand for {checks} checks; use 1 to {}", i32::MAX))
        })?;
        each!(self, s => s.record_blocked(request, checks, terms).await)
    }

    /// Decides requests of different buckets together and commits: each in order, in one transaction; when one is
    /// blocked none spends, and those that would have passed say `held_back`.
    pub async fn check_all(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        each!(self, s => s.check_all(requests, terms).await)
    }

    /// Records actions on different buckets, in the order of these, all in one transaction. What an action's transaction has done to its
    /// bucket already is not done again, but told.
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        each!(self, s => s.act(actions, terms).await)
    }

    /// What the checks of a transaction spent, newest first.
    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        each!(self, s => s.charges(txn).await)
    }

    /// Makes zones or changes them, all in one transaction; what changes nothing makes no version.
    pub async fn set_zones(&self, settings: &[Setting], by: &str) -> Result<Vec<Zone>> {
        each!(self, s => s.set_zones(settings, by).await)
    }

    /// The overrides in force in a zone, by bucket.
    pub async fn overrides(&self, zone_id: i32) -> Result<Vec<Overridden>> {
        each!(self, s => s.overrides(zone_id).await)
    }

    pub async fn zones(&self) -> Result<Vec<Zone>> {
        each!(self, s => s.zones().await)
    }

    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        each!(self, s => s.zone(name).await)
    }

    pub async fn zone_versions(&self, zone_id: i32) -> Result<Vec<ZoneVersion>> {
        each!(self, s => s.zone_versions(zone_id).await)
    }

    /// The database's time, and of each zone what upkeep must know.
    pub async fn facts(&self) -> Result<(DateTime<Utc>, Vec<Facts>)> {
        each!(self, s => s.facts().await)
    }

    /// Makes what is ahead and removes what is not needed, in short steps.
    pub async fn maintain(&self, plan: &Plan) -> Result<Maintained> {
        each!(self, s => s.maintain(plan).await)
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        each!(self, s => s.history(span).await)
    }
}

/// True when a connection that comes back to a pool of ours can be used again.
///
/// A query that was cancelled while it waited leaves its answer, often an error, for the next reader. The
/// first ping takes that error and the second one tells. Without this the pool closes such a connection
/// the hard way, which with rustls can wait for ever and keep the pool's slot.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn still_good<C: sqlx::Connection>(connection: &mut C) -> bool {
    let ping = async { connection.ping().await.is_ok() || connection.ping().await.is_ok() };
    tokio::time::timeout(Duration::from_secs(5), ping).await.unwrap_or(false)
}
