//! The databases of a limiter. Each has connections, calls and a memory of its own, so that one that is down holds up no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Config, Inner, Limiter, Others, Passing, flat, until};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::migrate;
use crate::shard::{owner, validate_shard};
use crate::store::{Address, in_time};

/// One database, or several in the order of their names.
#[derive(Clone)]
pub(super) struct Shards {
    first: Arc<Inner>,
    rest: Arc<[Arc<Inner>]>,
}

/// The checks of a call that one database decides, with their places in the call.
pub(super) struct Part {
    pub inner: Arc<Inner>,
    pub places: Vec<usize>,
    pub checks: Vec<Check>,
    pub txns: Vec<Uuid>,
}

impl Limiter {
    /// Decides in several databases, of any mix of kinds: each key in one of them, which follows from the names that the databases
    /// are given here. `docs/sharding.md` tells how. [`connect`](Self::connect) takes the same as one text.
    ///
    /// Every process must have the same names; a host or a password may change. What a database is called is written in it, by
    /// `tallygate migrate` or [`Migrator::named`](crate::schema::Migrator::named), and it answers to no other name. A SQLite file
    /// that is made here learns its name here.
    ///
    /// All limits of a key meet in one database. [`check_all`](Self::check_all) over keys of several is refused unless
    /// [`Config::spanning`] allows it; whatever joins a caller's transaction is asked of the limiter that
    /// [`shard_of`](Self::shard_of) gives. Each database has [`Config::connections`] of its own.
    ///
    /// # Errors
    /// Those of [`connect_with`](Self::connect_with), for each of the databases: all must answer now. Later, one that is down
    /// fails what is asked of its own buckets, and nothing else. Invalid: a name that cannot be used, or that the database is
    /// not known by; a name twice. Schema: a database that has no name yet.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Config, Limiter, Policy};
    /// let databases = [("eu-1", "sqlite::memory:"), ("eu-2", "sqlite::memory:")];
    /// let limiter = Limiter::sharded(databases, Config::default()).await?;
    /// limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// assert!(limiter.check(Check::new("login", "user:42")).await?.is_allowed());
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn sharded<N: Into<String>, U: AsRef<str>>(
        databases: impl IntoIterator<Item = (N, U)>,
        config: Config,
    ) -> Result<Self> {
        let mut named = Vec::new();
        for (name, url) in databases {
            let name: String = name.into();
            validate_shard(&name)?;
            named.push((name, Address::parse(url.as_ref())?));
        }
        named.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(twice) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::invalid(format!(
                "two databases are called {:?}; give each its own name",
                twice[0].0
            )));
        }
        let mut shards = Vec::with_capacity(named.len());
        for (name, address) in named {
            let opened = Self::open_named(&address, config, &name).await.map_err(|error| error.at(&name))?;
            shards.push(opened.renamed(name));
        }
        Shards::new(shards).map(Self::of)
    }

    async fn open_named(address: &Address, config: Config, name: &str) -> Result<Arc<Inner>> {
        let until = until(config.deadline);
        let store = Self::store_at(address, &config, until).await?;
        let limiter = Self::open(store.clone(), config, until).await?;
        if config.create && store.is_embedded() {
            migrate::claim(&store, name).await?;
        }
        migrate::is_called(in_time(until, store.schema()).await?.as_ref(), name)?;
        Ok(limiter.shards.first)
    }

    /// The database that decides a key, with the name that it has among [several](Self::sharded): a limiter of that one alone,
    /// to join a transaction on a connection of the same. Of one database that is not named, the name is empty.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use tallygate::{Config, Limiter};
    /// let databases = [("eu-1", "sqlite::memory:"), ("eu-2", "sqlite::memory:")];
    /// let limiter = Limiter::sharded(databases, Config::default()).await?;
    /// let (name, one) = limiter.shard_of("user:42");
    /// assert_eq!(name, one.shard_of("user:42").0);
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn shard_of(&self, key: &str) -> (String, Self) {
        let inner = self.shards.of(key);
        let same = |others: &Option<Shards>| {
            let others = others.as_ref()?;
            others.all().find(|other| other.name == inner.name).map(|other| Shards::one(Arc::clone(other)))
        };
        let Others { operator, auditor, owner } = &self.others;
        let others = Others { operator: same(operator), auditor: same(auditor), owner: same(owner) };
        let one = Self { shards: Shards::one(Arc::clone(inner)), others, journal: self.journal.clone() };
        (inner.name.clone().unwrap_or_default(), one)
    }
}

impl Shards {
    pub fn one(inner: Arc<Inner>) -> Self {
        Self { first: inner, rest: Arc::default() }
    }

