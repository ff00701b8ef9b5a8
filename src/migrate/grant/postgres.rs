//! Rights on PostgreSQL.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Grantee, Role};
use crate::error::{Error, Result};
use crate::migrate::adapter::{postgres::begin, soon};
use crate::store::Address;
use crate::store::postgres::{connect, error, is_distributed};

/// The statements that give the role to the grantee; with `run` they are carried out, all or none.
pub async fn grant(address: &Address, role: Role, to: &Grantee, run: bool) -> Result<Vec<String>> {
    let told = |fault: sqlx::Error| match fault.as_database_error().and_then(|fault| fault.code()) {
        Some(code) if code == "42704" => to.missing().caused_by(fault),
        _ => error(fault),
    };
    let mut connection = connect(address, soon()).await?;
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
    require_closed(&mut tx, (role == Role::Owner).then_some(&*to.name)).await?;
    let statements = statements(&mut tx, role.as_str(), &to.name).await?;
    if run {
        for statement in &statements {
            // The server's own text: it has quoted every name.
            sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *tx).await.map_err(told)?;
        }
        // A user who may not grant a right that he has is only warned.
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
        if role != Role::Owner {
            sqlx::query("insert into tallygate_grant (role, grantee) values ($1, $2) on conflict do nothing")
                .bind(role.as_str())
                .bind(&to.name)
                .execute(&mut *tx)
                .await
                .map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
    }
    Ok(statements)
}

/// Fails where anybody but the owner may put something into the schema, or has. Routines find operators and functions by their
/// types, so what strangers put there may be the better match, and would run with the owner's rights. `owner` is who is to own
/// the tables, where there are none yet.
pub async fn require_closed(connection: &mut PgConnection, owner: Option<&str>) -> Result<()> {
    let stranger = sqlx::query_scalar(include_str!("postgres_strangers.sql")).bind(owner);
    let stranger: Option<String> = stranger.fetch_optional(connection).await.map_err(error)?;
    let Some(stranger) = stranger else { return Ok(()) };
    Err(Error::schema(format!(
        "what others put into the schema of the tables could run with their owner's rights, and {stranger}; or give tallygate a \
         schema of its own, see docs/operations.md"
    )))
}

/// Gives again, with what is new, every role that was given. A user who is no more, or has lost it, is
/// forgotten.
pub async fn repeat(connection: &mut PgConnection) -> Result<()> {
    sqlx::query(include_str!("postgres_forget.sql")).execute(&mut *connection).await.map_err(error)?;
    let given: Vec<(String, String)> = sqlx::query_as("select role, grantee from tallygate_grant")
        .fetch_all(&mut *connection)
        .await
        .map_err(error)?;
    for (role, grantee) in given {
        for statement in statements(connection, &role, &grantee).await? {
            // The server's own text: it has quoted every name.
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await.map_err(error)?;
        }
    }
    Ok(())
}

async fn statements(connection: &mut PgConnection, role: &str, grantee: &str) -> Result<Vec<String>> {
    let is_distributed = is_distributed(connection).await?;
    if is_distributed {
        // Citus gives a right on a table of many shards by many connections, and takes no other table after that.
        let one_by_one = "select set_config('citus.multi_shard_modify_mode', 'sequential', true)";
        sqlx::query(one_by_one).execute(&mut *connection).await.map_err(error)?;
    }
    let statements =
        sqlx::query_scalar(include_str!("postgres.sql")).bind(role).bind(grantee).bind(is_distributed);
    statements.fetch_all(connection).await.map_err(error)
}
