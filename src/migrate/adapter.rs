//! Refinery on sqlx's connections, and the lock that each engine puts around it.

use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use sqlx::{AssertSqlSafe, Connection, Row};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::is_newer;
use super::plan::{HISTORY, HISTORY_TABLE, Object, Plan, There};
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
                    for part in self.plan.parts(query) {
                        if !part.is_empty() {
                            Self::make(&mut tx, self.rights, part.routine.as_deref(), &part.sql).await?;
                        }
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

        impl Adapter<'_> {
            /// Runs a part, and gives again what was given on the routine that it makes.
            async fn make(
                connection: &mut $connection,
                rights: &mut Rights,
                routine: Option<&str>,
                sql: &str,
            ) -> Result<(), sqlx::Error> {
                // The text protocol, so that one file may hold many statements. The text is ours.
                let run = async |connection: &mut $connection, sql: String| {
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await
                };
                let given = routine.map(|routine| rights.on(routine)).unwrap_or_default();
                // In one text: the server ends what it was sent, though who sent it is gone.
                if given.is_empty() || run(connection, format!("{sql}\n{given}")).await.is_err() {
                    run(connection, sql.to_owned()).await?;
                    rights.repeat_on(routine).await?;
                }
                Ok(())
            }

            /// Applies what is unapplied, and makes again what is lacking of what was applied before.
            async fn run(mut self, was: Option<i32>, there: &There) -> Result<Vec<i32>> {
                let lacking = self.plan.lacking(was.unwrap_or_default(), there)?;
                let report = runner(self.plan).run_async(&mut self).await.map_err(failed)?;
                let mut applied: Vec<i32> = lacking.iter().map(|object| object.version).collect();
                for Object { name, sql, .. } in lacking {
                    let made = Self::make(self.connection, self.rights, Some(&name), &sql);
                    made.await.map_err(error)?;
                }
                // A run that was cut off may have made a routine and given no right on it.
                self.rights.repeat().await.map_err(error)?;
                applied.extend(report.applied_migrations().iter().map(Migration::version));
                Ok(applied)
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

        impl AsyncMigrate for Adapter<'_> {
            fn assert_migrations_table_query(_: &str) -> String {
                HISTORY_TABLE.to_owned()
            }
        }
    };
}

/// Where rights outlive what is made anew, or there are none.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
struct Rights;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Rights {
    fn on(&self, _routine: &str) -> String {
        String::new()
    }

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

/// The names of what there is, each with the comments of its routines.
fn there(rows: Vec<(String, Option<String>)>) -> There {
    let mut there = There::new();
    for (name, says) in rows {
        there.entry(name).or_default().extend(says);
    }
    there
}

/// Refinery's errors name the migration; what the database said is their source.
fn failed(error: refinery_core::Error) -> Error {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // The first line says all of it where it names the cause, and else the migration.
    let (reason, cause) = (error.to_string(), cause.to_string());
    let cause = if reason.contains(&cause) { String::new() } else { format!(": {cause}") };
    Error::schema(format!("the schema could not be migrated: {reason}{cause}")).caused_by(error)
}

#[cfg(feature = "postgres")]
pub(super) mod postgres {
    use sqlx::{PgConnection, Postgres, Transaction};

    use super::*;
    use crate::migrate::distribute::citus;
    use crate::migrate::grant;
    use crate::store::postgres::{connect, error};

    adapt!(sqlx::PgConnection);

