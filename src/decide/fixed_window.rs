//! Fixed window: at most `rate` units in each of a row of windows, which begin at multiples of their length since 1970
//! or with the periods of a calendar. At the edge of two windows, twice the rate can pass in a moment.

use super::window::Frame;
use crate::zone::Policy;

pub(super) fn frame(policy: &Policy, at_us: i64) -> Frame {
    Frame { from_us: period(policy, at_us).0, fade: None }
}

/// The time when what was spent at a time has left the window, all of it at once.
pub(super) fn left(policy: &Policy, spent_us: i64) -> i64 {
    period(policy, spent_us).1
}

fn period(policy: &Policy, at_us: i64) -> (i64, i64) {
    match policy.by_calendar() {
        Some(calendar) => calendar.period(at_us),
        None => {
            let start_us = at_us.saturating_sub(at_us.rem_euclid(policy.window_us()));
            (start_us, start_us.saturating_add(policy.window_us()))
        }
    }
}
