//! The rows that are kept of a bucket: those that spent or were blocked, as far back as anything can be asked
//! about.

use std::collections::VecDeque;

use uuid::Uuid;

use crate::decide::{Charge, Ledger, Need};
use crate::entry::{Kind, LedgerRow};

/// Rows that are kept however old they are: most charges that are given back are among them.
const KEPT: usize = 256;

/// A row, as far as later ones need it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub txn: Uuid,
    pub seq: i64,
    pub at_us: i64,
    pub spent: i64,
    pub ends_us: Option<i64>,
    spent_total: i64,
    strikes: i64,
    kind: Kind,
    blocked: bool,
    member: bool,
    /// Of a reservation whose cost was predicted.
    shape: Option<Box<str>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    steps: VecDeque<Step>,
    /// `spent_total` and `strikes` of the row before the first that is kept.
    before: (i64, i64),
    /// Is there such a row?
    forgotten: bool,
}

/// The charge that something ends, as far as it is known.
pub(crate) enum Found {
    Charge(Charge),
    /// It may be older than what is kept.
    Forgotten,
    /// There is none.
    Nothing,
}

impl Book {
    pub fn clear(&mut self, before: (i64, i64), forgotten: bool) {
        self.steps.clear();
        self.before = before;
        self.forgotten = forgotten;
    }

    pub fn push(&mut self, row: &LedgerRow) {
        let (_, strikes) = self.last();
        if row.spent == 0 && row.strikes == strikes {
            return;
        }
        self.steps.push_back(Step {
            txn: row.txn_id,
            seq: row.seq,
            at_us: row.at_us,
            spent: row.spent,
            ends_us: row.ends_us,
            spent_total: row.spent_total,
            strikes: row.strikes,
            kind: row.kind,
            blocked: row.blocked,
            member: row.member.is_some(),
            shape: row.member.as_deref().filter(|_| row.is_predicted()).map(Box::from),
        });
    }

    /// The last row, once more as it should have been.
    pub fn correct_last(&mut self, row: &LedgerRow) {
        if self.steps.back().is_some_and(|step| step.seq == row.seq) {
            self.steps.pop_back();
        }
        self.push(row);
    }

    /// Forgets what nobody can ask about after this time.
    pub fn forget(&mut self, before_us: i64) {
        while self.steps.len() > KEPT
            && let Some(step) = self.steps.front().filter(|step| step.at_us < before_us)
        {
            self.before = (step.spent_total, step.strikes);
            self.forgotten = true;
            self.steps.pop_front();
        }
    }

    pub fn charge(&self, txn: Uuid, at_us: i64) -> Found {
        match self.step(txn, at_us) {
            Some(step) => Found::Charge(step.charge()),
            None if self.forgotten && self.steps.front().is_none_or(|step| step.at_us >= at_us) => {
                Found::Forgotten
            }
            None => Found::Nothing,
        }
    }

    /// The shape of a reservation whose cost was predicted.
    pub fn shape(&self, txn: Uuid, at_us: i64) -> Option<&str> {
        self.step(txn, at_us)?.shape.as_deref()
    }

    fn step(&self, txn: Uuid, at_us: i64) -> Option<&Step> {
        let from = self.steps.partition_point(|step| step.at_us < at_us);
        let mut same = self.steps.range(from..).take_while(|step| step.at_us == at_us);
        same.find(|step| step.txn == txn && step.kind.is_charge())
    }

    /// The charges of a time or later, oldest first.
    pub fn charges(&self, from_us: i64) -> impl DoubleEndedIterator<Item = &Step> {
        let from = self.steps.partition_point(|step| step.at_us < from_us);
        self.steps.range(from..).filter(|step| step.spent > 0)
    }

    /// The blocked checks from a time on that count for a ban, beyond the first so many of all.
    pub fn strikes(&self, from_us: i64, beyond: i64) -> impl Iterator<Item = &Step> {
        let from = self.steps.partition_point(|step| step.at_us < from_us);
        let mut counted = self.before(from_us).1.max(beyond);
        self.steps.range(from..).filter(move |step| {
            let counts = step.strikes > counted;
            counted = counted.max(step.strikes);
            counts
        })
    }

    pub fn by_seq(&self, seq: i64) -> Option<&Step> {
        let place = self.steps.partition_point(|step| step.seq < seq);
        self.steps.get(place).filter(|step| step.seq == seq)
    }

    fn last(&self) -> (i64, i64) {
        self.steps.back().map_or(self.before, |step| (step.spent_total, step.strikes))
    }

    fn before(&self, at_us: i64) -> (i64, i64) {
        match self.steps.partition_point(|step| step.at_us < at_us).checked_sub(1) {
            Some(place) => (self.steps[place].spent_total, self.steps[place].strikes),
            None => self.before,
        }
    }
}

impl Step {
    fn charge(&self) -> Charge {
        Charge {
            seq: self.seq,
            at_us: self.at_us,
            spent: self.spent,
            blocked: self.blocked,
            reserved: self.kind == Kind::Reserve,
            taken: self.kind == Kind::Local,
            member: self.member,
            ends_us: self.ends_us,
        }
    }
}

impl Ledger for Book {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.before(at_us).0)
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        let place = self.steps.partition_point(|step| step.spent_total < total);
        Ok(self.steps.get(place).map(|step| step.at_us))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.before(at_us).1)
    }
}
