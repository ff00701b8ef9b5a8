//! A bucket on its way through the checks of a batch.

use std::collections::BTreeMap;

use crate::decide::{Head, Outcome, Probe, Version, Window, decide, probe};
use crate::decision::Reason;
use crate::error::{Error, Result};

/// What was loaded of a bucket, and what the checks of the batch have made of it.
pub(super) struct Bucket<'b> {
    pub zone_id: i32,
    pub key: &'b str,
    versions: &'b [Version],
    head: Head,
    now_us: i64,
    /// `spent_total` before the window's first row: one time for the batch, one window.
    pub base: i64,
    /// The head as it was loaded. What goes beyond its total was spent by the batch, now.
    loaded: Head,
}

/// A decision that was made, and what it was made of.
pub(super) struct Turn<'b> {
    pub outcome: Outcome,
    pub current: &'b Version,
    pub before: Head,
    cost: i64,
    base: i64,
    /// What the ledger must tell before the wait is exact.
    pub search: Option<Search>,
}

/// When had the bucket spent `total`? After `after_us`, and at most `within_us` later.
#[derive(Clone, Copy)]
pub(super) struct Search {
    pub total: i64,
    pub after_us: i64,
    within_us: i64,
}

impl Search {
    /// The highest bit of the time from `after_us` on.
    pub fn highest_bit(&self) -> i64 {
        self.within_us.checked_ilog2().map_or(0, |bit| 1 << bit)
    }
}

impl<'b> Bucket<'b> {
    pub fn new(
        (zone_id, key): (i32, &'b str),
        head: Head,
        zones: &'b BTreeMap<i32, Vec<Version>>,
        now_us: i64,
    ) -> Self {
        let versions = zones.get(&zone_id).map_or(&[][..], Vec::as_slice);
        let from = if head.seq > 0 {
            versions.partition_point(|version| version.version < head.zone_version)
        } else {
            versions.len().saturating_sub(1)
        };
        let versions = &versions[from..];
        Self { zone_id, key, versions, head, now_us, base: head.spent_total, loaded: head }
    }

    /// The time after which the window begins, when its first row must be read for `base`.
    pub fn after_us(&self) -> Option<i64> {
        self.probe(0).map(|probe| probe.after_us)
    }

    pub fn decide(&mut self, cost: i64, leaves_row: bool) -> Result<Turn<'b>> {
        let current = self.versions.last().ok_or_else(|| {
            Error::invalid(format!("there is no zone {}; list them with: tallygate zone list", self.zone_id))
        })?;
        let before = self.head;
        let window = Window { base: self.base, reached_us: None };
        let outcome = decide(self.versions, &before, Some(window), cost, self.now_us)?;
        let asked = self.probe(cost).filter(|_| outcome.retry_after_us.is_some());
        // A total that the batch itself reached was reached now: the wait is the whole window, as decided.
        let search = asked.filter(|probe| probe.total <= self.loaded.spent_total).map(|probe| Search {
            total: probe.total,
            after_us: probe.after_us,
            within_us: self.loaded.last_us.saturating_sub(probe.after_us),
        });
        if leaves_row {
            self.head = outcome.head;
            // The versions before were for the level of the row that decided before.
            self.versions = std::slice::from_ref(current);
        }
        Ok(Turn { outcome, current, before, cost, base: self.base, search })
    }

    /// A row for checks that were blocked without asking: it brings the state to now and spends nothing.
    pub fn stay_blocked(&mut self) -> Result<Turn<'b>> {
        let mut turn = self.decide(0, true)?;
        turn.outcome.blocked = true;
        turn.outcome.reason = Reason::OverLimit;
        turn.outcome.retry_after_us = None;
        turn.search = None;
        Ok(turn)
    }

    fn probe(&self, cost: i64) -> Option<Probe> {
        probe(&self.versions.last()?.policy, &self.head, cost, self.now_us)
    }
}

impl Turn<'_> {
    /// Decides again, now that it is known when the total was reached: this makes the wait exact.
    pub fn wait(&mut self, reached_us: Option<i64>) -> Result<()> {
        let window = Window { base: self.base, reached_us };
        let versions = std::slice::from_ref(self.current);
        self.outcome = decide(versions, &self.before, Some(window), self.cost, self.outcome.decided_us)?;
        Ok(())
    }
}
