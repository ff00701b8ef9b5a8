//! MySQL and MariaDB: the stored procedures decide.

mod action;
mod check;
mod erase;
mod evidence;
mod ledger;
mod lines;
mod upkeep;
mod zones;

use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlDatabaseError, MySqlRow};
use sqlx::pool::PoolOptions;
use sqlx::query::Query;
use sqlx::{ConnectOptions, Connection, MySqlConnection, MySqlPool, Row, Transaction};
use tokio::time::Instant;

use super::connections::{Connections, Leased};
use super::fault::{self, Fault};
use super::{Address, Found, Of, Span, Terms};
use crate::entry::Entry;
use crate::error::{Error, Result};

/// A pool of connections to MySQL or MariaDB.
#[derive(Clone)]
pub(crate) struct MySql {
    connections: Connections<sqlx::MySql>,
}

impl MySql {
    pub fn new(pool: MySqlPool) -> Self {
        Self { connections: Connections::shared(pool) }
    }

    pub async fn connect(address: &Address, connections: u32) -> Result<Self> {
        // One connection by hand first: a pool would hide why it cannot connect behind its timeout.
        connect(address).await?.close().await.map_err(error)?;
        let pool = PoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .after_release(|connection: &mut MySqlConnection, _| {
                Box::pin(async move { Ok(super::still_good(connection).await) })
            })
            .connect_lazy_with(options(address)?);
        Ok(Self { connections: Connections::own(pool, connections) })
    }

    pub fn connections(&self) -> u32 {
        self.connections.most()
    }

    pub async fn schema_version(&self) -> Result<Option<i32>> {
        let rows =
            sqlx::query_scalar("call tallygate_schema_version()").fetch_all(&mut *self.lease().await?).await;
        match rows.map_err(error) {
            Err(error) if error.is_schema() => Ok(None),
            rows => Ok(rows?.into_iter().next().flatten()),
        }
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        find_zone(&mut *self.lease().await?, name).await
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
        rows.iter().map(|row| entry!(row)).collect()
    }

    /// A connection for a call that has no deadline of its own.
    async fn lease(&self) -> Result<Leased<sqlx::MySql>> {
        self.connections.lease(Instant::now() + Duration::from_secs(30)).await.map_err(error)
    }
}

pub(crate) async fn find_zone(connection: &mut MySqlConnection, name: &str) -> Result<Option<Found>> {
    let rows = sqlx::query("call zone_find(?)").bind(name).fetch_all(connection).await.map_err(error)?;
    rows.first().map(|row| found!(row)).transpose()
}

/// Opens one connection, outside any pool.
pub(crate) async fn connect(address: &Address) -> Result<MySqlConnection> {
    options(address)?.connect().await.map_err(|e| error(e).at(address))
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

/// The longest wait for a lock, in the whole seconds that these servers count.
fn lock_wait_s(terms: Terms) -> i32 {
    let wait = terms.until.saturating_duration_since(Instant::now());
    i32::try_from(wait.as_secs() + 1).unwrap_or(i32::MAX)
}

/// Always `fetch_all`: the driver's single-row calls return before a late error of the procedure is read.
async fn rows(
    connection: &mut MySqlConnection,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
    asked: usize,
) -> Result<Vec<MySqlRow>> {
    let rows = query.fetch_all(connection).await.map_err(error)?;
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

/// What is compared byte by byte is kept as bytes.
fn text_if(row: &MySqlRow, column: &str) -> Result<Option<String>> {
    let bytes: Option<Vec<u8>> = row.try_get(column).map_err(error)?;
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|e| Error::database(format!("{column} is not UTF-8")).caused_by(e))
}

pub(crate) fn error(error: sqlx::Error) -> Error {
    fault::translate(error, judge)
}

/// The servers' error numbers, and our own.
fn judge(error: &dyn DatabaseError) -> Fault {
    match error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number) {
        31001 | 31003 | 31004 | 31006 => Fault::Invalid,
        31002 => Fault::Conflict,
        // An old snapshot, deadlock, lock waits, row changed since the snapshot, server or session gone, too many
        // sessions, a node that only reads.
        31007 | 1213 | 1205 | 3572 | 1020 | 2006 | 2013 | 3101 | 1053 | 1927 | 4031 | 1040 | 1290 | 1836 => {
            Fault::Transient
        }
        // No such procedure, table, database, or no database chosen.
        1305 | 1146 => Fault::Unmigrated,
        1044 | 1045 | 1049 | 1046 | 1142 | 1370 => Fault::Refused,
        _ => Fault::Other,
    }
}
