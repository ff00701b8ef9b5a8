//! Sliding counter: the window is cut into slots of the same length, which begin at multiples of it since 1970. Those
//! that are wholly in the window count in full; the one that it is leaving counts by the share that is still in it,
//! rounded down. With one slot this is the approximation that Cloudflare described in 2017, in "How we built
//! rate limiting capable of scaling to millions of domains".

use super::share_up;
use super::window::{Fade, Frame};
use crate::zone::Policy;

fn slots(policy: &Policy) -> i64 {
    i64::from(policy.slots().unwrap_or(1))
}

fn slot_us(policy: &Policy) -> i64 {
    policy.window_us() / slots(policy)
}

/// The slot that a time is in.
pub(super) fn slot(policy: &Policy, at_us: i64) -> (i64, i64) {
    let slot_us = slot_us(policy);
    let start_us = at_us.saturating_sub(at_us.rem_euclid(slot_us));
    (start_us, start_us.saturating_add(slot_us))
}

pub(super) fn frame(policy: &Policy, at_us: i64) -> Frame {
    let slot_us = slot_us(policy);
    let (start_us, end_us) = slot(policy, at_us);
    let from_us = start_us.saturating_sub((slots(policy) - 1) * slot_us);
    let fade = Fade {
        from_us: from_us.saturating_sub(slot_us),
        part: end_us.saturating_sub(at_us).min(slot_us),
        of: slot_us,
    };
    Frame { from_us, fade: Some(fade) }
}

/// The time when `must_leave` of what was spent in the slot that begins at `from_us` counts no more.
///
/// Of `spent`, floor(spent × rest / slot) counts when so much of the slot is still in the window. The longest rest for
/// which that is at most `spent − must_leave` is one below ceil((spent − must_leave + 1) × slot / spent).
pub(super) fn left(policy: &Policy, from_us: i64, spent: i64, must_leave: i64) -> i64 {
    let slot_us = slot_us(policy);
    let leaving_us = from_us.saturating_add(policy.window_us());
    let keep = spent.saturating_sub(must_leave).max(0);
    let rest_us = share_up(keep.saturating_add(1), slot_us, spent).saturating_sub(1).clamp(0, slot_us);
    leaving_us.saturating_add(slot_us - rest_us)
}
