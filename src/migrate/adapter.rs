//! Refinery on sqlx's connections, and the lock that each engine puts around it.

use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use sqlx::{AssertSqlSafe, Connection, Row};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::grant::{Grantee, Role};
use super::plan::{HISTORY, plan};
use crate::error::{Error, Result};
use crate::store::Engine;

/// The longest wait for another migrator.
const LOCK_WAIT_S: u32 = 60;

/// Wraps a connection for refinery. A macro, since the three drivers share no usable trait.
macro_rules! adapt {
    ($connection:ty) => {
        struct Adapter<'c>(&'c mut $connection);

        impl AsyncTransaction for Adapter<'_> {
            type Error = sqlx::Error;

            async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
                &'a mut self,
                queries: T,
            ) -> Result<usize, sqlx::Error> {
                let mut tx = self.0.begin().await?;
                let mut count = 0;
                for query in queries {
                    // The text protocol, so that one file may hold many statements. The text is ours.
                    sqlx::raw_sql(AssertSqlSafe(query.to_owned())).execute(&mut *tx).await?;
                    count += 1;
                }
                tx.commit().await?;
                Ok(count)
            }
        }

        impl AsyncQuery<Vec<Migration>> for Adapter<'_> {
            async fn query<'a>(&'a mut self, query: &'a str) -> Result<Vec<Migration>, sqlx::Error> {
                let rows = sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch_all(&mut *self.0).await?;
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

fn runner(engine: Engine) -> Runner {
    let mut runner = Runner::new(&plan(engine));
    runner.set_migration_table_name(HISTORY);
    runner
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
    use crate::store::{Address, postgres::connect, postgres::error};

    adapt!(sqlx::PgConnection);

    /// Any number that nobody else uses for an advisory lock.
    const LOCK: i64 = 0x0074_616c_6c79;

    pub async fn apply(address: &Address) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        let mut tx = begin(&mut connection).await?;
        let report = runner(Engine::Postgres).run_async(&mut Adapter(&mut tx)).await.map_err(failed)?;
        tx.commit().await.map_err(error)?;
        Ok(versions(report.applied_migrations()))
    }

    /// A transaction that no other migrator has at the same time.
    async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>> {
        // One transaction around all: refinery's own become savepoints, and the lock ends with it.
        let mut tx = connection.begin().await.map_err(error)?;
        sqlx::query("select set_config('lock_timeout', $1, true)")
            .bind(format!("{LOCK_WAIT_S}s"))
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await.map_err(error)?;
        // Routines pin the search path they are made under: our schema alone, temporary tables last.
        sqlx::query("select set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)")
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        Ok(tx)
    }

    /// The statements that give the role to the grantee; with `run` they are carried out, all or none.
    pub async fn grant(address: &Address, role: Role, to: &Grantee, run: bool) -> Result<Vec<String>> {
        let told = |fault: sqlx::Error| match fault.as_database_error().and_then(|fault| fault.code()) {
            Some(code) if code == "42704" => to.missing().caused_by(fault),
            _ => error(fault),
        };
        let mut connection = connect(address).await?;
        let mut tx = begin(&mut connection).await?;
        let other: Option<String> = match role {
            Role::Owner => sqlx::query_scalar(
                "select pg_get_userbyid(c.relowner) from pg_class c
                where c.oid = to_regclass('zone_master') and not pg_has_role($1, c.relowner, 'member')",
            )
            .bind(&to.name)
            .fetch_optional(&mut *tx)
            .await
            .map_err(told)?,
            _ => None,
        };
        if let Some(other) = other {
            return Err(Error::invalid(format!(
                "the tables belong to the role {other:?}, and only their owner can migrate them; migrate as that role, \
                 or make {:?} a member of it",
                to.name
            )));
        }
        let statements: Vec<String> = sqlx::query_scalar(include_str!("grant/postgres.sql"))
            .bind(role.as_str())
            .bind(&to.name)
            .fetch_all(&mut *tx)
            .await
            .map_err(error)?;
        if run {
            for statement in &statements {
                // The server's own text: it has quoted every name.
                sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *tx).await.map_err(told)?;
            }
            // Who may not grant a right that he has is only warned.
            let granted: bool = sqlx::query_scalar("select has_schema_privilege($1, current_schema(), $2)")
                .bind(&to.name)
                .bind(if role == Role::Owner { "create" } else { "usage" })
                .fetch_one(&mut *tx)
                .await
                .map_err(error)?;
            if !granted {
                return Err(Error::database(
                    "the server granted nothing in the schema; do it as the schema's owner, or as an administrator",
                ));
            }
            tx.commit().await.map_err(error)?;
        }
        Ok(statements)
    }

    pub async fn applied(address: &Address) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
            .bind(HISTORY)
            .fetch_one(&mut connection)
            .await
            .map_err(error)?;
        if !exists {
            return Ok(Vec::new());
        }
        sqlx::query_scalar("select version from tallygate_schema_history")
            .fetch_all(&mut connection)
            .await
            .map_err(error)
    }
}

