//! The most that a bucket spent in any window, recomputed from its ledger.

use std::collections::VecDeque;

use chrono::{DateTime, TimeDelta, Utc};
use tallygate::ledger::Entry;

/// One bucket's charges, read from the newest to the oldest. Keeps no more of them than one window holds.
#[derive(Default)]
pub struct Most {
    /// The charges within a window after the row that was read last.
    charges: VecDeque<(DateTime<Utc>, i64)>,
    spent: i64,
    most: i64,
}

impl Most {
    /// Reads the next older row.
    pub fn add(&mut self, row: &Entry, window: TimeDelta) {
        if row.spent == 0 {
            return;
        }
        self.charges.push_back((row.decided_at, row.spent));
        self.spent += row.spent;
        // Half-open: a charge that is a whole window later is in another one.
        while let Some((at, spent)) = self.charges.front()
            && *at - row.decided_at >= window
        {
            self.spent -= spent;
            self.charges.pop_front();
        }
        self.most = self.most.max(self.spent);
    }

    /// The most that was found so far.
    pub fn found(&self) -> i64 {
        self.most
    }
}
