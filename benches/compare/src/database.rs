//! The databases of one engine: one for the library, one for its rivals.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use tallygate::schema::Migrator;
use tallygate::{Config, Limiter, Policy};
use tokio::sync::Mutex;

use crate::server::{self, Place};

/// 100 in 60 s: most checks of distinct keys pass, and a hot one is blocked most of the time.
pub const RATE: i64 = 100;
pub const WINDOW: Duration = Duration::from_secs(60);
pub const ZONE: &str = "login";

/// Connections of the rivals.
const CONNECTIONS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    MySql,
    MariaDb,
    Sqlite,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
            Self::Sqlite => "SQLite",
        })
    }
}

pub enum Wire {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

pub struct Site {
    pub engine: Engine,
    /// Of the library's database.
    pub url: String,
    pub limiter: Limiter,
    /// Connections to the rivals' database, and its zone.
    pub wires: Vec<Arc<Mutex<Wire>>>,
    pub zone_id: i32,
    pub settings: String,
}

impl Site {
    pub async fn make(engine: Engine, place: &Place, names: &[String]) -> Result<Self> {
        let [url, rivals] = match engine {
            Engine::Sqlite => {
                let directory = place.directory("sqlite")?;
                ["tallygate", "rivals"].map(|name| format!("sqlite:{}/{name}.db", directory.display()))
            }
            _ => {
                let server = server::start(engine, place).await?.url;
                let mut wire = Wire::open(engine, &server).await?;
                for name in ["tallygate", "rivals"] {
                    wire.execute(&format!("create database {name}")).await?;
                }
                ["tallygate", "rivals"].map(|name| format!("{server}/{name}"))
            }
        };
        let (_, limiter) = zone(&url, engine, names).await?;
        let (zone_id, _) = zone(&rivals, engine, names).await?;
        let mut wire = Wire::open(engine, &rivals).await?;
        wire.make_rivals(zone_id, names).await?;
        let settings = wire.settings(engine).await?;
        let mut wires = vec![Arc::new(Mutex::new(wire))];
        // One writer at a time is all that SQLite has.
        while engine != Engine::Sqlite && wires.len() < CONNECTIONS {
            wires.push(Arc::new(Mutex::new(Wire::open(engine, &rivals).await?)));
        }
        Ok(Self { engine, url, limiter, wires, zone_id, settings })
    }
}

/// Makes the schema, the zone and the rows of its buckets.
async fn zone(url: &str, engine: Engine, names: &[String]) -> Result<(i32, Limiter)> {
    Migrator::new(url)?.apply().await?;
    let limiter = Limiter::connect_with(url, Config::default()).await?;
    let policy = Policy::sliding_log(RATE, WINDOW)?;
    let zone_id = limiter.operator().set_zone(ZONE, &policy, None, "comparison").await?.id;
    let mut wire = Wire::open(engine, url).await?;
    for some in names.chunks(1_000) {
        // On SQLite a head is made by its first decision.
        let (columns, values) = match engine {
            Engine::Sqlite => (
                ", salt, row_hash, seq, last_at, spent_total, zone_version, strikes",
                ", zeroblob(16), zeroblob(32), 1, 0, 0, 1, 0",
            ),
            // Bytes of the right length: a chain that begins with them is no worse.
            _ => (", salt, row_hash", ", '0123456789abcdef', '0123456789abcdef0123456789abcdef'"),
        };
        let heads = rows(some, |key| format!("({zone_id}, '{key}'{values})"));
        wire.execute(&format!("insert into zone_bucket_lock (zone_id, bucket_key{columns}) values {heads}"))
            .await?;
    }
    match engine {
        Engine::Postgres => wire.execute("vacuum analyze").await?,
        Engine::Sqlite => wire.execute("analyze").await?,
        _ => wire.execute("analyze table zone_bucket_lock").await?,
    }
    Ok((zone_id, limiter))
}

fn rows(names: &[String], row: impl Fn(&String) -> String) -> String {
    names.iter().map(row).collect::<Vec<_>>().join(",")
}

impl Wire {
    pub async fn open(engine: Engine, url: &str) -> Result<Self> {
        Ok(match engine {
            Engine::Postgres => Self::Postgres(PgConnection::connect(url).await?),
            Engine::MySql | Engine::MariaDb => Self::MySql(MySqlConnection::connect(url).await?),
            // As the library opens it, with its room for pages.
            Engine::Sqlite => {
                let options = SqliteConnectOptions::from_str(url)?
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .pragma("cache_size", "-65536")
                    .pragma("wal_autocheckpoint", "4000")
                    .pragma("temp_store", "memory")
                    .busy_timeout(Duration::from_secs(5));
                Self::Sqlite(SqliteConnection::connect_with(&options).await?)
            }
        })
    }

