//! What should happen: the pure core, and beside it a naive model that keeps every event and counts.

use std::collections::HashMap;

use tallygate::{Algorithm, Decision, Head, Outcome, Policy, Reason, Version, Window, decide, probe};
use uuid::Uuid;

#[derive(Default)]
pub struct Model {
    pub zones: HashMap<String, Vec<Version>>,
    pub buckets: HashMap<(String, String), Bucket>,
}

#[derive(Default)]
pub struct Bucket {
    pub head: Head,
    pub rows: Vec<Row>,
}

pub struct Row {
    pub txn: Uuid,
    pub cost: i64,
    pub spent: i64,
    pub spent_total: i64,
    pub expected: Expected,
}

/// A decision without what only a database can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub blocked: bool,
    pub reason: Reason,
    pub limit: i64,
    pub remaining: i64,
    pub retry_after_us: Option<i64>,
    pub seq: Option<i64>,
    pub zone_version: i32,
    pub decided_us: i64,
    pub replayed: bool,
}

impl From<&Decision> for Expected {
    fn from(decision: &Decision) -> Self {
        Self {
            blocked: decision.blocked,
            reason: decision.reason,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after_us,
            seq: decision.seq,
            zone_version: decision.zone_version,
            decided_us: decision.decided_at.timestamp_micros(),
            replayed: decision.replayed,
        }
    }
}

/// The transaction was decided with another cost.
#[derive(Debug, PartialEq, Eq)]
pub struct Conflict;

impl Model {
    pub fn set_zone(&mut self, zone: &str, policy: Policy, changed_us: i64) {
        let versions = self.zones.entry(zone.to_owned()).or_default();
        versions.push(Version { version: versions.len() as i32 + 1, policy, changed_us });
    }

    pub fn policy(&self, zone: &str) -> Policy {
        self.zones[zone].last().unwrap().policy
    }

    pub fn check(
        &mut self,
        zone: &str,
        key: &str,
        txn: Uuid,
        cost: i64,
        now_us: i64,
    ) -> Result<Expected, Conflict> {
        if cost > 0
            && let Some(past) = self.past(zone, key, txn, cost)
        {
            return past;
        }
        let (mut expected, outcome) = self.decide(zone, key, cost, now_us);
        if cost > 0 {
            expected.seq = Some(outcome.head.seq);
            self.append(zone, key, Row::of(txn, cost, &outcome, expected));
        }
        Ok(expected)
    }

    /// A row for checks that were blocked without asking: as one of cost 0, but for what it says.
    pub fn record_blocked(
        &mut self,
        zone: &str,
        key: &str,
        txn: Uuid,
        cost: i64,
        now_us: i64,
    ) -> Result<(), Conflict> {
        if let Some(past) = self.past(zone, key, txn, cost) {
            return past.map(drop);
        }
        let (expected, outcome) = self.decide(zone, key, 0, now_us);
        let expected = Expected {
            blocked: true,
            reason: Reason::OverLimit,
            retry_after_us: None,
            seq: Some(outcome.head.seq),
            ..expected
        };
        self.append(zone, key, Row::of(txn, cost, &outcome, expected));
        Ok(())
    }

    fn past(&self, zone: &str, key: &str, txn: Uuid, cost: i64) -> Option<Result<Expected, Conflict>> {
        let bucket = self.buckets.get(&(zone.to_owned(), key.to_owned()))?;
        let row = bucket.rows.iter().find(|row| row.txn == txn)?;
        let same = Expected { replayed: true, ..row.expected };
        Some(if row.cost == cost { Ok(same) } else { Err(Conflict) })
    }

    fn append(&mut self, zone: &str, key: &str, (row, head): (Row, Head)) {
        let bucket = self.buckets.entry((zone.to_owned(), key.to_owned())).or_default();
        bucket.rows.push(row);
        bucket.head = head;
    }

    fn decide(&mut self, zone: &str, key: &str, cost: i64, now_us: i64) -> (Expected, Outcome) {
        let versions = &self.zones[zone];
        let bucket = self.buckets.entry((zone.to_owned(), key.to_owned())).or_default();
        let first =
            if bucket.head.seq == 0 { versions.len() - 1 } else { bucket.head.zone_version as usize - 1 };
        let policy = versions.last().unwrap().policy;
        let window = probe(&policy, &bucket.head, cost, now_us).map(|probe| Window {
            base: bucket
                .rows
                .iter()
                .find(|row| row.expected.decided_us > probe.after_us)
                .map_or(bucket.head.spent_total, |row| row.spent_total - row.spent),
            reached_us: bucket
                .rows
                .iter()
                .find(|row| row.spent_total >= probe.total)
                .map(|row| row.expected.decided_us),
        });
        let outcome = decide(&versions[first..], &bucket.head, window, cost, now_us).unwrap();
        if policy.algorithm() == Algorithm::SlidingLog {
            bucket.assert_counted(&policy, cost, outcome.decided_us, outcome.blocked);
        }
        let expected = Expected {
            blocked: outcome.blocked,
            reason: outcome.reason,
            limit: policy.limit(),
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after_us,
            seq: None,
            zone_version: outcome.head.zone_version,
            decided_us: outcome.decided_us,
            replayed: false,
        };
        (expected, outcome)
    }
}

impl Row {
    /// A row, and the head that it leaves behind.
    fn of(txn: Uuid, cost: i64, outcome: &Outcome, expected: Expected) -> (Self, Head) {
        let (spent, spent_total) = (outcome.spent, outcome.head.spent_total);
        (Self { txn, cost, spent, spent_total, expected }, outcome.head)
    }
}

impl Bucket {
    /// The definition of the sliding log, counted out: blocked if and only if the sum does not fit.
    fn assert_counted(&self, policy: &Policy, cost: i64, now_us: i64, blocked: bool) {
        let start = now_us - policy.window_us();
        let spent: i64 =
            self.rows.iter().rev().take_while(|r| r.expected.decided_us > start).map(|r| r.spent).sum();
        assert_eq!(blocked, spent + cost > policy.limit(), "{spent} spent, {cost} asked, {policy:?}");
    }
}
