//! One migrator at a time, where statements that define tables commit by themselves.
//!
//! A row that is locked is free when its session ends, but the lock is that of one server: another node of a cluster has one of its
//! own. A row is there for all nodes, but outlives who wrote it. So a migrator holds both, and says in a row that it is
//! alive: who holds a server's lock and finds the row of that server knows that its maker is gone; of the row of another server it
//! knows so after a while. Nobody but the owner may lock or write these rows, where any session may take a `get_lock`.

use std::pin::pin;
use std::time::Duration;

use sqlx::{Connection, MySqlConnection};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::adapter::{LOCK_WAIT_S, mysql::open};
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::mysql::{error, number};
use crate::store::{Address, was_taken_back};

/// The time between two signs that the holder is alive, and between two looks of those who wait.
const SIGN: Duration = Duration::from_secs(1);

/// Without a sign for so long the holder on another node counts as gone.
const GONE_S: u32 = 30;

/// The tries of a migrator that finds another node faster with the row of its server, or is ended by the table that it makes.
const LOST_TO_NODES: u32 = 50;

/// Held by nobody else as long as this is there and [`hold`](Self::hold) is waited for.
pub(super) struct Lock {
    connection: MySqlConnection,
    holder: Uuid,
}

impl Lock {
    /// For a migrator that has this [server's lock](take_of_server).
    pub async fn take(address: &Address) -> Result<Self> {
        let until = Instant::now() + Duration::from_secs(LOCK_WAIT_S.into());
        let connection = open(address).await?;
        let mut lock = Self { connection, holder: Uuid::new_v4() };
        loop {
            match lock.is_taken().await {
                Ok(true) => return Ok(lock),
                // Another node was faster.
                Err(error) if !error.is_transient() => return Err(error),
                _ if Instant::now() + SIGN >= until => return Err(held()),
                _ => sleep(SIGN).await,
            }
        }
    }

    async fn is_taken(&mut self) -> Result<bool> {
        let take = sqlx::query(include_str!("lock/take.sql"))
            .bind(self.holder)
            .bind(GONE_S)
            .bind(self.holder)
            .bind(self.holder)
            .bind(self.holder);
        take.execute(&mut self.connection).await.map_err(error)?;
        let mine = "select count(*) from tallygate_schema_lock where holder = ?";
        let mine: i64 = sqlx::query_scalar(mine)
            .bind(self.holder)
            .fetch_one(&mut self.connection)
            .await
            .map_err(error)?;
        Ok(mine == 1)
    }

    /// Does the work, and says now and then that it is alive; fails when it has lost the lock after all.
    pub async fn hold<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = pin!(work);
        loop {
            match timeout(SIGN, work.as_mut()).await {
                Ok(done) => return done,
                // Not beside the work: a statement that is let go half-way would be answered to the next one.
                Err(_) => self.sign().await?,
            }
        }
    }

    async fn sign(&mut self) -> Result<()> {
        let alive =
            "update tallygate_schema_lock set alive_at = utc_timestamp(6) where id = 1 and holder = ?";
        match sqlx::query(alive).bind(self.holder).execute(&mut self.connection).await.map_err(error) {
            Ok(done) if done.rows_affected() == 0 => Err(Error::transient(
                "another migrator took the lock, since this one gave no sign for too long; try again",
            )),
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(()),
        }
    }

    pub async fn release(mut self) -> Result<()> {
        let remove = "delete from tallygate_schema_lock where id = 1 and holder = ?";
        sqlx::query(remove).bind(self.holder).execute(&mut self.connection).await.map_err(error)?;
        self.connection.close().await.map_err(error)
    }
}

/// Takes the lock of one server, for as long as the answer lives. In the session that migrates callers are shown by a `get_lock`
/// that a routine which is missing is being made anew; nothing else follows from that.
pub(super) async fn take_of_server(
    address: &Address,
    migrating: &mut MySqlConnection,
) -> Result<MySqlConnection> {
    let mut connection = open(address).await?;
    let has = "select count(*) from information_schema.tables
        where table_schema = database() and table_name = 'tallygate_schema_lock'";
    // On a node of a cluster a statement that makes a table ends the transactions that use it.
    let has: i64 = sqlx::query_scalar(has).fetch_one(&mut connection).await.map_err(error)?;
    if has == 0 {
        let make = sqlx::raw_sql(include_str!("lock/make.sql")).execute(&mut connection);
        make.await.map_err(error)?;
    }
    let until = Instant::now() + Duration::from_secs(LOCK_WAIT_S.into());
    let mut tries = Tries::new(LOST_TO_NODES, until).when(was_taken_back);
    while let Err(fault) =
        sqlx::raw_sql(include_str!("lock/take_of_server.sql")).execute(&mut connection).await
    {
        let fault = if number(&fault) == 1205 { held() } else { error(fault) };
        if !tries.again(&fault).await {
            return Err(fault);
        }
    }
    let show = "do get_lock(concat('tallygate.', left(sha2(database(), 256), 32)), 0)";
    sqlx::raw_sql(show).execute(migrating).await.map_err(error)?;
    Ok(connection)
}

fn held() -> Error {
    Error::transient(format!(
        "another migrator held the lock for {LOCK_WAIT_S} s; see what it does, then try again"
    ))
}