    pub async fn execute(&mut self, sql: &str) -> Result<()> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Postgres(wire) => sql.execute(wire).await.map(drop),
            Self::MySql(wire) => sql.execute(wire).await.map(drop),
            Self::Sqlite(wire) => sql.execute(wire).await.map(drop),
        }
        .context("a statement")
    }

    /// The seed's tables and routine, and the floors'.
    async fn make_rivals(&mut self, zone_id: i32, names: &[String]) -> Result<()> {
        let statements: &[&str] = match self {
            Self::Postgres(_) => &[
                include_str!("../../routine/postgres/seed.sql"),
                include_str!("../../routine/postgres/bare.sql"),
                include_str!("../sql/postgres/bare_write_many.sql"),
            ],
            Self::MySql(_) => &[
                include_str!("../../routine/mysql/seed_tables.sql"),
                include_str!("../../routine/mysql/seed_check.sql"),
                include_str!("../../routine/mysql/bare_write.sql"),
                include_str!("../sql/mysql/bare_write_many.sql"),
            ],
            Self::Sqlite(_) => &[include_str!("../../routine/sqlite/seed_tables.sql")],
        };
        for sql in statements {
            self.execute(sql).await?;
        }
        if let Self::Sqlite(wire) = self {
            // They hold each row to the head before it. Nothing is decided here, and the statement moves the head.
            let triggers: Vec<String> = sqlx::query_scalar(
                "select name from sqlite_master where type = 'trigger' and tbl_name = 'zone_txn'",
            )
            .fetch_all(wire)
            .await?;
            for trigger in triggers {
                self.execute(&format!("drop trigger {trigger}")).await?;
            }
        }
        let seconds = WINDOW.as_secs();
        self.execute(&format!("insert into seed_zone values ({zone_id}, 'login', {RATE}, {seconds})"))
            .await?;
        for some in names.chunks(1_000) {
            let keys = rows(some, |key| format!("('{key}')"));
            self.execute(&format!("insert into seed_bucket_lock (bucket_key) values {keys}")).await?;
        }
        Ok(())
    }

    /// The version and what decides how durable a commit is.
    async fn settings(&mut self, engine: Engine) -> Result<String> {
        const POSTGRES: &str = "select current_setting('server_version')
            || string_agg(', ' || name || '=' || current_setting(name), '' order by name)
            from pg_settings
            where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method', 'shared_buffers')";
        const MYSQL: &str = "select concat(@@version, ', innodb_flush_log_at_trx_commit=',
            @@innodb_flush_log_at_trx_commit, ', innodb_flush_method=', @@innodb_flush_method, ', innodb_doublewrite=',
            @@innodb_doublewrite, ', log_bin=', @@log_bin, ', sync_binlog=', @@sync_binlog,
            ', innodb_buffer_pool_size=', @@innodb_buffer_pool_size >> 20, 'M')";
        const SQLITE: &str = "select sqlite_version() || ', journal_mode=wal, synchronous=full, cache_size=64M, wal_autocheckpoint=4000'";
        let settings: String = match self {
            Self::Postgres(wire) => sqlx::query_scalar(POSTGRES).fetch_one(wire).await?,
            Self::MySql(wire) => sqlx::query_scalar(MYSQL).fetch_one(wire).await?,
            Self::Sqlite(wire) => sqlx::query_scalar(SQLITE).fetch_one(wire).await?,
        };
        Ok(format!("{engine} {settings}"))
    }
}
