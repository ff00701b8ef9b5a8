//! The zones that were asked for, by name. Names and numbers never change and zones are never removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Inner, Limiter, until};
use crate::error::{Error, Result};
use crate::store::{Found, Setting};
use crate::zone::{Policy, Zone, ZoneVersion, validate_name, validate_text};

/// A zone as it shall be, see [`Limiter::set_zones`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSetting {
    /// Its name.
    pub name: String,
    /// What it admits.
    pub policy: Policy,
    /// What it is for; None keeps the old text.
    pub description: Option<String>,
}

impl Limiter {
    /// Makes a zone, or changes the policy of one; the next check anywhere decides by it.
    ///
    /// `description` None keeps the old one. `by` says who, for the version history. Setting what is already
    /// set changes nothing and makes no version. What happens to buckets in use is the policy's
    /// [`RunningBuckets`](crate::RunningBuckets).
    pub async fn set_zone(
        &self,
        name: &str,
        policy: &Policy,
        description: Option<&str>,
        by: &str,
    ) -> Result<Zone> {
        let (name, description) = (name.to_owned(), description.map(str::to_owned));
        let mut zones = self.set_zones(vec![ZoneSetting { name, policy: *policy, description }], by).await?;
        zones.pop().ok_or_else(|| Error::database("the zone was not stored"))
    }

    /// Makes zones or changes them, all in one transaction: every one or none. Returns them in the same order.
    ///
    /// # Errors
    /// Invalid, and nothing is changed: a name or a text that cannot be stored, a policy whose options do not go
    /// together.
    pub async fn set_zones(&self, zones: Vec<ZoneSetting>, by: &str) -> Result<Vec<Zone>> {
        validate_text("the name of who changes the zone", by)?;
        let mut settings = Vec::with_capacity(zones.len());
        for ZoneSetting { name, policy, description } in zones {
            validate_name(&name)?;
            validate_text("description", description.as_deref().unwrap_or_default())?;
            policy.validate()?;
            settings.push(Setting { name, policy, description });
        }
        self.inner
            .within(async {
                let mut tries = self.inner.tries(until(self.inner.config.deadline));
                loop {
                    match self.inner.store.set_zones(&settings, by).await {
                        Err(error) if tries.again(&error).await => {}
                        result => return result,
                    }
                }
            })
            .await
    }

    /// Every zone, by name.
    pub async fn zones(&self) -> Result<Vec<Zone>> {
        self.inner.within(self.inner.store.zones()).await
    }

    /// One zone; None when there is none of this name.
    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        validate_name(name)?;
        self.inner.within(self.inner.store.zone(name)).await
    }

    /// Every version of a zone, oldest first.
    pub async fn zone_versions(&self, zone: &Zone) -> Result<Vec<ZoneVersion>> {
        self.inner.within(self.inner.store.zone_versions(zone.id)).await
    }
}

#[derive(Default)]
pub(super) struct Zones(Mutex<HashMap<String, Found>>);

impl Zones {
    pub fn known(&self, name: &str) -> Option<Found> {
        self.zones().get(name).copied()
    }

    pub fn remember(&self, name: &str, found: Option<Found>) -> Result<Found> {
        let Some(found) = found else {
            return Err(Error::invalid(format!(
                "there is no zone {name:?}; make it with: tallygate zone set {name:?} --rate 5 --per 60s"
            )));
        };
        self.zones().insert(name.to_owned(), found);
        Ok(found)
    }

    fn zones(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(super) async fn zone(&self, name: &str) -> Result<Found> {
        match self.zones.known(name) {
            Some(zone) => Ok(zone),
            None => self.find_zone(name).await,
        }
    }

    /// Looks, without anybody waiting, what a zone chose when it changed.
    pub(super) fn renew_zone(self: &Arc<Self>, name: &str) {
        let (this, name) = (Arc::clone(self), name.to_owned());
        tokio::spawn(async move { this.find_zone(&name).await });
    }

    /// Asks the database, also for a zone that is known.
    pub(super) async fn find_zone(&self, name: &str) -> Result<Found> {
        let mut tries = self.tries(until(self.config.deadline));
        loop {
            match self.store.find_zone(name).await {
                Err(error) if tries.again(&error).await => {}
                found => return self.zones.remember(name, found?),
            }
        }
    }
}
