//! Refinery on sqlx's connections, and the lock that each engine puts around it.

use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use sqlx::{AssertSqlSafe, Connection, Row};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::is_newer;
use super::plan::{HISTORY, Part, Plan};
use crate::error::{Error, Result};
use crate::store::{self, Address, Schema};

/// The longest wait for another migrator.
pub(super) const LOCK_WAIT_S: u32 = 60;

/// The longest wait for a server to let a connection in.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + std::time::Duration::from_secs(10)
}

/// Wraps a connection for refinery. A macro, since the three drivers share no usable trait.
macro_rules! adapt {
    ($connection:ty) => {
        struct Adapter<'c> {
            connection: &'c mut $connection,
            plan: &'c Plan,
            rights: &'c mut Rights,
        }

        impl AsyncTransaction for Adapter<'_> {
            type Error = sqlx::Error;

            async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
                &'a mut self,
                queries: T,
            ) -> Result<usize, sqlx::Error> {
                let mut tx = self.connection.begin().await?;
                let mut count = 0;
                for query in queries {
                    for Part { routine, sql } in self.plan.parts(query) {
                        if !is_empty(&sql) {
                            // The text protocol, so that one file may hold many statements. The text is ours.
                            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
                        }
                        self.rights.repeat_on(routine.as_deref()).await?;
                    }
                    if self.plan.is_last(query) {
                        self.rights.repeat().await?;
                    }
                    count += 1;
                }
                tx.commit().await?;
                Ok(count)
            }
        }

        impl AsyncQuery<Vec<Migration>> for Adapter<'_> {
            async fn query<'a>(&'a mut self, query: &'a str) -> Result<Vec<Migration>, sqlx::Error> {
                let rows =
                    sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch_all(&mut *self.connection).await?;
                let decode = |e: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Decode(e);
                rows.into_iter()
                    .map(|row| {
                        let on = OffsetDateTime::parse(row.try_get::<&str, _>(2)?, &Rfc3339);
                        let checksum = row.try_get::<&str, _>(3)?.parse::<u64>();
                        Ok(Migration::applied(
                            row.try_get(0)?,
                            row.try_get(1)?,
                            on.map_err(|e| decode(e.into()))?,
                            checksum.map_err(|e| decode(e.into()))?,
                        ))
                    })
                    .collect()
            }
        }

        impl AsyncMigrate for Adapter<'_> {}
    };
}

/// Where rights outlive what is made anew, or there are none.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
struct Rights;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Rights {
    async fn repeat_on(&mut self, _routine: Option<&str>) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn repeat(&mut self) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

fn runner(plan: &Plan) -> Runner {
    let mut runner = Runner::new(&plan.migrations());
    runner.set_migration_table_name(HISTORY);
    runner
}

/// True for what holds nothing but comments, which MySQL and MariaDB take for no statement at all.
fn is_empty(sql: &str) -> bool {
    sql.lines().all(|line| line.trim().is_empty() || line.starts_with("--"))
}

fn versions(migrations: &[Migration]) -> Vec<i32> {
    migrations.iter().map(Migration::version).collect()
}

/// Refinery's errors name the migration; what the database said is their source.
fn failed(error: refinery_core::Error) -> Error {
    let mut reason = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        reason = format!("{reason}: {cause}");
        source = cause.source();
    }
    Error::schema(format!("the schema could not be migrated: {reason}")).caused_by(error)
}

#[cfg(feature = "postgres")]
pub(super) mod postgres {
    use sqlx::{PgConnection, Postgres, Transaction};

    use super::*;
    use crate::migrate::grant;
    use crate::store::postgres::{connect, error};

    adapt!(sqlx::PgConnection);

    /// Any number that nobody else uses for an advisory lock.
    const LOCK: i64 = 0x0074_616c_6c79;

    pub async fn apply(address: &Address, plan: &Plan) -> Result<Vec<i32>> {
        let mut connection = connect(address, soon()).await?;
        let mut tx = begin(&mut connection).await?;
        require_utf8(&mut tx).await?;
        // In a part of the transaction: where there is no schema the question fails.
        let mut asking = tx.begin().await.map_err(error)?;
        let schema = store::postgres::schema(&mut asking).await?;
        asking.rollback().await.map_err(error)?;
        if is_newer(schema.as_ref(), plan.latest())? {
            return Ok(Vec::new());
        }
        let mut adapter = Adapter { connection: &mut tx, plan, rights: &mut Rights };
        let report = runner(plan).run_async(&mut adapter).await.map_err(failed)?;
        let applied = versions(report.applied_migrations());
        if !applied.is_empty() {
            grant::postgres::repeat(&mut tx).await?;
        }
        tx.commit().await.map_err(error)?;
        Ok(applied)
    }

    /// Keys are bounded and hashed as bytes of UTF-8: in another encoding they would be other bytes, or no text at all.
    async fn require_utf8(connection: &mut PgConnection) -> Result<()> {
        let asked = sqlx::query_scalar("select getdatabaseencoding()::text");
        let encoding: String = asked.fetch_one(connection).await.map_err(error)?;
        if encoding != "UTF8" {
            return Err(Error::schema(format!(
                "the database's encoding is {encoding}, and texts are kept as UTF-8; make one with: create database \
                 NAME encoding 'UTF8' template template0"
            )));
        }
        Ok(())
    }

