//! Windows: sums over times of the ledger.
//!
//! Each ledger row carries the running total of what its bucket has spent. So the sum over a window is the total now
//! less the total before the window's first row, and the wait is found at the row by which enough had been spent: once
//! that has left the window, the cost fits. Each is an index probe, whatever the rate and however long the ledger.
//!
//! A charge that is given back (a refund, a reservation that ran out) never lowers the running total. It is subtracted
//! for as long as its charge is in the window, at the cost of a look at each such piece in there. The wait among many
//! that end is found by halving, with one such look each.

use std::collections::BTreeMap;

use super::{Ask, Bucket, Carried, Hold, Ledger, Need, Verdict, fixed_window, sliding_counter, sliding_log};
use crate::decision::Reason;
use crate::zone::{Algorithm, Policy};

/// The algorithms of the other families, which have no window. They are named, so that a new algorithm is asked for.
macro_rules! no_window {
    () => {
        Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue
            | Algorithm::Queue
            | Algorithm::Uniform
            | Algorithm::Distinct
            | Algorithm::Concurrency
            | Algorithm::Capacity
    };
}

/// The times that count: all from `from_us` on, and a share of what came between `fade_us` and that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub from_us: i64,
    pub fade: Option<Fade>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fade {
    pub from_us: i64,
    /// The share: so many parts of so many.
    pub part: i64,
    pub of: i64,
}

pub(super) fn decide(
    policy: &Policy,
    bucket: &Bucket<'_>,
    ledger: &impl Ledger,
    limit: i64,
    ask: &Ask<'_>,
    now_us: i64,
) -> Result<Verdict, Need> {
    let mut sums = Sums { policy, bucket, ledger, now_us, own: 0 };
    let used = sums.used(now_us)?;
    let free = limit.saturating_sub(used).max(0);
    let verdict = |reason, spent, remaining, wait_us| Verdict {
        reason,
        spent,
        remaining,
        wait_us,
        delay_us: None,
        level: None,
        ends_us: None,
    };
    if ask.cost > limit {
        return Ok(verdict(Reason::ExceedsLimit, 0, free, None));
    }
    if ask.cost > 0 && used > limit - ask.cost {
        // A blocked check that counts delays itself.
        let spent = if policy.count_blocked() && !ask.held_back { ask.cost } else { 0 };
        sums.own = spent;
        let wait_us = sums.wait(limit - ask.cost)?;
        return Ok(verdict(Reason::OverLimit, spent, free.saturating_sub(spent).max(0), Some(wait_us)));
    }
    let soft = policy.soft_rate().is_some_and(|soft| used.saturating_add(ask.cost) > soft);
    let reason = if soft && ask.cost > 0 { Reason::Soft } else { Reason::WithinLimit };
    Ok(verdict(reason, ask.cost, free.saturating_sub(ask.cost), None))
}

/// The units that count at a time, if nothing else arrives.
pub(super) fn used(
    policy: &Policy,
    bucket: &Bucket<'_>,
    ledger: &impl Ledger,
    at_us: i64,
) -> Result<i64, Need> {
    Sums { policy, bucket, ledger, now_us: at_us, own: 0 }.used(at_us)
}

/// The first time of which a window still asks, now and later.
pub(crate) fn since(policy: &Policy, now_us: i64) -> i64 {
    let frame = frame(policy, now_us);
    frame.fade.map_or(frame.from_us, |fade| fade.from_us)
}

/// The time at which a charge of that time would count just the same, if nothing of it is ever given back.
pub(crate) fn same_as(policy: &Policy, at_us: i64) -> i64 {
    match policy.algorithm() {
        Algorithm::FixedWindow => fixed_window::frame(policy, at_us).from_us,
        Algorithm::SlidingCounter => sliding_counter::slot(policy, at_us).0,
        Algorithm::SlidingLog | no_window!() => at_us,
    }
}

/// The times that count at a moment.
pub(super) fn frame(policy: &Policy, at_us: i64) -> Frame {
    match policy.algorithm() {
        Algorithm::FixedWindow => fixed_window::frame(policy, at_us),
        Algorithm::SlidingCounter => sliding_counter::frame(policy, at_us),
        Algorithm::SlidingLog | no_window!() => sliding_log::frame(policy, at_us),
    }
}

/// The sums of a bucket, now and as they will be if nothing else arrives.
pub(super) struct Sums<'s, L> {
    policy: &'s Policy,
    bucket: &'s Bucket<'s>,
    ledger: &'s L,
    now_us: i64,
    /// The units that the check in question spends now.
    own: i64,
}

