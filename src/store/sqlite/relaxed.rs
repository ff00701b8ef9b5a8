//! Which zones need not wait for the disk, as far as it is known before their policies are read.
//!
//! How long a commit waits is the connection's on SQLite, and must be chosen before the transaction begins.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::store::Request;
use crate::zone::Durability;

/// The zones that were relaxed when they were last read.
#[derive(Default)]
pub(super) struct Relaxed(Mutex<HashSet<i32>>);

impl Relaxed {
    /// True when each row that the requests leave is of one of them.
    pub fn has_all_of(&self, requests: &[Request]) -> bool {
        let zones = self.zones();
        requests.iter().filter(|request| request.leaves_row()).all(|request| zones.contains(&request.zone_id))
    }

    /// Takes note of zones that were just read.
    pub fn learn(&self, durabilities: impl IntoIterator<Item = (i32, Durability)>) {
        let mut zones = self.zones();
        for (zone_id, durability) in durabilities {
            match durability {
                Durability::Relaxed => zones.insert(zone_id),
                Durability::Durable => zones.remove(&zone_id),
            };
        }
    }

    fn zones(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
