//! Token bucket in integers: nothing is rounded, nothing drifts.
//!
//! With g the greatest common divisor of rate and window (in µs), the level is kept in units of which a
//! microsecond adds `rate / g` and a token is `window / g`. A policy is accepted only if its capacity and
//! one microsecond's refill together fit in 63 bits, so no product below can overflow.

use super::Verdict;
use crate::decision::Reason;
use crate::zone::{Algorithm, Policy};

/// A policy in the units of its level.
struct Units {
    per_us: i64,
    per_token: i64,
    capacity: i64,
}

impl Units {
    fn of(policy: &Policy) -> Self {
        let gcd = policy.gcd();
        let per_token = policy.window_us() / gcd;
        Self { per_us: policy.rate() / gcd, per_token, capacity: policy.limit() * per_token }
    }

    /// Microseconds until `missing` units have flowed in, rounded up: the first at which they are there.
    fn time_for(&self, missing: i64) -> i64 {
        (missing + (self.per_us - 1)) / self.per_us
    }
}

pub(super) fn decide(policy: &Policy, level: Option<i64>, cost: i64) -> Verdict {
    let units = Units::of(policy);
    let level = level.unwrap_or(units.capacity);
    let keep = |reason, retry_after_us| Verdict {
        blocked: true,
        reason,
        remaining: level / units.per_token,
        retry_after_us,
        level: Some(level),
    };
    if cost > policy.limit() {
        return keep(Reason::ExceedsLimit, None);
    }
    let price = cost * units.per_token;
    if price > level {
        return keep(Reason::OverLimit, Some(units.time_for(price - level)));
    }
    Verdict {
        blocked: false,
        reason: Reason::WithinLimit,
        remaining: (level - price) / units.per_token,
        retry_after_us: None,
        level: Some(level - price),
    }
}

/// The level after `elapsed_us` microseconds, at most the capacity.
pub(super) fn refill(policy: &Policy, level: i64, elapsed_us: i64) -> i64 {
    let units = Units::of(policy);
    // More than 63 bits hold is more than any capacity.
    level.saturating_add(elapsed_us.saturating_mul(units.per_us)).min(units.capacity)
}

/// The level of a bucket that a change of policy finds `elapsed_us` after its last decision: refilled
/// under the old policy, then kept as the same number of tokens, capped by the new capacity. This one
/// conversion rounds, down. None (full) when either policy is of another algorithm.
pub(super) fn carry(old: &Policy, new: &Policy, level: Option<i64>, elapsed_us: i64) -> Option<i64> {
    if old.algorithm() != Algorithm::TokenBucket || new.algorithm() != Algorithm::TokenBucket {
        return None;
    }
    let level = refill(old, level?, elapsed_us);
    let (from, to) = (Units::of(old), Units::of(new));
    let kept = i128::from(level) * i128::from(to.per_token) / i128::from(from.per_token);
    Some(i64::try_from(kept).unwrap_or(i64::MAX).min(to.capacity))
}
