//! SQLite, embedded: the core decides, under the database's write lock.

/// Does work under the write lock, in a transaction of its own.
macro_rules! alone {
    ($store:expr, $terms:expr, $tx:ident => $work:expr) => {{
        let _turn = $store.turn($terms.until).await?;
        let mut lease = $store.connections.lease($terms.until).await?;
        let done = async {
            let mut $tx = lease.begin_with("begin immediate").await.map_err(error)?;
            let done = $work?;
            $tx.commit().await.map_err(error)?;
            Ok(done)
        };
        let done = done.await;
        lease.end(done)
    }};
}

/// Does the engine's work alone. One that leaves no row has changed nothing.
macro_rules! holding {
    ($self:ident, $terms:ident, $session:ident => $work:expr $(, $done:ident => $leaves_nothing:expr)?) => {
        alone!($self, $terms, tx => {
            let mut $session = $self.session(&mut tx);
            $work
        })
    };
}

/// Looks, and holds nothing.
macro_rules! looking {
    ($self:ident, $terms:ident, $session:ident => $work:expr) => {{
        let mut lease = $self.connections.lease($terms.until).await?;
        let mut $session = $self.session(&mut lease);
        let done = $work;
        lease.end(done)
    }};
}

mod erase;
mod evidence;
mod ledger;
mod lines;
pub(super) mod moving;
mod place;
mod queue;
mod relaxed;
mod removal;
mod routine;
mod session;
mod statement;
mod upkeep;
mod zones;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;
use sqlx::pool::PoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

use super::connections::{Connections, Leased};
use super::fault::{self, Fault};
use super::{Address, Found, Of, Range, Schema, Span, Spending, Terms};
use crate::decision::Decision;
use crate::engine::{self, Answered, from_us};
use crate::engine::{Action, Passing, Request};
use crate::entry::{Entry, Overridden, Recorded};
use crate::error::{Error, Result};
use crate::private;
use crate::retry::Tries;
use crate::shard::Among;
use crate::zone::{Durability, Limit};
use place::Place;
use relaxed::Relaxed;
use session::Session;

/// The time for which SQLite itself waits for another process before a call is tried again.
pub(crate) const BUSY_TIMEOUT_MS: u32 = 1_000;

/// A pool of connections to one file.
#[derive(Clone)]
pub(crate) struct Sqlite {
    pub(super) connections: Connections<sqlx::Sqlite>,
    /// The one connection whose commits do not wait for the disk. None beside a pool of the caller's, and in memory.
    quick: Option<Connections<sqlx::Sqlite>>,
    relaxed: Arc<Relaxed>,
    /// Writers of this process queue here, in order, instead of polling for the file's lock.
    writer: Arc<Mutex<()>>,
    /// None beside a pool of the caller's, and in memory.
    place: Option<Arc<Place>>,
    clock: Clock,
}

/// The embedded database has no clock of its own: the host's is the database's.
#[derive(Clone, Default)]
pub(crate) enum Clock {
    #[default]
    Host,
    #[cfg(feature = "testing")]
    Test(crate::testing::Clock),
}

impl Clock {
    fn now_us(&self) -> i64 {
        match self {
            Self::Host => Utc::now().timestamp_micros(),
            #[cfg(feature = "testing")]
            Self::Test(clock) => clock.now().timestamp_micros(),
        }
    }

    fn is_of_a_test(&self) -> bool {
        match self {
            Self::Host => false,
            #[cfg(feature = "testing")]
            Self::Test(_) => true,
        }
    }
}

acts!(Sqlite);

impl Sqlite {
    pub fn new(pool: SqlitePool) -> Self {
        Self::over(Connections::shared(pool, error), None, None)
    }

    fn over(
        connections: Connections<sqlx::Sqlite>,
        quick: Option<Connections<sqlx::Sqlite>>,
        place: Option<Place>,
    ) -> Self {
        let (relaxed, writer, place) = (Arc::default(), Arc::default(), place.map(Arc::new));
        Self { connections, quick, relaxed, writer, place, clock: Clock::Host }
    }

    #[cfg(feature = "testing")]
    pub fn by(&self, clock: crate::testing::Clock) -> Self {
        Self { clock: Clock::Test(clock), ..self.clone() }
    }

    #[cfg(feature = "testing")]
    pub async fn turn_clock(&self, at: Option<DateTime<Utc>>, by: Duration) -> Result<()> {
        if let Clock::Test(clock) = &self.clock {
            at.into_iter().for_each(|at| clock.set(at));
            clock.advance(by);
        }
        Ok(())
    }

