//! The face for the owner of the tables.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::Inner;
use super::shards::Shards;
use crate::boxed::{BoxFuture, boxed};
use crate::check::validate_key;
use crate::error::{Error, Result};
use crate::store::{Erased, Erasing, Maintained, Needed, Plan, Upkeep, ZoneRemoved};
use crate::zone::{validate_name, validate_text};

/// The owner of the tables acts by this: upkeep, erasing personal data, and removing zones that were never used. Made
/// by [`Limiter::owner`](crate::Limiter::owner); its connections need the owner's rights.
#[derive(Clone)]
pub struct Owner {
    pub(super) shards: Shards,
}

impl Owner {
    /// Keeps the database as small as its zones allow: makes partitions of the ledger ahead, removes those that are
    /// old, what has ended of charges in no window, and rows of idle buckets.
    ///
    /// Of [several databases](crate::Limiter::sharded) all are looked after, at the same time; an error says which were.
    ///
    /// A ban or an override that is in force when its row is to go is recorded anew, by `tallygate maintain`, with who set it in
    /// its note; its end comes later by what that took, some milliseconds.
    ///
    /// For the owner of the tables, one at a time: others are told so. Checks go on; what each step locks, and for how
    /// long, is in `docs/operations.md`. A run that was cut off is finished by the next one.
    ///
    /// # Errors
    /// Invalid, and nothing is done: [`keep`](Upkeep::keep) or [`idle`](Upkeep::idle) is shorter than what a zone
    /// needs, which is twice its longest window (of a version or an override in force), the time within which blocked
    /// checks lead to a ban, and the age of its oldest open reservation. Transient: another one is at work, and nothing
    /// was done here; a lock could not be had.
    pub fn maintain(&self, upkeep: Upkeep) -> BoxFuture<'_, Result<Maintained>> {
        boxed(async move {
            let work = move |inner: Arc<Inner>| async move { inner.maintain(upkeep).await };
            let done = self.shards.done("was looked after", self.shards.each(work).await)?;
            let names = self.shards.all().map(|inner| inner.shard.as_ref().map(|shard| &*shard.name));
            Ok(names.zip(done).fold(Maintained::default(), |all, (name, one)| all.and(name, one)))
        })
    }

    /// Erases the personal data of a bucket: its key, its members, and the notes and the authors of its rows. In their
    /// place stand hashes that cannot be guessed, since the salt goes with them; every row can still be verified.
    ///
    /// For the owner of the tables. One transaction, which holds the bucket's lock (on SQLite the file's) until all rows
    /// of the bucket are written anew. Nothing happens in the erased bucket any more, and its charges cannot be given
    /// back. The next check of the key begins a new bucket, with its whole limit. `by` and `note` are kept for good: the
    /// note says why and must not name the person. See `docs/operations.md` for what else knows a key.
    ///
    /// # Errors
    /// Invalid, and nothing is done: there is no such bucket; a note is missing. Transient: upkeep is at work, or a lock
    /// could not be had.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, std::time::Duration::from_secs(60))?, None, "docs").await?;
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// let erased = limiter.owner().erase("login", "user:42", "request 2026-117", "privacy").await?;
    /// assert!(erased.key.starts_with("erased:"));
    /// assert_eq!(erased.rows, 1);
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn erase<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Erased>> {
        boxed(async move {
            self.erase_of(zone, key, note, by).await?.ok_or_else(|| {
                Error::invalid(format!(
                    "there is no bucket {key:?} in zone {zone:?}; look at its name, and the zone's"
                ))
            })
        })
    }

    /// [Erases](Self::erase) the buckets of a key in all zones, one after the other, and returns those that there were. Cut off in
    /// the middle, the same again does the rest.
    ///
    /// # Errors
    /// Those of [`erase`](Self::erase). Invalid: there is no such bucket in any zone.
    pub fn erase_everywhere<'a>(
        &'a self,
        key: &'a str,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Erased>>> {
        boxed(async move {
            let mut erased = Vec::new();
            let zones =
                self.shards.any(|inner| async move { inner.within(inner.store.zones()).await }).await?;
            for zone in zones {
                erased.extend(self.erase_of(&zone.name, key, note, by).await?);
            }
            if erased.is_empty() {
                return Err(Error::invalid(format!(
                    "there is no bucket {key:?} in any zone; look at its name"
                )));
            }
            Ok(erased)
        })
    }

    /// Erases a bucket; None where there is none.
    async fn erase_of(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Option<Erased>> {
        validate_name(zone)?;
        validate_key(key)?;
        if note.trim().is_empty() {
            return Err(Error::invalid("an erasure without a note cannot be accounted for; say why"));
        }
        validate_text("a note", note)?;
        validate_text("the name of who does it", by)?;
        if self.shards.change() {
            return Err(Error::invalid(
                "no bucket can be erased while databases are added or taken out, since it would forget where it went; let all of \
                 the list be settled first",
            ));
        }
        let mut erased: Option<Erased> = None;
        // One that was moved has its rows in both databases.
        for inner in self.shards.all() {
            let one = inner.told(inner.erase(zone, key, note, by).await)?;
            erased = erased.into_iter().chain(one).reduce(Erased::and);
        }
        Ok(erased)
    }

    /// Gives each of [several databases](crate::Limiter::sharded) the zones that it lacks, with their numbers and versions: one that is
    /// added to a list. `tallygate migrate` does it.
    ///
    /// # Errors
    /// Invalid: a database has zones that were made apart. Transient: one did not answer; the same again finishes it.
    pub fn bring_zones(&self) -> BoxFuture<'_, Result<()>> {
        boxed(async move {
            match self.shards.are_several() {
                true => self.shards.bring_all().await,
                false => Ok(()),
            }
        })
    }

    /// Sets the clock of a database [of tests](crate::schema::Migrator::with_test_clock), or that of a limiter [by such a
    /// clock](crate::Limiter::with_clock), which stands still then. Of [several databases](crate::Limiter::sharded) all.
    ///
    /// # Errors
    /// Invalid: any other database decides by its own clock, which nobody can set.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use tallygate::{Limiter, testing::Clock};
    /// let clock = Clock::at("2026-03-29T00:59:59Z".parse().unwrap());
    /// let limiter = Limiter::connect("sqlite::memory:").await?;
    /// assert!(limiter.owner().set_clock(clock.now()).await.unwrap_err().is_invalid());
    /// let limiter = limiter.with_clock(&clock)?;
    /// limiter.owner().advance_clock(std::time::Duration::from_secs(1)).await?;
    /// assert_eq!(clock.now().to_string(), "2026-03-29 01:00:00 UTC");
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    #[cfg(feature = "testing")]
    pub fn set_clock(&self, at: DateTime<Utc>) -> BoxFuture<'_, Result<()>> {
        boxed(async move { self.turn_clock(Some(at), Duration::ZERO).await })
    }

    /// Moves that clock forwards; one that was not set, from the server's time on.
    ///
    /// # Errors
    /// Those of [`set_clock`](Self::set_clock).
    #[cfg(feature = "testing")]
    pub fn advance_clock(&self, by: Duration) -> BoxFuture<'_, Result<()>> {
        boxed(async move { self.turn_clock(None, by).await })
    }

    #[cfg(feature = "testing")]
    async fn turn_clock(&self, at: Option<DateTime<Utc>>, by: Duration) -> Result<()> {
        for inner in self.shards.all() {
            inner.within(inner.store.turn_clock(at, by)).await?;
        }
        Ok(())
    }

    /// Removes a zone that was never used, with its versions: one that was made by mistake.
    ///
    /// For the owner of the tables. A row that names a zone stays for good, so a zone of which there is a bucket, a row
    /// of the ledger, or what maintenance or an erasure left of one, is set to [`Mode::Off`](crate::policy::Mode::Off)
    /// instead. A zone that is made under the same name later is another one, with a number of its own. A checkpoint
    /// that was taken while the zone was there finds that it is gone.
    ///
    /// On PostgreSQL the first checks of new buckets, in every zone, wait until the removal is committed; on MySQL and
    /// MariaDB those of the zone and of its neighbours do.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Invalid, and nothing is done: it was used. Transient: a lock could not be
    /// had.
    pub fn remove_zone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        boxed(async move {
            validate_name(name)?;
            match self.shards.remove_zone(name).await? {
                ZoneRemoved::Removed => Ok(()),
                ZoneRemoved::Unknown => Err(Error::unknown_zone(format!(
                    "there is no zone {name:?}; list them with: tallygate zone list"
                ))),
                ZoneRemoved::Used => Err(Error::invalid(format!(
                    "zone {name:?} was used, and what the ledger names stays; set it to --mode off instead"
                ))),
            }
        })
    }
}

