//! Buckets that go from one database to another.

use std::sync::Arc;

use serde::Serialize;
use tokio::task::{JoinError, JoinSet};

use super::shards::Shards;
use super::{Inner, Owner, flat, until};
use crate::boxed::{BoxFuture, boxed};
use crate::chain::is_erased;
use crate::check::validate_key;
use crate::error::{Error, Result};
use crate::shard::{Stage, among};
use crate::store::{Bucket, Moving, Range, Standing};
use crate::zone::{Zone, validate_name};

/// Characters of a database's name, as callers know it.
const NAME_CHARACTERS: usize = 64;

/// The refusal where the limiter is a list of several databases.
const APART: &str =
    "a bucket goes from one database to another, and this is a list of several; connect to each by itself";

/// A bucket that was moved, see [`Owner::move_bucket`](crate::schema::Owner::move_bucket).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Moved {
    /// The zone.
    pub zone: String,
    /// The key.
    pub key: String,
    /// The place where it was.
    pub from: String,
    /// The place where it is now.
    pub to: String,
    /// The number of ledger rows that this call copied: 0 when an earlier one had copied all.
    pub rows: u64,
}

/// The buckets that were moved between databases, see [`Owner::rebalance`](crate::schema::Owner::rebalance).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Rebalanced {
    /// The number of buckets that were looked at, each time that they were.
    pub buckets: u64,
    /// The number of them that were moved.
    pub moved: u64,
    /// The number of ledger rows that these have.
    pub rows: u64,
    /// The databases that decide now, by name; empty before the end.
    pub among: Vec<String>,
}

impl Inner {
    /// The database that has a bucket while the list changes; None for this one, which begins it.
    pub(super) async fn place(&self, bucket: &Bucket) -> Result<Option<String>> {
        let tries = self.tries(until(self.config.deadline));
        self.within(tries.run(|_| self.store.place(bucket))).await
    }
}

impl Owner {
    /// Moves a bucket with all its rows from this database to another one, of any kind; its chain goes on there. `from` and
    /// `to` are the names by which callers know the two, 1 to 64 characters. Of a list of databases there is
    /// [`move_to`](Self::move_to).
    ///
    /// For the owner of the tables of both. Rows are copied while checks go on; the bucket's lock (on SQLite the file's) is
    /// held for the last of them. From then on every call about the bucket is refused here and answered there, and never
    /// by both. Its rows stay here, as a chain that is closed. A call that was cut off, anywhere, leaves nothing undone that
    /// the same call does not do when it is made again; until then it may be that neither database decides.
    ///
    /// # Errors
    /// Invalid, and nothing is done: there is no such bucket; the other database has no such zone, of the same number and
    /// with the same versions; it has decided in this bucket itself. Refused: the bucket was moved to a third one.
    /// Transient: a lock could not be had, or somebody else moves the bucket; move it again.
    pub fn move_bucket<'a>(
        &'a self,
        to: &'a Self,
        zone: &'a str,
        key: &'a str,
        names: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Moved>> {
        boxed(async move {
            validate_name(zone)?;
            validate_key(key)?;
            validate_database(names.0)?;
            validate_database(names.1)?;
            if names.0 == names.1 {
                return Err(Error::invalid(format!(
                    "a bucket cannot be moved from {:?} to itself; name another database",
                    names.0
                )));
            }
            let (here, there) = (self.shards.only(APART)?, to.shards.only(APART)?);
            here.move_bucket(there, zone, key, names).await
        })
    }

    /// Moves a bucket of a list of databases to another one of it, on the terms of [`move_bucket`](Self::move_bucket). One that
    /// is there already stays, with no rows copied; a move that was cut off is finished.
    ///
    /// Callers that have the list follow the bucket, with one round trip more for each call. They find the mark of where it went in
    /// the database that its key belongs to.
    ///
    /// # Errors
    /// Those of [`move_bucket`](Self::move_bucket). Invalid: no database of the list is called so. Unknown zone.
    pub fn move_to<'a>(&'a self, zone: &'a str, key: &'a str, to: &'a str) -> BoxFuture<'a, Result<Moved>> {
        boxed(async move {
            validate_name(zone)?;
            validate_key(key)?;
            let names: Vec<_> = self.shards.all().map(|inner| inner.name()).collect();
            let there = self.shards.all().find(|inner| inner.name() == to).ok_or_else(|| {
                let names = names.join(", ");
                Error::invalid(format!("no database of the list is called {to:?}; the list has: {names}"))
            })?;
            let bucket = (there.told(there.zone(zone).await)?.id, key.to_owned());
            let from = self.shards.source(&bucket, there).await?.ok_or_else(|| {
                Error::invalid(format!(
                    "there is no bucket {key:?} in zone {zone:?}; look at its name, and the zone's"
                ))
            })?;
            if Arc::ptr_eq(from, there) {
                return Ok(Moved::new(zone, key, (to, to), 0));
            }
            from.move_bucket(there, zone, key, (from.name(), to)).await
        })
    }

    /// Moves every bucket of a list of databases to the one that its key belongs to, and then writes down among which
    /// databases each of them decides: the end of adding a database that is joining, or of taking out one that is leaving. See
    /// `docs/sharding.md`.
    ///
    /// Checks go on, on the terms of [`move_bucket`](Self::move_bucket); as many buckets as there are `jobs` are moved at the same
    /// time. Reads every head of every database, 1,000 at a time, and again until nothing was left to be moved. `progress` is told
    /// of what was done so far. Cut off anywhere, the same call goes on.
    ///
    /// # Errors
    /// Those of [`move_bucket`](Self::move_bucket). Invalid, and nothing is done: a database of the list is only known, or there is one
    /// database.
    pub async fn rebalance(
        &self,
        jobs: usize,
        mut progress: impl FnMut(&Rebalanced) + Send,
    ) -> Result<Rebalanced> {
        self.move_all(jobs, &mut progress).await
    }

