//! PostgreSQL: the engine decides where its two routines may be used, the stored functions elsewhere.

mod action;
mod check;
mod distributed;
mod erase;
mod evidence;
mod ledger;
mod lines;
mod listening;
mod moment;
pub(super) mod moving;
mod queue;
mod removal;
mod routine;
mod session;
mod upkeep;
mod zones;

use chrono::{DateTime, Utc};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool, Row, Transaction};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub use distributed::is_distributed;
use moment::{Moment, time, time_if};

use super::connections::{Connections, Leased, pool_options};
use super::fault::{self, Fault};
use super::hosts::{Hosts, Server, Standing};
use super::{Address, Found, Of, Schema, Span, rows_of};
use crate::engine::Process;
use crate::entry::Entry;
use crate::error::Result;
use crate::shard::Among;

/// A pool of connections to PostgreSQL.
#[derive(Clone)]
pub(crate) struct Postgres {
    pub(super) connections: Connections<sqlx::Postgres>,
    pub(super) process: Arc<Process>,
}

impl Postgres {
    pub fn new(pool: PgPool) -> Self {
        Self::over(Connections::shared(pool, error))
    }

    fn over(connections: Connections<sqlx::Postgres>) -> Self {
        Self { connections, process: Arc::default() }
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
        for claim in [
            "insert into tallygate_shard (name, among, will) values ($1, $2, $3) on conflict do nothing",
            "update tallygate_shard set
                among = case when exists (select 1 from zone_master) then among else $2 end,
                will = case when among in ($2, $3) or not exists (select 1 from zone_master) then $3 else will end
            where name = $1",
        ] {
            sqlx::query(claim).bind(name).bind(among).bind(will).execute(&mut *lease).await.map_err(error)?;
        }
        Ok(())
    }

    pub async fn set_among(&self, among: &str) -> Result<()> {
        let set = sqlx::query("update tallygate_shard set among = $1, will = $1").bind(among);
        set.execute(&mut *self.lease().await?).await.map(drop).map_err(error)
    }

    #[cfg(feature = "testing")]
    pub async fn turn_clock(&self, at: Option<DateTime<Utc>>, by: Duration) -> Result<()> {
        let turn = "update tallygate_test_clock
            set now_at = coalesce($1, now_at, clock_timestamp()) + $2 * interval '1 microsecond'";
        let by_us = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let turn = sqlx::query(turn).bind(at).bind(by_us);
        turn.execute(&mut *self.lease().await?).await.map(drop).map_err(error)
    }

    pub async fn find_zone(&self, name: &str) -> Result<Option<Found>> {
        self.find_zone_in(&mut *self.lease().await?, name).await
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
            Of::ZoneUpwards(zone_id) => sqlx::query(include_str!("postgres/history_zone_upwards.sql"))
                .bind(zone_id)
                .bind(None::<&str>),
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
        rows_of("zone_txn", &rows, |row| entry!(row))
    }

    /// A connection for a call that has no deadline of its own.
    async fn lease(&self) -> Result<Leased<sqlx::Postgres>> {
        self.connections.lease(Instant::now() + Duration::from_secs(30)).await
    }
}

/// None where there is no schema.
pub(crate) async fn schema(connection: &mut PgConnection) -> Result<Option<Schema>> {
    let ask = "select s.version, s.breaking, s.shard, s.among, s.will, s.test_clock from tallygate_schema_version() s";
    Schema::told(sqlx::query_as(ask).fetch_one(connection).await.map_err(error))
}

/// Is a transaction open? Of one that the driver did not begin, a savepoint tells: it can be set in no other place.
pub(super) async fn is_in_transaction(connection: &mut PgConnection) -> Result<bool> {
    const SAVEPOINT: &str = "savepoint tallygate_joins; release savepoint tallygate_joins";
    if connection.is_in_transaction() {
        return Ok(true);
    }
    match connection.execute(SAVEPOINT).await {
        Err(sqlx::Error::Database(said)) if said.code().as_deref() == Some("25P01") => Ok(false),
        set => set.map(|_| true).map_err(error),
    }
}

/// Opens one connection, outside any pool.
pub(crate) async fn connect(address: &Address, until: Instant) -> Result<PgConnection> {
    Ok(Hosts::of(address, SERVER)?.find(until).await?.1)
}

const SERVER: Server<sqlx::Postgres> =
    Server { options, pool, error, standing: |connection| Box::pin(standing(connection)) };

fn pool(options: PgConnectOptions, most: u32) -> PgPool {
    pool_options(most, options.get_port(), "").connect_lazy_with(options)
}

/// A standby is in recovery for as long as it is one.
async fn standing(connection: &mut PgConnection) -> Result<Standing> {
    let replica = sqlx::query_scalar("select pg_is_in_recovery()").fetch_one(connection).await;
    Ok(if replica.map_err(error)? { Standing::Replica } else { Standing::Primary })
}

fn options(address: &Address) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(address.secret()).map_err(error)?;
    // No floating point travels, and PgBouncer refuses this start-up parameter.
    Ok(options.extra_float_digits(None).log_statements(log::LevelFilter::Trace))
}

/// Said now: a rollback that is left to the driver waits for the connection's next user.
async fn end<T>(tx: Transaction<'_, sqlx::Postgres>, result: Result<T>) -> Result<T> {
    let ended = if result.is_ok() { tx.commit().await } else { tx.rollback().await };
    ended.map_err(error)?;
    result
}

/// The database's clock.
async fn clock(connection: &mut PgConnection) -> Result<DateTime<Utc>> {
    sqlx::query_scalar("select c.now_at from zone_clock_view c").fetch_one(connection).await.map_err(error)
}

fn text(row: &PgRow, column: &str) -> Result<String> {
    row.try_get(column).map_err(error)
}

fn text_if(row: &PgRow, column: &str) -> Result<Option<String>> {
    row.try_get(column).map_err(error)
}

pub(crate) fn error(error: sqlx::Error) -> crate::Error {
    fault::translate(error, judge)
}

/// PostgreSQL's SQLSTATEs, and our own.
fn judge(error: &dyn DatabaseError) -> Fault {
    match error.code().as_deref().unwrap_or_default() {
        "TG001" => Fault::UnknownZone,
        "TG003" | "TG004" | "TG012" => Fault::Invalid,
        "TG002" => Fault::Conflict,
        "TG011" => Fault::Elsewhere,
        "TG009" | "TG010" => Fault::Transient,
        // Conflicts and lock waits, a statement that was killed or took longer than it may, a server that ends or begins, a
        // session that idled, a node that only reads, and 53200: no room for the locks of SERIALIZABLE, which a smaller
        // call or a later one has.
        "53200" | "40001" | "40P01" | "55P03" | "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "53300"
        | "25P03" | "25006" => Fault::Transient,
        code if code.starts_with("08") => Fault::Transient,
        // Citus hides why a node could not commit: under SERIALIZABLE it is a conflict that is found there.
        "XX000"
            if error.message().starts_with("could not commit transaction for shard")
                || error.message().starts_with("could not serialize access") =>
        {
            Fault::Transient
        }
        "42883" | "42P01" | "3F000" => Fault::Unmigrated,
        "28000" | "28P01" | "3D000" | "42501" => Fault::Refused,
        _ => Fault::Other,
    }
}
