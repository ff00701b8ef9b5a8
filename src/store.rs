//! The databases. Only this room and `migrate` know sqlx; a store moves state and nothing else.

#[macro_use]
mod row;
#[macro_use]
mod stored;
#[macro_use]
mod acts;

mod asked;
#[cfg(all(target_os = "linux", any(feature = "postgres", feature = "mysql")))]
mod at_once;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod columns;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod connections;
mod evidence;
mod fault;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod hosts;
mod line;
mod list;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod removal;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod renewal;
mod shapes;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod upkeep;
mod url;

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use std::future::pending;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::broadcast::Sender;
use tokio::time::Instant;
use uuid::Uuid;

use crate::boxed::{BoxFuture, boxed};
use crate::decide;
use crate::decision::{Decision, Velocity};
use crate::engine::{Action, Passing, Request, Taking, Took};
use crate::entry::{Entry, Overridden, Recorded};
use crate::error::{Error, Result};
use crate::item::{Item, Noted, Offer, Offered, Said, Size, Take, Taken};
use crate::lease::{Lease, Want};
use crate::shard::Among;
use crate::zone::{Policy, Zone, ZoneSetting, ZoneVersion};

pub(crate) use asked::{
    At, Bucket, Chained, Found, Of, Range, Schema, Span, Spending, StoredHead, StoredItem, ZoneRemoved,
    beginning, ending,
};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use asked::{hash_of, salt_of, spans_of};
pub use erase::Erased;
pub(crate) use erase::Erasing;
pub(crate) use evidence::{BucketAt, Evidence, EvidenceOf, HEADS, ROWS, ZoneAt};
pub(crate) use fault::was_taken_back;
pub(crate) use line::{Line, Lines};
pub(crate) use moving::{Moving, Standing};
#[cfg(feature = "mysql")]
pub(crate) use mysql::MySql;
#[cfg(feature = "postgres")]
pub(crate) use postgres::Postgres;
pub(crate) use removal::{REMOVALS, Removal};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::Sqlite;
pub(crate) use upkeep::{Facts, Needed, Plan};
pub use upkeep::{Maintained, Maintenance, Upkeep};
pub(crate) use url::{Address, Engine};

/// The way in which decisions of the same bucket are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// READ COMMITTED and the bucket's row lock: one round trip, waiters queue at the lock.
    #[default]
    RowLock,
    /// SERIALIZABLE: three round trips, and conflicts are decided again. For databases or policies of a
    /// house that ask for it; the answers are the same. SQLite is always serializable.
    Serializable,
}

/// The terms on which a call is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub isolation: Isolation,
    /// No connection and no lock is waited for longer.
    pub until: Instant,
}

/// Reads the rows of a table. An error names it, and the row.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
fn rows_of<R: Named, T>(table: &str, rows: &[R], read: impl Fn(&R) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(|row| row_of(table, row, &read)).collect()
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
fn row_of<R: Named, T>(table: &str, row: &R, read: impl Fn(&R) -> Result<T>) -> Result<T> {
    read(row).map_err(|error| match row.name() {
        Some(name) => error.at(name).at(table),
        None => error.at(table),
    })
}

/// A row that is told from others of its table by what it says.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
trait Named {
    /// Its zone, version, bucket and seq, as far as it says them.
    fn name(&self) -> Option<String>;
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl<R: sqlx::Row> Named for R
where
    for<'c> &'c str: sqlx::ColumnIndex<R>,
    for<'r> i32: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    for<'r> i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    for<'r> String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    for<'r> Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    fn name(&self) -> Option<String> {
        let text = |column| {
            let bytes =
                || self.try_get::<Vec<u8>, _>(column).ok().and_then(|key| String::from_utf8(key).ok());
            let text = self.try_get::<String, _>(column).ok().or_else(bytes);
            text.map(|text| format!("{column} {text:?}"))
        };
        let number = |column| self.try_get::<i32, _>(column).ok().map(|number| format!("{column} {number}"));
        let seq = self.try_get::<i64, _>("seq").ok().map(|seq| format!("seq {seq}"));
        let named =
            [text("name"), text("zone"), number("zone_id"), number("version"), text("bucket_key"), seq];
        named.into_iter().flatten().reduce(|named, next| format!("{named}, {next}"))
    }
}

/// The decisions of a call that waited for every bucket.
fn all(decisions: Result<Vec<Option<Decision>>>) -> Result<Vec<Decision>> {
    let all: Option<Vec<_>> = decisions?.into_iter().collect();
    all.ok_or_else(|| Error::database("the database left a check undecided"))
}

/// The caller's transaction: `limiter.check_in(&mut tx, check)`, or a connection on which one is open.
pub struct Joined<'c>(Caller<'c>);

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

