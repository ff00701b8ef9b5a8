//! The schema: which migrations there are, which are applied, and applying them under one lock.
//!
//! Refinery numbers, checksums and records; it runs here on sqlx's connections through a thin adapter, and
//! brings no lock of its own, so each engine takes one around it.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod adapter;
mod distribute;
mod grant;
#[cfg(feature = "mysql")]
mod lock;
mod plan;

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::shard::{Shard, among, databases};
use crate::store::{Address, Engine, Schema, Store, in_time};
use plan::{Plan, latest};

pub use grant::Role;

/// The longest that writing down a database's name may take.
const CLAIM: Duration = Duration::from_secs(10);

/// One step of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Migration {
    /// Its number: the same on every database.
    pub version: i32,
    /// The subject of the migration.
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
/// let migrator = tallygate::schema::Migrator::new("sqlite::memory:")?;
/// assert_eq!(migrator.pending().await?.len(), migrator.migrations().len());
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
pub struct Migrator {
    address: Address,
    plan: Plan,
    /// Its name among several databases, and the names of those that decide.
    shard: Option<(String, Among)>,
}

/// The names of the databases that decide keys before the list changes and afterwards, see [`among`].
pub(crate) type Among = (String, String);

impl Migrator {
    /// For the database at `url`; nothing is opened yet.
    ///
    /// # Errors
    /// Invalid: the URL has no scheme, or one that is not known.
    pub fn new(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let plan = Plan::of(address.engine());
        Ok(Self { address, plan, shard: None })
    }

    /// One for each database of a text: a URL, or [several](crate::Limiter::sharded) that decide together, each with its name.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and [`named`](Self::named).
    ///
    /// ```
    /// let several = tallygate::schema::Migrator::each("eu-1=postgres://one/app eu-2=mysql://two/app")?;
    /// assert_eq!(several[1].0.as_deref(), Some("eu-2"));
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn each(text: &str) -> Result<Vec<(Option<String>, Self)>> {
        let Some(named) = databases(text)? else { return Ok(vec![(None, Self::new(text)?)]) };
        let list: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        named
            .iter()
            .map(|(name, url)| Ok((Some(Shard::parse(name)?.name), Self::new(url)?.named(name, &list)?)))
            .collect()
    }

    /// True where [`migrations`](Self::migrations) are read by a client of MySQL or MariaDB.
    pub fn is_for_mysql(&self) -> bool {
        self.address.engine() == Engine::MySql
    }

    /// The same for a database that is one of several, by the name that it has there, and the names of all: [`apply`](Self::apply)
    /// writes them down, and nobody connects to it by another name, or with another list.
    ///
    /// # Errors
    /// Invalid: a name has letters, digits, `_`, `-` and `.`, 63 at most; behind it there may be `/known`, `/joining` or `/leaving`.
    pub fn named(self, shard: &str, list: &[&str]) -> Result<Self> {
        let list = list.iter().map(|name| Shard::parse(name)).collect::<Result<Vec<_>>>()?;
        Ok(Self { shard: Some((Shard::parse(shard)?.name, among(list.iter()))), ..self })
    }

    /// Every migration for this database, in order.
    pub fn migrations(&self) -> Vec<Migration> {
        let step = |m: &refinery_core::Migration| Migration {
            version: m.version(),
            name: m.name().to_owned(),
            sql: self.plan.parts(m.sql().unwrap_or_default()).into_iter().map(|part| part.sql).collect(),
        };
        self.plan.migrations().iter().map(step).collect()
    }

    /// Those that are not applied yet; none where a newer program has gone further. Every user with a
    /// [role](Self::grant) may ask.
    ///
    /// # Errors
    /// Schema: a newer program has changed the schema so that this one cannot work with it.
    pub async fn pending(&self) -> Result<Vec<Migration>> {
        let schema = self.schema().await?;
        is_newer(schema.as_ref(), self.plan.latest())?;
        let mut all = self.migrations();
        all.retain(|migration| schema.as_ref().is_none_or(|schema| migration.version > schema.version));
        Ok(all)
    }

