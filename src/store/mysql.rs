//! MySQL and MariaDB: the stored procedures decide.

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
use super::{Address, Found, Isolation, Of, Request, Span, Terms};
use crate::decision::Decision;
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

    pub async fn check(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let decisions = check_on(&mut lease, requests, terms).await;
        lease.end(decisions)
    }

    /// As `check`, but what somebody else holds is not waited for: None, and nothing is recorded for it.
    pub async fn check_free(&self, requests: &[Request], terms: Terms) -> Result<Vec<Option<Decision>>> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let decisions = check_free_on(&mut lease, requests, terms).await;
        lease.end(decisions)
    }

    /// The caller's own `innodb_lock_wait_timeout` holds.
    pub async fn check_in(connection: &mut MySqlConnection, requests: &[Request]) -> Result<Vec<Decision>> {
        decide(connection, requests, Owner::Caller, None).await
    }

    /// Whatever the isolation asked for: nothing is decided, and the row lock keeps the ledger in order.
    pub async fn record_blocked(&self, request: &Request, checks: i32, terms: Terms) -> Result<()> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let recorded = decide_one(&mut lease, request, Owner::Routine, wait_s(terms), Some(checks)).await;
        lease.end(recorded.map(drop))
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        let query = match span.of {
            Of::Txn(txn) => sqlx::query(include_str!("mysql/history_txn.sql")).bind(txn),
            Of::Bucket(zone_id, key) => {
                sqlx::query(include_str!("mysql/history_bucket.sql")).bind(zone_id).bind(key)
            }
            Of::Zone(zone_id) => sqlx::query(include_str!("mysql/history_zone.sql")).bind(zone_id),
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

async fn check_on(
    connection: &mut MySqlConnection,
    requests: &[Request],
    terms: Terms,
) -> Result<Vec<Decision>> {
    match terms.isolation {
        // The procedure owns its transaction: one round trip.
        Isolation::RowLock => decide(connection, requests, Owner::Routine, wait_s(terms)).await,
        Isolation::Serializable => {
            let mut tx = connection.begin_with(SERIALIZABLE).await.map_err(error)?;
            let decisions = decide(&mut tx, requests, Owner::Caller, wait_s(terms)).await;
            end(tx, decisions).await
        }
    }
}

async fn check_free_on(
    connection: &mut MySqlConnection,
    requests: &[Request],
    terms: Terms,
) -> Result<Vec<Option<Decision>>> {
    match terms.isolation {
        Isolation::RowLock => decide_many(connection, requests, Owner::Routine, wait_s(terms), true).await,
        Isolation::Serializable => {
            let mut tx = connection.begin_with(SERIALIZABLE).await.map_err(error)?;
            let decisions = decide_many(&mut tx, requests, Owner::Caller, wait_s(terms), true).await;
            end(tx, decisions).await
        }
    }
}

const SERIALIZABLE: &str = "set transaction isolation level serializable; start transaction";

/// The longest wait for a lock, in the whole seconds that these servers count.
fn wait_s(terms: Terms) -> Option<i32> {
    let wait = terms.until.saturating_duration_since(Instant::now());
    Some(i32::try_from(wait.as_secs() + 1).unwrap_or(i32::MAX))
}

/// Said now: a rollback that is left to the driver waits for the connection's next user.
async fn end<T>(tx: Transaction<'_, sqlx::MySql>, decisions: Result<T>) -> Result<T> {
    let ended = if decisions.is_ok() { tx.commit().await } else { tx.rollback().await };
    ended.map_err(error)?;
    decisions
}

/// Whose transaction a decision is made in.
enum Owner {
    Routine,
    Caller,
}

/// Calls the routine that fits. `wait_s` is the longest wait for a lock; without it the session's own holds.
async fn decide(
    connection: &mut MySqlConnection,
    requests: &[Request],
    owner: Owner,
    wait_s: Option<i32>,
) -> Result<Vec<Decision>> {
    let [request] = requests else {
        let decisions = decide_many(connection, requests, owner, wait_s, false).await?;
        let undecided = || Error::database("a check was left undecided");
        return decisions.into_iter().map(|decision| decision.ok_or_else(undecided)).collect();
    };
    Ok(vec![decide_one(connection, request, owner, wait_s, None).await?])
}

/// With `checks` nothing is decided, and the row stands for so many.
async fn decide_one(
    connection: &mut MySqlConnection,
    request: &Request,
    owner: Owner,
    wait_s: Option<i32>,
    checks: Option<i32>,
) -> Result<Decision> {
    let call = match owner {
        Owner::Routine => "call zone_check_own(?, ?, ?, ?, ?, ?, ?, ?)",
        Owner::Caller => "call zone_check(?, ?, ?, ?, ?, ?, ?, ?)",
    };
    let query = sqlx::query(call)
        .bind(request.zone_id)
        .bind(request.key.clone())
        .bind(request.txn)
        .bind(request.cost)
        .bind(request.fresh)
        .bind(request.record)
        .bind(wait_s)
        .bind(checks);
    let rows = rows(connection, query, 1).await?;
    let row = rows.first().ok_or_else(|| Error::database("a check got no decision"))?;
    decision!(row, request)
}

async fn decide_many(
    connection: &mut MySqlConnection,
    requests: &[Request],
    owner: Owner,
    wait_s: Option<i32>,
    skip_locked: bool,
) -> Result<Vec<Option<Decision>>> {
    let check = |r: &Request| {
        format!(
            r#"{{"zone_id":{},"key":{},"txn":"{}","cost":{},"fresh":{},"record":{}}}"#,
            r.zone_id,
            json_string(&r.key),
            r.txn.simple(),
            r.cost,
            u8::from(r.fresh),
            u8::from(r.record)
        )
    };
    let checks = format!("[{}]", requests.iter().map(check).collect::<Vec<_>>().join(","));
    let call = match owner {
        Owner::Routine => "call zone_check_many_own(?, ?, ?)",
        Owner::Caller => "call zone_check_many(?, ?, ?)",
    };
    let query = sqlx::query(call).bind(checks).bind(wait_s).bind(skip_locked);
    let rows = rows(connection, query, requests.len()).await?;
    let decision = |(row, request): (&MySqlRow, &Request)| {
        let blocked: Option<bool> = row.try_get("blocked").map_err(error)?;
        blocked.map(|_| decision!(row, request)).transpose()
    };
    rows.iter().zip(requests).map(decision).collect()
}

/// Always `fetch_all`: the driver's single-row calls return before a late error of the procedure is read.
async fn rows(
    connection: &mut MySqlConnection,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
    checks: usize,
) -> Result<Vec<MySqlRow>> {
    let rows = query.fetch_all(connection).await.map_err(error)?;
    if rows.len() != checks {
        return Err(Error::database(format!("{checks} checks got {} decisions", rows.len())));
    }
    Ok(rows)
}

/// A JSON string. Keys have no control characters, so two characters are left to escape.
fn json_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn time(row: &MySqlRow, column: &str) -> Result<DateTime<Utc>> {
    row.try_get(column).map_err(error)
}

fn text(row: &MySqlRow, column: &str) -> Result<String> {
    let bytes: Vec<u8> = row.try_get(column).map_err(error)?;
    String::from_utf8(bytes).map_err(|e| Error::database("a bucket key is not UTF-8").caused_by(e))
}

pub(crate) fn error(error: sqlx::Error) -> Error {
    fault::translate(error, judge)
}

/// The servers' error numbers, and our own.
fn judge(error: &dyn DatabaseError) -> Fault {
    match error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number) {
        31001 | 31003 | 31004 | 31006 => Fault::Invalid,
        31002 => Fault::Conflict,
        // Deadlock, lock waits, row changed since the snapshot, server or session gone, too many sessions, a
        // node that only reads.
        1213 | 1205 | 3572 | 1020 | 2006 | 2013 | 3101 | 1053 | 1927 | 4031 | 1040 | 1290 | 1836 => {
            Fault::Transient
        }
        // No such procedure, table, database, or no database chosen.
        1305 | 1146 => Fault::Unmigrated,
        1044 | 1045 | 1049 | 1046 | 1142 | 1370 => Fault::Refused,
        _ => Fault::Other,
    }
}
