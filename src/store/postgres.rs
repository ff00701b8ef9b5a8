//! PostgreSQL: the stored functions decide.

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Row};
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;

use super::connections::{Connections, Leased};
use super::fault::{self, Fault};
use super::{Address, Found, Held, Isolation, Of, Request, Span, Terms, all};
use crate::decision::Decision;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::zone::{Policy, Zone, ZoneVersion};

/// A pool of connections to PostgreSQL.
#[derive(Clone)]
pub(crate) struct Postgres {
    connections: Connections<sqlx::Postgres>,
}

impl Postgres {
    pub fn new(pool: PgPool) -> Self {
        Self { connections: Connections::shared(pool) }
    }

    pub async fn connect(address: &Address, connections: u32) -> Result<Self> {
        // One connection by hand first: a pool would hide why it cannot connect behind its timeout.
        connect(address).await?.close().await.map_err(error)?;
        let pool = PoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .after_release(|connection: &mut PgConnection, _| {
                Box::pin(async move { Ok(super::still_good(connection).await) })
            })
            .connect_lazy_with(options(address)?);
        Ok(Self { connections: Connections::own(pool, connections) })
    }

    pub fn connections(&self) -> u32 {
        self.connections.most()
    }

    pub async fn schema_version(&self) -> Result<Option<i32>> {
        let version = sqlx::query_scalar("select tallygate_schema_version()")
            .fetch_one(&mut *self.lease().await?)
            .await;
        match version.map_err(error) {
            Err(error) if error.is_schema() => Ok(None),
            version => version,
        }
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        find_zone(&mut *self.lease().await?, name).await
    }

    pub async fn check(&self, requests: &[Request], terms: Terms) -> Result<Vec<Decision>> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let decisions = check_on(&mut lease, requests, terms, Held::Wait).await;
        all(lease.end(decisions)?)
    }

    /// As `check`, but what somebody else holds is not waited for: None, and nothing is recorded for it.
    pub async fn check_free(&self, requests: &[Request], terms: Terms) -> Result<Vec<Option<Decision>>> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let decisions = check_on(&mut lease, requests, terms, Held::Skip).await;
        lease.end(decisions)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn check_in(connection: &mut PgConnection, requests: &[Request]) -> Result<Vec<Decision>> {
        all(decide(connection, requests, Owner::Caller, Held::Wait).await?)
    }

    /// Whatever the isolation asked for: nothing is decided, and the row lock keeps the ledger in order.
    pub async fn record_blocked(&self, request: &Request, checks: i32, terms: Terms) -> Result<()> {
        let mut lease = self.connections.lease(terms.until).await.map_err(error)?;
        let owner = Owner::Call { lock_wait_ms: lock_wait_ms(terms) };
        let recorded = decide_one(&mut lease, request, owner, Some(checks)).await;
        lease.end(recorded.map(drop))
    }

    pub async fn set_zone(
        &self,
        name: &str,
        policy: &Policy,
        description: Option<&str>,
        by: &str,
    ) -> Result<Zone> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin().await.map_err(error)?;
        let bind = |sql| {
            sqlx::query(sql)
                .bind(name)
                .bind(description)
                .bind(policy.algorithm().as_str())
                .bind(policy.rate())
                .bind(policy.window_us())
                .bind(policy.burst())
                .bind(policy.gcd())
                .bind(policy.durability().as_str())
                .bind(policy.blocked_rows().as_str())
        };
        bind(include_str!("postgres/zone_add.sql")).execute(&mut *tx).await.map_err(error)?;
        let row = bind(include_str!("postgres/zone_set.sql")).fetch_one(&mut *tx).await.map_err(error)?;
        let zone = zone(&row)?;
        sqlx::query(include_str!("postgres/zone_version_add.sql"))
            .bind(zone.id)
            .bind(by)
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        tx.commit().await.map_err(error)?;
        Ok(zone)
    }

    pub async fn zones(&self) -> Result<Vec<Zone>> {
        let rows = sqlx::query(include_str!("postgres/zones.sql"))
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(zone).collect()
    }

    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        let row = sqlx::query(include_str!("postgres/zone.sql"))
            .bind(name)
            .fetch_optional(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        row.as_ref().map(zone).transpose()
    }

    pub async fn zone_versions(&self, zone_id: i32) -> Result<Vec<ZoneVersion>> {
        let rows = sqlx::query(include_str!("postgres/zone_versions.sql"))
            .bind(zone_id)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| zone_version!(row)).collect()
    }

    pub async fn history(&self, span: &Span<'_>) -> Result<Vec<Entry>> {
        let query = match span.of {
            Of::Txn(txn) => {
                sqlx::query(include_str!("postgres/history_txn.sql")).bind(txn).bind(None::<&str>)
            }
            Of::Bucket(zone_id, key) => {
                sqlx::query(include_str!("postgres/history_bucket.sql")).bind(zone_id).bind(key)
            }
            Of::Zone(zone_id) => {
                sqlx::query(include_str!("postgres/history_zone.sql")).bind(zone_id).bind(None::<&str>)
            }
        };
        let rows = query
            .bind(span.blocked)
            .bind(span.since)
            .bind(span.until)
            .bind(span.before.at)
            .bind(span.before.id)
            .bind(i64::from(span.limit))
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| entry!(row)).collect()
    }

    /// A connection for a call that has no deadline of its own.
    async fn lease(&self) -> Result<Leased<sqlx::Postgres>> {
        self.connections.lease(Instant::now() + Duration::from_secs(30)).await.map_err(error)
    }
}

