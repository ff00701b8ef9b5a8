//! A bucket, with the part of its ledger that can still be asked about.

use std::collections::VecDeque;

use crate::decide::{self, Ask, Head, Hold, Ledger, Need, Outcome, Version};
use crate::zone::Family;

/// With no more than this to search, forgetting would cost more than it saves.
const SEARCHED_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Recent {
    pub head: Head,
    /// The holds that have not ended.
    pub holds: Vec<Hold>,
    spent: Totals,
    strikes: Totals,
}

/// A running total at the times when it rose, without the old ones.
#[derive(Default)]
struct Totals {
    rises: VecDeque<Rise>,
    /// The total before the first of these times.
    before: i64,
}

#[derive(Clone, Copy)]
struct Rise {
    at_us: i64,
    total: i64,
}

impl Recent {
    /// Forgets the charges that no check asks about from now on, before they are searched.
    pub fn advance(&mut self, versions: &[Version], now_us: i64) {
        // A change of policy may ask about the time when it came into force, however long ago that is.
        if self.spent.rises.len() > SEARCHED_MAX && versions.len() == 1 {
            self.spent.forget(since(versions, self.head.last_us.max(now_us)));
        }
    }

    /// Keeps the traces that a decision leaves.
    pub fn append(&mut self, versions: &[Version], ask: &Ask<'_>, outcome: &Outcome) {
        let now_us = outcome.decided_us;
        if outcome.spent > 0 && versions.iter().any(|one| one.policy.algorithm().family() == Family::Window) {
            let at_us = same_as(versions, now_us);
            self.spent.rise(at_us, outcome.head.spent_total, || since(versions, now_us));
        }
        if outcome.head.strikes > self.head.strikes {
            let within_us = versions.iter().filter_map(|one| one.policy.ban()).map(|rule| rule.within_us);
            let within_us = within_us.max().unwrap_or(0);
            self.strikes.rise(now_us, outcome.head.strikes, || now_us.saturating_sub(within_us));
        }
        if let Some(hold) = outcome.hold(ask.member) {
            if self.holds.len() == self.holds.capacity() {
                let since_us = if versions.len() == 1 { i64::MAX } else { since(versions, now_us) };
                self.holds.retain(|hold| hold.ends_us > now_us || hold.charged_us >= since_us);
            }
            self.holds.push(hold);
        }
        self.head = outcome.head;
    }
}

/// The first time that one of the versions still asks about.
fn since(versions: &[Version], now_us: i64) -> i64 {
    versions.iter().map(|one| decide::since(&one.policy, now_us)).min().unwrap_or(now_us)
}

/// The time under which a charge is kept. Charges that count alike are one: a fixed window remembers one charge, a sliding
/// counter one a slot. Where the policy changes, another one may tell them apart.
fn same_as(versions: &[Version], at_us: i64) -> i64 {
    match versions {
        [one] => decide::same_as(&one.policy, at_us),
        _ => at_us,
    }
}

impl Ledger for Recent {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.spent.before(at_us))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        Ok(self.spent.reached(total))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.strikes.before(at_us))
    }
}

impl Totals {
    /// The total before a time.
    fn before(&self, at_us: i64) -> i64 {
        match self.rises.front() {
            Some(first) if first.at_us < at_us => {}
            _ => return self.before,
        }
        let later = self.rises.partition_point(|rise| rise.at_us < at_us);
        later.checked_sub(1).and_then(|last| self.rises.get(last)).map_or(self.before, |rise| rise.total)
    }

    /// The time when the total was first at least this, as far as that is known.
    fn reached(&self, total: i64) -> Option<i64> {
        let first = self.rises.front().filter(|first| first.total >= total);
        let later = || self.rises.get(self.rises.partition_point(|rise| rise.total < total));
        first.or_else(later).map(|rise| rise.at_us)
    }

    /// Raises the total. Before that takes more room, it forgets the charges before a time.
    fn rise(&mut self, at_us: i64, total: i64, since_us: impl FnOnce() -> i64) {
        if let Some(last) = self.rises.back_mut().filter(|last| last.at_us == at_us) {
            last.total = total;
            return;
        }
        if self.rises.len() == self.rises.capacity() {
            self.forget(since_us());
        }
        self.rises.push_back(Rise { at_us, total });
    }

    fn forget(&mut self, since_us: i64) {
        while let Some(old) = self.rises.pop_front_if(|old| old.at_us < since_us) {
            self.before = old.total;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decide::{Bucket, decide};
    use crate::zone::{Algorithm, BanRule, Policy};

    #[test]
    fn what_is_kept_does_not_grow_with_the_traffic() {
        let ban = BanRule::new(7, Duration::from_secs(60), Duration::from_secs(1));
        for (algorithm, most) in [
            (Algorithm::SlidingLog, 10),
            (Algorithm::FixedWindow, 1),
            (Algorithm::SlidingCounter, 2),
            (Algorithm::TokenBucket, 0),
            (Algorithm::Concurrency, 10),
        ] {
            let policy =
                Policy::new(algorithm, 10, Duration::from_secs(60), None).unwrap().with_ban(Some(ban));
            let versions = [Version { version: 1, policy, changed_us: 0 }];
            let mut recent = Recent::default();
            for second in 0..20_000 {
                let (ask, now_us) = (Ask { cost: 1, ..Ask::default() }, second * 1_000_000);
                recent.advance(&versions, now_us);
                let bucket = Bucket { versions: &versions, head: &recent.head, holds: &recent.holds };
                let outcome = decide(bucket, &recent, &ask, now_us).unwrap();
                recent.append(&versions, &ask, &outcome);
            }
            assert!(recent.head.spent_total > 1_000, "{algorithm}");
            let kept = recent.spent.rises.len().max(recent.holds.len());
            assert!(kept <= (2 * most).max(SEARCHED_MAX), "{algorithm} keeps {kept}");
            assert!(recent.strikes.rises.len() <= 64, "{algorithm} keeps strikes");
        }
    }
}
