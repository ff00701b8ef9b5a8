//! The rules around a policy: bans, and the limits of overrides. Their ranges.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::choice::{Algorithm, BanFrom};
use super::{Policy, UNITS_MAX, WINDOW_US_MAX, show_duration};
use crate::error::{Error, Result};

/// When a bucket is banned: after so many blocked checks within a time, for a time.
///
/// Checks that are blocked by a ban do not count. A ban that begins within `longest` of the end of the one before takes
/// `factor` times as long as that, up to `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanRule {
    /// Blocked checks that bring a ban about: 1 to 2^31 - 1.
    pub after: i32,
    /// The time within which they must come: 1 µs to 10 years.
    pub within_us: i64,
    /// The length of the first ban: 1 µs to 10 years.
    pub for_us: i64,
    /// The factor by which a repeated ban is longer: 1 to 1,000.
    pub factor: i32,
    /// The longest ban: `for_us` to 10 years.
    pub longest_us: i64,
    /// From when it is counted.
    pub from: BanFrom,
}

impl BanRule {
    /// After `after` blocked checks within `within`, for `length`, each time the same.
    pub fn new(after: i32, within: Duration, length: Duration) -> Self {
        let for_us = micros(length);
        Self { after, within_us: micros(within), for_us, factor: 1, longest_us: for_us, from: BanFrom::Block }
    }

    /// The length of the ban that comes as number `bans` of those that followed each other closely.
    pub(crate) fn length_us(&self, bans: i32) -> i64 {
        let mut length_us = self.for_us;
        for _ in 1..bans {
            if length_us >= self.longest_us || self.factor == 1 {
                break;
            }
            length_us = length_us.saturating_mul(i64::from(self.factor));
        }
        length_us.min(self.longest_us)
    }

    pub(super) fn validate(&self) -> Result<()> {
        if self.after < 1 {
            return Err(Error::invalid(format!(
                "a ban after {} blocked checks is out of range; use 1 to {}",
                self.after,
                i32::MAX
            ))
            .of("ban_after"));
        }
        if !(1..=1_000).contains(&self.factor) {
            return Err(Error::invalid(format!("ban factor {} is out of range; use 1 to 1000", self.factor))
                .of("ban_factor"));
        }
        for (column, what, time_us) in [
            ("ban_within_us", "the time within which blocked checks lead to a ban", self.within_us),
            ("ban_for_us", "a ban", self.for_us),
            ("ban_max_us", "the longest ban", self.longest_us),
        ] {
            validate_time(what, time_us).map_err(|error| error.of(column))?;
        }
        if self.longest_us < self.for_us {
            return Err(Error::invalid(format!(
                "the longest ban of {} is shorter than the first one of {}; make it at least as long",
                show_duration(self.longest_us),
                show_duration(self.for_us)
            ))
            .of("ban_max_us"));
        }
        Ok(())
    }
}

/// The limit of an override: another rate than the zone's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// Units admitted per window: 1 to 2^40.
    pub rate: i64,
    /// The window that the rate is per, in microseconds. Not for a calendar or a sliding counter, which keep their own.
    pub window_us: i64,
    /// Capacity where the zone's algorithm has one; None means the rate.
    pub burst: Option<i64>,
    /// Greatest common divisor of rate and window.
    #[serde(skip)]
    pub(crate) gcd: i64,
}

impl Limit {
    /// `rate` units (1 to 2^40) per `window` (1 µs to 10 years), up to `burst` (1 to 2^40) at once where the zone's
    /// algorithm has a level.
    ///
    /// # Errors
    /// Invalid: the rate, the window or the burst is out of range, or a level could not count it exactly, whatever the
    /// zone's algorithm is now.
    pub fn new(rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        let policy = Policy::token_bucket(rate, window, burst)?;
        let [rate, window_us, gcd] = [policy.rate(), policy.window_us(), policy.gcd()];
        Ok(Self { rate, window_us, burst, gcd })
    }

    /// As the tables have it, with the divisor of rate and window that they were divided by.
    pub(crate) fn stored(rate: i64, window_us: i64, burst: Option<i64>, gcd: i64) -> Result<Self> {
        let policy = Policy::from_columns(Algorithm::TokenBucket, rate, window_us, burst)?;
        let divides = gcd >= 1 && rate % gcd == 0 && window_us % gcd == 0;
        if !divides || policy.limit() > (i64::MAX - rate / gcd) / (window_us / gcd) {
            let why =
                format!("by {gcd} a rate of {rate} per {window_us} µs cannot be counted exactly in 63 bits");
            return Err(Error::invalid(why).of("rate_gcd"));
        }
        Ok(Self { rate, window_us, burst, gcd })
    }
}

pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn validate_units(column: &'static str, least: i64, units: i64) -> Result<()> {
    if !(least..=UNITS_MAX).contains(&units) {
        let why = format!("{column} {units} is out of range; use {least} to {UNITS_MAX}");
        return Err(Error::invalid(why).of(column));
    }
    Ok(())
}

pub(crate) fn validate_time(what: &str, time_us: i64) -> Result<()> {
    if !(1..=WINDOW_US_MAX).contains(&time_us) {
        return Err(Error::invalid(format!(
            "{what} of {} is out of range; use 1 µs to 10 years",
            show_duration(time_us)
        )));
    }
    Ok(())
}
