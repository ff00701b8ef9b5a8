//! The schema: which migrations there are, which are applied, and applying them under one lock.
//!
//! Refinery numbers, checksums and records; it runs here on sqlx's connections through a thin adapter, and
//! brings no lock of its own, so each engine takes one around it.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod adapter;
mod grant;
mod plan;

use crate::error::{Error, Result};
use crate::store::{Address, Engine};

pub use grant::Role;
pub(crate) use plan::latest;

/// One step of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number: the same on every database.
    pub version: i32,
    /// What it is about.
    pub name: String,
    /// The SQL that it runs on this database.
    pub sql: String,
}

/// Creates and upgrades the schema of one database.
///
/// The owner's tool: it needs the right to create tables and routines. Any number may start at once; one
/// works, the others wait and find nothing to do.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let migrator = tallygate::Migrator::new("sqlite::memory:")?;
/// assert_eq!(migrator.pending().await?.len(), migrator.migrations().len());
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
pub struct Migrator {
    address: Address,
}

impl Migrator {
    /// For the database at `url`; nothing is opened yet. Fails for a scheme that is not known.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { address: Address::parse(url)? })
    }

    /// Every migration for this database, in order.
    pub fn migrations(&self) -> Vec<Migration> {
        let step = |m: &refinery_core::Migration| Migration {
            version: m.version(),
            name: m.name().to_owned(),
            sql: m.sql().unwrap_or_default().to_owned(),
        };
        plan::plan(self.address.engine()).iter().map(step).collect()
    }

    /// Those that are not applied yet. Fails when the database's schema is newer than this program.
    pub async fn pending(&self) -> Result<Vec<Migration>> {
        let applied = self.applied().await?;
        let mut all = self.migrations();
        if let Some(newer) = applied.iter().find(|&&version| version > latest()) {
            return Err(newer_schema(*newer));
        }
        all.retain(|migration| !applied.contains(&migration.version));
        Ok(all)
    }

    /// Applies what is pending and returns it.
    pub async fn apply(&self) -> Result<Vec<Migration>> {
        let all = self.migrations();
        let applied: Vec<i32> = match self.address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => adapter::postgres::apply(&self.address).await,
            #[cfg(feature = "mysql")]
            Engine::MySql => adapter::mysql::apply(&self.address).await,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => adapter::sqlite::apply(&self.address).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => Err(engine.missing()),
        }?;
        Ok(all.into_iter().filter(|migration| applied.contains(&migration.version)).collect())
    }

    async fn applied(&self) -> Result<Vec<i32>> {
        match self.address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => adapter::postgres::applied(&self.address).await,
            #[cfg(feature = "mysql")]
            Engine::MySql => adapter::mysql::applied(&self.address).await,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => adapter::sqlite::applied(&self.address).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => Err(engine.missing()),
        }
    }
}

/// Says whether a program and a database fit; what every limiter asks before its first check.
pub(crate) fn gate(version: Option<i32>) -> Result<()> {
    match version {
        None => Err(Error::schema("the database has no tallygate schema; run: tallygate migrate")),
        Some(version) if version > latest() => Err(newer_schema(version)),
        Some(version) if version < latest() => Err(Error::schema(format!(
            "the database's schema is version {version} and this program needs {}; run: tallygate migrate",
            latest()
        ))),
        Some(_) => Ok(()),
    }
}

fn newer_schema(version: i32) -> Error {
    Error::schema(format!(
        "the database's schema is version {version} and this program knows only {}; install a newer tallygate",
        latest()
    ))
}

/// Gives an empty embedded database its schema.
#[cfg(feature = "sqlite")]
pub(crate) async fn run_embedded(connection: &mut sqlx::SqliteConnection) -> Result<()> {
    adapter::sqlite::run(connection).await.map(drop)
}
