//! The units that a process takes of a bucket at once, to decide checks by itself until a time.
//!
//! The policy of such a zone is stricter than was asked for, so that what is taken now and spent later is never too much:
//! see `zone/local.rs`. Here only how much may be taken is decided, and what comes back of it.

use super::bring::{self, Brought};
use super::{Ask, Bucket, Charge, Head, Ledger, Need, decide, fixed_window};
use crate::decision::Reason;
use crate::error::Error;
use crate::zone::{Algorithm, Family, Mode, Policy};

/// With less than this a process is no better off than by asking for each check.
const LEAST: i64 = 2;

/// The part of what is left that one may take: others want some, too.
const PART: i64 = 4;

/// Units that a process decides by itself with, and the head that they leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsTaken {
    /// The reason: as that of a check of so many units.
    pub reason: Reason,
    /// The number of units.
    pub units: i64,
    /// The most that it could have been.
    pub limit: i64,
    /// The units that are left in the bucket.
    pub remaining: i64,
    /// The time until which they may be spent.
    pub ends_us: i64,
    /// The time when they were taken.
    pub decided_us: i64,
    /// The bucket's next head.
    pub head: Head,
}

/// Takes up to so many units, at most a quarter of what is left; None where that is next to nothing, or the bucket is not to be
/// decided locally: by its zone, by an override, or while the zone enforces nothing. Then nothing happened.
///
/// # Errors
/// Those of [`decide`].
pub fn take_units(
    bucket: Bucket<'_>,
    ledger: &impl Ledger,
    wants: i64,
    now_us: i64,
) -> Result<Option<UnitsTaken>, Need> {
    bucket.versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
    let Brought { policy, .. } = bring::to(&bucket, ledger, bucket.head.clamp(now_us))?;
    let Some(local_us) = policy.local_us().filter(|_| policy.mode() == Mode::Enforce) else {
        return Ok(None);
    };
    // Of a bucket that is banned nothing is left.
    let left = decide(bucket, ledger, &Ask::default(), now_us)?.remaining;
    let units = wants.min(left / PART);
    if units < LEAST {
        return Ok(None);
    }
    let outcome = decide(bucket, ledger, &Ask { cost: units, ..Ask::default() }, now_us)?;
    // More than the limit may have been left, where more was given back than was spent.
    if outcome.spent < units {
        return Ok(None);
    }
    let lasts_us = outcome.decided_us.saturating_add(local_us);
    let ends_us = match policy.algorithm() {
        Algorithm::FixedWindow => {
            lasts_us.min(fixed_window::left(&policy, outcome.decided_us)).max(outcome.decided_us)
        }
        _ => lasts_us,
    };
    Ok(Some(UnitsTaken {
        reason: outcome.reason,
        units,
        limit: outcome.limit,
        remaining: outcome.remaining,
        ends_us,
        decided_us: outcome.decided_us,
        head: outcome.head,
    }))
}

/// The part of unspent units that comes back.
///
/// Had they not been taken, a level might have been full meanwhile, and what flowed in would have been lost. So nothing of
/// a level comes back for which as much has flowed in since; and nothing once its policy is another one.
pub(super) fn back(policy: &Policy, since_us: i64, charge: &Charge, unspent: i64, now_us: i64) -> i64 {
    match policy.algorithm().family() {
        Family::Level if policy.local_us().is_none() || since_us > charge.at_us => 0,
        Family::Level => {
            unspent.saturating_sub(policy.flows_in(now_us.saturating_sub(charge.at_us).max(0))).max(0)
        }
        _ => unspent,
    }
}