impl<L: Ledger> Sums<'_, L> {
    fn used(&self, at_us: i64) -> Result<i64, Need> {
        let frame = frame(self.policy, at_us);
        let before = self.before(frame.from_us, at_us)?;
        let used = self.total(at_us).saturating_sub(before);
        let Some(fade) = frame.fade else { return Ok(used) };
        let fading = before.saturating_sub(self.before(fade.from_us, at_us)?);
        Ok(used.saturating_add(super::share(fading.max(0), fade.part, fade.of)))
    }

    /// The least time from now until at most `room` counts. Now more does.
    ///
    /// The count never rises while nothing arrives. So the answer lies behind the last end at which too much counts
    /// still, and not after the next one.
    fn wait(&self, room: i64) -> Result<i64, Need> {
        self.ledger.waits();
        let ends = self.bucket.holds.iter().map(|hold| hold.ends_us).filter(|&us| us > self.now_us);
        let mut ends: Vec<_> = ends.collect();
        ends.sort_unstable();
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.used(ends[middle])? > room { low = middle + 1 } else { high = middle }
        }
        let at_us = low.checked_sub(1).map_or(self.now_us, |last| ends[last]);
        // Seen from there, nothing ends by itself any more: when would so much have left the window?
        let must_leave = self.total(at_us).saturating_sub(room);
        let left_us = self.left(self.reached(must_leave, at_us)?, must_leave, at_us)?.max(at_us);
        let there_us = ends.get(low).map_or(left_us, |&end_us| end_us.min(left_us));
        Ok(there_us.saturating_sub(self.now_us))
    }

    /// The time when what was spent up to and at `reached_us` has left the window so far that `must_leave` is gone.
    fn left(&self, reached_us: i64, must_leave: i64, at_us: i64) -> Result<i64, Need> {
        match self.policy.algorithm() {
            Algorithm::FixedWindow => Ok(fixed_window::left(self.policy, reached_us)),
            Algorithm::SlidingCounter => {
                let (from_us, to_us) = sliding_counter::slot(self.policy, reached_us);
                let before = self.before(from_us, at_us)?;
                let slot = self.before(to_us, at_us)?.saturating_sub(before);
                Ok(sliding_counter::left(self.policy, from_us, slot, must_leave.saturating_sub(before)))
            }
            Algorithm::SlidingLog | no_window!() => Ok(sliding_log::left(self.policy, reached_us)),
        }
    }

    /// All that was spent, less what has ended by then.
    fn total(&self, at_us: i64) -> i64 {
        let total = self.bucket.head.spent_total.saturating_add(self.own);
        total.saturating_sub(self.ended(i64::MAX, at_us))
    }

    /// The units that were spent before `us`, less those of them that have ended by `at_us`.
    fn before(&self, us: i64, at_us: i64) -> Result<i64, Need> {
        let head = self.bucket.head;
        let total = match head.carried {
            Some(carried) if us <= carried.at_us => carried.total.saturating_sub(carried.amount),
            _ if us > self.now_us => head.spent_total.saturating_add(self.own),
            _ if head.seq == 0 || us > head.last_us => head.spent_total,
            carried => self.ledger.total_before(us)?.max(carried.map_or(0, |carried| carried.total)),
        };
        Ok(total.saturating_sub(self.ended(us, at_us)))
    }

    /// The units of the charges before `us` that have ended by `at_us`.
    fn ended(&self, us: i64, at_us: i64) -> i64 {
        let before = self.ended_by(at_us).filter(|hold| hold.charged_us < us);
        before.fold(0, |sum: i64, hold| sum.saturating_add(hold.amount))
    }

    fn ended_by(&self, at_us: i64) -> impl Iterator<Item = &Hold> {
        self.bucket
            .holds
            .iter()
            .filter(move |hold| hold.ends_us <= at_us && !self.bucket.head.forgot(hold.seq))
    }

    /// The time when so much had been spent that has not ended by `at_us`.
    ///
    /// The sum that had been spent by a time, less what of that has ended, never falls. So the answer lies behind the
    /// last charge of which something has ended and by which that is too little, and not after the next one.
    fn reached(&self, net: i64, at_us: i64) -> Result<i64, Need> {
        let mut ended = BTreeMap::new();
        for hold in self.ended_by(at_us) {
            let amount: &mut i64 = ended.entry(hold.charged_us).or_default();
            *amount = amount.saturating_add(hold.amount);
        }
        let sums = ended.into_iter().scan(0_i64, |sum, (charged_us, amount)| {
            *sum = sum.saturating_add(amount);
            Some((charged_us, *sum))
        });
        let ended: Vec<_> = sums.collect();
        let (mut low, mut high) = (0, ended.len());
        while low < high {
            let (charged_us, sum) = ended[low.midpoint(high)];
            let reached_us = self.reached_total(net.saturating_add(sum))?;
            // If that is by the charge's time, the answer is no later than that; if not, no earlier.
            let place = ended.partition_point(|&(charged_us, _)| charged_us < reached_us);
            if reached_us > charged_us { low = place } else { high = place }
        }
        self.reached_total(net.saturating_add(low.checked_sub(1).map_or(0, |last| ended[last].1)))
    }

    fn reached_total(&self, total: i64) -> Result<i64, Need> {
        let head = self.bucket.head;
        Ok(match head.carried {
            Some(Carried { at_us, total: carried, .. }) if total <= carried => at_us,
            _ if total > head.spent_total => self.now_us,
            // A ledger that cannot say has lost rows of the window; a whole window from now is certainly enough.
            _ => self.ledger.reached(total)?.unwrap_or(self.now_us),
        })
    }
}
