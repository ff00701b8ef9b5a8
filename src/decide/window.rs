//! Windows: sums over times of the ledger.
//!
//! Each ledger row carries the running total of what its bucket has spent. So the sum over a window is the total now
//! less the total before the window's first row, and the wait is found at the row by which enough had been spent: once
//! that has left the window, the cost fits. Each is an index probe, whatever the rate and however long the ledger.
//!
//! What a charge gives back (a refund, a reservation that ran out) never lowers the running total. It is subtracted
//! for as long as its charge is in the window, at the cost of a look at each such piece in there.

use super::{Ask, Bucket, Carried, Ledger, Need, Verdict, fixed_window, sliding_counter, sliding_log};
use crate::decision::Reason;
use crate::zone::{Algorithm, Policy};

/// What counts at a time: all from `from_us` on, and a share of what came between `fade_us` and that.
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

/// What counts at a time, if nothing else arrives.
pub(super) fn used(
    policy: &Policy,
    bucket: &Bucket<'_>,
    ledger: &impl Ledger,
    at_us: i64,
) -> Result<i64, Need> {
    Sums { policy, bucket, ledger, now_us: at_us, own: 0 }.used(at_us)
}

/// The sums of a bucket, now and as they will be if nothing else arrives.
pub(super) struct Sums<'s, L> {
    policy: &'s Policy,
    bucket: &'s Bucket<'s>,
    ledger: &'s L,
    now_us: i64,
    /// What the check in question spends now.
    own: i64,
}

impl<L: Ledger> Sums<'_, L> {
    fn used(&self, at_us: i64) -> Result<i64, Need> {
        let frame = self.frame(at_us);
        let before = self.before(frame.from_us, at_us)?;
        let used = self.total(at_us).saturating_sub(before);
        let Some(fade) = frame.fade else { return Ok(used) };
        let fading = before.saturating_sub(self.before(fade.from_us, at_us)?);
        Ok(used.saturating_add(super::share(fading.max(0), fade.part, fade.of)))
    }

    /// The least time from now until at most `room` counts. Now more does.
    fn wait(&self, room: i64) -> Result<i64, Need> {
        let mut at_us = self.now_us;
        loop {
            // Seen from here, nothing ends by itself any more: when would so much have left the window?
            let must_leave = self.total(at_us).saturating_sub(room);
            let there_us = self.left(self.reached(must_leave, at_us)?, must_leave, at_us)?.max(at_us);
            // Unless something ends before.
            let ends = self.bucket.holds.iter().map(|hold| hold.ends_us);
            match ends.filter(|&us| us > at_us && us <= there_us).min() {
                Some(end_us) => at_us = end_us,
                None => return Ok(there_us.saturating_sub(self.now_us)),
            }
            if self.used(at_us)? <= room {
                return Ok(at_us.saturating_sub(self.now_us));
            }
        }
    }

    fn frame(&self, at_us: i64) -> Frame {
        match self.policy.algorithm() {
            Algorithm::FixedWindow => fixed_window::frame(self.policy, at_us),
            Algorithm::SlidingCounter => sliding_counter::frame(self.policy, at_us),
            _ => sliding_log::frame(self.policy, at_us),
        }
    }

    /// When what was spent up to and at `reached_us` has left the window so far that `must_leave` is gone.
    fn left(&self, reached_us: i64, must_leave: i64, at_us: i64) -> Result<i64, Need> {
        match self.policy.algorithm() {
            Algorithm::FixedWindow => Ok(fixed_window::left(self.policy, reached_us)),
            Algorithm::SlidingCounter => {
                let (from_us, to_us) = sliding_counter::slot(self.policy, reached_us);
                let before = self.before(from_us, at_us)?;
                let slot = self.before(to_us, at_us)?.saturating_sub(before);
                Ok(sliding_counter::left(self.policy, from_us, slot, must_leave.saturating_sub(before)))
            }
            _ => Ok(sliding_log::left(self.policy, reached_us)),
        }
    }

    /// All that was spent, less what has ended by then.
    fn total(&self, at_us: i64) -> i64 {
        let total = self.bucket.head.spent_total.saturating_add(self.own);
        total.saturating_sub(self.ended(i64::MAX, at_us))
    }

    /// What was spent before `us`, less what of that has ended by `at_us`.
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

    /// What of the charges before `us` has ended by `at_us`.
    fn ended(&self, us: i64, at_us: i64) -> i64 {
        let head = self.bucket.head;
        let ended =
            |hold: &&super::Hold| hold.charged_us < us && hold.ends_us <= at_us && !head.forgot(hold.seq);
        self.bucket.holds.iter().filter(ended).fold(0, |sum: i64, hold| sum.saturating_add(hold.amount))
    }

    /// When so much had been spent that has not ended by `at_us`.
    ///
    /// What has ended of the charges up to that time moves the answer on, and so on, until it stands.
    fn reached(&self, net: i64, at_us: i64) -> Result<i64, Need> {
        let mut ended = 0;
        loop {
            let reached_us = self.reached_total(net.saturating_add(ended))?;
            let by_then = self.ended(reached_us.saturating_add(1), at_us);
            if by_then <= ended {
                return Ok(reached_us);
            }
            ended = by_then;
        }
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
