//! Upkeep, as people ask for it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::Limiter;
use crate::error::{Error, Result};
use crate::store::{Maintained, Needed, Plan, Upkeep};

impl Limiter {
    /// Keeps the database as small as its zones allow: makes partitions of the ledger ahead, removes those that are
    /// old, what has ended of charges in no window, and rows of idle buckets.
    ///
    /// For the owner of the tables, from one host or many at once: one works, the others are told so. Checks go on; what
    /// each step locks, and for how long, is in `docs/operations.md`. What a run that was cut off has left behind, the
    /// next one finishes.
    ///
    /// # Errors
    /// Invalid, and nothing is done: [`keep`](Upkeep::keep) or [`idle`](Upkeep::idle) is shorter than what a zone
    /// needs, which is twice its longest window (of a version or an override in force), the time within which blocked
    /// checks lead to a ban, and the age of its oldest open reservation. Transient: a lock could not be had.
    pub async fn maintain(&self, upkeep: Upkeep) -> Result<Maintained> {
        let store = &self.inner.store;
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
            keep_from.map_or(Ok(()), |from| zone.allows("keeping rows for", from, now))?;
            idle_since
                .map_or(Ok(()), |since| zone.allows("removing buckets that were idle for", since, now))?;
        }
        let ahead = TimeDelta::from_std(upkeep.ahead).ok().and_then(|ahead| now.checked_add_signed(ahead));
        let ahead_until = ahead.filter(|_| upkeep.ahead <= Duration::from_secs(10 * 366 * 86_400));
        let ahead_until = ahead_until.ok_or_else(|| {
            Error::invalid(format!("{}s ahead is too far; use up to 10 years", upkeep.ahead.as_secs()))
        })?;
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