/// From a connection, and from a transaction of the driver's.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
macro_rules! joins {
    ($database:ident, $connection:ty) => {
        impl<'c> From<&'c mut $connection> for Joined<'c> {
            fn from(connection: &'c mut $connection) -> Self {
                Self(Caller::$database(connection))
            }
        }

        impl<'c> From<&'c mut sqlx::Transaction<'_, sqlx::$database>> for Joined<'c> {
            fn from(transaction: &'c mut sqlx::Transaction<'_, sqlx::$database>) -> Self {
                Self(Caller::$database(transaction))
            }
        }
    };
}

#[cfg(feature = "postgres")]
joins!(Postgres, sqlx::PgConnection);
#[cfg(feature = "mysql")]
joins!(MySql, sqlx::MySqlConnection);
#[cfg(feature = "sqlite")]
joins!(Sqlite, sqlx::SqliteConnection);

impl<'c> Joined<'c> {
    /// The connection, where a transaction is open on it: without one each statement would be committed by itself.
    pub(crate) async fn caller(self) -> Result<Caller<'c>> {
        let Self(mut caller) = self;
        let joins = match &mut caller {
            #[cfg(feature = "postgres")]
            Caller::Postgres(connection) => postgres::is_in_transaction(connection).await?,
            // The routines refuse.
            #[cfg(feature = "mysql")]
            Caller::MySql(_) => true,
            #[cfg(feature = "sqlite")]
            Caller::Sqlite(connection) => sqlite::is_in_transaction(connection).await?,
            #[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            Caller::None(never, _) => match *never {},
        };
        match joins {
            true => Ok(caller),
            false => Err(Error::invalid(
                "the connection has no transaction open that could be joined; begin one, or use the call whose name does \
                 not end in _in",
            )),
        }
    }
}

/// The database, shared by its clones. A crate that drops the last of them compiles no part of it.
#[derive(Clone)]
pub(crate) struct Store(Arc<dyn AsRef<Database> + Send + Sync>);

/// One of the databases.
pub(crate) enum Database {
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "mysql")]
    MySql(MySql),
    #[cfg(feature = "sqlite")]
    Sqlite(Sqlite),
}