    /// Opens the file. With `create` one that is not there is made.
    pub async fn connect(address: &Address, connections: u32, create: bool) -> Result<Self> {
        let options = options(address)?;
        let is_there = || options.get_filename().metadata().is_ok_and(|file| file.len() > 0);
        if !create && !in_memory(&options) && !is_there() {
            return Err(Error::schema(format!(
                "there is no database in the file {:?}; look at its name, or make one with: tallygate migrate --database \
                 {address}",
                options.get_filename()
            )));
        }
        if create && !in_memory(&options) {
            // SQLite would let everybody read it; what it makes beside it has the same mode. It tells by itself where it cannot be made.
            private::append(options.get_filename()).ok();
        }
        // Until a file is in WAL mode, connections that open it together can find it locked, and the pool
        // opens several: so the first one comes before the pool, and stays until the pool has its own.
        let first = if in_memory(&options) { None } else { Some(connect(address).await?) };
        // Each connection to a database in memory would be a database of its own.
        let connections = if in_memory(&options) { 1 } else { connections };
        let quick = (!in_memory(&options)).then(|| {
            let options = options.clone().synchronous(SqliteSynchronous::Normal);
            Connections::own(pool(options, 1), 1, error)
        });
        let path = (!in_memory(&options)).then(|| options.get_filename().to_owned());
        let pool = pool(options, connections);
        drop(pool.acquire().await.map_err(|e| error(e).at(address))?);
        if let Some(first) = first {
            first.close().await.map_err(error)?;
        }
        let place = path.as_deref().map(Place::of).transpose()?;
        Ok(Self::over(Connections::own(pool, connections, error), quick, place))
    }

    pub async fn close(&self) {
        if let Some(quick) = &self.quick {
            quick.close().await;
        }
        self.connections.close().await;
    }

    /// A connection to a database that holds nothing yet; None where it holds something.
    pub async fn empty(&self) -> Result<Option<Leased<sqlx::Sqlite>>> {
        let mut lease = self.lease().await?;
        let asked = sqlx::query_scalar("select count(*) = 0 from sqlite_schema");
        let empty: bool = asked.fetch_one(&mut *lease).await.map_err(error)?;
        Ok(empty.then_some(lease))
    }

    pub async fn schema(&self) -> Result<Option<Schema>> {
        self.is_in_place()?;
        let schema = schema(&mut *self.lease().await?).await?;
        Ok(schema.map(|schema| Schema { test_clock: self.clock.is_of_a_test(), ..schema }))
    }

    /// A file has no server that could be gone: it is read.
    pub async fn sign(&self, _until: Instant) -> Result<Option<Schema>> {
        self.schema().await
    }

    pub async fn claim(&self, name: &str, (among, will): &Among) -> Result<()> {
        let _turn = self.writer.lock().await;
        let mut lease = self.lease().await?;
        for claim in [
            "insert into tallygate_shard (name, among, will) values (?1, ?2, ?3) on conflict do nothing",
            "update tallygate_shard set
                among = case when exists (select 1 from zone_master) then among else ?2 end,
                will = case when among in (?2, ?3) or not exists (select 1 from zone_master) then ?3 else will end
            where name = ?1",
        ] {
            sqlx::query(claim).bind(name).bind(among).bind(will).execute(&mut *lease).await.map_err(error)?;
        }
        Ok(())
    }

    pub async fn set_among(&self, among: &str) -> Result<()> {
        let _turn = self.writer.lock().await;
        let set = sqlx::query("update tallygate_shard set among = ?1, will = ?1").bind(among);
        set.execute(&mut *self.lease().await?).await.map(drop).map_err(error)
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        self.find_zone_in(&mut *self.lease().await?, name).await
    }

    /// There is nothing to skip: whoever has the write lock has every bucket.
    pub async fn decide(
        &self,
        requests: &[Request],
        passing: Passing,
        terms: Terms,
    ) -> Result<Vec<Option<Decision>>> {
        let looks =
            matches!(passing, Passing::Each | Passing::Free) && !requests.iter().any(Request::leaves_row);
        let decisions = if looks {
            let mut lease = self.connections.lease(terms.until).await?;
            let decisions = self.look(&mut lease, requests).await;
            lease.end(decisions)
        } else {
            self.write(requests, passing, terms).await
        };
        Ok(decisions?.into_iter().map(Some).collect())
    }

    /// Only looks: at one state of the database, whoever writes meanwhile.
    async fn look(&self, connection: &mut SqliteConnection, requests: &[Request]) -> Result<Vec<Decision>> {
        let mut tx = connection.begin().await.map_err(error)?;
        let decisions = self.decide_in(&mut tx, requests, Passing::Each).await?;
        tx.commit().await.map_err(error)?;
        Ok(decisions)
    }

