//! The model of what should happen: the pure core over whole ledgers in memory. Beside it, for plain sliding logs,
//! the definition counted out.

use std::collections::HashMap;

use tallygate::decide::{
    Ask, Charge, Event, Happened, Head, Hold, Ledger, Need, Outcome, Undo, UnitsTaken, Version, decide,
    happen, take_units,
};
use tallygate::policy::{Algorithm, BlockedRows, Mode, Override};
use tallygate::{Decision, Policy, Reason, Recorded};
use uuid::Uuid;

#[derive(Default)]
pub struct Model {
    pub zones: HashMap<String, Vec<Version>>,
    pub buckets: HashMap<(String, String), Bucket>,
}

/// A bucket with its whole ledger.
#[derive(Clone, Default)]
pub struct Bucket {
    pub head: Head,
    pub holds: Vec<Hold>,
    pub rows: Vec<Row>,
}

#[derive(Clone)]
pub struct Row {
    pub txn: Uuid,
    pub kind: &'static str,
    pub cost: i64,
    pub at_us: i64,
    spent: i64,
    spent_total: i64,
    strikes: i64,
    ends_us: Option<i64>,
    pub member: Option<String>,
    /// The answer to a check.
    pub decided: Option<Expected>,
    /// The answer to anything else.
    recorded: Option<Noted>,
}

/// The question, of a bucket.
#[derive(Clone, Debug)]
pub struct Asked {
    pub zone: String,
    pub key: String,
    pub txn: Uuid,
    pub cost: i64,
    pub critical: bool,
    pub member: Option<String>,
    pub ttl_us: Option<i64>,
}

/// A decision without what only a database can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub blocked: bool,
    pub reason: Reason,
    pub limit: i64,
    pub remaining: i64,
    pub retry_after_us: Option<i64>,
    pub delay_us: Option<i64>,
    pub ends_us: Option<i64>,
    pub seq: Option<i64>,
    pub zone_version: i32,
    pub decided_us: i64,
    pub replayed: bool,
}

/// The record of something besides checks, without what only a database can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    pub kind: &'static str,
    pub cost: i64,
    pub spent: i64,
    pub remaining: i64,
    pub ends_us: Option<i64>,
    pub seq: i64,
    pub zone_version: i32,
    pub at_us: i64,
    pub replayed: bool,
}

/// The events of a bucket besides checks.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Undo(Undo),
    Ban(i64),
    Unban,
    Override(Option<Override>),
}

impl From<&Decision> for Expected {
    fn from(decision: &Decision) -> Self {
        Self {
            blocked: decision.blocked,
            reason: decision.reason,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after_us,
            delay_us: decision.delay_us,
            ends_us: decision.ends_at.map(|at| at.timestamp_micros()),
            seq: decision.seq,
            zone_version: decision.zone_version,
            decided_us: decision.decided_at.timestamp_micros(),
            replayed: decision.replayed,
        }
    }
}

impl From<&Recorded> for Noted {
    fn from(recorded: &Recorded) -> Self {
        Self {
            kind: recorded.kind.as_str(),
            cost: recorded.cost,
            spent: recorded.spent,
            remaining: recorded.remaining,
            ends_us: recorded.ends_at.map(|at| at.timestamp_micros()),
            seq: recorded.seq,
            zone_version: recorded.zone_version,
            at_us: recorded.recorded_at.timestamp_micros(),
            replayed: recorded.replayed,
        }
    }
}

/// The reason why nothing happens.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// It contradicts what was recorded.
    Conflict,
    /// It has no meaning.
    Invalid,
}

impl From<Need> for Refused {
    fn from(need: Need) -> Self {
        match need {
            Need::Failed(error) if error.is_conflict() => Self::Conflict,
            Need::Failed(error) if error.is_invalid() => Self::Invalid,
            need => panic!("a whole ledger knows everything: {need:?}"),
        }
    }
}

const CHECKS: [&str; 5] = ["check", "reserve", "coalesced", "unchecked", "local"];
const CHARGES: [&str; 4] = ["check", "reserve", "unchecked", "local"];
const UNDOES: [&str; 4] = ["refund", "settle", "cancel", "release"];

impl Model {
    pub fn set_zone(&mut self, zone: &str, policy: Policy, changed_us: i64) {
        let versions = self.zones.entry(zone.to_owned()).or_default();
        versions.push(Version { version: versions.len() as i32 + 1, policy, changed_us });
    }

