//! The pure core: `(versions, head, window, cost, now) -> (outcome, head)`.
//!
//! No clock, no store, no floating point. Times are microseconds since 1970 in UTC, amounts are units of
//! cost. The SQL routines decide the same, statement by statement; differential tests hold the two
//! together. This is also what SQLite's engine runs and what the tests take as their oracle.

mod sliding_log;
mod token_bucket;

pub use sliding_log::Probe;

use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Policy};

/// The head of a bucket: everything about it that is not in the rows of its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Rows in the bucket's ledger; 0 for a bucket that was never checked.
    pub seq: i64,
    /// When the last row was decided. Meaningless while `seq` is 0.
    pub last_us: i64,
    /// Sum of all that was ever spent.
    pub spent_total: i64,
    /// The token bucket's level at `last_us`, in fractions of a token (see `decide/token_bucket.rs`);
    /// None before the first decision by that algorithm.
    pub level: Option<i64>,
    /// The zone's version that decided the last row.
    pub zone_version: i32,
}

/// A policy and when it came into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number in the zone's history.
    pub version: i32,
    /// What it admits.
    pub policy: Policy,
    /// When it came into force.
    pub changed_us: i64,
}

/// The ledger's answers to a [`Probe`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// `spent_total` before the first row past [`Probe::after_us`].
    pub base: i64,
    /// When `spent_total` first was at least [`Probe::total`]; None when it never was.
    pub reached_us: Option<i64>,
}

/// A decision, and the head that it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// True when the cost does not fit.
    pub blocked: bool,
    /// Why.
    pub reason: Reason,
    /// What the decision took: the cost when allowed, else 0.
    pub spent: i64,
    /// What is left after it, rounded down.
    pub remaining: i64,
    /// The least wait after which the same cost fits.
    pub retry_after_us: Option<i64>,
    /// When it was decided: `now`, or the bucket's last time if the clock went backwards.
    pub decided_us: i64,
    /// The bucket's next head.
    pub head: Head,
}

/// What must be read from the bucket's ledger before [`decide`] can answer. None when the head alone
/// suffices: for a token bucket, and when nothing was recorded in the window.
pub fn probe(policy: &Policy, head: &Head, cost: i64, now_us: i64) -> Option<Probe> {
    match policy.algorithm() {
        Algorithm::SlidingLog => sliding_log::probe(policy, head, cost, head.clamp(now_us)),
        Algorithm::TokenBucket => None,
    }
}

/// Decides one check.
///
/// `versions` are those of the zone from the one that decided the bucket's last row to the one in force,
/// in order; at least the one in force. `window` answers [`probe`]; it is ignored where there was none.
///
/// Any time will do, the ends of 63 bits included; `cost` is 0 to 2^40, and what `head` and `window` say is
/// what was recorded: nothing negative, and a `base` of at most the head's total.
///
/// Fails only when the bucket's running total would leave 63 bits.
pub fn decide(
    versions: &[Version],
    head: &Head,
    window: Option<Window>,
    cost: i64,
    now_us: i64,
) -> Result<Outcome> {
    let current = versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
    let policy = &current.policy;
    let now_us = head.clamp(now_us);
    let verdict = match policy.algorithm() {
        Algorithm::SlidingLog => {
            let window = window.unwrap_or(Window { base: head.spent_total, reached_us: None });
            sliding_log::decide(policy, head.spent_total, &window, cost, now_us)
        }
        Algorithm::TokenBucket => token_bucket::decide(policy, level(versions, head, now_us), cost),
    };
    let spent = if verdict.blocked { 0 } else { cost };
    let spent_total = head.spent_total.checked_add(spent).ok_or_else(|| {
        Error::invalid(format!(
            "the bucket has spent {} in all and cannot count {cost} more",
            head.spent_total
        ))
    })?;
    Ok(Outcome {
        blocked: verdict.blocked,
        reason: verdict.reason,
        spent,
        remaining: verdict.remaining,
        retry_after_us: verdict.retry_after_us,
        decided_us: now_us,
        head: Head {
            seq: head.seq + 1,
            last_us: now_us,
            spent_total,
            level: verdict.level,
            zone_version: current.version,
        },
    })
}

/// What an algorithm says; [`decide`] turns it into an outcome.
struct Verdict {
    blocked: bool,
    reason: Reason,
    remaining: i64,
    retry_after_us: Option<i64>,
    level: Option<i64>,
}

impl Head {
    /// Time never moves backwards within a bucket.
    fn clamp(&self, now_us: i64) -> i64 {
        if self.seq == 0 { now_us } else { now_us.max(self.last_us) }
    }
}

/// The token bucket's level now: brought to each change's time under the version before it, carried over,
/// and refilled under the version in force. A bucket without a level is full.
fn level(versions: &[Version], head: &Head, now_us: i64) -> Option<i64> {
    let (mut level, mut at_us) = (head.level, head.last_us);
    for pair in versions.windows(2) {
        let change_us = pair[1].changed_us.min(now_us).max(at_us);
        level = token_bucket::carry(&pair[0].policy, &pair[1].policy, level, change_us.saturating_sub(at_us));
        at_us = change_us;
    }
    let policy = &versions.last()?.policy;
    level.map(|level| token_bucket::refill(policy, level, now_us.saturating_sub(at_us)))
}