    /// Decides and commits, without waiting for the disk where every zone is known as relaxed. A zone that is
    /// durable again since then is seen under the lock; then the call begins anew and waits.
    async fn write(&self, requests: &[Request], passing: Passing, terms: Terms) -> Result<Vec<Decision>> {
        let _turn = self.turn(terms.until).await?;
        if let Some(quick) = self.quick.as_ref().filter(|_| self.relaxed.has_all_of(requests)) {
            let mut lease = quick.lease(terms.until).await?;
            let decisions = self.write_on(&mut lease, requests, passing, Durability::Relaxed).await;
            if let Some(decisions) = lease.end(decisions)? {
                return Ok(decisions);
            }
        }
        let mut lease = self.connections.lease(terms.until).await?;
        let decisions = self.write_on(&mut lease, requests, passing, Durability::Durable).await;
        lease.end(decisions)?.ok_or_else(|| Error::database("a durable commit was refused as too weak"))
    }

    /// None, and nothing is written, when the connection's commits are weaker than a zone asks for.
    async fn write_on(
        &self,
        connection: &mut SqliteConnection,
        requests: &[Request],
        passing: Passing,
        commits: Durability,
    ) -> Result<Option<Vec<Decision>>> {
        let mut tx = connection.begin_with("begin immediate").await.map_err(error)?;
        let done = engine::check(&mut self.session(&mut tx), requests, passing).await?;
        self.relaxed.learn(done.durabilities);
        if commits == Durability::Relaxed && !self.relaxed.has_all_of(requests) {
            tx.rollback().await.map_err(error)?;
            return Ok(None);
        }
        tx.commit().await.map_err(error)?;
        decisions(done.answers).map(Some)
    }

    /// The caller's connection, and how long its commits wait for the disk, stay as they are.
    pub async fn decide_in(
        &self,
        connection: &mut SqliteConnection,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let done = engine::check(&mut self.session(connection), requests, passing).await?;
        decisions(done.answers)
    }

    /// Waits for the disk whatever the zones say: people who act can wait.
    pub async fn act(&self, actions: &[Action], terms: Terms) -> Result<Vec<Recorded>> {
        alone!(self, terms, tx => self.act_in(&mut tx, actions).await)
    }

    pub async fn act_in(
        &self,
        connection: &mut SqliteConnection,
        actions: &[Action],
    ) -> Result<Vec<Recorded>> {
        engine::act(&mut self.session(connection), actions).await
    }

    pub async fn charges(&self, txn: Uuid) -> Result<Vec<Spending>> {
        self.charges_in(&mut *self.lease().await?, txn).await
    }

    pub async fn charges_in(&self, connection: &mut SqliteConnection, txn: Uuid) -> Result<Vec<Spending>> {
        let charges = sqlx::query(include_str!("sqlite/charges.sql")).bind(txn);
        let rows = charges.fetch_all(connection).await.map_err(error)?;
        super::rows_of("zone_txn", &rows, |row| spending!(row))
    }

    pub async fn overrides(&self, range: &Range) -> Result<Vec<Overridden>> {
        let rows = sqlx::query(include_str!("sqlite/overrides.sql"))
            .bind(range.zone_id)
            .bind(&range.from)
            .bind(&range.to)
            .bind(self.clock.now_us())
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        super::rows_of("zone_override", &rows, |row| overridden!(row))
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        let query = match span.of {
            Of::Txn(txn) => sqlx::query(include_str!("sqlite/history_txn.sql")).bind(txn).bind(None::<&str>),
            Of::Bucket(zone_id, key) => {
                sqlx::query(include_str!("sqlite/history_bucket.sql")).bind(zone_id).bind(key)
            }
            Of::Zone(zone_id) => {
                sqlx::query(include_str!("sqlite/history_zone.sql")).bind(zone_id).bind(None::<&str>)
            }
            Of::ZoneUpwards(zone_id) => {
                sqlx::query(include_str!("sqlite/history_zone_upwards.sql")).bind(zone_id).bind(None::<&str>)
            }
        };
        let rows = query
            .bind(span.blocked)
            .bind(span.since.timestamp_micros())
            .bind(span.until.timestamp_micros())
            .bind(span.before.at.timestamp_micros())
            .bind(span.before.id)
            .bind(span.limit)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        super::rows_of("zone_txn", &rows, |row| entry!(row))
    }

    fn session<'s>(&'s self, connection: &'s mut SqliteConnection) -> Session<'s> {
        Session { connection, clock: &self.clock }
    }

    /// The caller's turn to write.
    async fn turn(&self, until: Instant) -> Result<MutexGuard<'_, ()>> {
        let busy = |_| Error::transient("the database file was busy until the deadline; try again");
        let turn = tokio::time::timeout_at(until, self.writer.lock()).await.map_err(busy)?;
        self.is_in_place()?;
        Ok(turn)
    }

    fn is_in_place(&self) -> Result<()> {
        self.place.as_ref().map_or(Ok(()), |place| place.is_kept())
    }

    /// A connection for a call that has no deadline of its own.
    async fn lease(&self) -> Result<Leased<sqlx::Sqlite>> {
        self.connections.lease(Instant::now() + Duration::from_secs(30)).await
    }
}

