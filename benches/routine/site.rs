//! A database made for one engine's measurements: schema, zones and buckets of all three ways.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use tallygate::schema::Migrator;
use tallygate::{Config, Limiter, Policy};
use tokio::sync::Mutex;

use crate::server::{Engine, Server};

/// Buckets for distinct keys; those that follow them are the hot ones, a fresh one for each column.
pub const BUCKETS: usize = 10_000;
const HOT_BUCKETS: usize = 100;

/// The zone that the limiter decides by, that of the routines, and the one whose rows the bare statements write: what the
/// limiter remembers of a bucket no other way makes old.
pub const ZONE: &str = "login";
const ROUTINES_ZONE: &str = "routines";
const BARE_ZONE: &str = "bare";

/// 100 in 60 s: most checks of distinct buckets pass, and a hot one is blocked most of the time.
const RATE: i64 = 100;
const WINDOW: std::time::Duration = std::time::Duration::from_secs(60);

pub struct Site {
    pub engine: Engine,
    pub url: String,
    pub limiter: Limiter,
    pub zone_id: i32,
    pub bare_zone_id: i32,
    /// The one connection on which everything but the limiter writes to SQLite.
    pub file: Option<Arc<Mutex<SqliteConnection>>>,
    server: Option<Server>,
    name: String,
}

/// The name of a bucket that was made beforehand.
pub fn bucket(number: usize) -> String {
    format!("bucket:{number:05}")
}

impl Site {
    pub async fn make(engine: Engine, name: &str, config: Config) -> Self {
        let name = format!("tallygate_bench_{name}_{}", std::process::id());
        let (server, url) = match engine {
            Engine::Sqlite => {
                let path = std::env::current_dir().expect("a current directory").join(format!("{name}.db"));
                (None, format!("sqlite:{}", path.display()))
            }
            _ => {
                let server = Server::start(engine).await;
                execute(&server.url, engine, &format!("create database {name}")).await;
                let url = sibling(&server.url, &name);
                (Some(server), url)
            }
        };
        Migrator::new(&url).expect("a URL").apply().await.expect("migrations");
        let limiter = Limiter::connect_with(&url, config).await.expect("a limiter");
        let policy = Policy::sliding_log(RATE, WINDOW).expect("a policy");
        let mut ids = [0; 3];
        for (id, zone) in ids.iter_mut().zip([ZONE, ROUTINES_ZONE, BARE_ZONE]) {
            *id = limiter.operator().set_zone(zone, &policy, None, "benchmark").await.expect("a zone").id;
        }
        let [limiter_zone_id, zone_id, bare_zone_id] = ids;
        let file = match engine {
            Engine::Sqlite => Some(Arc::new(Mutex::new(open(&url).await))),
            _ => None,
        };
        let site = Self { engine, url, limiter, zone_id, bare_zone_id, file, server, name };
        site.fill([limiter_zone_id, zone_id, bare_zone_id]).await;
        site
    }