    fn move_all<'a>(
        &'a self,
        jobs: usize,
        progress: &'a mut (dyn FnMut(&Rebalanced) + Send),
    ) -> BoxFuture<'a, Result<Rebalanced>> {
        boxed(async move {
            if !self.shards.are_several() {
                return Err(Error::invalid("one database has all buckets; name the list: eu-1=URL eu-2=URL"));
            }
            if let Some(known) = self.shards.all().find(|inner| inner.stage() == Stage::Known) {
                return Err(Error::invalid(format!(
                    "{name} is only known, and gets nothing; when every process has it in its list, write {name}/joining everywhere",
                    name = known.name()
                )));
            }
            let mut done = Rebalanced::default();
            loop {
                let before = done.moved;
                for from in self.shards.all() {
                    for zone in from.told(from.within(from.store.zones()).await)? {
                        self.shards.rebalance(from, &zone, jobs.max(1), &mut done, progress).await?;
                    }
                }
                if done.moved == before {
                    break;
                }
            }
            let (_, will) = among(self.shards.all().filter_map(|inner| inner.shard.as_ref()));
            for inner in self.shards.all() {
                inner.told(inner.within(inner.store.set_among(&will)).await)?;
            }
            done.among = will.split(' ').map(str::to_owned).collect();
            Ok(done)
        })
    }
}

impl Shards {
    /// The database from which a bucket is to be moved; None where there is nothing of it.
    async fn source(&self, bucket: &Bucket, to: &Arc<Inner>) -> Result<Option<&Arc<Inner>>> {
        let mut source = None;
        for inner in self.all() {
            match inner.told(inner.within(inner.store.standing(bucket)).await)? {
                Standing::Here => return Ok(Some(inner)),
                // A move that may have been cut off.
                Standing::Moved(moved_to, _) if moved_to == to.name() => source = Some(inner),
                Standing::Moved(..) | Standing::Nothing => {}
            }
        }
        Ok(source)
    }

    async fn rebalance(
        &self,
        from: &Arc<Inner>,
        zone: &Zone,
        jobs: usize,
        done: &mut Rebalanced,
        progress: &mut (dyn FnMut(&Rebalanced) + Send),
    ) -> Result<()> {
        let mut range = Range::all(zone.id);
        loop {
            let keys = from.told(from.within(from.store.standings(&range)).await)?;
            let Some((last, _)) = keys.last() else { return Ok(()) };
            let rest = range.behind(last);
            let mut moves = JoinSet::new();
            for (key, _) in keys {
                done.buckets += 1;
                let to = self.of(&key);
                // In one that was erased nothing happens any more.
                if Arc::ptr_eq(from, to) || is_erased(&key) {
                    continue;
                }
                if moves.len() >= jobs {
                    done.and(moves.join_next().await, progress)?;
                }
                let (from, to, zone) = (Arc::clone(from), Arc::clone(to), zone.clone());
                moves.spawn(async move { from.told(from.give(&to, &zone, key).await) });
            }
            while let Some(moved) = moves.join_next().await {
                done.and(Some(moved), progress)?;
            }
            progress(done);
            range = rest;
        }
    }
}

impl Inner {
    /// Moves a bucket that is here, and finishes what was cut off. The rows that were copied; None where it had gone before.
    async fn give(&self, to: &Self, zone: &Zone, key: String) -> Result<Option<u64>> {
        let bucket = (zone.id, key);
        let is_here = match self.within(self.store.standing(&bucket)).await? {
            Standing::Here => true,
            Standing::Moved(moved_to, _) if moved_to == to.name() => false,
            // It is on its way here, or somebody has put it elsewhere.
            Standing::Moved(..) | Standing::Nothing => return Ok(None),
        };
        let moved = self.move_bucket(to, &zone.name, &bucket.1, (self.name(), to.name())).await?;
        Ok(is_here.then_some(moved.rows))
    }

    async fn move_bucket(&self, to: &Self, zone: &str, key: &str, names: (&str, &str)) -> Result<Moved> {
        let zone_id = self.zone(zone).await?.id;
        let moving = Moving { zone_id, zone, key, from: names.0, to: names.1 };
        let tries = self.tries(until(self.config.deadline));
        let rows = tries.run(|_| self.store.move_bucket(&to.store, &moving)).await?;
        Ok(Moved::new(zone, key, names, rows))
    }
}

impl Moved {
    fn new(zone: &str, key: &str, (from, to): (&str, &str), rows: u64) -> Self {
        let [zone, key, from, to] = [zone, key, from, to].map(str::to_owned);
        Self { zone, key, from, to, rows }
    }
}

impl Rebalanced {
    fn and(
        &mut self,
        moved: Option<std::result::Result<Result<Option<u64>>, JoinError>>,
        progress: &mut (dyn FnMut(&Self) + Send),
    ) -> Result<()> {
        if let Some(rows) = moved.map(flat).transpose()?.flatten() {
            self.moved += 1;
            self.rows += rows;
            progress(self);
        }
        Ok(())
    }
}

fn validate_database(name: &str) -> Result<()> {
    let characters = name.chars().count();
    if (1..=NAME_CHARACTERS).contains(&characters) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "no database can be called {name:?}; use 1 to {NAME_CHARACTERS} characters, none of them a control character"
    )))
}
