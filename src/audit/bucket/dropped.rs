//! A bucket whose old rows, or whose head, upkeep removed.

use super::Checking;
use crate::audit::fault::FaultKind;
use crate::chain::Hash;
use crate::decide::{Carried, Exception, Head, Hold};
use crate::entry::LedgerRow;
use crate::store::StoredHead;

impl Checking<'_> {
    /// Where the first row is not the bucket's first, the last one that was dropped stands before it.
    pub(super) fn begin(&mut self, first: &LedgerRow, run_us: i64) {
        if first.seq > 1
            && let Some(dropped) = self.dropped.clone()
        {
            self.begin_behind(first, &dropped, run_us);
        }
    }

    /// Goes on with this row, which is the first one that is left by a run of upkeep of this time.
    pub fn begin_behind(&mut self, row: &LedgerRow, dropped: &StoredHead, run_us: i64) {
        let before = dropped.head.seq.min(row.seq - 1);
        // A run that was cut off, behind an earlier one: of the row before this one nothing is left.
        self.blind = dropped.head.seq > before;
        self.last = Some(before);
        (self.hash, self.hash_before, self.beside) = (dropped.row_hash, dropped.row_hash, None);
        self.replay.begin_behind(before, &dropped.head, run_us);
        self.dropped = Some(dropped.clone());
        if row.seq == dropped.head.seq + 1 {
            let left = &dropped.head;
            let spent_before = row.spent_total.saturating_sub(row.spent);
            let same = [
                ("spent_total", left.spent_total == spent_before),
                ("created_at", row.prev_us == Some(left.last_us)),
                ("zone_version", left.zone_version <= row.zone_version),
                ("strikes", row.strikes == left.strikes || Some(row.strikes) == left.strikes.checked_add(1)),
            ];
            self.wrong_dropped(
                same.iter().filter(|(_, same)| !same).map(|(column, _)| *column).collect(),
                row,
            );
        }
    }

    /// Rows up to the dropped one may be there still: then it must be a copy.
    pub(super) fn meet_dropped(&mut self, row: &LedgerRow) {
        if let Some(dropped) = self.dropped.take_if(|dropped| dropped.head.seq == row.seq) {
            self.wrong_dropped(unlike(&dropped, &left_by(row), &row.row_hash), row);
        }
    }

    fn wrong_dropped(&mut self, wrong: Vec<&str>, row: &LedgerRow) {
        if !wrong.is_empty() {
            let why = format!("zone_txn_dropped says otherwise than the ledger: {}", wrong.join(", "));
            self.fault(FaultKind::Edited, Some(row), None, why);
        }
    }

    /// Must it be in `zone_hold`? Upkeep removes what has ended and is in no window.
    pub(super) fn stays(&self, hold: &Hold) -> bool {
        let since_us = self.now_us.saturating_sub(self.replay.needed_us());
        hold.ends_us >= since_us || hold.charged_us >= since_us
    }

    /// May upkeep have removed the head? It says no more than the last row.
    pub(super) fn may_lack_head(&self) -> bool {
        let head = self.replay.head();
        let says_more = head.banned_until_us.is_some()
            || (head.bans, head.ban_strikes) != (0, 0)
            || head.carried.is_some()
            || head.exception.is_some()
            || self.replay.holds().iter().any(|hold| self.stays(hold));
        !(self.replay.is_whole() && says_more) && self.in_force() == (None, None)
    }

    /// Was the row dropped?
    pub(super) fn is_dropped(&self, seq: i64) -> bool {
        self.replay.dropped_seq().is_some_and(|dropped| seq <= dropped)
    }

    /// The end of the ban and the row of the override that are in force by the rows.
    fn in_force(&self) -> (Option<i64>, Option<i64>) {
        let set = self.replay.set();
        (self.not_ended(set.banned_until_us), self.still(set.own))
    }

    fn not_ended(&self, until_us: Option<i64>) -> Option<i64> {
        until_us.filter(|&until_us| self.is_ahead(until_us))
    }

    fn still(&self, own: Option<Exception>) -> Option<i64> {
        own.filter(|own| own.until_us.is_none_or(|until_us| self.is_ahead(until_us))).map(|own| own.seq)
    }

    /// Is it later than now, and than the last row, which may be ahead of the clock?
    fn is_ahead(&self, us: i64) -> bool {
        us > self.now_us.max(self.replay.head().last_us)
    }

    /// The columns of the head by which something else is in force than by the rows: whatever was dropped, what is in force has
    /// its row. Nothing is said where rows are not what they were.
    pub(super) fn unlike_in_force(&self, stored: &StoredHead) -> Vec<&'static str> {
        if self.moved || !self.faults.is_empty() {
            return Vec::new();
        }
        let own = self.overrides.iter().find(|own| Some(own.seq) == stored.override_seq);
        let has_row = |seq| own.is_some() && (self.set.contains(&seq) || self.is_dropped(seq));
        let (banned_until, own_seq) = self.in_force();
        let same = [
            ("banned_until", self.not_ended(stored.head.banned_until_us) == banned_until),
            ("override_seq", self.still(own.copied()) == own_seq && stored.override_seq.is_none_or(has_row)),
        ];
        let mut wrong: Vec<_> = same.iter().filter(|(_, same)| !same).map(|(column, _)| *column).collect();
        if let Some(dropped) = self.dropped.as_ref().filter(|_| self.replay.is_whole()) {
            let derived = Head {
                carried: self.replay.head().carried,
                ban_strikes: self.replay.set().ban_strikes.unwrap_or_default(),
                ..Head::default()
            };
            wrong.extend(beyond(&stored.head, &derived, &dropped.head));
        }
        wrong
    }
}

/// The columns of a head that are neither as they are derived, nor as a dropped row may have left them.
pub(in crate::audit) fn beyond(head: &Head, derived: &Head, dropped: &Head) -> Vec<&'static str> {
    let old = |carried: Carried| {
        derived.carried.is_none()
            && carried.seq <= dropped.seq
            && carried.total <= dropped.spent_total
            && carried.at_us <= dropped.last_us
    };
    let carried = head.carried == derived.carried || head.carried.is_some_and(old);
    let strikes = head.ban_strikes == derived.ban_strikes
        || (derived.ban_strikes == 0 && (0..=dropped.strikes).contains(&head.ban_strikes));
    let same = [("carried", carried), ("ban_strikes", strikes)];
    same.iter().filter(|(_, same)| !same).map(|(column, _)| *column).collect()
}

/// The head that a row leaves behind, as far as the row says it.
pub(in crate::audit) fn left_by(row: &LedgerRow) -> Head {
    let LedgerRow { seq, at_us, spent_total, level, zone_version, strikes, .. } = *row;
    Head { seq, last_us: at_us, spent_total, level, zone_version, strikes, ..Head::default() }
}

/// The columns of a head that are not those of the row that it stands for.
pub(in crate::audit) fn unlike(stored: &StoredHead, left: &Head, row_hash: &Hash) -> Vec<&'static str> {
    let head = &stored.head;
    let same = [
        ("row_hash", stored.follows(row_hash)),
        ("moved_by", stored.moved_by.is_none() || stored.moved_to.is_some()),
        ("last_at", head.last_us == left.last_us),
        ("spent_total", head.spent_total == left.spent_total),
        ("level", head.level == left.level),
        ("zone_version", head.zone_version == left.zone_version),
        ("strikes", head.strikes == left.strikes),
    ];
    same.iter().filter(|(_, same)| !same).map(|(column, _)| *column).collect()
}