    pub fn policy(&self, zone: &str) -> Policy {
        self.zones[zone].last().unwrap().policy
    }

    pub fn check(&mut self, asked: &Asked, now_us: i64) -> Result<Expected, Refused> {
        let (versions, bucket) = self.bucket(asked);
        if asked.cost > 0
            && let Some(past) = bucket.past(asked)
        {
            return past;
        }
        let outcome = bucket.decide(versions, &asked.ask(), now_us)?;
        Ok(bucket.answer(versions, asked, outcome).at(now_us))
    }

    /// Several limits of one transaction: all, or none.
    pub fn check_all(&mut self, all: &[Asked], now_us: i64) -> Result<Vec<Expected>, Refused> {
        let past: Vec<_> =
            all.iter().filter(|asked| asked.cost > 0).map(|asked| self.bucket(asked).1.past(asked)).collect();
        if past.iter().any(Option::is_some) {
            return past.into_iter().map(|past| past.unwrap_or(Err(Refused::Conflict))).collect();
        }
        let mut outcomes = Vec::new();
        for asked in all {
            let (versions, bucket) = self.bucket(asked);
            outcomes.push(bucket.decide(versions, &asked.ask(), now_us)?);
        }
        if outcomes.iter().any(|outcome| outcome.blocked) {
            for (asked, outcome) in
                all.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.reason.allows())
            {
                let (versions, bucket) = self.bucket(asked);
                *outcome = bucket.decide(versions, &Ask { held_back: true, ..asked.ask() }, now_us)?;
            }
        }
        Ok(all
            .iter()
            .zip(outcomes)
            .map(|(asked, outcome)| {
                let (versions, bucket) = self.bucket(asked);
                bucket.answer(versions, asked, outcome).at(now_us)
            })
            .collect())
    }

    pub fn act(&mut self, asked: &Asked, act: Act, now_us: i64) -> Result<Noted, Refused> {
        let (versions, bucket) = self.bucket(asked);
        let (kind, event) = match act {
            Act::Undo(undo) => {
                let kind = match undo {
                    Undo::Refund => "refund",
                    Undo::Settle(_) | Undo::Used(_) => "settle",
                    Undo::Cancel => "cancel",
                    Undo::Release => "release",
                };
                let past = bucket.rows.iter().find(|row| row.txn == asked.txn && UNDOES.contains(&row.kind));
                if let Some(past) = past {
                    let same = past.kind == kind
                        && !matches!(undo, Undo::Settle(cost) | Undo::Used(cost) if cost != past.cost);
                    let told = past.recorded.map(|noted| Noted { replayed: true, ..noted });
                    return told.filter(|_| same).ok_or(Refused::Conflict);
                }
                let row = bucket.rows.iter().find(|row| row.txn == asked.txn && CHARGES.contains(&row.kind));
                (kind, Event::Undo(undo, row.ok_or(Refused::Invalid)?.charge()))
            }
            Act::Ban(for_us) => ("ban", Event::Ban(for_us)),
            Act::Unban => ("unban", Event::Unban),
            Act::Override(Some(over)) => ("override", Event::Override(Some(over))),
            Act::Override(None) => ("override_end", Event::Override(None)),
        };
        let happened = happen(bucket.view(versions), &*bucket, event, now_us)?;
        let Happened { at_us, cost, spent, ends_us, hold, head, .. } = happened;
        if let Some(hold) = hold {
            bucket.put(hold);
        }
        bucket.head = head;
        let peek = bucket.decide(versions, &Ask::default(), now_us)?;
        let noted = Noted {
            kind,
            cost,
            spent,
            remaining: peek.remaining,
            ends_us,
            seq: head.seq,
            zone_version: head.zone_version,
            at_us,
            replayed: false,
        };
        bucket.rows.push(Row {
            txn: asked.txn,
            kind,
            cost,
            at_us,
            spent,
            spent_total: head.spent_total,
            strikes: head.strikes,
            ends_us,
            member: None,
            decided: None,
            recorded: Some(noted),
        });
        Ok(noted)
    }

    /// A row for checks that were blocked without asking: as one of cost 0, but for what it says. They follow one that was
    /// blocked for some time.
    pub fn record_blocked(&mut self, asked: &Asked, now_us: i64) -> Result<(), Refused> {
        let (versions, bucket) = self.bucket(asked);
        if let Some(past) = bucket.past(asked) {
            return past.map(drop);
        }
        let mut outcome = bucket.decide(versions, &Ask::default(), now_us)?;
        let coalesces = |version| {
            let of = |v: &&Version| v.version == version;
            versions.iter().find(of).unwrap().policy.blocked_rows() == BlockedRows::Coalesced
        };
        let followed = bucket.rows.iter().filter(|row| ["check", "reserve"].contains(&row.kind)).any(|row| {
            row.decided.is_some_and(|told| {
                told.blocked
                    && told.retry_after_us.is_some()
                    && coalesces(told.zone_version)
                    && row.at_us >= outcome.decided_us - 60_000_000
            })
        });
        if !followed {
            return Err(Refused::Invalid);
        }
        let banned = outcome.head.banned_until_us.is_some_and(|until_us| until_us > outcome.decided_us);
        outcome.blocked = true;
        outcome.reason = if banned { Reason::Banned } else { Reason::OverLimit };
        outcome.retry_after_us = None;
        outcome.delay_us = None;
        let expected = Expected { seq: Some(outcome.head.seq), ..Expected::of(&outcome) };
        bucket.append(asked, "coalesced", &outcome, expected);
        bucket.head = outcome.head;
        Ok(())
    }

    /// Takes units for local decisions: how many, what is left, and until when.
    pub fn take(&mut self, asked: &Asked, now_us: i64) -> Result<Option<(i64, i64, i64)>, Refused> {
        let (versions, bucket) = self.bucket(asked);
        let taken = take_units(bucket.view(versions), &*bucket, asked.cost, now_us)?;
        let Some(UnitsTaken { reason, units, limit, remaining, ends_us, decided_us, head }) = taken else {
            return Ok(None);
        };
        let decided = Expected {
            blocked: false,
            reason,
            limit,
            remaining,
            retry_after_us: None,
            delay_us: None,
            ends_us: Some(ends_us),
            seq: Some(head.seq),
            zone_version: head.zone_version,
            decided_us,
            replayed: false,
        };
        bucket.rows.push(Row {
            txn: asked.txn,
            kind: "local",
            cost: asked.cost,
            at_us: decided_us,
            spent: units,
            spent_total: head.spent_total,
            strikes: head.strikes,
            ends_us: Some(ends_us),
            member: None,
            decided: Some(decided),
            recorded: None,
        });
        bucket.head = head;
        Ok(Some((units, remaining, ends_us)))
    }

    fn bucket(&mut self, asked: &Asked) -> (&[Version], &mut Bucket) {
        let bucket = self.buckets.entry((asked.zone.clone(), asked.key.clone())).or_default();
        (&self.zones[&asked.zone], bucket)
    }
}