    /// The seed's tables and routine, the floor's routine, and the buckets of all.
    async fn fill(&self, zones: [i32; 3]) {
        match self.engine {
            Engine::Postgres => {
                self.execute(include_str!("postgres/seed.sql")).await;
                self.execute(include_str!("postgres/bare.sql")).await;
            }
            Engine::MySql | Engine::MariaDb => {
                self.execute(include_str!("mysql/seed_tables.sql")).await;
                self.execute(include_str!("mysql/seed_check.sql")).await;
                self.execute(include_str!("mysql/bare_write.sql")).await;
            }
            Engine::Sqlite => self.execute(include_str!("sqlite/seed_tables.sql")).await,
        }
        let zone_id = self.zone_id;
        let seconds = WINDOW.as_secs();
        self.execute(&format!("insert into seed_zone values ({zone_id}, 'login', {RATE}, {seconds})")).await;
        let numbers = (0..BUCKETS + HOT_BUCKETS).collect::<Vec<_>>();
        for some in numbers.chunks(1_000) {
            let rows = |of: fn(i32, String) -> String, zone_id| {
                some.iter().map(|&n| of(zone_id, bucket(n))).collect::<Vec<_>>().join(",")
            };
            let seed = rows(|_, key| format!("('{key}')"), 0);
            self.execute(&format!("insert into seed_bucket_lock (bucket_key) values {seed}")).await;
            for zone_id in zones {
                // On SQLite a head is made by its first decision.
                let (columns, row): (_, fn(i32, String) -> String) = match self.engine {
                    Engine::Sqlite => {
                        (", salt, row_hash, seq, last_at, spent_total, zone_version, strikes", |id, key| {
                            format!("({id}, '{key}', zeroblob(16), zeroblob(32), 1, 0, 0, 1, 0)")
                        })
                    }
                    _ => (", salt, row_hash", |id, key| format!("({id}, '{key}', '{:016}', '{:032}')", 0, 0)),
                };
                let heads = rows(row, zone_id);
                self.execute(&format!(
                    "insert into zone_bucket_lock (zone_id, bucket_key{columns}) values {heads}"
                ))
                .await;
            }
        }
        match self.engine {
            Engine::Postgres => self.execute("vacuum analyze").await,
            Engine::Sqlite => self.execute("analyze").await,
            _ => self.execute("analyze table zone_bucket_lock, seed_bucket_lock").await,
        }
    }

    pub async fn execute(&self, sql: &str) {
        match &self.file {
            Some(file) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *file.lock().await).await.expect(sql);
            }
            None => execute(&self.url, self.engine, sql).await,
        }
    }

    /// The server's version and what decides how durable a commit is.
    pub async fn settings(&self) -> String {
        const POSTGRES: &str = "select 'PostgreSQL ' || current_setting('server_version')
            || string_agg(', ' || name || '=' || setting, '' order by name)
            from pg_settings where name in ('fsync', 'synchronous_commit', 'wal_sync_method')";
        const MYSQL: &str = "select concat(@@version, ', innodb_flush_log_at_trx_commit=',
            @@innodb_flush_log_at_trx_commit, ', log_bin=', @@log_bin, ', sync_binlog=', @@sync_binlog)";
        const SQLITE: &str = "select 'SQLite ' || sqlite_version() || ', journal_mode=wal, synchronous=full'";
        let settings: Result<String, sqlx::Error> = match self.engine {
            Engine::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await.expect("PostgreSQL");
                sqlx::query_scalar(POSTGRES).fetch_one(&mut connection).await
            }
            Engine::MySql | Engine::MariaDb => {
                let mut connection = MySqlConnection::connect(&self.url).await.expect("MySQL");
                sqlx::query_scalar(MYSQL).fetch_one(&mut connection).await
            }
            Engine::Sqlite => {
                let file = self.file.as_ref().expect("a file");
                sqlx::query_scalar(SQLITE).fetch_one(&mut *file.lock().await).await
            }
        };
        settings.expect("settings")
    }

    pub async fn remove(self) {
        let Self { engine, url, limiter, file, server, name, .. } = self;
        drop((limiter, file));
        match server {
            Some(server) => {
                let force = if engine == Engine::Postgres { " with (force)" } else { "" };
                execute(&server.url, engine, &format!("drop database {name}{force}")).await;
                server.stop().await;
            }
            None => {
                let path = PathBuf::from(url.trim_start_matches("sqlite:"));
                for ending in ["db", "db-wal", "db-shm"] {
                    std::fs::remove_file(path.with_extension(ending)).ok();
                }
            }
        }
    }
}

/// The URL of another database of the same server.
fn sibling(url: &str, database: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL with a scheme");
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    format!("{scheme}://{host}/{database}")
}

async fn execute(url: &str, engine: Engine, sql: &str) {
    if engine == Engine::Postgres {
        let mut connection = PgConnection::connect(url).await.expect("PostgreSQL");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect(sql);
    } else {
        let mut connection = MySqlConnection::connect(url).await.expect("MySQL");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect(sql);
    }
}

/// Opens the file as the library does.
async fn open(url: &str) -> SqliteConnection {
    let options = SqliteConnectOptions::from_str(url)
        .expect("a path")
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(std::time::Duration::from_secs(5));
    SqliteConnection::connect_with(&options).await.expect("the file")
}