    /// Applies what is pending and returns it. Roles that were given by [`grant`](Self::grant) are given again, with
    /// what is new.
    ///
    /// # Errors
    /// Those of [`pending`](Self::pending). Transient: another migrator was at work for too long. Invalid: the database is
    /// known by another name than it was [given](Self::named).
    pub async fn apply(&self) -> Result<Vec<Migration>> {
        let all = self.migrations();
        let applied: Vec<i32> = match self.address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => adapter::postgres::apply(&self.address, &self.plan).await,
            #[cfg(feature = "mysql")]
            Engine::MySql => adapter::mysql::apply(&self.address, &self.plan).await,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => adapter::sqlite::apply(&self.address, &self.plan).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => Err(engine.missing()),
        }?;
        if let Some((name, among)) = &self.shard {
            let until = Instant::now() + CLAIM;
            let store = Store::connect(&self.address, 1, false, until).await?;
            let claimed = in_time(until, claim(&store, name, among)).await;
            store.close().await;
            claimed?;
        }
        Ok(all.into_iter().filter(|migration| applied.contains(&migration.version)).collect())
    }

    /// The same migrator in a later release: with one migration more, a file's name and text, and these files in place
    /// of routines. Tests only.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn with_release(mut self, migration: (String, String), routines: Vec<(String, String)>) -> Self {
        self.plan.release(migration, routines);
        self
    }

    async fn schema(&self) -> Result<Option<Schema>> {
        match self.address.engine() {
            #[cfg(feature = "postgres")]
            Engine::Postgres => adapter::postgres::schema(&self.address).await,
            #[cfg(feature = "mysql")]
            Engine::MySql => adapter::mysql::schema(&self.address).await,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => adapter::sqlite::schema(&self.address).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
            engine => Err(engine.missing()),
        }
    }
}

/// Says whether a program and a database fit; what every limiter asks before its first check.
///
/// A newer schema is worked with and told in the log, unless a migration since is named as breaking.
pub(crate) fn gate(schema: Option<&Schema>) -> Result<()> {
    if fits(schema)? {
        let (version, known) = (schema.map(|schema| schema.version), latest());
        tracing::warn!(version, known, "the database's schema is newer than this program; it works on");
    }
    Ok(())
}

/// Whether the schema is newer than the program, which it may be. Fails where the two do not fit.
pub(crate) fn fits(schema: Option<&Schema>) -> Result<bool> {
    let known = latest();
    match schema {
        None => Err(Error::schema("the database has no tallygate schema; run: tallygate migrate")),
        Some(&Schema { version, .. }) if version < known => Err(Error::schema(format!(
            "the database's schema is version {version} and this program needs {known}; run: tallygate migrate"
        ))),
        Some(_) => is_newer(schema, known),
    }
}

/// True when the schema has migrations that a program which knows so many does not. Fails when one of them is breaking.
fn is_newer(schema: Option<&Schema>, known: i32) -> Result<bool> {
    let Some(&Schema { version, breaking, .. }) = schema else { return Ok(false) };
    match breaking.filter(|&breaking| breaking > known) {
        None => Ok(version > known),
        Some(breaking) => Err(Error::schema(format!(
            "the database's schema is version {version}, and since version {breaking} programs that know only {known} \
             cannot work with it; install a newer tallygate"
        ))),
    }
}

/// Writes down the name of a database among several, and the names of all, unless it has them already.
pub(crate) async fn claim(store: &Store, name: &str, among: &Among) -> Result<()> {
    store.claim(name, &among.0).await?;
    is_called(store.schema().await?.as_ref(), name, among)
}

/// Whether a database knows itself by the name that it is called here, and decides among the same. Under another name, or with
/// another list, it would be sent buckets that another database decides, and what both have room for would pass.
pub(crate) fn is_called(schema: Option<&Schema>, name: &str, (was, will): &Among) -> Result<()> {
    match schema.and_then(|schema| schema.shard.as_ref()) {
        Some((own, _)) if own != name => Err(Error::invalid(format!(
            "the database that is called {name:?} here is {own:?} by its own table tallygate_shard; a name stays with its \
             database wherever that goes, so look at the list"
        ))),
        Some((_, among)) if among == was || among == will => Ok(()),
        Some((_, among)) => Err(Error::invalid(format!(
            "{name} decides among {among} by its own table tallygate_shard, and the list here is {was}; to add a database, write \
             NAME/known, or NAME/leaving to take one out, see docs/sharding.md"
        ))),
        None => Err(Error::schema(format!(
            "the database that is called {name:?} here has no name yet; give it that once by: tallygate migrate, with the \
             whole list"
        ))),
    }
}

/// Gives an embedded database that holds nothing its schema; any other is left as it is.
pub(crate) async fn embed(store: &Store) -> Result<()> {
    #[cfg(feature = "sqlite")]
    #[allow(irrefutable_let_patterns, reason = "with SQLite alone it always is one")]
    if let Store::Sqlite(sqlite) = store
        && let Some(mut empty) = sqlite.empty().await?
    {
        let migrated = adapter::sqlite::run(&mut empty, &Plan::of(Engine::Sqlite)).await;
        empty.end(migrated)?;
    }
    Ok(())
}
