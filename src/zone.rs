//! A zone: one use case with one policy.

mod calendar;
mod choice;
mod duration;
mod local;
mod policy;
mod queueing;
mod rules;
mod sharing;
#[cfg(feature = "zone-file")]
mod terms;
mod time_zone;
mod tzdata;
mod words;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub use calendar::Calendar;
pub(crate) use choice::Family;
pub use choice::{Algorithm, BanFrom, BlockedRows, CalendarUnit, Durability, Mode, OnOutage, RunningBuckets};
#[cfg(feature = "zone-file")]
pub use duration::parse_duration;
pub use duration::show_duration;
pub use policy::Policy;
pub use queueing::Queueing;
pub use rules::{BanRule, Limit};
pub(crate) use rules::{micros, validate_time};
pub use sharing::{Share, Sharing};
#[cfg(feature = "zone-file")]
pub use terms::{Terms, parse_units, zone_file, zone_terms};
pub(crate) use time_zone::ClockSpan;
pub use time_zone::TimeZoneName;

/// The most that a rate, a burst or a cost can be: 2^40 units.
pub const UNITS_MAX: i64 = 1 << 40;

/// The longest window: 10 years of 365 days and 6 hours.
pub(crate) const WINDOW_US_MAX: i64 = 315_576_000_000_000;

/// The longest text of a person's, in characters.
pub(crate) const TEXT_MAX: usize = 1_000;

/// One use case, with the policy in force and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Zone {
    /// Its number, for SQL callers.
    pub id: i32,
    /// Its unique name. Names do not change and zones are never removed: ledger rows refer to them.
    pub name: String,
    /// The purpose of the zone.
    pub description: String,
    /// The policy, which says how much it admits.
    #[serde(flatten)]
    pub policy: Policy,
    /// Counts the changes of the zone, from 1; each ledger row names the version that decided it.
    pub version: i32,
    /// The time when the zone was made.
    pub created_at: DateTime<Utc>,
    /// The time when this version came into force.
    pub updated_at: DateTime<Utc>,
}

/// A zone as it shall be, see [`Operator::set_zones`](crate::policy::Operator::set_zones).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSetting {
    /// Its name.
    pub name: String,
    /// The policy, which says how much it admits.
    pub policy: Policy,
    /// The purpose of the zone; None keeps the old text.
    pub description: Option<String>,
}

impl ZoneSetting {
    /// Looks whether it can be stored.
    pub(crate) fn validate(&self) -> Result<()> {
        validate_name(&self.name)?;
        validate_text("description", self.description.as_deref().unwrap_or_default())?;
        self.policy.validate()
    }

    /// True when the zone is not so already. The way in which a change treated buckets is no part of what a
    /// zone is. Later rules of its time zone are, where they say otherwise.
    ///
    /// # Errors
    /// Invalid: what is held in its buckets would become something else.
    pub fn changes(&self, zone: &Zone) -> Result<bool> {
        let [was, will] = [&zone.policy, &self.policy].map(Policy::algorithm);
        if (was == Algorithm::Capacity) != (will == Algorithm::Capacity) {
            return Err(Error::invalid(format!(
                "zone {:?} cannot turn from {was} into {will}: leases are no charges; make another zone",
                zone.name
            )));
        }
        if (was == Algorithm::Queue) != (will == Algorithm::Queue) {
            return Err(Error::invalid(format!(
                "zone {:?} cannot turn from {was} into {will}: items that wait are no charges; make another zone",
                zone.name
            )));
        }
        let policy = self.policy.after(&zone.policy);
        Ok(zone.policy.with_running_buckets(policy.running_buckets()) != policy
            || self.description.as_ref().is_some_and(|description| *description != zone.description))
    }
}

/// One version of a zone, as its history keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ZoneVersion {
    /// From 1, without gaps.
    pub version: i32,
    /// The purpose that the zone had.
    pub description: String,
    /// The policy, which says how much it admitted.
    #[serde(flatten)]
    pub policy: Policy,
    /// The time when this version came into force.
    pub changed_at: DateTime<Utc>,
    /// The person who made it, as was said.
    pub changed_by: String,
    /// By which name the database knows the session that made it, see [`Entry::login`](crate::ledger::Entry::login).
    pub login: Option<String>,
}

/// A zone's name is 1 to 100 characters, without control characters and without spaces at its ends.
pub(crate) fn validate_name(name: &str) -> Result<()> {
    let remedy =
        "a zone's name is 1 to 100 characters, no number, without control characters or spaces at its ends";
    if name.is_empty() {
        return Err(Error::invalid(format!("zone name is empty; {remedy}")));
    }
    let length = name.chars().count();
    if length > 100 {
        return Err(Error::invalid(format!("zone name has {length} characters; {remedy}")));
    }
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || name.chars().any(char::is_control) || name.starts_with(' ') || name.ends_with(' ') {
        return Err(Error::invalid(format!("zone name {name:?} cannot be used; {remedy}")));
    }
    Ok(())
}

/// A note that people write: up to 1,000 characters.
pub(crate) fn validate_text(what: &str, text: &str) -> Result<()> {
    let length = text.chars().count();
    if length > TEXT_MAX || text.contains('\0') {
        return Err(Error::invalid(format!(
            "{what} of {length} characters cannot be stored; use at most {TEXT_MAX}, without NUL"
        )));
    }
    Ok(())
}
