//! Bans and overrides in force are recorded anew before upkeep drops their rows.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Needed;
use crate::engine::{Action, What};
use crate::zone::TEXT_MAX;

/// The name by which upkeep acts in the ledger.
const KEEPER: &str = "tallygate maintain";

/// A row that is to go, of a ban or an override that is in force.
pub(super) struct Renewed<'r> {
    pub key: String,
    pub actor: Option<&'r str>,
    pub note: Option<&'r str>,
    pub at: DateTime<Utc>,
}

impl Renewed<'_> {
    /// The action that takes its place. Its note says who did it, and when.
    pub fn action(self, zone: &Needed, what: What) -> Action {
        let said = self.note.unwrap_or_default();
        let note = match self.actor {
            Some(KEEPER) => said.to_owned(),
            actor => {
                let by = actor.unwrap_or("blocked checks");
                format!("goes on; by {by} at {}: {said}", self.at.format("%FT%TZ"))
            }
        };
        Action {
            zone: zone.zone.clone(),
            zone_id: zone.zone_id,
            key: self.key,
            txn: Uuid::now_v7(),
            what,
            note: Some(note.chars().take(TEXT_MAX).collect()),
            actor: Some(KEEPER.to_owned()),
        }
    }
}

/// The microseconds from one time to another.
pub(super) fn micros_between(from: DateTime<Utc>, to: DateTime<Utc>) -> i64 {
    to.signed_duration_since(from).num_microseconds().unwrap_or(i64::MAX)
}