impl AsRef<Self> for Database {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<Database> for Store {
    fn from(database: Database) -> Self {
        Self(Arc::new(database))
    }
}

/// An existing sqlx pool of any of the databases; made by `into()`.
pub struct Pool(pub(crate) Store);

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl Pool {
    /// True when a connection that comes back to a pool can be used by the next caller; for the hook `after_release` of a
    /// pool that is the caller's own. Pools that the library opens have it.
    ///
    /// It ends a transaction that was left open by a caller that went away in the midst of beginning it, which
    /// the driver overlooks (sqlx 0.9.0, its issue 4393), and reads an answer that nobody waited for. Of a connection that
    /// does not answer within 5 seconds, or answers something else than was asked, it tells false, and the pool closes it.
    ///
    /// Three round trips, four after a call that was cancelled; no locks.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # async fn pool() -> Result<sqlx::SqlitePool, sqlx::Error> {
    /// let pool = sqlx::sqlite::SqlitePoolOptions::new()
    ///     .after_release(|connection, _| Box::pin(async move { Ok(tallygate::Pool::still_good(connection).await) }))
    ///     .connect("sqlite::memory:")
    ///     .await?;
    /// # Ok(pool) }
    /// ```
    pub async fn still_good<C: sqlx::Connection>(connection: &mut C) -> bool {
        connections::still_good(connection).await
    }
}

#[cfg(feature = "postgres")]
impl From<sqlx::PgPool> for Pool {
    fn from(pool: sqlx::PgPool) -> Self {
        Self(Database::Postgres(Postgres::new(pool)).into())
    }
}

#[cfg(feature = "mysql")]
impl From<sqlx::MySqlPool> for Pool {
    fn from(pool: sqlx::MySqlPool) -> Self {
        Self(Database::MySql(MySql::new(pool)).into())
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Pool {
    fn from(pool: sqlx::SqlitePool) -> Self {
        Self(Database::Sqlite(Sqlite::new(pool)).into())
    }
}

/// Calls the same method of whichever store it is.
macro_rules! each {
    ($store:expr, $s:ident => $call:expr) => {
        match *$store.database() {
            #[cfg(feature = "postgres")]
            $crate::store::Database::Postgres(ref $s) => $call,
            #[cfg(feature = "mysql")]
            $crate::store::Database::MySql(ref $s) => $call,
            #[cfg(feature = "sqlite")]
            $crate::store::Database::Sqlite(ref $s) => $call,
        }
    };
}

/// Calls again, each time in a transaction of its own, while there is more to settle in a queue than one is to hold.
macro_rules! until_settled {
    ($call:expr) => {
        loop {
            // With no database compiled in, the call is of no type.
            let settled: Result<Option<_>> = $call;
            if let Some(done) = settled? {
                return Ok(done);
            }
        }
    };
}

/// Calls the same method of whichever store it is, on the caller's connection.
macro_rules! joined {
    ($store:expr, $caller:expr, ($s:ident, $connection:ident) => $call:expr) => {
        match ($store.database(), $caller) {
            #[cfg(feature = "postgres")]
            ($crate::store::Database::Postgres($s), Caller::Postgres($connection)) => $call,
            #[cfg(feature = "mysql")]
            ($crate::store::Database::MySql($s), Caller::MySql($connection)) => $call,
            #[cfg(feature = "sqlite")]
            ($crate::store::Database::Sqlite($s), Caller::Sqlite($connection)) => $call,
            #[allow(unreachable_patterns, reason = "with one database compiled in, the pair always matches")]
            _ => Err(Error::invalid(
                "the connection is of another database than the limiter's; join one of its own kind",
            )),
        }
    };
}

// Behind the macros, which they use.
mod erase;
mod moving;
mod reading;

impl Store {
    /// Opens a pool for the address. With `create` a SQLite file that is not there is made.
    /// A server that says nothing is given up at `until`.
    pub async fn connect(address: &Address, connections: u32, create: bool, until: Instant) -> Result<Self> {
        #[cfg(not(feature = "sqlite"))]
        let _ = create;
        #[cfg(not(any(feature = "postgres", feature = "mysql")))]
        let _ = until;
        let database: Database = match address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => Database::Postgres(Postgres::connect(address, connections, until).await?),
            #[cfg(feature = "mysql")]
            Engine::MySql => Database::MySql(MySql::connect(address, connections, until).await?),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => Database::Sqlite(Sqlite::connect(address, connections, create).await?),
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => return Err(engine.missing()),
        };
        Ok(database.into())
    }

    pub fn database(&self) -> &Database {
        (*self.0).as_ref()
    }

    /// By a clock that a test moves; only the embedded engine has none of its own.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub fn set_clock(&mut self, clock: &crate::testing::Clock) -> Result<()> {
        #[allow(irrefutable_let_patterns, reason = "with SQLite alone it always is one")]
        let Database::Sqlite(sqlite) = self.database() else { return Err(no_test_clock()) };
        *self = Database::Sqlite(sqlite.by(clock.clone())).into();
        Ok(())
    }

    /// Uses the clock that a test has put in the place of a server's.
    #[cfg(all(any(feature = "postgres", feature = "mysql"), feature = "testing"))]
    pub fn assume_clock(&self, clock: &crate::testing::Clock) {
        match self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres(postgres) => postgres.process.memory.set_clock(clock),
            #[cfg(feature = "mysql")]
            Database::MySql(mysql) => mysql.process.memory.set_clock(clock),
            #[cfg(feature = "sqlite")]
            Database::Sqlite(_) => {}
        }
    }

    /// Sets the clock of a test, and moves it forwards.
    #[cfg(feature = "testing")]
    pub async fn turn_clock(&self, at: Option<DateTime<Utc>>, by: std::time::Duration) -> Result<()> {
        match self.schema().await?.is_some_and(|schema| schema.test_clock) {
            true => each!(self, s => s.turn_clock(at, by).await),
            false => Err(no_test_clock()),
        }
    }

