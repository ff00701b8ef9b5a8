//! A zone: one use case with one policy.

mod choice;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::error::{Error, Result};

pub use choice::{Algorithm, BlockedRows, Durability};

/// The most that a rate, a burst or a cost can be: 2^40 units.
pub const UNITS_MAX: i64 = 1 << 40;

/// The longest window: 10 years of 365 days and 6 hours.
const WINDOW_US_MAX: i64 = 315_576_000_000_000;

/// How much a zone admits. Always well-formed: the constructors refuse what cannot be decided exactly.
///
/// ```
/// use std::time::Duration;
/// use tallygate::Policy;
/// let logins = Policy::sliding_log(5, Duration::from_secs(60))?;
/// assert_eq!(logins.limit(), 5);
/// assert!(Policy::sliding_log(0, Duration::from_secs(60)).unwrap_err().is_invalid());
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Policy {
    algorithm: Algorithm,
    rate: i64,
    window_us: i64,
    burst: Option<i64>,
    durability: Durability,
    blocked_rows: BlockedRows,
    /// The greatest common divisor of rate and window, found once and not with each decision.
    #[serde(skip)]
    gcd: i64,
}

impl Policy {
    /// At most `rate` units (1 to 2^40) in any `window` (1 µs to 10 years).
    pub fn sliding_log(rate: i64, window: Duration) -> Result<Self> {
        Self::new(Algorithm::SlidingLog, rate, window, None)
    }

    /// `rate` units (1 to 2^40) flow in per `window` (1 µs to 10 years), up to `burst` (1 to 2^40;
    /// `None` means `rate`).
    ///
    /// With g the greatest common divisor of rate and window in µs, burst × window/g + rate/g must fit in
    /// 63 bits; the error names the largest burst that does.
    pub fn token_bucket(rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        Self::new(Algorithm::TokenBucket, rate, window, burst)
    }

    /// Any of them, for callers that read the algorithm from a file or a flag.
    pub fn new(algorithm: Algorithm, rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        Self::from_columns(algorithm, rate, window_us, burst)
    }

    /// The policy as the tables hold it.
    pub(crate) fn from_columns(
        algorithm: Algorithm,
        rate: i64,
        window_us: i64,
        burst: Option<i64>,
    ) -> Result<Self> {
        if !(1..=UNITS_MAX).contains(&rate) {
            return Err(Error::invalid(format!("rate {rate} is out of range; use 1 to {UNITS_MAX}")));
        }
        if !(1..=WINDOW_US_MAX).contains(&window_us) {
            return Err(Error::invalid(format!(
                "window of {window_us} µs is out of range; use 1 µs to 10 years"
            )));
        }
        if let Some(burst) = burst {
            if algorithm == Algorithm::SlidingLog {
                return Err(Error::invalid(format!(
                    "burst {burst} has no meaning for sliding-log; leave it out, or use token-bucket"
                )));
            }
            if !(1..=UNITS_MAX).contains(&burst) {
                return Err(Error::invalid(format!("burst {burst} is out of range; use 1 to {UNITS_MAX}")));
            }
        }
        let gcd = gcd(rate, window_us);
        let (durability, blocked_rows) = (Durability::default(), BlockedRows::default());
        let policy = Self { algorithm, rate, window_us, burst, durability, blocked_rows, gcd };
        if algorithm == Algorithm::TokenBucket {
            let largest = (i64::MAX - rate / gcd) / (window_us / gcd);
            if policy.limit() > largest {
                return Err(Error::invalid(format!(
                    "burst {} with rate {rate} per {window_us} µs cannot be counted exactly in 63 bits; the largest \
                     burst is {largest}, or use a window that shares more factors with the rate",
                    policy.limit()
                )));
            }
        }
        Ok(policy)
    }

    /// How long an answer waits; without this [`Durability::Durable`]. MySQL and MariaDB have no other.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// What a flood of blocked checks leaves in the ledger; without this [`BlockedRows::Each`].
    #[must_use]
    pub fn with_blocked_rows(self, blocked_rows: BlockedRows) -> Self {
        Self { blocked_rows, ..self }
    }

    /// How it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units admitted per window.
    pub fn rate(&self) -> i64 {
        self.rate
    }

    /// Length of the window in microseconds.
    pub fn window_us(&self) -> i64 {
        self.window_us
    }

    /// Capacity of a token bucket where it differs from the rate.
    pub fn burst(&self) -> Option<i64> {
        self.burst
    }

    /// How long an answer waits.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// What a flood of blocked checks leaves in the ledger.
    pub fn blocked_rows(&self) -> BlockedRows {
        self.blocked_rows
    }

    /// The most that can ever be spent at once: the burst, or the rate.
    pub fn limit(&self) -> i64 {
        self.burst.unwrap_or(self.rate)
    }

    /// The greatest common divisor of rate and window: what makes token counting exact in integers.
    pub(crate) fn gcd(&self) -> i64 {
        self.gcd
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// One use case, with the policy in force and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its number, for SQL callers.
    pub id: i32,
    /// Its unique name. Names do not change and zones are never removed: ledger rows refer to them.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How much it admits.
    #[serde(flatten)]
    pub policy: Policy,
    /// Counts the changes of the zone, from 1; each ledger row names the version that decided it.
    pub version: i32,
    /// When the zone was made.
    pub created_at: DateTime<Utc>,
    /// When this version came into force.
    pub updated_at: DateTime<Utc>,
}

/// One version of a zone, as its history keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneVersion {
    /// From 1, without gaps.
    pub version: i32,
    /// What the zone was for.
    pub description: String,
    /// How much it admitted.
    #[serde(flatten)]
    pub policy: Policy,
    /// When this version came into force.
    pub changed_at: DateTime<Utc>,
    /// Who made it.
    pub changed_by: String,
}

/// A zone's name is 1 to 100 characters, without control characters and without spaces at its ends.
pub(crate) fn validate_name(name: &str) -> Result<()> {
    let remedy = "a zone's name is 1 to 100 characters without control characters or spaces at its ends";
    if name.is_empty() {
        return Err(Error::invalid(format!("zone name is empty; {remedy}")));
    }
    let length = name.chars().count();
    if length > 100 {
        return Err(Error::invalid(format!("zone name has {length} characters; {remedy}")));
    }
    if name.chars().any(char::is_control) || name.starts_with(' ') || name.ends_with(' ') {
        return Err(Error::invalid(format!("zone name {name:?} cannot be used; {remedy}")));
    }
    Ok(())
}

/// A note that people write: up to 1,000 characters.
pub(crate) fn validate_text(what: &str, text: &str) -> Result<()> {
    let length = text.chars().count();
    if length > 1000 || text.contains('\0') {
        return Err(Error::invalid(format!(
            "{what} of {length} characters cannot be stored; use at most 1000, without NUL"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_that_overflows_is_refused_with_the_largest_burst_that_fits() {
        let window = Duration::from_micros(315_575_999_999_999);
        let error = Policy::token_bucket(7, window, Some(UNITS_MAX)).unwrap_err().to_string();
        let largest: i64 =
            error.split("largest burst is ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(Policy::token_bucket(7, window, Some(largest)).is_ok());
        assert!(Policy::token_bucket(7, window, Some(largest + 1)).is_err());
    }
}