pub(crate) async fn find_zone(connection: &mut PgConnection, name: &str) -> Result<Option<Found>> {
    let find = sqlx::query("select z.id, z.version, z.blocked_rows from zone_find($1) z").bind(name);
    let row = find.fetch_optional(connection).await.map_err(error)?;
    row.map(|row| found!(row)).transpose()
}

/// Opens one connection, outside any pool.
pub(crate) async fn connect(address: &Address) -> Result<PgConnection> {
    options(address)?.connect().await.map_err(|e| error(e).at(address))
}

fn options(address: &Address) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(address.secret()).map_err(error)?;
    // No floating point travels, and PgBouncer refuses this start-up parameter.
    Ok(options.extra_float_digits(None).log_statements(log::LevelFilter::Trace))
}

async fn check_on(
    connection: &mut PgConnection,
    requests: &[Request],
    terms: Terms,
    held: Held,
) -> Result<Vec<Option<Decision>>> {
    let owner = Owner::Call { lock_wait_ms: lock_wait_ms(terms) };
    match terms.isolation {
        // A statement of its own is a transaction of its own: one round trip.
        Isolation::RowLock => decide(connection, requests, owner, held).await,
        Isolation::Serializable => {
            let mut tx = connection.begin_with("begin isolation level serializable").await.map_err(error)?;
            let decisions = decide(&mut tx, requests, owner, held).await;
            // Said now: a rollback that is left to the driver waits for the connection's next user.
            let ended = if decisions.is_ok() { tx.commit().await } else { tx.rollback().await };
            ended.map_err(error)?;
            decisions
        }
    }
}

/// Whose transaction a decision is made in.
#[derive(Clone, Copy)]
enum Owner {
    /// The call's own: it says how long to wait for locks, and the zones how long the commit waits for the disk.
    Call { lock_wait_ms: i32 },
    /// Nothing of it is ours to choose.
    Caller,
}

impl Owner {
    fn lock_wait_ms(self) -> Option<i32> {
        match self {
            Self::Call { lock_wait_ms } => Some(lock_wait_ms),
            Self::Caller => None,
        }
    }

    fn is_call(self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

fn lock_wait_ms(terms: Terms) -> i32 {
    let wait = terms.until.saturating_duration_since(Instant::now());
    i32::try_from(wait.as_millis().max(1)).unwrap_or(i32::MAX)
}

async fn decide(
    connection: &mut PgConnection,
    requests: &[Request],
    owner: Owner,
    held: Held,
) -> Result<Vec<Option<Decision>>> {
    if let ([request], Held::Wait) = (requests, held) {
        return Ok(vec![decide_one(connection, request, owner, None).await?]);
    }
    let column = |of: fn(&Request) -> bool| requests.iter().map(of).collect::<Vec<_>>();
    let rows = sqlx::query(include_str!("postgres/check_many.sql"))
        .bind(requests.iter().map(|r| r.zone_id).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.key.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.txn).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.cost).collect::<Vec<_>>())
        .bind(column(|r| r.fresh))
        .bind(column(|r| r.record))
        .bind(owner.lock_wait_ms())
        .bind(held == Held::Skip)
        .bind(owner.is_call())
        .fetch_all(connection)
        .await
        .map_err(error)?;
    if rows.len() != requests.len() {
        return Err(Error::database(format!("{} checks got {} decisions", requests.len(), rows.len())));
    }
    rows.iter().zip(requests).map(|(row, request)| decision(row, request)).collect()
}

/// With `checks` nothing is decided, and the row stands for so many.
async fn decide_one(
    connection: &mut PgConnection,
    request: &Request,
    owner: Owner,
    checks: Option<i32>,
) -> Result<Option<Decision>> {
    let row = sqlx::query(include_str!("postgres/check.sql"))
        .bind(request.zone_id)
        .bind(&request.key)
        .bind(request.txn)
        .bind(request.cost)
        .bind(request.fresh)
        .bind(request.record)
        .bind(owner.lock_wait_ms())
        .bind(owner.is_call())
        .bind(checks)
        .fetch_one(connection)
        .await
        .map_err(error)?;
    decision(&row, request)
}

/// None for a request that was left undecided.
fn decision(row: &PgRow, request: &Request) -> Result<Option<Decision>> {
    match row.try_get("blocked").map_err(error)? {
        Some(blocked) => decision!(row, request, blocked).map(Some),
        None => Ok(None),
    }
}

fn zone(row: &PgRow) -> Result<Zone> {
    zone!(row)
}

fn time(row: &PgRow, column: &str) -> Result<DateTime<Utc>> {
    row.try_get(column).map_err(error)
}

fn text(row: &PgRow, column: &str) -> Result<String> {
    row.try_get(column).map_err(error)
}

pub(crate) fn error(error: sqlx::Error) -> crate::Error {
    fault::translate(error, judge)
}

/// PostgreSQL's SQLSTATEs, and our own.
fn judge(error: &dyn DatabaseError) -> Fault {
    match error.code().as_deref().unwrap_or_default() {
        "TG001" | "TG003" | "TG004" => Fault::Invalid,
        "TG002" => Fault::Conflict,
        // Conflicts and lock waits, a server that ends or begins, a session that idled, a node that only reads, and
        // 53200: no room for the locks of SERIALIZABLE, which a smaller call or a later one has.
        "53200" | "40001" | "40P01" | "55P03" | "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25P03"
        | "25006" => Fault::Transient,
        code if code.starts_with("08") => Fault::Transient,
        "42883" | "42P01" | "3F000" => Fault::Unmigrated,
        "28000" | "28P01" | "3D000" | "42501" => Fault::Refused,
        _ => Fault::Other,
    }
}
