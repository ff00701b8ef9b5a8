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
mod script;

use std::time::Duration;

use tokio::time::Instant;

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, Result};
use crate::shard::{Among, Shard, among, databases};
use crate::store::{Address, Database, Engine, Schema, Store, in_time};
use plan::{Plan, There, latest};

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

    /// The same for a database of tests, which decides by a clock in it: its owner sets that, and may do so in SQL. An empty database
    /// becomes one by [`apply`](Self::apply), and stays one, whoever migrates it afterwards. No other ever becomes one.
    ///
    /// # Errors
    /// Invalid: SQLite, which decides by the clock of the limiter: in tests by a `testing::Clock`.
    ///
    /// ```
    /// use tallygate::schema::Migrator;
    /// assert!(Migrator::new("mysql://localhost/tests")?.with_test_clock()?.script().contains("tallygate_test_clock"));
    /// assert!(Migrator::new("sqlite:tests.db")?.with_test_clock().is_err());
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn with_test_clock(self) -> Result<Self> {
        match self.address.engine() {
            Engine::Sqlite => Err(Error::invalid(
                "SQLite decides by the clock of the limiter; in tests give that a testing::Clock, see docs/testing.md",
            )),
            _ => Ok(Self { plan: self.plan.with_test_clock(), ..self }),
        }
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

    /// The SQL that makes the schema in a database that has none, as the database's own client reads it from a file: `psql -f`,
    /// `mysql <`, `sqlite3 <`. Afterwards nothing is [pending](Self::pending).
    pub fn script(&self) -> String {
        script::of(self.address.engine(), &self.plan)
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

    /// Those that are not applied yet, and those of which a routine or a view is gone or has another text, as after a dump without
    /// routines; none where a newer program has gone further. Every user with a [role](Self::grant) may ask; on MySQL and MariaDB
    /// only the owner sees what is gone.
    ///
    /// # Errors
    /// Schema: a newer program has changed the schema so that this one cannot work with it; a table is gone; MySQL or MariaDB
    /// writes statements into its binary log.
    pub fn pending(&self) -> BoxFuture<'_, Result<Vec<Migration>>> {
        boxed(async move {
            let (schema, there) = self.schema().await?;
            let plan = self.plan.of_database(schema.as_ref(), &there)?;
            let version = schema.as_ref().map_or(0, |schema| schema.version);
            let lacking = match is_newer(schema.as_ref(), plan.latest())? {
                true => Vec::new(),
                false => plan.lacking(version, &there)?,
            };
            let is_lacking = |of: i32| lacking.iter().any(|object| object.version == of);
            let mut all = self.migrations();
            all.retain(|migration| migration.version > version || is_lacking(migration.version));
            Ok(all)
        })
    }

    /// Is it a database [of tests](Self::with_test_clock)? Every user with a [role](Self::grant) may ask.
    ///
    /// # Errors
    /// Those of connecting.
    pub fn has_test_clock(&self) -> BoxFuture<'_, Result<bool>> {
        boxed(async move { Ok(self.schema().await?.0.is_some_and(|schema| schema.test_clock)) })
    }

    /// Applies what is pending and returns it; of what was applied before, only what is gone is made again. Roles that were given by
    /// [`grant`](Self::grant) are given again, with what is new.
    ///
    /// # Errors
    /// Those of [`pending`](Self::pending). Transient: another migrator was at work for too long. Invalid: the database is
    /// known by another name than it was [given](Self::named); it is to be one [of tests](Self::with_test_clock) and is not empty.
    pub fn apply(&self) -> BoxFuture<'_, Result<Vec<Migration>>> {
        boxed(async move {
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
        })
    }

    /// The same migrator in a later release: with one migration more, a file's name and text, and these files in place
    /// of routines. Tests only.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn with_release(mut self, migration: (String, String), routines: Vec<(String, String)>) -> Self {
        self.plan.release(migration, routines);
        self
    }

    async fn schema(&self) -> Result<(Option<Schema>, There)> {
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
    if schema.is_some_and(|schema| schema.test_clock) {
        tracing::warn!("the database is one of tests: its clock is set by hand");
    }
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
    store.claim(name, among).await?;
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
        Some((_, (among, _))) if among == will => Ok(()),
        Some((_, (among, after))) if among == was && (will == was || will == after) => Ok(()),
        Some((_, (among, after))) if among == was => Err(Error::schema(format!(
            "{name} is to decide among {after} once the list has changed, and by the list here among {will}; tell all of them \
             by: tallygate migrate, with the whole list"
        ))),
        Some((_, (among, _))) => Err(Error::invalid(format!(
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
    if let Database::Sqlite(sqlite) = store.database()
        && let Some(mut empty) = sqlite.empty().await?
    {
        let migrated = adapter::sqlite::run(&mut empty, &Plan::of(Engine::Sqlite)).await;
        empty.end(migrated)?;
    }
    Ok(())
}
