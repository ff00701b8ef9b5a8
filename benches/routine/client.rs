//! The ways to make a decision, each over a connection of its own.

use std::sync::Arc;

use chrono::Utc;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tallygate::{Check, Limiter};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::measure::Keys;
use crate::server::Engine;
use crate::site::{Site, ZONE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Update one row, insert one row, commit: what any of this must cost.
    Bare,
    /// A locked row and a count over the window.
    Seed,
    /// The routine of the seed's signature, as callers in SQL have it.
    Velocity,
    /// The routine of a check by itself.
    Routine,
    /// The limiter, over a pool of 64 connections.
    Limiter,
}

impl Way {
    pub const ALL: [Self; 5] = [Self::Bare, Self::Seed, Self::Velocity, Self::Routine, Self::Limiter];

    /// The embedded engine has no routine: there the limiter decides. The bare statements make no bucket.
    pub fn exists_on(self, engine: Engine, keys: Keys) -> bool {
        match self {
            Self::Velocity | Self::Routine => engine != Engine::Sqlite,
            Self::Bare => keys != Keys::New,
            Self::Seed | Self::Limiter => true,
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Self::Bare => "bare two statements",
            Self::Seed => "seed's counting",
            Self::Velocity => "check_velocity",
            Self::Routine => "zone_check",
            Self::Limiter => "Limiter",
        }
    }
}

/// A caller with a connection of its own; for the limiter's way it uses the limiter's pool.
pub struct Client {
    connection: Connected,
    limiter: Limiter,
    zone_id: i32,
    bare_zone_id: i32,
}

enum Connected {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(Arc<Mutex<SqliteConnection>>),
}

type Result<T> = std::result::Result<T, sqlx::Error>;

impl Client {
    pub async fn connect(site: &Site) -> Self {
        let connection = match (site.engine, &site.file) {
            (_, Some(file)) => Connected::Sqlite(Arc::clone(file)),
            (Engine::Postgres, _) => {
                Connected::Postgres(PgConnection::connect(&site.url).await.expect("PostgreSQL"))
            }
            _ => Connected::MySql(MySqlConnection::connect(&site.url).await.expect("MySQL")),
        };
        let (zone_id, bare_zone_id) = (site.zone_id, site.bare_zone_id);
        Self { connection, limiter: site.limiter.clone(), zone_id, bare_zone_id }
    }

    /// Makes a decision. `n` is another number each time.
    pub async fn decide(&mut self, way: Way, key: String, n: i64) {
        if way == Way::Limiter {
            self.limiter.check(Check::new(ZONE, key)).await.expect("a decision");
            return;
        }
        let zone_id = if way == Way::Bare { self.bare_zone_id } else { self.zone_id };
        let done = match &mut self.connection {
            Connected::Postgres(connection) => postgres(connection, way, zone_id, &key, n).await,
            Connected::MySql(connection) => mysql(connection, way, zone_id, &key, n).await,
            Connected::Sqlite(file) => sqlite(&mut *file.lock().await, way, zone_id, &key).await,
        };
        done.expect("a decision");
    }
}

async fn postgres(connection: &mut PgConnection, way: Way, zone_id: i32, key: &str, n: i64) -> Result<()> {
    let sql = match way {
        Way::Bare => "select bare_write($1, $2, $3, $4)",
        Way::Seed => "select blocked, id from seed_check($1, $2)",
        Way::Velocity => "select blocked, id from check_velocity($1, $2)",
        _ => "select blocked, id from zone_check($1, $2, $3, $4, $5, $6, $7)",
    };
    let mut query = sqlx::query(sql).bind(zone_id).bind(key);
    match way {
        Way::Bare => query = query.bind(Uuid::now_v7()).bind(n),
        Way::Seed | Way::Velocity => {}
        // Fresh, not a peek, with the deadline that the limiter has when nothing else is said.
        _ => {
            query = query.bind(Uuid::now_v7()).bind(1_i64).bind(false).bind(5_000).bind(true);
        }
    }
    query.fetch_one(connection).await.map(drop)
}

async fn mysql(connection: &mut MySqlConnection, way: Way, zone_id: i32, key: &str, n: i64) -> Result<()> {
    let sql = match way {
        Way::Bare => "call bare_write(?, ?, ?, ?)",
        Way::Seed => "call seed_check(?, ?)",
        Way::Velocity => "call check_velocity(?, ?)",
        _ => "call zone_check(?, ?, ?, ?, ?, ?)",
    };
    let mut query = sqlx::query(sql).bind(zone_id).bind(key.to_owned());
    match way {
        Way::Bare => query = query.bind(Uuid::now_v7()).bind(n),
        Way::Seed | Way::Velocity => {}
        _ => query = query.bind(Uuid::now_v7()).bind(1_i64).bind(false).bind(5),
    }
    query.fetch_all(connection).await.map(drop)
}

/// The statements in a transaction that takes the file's write lock at its beginning.
async fn sqlite(file: &mut SqliteConnection, way: Way, zone_id: i32, key: &str) -> Result<()> {
    let mut tx = file.begin_with("begin immediate").await?;
    match way {
        Way::Bare => {
            let wrote = sqlx::query(include_str!("sqlite/bare.sql"))
                .bind(zone_id)
                .bind(key)
                .bind(Utc::now().timestamp_micros())
                .bind(Uuid::now_v7())
                .execute(&mut *tx)
                .await?;
            assert_eq!(wrote.rows_affected(), 1, "{key} was made beforehand");
        }
        _ => {
            sqlx::query(include_str!("sqlite/seed_bucket.sql")).bind(key).execute(&mut *tx).await?;
            sqlx::query(include_str!("sqlite/seed_append.sql"))
                .bind(zone_id)
                .bind(key)
                .fetch_one(&mut *tx)
                .await?;
        }
    }
    tx.commit().await
}
