//! A bucket with its whole ledger in memory.

use tallygate::decide::{
    Ask, Bucket, Charge, Event, Happened, Head, Hold, Ledger, Need, Outcome, UnitsTaken, Version, decide,
    happen,
};
use tallygate::{Policy, Result};

#[derive(Clone, Default)]
pub struct Book {
    pub versions: Vec<Version>,
    pub head: Head,
    pub rows: Vec<Row>,
    pub holds: Vec<Hold>,
}

#[derive(Clone, Copy)]
pub struct Row {
    pub at_us: i64,
    pub spent: i64,
    pub spent_total: i64,
    strikes: i64,
}

/// The question, with names that live for ever.
pub type Asked = Ask<'static>;

pub fn ask(cost: i64) -> Asked {
    Asked { cost, ..Asked::default() }
}

impl Book {
    pub fn new(policy: Policy) -> Self {
        let mut book = Self::default();
        book.set(policy, 0);
        book
    }

    pub fn set(&mut self, policy: Policy, changed_us: i64) {
        self.versions.push(Version { version: self.versions.len() as i32 + 1, policy, changed_us });
    }

    pub fn policy(&self) -> Policy {
        self.versions.last().unwrap().policy
    }

    pub fn view(&self) -> Bucket<'_> {
        let from = if self.head.seq == 0 { self.versions.len() } else { self.head.zone_version as usize };
        Bucket { versions: &self.versions[from - 1..], head: &self.head, holds: &self.holds }
    }

    /// The answer that a check would be told.
    pub fn ask(&self, ask: &Ask<'_>, now_us: i64) -> Outcome {
        decide(self.view(), self, ask, now_us).unwrap()
    }

    pub fn peek(&self, now_us: i64) -> Outcome {
        self.ask(&ask(0), now_us)
    }

    pub fn check(&mut self, ask: &Ask<'_>, now_us: i64) -> Outcome {
        let outcome = self.ask(ask, now_us);
        if let Some(hold) = outcome.hold(ask.member) {
            self.put(hold);
        }
        self.turn(outcome.decided_us, outcome.spent, outcome.head);
        if outcome.banned_until_us.is_some() {
            self.turn(outcome.decided_us, 0, outcome.head);
        }
        outcome
    }

    /// A check of this cost.
    pub fn spend(&mut self, cost: i64, now_us: i64) -> Outcome {
        self.check(&ask(cost), now_us)
    }

    /// Takes down the units that were taken for local decisions.
    pub fn took(&mut self, taken: &UnitsTaken) {
        self.turn(taken.decided_us, taken.units, taken.head);
    }

    pub fn happen(&mut self, event: Event, now_us: i64) -> Result<Happened> {
        let happened = happen(self.view(), self, event, now_us).map_err(|need| match need {
            Need::Failed(error) => error,
            need => panic!("a whole ledger knows everything: {need:?}"),
        })?;
        if let Some(hold) = &happened.hold {
            self.put(hold.clone());
        }
        self.turn(happened.at_us, happened.spent, happened.head);
        Ok(happened)
    }

    fn turn(&mut self, at_us: i64, spent: i64, head: Head) {
        let Head { spent_total, strikes, .. } = head;
        self.rows.push(Row { at_us, spent, spent_total, strikes });
        self.head = head;
    }

    /// In place of what was to end of the same charge.
    fn put(&mut self, hold: Hold) {
        self.holds.retain(|held| held.seq != hold.seq);
        self.holds.push(hold);
    }
}

/// The charge that a check made, as its row tells it.
pub fn charge(ask: &Ask<'_>, outcome: &Outcome) -> Charge {
    Charge {
        seq: outcome.head.seq - i64::from(outcome.banned_until_us.is_some()),
        at_us: outcome.decided_us,
        spent: outcome.spent,
        blocked: outcome.blocked,
        reserved: ask.ttl_us.is_some(),
        taken: false,
        member: ask.member.is_some(),
        ends_us: outcome.ends_us,
    }
}

impl Ledger for Book {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.rows.iter().rev().find(|row| row.at_us < at_us).map_or(0, |row| row.spent_total))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        Ok(self.rows.iter().find(|row| row.spent_total >= total).map(|row| row.at_us))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        Ok(self.rows.iter().rev().find(|row| row.at_us < at_us).map_or(0, |row| row.strikes))
    }
}

/// No row is asked about.
pub struct NoLedger;

impl Ledger for NoLedger {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        Err(Need::TotalBefore(at_us))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        Err(Need::Reached(total))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        Err(Need::StrikesBefore(at_us))
    }
}
