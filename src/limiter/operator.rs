//! The face for operators: zones, bans, overrides.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::shards::Shards;
use super::{Inner, until};
use crate::boxed::{BoxFuture, boxed};
use crate::check::validate_key;
use crate::decide::Override;
use crate::engine::{Action, What};
use crate::entry::{Overridden, Recorded};
use crate::error::{Error, Result};
use crate::store::Range;
use crate::zone::{
    Policy, Zone, ZoneSetting, ZoneVersion, micros, validate_name, validate_text, validate_time,
};

/// Operators act by this: they make zones and change them, ban, and give single buckets limits of their own.
/// Made by [`Limiter::operator`](crate::Limiter::operator); its connections need the rights of the role
/// *operator*.
#[derive(Clone)]
pub struct Operator {
    pub(super) shards: Shards,
}

impl Operator {
    /// Makes a zone, or changes the policy of one; the next check anywhere decides by it.
    ///
    /// `description` None keeps the old one. `by` says who, for the version history. Setting what is already
    /// set changes nothing and makes no version. The policy's
    /// [`RunningBuckets`](crate::policy::RunningBuckets) says what happens to buckets in use.
    ///
    /// # Errors
    /// Those of [`set_zones`](Self::set_zones).
    pub fn set_zone<'a>(
        &'a self,
        name: &'a str,
        policy: &'a Policy,
        description: Option<&'a str>,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Zone>> {
        boxed(async move {
            let (name, description) = (name.to_owned(), description.map(str::to_owned));
            let mut zones =
                self.set_zones(vec![ZoneSetting { name, policy: *policy, description }], by).await?;
            zones.pop().ok_or_else(|| Error::database("the zone was not stored"))
        })
    }

    /// Makes zones or changes them, all in one transaction: every one or none. Returns them in the same order.
    ///
    /// Of [several databases](crate::Limiter::sharded) the first by name is changed so, and each other one is then given the same
    /// zones, under the same numbers and with the same versions, in a transaction of its own. One that is new, or was down, gets
    /// what it lacks.
    ///
    /// # Errors
    /// Invalid, and nothing is changed: a name or a text that cannot be stored, a policy whose options do not go
    /// together. Of several databases, an error says which of them have the zones as they shall be and which have not; the same
    /// again finishes it.
    pub fn set_zones<'a>(&'a self, zones: Vec<ZoneSetting>, by: &'a str) -> BoxFuture<'a, Result<Vec<Zone>>> {
        boxed(async move {
            validate_text("the name of who changes the zone", by)?;
            zones.iter().try_for_each(ZoneSetting::validate)?;
            self.shards.set_zones(zones, by).await
        })
    }

    /// Every zone, by name.
    ///
    /// # Errors
    /// Those of [`Limiter`](crate::Limiter).
    pub fn zones(&self) -> BoxFuture<'_, Result<Vec<Zone>>> {
        boxed(
            async move { self.shards.any(|inner| async move { inner.within(inner.store.zones()).await }).await },
        )
    }

    /// One zone; None when there is none of this name.
    ///
    /// # Errors
    /// Invalid: a name that no zone can have. And those of [`Limiter`](crate::Limiter).
    pub fn zone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Zone>>> {
        boxed(async move {
            validate_name(name)?;
            self.shards.any(|inner| async move { inner.within(inner.store.zone(name)).await }).await
        })
    }

    /// Every version of a zone, oldest first.
    ///
    /// # Errors
    /// Those of [`Limiter`](crate::Limiter).
    pub fn zone_versions<'a>(&'a self, zone: &'a Zone) -> BoxFuture<'a, Result<Vec<ZoneVersion>>> {
        boxed(async move {
            self.shards
                .any(|inner| async move { inner.within(inner.store.zone_versions(zone.id)).await })
                .await
        })
    }

    /// Bans a bucket for a time (1 µs to 10 years) from now on: no check passes. In place of a ban that it has.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Invalid: the time is out of range, or a name, a key or a text cannot
    /// be stored. And those of [`Limiter`](crate::Limiter).
    pub fn ban<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        time: Duration,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Recorded>> {
        boxed(async move {
            validate_time("a ban", micros(time))?;
            self.mark(zone, key, What::Ban(micros(time)), note, by).await
        })
    }

    /// Ends a bucket's ban, and forgets those before it.
    ///
    /// # Errors
    /// Conflict: it has none. Unknown zone: there is none of this name. Invalid: a name, a key or a text cannot be
    /// stored. And those of [`Limiter`](crate::Limiter).
    pub fn unban<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Recorded>> {
        boxed(async move { self.mark(zone, key, What::Unban, note, by).await })
    }

    /// Gives a bucket a limit of its own, in place of one that it has.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Invalid: the override changes nothing, its time is out of range, or a
    /// name, a key or a text cannot be stored. And those of [`Limiter`](crate::Limiter).
    pub fn set_override<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        over: Override,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Recorded>> {
        boxed(async move {
            if let Some(for_us) = over.for_us {
                validate_time("an override", for_us)?;
            }
            if over.limit.is_none() && !over.ban_exempt {
                return Err(Error::invalid(
                    "the override changes nothing; give it a rate, or exempt it from bans",
                ));
            }
            self.mark(zone, key, What::Override(Some(over)), note, by).await
        })
    }

    /// Ends a bucket's override.
    ///
    /// # Errors
    /// Conflict: it has none. Unknown zone: there is none of this name. Invalid: a name, a key or a text cannot be
    /// stored. And those of [`Limiter`](crate::Limiter).
    pub fn remove_override<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        note: &'a str,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Recorded>> {
        boxed(async move { self.mark(zone, key, What::Override(None), note, by).await })
    }

    /// The overrides in force in a zone, by bucket.
    ///
    /// # Errors
    /// Unknown zone: there is none of this name. Invalid: a name that no zone can have. And those of
    /// [`Limiter`](crate::Limiter).
    pub fn overrides<'a>(&'a self, zone: &'a str) -> BoxFuture<'a, Result<Vec<Overridden>>> {
        boxed(async move {
            validate_name(zone)?;
            let zone = zone.to_owned();
            let overrides = move |inner: Arc<Inner>| {
                let zone = zone.clone();
                async move {
                    let found = inner.zone(&zone).await?;
                    inner.within(inner.store.overrides(&Range::all(found.id))).await
                }
            };
            let mut all = Vec::new();
            for (_, overridden) in self.shards.each(overrides).await {
                all.extend(overridden?);
            }
            all.sort_by(|a: &Overridden, b| a.key.cmp(&b.key));
            Ok(all)
        })
    }

    /// Did a routine decide in a bucket of the zone for a caller in SQL, within so long before now? False where there is no such zone.
    ///
    /// Looks at the buckets of the zone until it finds one. A change that makes the zone [more than
    /// plain](Policy::beyond_sql) would refuse these callers.
    ///
    /// # Errors
    /// Those of [`zones`](Self::zones).
    pub fn called_in_sql<'a>(&'a self, zone: &'a Zone, within: Duration) -> BoxFuture<'a, Result<bool>> {
        boxed(async move {
            let (id, within_us) = (zone.id, micros(within));
            let called = move |inner: Arc<Inner>| async move {
                inner.within(inner.store.called_in_sql(id, within_us)).await
            };
            let mut any = false;
            for (_, called) in self.shards.each(called).await {
                any |= called?;
            }
            Ok(any)
        })
    }

    async fn mark(&self, zone: &str, key: &str, what: What, note: &str, by: &str) -> Result<Recorded> {
        let until = until(self.shards.first().config.deadline);
        let mark = |inner: Arc<Inner>| async move { inner.mark(zone, key, what, note, by).await };
        Box::pin(self.shards.ask(zone, key, until, mark)).await
    }
}

impl Inner {
    async fn mark(
        self: &Arc<Self>,
        zone: &str,
        key: &str,
        what: What,
        note: &str,
        by: &str,
    ) -> Result<Recorded> {
        validate_name(zone)?;
        validate_key(key)?;
        validate_text("note", note)?;
        validate_text("the name of who does it", by)?;
        let zone_id = self.zone(zone).await?.id;
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let action = Action {
            zone: zone.to_owned(),
            zone_id,
            key: key.to_owned(),
            txn: Uuid::now_v7(),
            what,
            note: text(note),
            actor: text(by),
        };
        let mut recorded = self.act(vec![action]).await?;
        recorded.pop().ok_or_else(|| Error::database("the database recorded nothing"))
    }
}
