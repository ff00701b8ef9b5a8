//! The databases of a limiter. Each has connections, calls and a memory of its own, so that one that is down holds up no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Config, Floods, Inner, Limiter, Local, Others, Passing, flat, until};
use crate::boxed::{BoxFuture, boxed, spawn};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::migrate;
use crate::shard::{Among, Shard, Stage, among, moved_to, owners};
use crate::store::{Address, Caller, Joined, Store, in_time};

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
    /// Every process must have the same names; a host or a password may change. The name of a database is written in
    /// it, by `tallygate migrate` or [`Migrator::named`](crate::schema::Migrator::named), and it answers to no other
    /// name. A SQLite file that is made here learns its name here. None of them begins a bucket whose key belongs to another one,
    /// whoever asks, and with whatever URL.
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
            named.push((Shard::parse(&name.into())?, Address::parse(url.as_ref())?));
        }
        named.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        if let Some(twice) = named.windows(2).find(|pair| pair[0].0.name == pair[1].0.name) {
            return Err(Error::invalid(format!(
                "two databases are called {:?}; give each its own name",
                twice[0].0.name
            )));
        }
        let among = among(named.iter().map(|(shard, _)| shard));
        if among.0.is_empty() || among.1.is_empty() {
            return Err(Error::invalid(
                "no database of the list decides; name one or more that are neither known nor joining nor leaving",
            ));
        }
        let changes = named.iter().any(|(shard, _)| shard.stage != Stage::Settled);
        let mut shards = Vec::with_capacity(named.len());
        for (shard, address) in named {
            let opened = Self::open_named(&address, config, &shard.name, &among).await;
            let (store, config) = opened.map_err(|error| error.at(&shard.name))?;
            // A check that is answered from memory has its row later; by then its bucket may have gone.
            let floods = if changes { Floods::none() } else { Floods::default() };
            shards.push(Inner::new(Some(shard), store, config, floods, Local::default()));
        }
        Shards::new(shards).map(Self::of)
    }

    async fn open_named(
        address: &Address,
        config: Config,
        name: &str,
        among: &Among,
    ) -> Result<(Store, Config)> {
        let until = until(config.deadline);
        let store = Self::store_at(address, &config, until).await?;
        let config = Self::open(&store, config, until).await?;
        if config.create && store.is_embedded() {
            migrate::claim(&store, name, among).await?;
        }
        migrate::is_called(in_time(until, store.schema()).await?.as_ref(), name, among)?;
        Ok((store, config))
    }

    /// The database that decides a bucket, with the name that it has among [several](Self::sharded): a limiter of that one alone,
    /// to join a transaction on a connection of the same. Of one database that is not named, the name is empty.
    ///
    /// No round trip, unless the list changes and the key has two databases: then two or three. A joined check may be
    /// refused when the bucket is moved meanwhile; roll back, and ask again.
    ///
    /// # Errors
    /// Those of [`peek`](Self::peek), where it asks.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use tallygate::{Config, Limiter};
    /// let databases = [("eu-1", "sqlite::memory:"), ("eu-2", "sqlite::memory:")];
    /// let limiter = Limiter::sharded(databases, Config::default()).await?;
    /// let (name, one) = limiter.shard_of("login", "user:42").await?;
    /// assert_eq!(name, one.shard_of("login", "user:42").await?.0);
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn shard_of<'a>(&'a self, zone: &'a str, key: &'a str) -> BoxFuture<'a, Result<(String, Self)>> {
        boxed(async move {
            let (was, will) = self.shards.owners(key);
            let inner = match Arc::ptr_eq(was, will) {
                true => Arc::clone(will),
                false => Box::pin(self.shards.found(zone, key, until(will.config.deadline))).await?,
            };
            let same = |others: &Option<Shards>| {
                let others = others.as_ref()?;
                others
                    .all()
                    .find(|other| other.name() == inner.name())
                    .map(|other| Shards::one(Arc::clone(other)))
            };
            let Others { operator, auditor, owner } = &self.others;
            let others = Others { operator: same(operator), auditor: same(auditor), owner: same(owner) };
            let name = inner.name().to_owned();
            Ok((
                name,
                Self {
                    shards: Shards::one(inner),
                    others,
                    journal: self.journal.clone(),
                    local_journal: self.local_journal.clone(),
                },
            ))
        })
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

    /// The one that a key had before the list changes, and the one that it has then: the same, where the list does not change.
    pub fn owners(&self, key: &str) -> (&Arc<Inner>, &Arc<Inner>) {
        let places = match self.rest.is_empty() {
            true => None,
            false => owners(self.all().filter_map(|inner| inner.shard.as_ref()), key),
        };
        let (was, will) = places.unwrap_or_default();
        let at = |place| self.all().nth(place).unwrap_or(&self.first);
        (at(was), at(will))
    }

    /// The one that a key has, when nothing is moved any more.
    pub fn of(&self, key: &str) -> &Arc<Inner> {
        self.owners(key).1
    }

    /// The one whose zones are those of all.
    pub fn first(&self) -> &Arc<Inner> {
        &self.first
    }

    pub fn rest(&self) -> &[Arc<Inner>] {
        &self.rest
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Inner>> + Clone {
        std::iter::once(&self.first).chain(self.rest.iter())
    }

    pub fn are_several(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Are databases added or taken out?
    pub fn change(&self) -> bool {
        self.all().any(|inner| inner.stage() != Stage::Settled)
    }

    /// The only one; what `told` says of several.
    pub fn only(&self, told: &str) -> Result<&Arc<Inner>> {
        match self.are_several() {
            false => Ok(&self.first),
            true => Err(Error::invalid(told)),
        }
    }

    /// The only one, and the caller's transaction to join there: a connection does not say which database it is of.
    pub async fn joined<'c>(&self, transaction: Joined<'c>) -> Result<(&Arc<Inner>, Caller<'c>)> {
        let inner = self.only(
            "a limiter of several databases cannot tell which of them a connection is of; join by the limiter of the key's \
             own one, which Limiter::shard_of gives with its name",
        )?;
        Ok((inner, transaction.caller().await?))
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
        let asked: Vec<_> = self.all().map(|inner| (inner, spawn(ask(Arc::clone(inner))))).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (inner, answer) in asked {
            answers.push((inner, inner.told(flat(answer.await))));
        }
        answers
    }

    /// The answer of any of them, for what is the same in all: of the first one that does not fail in
    /// passing.
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

    /// The checks by the databases that decide them, which are at `places`.
    pub fn parts(places: Vec<Arc<Inner>>, checks: Vec<Check>, txns: Vec<Uuid>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (place, ((inner, check), txn)) in places.into_iter().zip(checks).zip(txns).enumerate() {
            let at = parts.iter().position(|part| Arc::ptr_eq(&part.inner, &inner)).unwrap_or(parts.len());
            if at == parts.len() {
                parts.push(Part { inner, places: vec![], checks: vec![], txns: vec![] });
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
        if !self.are_several() {
            return self.first.told(self.first.check_many(checks, txns, Passing::Each, until).await);
        }
        let at = self.at_each(&checks).await?;
        let mut calls = Vec::new();
        for Part { inner, places, checks, txns } in Self::parts(at, checks, txns) {
            let shards = self.clone();
            let call = async move {
                match inner.check_many(checks.clone(), txns.clone(), Passing::Each, until).await {
                    Err(error) if moved_to(&error).is_some() => shards.one_by_one(checks, txns, until).await,
                    decided => inner.told(decided),
                }
            };
            calls.push((places, spawn(call)));
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

    /// Decides the checks that one call could not decide, since a bucket in it was moved.
    async fn one_by_one(&self, checks: Vec<Check>, txns: Vec<Uuid>, until: Instant) -> Result<Vec<Decision>> {
        let mut decisions = Vec::with_capacity(checks.len());
        for (check, txn) in checks.into_iter().zip(txns) {
            let deadline = self.deadline(std::slice::from_ref(&check));
            decisions.push(self.check(check, txn, until, deadline).await?);
        }
        Ok(decisions)
    }
}

/// The decisions in the order of their checks.
pub(super) fn in_place(mut placed: Vec<(usize, Decision)>) -> Vec<Decision> {
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, decision)| decision).collect()
}

impl Inner {
    pub(super) fn stage(&self) -> Stage {
        self.shard.as_ref().map_or(Stage::Settled, |shard| shard.stage)
    }

    /// Its name among several; empty of one that is alone.
    pub(super) fn name(&self) -> &str {
        self.shard.as_ref().map_or("", |shard| &shard.name)
    }

    /// An error of one of several databases says which one it was.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        match &self.shard {
            Some(shard) => result.map_err(|error| error.at(&shard.name)),
            None => result,
        }
    }
}
