//! A bucket whose old rows, or whose head, upkeep removed.

use super::Checking;
use crate::audit::fault::FaultKind;
use crate::chain::Hash;
use crate::decide::{Head, Hold};
use crate::entry::LedgerRow;
use crate::store::StoredHead;

impl Checking<'_> {
    /// Where the first row is not the bucket's first, the last one that was dropped stands before it.
    pub(super) fn begin(&mut self, first: &LedgerRow) {
        if first.seq > 1
            && let Some(dropped) = self.dropped.clone()
        {
            self.begin_behind(first, &dropped);
        }
    }

    /// Goes on with this row, which is the first one that is left.
    pub fn begin_behind(&mut self, row: &LedgerRow, dropped: &StoredHead) {
        let before = dropped.head.seq.min(row.seq - 1);
        // A run that was cut off, behind an earlier one: of the row before this one nothing is left.
        self.blind = dropped.head.seq > before;
        self.last = Some(before);
        (self.hash, self.hash_before, self.beside) = (dropped.row_hash, dropped.row_hash, None);
        self.replay.begin_behind(before, &dropped.head);
        self.dropped = Some(dropped.clone());
        if row.seq == dropped.head.seq + 1 {
            let left = &dropped.head;
            let spent_before = row.spent_total.saturating_sub(row.spent);
            let same = [
                ("spent_total", left.spent_total == spent_before),
                ("created_at", row.prev_us == Some(left.last_us)),
                ("zone_version", left.zone_version <= row.zone_version),
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

    /// May upkeep have removed the head? It says no more than the last row. Of dropped rows that is not known.
    pub(super) fn may_lack_head(&self) -> bool {
        let head = self.replay.head();
        let says_more = head.banned_until_us.is_some()
            || (head.bans, head.ban_strikes) != (0, 0)
            || head.carried.is_some()
            || head.exception.is_some()
            || self.replay.holds().iter().any(|hold| self.stays(hold));
        !(self.replay.is_whole() && says_more)
    }
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
        ("last_at", head.last_us == left.last_us),
        ("spent_total", head.spent_total == left.spent_total),
        ("level", head.level == left.level),
        ("zone_version", head.zone_version == left.zone_version),
        ("strikes", head.strikes == left.strikes),
    ];
    same.iter().filter(|(_, same)| !same).map(|(column, _)| *column).collect()
}