impl Asked {
    /// A check of a bucket in a zone that counts no members.
    pub fn new(zone: &str, key: &str, txn: Uuid, cost: i64) -> Self {
        Self {
            zone: zone.to_owned(),
            key: key.to_owned(),
            txn,
            cost,
            critical: false,
            member: None,
            ttl_us: None,
        }
    }

    fn ask(&self) -> Ask<'_> {
        let Self { cost, critical, ttl_us, .. } = *self;
        Ask { cost, critical, member: self.member.as_deref(), ttl_us, held_back: false }
    }
}

impl Expected {
    /// The waits of a row count from its own time, those of the answer from now.
    fn at(self, now_us: i64) -> Self {
        let from_now = |us: i64| us + (self.decided_us - now_us);
        Self {
            retry_after_us: self.retry_after_us.map(from_now),
            delay_us: self.delay_us.map(from_now),
            ..self
        }
    }

    fn of(outcome: &Outcome) -> Self {
        Self {
            blocked: outcome.blocked,
            reason: outcome.reason,
            limit: outcome.limit,
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after_us,
            delay_us: outcome.delay_us,
            ends_us: outcome.ends_us,
            seq: None,
            zone_version: outcome.head.zone_version,
            decided_us: outcome.decided_us,
            replayed: false,
        }
    }
}

impl Row {
    fn charge(&self) -> Charge {
        Charge {
            seq: self.decided.and_then(|decided| decided.seq).unwrap(),
            at_us: self.at_us,
            spent: self.spent,
            blocked: self.decided.unwrap().blocked,
            reserved: self.kind == "reserve",
            taken: self.kind == "local",
            member: self.member.is_some(),
            ends_us: self.ends_us,
        }
    }
}

