//! MySQL and MariaDB: the engine decides where its procedures may be used, the stored procedures elsewhere.

mod action;
mod check;
mod cluster;
mod erase;
mod evidence;
mod joined;
mod ledger;
mod lines;
pub(super) mod moving;
mod queue;
mod removal;
mod routine;
mod session;
mod upkeep;
mod zones;

use std::error::Error as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlDatabaseError, MySqlRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, MySqlConnection, MySqlPool, Row, Transaction};
use tokio::sync::OnceCell;
use tokio::time::Instant;

pub(super) use zones::keeps;

use self::cluster::Cluster;
use super::connections::{Connections, Leased, pool_options};
use super::fault::{self, Fault};
use super::hosts::{Hosts, Server, Standing};
use super::{Address, Found, Of, Schema, Span, Terms};
use crate::engine::Process;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::shard::Among;

/// Begins a transaction of the call's own.
const BEGIN: &str = "set transaction isolation level read committed; start transaction";

const BEGIN_SERIALIZABLE: &str = "set transaction isolation level serializable; start transaction";

/// A pool of connections to MySQL or MariaDB.
#[derive(Clone)]
pub(crate) struct MySql {
    pub(super) connections: Connections<sqlx::MySql>,
    pub(super) process: Arc<Process>,
    cluster: Arc<OnceCell<Cluster>>,
}

impl MySql {
    pub fn new(pool: MySqlPool) -> Self {
        Self::over(Connections::shared(pool, error))
    }

    fn over(connections: Connections<sqlx::MySql>) -> Self {
        Self { connections, process: Arc::default(), cluster: Arc::default() }
    }

    pub async fn connect(address: &Address, connections: u32, until: Instant) -> Result<Self> {
        let hosts = Hosts::of(address, SERVER)?;
        Ok(Self::over(Connections::to(hosts, connections, until).await?))
    }

    pub async fn close(&self) {
        self.connections.close().await;
    }

    pub async fn schema(&self) -> Result<Option<Schema>> {
        schema(&mut *self.lease().await?).await
    }

    /// As [`schema`](Self::schema), on a connection outside the pool.
    pub async fn sign(&self, until: Instant) -> Result<Option<Schema>> {
        let mut connection = self.connections.another(until).await?;
        let schema = schema(&mut connection).await?;
        connection.close().await.map(|()| schema).map_err(error)
    }

    pub async fn claim(&self, name: &str, (among, will): &Among) -> Result<()> {
        let mut lease = self.lease().await?;
        let claim = sqlx::query("insert ignore into tallygate_shard (name, among, will) values (?, ?, ?)");
        claim.bind(name).bind(among).bind(will).execute(&mut *lease).await.map_err(error)?;
        // From left to right: the second looks at what the first has set.
        let claim = "update tallygate_shard set
                among = if(exists (select 1 from zone_master), among, ?),
                will = if(among in (?, ?), ?, will)
            where name = ?";
        let claim = sqlx::query(claim).bind(among).bind(among).bind(will).bind(will).bind(name);
        claim.execute(&mut *lease).await.map(drop).map_err(error)
    }

    pub async fn set_among(&self, among: &str) -> Result<()> {
        let set = sqlx::query("update tallygate_shard set among = ?, will = ?").bind(among).bind(among);
        set.execute(&mut *self.lease().await?).await.map(drop).map_err(error)
    }

    #[cfg(feature = "testing")]
    pub async fn turn_clock(&self, at: Option<DateTime<Utc>>, by: Duration) -> Result<()> {
        let turn = "update tallygate_test_clock
            set now_at = coalesce(cast(? as datetime(6)), now_at, utc_timestamp(6)) + interval ? microsecond";
        let by_us = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let turn = sqlx::query(turn).bind(at.map(|at| at.naive_utc())).bind(by_us);
        turn.execute(&mut *self.lease().await?).await.map(drop).map_err(error)
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        self.find_zone_in(&mut *self.lease().await?, name).await
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        let query = match span.of {
            Of::Txn(txn) => sqlx::query(include_str!("mysql/history_txn.sql")).bind(txn),
            Of::Bucket(zone_id, key) => {
                sqlx::query(include_str!("mysql/history_bucket.sql")).bind(zone_id).bind(key)
            }
            Of::Zone(zone_id) => sqlx::query(include_str!("mysql/history_zone.sql")).bind(zone_id),
            Of::ZoneUpwards(zone_id) => {
                sqlx::query(include_str!("mysql/history_zone_upwards.sql")).bind(zone_id)
            }
        };
        let rows = query
            .bind(span.blocked)
            // Without a zone they travel as datetime; as timestamp they would end in 2106.
            .bind(span.since.naive_utc())
            .bind(span.until.naive_utc())
            .bind(span.before.at.naive_utc())
            .bind(span.before.at.naive_utc())
            .bind(span.before.id)
            .bind(span.limit)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        super::rows_of("zone_txn", &rows, |row| entry!(row))
    }

