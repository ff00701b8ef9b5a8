//! The processor time of a server's sessions, which does not wander with the load of the machine.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use crate::server::Engine;
use crate::site::Site;

/// The kernel's figure for the other sessions of this database. Only a superuser may read it.
const POSTGRES: &str =
    "select sum(split_part(pg_read_file('/proc/' || a.pid || '/schedstat', 0, 100, true), ' ', 1)::bigint)
        ::float8 / 1000
    from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid()";

/// Of all sessions, in picoseconds; what a routine does is in the statement that called it.
const MYSQL: &str = "select cast(sum(s.sum_cpu_time) / 1e6 as double)
    from performance_schema.events_statements_summary_global_by_event_name s
    where s.event_name like 'statement/sql/%' or s.event_name like 'statement/com/%'";

/// Of all sessions, in seconds.
const MARIADB: &str =
    "select cast(sum(u.cpu_time) * 1e6 as double) from information_schema.user_statistics u";

/// A connection of its own, on which the time is asked for.
pub enum Processor {
    Postgres(PgConnection),
    MySql(MySqlConnection, &'static str),
    /// A file has no server.
    None,
}

impl Processor {
    pub async fn of(site: &Site) -> Self {
        let (sql, counted) = match site.engine {
            Engine::Sqlite => return Self::None,
            Engine::Postgres => {
                return Self::Postgres(PgConnection::connect(&site.url).await.expect("PostgreSQL"));
            }
            Engine::MySql => (
                MYSQL,
                "update performance_schema.setup_consumers set enabled = 'YES' where name = 'events_statements_cpu'",
            ),
            Engine::MariaDb => (MARIADB, "set global userstat = 1"),
        };
        let mut connection = MySqlConnection::connect(&site.url).await.expect("MySQL");
        // A user who may not count gets no figure.
        sqlx::raw_sql(AssertSqlSafe(counted)).execute(&mut connection).await.ok();
        Self::MySql(connection, sql)
    }

    /// The time that was spent since the server counts, in microseconds.
    pub async fn spent_us(&mut self) -> Option<f64> {
        let spent: sqlx::Result<Option<f64>> = match self {
            Self::None => return None,
            Self::Postgres(connection) => sqlx::query_scalar(POSTGRES).fetch_one(connection).await,
            Self::MySql(connection, sql) => sqlx::query_scalar(*sql).fetch_one(connection).await,
        };
        spent.ok().flatten()
    }
}