impl Bucket {
    fn view<'b>(&'b self, versions: &'b [Version]) -> tallygate::decide::Bucket<'b> {
        let from = if self.head.seq == 0 { versions.len() } else { self.head.zone_version as usize };
        tallygate::decide::Bucket { versions: &versions[from - 1..], head: &self.head, holds: &self.holds }
    }

    fn past(&self, asked: &Asked) -> Option<Result<Expected, Refused>> {
        let row = self.rows.iter().find(|row| row.txn == asked.txn && CHECKS.contains(&row.kind))?;
        let same = row.decided.map(|decided| Expected { replayed: true, ..decided });
        let about = |row: &Row| row.kind != "local" && row.cost == asked.cost && row.member == asked.member;
        Some(same.filter(|_| about(row)).ok_or(Refused::Conflict))
    }

    fn decide(&self, versions: &[Version], ask: &Ask<'_>, now_us: i64) -> Result<Outcome, Refused> {
        let outcome = decide(self.view(versions), self, ask, now_us)?;
        let policy = &versions.last().unwrap().policy;
        let plain =
            Policy::sliding_log(policy.rate(), std::time::Duration::from_micros(policy.window_us() as u64));
        if policy.algorithm() == Algorithm::SlidingLog
            && plain.is_ok_and(|plain| {
                plain
                    .with_durability(policy.durability())
                    .with_blocked_rows(policy.blocked_rows())
                    .with_running_buckets(policy.running_buckets())
                    == *policy
            })
            && self.holds.is_empty()
            && outcome.head.carried.is_none()
            && outcome.head.exception.is_none()
            && !matches!(outcome.reason, Reason::Banned | Reason::HeldBack)
        {
            self.assert_counted(policy, ask.cost, outcome.decided_us, outcome.blocked);
        }
        Ok(outcome)
    }

    /// Records a check, unless it only looked.
    fn answer(&mut self, versions: &[Version], asked: &Asked, outcome: Outcome) -> Expected {
        let banned = i64::from(outcome.banned_until_us.is_some());
        let mut expected = Expected::of(&outcome);
        if asked.cost == 0 {
            return expected;
        }
        expected.seq = Some(outcome.head.seq - banned);
        let kind = if asked.ttl_us.is_some() { "reserve" } else { "check" };
        self.append(asked, kind, &outcome, expected);
        if let Some(until_us) = outcome.banned_until_us {
            let ban = Row {
                kind: "ban",
                cost: 0,
                spent: 0,
                ends_us: Some(until_us),
                member: None,
                decided: None,
                ..self.rows[self.rows.len() - 1].clone()
            };
            self.rows.push(ban);
        }
        if let Some(hold) = outcome.hold(asked.ask().member) {
            let algorithm = versions.last().unwrap().policy.algorithm();
            if matches!(algorithm, Algorithm::Distinct | Algorithm::Concurrency) {
                self.holds.retain(|held| held.ends_us > outcome.decided_us);
            }
            self.put(hold);
        }
        self.head = outcome.head;
        expected
    }

    fn append(&mut self, asked: &Asked, kind: &'static str, outcome: &Outcome, expected: Expected) {
        self.rows.push(Row {
            txn: asked.txn,
            kind,
            cost: asked.cost,
            at_us: outcome.decided_us,
            spent: outcome.spent,
            spent_total: outcome.head.spent_total,
            strikes: outcome.head.strikes,
            ends_us: outcome.ends_us,
            member: asked.member.clone(),
            decided: Some(expected),
            recorded: None,
        });
    }

    /// In place of what was to end of the same charge.
    fn put(&mut self, hold: Hold) {
        match self.holds.iter_mut().find(|held| held.seq == hold.seq) {
            Some(held) => *held = Hold { member: held.member.take(), ..hold },
            None => self.holds.push(hold),
        }
    }

    /// The definition of the sliding log, counted out: blocked if and only if the sum does not fit.
    fn assert_counted(&self, policy: &Policy, cost: i64, now_us: i64, blocked: bool) {
        let start = now_us - policy.window_us();
        let spent: i64 = self.rows.iter().rev().take_while(|r| r.at_us > start).map(|r| r.spent).sum();
        let full = cost > 0 && spent + cost > policy.limit();
        assert_eq!(
            blocked,
            full && policy.mode() == Mode::Enforce,
            "{spent} spent, {cost} asked, {policy:?}"
        );
    }
}

impl Ledger for Bucket {
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