    /// A connection for a call that has no deadline of its own, and that reads what all nodes were told.
    async fn lease(&self) -> Result<Leased<sqlx::MySql>> {
        let mut lease = self.connections.lease(Instant::now() + Duration::from_secs(30)).await?;
        match self.catch_up(&mut lease).await {
            Ok(()) => Ok(lease),
            Err(error) => ended(lease, Err(error)),
        }
    }

    async fn catch_up(&self, connection: &mut MySqlConnection) -> Result<()> {
        let cluster = self.cluster.get_or_try_init(|| Cluster::looked_over(connection)).await?;
        cluster.catch_up(connection).await
    }
}

/// None where there is no schema.
pub(crate) async fn schema(connection: &mut MySqlConnection) -> Result<Option<Schema>> {
    let call = "call tallygate_schema_version()";
    let row = match called(connection, call, sqlx::query(call)).await {
        Ok(rows) => rows.into_iter().next(),
        Err(error) if error.is_schema() => None,
        Err(error) => return Err(error),
    };
    let told = |row: MySqlRow| {
        let (shard, among, will) = (get!(row, "shard"), get!(row, "among"), get!(row, "will"));
        Ok((get!(row, "version"), get!(row, "breaking"), shard, among, will, get!(row, "test_clock")))
    };
    row.map_or(Ok(None), |row| Schema::told(told(row)))
}

/// Ends a call. A statement that is killed ends a routine where it stands, with its transaction open: its connection is
/// not used again.
fn ended<T>(mut lease: Leased<sqlx::MySql>, result: Result<T>) -> Result<T> {
    if result.as_ref().is_err_and(is_killed) {
        lease.close();
    }
    lease.end(result)
}

/// Opens one connection, outside any pool.
pub(crate) async fn connect(address: &Address, until: Instant) -> Result<MySqlConnection> {
    Ok(Hosts::of(address, SERVER)?.find(until).await?.1)
}

const SERVER: Server<sqlx::MySql> =
    Server { options, pool, error, standing: |connection| Box::pin(standing(connection)) };

/// A setting of the server for all sessions could keep a transaction open where none is meant: later writes would be lost with
/// it, and later reads would be as old as it.
const ENDS_ARE_ENDS: &str = "set autocommit = 1, completion_type = 0";

fn pool(options: MySqlConnectOptions, most: u32) -> MySqlPool {
    pool_options(most, options.get_port(), ENDS_ARE_ENDS).connect_lazy_with(options)
}

/// One that has just come to be written to first catches up with what the others were told.
async fn standing(connection: &mut MySqlConnection) -> Result<Standing> {
    let (cluster, ready) = Cluster::of(connection).await?;
    if !ready {
        return Ok(Standing::Unready);
    }
    cluster.catch_up(connection).await?;
    let reads = sqlx::query_scalar("select @@global.read_only").fetch_one(connection).await;
    let reads: i64 = reads.map_err(error)?;
    Ok(if reads == 0 { Standing::Primary } else { Standing::Replica })
}

fn options(address: &Address) -> Result<MySqlConnectOptions> {
    let options = MySqlConnectOptions::from_str(address.secret()).map_err(error)?;
    Ok(options.log_statements(log::LevelFilter::Trace))
}

/// Said now: a rollback that is left to the driver waits for the connection's next user.
async fn end<T>(tx: Transaction<'_, sqlx::MySql>, result: Result<T>) -> Result<T> {
    let ended = if result.is_ok() { tx.commit().await } else { tx.rollback().await };
    ended.map_err(error)?;
    result
}

/// The database's clock.
async fn clock(connection: &mut MySqlConnection) -> Result<DateTime<Utc>> {
    sqlx::query_scalar("select c.now_at from zone_clock_view c").fetch_one(connection).await.map_err(error)
}

/// The longest wait for a lock, in the whole seconds that these servers count.
fn lock_wait_s(terms: Terms) -> i32 {
    let wait = terms.until.saturating_duration_since(Instant::now());
    i32::try_from(wait.as_secs() + 1).unwrap_or(i32::MAX)
}

/// The rows of a routine, by the text of its call. Always `fetch_all`: the driver's single-row calls return before a late
/// error of the procedure is read.
///
/// MySQL cannot replace a routine: while a migration makes it anew it is gone for a moment, and then its rights are. That
/// passes, where a routine that is missing or a right that was never given does not.
async fn called(
    connection: &mut MySqlConnection,
    call: &str,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
) -> Result<Vec<MySqlRow>> {
    let fault = match query.fetch_all(&mut *connection).await {
        Ok(rows) => return Ok(rows),
        Err(fault) => fault,
    };
    if number(&fault) == NO_DEFINER {
        let another = sqlx::query("call tallygate_schema_version()").fetch_all(connection).await;
        return Err(match another {
            Err(another) if number(&another) == NO_DEFINER => error(fault),
            _ => Error::transient("a statement was killed; try again").caused_by(fault),
        });
    }
    if ![1305, 1370].contains(&number(&fault)) {
        return Err(error(fault));
    }
    let name = call.trim_start_matches("call ").split('(').next().unwrap_or_default();
    let passes: Vec<bool> = sqlx::query_scalar(include_str!("mysql/made_anew.sql"))
        .bind(name)
        .fetch_all(connection)
        .await
        .map_err(error)?;
    if passes.contains(&true) {
        let anew = format!("a migration makes the routine {name} anew: {fault}; try again");
        return Err(Error::transient(anew).caused_by(fault));
    }
    Err(error(fault))
}