    pub async fn apply(address: &Address, plan: &Plan) -> Result<Vec<i32>> {
        let mut connection = connect(address, soon()).await?;
        require_utf8(&mut connection).await?;
        grant::postgres::require_closed(&mut connection, None).await?;
        if let Err(fault) = sqlx::raw_sql(HISTORY_TABLE).execute(&mut connection).await {
            // Another migrator was faster with the table, its type or its name.
            let code = fault.as_database_error().and_then(|told| told.code());
            if !code.is_some_and(|code| ["23505", "42710", "42P07"].contains(&&*code)) {
                return Err(error(fault));
            }
        }
        let mut tx = begin(&mut connection).await?;
        let schema = schema_of(&mut tx).await?;
        let there = look(&mut tx).await?;
        let plan = &*plan.of_database(schema.as_ref(), &there)?;
        if is_newer(schema.as_ref(), plan.latest())? {
            return Ok(Vec::new());
        }
        let adapter = Adapter { connection: &mut tx, plan, rights: &mut Rights };
        let applied = adapter.run(schema.map(|schema| schema.version), &there).await?;
        if !applied.is_empty() {
            grant::postgres::repeat(&mut tx).await?;
            citus::replan(&mut tx).await?;
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
        // One transaction around all: refinery's own become savepoints, and the lock ends with it. The level by which it sees what
        // another one did while it waited.
        let read_committed = "begin isolation level read committed";
        let mut tx = connection.begin_with(read_committed).await.map_err(error)?;
        sqlx::query("select set_config('lock_timeout', $1, true)")
            .bind(format!("{LOCK_WAIT_S}s"))
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        sqlx::raw_sql(include_str!("session/postgres.sql")).execute(&mut *tx).await.map_err(error)?;
        let there = "select to_regclass('tallygate_schema_history') is not null";
        if sqlx::query_scalar(there).fetch_one(&mut *tx).await.map_err(error)? {
            // The owner's alone to hold, where any session may take an advisory lock. A reader does not wait.
            let lock = "lock table tallygate_schema_history in share row exclusive mode";
            sqlx::query(lock).execute(&mut *tx).await.map_err(error)?;
        }
        Ok(tx)
    }

    pub async fn schema(address: &Address) -> Result<(Option<Schema>, There)> {
        let mut connection = connect(address, soon()).await?;
        let schema = schema_of(&mut connection).await?;
        if schema.is_some() {
            grant::postgres::require_closed(&mut connection, None).await?;
        }
        let there = look(&mut connection).await?;
        Ok((schema, there))
    }

    /// From the history itself where the routine does not find it: the schema has got another name.
    async fn schema_of(connection: &mut PgConnection) -> Result<Option<Schema>> {
        // In a part of the transaction: where there is no schema the question fails.
        let mut asking = connection.begin().await.map_err(error)?;
        let told = store::postgres::schema(&mut asking).await?;
        asking.rollback().await.map_err(error)?;
        let has = "select to_regclass('tallygate_schema_history') is not null";
        if told.is_some() || !sqlx::query_scalar(has).fetch_one(&mut *connection).await.map_err(error)? {
            return Ok(told);
        }
        let last = "select max(version) from tallygate_schema_history";
        let last: Option<i32> = sqlx::query_scalar(last).fetch_one(connection).await.map_err(error)?;
        Ok(last.map(|version| Schema { version, breaking: None, shard: None, test_clock: false }))
    }

    async fn look(connection: &mut PgConnection) -> Result<There> {
        let rows = sqlx::query_as(include_str!("look/postgres.sql")).fetch_all(connection).await;
        rows.map(there).map_err(error)
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
        let mut connection = open(address).await?;
        let of_server = take_of_server(address, &mut connection).await?;
        let mut lock = Lock::take(address).await?;
        let applied = lock.hold(apply_locked(address, &mut connection, plan)).await;
        let released = lock.release().await;
        let applied = applied?;
        released?;
        of_server.close().await.map_err(error)?;
        connection.close().await.map_err(error)?;
        Ok(applied)
    }

    /// A session in which what is made does not depend on the settings of the server.
    pub async fn open(address: &Address) -> Result<MySqlConnection> {
        let mut connection = connect(address, soon()).await?;
        sqlx::raw_sql(include_str!("session/mysql.sql")).execute(&mut connection).await.map_err(error)?;
        let by_statements = "select @@global.log_bin and @@global.binlog_format = 'STATEMENT'";
        let by_statements: i64 =
            sqlx::query_scalar(by_statements).fetch_one(&mut connection).await.map_err(error)?;
        if by_statements == 1 {
            return Err(Error::schema(
                "the server writes statements into its binary log, and refuses every check then (error 1665); set \
                 binlog_format = ROW in its configuration, and until it starts anew: set global binlog_format = 'ROW'",
            ));
        }
        Ok(connection)
    }

    async fn apply_locked(
        address: &Address,
        connection: &mut MySqlConnection,
        plan: &Plan,
    ) -> Result<Vec<i32>> {
        let schema = schema_of(connection).await?;
        let there = look(connection).await?;
        let plan = &*plan.of_database(schema.as_ref(), &there)?;
        if is_newer(schema.as_ref(), plan.latest())? {
            return Ok(Vec::new());
        }
        let mut rights = Rights::given(address).await?;
        let adapter = Adapter { connection, plan, rights: &mut rights };
        adapter.run(schema.map(|schema| schema.version), &there).await
    }

    pub async fn schema(address: &Address) -> Result<(Option<Schema>, There)> {
        let mut connection = open(address).await?;
        let schema = schema_of(&mut connection).await?;
        let there = look(&mut connection).await?;
        Ok((schema, there))
    }

    /// Those of routines that were made under other modes of SQL are not there.
    async fn look(connection: &mut MySqlConnection) -> Result<There> {
        let rows = sqlx::query_as(include_str!("look/mysql.sql")).fetch_all(connection).await;
        rows.map(there).map_err(error)
    }

    /// From the history itself where the routine is not there: a first migration was cut off before it, or a dump had no routines.
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
        Ok(last.map(|version| Schema { version, breaking: None, shard: None, test_clock: false }))
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
        let schema = store::sqlite::schema(&mut tx).await?;
        let applied = match is_newer(schema.as_ref(), plan.latest())? {
            true => Vec::new(),
            false => {
                let there = look(&mut tx).await?;
                let adapter = Adapter { connection: &mut tx, plan, rights: &mut Rights };
                adapter.run(schema.map(|schema| schema.version), &there).await?
            }
        };
        tx.commit().await.map_err(error)?;
        sqlx::raw_sql(patience(BUSY_TIMEOUT_MS)).execute(connection).await.map_err(error)?;
        Ok(applied)
    }

    pub async fn schema(address: &Address) -> Result<(Option<Schema>, There)> {
        // Looking must not create the file.
        if !store::sqlite::exists(address)? {
            return Ok((None, There::new()));
        }
        let mut connection = connect(address).await?;
        let schema = store::sqlite::schema(&mut connection).await?;
        let there = look(&mut connection).await?;
        Ok((schema, there))
    }

    async fn look(connection: &mut sqlx::SqliteConnection) -> Result<There> {
        let rows = sqlx::query_as("select name, null from sqlite_master").fetch_all(connection).await;
        rows.map(there).map_err(error)
    }
}
