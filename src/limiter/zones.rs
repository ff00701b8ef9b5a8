//! The zones that were asked for, by name. Names and numbers never change and zones are never removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Inner, until};
use crate::error::{Error, Result};
use crate::store::Found;

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