impl Inner {
    async fn erase(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Option<Erased>> {
        let zone_id = self.zone(zone).await?.id;
        // A count that is known from memory only is erased with the rest.
        self.record(&(zone_id, key.to_owned())).await?;
        self.store.erase(&Erasing { zone_id, zone, key, note, by }).await
    }

    async fn maintain(self: &Arc<Self>, upkeep: Upkeep) -> Result<Maintained> {
        let store = &self.store;
        let (now, facts) = store.facts().await?;
        let mut zones = Vec::with_capacity(facts.len());
        for zone in store.zones().await? {
            let versions = store.zone_versions(zone.id).await?;
            // A zone that was made just now has nothing that is old.
            if let Some(facts) = facts.iter().find(|facts| facts.zone_id == zone.id) {
                zones.push(Needed::of(&zone.name, &versions, facts, now));
            }
        }
        let ago = |time: Duration| before(now, time);
        let keep_from = upkeep.keep.map(ago).transpose()?;
        let idle_since = upkeep.idle.map(ago).transpose()?;
        for zone in &zones {
            keep_from.map_or(Ok(()), |from| zone.keeps_rows(from, now))?;
            idle_since.map_or(Ok(()), |since| zone.keeps_idle(since, now))?;
        }
        let ahead = TimeDelta::from_std(upkeep.ahead).ok().and_then(|ahead| now.checked_add_signed(ahead));
        let ahead_until = ahead.filter(|_| upkeep.ahead <= Duration::from_secs(10 * 366 * 86_400));
        let ahead_until = ahead_until.ok_or_else(|| {
            Error::invalid(format!("{}s ahead is too far; use up to 10 years", upkeep.ahead.as_secs()))
        })?;
        // A ban or an override in force has its row, also where the one that set it goes.
        if let Some(from) = keep_from.filter(|_| !upkeep.dry_run) {
            for zone in &zones {
                for renewal in store.in_force(zone, from, now).await? {
                    self.act(vec![renewal]).await?;
                }
            }
        }
        let plan = Plan { dry_run: upkeep.dry_run, keep_from, ahead_until, idle_since, zones };
        store.maintain(&plan).await
    }
}

fn before(now: DateTime<Utc>, time: Duration) -> Result<DateTime<Utc>> {
    let ago = TimeDelta::from_std(time).ok().and_then(|time| now.checked_sub_signed(time));
    ago.filter(|ago| *ago >= DateTime::UNIX_EPOCH).ok_or_else(|| {
        Error::invalid(format!("{}s ago there was no ledger; use up to 50 years", time.as_secs()))
    })
}
