//! Levels in integers: token bucket, leaky bucket, leaky queue and uniform. Nothing is rounded, nothing drifts.
//!
//! A *token bucket* holds `burst` tokens and fills at the rate; a check takes its cost. A *leaky bucket* as a meter
//! holds what was poured in, drains at the rate and overflows beyond `burst`: what it has room for is what the token
//! bucket has tokens for, so the two are one. A *leaky queue* tells besides how long the check waits for those before it
//! (`leaky_queue.rs`). *Uniform* is a token bucket for one token.
//!
//! With g the greatest common divisor of rate and window (in µs), the level is kept in units of which a
//! microsecond adds `rate / g` and a token is `window / g`. A policy is accepted only if its capacity and
//! one microsecond's refill together fit in 63 bits, so no product below can overflow.

use super::{Ask, Bucket, Verdict, leaky_queue, share_up};
use crate::decision::Reason;
use crate::zone::{Algorithm, Policy};

/// A policy in the units of its level.
pub(super) struct Units {
    pub per_us: i64,
    pub per_token: i64,
    pub capacity: i64,
}

impl Units {
    pub fn of(policy: &Policy) -> Self {
        let (per_us, per_token) = policy.units();
        Self { per_us, per_token, capacity: policy.limit().saturating_mul(per_token) }
    }

    /// Microseconds until `missing` units have flowed in, rounded up: the first at which they are there.
    pub fn time_for(&self, missing: i64) -> i64 {
        missing.saturating_add(self.per_us - 1) / self.per_us
    }

    /// No debt is deeper: from there the bucket still fills without an overflow.
    fn deepest(&self) -> i64 {
        (self.capacity.saturating_add(self.per_us)).saturating_sub(i64::MAX)
    }

    fn clamp(&self, level: i128) -> i64 {
        i64::try_from(level.max(i128::from(self.deepest())).min(i128::from(self.capacity)))
            .unwrap_or(self.capacity)
    }
}

/// A bucket without a level is full.
pub(super) fn decide(
    policy: &Policy,
    bucket: &Bucket<'_>,
    level: Option<i64>,
    limit: i64,
    ask: &Ask<'_>,
    now_us: i64,
) -> Verdict {
    let units = Units::of(policy);
    let level = level.unwrap_or(units.capacity);
    // The units that the reserve keeps back are not there for this check.
    let kept = units.capacity - limit * units.per_token;
    let left = |level: i64| (level.saturating_sub(kept) / units.per_token).max(0);
    let refuse = |reason, wait_us| Verdict {
        reason,
        spent: 0,
        remaining: left(level),
        wait_us,
        delay_us: None,
        level: Some(level),
        ends_us: None,
    };
    if ask.cost > limit {
        return refuse(Reason::ExceedsLimit, None);
    }
    let price = ask.cost * units.per_token;
    if ask.cost > 0 && price + kept > level {
        return refuse(Reason::OverLimit, Some(wait(policy, bucket, level, price + kept, now_us)));
    }
    let after = level - price;
    let soft =
        policy.soft_rate().is_some_and(|soft| units.capacity - after > soft.saturating_mul(units.per_token));
    Verdict {
        reason: if soft && ask.cost > 0 { Reason::Soft } else { Reason::WithinLimit },
        spent: ask.cost,
        remaining: left(after),
        wait_us: None,
        delay_us: (policy.algorithm() == Algorithm::LeakyQueue).then(|| leaky_queue::delay_us(&units, level)),
        level: Some(after),
        ends_us: None,
    }
}

/// The least time until the level is there: by what flows in, and by what is held and given back on the way.
fn wait(policy: &Policy, bucket: &Bucket<'_>, mut level: i64, wanted: i64, now_us: i64) -> i64 {
    let units = Units::of(policy);
    let mut at_us = now_us;
    loop {
        let there_us = at_us.saturating_add(units.time_for(wanted.saturating_sub(level).max(0)));
        let holds = || bucket.holds.iter().filter(|hold| !bucket.head.forgot(hold.seq));
        let next = holds().map(|hold| hold.ends_us).filter(|&us| us > at_us && us < there_us).min();
        let Some(next_us) = next else { return there_us.saturating_sub(now_us) };
        level = refill(policy, level, next_us.saturating_sub(at_us));
        for hold in holds().filter(|hold| hold.ends_us == next_us) {
            level = give_back(policy, level, hold.amount);
        }
        at_us = next_us;
    }
}

/// The level after `elapsed_us` microseconds, at most the capacity, and no deeper than any debt is.
pub(super) fn refill(policy: &Policy, level: i64, elapsed_us: i64) -> i64 {
    let units = Units::of(policy);
    // More than 63 bits hold is more than any capacity.
    let level = level.saturating_add(elapsed_us.saturating_mul(units.per_us));
    level.clamp(units.deepest(), units.capacity)
}

/// The level with so many tokens more, at most the capacity.
pub(super) fn give_back(policy: &Policy, level: i64, tokens: i64) -> i64 {
    let units = Units::of(policy);
    units.clamp(i128::from(level) + i128::from(tokens) * i128::from(units.per_token))
}

/// The level with so many tokens less, in debt if need be.
pub(super) fn take(policy: &Policy, level: Option<i64>, tokens: i64) -> i64 {
    let units = Units::of(policy);
    let level = level.unwrap_or(units.capacity);
    units.clamp(i128::from(level) - i128::from(tokens) * i128::from(units.per_token))
}

/// The same number of tokens under another policy, capped by the new capacity. This one conversion rounds, down.
pub(super) fn carry(old: &Policy, new: &Policy, level: i64) -> i64 {
    let (from, to) = (Units::of(old), Units::of(new));
    to.clamp((i128::from(level) * i128::from(to.per_token)).div_euclid(i128::from(from.per_token)))
}

/// The units that are used, and the units of which they are used.
pub(super) fn used(policy: &Policy, level: Option<i64>) -> (i64, i64) {
    let capacity = Units::of(policy).capacity;
    (level.map_or(0, |level| capacity.saturating_sub(level)), capacity)
}

/// The level of which as much is used, rounded up.
pub(super) fn with_used(policy: &Policy, used: i64, of: i64) -> i64 {
    let units = Units::of(policy);
    units.clamp(i128::from(units.capacity) - i128::from(share_up(used, units.capacity, of)))
}