    /// In the order of their names.
    fn new(shards: Vec<Arc<Inner>>) -> Result<Self> {
        let mut shards = shards.into_iter();
        let first = shards
            .next()
            .ok_or_else(|| Error::invalid("the list of databases is empty; name one or more"))?;
        Ok(Self { first, rest: shards.collect() })
    }

    /// The one that decides a key.
    pub fn of(&self, key: &str) -> &Arc<Inner> {
        if self.rest.is_empty() {
            return &self.first;
        }
        let names = self.all().map(|inner| inner.name.as_deref().unwrap_or_default());
        owner(names, key).and_then(|place| self.all().nth(place)).unwrap_or(&self.first)
    }

    /// The one whose zones are those of all.
    pub fn first(&self) -> &Arc<Inner> {
        &self.first
    }

    pub fn rest(&self) -> &[Arc<Inner>] {
        &self.rest
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Inner>> {
        std::iter::once(&self.first).chain(self.rest.iter())
    }

    pub fn are_several(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The only one; what `told` says of several.
    pub fn only(&self, told: &str) -> Result<&Arc<Inner>> {
        match self.are_several() {
            false => Ok(&self.first),
            true => Err(Error::invalid(told)),
        }
    }

    /// The only one, to join a caller's transaction: a connection does not say which database it is of.
    pub fn joined(&self) -> Result<&Arc<Inner>> {
        self.only(
            "a limiter of several databases cannot tell which of them a connection is of; join by the limiter of the key's \
             own one, which Limiter::shard_of gives with its name",
        )
    }

    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub fn try_map(&self, map: impl Fn(&Inner) -> Result<Arc<Inner>>) -> Result<Self> {
        let rest = self.rest.iter().map(|inner| map(inner)).collect::<Result<_>>()?;
        Ok(Self { first: map(&self.first)?, rest })
    }

    /// The shortest that the checks say, or the one of all.
    pub fn deadline(&self, checks: &[Check]) -> Duration {
        checks.iter().filter_map(|check| check.deadline).min().unwrap_or(self.first.config.deadline)
    }

    /// Asks all at the same time; the answers are in the order of their names.
    pub async fn each<T, F>(&self, ask: impl Fn(Arc<Inner>) -> F) -> Vec<(&Arc<Inner>, Result<T>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let asked: Vec<_> = self.all().map(|inner| (inner, tokio::spawn(ask(Arc::clone(inner))))).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (inner, answer) in asked {
            answers.push((inner, inner.told(flat(answer.await))));
        }
        answers
    }

    /// What any of them says, for what is the same in all: the first one that does not fail in passing.
    pub async fn any<T, F>(&self, ask: impl Fn(Arc<Inner>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut answer = self.first.told(ask(Arc::clone(&self.first)).await);
        for inner in &*self.rest {
            match answer {
                Err(error) if error.is_transient() => answer = inner.told(ask(Arc::clone(inner)).await),
                answer => return answer,
            }
        }
        answer
    }

    /// The checks by the databases that decide them.
    pub fn parts(&self, checks: Vec<Check>, txns: Vec<Uuid>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (place, (check, txn)) in checks.into_iter().zip(txns).enumerate() {
            let inner = self.of(&check.key);
            let known = parts.iter().position(|part| Arc::ptr_eq(&part.inner, inner));
            let at = known.unwrap_or(parts.len());
            if known.is_none() {
                parts.push(Part { inner: Arc::clone(inner), places: vec![], checks: vec![], txns: vec![] });
            }
            parts[at].places.push(place);
            parts[at].checks.push(check);
            parts[at].txns.push(txn);
        }
        parts
    }

    /// Each check by itself, in its place.
    pub async fn check_many(
        &self,
        checks: Vec<Check>,
        txns: Vec<Uuid>,
        until: Instant,
    ) -> Result<Vec<Decision>> {
        let mut calls = Vec::new();
        for Part { inner, places, checks, txns } in self.parts(checks, txns) {
            let call = async move { inner.told(inner.check_many(checks, txns, Passing::Each, until).await) };
            calls.push((places, tokio::spawn(call)));
        }
        let (mut placed, mut failed) = (Vec::new(), None);
        for (places, call) in calls {
            match flat(call.await) {
                Ok(decisions) => placed.extend(places.into_iter().zip(decisions)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or_else(|| Ok(in_place(placed)), Err)
    }
}

/// The decisions in the order of their checks.
pub(super) fn in_place(mut placed: Vec<(usize, Decision)>) -> Vec<Decision> {
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, decision)| decision).collect()
}

impl Inner {
    fn renamed(self: Arc<Self>, name: String) -> Arc<Self> {
        Self::new(Some(name), self.store.clone(), self.config)
    }

    /// An error of one of several databases says which one it was.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        match &self.name {
            Some(name) => result.map_err(|error| error.at(name)),
            None => result,
        }
    }
}
