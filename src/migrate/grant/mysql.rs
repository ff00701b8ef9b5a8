//! Rights on MySQL and MariaDB.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::{Grantee, Role};
use crate::error::Result;
use crate::migrate::adapter::mysql::open;
use crate::store::mysql::{error, number};
use crate::store::{Address, Engine};

/// The statements that give the role to the grantee; with `run` they are carried out, one after the other.
pub async fn grant(address: &Address, role: Role, to: &Grantee, run: bool) -> Result<Vec<String>> {
    let mut connection = open(address).await?;
    let statements = statements(&mut connection, role.as_str(), to).await.map_err(error)?;
    if run {
        for statement in &statements {
            let granted = execute(&mut connection, statement).await;
            granted.map_err(
                |fault| {
                    if is_missing(&fault) { to.missing().caused_by(fault) } else { error(fault) }
                },
            )?;
        }
        if role != Role::Owner {
            let remember =
                "insert into tallygate_grant (role, grantee, granted_at) values (?, ?, utc_timestamp(6))
                on duplicate key update role = role";
            sqlx::query(remember)
                .bind(role.as_str())
                .bind(to.to_string())
                .execute(&mut connection)
                .await
                .map_err(error)?;
        }
    }
    connection.close().await.map_err(error)?;
    Ok(statements)
}

/// The rights that were given, for routines that are made anew and for what is new.
pub struct Rights {
    /// Of their own: a grant ends the transaction that it is in.
    connection: MySqlConnection,
    given: Vec<Given>,
}

struct Given {
    role: String,
    grantee: Grantee,
    statements: Vec<String>,
}

impl Rights {
    /// None where there is no schema yet.
    pub async fn given(address: &Address) -> Result<Self> {
        let mut connection = open(address).await?;
        let given =
            sqlx::query_as("select role, grantee from tallygate_grant").fetch_all(&mut connection).await;
        let rows: Vec<(String, String)> = match given.map_err(error) {
            Err(error) if error.is_schema() => Vec::new(),
            rows => rows?,
        };
        let mut given = Vec::with_capacity(rows.len());
        for (role, grantee) in rows {
            let grantee = Grantee::parse(Engine::MySql, &grantee)?;
            let statements = statements(&mut connection, &role, &grantee).await.map_err(error)?;
            given.push(Given { role, grantee, statements });
        }
        Ok(Self { connection, given })
    }

    /// The statements that give again what was given on a routine; empty where nothing was.
    pub fn on(&self, routine: &str) -> String {
        let part = on(routine);
        let of = self.given.iter().flat_map(|given| &given.statements);
        of.filter(|statement| statement.contains(&part)).map(|statement| format!("{statement};\n")).collect()
    }

    /// Gives that again, statement by statement.
    pub async fn repeat_on(&mut self, routine: Option<&str>) -> Result<(), sqlx::Error> {
        match routine {
            Some(routine) => self.run(&on(routine)).await,
            None => Ok(()),
        }
    }

    /// Gives every role again, with what is new.
    pub async fn repeat(&mut self) -> Result<(), sqlx::Error> {
        for Given { role, grantee, statements: of } in &mut self.given {
            // A view that was made anew has columns.
            *of = statements(&mut self.connection, role, grantee).await?;
        }
        self.run("").await
    }

    /// Runs the statements with this in them. A user who is no more is forgotten; a right that may not be given here is
    /// told, so that the migration ends all the same.
    async fn run(&mut self, part: &str) -> Result<(), sqlx::Error> {
        for Given { role, grantee, statements } in &self.given {
            for statement in statements.iter().filter(|statement| statement.contains(part)) {
                match execute(&mut self.connection, statement).await {
                    Err(fault) if is_missing(&fault) => {
                        sqlx::query("delete from tallygate_grant where role = ? and grantee = ?")
                            .bind(role)
                            .bind(grantee.to_string())
                            .execute(&mut self.connection)
                            .await?;
                        break;
                    }
                    Err(fault) if is_denied(&fault) => {
                        tracing::warn!("{fault}; as an administrator run: tallygate grant {role} {grantee}");
                        break;
                    }
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

/// The part that every grant on a routine has in it, and no other one.
fn on(routine: &str) -> String {
    format!(".`{routine}` to ")
}

async fn statements(
    connection: &mut MySqlConnection,
    role: &str,
    to: &Grantee,
) -> Result<Vec<String>, sqlx::Error> {
    let statements = sqlx::query_scalar(include_str!("mysql.sql")).bind(role).bind(&to.name).bind(&to.host);
    statements.fetch_all(connection).await
}

async fn execute(connection: &mut MySqlConnection, statement: &str) -> Result<(), sqlx::Error> {
    // The server's own text: it has quoted every name.
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.map(drop)
}

/// MySQL's and MariaDB's numbers for a grant to a user or a role that is not there.
fn is_missing(fault: &sqlx::Error) -> bool {
    [1410, 1133, 1959].contains(&number(fault))
}

/// Their numbers for a grant of what one may not give.
fn is_denied(fault: &sqlx::Error) -> bool {
    [1044, 1142, 1143, 1227, 1370].contains(&number(fault))
}
