//! The findings of a back-test.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Backtest, Tested, time};
use crate::decision::Reason;
use crate::zone::Policy;

/// The findings of a [`Backtest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BacktestReport {
    /// The policy that decided; the last of them where it changed.
    pub policy: Policy,
    /// The number of checks: `allowed` and `blocked` together.
    pub events: u64,
    /// The number of checks that would have passed.
    pub allowed: u64,
    /// The number of checks that would have been blocked.
    pub blocked: u64,
    /// The cost of the checks that would have passed, in the zone's unit; at most 2^63 - 1.
    pub allowed_cost: i64,
    /// The cost of the checks that would have been blocked.
    pub blocked_cost: i64,
    /// The number of checks for each [`Reason`], by its name.
    pub reasons: BTreeMap<&'static str, u64>,
    /// The number of bans that would have begun.
    pub bans: u64,
    /// The number of different keys.
    pub keys: u64,
    /// The number of keys of which something would have been blocked.
    pub blocked_keys: u64,
    /// The number of checks that came with an earlier time than the one before them of the same key. They were decided at
    /// that one's time, as a database does: time never goes back within a bucket.
    pub late: u64,
    /// The units by which reservations that would have passed were off; None where nothing was reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// The earliest time of a check; None without any.
    pub first_at: Option<DateTime<Utc>>,
    /// The latest time of a check.
    pub last_at: Option<DateTime<Utc>>,
    /// The keys that would have been blocked most often, most first, then in the order of their bytes.
    pub top_blocked: Vec<BlockedKey>,
    /// The length of a slice of `timeline`.
    pub slice_us: i64,
    /// The checks over time, in at most 400 slices; slices without a check are left out.
    pub timeline: Vec<TimeSlice>,
}

/// The units by which reservations were off their costs, added up; at most 2^63 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Reserved {
    /// The units that were reserved and not needed.
    pub over: i64,
    /// The units that were needed and not reserved: they were charged without asking for room.
    pub under: i64,
}

/// A key that would have been blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BlockedKey {
    /// The key.
    pub key: String,
    /// The number of its checks that would have been blocked.
    pub blocked: u64,
    /// The time of the first of them.
    pub first_at: Option<DateTime<Utc>>,
    /// The time of the last of them.
    pub last_at: Option<DateTime<Utc>>,
}

/// A slice of the time, with its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct TimeSlice {
    /// Its beginning.
    pub from: Option<DateTime<Utc>>,
    /// The number of checks that would have passed.
    pub allowed: u64,
    /// The number of checks that would have been blocked.
    pub blocked: u64,
}

impl Backtest {
    /// The findings so far, with `top` of the keys that were blocked most often.
    pub fn report(&self, top: usize) -> BacktestReport {
        let mut keys: Vec<(&str, &Tested)> = self
            .buckets
            .iter()
            .map(|(key, tested)| (&**key, tested))
            .filter(|(_, tested)| tested.blocked > 0)
            .collect();
        keys.sort_unstable_by(|a, b| b.1.blocked.cmp(&a.1.blocked).then_with(|| a.0.cmp(b.0)));
        let key = |(key, tested): &(&str, &Tested)| BlockedKey {
            key: key.to_string(),
            blocked: tested.blocked,
            first_at: time(tested.span_us.map(|span| span.0)),
            last_at: time(tested.span_us.map(|span| span.1)),
        };
        let reasons = || Reason::ALL.iter().zip(self.reasons).filter(|(_, count)| *count > 0);
        let sum =
            |allows| reasons().filter(|(reason, _)| reason.allows() == allows).map(|(_, count)| count).sum();
        let (allowed, blocked): (u64, u64) = (sum(true), sum(false));
        BacktestReport {
            policy: self.policy,
            events: allowed + blocked,
            allowed,
            blocked,
            allowed_cost: self.allowed_cost,
            blocked_cost: self.blocked_cost,
            reasons: reasons().map(|(reason, count)| (reason.as_str(), count)).collect(),
            bans: self.bans,
            keys: self.buckets.len() as u64,
            blocked_keys: keys.len() as u64,
            late: self.late,
            reserved: self.reserved,
            first_at: time(self.span_us.map(|span| span.0)),
            last_at: time(self.span_us.map(|span| span.1)),
            top_blocked: keys.iter().take(top).map(key).collect(),
            slice_us: self.timeline.slice_us(),
            timeline: self.timeline.slices(),
        }
    }
}