/// Is a transaction open? Of one that the driver did not begin, another one tells: it can be begun in no transaction.
pub(super) async fn is_in_transaction(connection: &mut SqliteConnection) -> Result<bool> {
    if connection.is_in_transaction() {
        return Ok(true);
    }
    match connection.begin().await {
        Ok(tx) => tx.rollback().await.map(|()| false).map_err(error),
        Err(_) => Ok(true),
    }
}

/// None where there is no schema.
pub(crate) async fn schema(connection: &mut SqliteConnection) -> Result<Option<Schema>> {
    // A number that no program has is that of one that is newer than all.
    let ask = "select min(max(version), 2147483647),
            min(max(iif(name glob 'breaking_*', version, null)), 2147483647), (select name from tallygate_shard),
            (select among from tallygate_shard), (select will from tallygate_shard), false
        from tallygate_schema_history";
    Schema::told(sqlx::query_as(ask).fetch_one(connection).await.map_err(error))
}

/// Opens one connection, outside any pool.
///
/// SQLite's own busy timeout does not hold while a file is brought into WAL mode: of two that do so at
/// once, one fails at once. So this tries again.
pub(crate) async fn connect(address: &Address) -> Result<SqliteConnection> {
    let options = options(address)?;
    let tries = Tries::new(64, Instant::now() + Duration::from_secs(5));
    let connection = tries.run(|_| async { options.connect().await.map_err(error) }).await;
    connection.map_err(|failed| failed.at(address))
}

fn pool(options: SqliteConnectOptions, connections: u32) -> SqlitePool {
    PoolOptions::new()
        .max_connections(connections)
        // A caller who goes away while the pool tests a connection takes it along, and what is in memory is gone with it.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options)
}

/// True when the file is there. A database in memory never is.
pub(crate) fn exists(address: &Address) -> Result<bool> {
    let options = options(address)?;
    Ok(!in_memory(&options) && Path::new(options.get_filename()).exists())
}

fn options(address: &Address) -> Result<SqliteConnectOptions> {
    let options = SqliteConnectOptions::from_str(address.secret()).map_err(error)?;
    Ok(options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // A commit waits for the disk: no decision is forgotten when the power goes.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS.into()))
        .foreign_keys(true)
        // Checks of many keys change pages all over the file. With 64 MB of memory these are not written before the
        // batch ends; with a log of 4,000 pages they are not copied into the file after each batch. A longer log
        // would be slower again, since it grows for longer before it is written over.
        .pragma("cache_size", "-65536")
        .pragma("wal_autocheckpoint", "4000")
        // The pages that a statement that fails half-way would put back: kept in memory, not in a file.
        .pragma("temp_store", "memory")
        .log_statements(log::LevelFilter::Trace))
}

fn in_memory(options: &SqliteConnectOptions) -> bool {
    let name = options.get_filename().to_string_lossy();
    name.is_empty() || name.contains(":memory:") || name.contains("sqlx-in-memory")
}

fn time(row: &SqliteRow, column: &str) -> Result<DateTime<Utc>> {
    time_if(row, column)?.ok_or_else(|| Error::database(format!("{column:?} is missing")))
}

fn time_if(row: &SqliteRow, column: &str) -> Result<Option<DateTime<Utc>>> {
    let us: Option<i64> = row.try_get(column).map_err(error)?;
    us.map(|us| from_us(us).map_err(|error| error.at(format!("{column:?}")))).transpose()
}

fn text(row: &SqliteRow, column: &str) -> Result<String> {
    row.try_get(column).map_err(error)
}

fn text_if(row: &SqliteRow, column: &str) -> Result<Option<String>> {
    row.try_get(column).map_err(error)
}

/// All of them: whoever has the write lock finds every bucket as it was held.
fn decisions(answers: Vec<Answered>) -> Result<Vec<Decision>> {
    let decided = answers.into_iter().map(|answer| match answer {
        Answered::Decided(decision) => Ok(decision),
        Answered::Undone(_) => Err(Error::database("the database left a check undecided")),
    });
    decided.collect()
}

pub(crate) fn error(error: sqlx::Error) -> Error {
    fault::translate(error, judge)
}

/// SQLite's extended result codes.
fn judge(error: &dyn DatabaseError) -> Fault {
    let code: i64 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
    match code & 0xff {
        5 | 6 => Fault::Transient,
        // A statement that names a table that is not there has only the generic code.
        1 if error.message().starts_with("no such table") => Fault::Unmigrated,
        // Cannot open, read only, not a database, no right.
        3 | 8 | 14 | 26 => Fault::Refused,
        _ => Fault::Other,
    }
}
