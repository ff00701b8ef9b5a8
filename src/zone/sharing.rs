//! The sharing of a resource's capacity among the clients that want some of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::micros;
use super::{UNITS_MAX, show_duration};
use crate::error::{Error, Result};
use crate::names::names;

/// The ways in which the capacity of a resource is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Share {
    /// Everybody has what he wants; nothing is bounded, only recorded.
    None,
    /// Everybody has what he wants, up to the capacity each: the sum is not bounded.
    Static,
    /// A client that wants more than an equal share has that, and of what the others leave a part by how much more
    /// it wants.
    Proportional,
    /// Weighted max-min fairness: nobody can have more unless somebody who has less by his weight has less still
    /// (Bertsekas and Gallager, Data Networks, 6.5.2).
    #[default]
    Fair,
    /// By bands: the first has what it wants before the second has anything; within a band as [`Fair`](Self::Fair).
    Bands,
}

names!(
    Share, "share",
    None "none", Static "static", Proportional "proportional", Fair "fair", Bands "bands",
);

/// The way in which a zone of capacity hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// The rule by which it is shared.
    pub share: Share,
    /// The time after which a client asks again: 1 µs to the length of a lease.
    pub refresh_us: i64,
    /// The units that a client may use when it cannot ask, 0 to 2^40; None for the capacity by the number of
    /// clients.
    pub safe_capacity: Option<i64>,
    /// By bands: what each band below the first has, if it wants it, before any band has more: 0 to the capacity. None for
    /// nothing: then a low band may starve.
    pub guaranteed: Option<i64>,
}

impl Sharing {
    /// By a rule, refreshed four times in a lease of so many microseconds.
    pub(super) fn new(share: Share, length_us: i64) -> Self {
        Self { share, refresh_us: (length_us / 4).max(1), safe_capacity: None, guaranteed: None }
    }

    /// By a rule, with a refresh so often.
    #[must_use]
    pub fn every(share: Share, refresh: Duration) -> Self {
        Self { refresh_us: micros(refresh), ..Self::new(share, 1) }
    }

    pub(super) fn validate(&self, capacity: i64, length_us: i64) -> Result<()> {
        if !(1..=length_us).contains(&self.refresh_us) {
            return Err(Error::invalid(format!(
                "a refresh every {} is out of range; use 1 µs to {}, the length of a lease",
                show_duration(self.refresh_us),
                show_duration(length_us)
            ))
            .of("refresh_us"));
        }
        if let Some(safe) = self.safe_capacity
            && !(0..=UNITS_MAX).contains(&safe)
        {
            return Err(Error::invalid(format!(
                "safe capacity {safe} is out of range; use 0 to {UNITS_MAX}"
            ))
            .of("safe_capacity"));
        }
        let Some(guaranteed) = self.guaranteed else { return Ok(()) };
        if self.share != Share::Bands {
            return Err(Error::invalid(format!(
                "nothing is guaranteed to bands by the share {}; leave it out, or use bands",
                self.share
            ))
            .of("guaranteed"));
        }
        if !(0..=capacity).contains(&guaranteed) {
            return Err(Error::invalid(format!(
                "guaranteed {guaranteed} is out of range; use 0 to {capacity}, the capacity"
            ))
            .of("guaranteed"));
        }
        Ok(())
    }
}
