//! Sliding log: at most `rate` units in any window, exactly.
//!
//! The window is half-open, `(now − window, now]`: what was spent at t no longer counts at exactly t + window.

use super::window::Frame;
use crate::zone::Policy;

pub(super) fn frame(policy: &Policy, at_us: i64) -> Frame {
    Frame { from_us: at_us.saturating_sub(policy.window_us()).saturating_add(1), fade: None }
}

/// The time when what was spent at a time has left the window.
pub(super) fn left(policy: &Policy, spent_us: i64) -> i64 {
    spent_us.saturating_add(policy.window_us())
}