    /// Guesses no time: a test sets the clock.
    pub fn guess_no_time(&self) {
        match *self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres(ref postgres) => postgres.process.memory.guess_no_time(),
            #[cfg(feature = "mysql")]
            Database::MySql(ref mysql) => mysql.process.memory.guess_no_time(),
            #[cfg(feature = "sqlite")]
            Database::Sqlite(_) => {}
        }
    }

    /// Closes its connections, unless they are the caller's.
    pub async fn close(&self) {
        each!(self, s => s.close().await);
    }

    /// A file of this process, which nobody else prepares.
    pub fn is_embedded(&self) -> bool {
        #[cfg(feature = "sqlite")]
        #[allow(irrefutable_let_patterns, reason = "with SQLite alone it always is one")]
        if let Database::Sqlite(_) = self.database() {
            return true;
        }
        false
    }

    /// The number of connections that it may open.
    pub fn connections(&self) -> u32 {
        each!(self, s => s.connections.most())
    }

    /// The number of them that are in a call, and the number that are open beside these.
    pub fn in_use_and_idle(&self) -> (u32, u32) {
        each!(self, s => s.connections.in_use_and_idle())
    }

    /// May a call that failed at one server pass at another?
    pub fn is_of_several(&self) -> bool {
        each!(self, s => s.connections.are_of_several())
    }

    /// The server failed in a way that another one may not: before the next call all are asked.
    pub fn doubt(&self) {
        each!(self, s => s.connections.doubt());
    }

    /// The end of a call, after which another server is looked for where this one was to blame.
    pub fn heed<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if fault::is_of_the_server(error) {
                self.doubt();
            }
        })
    }

    /// Does a server answer that can be worked with? Asked on a connection of its own, so that neither a lock nor a pool
    /// that is in use is waited for. That it has too many connections, for one, is an answer.
    pub async fn is_there(&self, until: Instant) -> bool {
        match in_time::<Option<Schema>>(until, async { each!(self, s => s.sign(until).await) }).await {
            Ok(_) => true,
            Err(error) => fault::is_told(&error),
        }
    }

    /// The state of the schema; None where there is none.
    pub async fn schema(&self) -> Result<Option<Schema>> {
        each!(self, s => s.schema().await)
    }

    /// Grants a lease, or tells what was granted under the transaction before.
    pub async fn grant(&self, zone_id: i32, want: &Want, txn: Uuid, terms: Terms) -> Result<Lease> {
        each!(self, s => s.grant(zone_id, want, txn, terms).await)
    }

    /// Takes units for local decisions, or tells what was taken under the transaction before.
    pub async fn take_units(&self, taking: &Taking, terms: Terms) -> Result<Option<Took>> {
        each!(self, s => s.take_units(taking, terms).await)
    }

    /// The leases of a bucket that have not ended.
    pub async fn leases(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Vec<decide::Standing>> {
        each!(self, s => s.leases((zone_id, key), terms).await)
    }

    /// Reserves what requests of its shape cost lately, and tells how much that was; or what was reserved before.
    pub async fn reserve_predicted(&self, request: &Request, terms: Terms) -> Result<(Decision, i64)> {
        each!(self, s => s.reserve_predicted(request, terms).await)
    }

    /// The present knowledge of a shape in a bucket.
    pub async fn known_shape(
        &self,
        zone_id: i32,
        key: &str,
        shape: &str,
        terms: Terms,
    ) -> Result<Option<decide::Shape>> {
        each!(self, s => s.known_shape((zone_id, key), shape, terms).await)
    }

    /// Offers an item to a queue, or tells what became of it when it was offered under the transaction before.
    pub async fn offer(&self, zone_id: i32, offer: &Offer, txn: Uuid, terms: Terms) -> Result<Offered> {
        until_settled!(each!(self, s => s.offer(zone_id, offer, txn, terms).await))
    }

    /// Takes what is next in a queue.
    pub async fn take_next(&self, zone_id: i32, take: &Take, terms: Terms) -> Result<Taken> {
        until_settled!(each!(self, s => s.take_next(zone_id, take, terms).await))
    }

    /// Records what a worker says of an item that it took.
    pub async fn progress(&self, zone_id: i32, said: &Said, terms: Terms) -> Result<Noted> {
        until_settled!(each!(self, s => s.progress(zone_id, said, terms).await))
    }

    /// The state of an item.
    pub async fn item(&self, zone_id: i32, queue: &str, txn: Uuid, terms: Terms) -> Result<Option<Item>> {
        each!(self, s => s.item((zone_id, queue), txn, terms).await)
    }

    /// The dead items of a queue behind one of them, at most so many.
    pub async fn dead(
        &self,
        zone_id: i32,
        queue: &str,
        after: Option<Uuid>,
        most: u32,
        terms: Terms,
    ) -> Result<Vec<Item>> {
        each!(self, s => s.dead((zone_id, queue), after, most, terms).await)
    }

    /// The size of a queue.
    pub async fn size(&self, zone_id: i32, queue: &str, terms: Terms) -> Result<Size> {
        each!(self, s => s.size((zone_id, queue), terms).await)
    }

    /// Hands on what other processes tell of queues, while anybody hears it; for ever where they tell nothing.
    pub async fn listen(&self, told: &Sender<String>) -> Result<()> {
        match *self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres(ref store) => store.listen(told).await,
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => pending().await,
        }
    }

    /// Are calls about several buckets dearer than one call about each?
    pub async fn is_distributed(&self) -> Result<bool> {
        match *self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres(ref store) => store.is_distributed().await,
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => Ok(false),
        }
    }

    /// Writes down its name among several databases, unless it has one; the names of those, unless it has zones; and, where it
    /// agrees about these, their names once the list has changed.
    pub async fn claim(&self, name: &str, among: &Among) -> Result<()> {
        each!(self, s => s.claim(name, among).await)
    }

    /// Writes down the names of the databases among which it decides: the list has changed.
    pub async fn set_among(&self, among: &str) -> Result<()> {
        each!(self, s => s.set_among(among).await)
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        each!(self, s => s.find_zone(name).await)
    }

    /// On the caller's connection.
    pub async fn find_zone_in(&self, caller: &mut Caller<'_>, name: &str) -> Result<Option<Found>> {
        joined!(self, caller, (s, connection) => s.find_zone_in(connection, name).await)
    }

    /// Decides and commits: each request in order, all in one transaction.
    pub async fn check(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        all(each!(self, s => s.decide(requests, Passing::Each, terms).await))
    }

    /// As [`check`](Self::check), but a bucket that another transaction holds is not waited for: its requests
    /// come back undecided and nothing is recorded for them.
    pub async fn check_free(&self, requests: &[Request], terms: Terms) -> Result<Vec<Option<Decision>>> {
        each!(self, s => s.decide(requests, Passing::Free, terms).await)
    }

    /// Decides inside the caller's transaction.
    pub async fn check_in(&self, caller: Caller<'_>, requests: &[Request]) -> Result<Vec<Decision>> {
        joined!(self, caller, (s, connection) => s.decide_in(connection, requests, Passing::Each).await)
    }

    /// Records so many checks that were answered blocked from memory as one row, in a transaction of its own.
    /// Nothing is decided or spent; the bucket's state is brought to now. Once for each transaction id.
    pub async fn record_blocked(&self, request: &Request, checks: u32, terms: Terms) -> Result<()> {
        let checks = i32::try_from(checks).ok().filter(|&checks| checks >= 1).ok_or_else(|| {
            Error::invalid(format!("a row cannot stand for {checks} checks; use 1 to {}", i32::MAX))
        })?;
        let requests = &[Request { record: true, ..request.clone() }];
        // The isolation does not matter here: nothing is decided, and the row lock keeps the ledger in order.
        let terms = Terms { isolation: Isolation::RowLock, ..terms };
        each!(self, s => s.decide(requests, Passing::Unasked(checks), terms).await.map(drop))
    }

    /// Decides requests of different buckets together and commits: each in order, in one transaction; when one is
    /// blocked none spends, and those that would have passed say `held_back`.
    pub async fn check_all(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        all(each!(self, s => s.decide(requests, Passing::Together, terms).await))
    }

    /// As [`check_all`](Self::check_all), inside the caller's transaction.
    pub async fn check_all_in(&self, caller: Caller<'_>, requests: &[Request]) -> Result<Vec<Decision>> {
        joined!(self, caller, (s, connection) => s.decide_in(connection, requests, Passing::Together).await)
    }

    /// Records actions on different buckets, in the order of these, all in one transaction. An act that its transaction
    /// has done to its bucket already is not done again, but told.
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        each!(self, s => s.act(actions, terms).await)
    }

    /// As [`act`](Self::act), inside the caller's transaction.
    pub async fn act_in(&self, caller: Caller<'_>, actions: &[Action]) -> Result<Vec<Recorded>> {
        joined!(self, caller, (s, connection) => s.act_in(connection, actions).await)
    }

    /// The charges of a transaction's checks, newest first.
    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        each!(self, s => s.charges(txn).await)
    }

    /// On the caller's connection, which sees what its transaction has just spent.
    pub async fn charges_in(&self, caller: &mut Caller<'_>, txn: Uuid) -> Result<Vec<Spending>> {
        joined!(self, caller, (s, connection) => s.charges_in(connection, txn).await)
    }

    /// Calls `check_velocity` and commits.
    pub async fn check_velocity(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Velocity> {
        each!(self, s => s.check_velocity(zone_id, key, terms).await)
    }

    /// Inside the caller's transaction.
    pub fn check_velocity_in<'a>(
        &'a self,
        caller: Caller<'a>,
        zone_id: i32,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Velocity>> {
        boxed(async move {
            joined!(self, caller, (s, connection) => s.check_velocity_in(connection, zone_id, key).await)
        })
    }

    /// Calls `rate_limiting_request` and commits.
    pub async fn rate_limiting_request(
        &self,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
        terms: Terms,
    ) -> Result<i64> {
        each!(self, s => s.rate_limiting_request(rate_id, refill_per_sec, window_seconds, terms).await)
    }

    /// Inside the caller's transaction.
    pub fn rate_limiting_request_in<'a>(
        &'a self,
        caller: Caller<'a>,
        rate_id: &'a str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> BoxFuture<'a, Result<i64>> {
        boxed(async move {
            joined!(self, caller, (s, connection) => {
                s.rate_limiting_request_in(connection, rate_id, refill_per_sec, window_seconds).await
            })
        })
    }

    /// Makes zones or changes them, all in one transaction; what changes nothing makes no version.
    pub async fn set_zones(&self, settings: &[ZoneSetting], by: &str) -> Result<Vec<Zone>> {
        each!(self, s => s.set_zones(settings, by).await)
    }

    /// Makes a zone and its versions as another database has them: the number, the policies and the times are the same, who was
    /// logged in is this database's own. Those that are there already stay.
    pub async fn copy_zone(&self, zone: &Zone, versions: &[ZoneVersion]) -> Result<()> {
        each!(self, s => s.copy_zone(zone, versions).await)
    }

    /// Fails where zones of this policy cannot be kept.
    pub fn keeps(&self, policy: &Policy) -> Result<()> {
        #[cfg(feature = "mysql")]
        #[allow(irrefutable_let_patterns, reason = "with MySQL alone it always is one")]
        if let Database::MySql(_) = self.database() {
            return mysql::keeps(policy);
        }
        let _ = policy;
        Ok(())
    }

    /// Removes a zone with its versions, unless anything names it.
    pub async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        each!(self, s => s.remove_zone(name).await)
    }

    /// The overrides in force in a range of buckets, by bucket.
    pub async fn overrides(&self, range: &Range) -> Result<Vec<Overridden>> {
        each!(self, s => s.overrides(range).await)
    }

    /// Did a routine decide in the zone for a caller in SQL within so many microseconds?
    pub async fn called_in_sql(&self, zone_id: i32, within_us: i64) -> Result<bool> {
        each!(self, s => s.called_in_sql(zone_id, within_us).await)
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

    /// The records anew of the bans and overrides that are in force in a zone and have their rows before a time.
    pub async fn in_force(
        &self,
        zone: &Needed,
        from: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Action>> {
        each!(self, s => s.in_force(zone, from, now).await)
    }

    /// Makes what is ahead and removes what is not needed, in short steps.
    pub async fn maintain(&self, plan: &Plan) -> Result<Maintained> {
        each!(self, s => s.maintain(plan).await)
    }

    /// The state of upkeep.
    pub async fn maintenance(&self) -> Result<Maintenance> {
        each!(self, s => s.maintenance().await)
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        each!(self, s => s.history(span).await)
    }
}

#[cfg(feature = "testing")]
fn no_test_clock() -> Error {
    Error::invalid(
        "the database decides by its own clock, which no client can set; see docs/testing.md for databases that have another",
    )
}

/// The answer that a server gives up to then. One that is stuck accepts a connection and says nothing.
pub(crate) async fn in_time<T>(until: Instant, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let silent = |_| Err(Error::transient("the server did not answer in time; see whether it is stuck"));
    tokio::time::timeout_at(until, answer).await.unwrap_or_else(silent)
}
