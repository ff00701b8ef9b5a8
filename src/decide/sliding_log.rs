//! Sliding log: at most `rate` units in any window, exactly, in two index probes.
//!
//! Each ledger row carries the running total of what its bucket has spent. So the sum over a window is
//! the total now less the total before the window's first row, and the wait is found at the row by which
//! enough had been spent: once that row has left the window, the cost fits. The window is half-open,
//! `(now − window, now]`: what was spent at t no longer counts at exactly t + window.

use super::{Head, Verdict, Window};
use crate::decision::Reason;
use crate::zone::Policy;

/// The two questions that a sliding log asks of a bucket's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was the running total before the first row past this time?
    pub after_us: i64,
    /// When was the running total first at least this?
    pub total: i64,
}

pub(super) fn probe(policy: &Policy, head: &Head, cost: i64, now_us: i64) -> Option<Probe> {
    let after_us = now_us.saturating_sub(policy.window_us());
    let seen = head.seq > 0 && head.last_us > after_us;
    seen.then(|| Probe { after_us, total: must_leave(policy, head.spent_total, cost) })
}

pub(super) fn decide(policy: &Policy, spent_total: i64, window: &Window, cost: i64, now_us: i64) -> Verdict {
    let limit = policy.limit();
    let spent = spent_total - window.base;
    let free = (limit - spent).max(0);
    if cost > limit {
        return Verdict {
            blocked: true,
            reason: Reason::ExceedsLimit,
            remaining: free,
            retry_after_us: None,
            level: None,
        };
    }
    if must_leave(policy, spent_total, cost) <= window.base {
        return Verdict {
            blocked: false,
            reason: Reason::WithinLimit,
            remaining: free - cost,
            retry_after_us: None,
            level: None,
        };
    }
    // A ledger that cannot say when the total was reached has lost rows of the window; the whole window
    // is then the wait that is certainly long enough.
    let since_us = window.reached_us.map_or(0, |reached_us| now_us.saturating_sub(reached_us));
    Verdict {
        blocked: true,
        reason: Reason::OverLimit,
        remaining: free,
        retry_after_us: Some(policy.window_us().saturating_sub(since_us)),
        level: None,
    }
}

/// The running total that must lie before the window for the cost to fit.
fn must_leave(policy: &Policy, spent_total: i64, cost: i64) -> i64 {
    spent_total.saturating_add(cost) - policy.limit()
}
