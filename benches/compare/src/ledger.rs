//! Those who record: the library, and its rivals in the same databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tallygate::{Check, Limiter};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::database::{Site, Wire, ZONE};
use crate::measure::{Answer, Caller, Contestant};

/// The library, as its documents say to use it.
pub struct Tallygate {
    /// The callers in turn; more than one decide like processes beside each other, each with a memory of its own.
    pub limiters: Vec<Limiter>,
    pub callers: usize,
}

impl Contestant for Tallygate {
    type Caller = Limiter;

    fn callers(&self) -> usize {
        self.callers
    }

    fn caller(&self, number: usize) -> Limiter {
        self.limiters[number % self.limiters.len()].clone()
    }
}

impl Caller for Limiter {
    async fn call(&mut self, keys: &[&'static str]) -> Result<Answer> {
        let decision = self.check(Check::new(ZONE, keys[0])).await?;
        Ok(Answer::one(decision.is_allowed()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A locked row, a count over the window, an insert.
    Seed,
    /// Update one row, insert one row, commit: nothing is decided.
    Bare,
    /// The same for many rows at once.
    BareMany,
}

/// Statements on connections of their own. Callers share the connections, each in its turn.
pub struct Rival {
    pub way: Way,
    callers: usize,
    batch: usize,
    zone_id: i32,
    wires: Vec<Arc<Mutex<Wire>>>,
    n: Arc<AtomicI64>,
}

impl Rival {
    pub fn of(site: &Site, way: Way, callers: usize, batch: usize) -> Self {
        // Two transactions in flight: one is written while the other is made durable.
        let (callers, batch) = if way == Way::BareMany { (2, batch) } else { (callers, 1) };
        // Starts at the clock: no two rows of a bucket get the same number.
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
        let n = Arc::new(AtomicI64::new(i64::try_from(now_us).unwrap_or(0)));
        Self { way, callers, batch, zone_id: site.zone_id, wires: site.wires.clone(), n }
    }
}

impl Contestant for Rival {
    type Caller = RivalCaller;

    fn callers(&self) -> usize {
        self.callers
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn caller(&self, number: usize) -> RivalCaller {
        let wire = Arc::clone(&self.wires[number % self.wires.len()]);
        RivalCaller { way: self.way, zone_id: self.zone_id, wire, n: Arc::clone(&self.n) }
    }
}

pub struct RivalCaller {
    way: Way,
    zone_id: i32,
    wire: Arc<Mutex<Wire>>,
    n: Arc<AtomicI64>,
}

/// One of the writes of a batch.
#[derive(Serialize)]
struct Write {
    key: &'static str,
    txn: uuid::fmt::Simple,
    n: i64,
}

impl Caller for RivalCaller {
    async fn call(&mut self, keys: &[&'static str]) -> Result<Answer> {
        let mut wire = self.wire.lock().await;
        let first = self.n.fetch_add(i64::try_from(keys.len())?, Ordering::Relaxed);
        let writes: Vec<Write> = keys
            .iter()
            .zip(first..)
            .map(|(&key, n)| Write { key, txn: Uuid::now_v7().simple(), n })
            .collect();
        let blocked = match &mut *wire {
            Wire::Postgres(wire) => postgres(wire, self.way, self.zone_id, &writes).await?,
            Wire::MySql(wire) => mysql(wire, self.way, self.zone_id, &writes).await?,
            Wire::Sqlite(wire) => sqlite(wire, self.way, self.zone_id, &writes).await?,
        };
        let decisions = keys.len() as u64;
        Ok(Answer { decisions, allowed: if blocked { 0 } else { decisions } })
    }
}

async fn postgres(wire: &mut PgConnection, way: Way, zone_id: i32, writes: &[Write]) -> Result<bool> {
    let one = &writes[0];
    match way {
        Way::Seed => {
            let blocked: i16 = sqlx::query_scalar("select blocked from seed_check($1, $2)")
                .bind(zone_id)
                .bind(one.key)
                .fetch_one(wire)
                .await?;
            return Ok(blocked != 0);
        }
        Way::Bare => {
            sqlx::query("select bare_write($1, $2, $3, $4)")
                .bind(zone_id)
                .bind(one.key)
                .bind(one.txn.into_uuid())
                .bind(one.n)
                .fetch_one(wire)
                .await?;
        }
        Way::BareMany => {
            sqlx::query("select bare_write_many($1, $2, $3, $4)")
                .bind(zone_id)
                .bind(writes.iter().map(|write| write.key).collect::<Vec<_>>())
                .bind(writes.iter().map(|write| write.txn.into_uuid()).collect::<Vec<_>>())
                .bind(writes.iter().map(|write| write.n).collect::<Vec<_>>())
                .fetch_one(wire)
                .await?;
        }
    }
    Ok(false)
}

async fn mysql(wire: &mut MySqlConnection, way: Way, zone_id: i32, writes: &[Write]) -> Result<bool> {
    let one = &writes[0];
    match way {
        Way::Seed => {
            let rows: Vec<(i8, i64)> =
                sqlx::query_as("call seed_check(?, ?)").bind(zone_id).bind(one.key).fetch_all(wire).await?;
            return Ok(rows.first().context("no answer")?.0 != 0);
        }
        Way::Bare => {
            sqlx::query("call bare_write(?, ?, ?, ?)")
                .bind(zone_id)
                .bind(one.key)
                .bind(one.txn.into_uuid())
                .bind(one.n)
                .fetch_all(wire)
                .await?;
        }
        Way::BareMany => {
            sqlx::query("call bare_write_many(?, ?)")
                .bind(zone_id)
                .bind(serde_json::to_string(writes)?)
                .fetch_all(wire)
                .await?;
        }
    }
    Ok(false)
}

/// In a transaction that takes the file's write lock at its beginning.
async fn sqlite(wire: &mut SqliteConnection, way: Way, zone_id: i32, writes: &[Write]) -> Result<bool> {
    let one = &writes[0];
    let now_us = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let mut tx = wire.begin_with("begin immediate").await?;
    let mut blocked = false;
    match way {
        Way::Seed => {
            sqlx::query(include_str!("../../routine/sqlite/seed_bucket.sql"))
                .bind(one.key)
                .execute(&mut *tx)
                .await?;
            let (answer, _): (bool, i64) =
                sqlx::query_as(include_str!("../../routine/sqlite/seed_append.sql"))
                    .bind(zone_id)
                    .bind(one.key)
                    .fetch_one(&mut *tx)
                    .await?;
            blocked = answer;
        }
        Way::Bare => {
            for sql in
                [include_str!("../sql/sqlite/bare_head.sql"), include_str!("../sql/sqlite/bare_append.sql")]
            {
                sqlx::query(sql)
                    .bind(zone_id)
                    .bind(one.key)
                    .bind(one.n)
                    .bind(now_us)
                    .bind(one.txn.into_uuid())
                    .execute(&mut *tx)
                    .await?;
            }
        }
        Way::BareMany => {
            let writes = serde_json::to_string(writes)?;
            for sql in
                [include_str!("../sql/sqlite/bare_heads.sql"), include_str!("../sql/sqlite/bare_appends.sql")]
            {
                sqlx::query(sql).bind(zone_id).bind(&writes).bind(now_us).execute(&mut *tx).await?;
            }
        }
    }
    tx.commit().await?;
    Ok(blocked)
}
