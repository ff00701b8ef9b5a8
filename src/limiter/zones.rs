//! The zones that were asked for, by name. Names and numbers never change, and no number is ever given again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Inner, trace, until};
use crate::boxed::alone;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::{Caller, Found};

#[derive(Default)]
pub(super) struct Zones(Mutex<HashMap<String, Found>>);

impl Zones {
    pub fn known(&self, name: &str) -> Option<Found> {
        self.zones().get(name).copied()
    }

    pub fn remember(&self, name: &str, found: Option<Found>) -> Result<Found> {
        let Some(found) = found else {
            return Err(Error::unknown_zone(format!(
                "there is no zone {name:?}; make it with: tallygate zone set {name:?} --rate 5 --per 60s"
            )));
        };
        self.zones().insert(name.to_owned(), found);
        Ok(found)
    }

    pub fn forget(&self, name: &str) {
        self.zones().remove(name);
    }

    /// Forgets those of which a later version than is known has decided: whoever asks for them next looks.
    pub fn learn(&self, decisions: &[Decision]) {
        let mut zones = self.zones();
        for Decision { zone, zone_version, .. } in decisions {
            if zones.get(zone).is_some_and(|known| known.version < *zone_version) {
                zones.remove(zone);
            }
        }
    }

    /// Forgets the zone of a number, and tells its name.
    pub fn forget_number(&self, id: i32) -> Option<String> {
        let mut zones = self.zones();
        let name = zones.iter().find(|(_, found)| found.id == id)?.0.clone();
        zones.remove(&name);
        Some(name)
    }

    fn zones(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(super) async fn zone(&self, name: &str) -> Result<Found> {
        self.zone_of(None, name).await
    }

    /// Looks for a zone that is not known on the caller's own connection, where there is a caller: another one might
    /// not be had while that is held.
    pub(super) async fn zone_of(&self, caller: Option<&mut Caller<'_>>, name: &str) -> Result<Found> {
        match (self.zones.known(name), caller) {
            (Some(zone), _) => Ok(zone),
            (None, Some(caller)) => self.zones.remember(name, self.store.find_zone_in(caller, name).await?),
            // Boxed, as it is rare and large, and a part of every check that is carried about.
            (None, None) => Box::pin(self.find_zone(name)).await,
        }
    }

    /// Looks, without anybody waiting, what a zone chose when it changed.
    pub(super) fn renew_zone(self: &Arc<Self>, name: &str) {
        let (this, name) = (Arc::clone(self), name.to_owned());
        alone(async move { drop(this.find_zone(&name).await) });
    }

    /// The error to tell when one of these zones was not there, although it was known: by their names.
    pub(super) async fn look_again(&self, ids: Vec<i32>, error: Error) -> Error {
        for id in ids {
            let Some(name) = self.zones.forget_number(id) else { continue };
            match self.find_zone(&name).await {
                Ok(found) if found.id == id => {}
                Ok(_) => {
                    return Error::transient(format!("zone {name:?} was made anew meanwhile; try again"));
                }
                Err(gone) => return gone,
            }
        }
        error
    }

    /// Asks the database, also for a zone that is known.
    pub(super) async fn find_zone(&self, name: &str) -> Result<Found> {
        let find = |_| async {
            let found = self.store.find_zone(name).await;
            found.and_then(|found| self.zones.remember(name, found)).inspect_err(trace::count_error)
        };
        self.tries(until(self.config.deadline)).run(find).await
    }
}