/// The rows of a routine whose last row says that they are all. MySQL ends a routine that is killed while it opens a cursor
/// as if it had come to its end.
async fn whole(
    connection: &mut MySqlConnection,
    call: &str,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
) -> Result<Vec<MySqlRow>> {
    let mut rows = called(connection, call, query).await?;
    match rows.pop() {
        Some(row) if row.try_get("whole").unwrap_or(false) => Ok(rows),
        _ => Err(killed(call)),
    }
}

/// Of a routine that ended before its answer.
fn killed(call: &str) -> Error {
    error(sqlx::Error::Protocol(format!("{call} was killed")))
}

/// The rows of a routine that answers each request.
async fn rows(
    connection: &mut MySqlConnection,
    call: &str,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
    asked: usize,
) -> Result<Vec<MySqlRow>> {
    let rows = called(connection, call, query).await?;
    if rows.len() != asked {
        return Err(Error::database(format!("{asked} requests got {} answers", rows.len())));
    }
    Ok(rows)
}

fn time(row: &MySqlRow, column: &str) -> Result<DateTime<Utc>> {
    row.try_get(column).map_err(error)
}

fn time_if(row: &MySqlRow, column: &str) -> Result<Option<DateTime<Utc>>> {
    row.try_get(column).map_err(error)
}

fn text(row: &MySqlRow, column: &str) -> Result<String> {
    text_if(row, column)?.ok_or_else(|| Error::database(format!("{column} is missing")))
}

/// A text that is compared byte by byte is kept as bytes.
fn text_if(row: &MySqlRow, column: &str) -> Result<Option<String>> {
    let bytes: Option<Vec<u8>> = row.try_get(column).map_err(error)?;
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|e| Error::database(format!("{column} is not UTF-8")).caused_by(e))
}

pub(crate) fn error(error: sqlx::Error) -> Error {
    fault::translate(error, judge)
}

/// A server's error number; 0 for what is no error of a server.
pub(crate) fn number(fault: &sqlx::Error) -> u16 {
    fault.as_database_error().map_or(0, number_of)
}

/// The same, of an error of ours.
fn number_of_error(error: &Error) -> u16 {
    error.source().and_then(|cause| cause.downcast_ref()).map_or(0, number)
}

/// A statement was killed (MySQL's joined updates say 1105 then, its selects of nothing 1329, and what looks for its rights
/// 3547), took longer than it may, or found no memory: the server runs no handler of the routine. And what the next one on
/// such a connection fails with.
const KILLED: [u16; 11] = [1317, 1105, 1329, 3547, NO_DEFINER, 3024, 1969, 1037, 1038, 1041, 1568];

/// The user who made a routine is no more. A statement says so too that is killed while the server looks for him; another
/// routine of his tells which it was, if it says the same.
const NO_DEFINER: u16 = 1449;

/// True also of a routine that did not come to its end.
fn is_killed(error: &Error) -> bool {
    match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(sqlx::Error::Protocol(_)) => true,
        Some(fault) => KILLED.contains(&number(fault)),
        None => false,
    }
}

pub(super) fn number_of(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

/// The servers' error numbers, and our own.
fn judge(error: &dyn DatabaseError) -> Fault {
    match number_of(error) {
        31001 => Fault::UnknownZone,
        31003 | 31004 | 31006 | 31012 => Fault::Invalid,
        31002 => Fault::Conflict,
        31011 => Fault::Elsewhere,
        // An old snapshot, deadlock, lock waits, row changed since the snapshot, server or session gone, too many
        // sessions, a node that only reads, was cut off from the others, left them or does not catch up with them.
        31007 | 31009 | 31010 | 1213 | 1205 | 3572 | 1020 | 2006 | 2013 | 3101 | 1053 | 1927 | 4031
        | 1040 | 1290 | 1792 | 1836 | 1047 | 3100 | 3796 | 3797 => Fault::Transient,
        // A commit failed. It passes where other nodes were faster, or are out of reach, and not where the disk is full.
        1180 if ["Lock deadlock", "provider status"].iter().any(|why| error.message().contains(why)) => {
            Fault::Transient
        }
        NO_DEFINER => Fault::Other,
        killed if KILLED.contains(&killed) => Fault::Transient,
        // No such procedure, table, database, or no database chosen.
        1305 | 1146 => Fault::Unmigrated,
        1044 | 1045 | 1049 | 1046 | 1142 | 1370 => Fault::Refused,
        _ => Fault::Other,
    }
}
