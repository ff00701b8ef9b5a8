//! Rights: what each role may do in a schema, and giving it to a user or a role of the database.

#[cfg(feature = "mysql")]
pub(super) mod mysql;
#[cfg(feature = "postgres")]
pub(super) mod postgres;

use std::fmt;

use super::{Migrator, gate};
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, Result};
use crate::store::Engine;

/// The roles that a user of the database may have in a schema. One user may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// A program with the library: appends to the ledger what the library decides. It reads and writes no table. The
    /// database refuses a row that does not follow, where it can see that, and `tallygate audit verify` names the rest.
    App,
    /// A caller in SQL: executes the routines that check, take tokens and refund, and nothing else. The database decides.
    Caller,
    /// Reads everything, by the views, and writes nothing.
    Auditor,
    /// Makes and changes zones, bans, and sets overrides. It does not see the ledger.
    Operator,
    /// Migrates: makes tables, views and routines, whose owner it then is, and gives rights to others.
    Owner,
}

crate::names::names!(Role, "role", App "app", Caller "caller", Auditor "auditor", Operator "operator", Owner "owner");

/// The longest name of a role or a user, in characters: PostgreSQL would cut a longer one.
const NAME_MAX: usize = 63;

impl Migrator {
    /// Gives a role to a user or a role of the database, which must be there: it is neither made nor given a password.
    /// Returns the statements that did it. The same again changes nothing.
    ///
    /// `grantee` is a name; on MySQL and MariaDB a user is `NAME@HOST`, and a name alone is a role or a user from
    /// everywhere. Letters, digits, `_`, `-` and `.`, at most 63.
    ///
    /// Run it after [`apply`](Self::apply), by who may grant: the schema's owner, or an administrator. It is remembered, and
    /// each later migration gives the role again with what is new. [`Role::Owner`] is for an empty schema, which the owner
    /// then migrates.
    ///
    /// # Errors
    /// Invalid: a name that cannot be used; no such user or role; SQLite, which has no rights. Schema: nothing was
    /// migrated.
    pub fn grant<'a>(&'a self, role: Role, grantee: &'a str) -> BoxFuture<'a, Result<Vec<String>>> {
        boxed(async move { self.grants(role, grantee, true).await })
    }

    /// The statements that [`grant`](Self::grant) would run.
    ///
    /// # Errors
    /// Those of [`grant`](Self::grant) that show before a statement is run.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let migrator = tallygate::schema::Migrator::new("sqlite::memory:")?;
    /// let error = migrator.grant_statements(tallygate::schema::Role::App, "login").await.unwrap_err();
    /// assert!(error.is_invalid(), "SQLite has no rights: whoever may open the file may do everything");
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn grant_statements<'a>(
        &'a self,
        role: Role,
        grantee: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        boxed(async move { self.grants(role, grantee, false).await })
    }

    async fn grants(&self, role: Role, grantee: &str, run: bool) -> Result<Vec<String>> {
        let engine = self.address.engine();
        let grantee = Grantee::parse(engine, grantee)?;
        // The rights are on what this program's migrations have made.
        if role != Role::Owner && engine != Engine::Sqlite {
            gate(self.schema().await?.0.as_ref())?;
        }
        match engine {
            #[cfg(feature = "postgres")]
            Engine::Postgres => postgres::grant(&self.address, role, &grantee, run).await,
            #[cfg(feature = "mysql")]
            Engine::MySql => mysql::grant(&self.address, role, &grantee, run).await,
            Engine::Sqlite => Err(Error::invalid(
                "SQLite has no rights to grant: whoever may open the file may do everything; restrict the file",
            )),
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            engine => Err(engine.missing()),
        }
    }
}

/// A user who is to have a role.
pub(super) struct Grantee {
    pub name: String,
    /// On MySQL and MariaDB, where it is a user.
    pub host: Option<String>,
}

impl Grantee {
    fn parse(engine: Engine, text: &str) -> Result<Self> {
        let (name, host) = match text.rsplit_once('@') {
            Some((name, host)) if engine == Engine::MySql => (name, Some(host)),
            _ => (text, None),
        };
        let all =
            |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
        // PostgreSQL has roles that are named like addresses.
        let more = if engine == Engine::Postgres { "_-.@" } else { "_-." };
        let good = (1..=NAME_MAX).contains(&name.len())
            && all(name, more)
            && host.is_none_or(|host| (1..=255).contains(&host.len()) && all(host, "_-.%:/"));
        if !good {
            // A URL in the wrong place may hold a password.
            let shown = if text.contains("://") { "a URL".to_owned() } else { format!("{text:?}") };
            return Err(Error::invalid(format!(
                "{shown} is no name of a user or a role; use letters, digits, _, - and ., at most {NAME_MAX}, on \
                 MySQL and MariaDB with @HOST for a user"
            )));
        }
        if ["public", "none"].contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Error::invalid(format!(
                "{text:?} is not a user or a role; name the one that is to have it"
            )));
        }
        Ok(Self { name: name.to_owned(), host: host.map(str::to_owned) })
    }

    pub fn missing(&self) -> Error {
        let shown = self.to_string();
        Error::invalid(format!(
            "there is no user or role {shown:?} in the database; make it first, by create role or create user"
        ))
    }
}

impl fmt::Display for Grantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{}@{host}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_letters_digits_and_little_else() {
        for name in ["app", "App_1", "a-b.c", "x"] {
            for engine in [Engine::Postgres, Engine::MySql] {
                assert_eq!(Grantee::parse(engine, name).unwrap().name, name);
            }
        }
        let user = Grantee::parse(Engine::MySql, "app@10.0.0.%").unwrap();
        assert_eq!((user.name.as_str(), user.host.as_deref()), ("app", Some("10.0.0.%")));
        assert_eq!(Grantee::parse(Engine::Postgres, "svc@project.iam").unwrap().name, "svc@project.iam");
        let long = "a".repeat(NAME_MAX + 1);
        for name in [
            "", "a b", "a;b", "a\"b", "a'b", "a`b", "a\\b", "a\nb", "a\0b", "é", "a,b", "a--b;", "public",
            "PUBLIC", "None", "a@", "@%", "a@`b", "a@b c", &long,
        ] {
            let refused = |engine| Grantee::parse(engine, name).err().is_some_and(|error| error.is_invalid());
            assert!(refused(Engine::MySql), "{name:?}");
            assert!(refused(Engine::Postgres) || name.contains('@'), "{name:?}");
        }
    }
}