    /// A transaction that no other migrator has at the same time.
    pub async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>> {
        // One transaction around all: refinery's own become savepoints, and the lock ends with it.
        let mut tx = connection.begin().await.map_err(error)?;
        sqlx::query("select set_config('lock_timeout', $1, true)")
            .bind(format!("{LOCK_WAIT_S}s"))
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await.map_err(error)?;
        // Routines pin the search path they are made under: our schema alone, temporary tables last. One may name another
        // that a later migration installs.
        sqlx::query(
            "select set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true),
                set_config('check_function_bodies', 'off', true)",
        )
        .execute(&mut *tx)
        .await
        .map_err(error)?;
        Ok(tx)
    }

    pub async fn schema(address: &Address) -> Result<Option<Schema>> {
        store::postgres::schema(&mut connect(address, soon()).await?).await
    }
}

#[cfg(feature = "mysql")]
pub(super) mod mysql {
    use sqlx::MySqlConnection;

    use super::*;
    use crate::migrate::grant::mysql::Rights;
    use crate::migrate::lock::{Lock, take_of_server};
    use crate::store::mysql::{connect, error};

    adapt!(sqlx::MySqlConnection);

    pub async fn apply(address: &Address, plan: &Plan) -> Result<Vec<i32>> {
        let mut connection = connect(address, soon()).await?;
        take_of_server(&mut connection).await?;
        let mut lock = Lock::take(address).await?;
        let applied = lock.hold(apply_locked(address, &mut connection, plan)).await;
        let released = lock.release().await;
        let applied = applied?;
        released?;
        connection.close().await.map_err(error)?;
        Ok(applied)
    }

    async fn apply_locked(
        address: &Address,
        connection: &mut MySqlConnection,
        plan: &Plan,
    ) -> Result<Vec<i32>> {
        if is_newer(schema_of(connection).await?.as_ref(), plan.latest())? {
            return Ok(Vec::new());
        }
        let mut rights = Rights::given(address).await?;
        let mut adapter = Adapter { connection, plan, rights: &mut rights };
        let report = runner(plan).run_async(&mut adapter).await.map_err(failed)?;
        Ok(versions(report.applied_migrations()))
    }

    pub async fn schema(address: &Address) -> Result<Option<Schema>> {
        schema_of(&mut connect(address, soon()).await?).await
    }

    /// From the history itself where the routine is not there yet: a first migration was cut off before it.
    async fn schema_of(connection: &mut MySqlConnection) -> Result<Option<Schema>> {
        let told = store::mysql::schema(connection).await?;
        if told.is_some() {
            return Ok(told);
        }
        let exists: i64 = sqlx::query_scalar(
            "select count(*) from information_schema.tables where table_schema = database() and table_name = ?",
        )
        .bind(HISTORY)
        .fetch_one(&mut *connection)
        .await
        .map_err(error)?;
        if exists == 0 {
            return Ok(None);
        }
        let last: Option<i32> = sqlx::query_scalar("select max(version) from tallygate_schema_history")
            .fetch_one(connection)
            .await
            .map_err(error)?;
        Ok(last.map(|version| Schema { version, breaking: None, shard: None }))
    }
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use super::*;
    use crate::store::sqlite::{BUSY_TIMEOUT_MS, connect, error};

    adapt!(sqlx::SqliteConnection);

    pub async fn apply(address: &Address, plan: &Plan) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        let applied = run(&mut connection, plan).await?;
        connection.close().await.map_err(error)?;
        Ok(applied)
    }

    /// On an open connection: the database's write lock is the migrator's lock.
    pub async fn run(connection: &mut sqlx::SqliteConnection, plan: &Plan) -> Result<Vec<i32>> {
        let patience = |ms| AssertSqlSafe(format!("pragma busy_timeout = {ms}"));
        sqlx::raw_sql(patience(LOCK_WAIT_S * 1000)).execute(&mut *connection).await.map_err(error)?;
        let mut tx = connection.begin_with("begin immediate").await.map_err(error)?;
        let applied = match is_newer(store::sqlite::schema(&mut tx).await?.as_ref(), plan.latest())? {
            true => Vec::new(),
            false => {
                let mut adapter = Adapter { connection: &mut tx, plan, rights: &mut Rights };
                let report = runner(plan).run_async(&mut adapter).await.map_err(failed)?;
                versions(report.applied_migrations())
            }
        };
        tx.commit().await.map_err(error)?;
        sqlx::raw_sql(patience(BUSY_TIMEOUT_MS)).execute(connection).await.map_err(error)?;
        Ok(applied)
    }

    pub async fn schema(address: &Address) -> Result<Option<Schema>> {
        // Looking must not create the file.
        if !store::sqlite::exists(address)? {
            return Ok(None);
        }
        store::sqlite::schema(&mut connect(address).await?).await
    }
}