#[cfg(feature = "mysql")]
pub(super) mod mysql {
    use sqlx::mysql::MySqlDatabaseError;

    use super::*;
    use crate::store::{Address, mysql::connect, mysql::error};

    adapt!(sqlx::MySqlConnection);

    pub async fn apply(address: &Address) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        // Statements that define tables commit by themselves here, so the lock belongs to the session.
        // Its name is the server's, hence the database's name in it; MariaDB answers NULL at once to an
        // endless wait, hence the bound.
        let locked: Option<i64> =
            sqlx::query_scalar("select get_lock(concat('tallygate.', left(sha2(database(), 256), 32)), ?)")
                .bind(LOCK_WAIT_S)
                .fetch_one(&mut connection)
                .await
                .map_err(error)?;
        if locked != Some(1) {
            return Err(Error::transient(format!(
                "another migrator held the lock for {LOCK_WAIT_S} s; see what it does, then try again"
            )));
        }
        let report = runner(Engine::MySql).run_async(&mut Adapter(&mut connection)).await.map_err(failed)?;
        // Closing the session frees the lock.
        connection.close().await.map_err(error)?;
        Ok(versions(report.applied_migrations()))
    }

    /// The statements that give the role to the grantee; with `run` they are carried out, one after the other.
    pub async fn grant(address: &Address, role: Role, to: &Grantee, run: bool) -> Result<Vec<String>> {
        let mut connection = connect(address).await?;
        let statements: Vec<String> = sqlx::query_scalar(include_str!("grant/mysql.sql"))
            .bind(role.as_str())
            .bind(&to.name)
            .bind(&to.host)
            .fetch_all(&mut connection)
            .await
            .map_err(error)?;
        if run {
            // Without this mode a MariaDB would make the user, without a password. MySQL never does.
            let mode =
                "set @tallygate = 1 /*M!, session sql_mode = concat(@@sql_mode, ',NO_AUTO_CREATE_USER') */";
            sqlx::raw_sql(mode).execute(&mut connection).await.map_err(error)?;
            for statement in &statements {
                // The server's own text: it has quoted every name.
                let granted = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut connection).await;
                granted.map_err(|fault| {
                    if no_grantee(&fault) { to.missing().caused_by(fault) } else { error(fault) }
                })?;
            }
        }
        connection.close().await.map_err(error)?;
        Ok(statements)
    }

    /// MySQL's and MariaDB's numbers for a grant to a user or a role that is not there.
    fn no_grantee(fault: &sqlx::Error) -> bool {
        let fault =
            fault.as_database_error().and_then(|fault| fault.try_downcast_ref::<MySqlDatabaseError>());
        fault.is_some_and(|fault| [1410, 1133, 1959].contains(&fault.number()))
    }

    pub async fn applied(address: &Address) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        let exists: i64 = sqlx::query_scalar(
            "select count(*) from information_schema.tables where table_schema = database() and table_name = ?",
        )
        .bind(HISTORY)
        .fetch_one(&mut connection)
        .await
        .map_err(error)?;
        if exists == 0 {
            return Ok(Vec::new());
        }
        sqlx::query_scalar("select version from tallygate_schema_history")
            .fetch_all(&mut connection)
            .await
            .map_err(error)
    }
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use super::*;
    use crate::store::{Address, sqlite::BUSY_TIMEOUT_MS, sqlite::connect, sqlite::error};

    adapt!(sqlx::SqliteConnection);

    pub async fn apply(address: &Address) -> Result<Vec<i32>> {
        let mut connection = connect(address).await?;
        let applied = run(&mut connection).await?;
        connection.close().await.map_err(error)?;
        Ok(applied)
    }

    /// On an open connection: the database's write lock is the migrator's lock.
    pub async fn run(connection: &mut sqlx::SqliteConnection) -> Result<Vec<i32>> {
        let patience = |ms| AssertSqlSafe(format!("pragma busy_timeout = {ms}"));
        sqlx::raw_sql(patience(LOCK_WAIT_S * 1000)).execute(&mut *connection).await.map_err(error)?;
        let mut tx = connection.begin_with("begin immediate").await.map_err(error)?;
        let report = runner(Engine::Sqlite).run_async(&mut Adapter(&mut tx)).await.map_err(failed)?;
        tx.commit().await.map_err(error)?;
        sqlx::raw_sql(patience(BUSY_TIMEOUT_MS)).execute(connection).await.map_err(error)?;
        Ok(versions(report.applied_migrations()))
    }

    pub async fn applied(address: &Address) -> Result<Vec<i32>> {
        // Looking must not create the file.
        if !crate::store::sqlite::exists(address)? {
            return Ok(Vec::new());
        }
        let mut connection = connect(address).await?;
        let exists: bool = sqlx::query_scalar("select count(*) > 0 from sqlite_schema where name = ?")
            .bind(HISTORY)
            .fetch_one(&mut connection)
            .await
            .map_err(error)?;
        if !exists {
            return Ok(Vec::new());
        }
        sqlx::query_scalar("select version from tallygate_schema_history")
            .fetch_all(&mut connection)
            .await
            .map_err(error)
    }
}
