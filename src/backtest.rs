//! The back-test: what a policy would have done to traffic that has been.
//!
//! Pure, like the core that it decides with: no clock, no database. Of each bucket's ledger it keeps what can still be
//! asked about and forgets the rest, so a year of traffic needs no more memory than a window of it.

mod recent;
mod simulation;
mod tenants;
mod timeline;
mod traffic;
mod workers;

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::check::validate_bytes;
use crate::decide::{self, Ask, Bucket, Charge, Event, Head, Need, Outcome, Undo, Version, decide, happen};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Family, Policy, UNITS_MAX};
use recent::Recent;
use timeline::Timeline;

pub use simulation::{Got, Point, Simulation, simulate};
pub use traffic::{Request, Shape, Traffic};

/// The years 1000 to 9999, which every database can store.
const TIMES_US: std::ops::RangeInclusive<i64> = -30_610_224_000_000_000..=253_402_300_799_000_000;

/// Plays traffic through a policy: the same decisions, to the microsecond, as a zone with this policy would have made,
/// had the checks come to it at those times.
///
/// A policy in [`Mode::Shadow`](crate::policy::Mode::Shadow) counts as blocked what it would have blocked.
///
/// Memory: a few hundred bytes and its name for each key; beyond that 16 bytes for each different time at which
/// something was spent in the longest time that the policy looks back on (twice that for a moment). A sliding log looks
/// back on its window, a sliding counter on one entry a slot, a fixed window on one entry; levels on nothing. Members
/// and slots are kept while they count. Nothing grows with the length of the traffic.
///
/// ```
/// use std::time::Duration;
/// use tallygate::backtest::Backtest;
/// use tallygate::decide::Ask;
/// use tallygate::Policy;
///
/// let mut test = Backtest::new(Policy::sliding_log(2, Duration::from_secs(60))?)?;
/// let login = Ask { cost: 1, ..Ask::default() };
/// for second in [0, 10, 20, 60] {
///     test.check("203.0.113.7", &login, second * 1_000_000)?;
/// }
/// let report = test.report(10);
/// assert_eq!((report.allowed, report.blocked), (3, 1));
/// assert_eq!(report.top_blocked[0].key, "203.0.113.7");
/// # Ok::<(), tallygate::Error>(())
/// ```
pub struct Backtest {
    version: [Version; 1],
    buckets: HashMap<Box<str>, Tested>,
    timeline: Timeline,
    /// How many checks there were for each reason, in the order of [`Reason::ALL`].
    reasons: [u64; Reason::ALL.len()],
    allowed_cost: i64,
    blocked_cost: i64,
    bans: u64,
    late: u64,
    /// By reservations that passed; None without any.
    reserved: Option<Reserved>,
    /// The times of the first event and the last.
    span_us: Option<(i64, i64)>,
}

/// A bucket, and what was blocked of it.
#[derive(Default)]
struct Tested {
    recent: Recent,
    shapes: Vec<decide::Shape>,
    blocked: u64,
    /// The times of the first that was blocked and the last.
    span_us: Option<(i64, i64)>,
}

/// What a [`Backtest`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BacktestReport {
    /// The policy that decided.
    pub policy: Policy,
    /// How many checks there were: `allowed` and `blocked` together.
    pub events: u64,
    /// How many would have passed.
    pub allowed: u64,
    /// How many would have been blocked.
    pub blocked: u64,
    /// What those that would have passed asked for, in the zone's unit; at most 2^63 - 1.
    pub allowed_cost: i64,
    /// What those that would have been blocked asked for.
    pub blocked_cost: i64,
    /// How many there were for each [`Reason`], by its name.
    pub reasons: BTreeMap<&'static str, u64>,
    /// How many bans would have begun.
    pub bans: u64,
    /// Different keys.
    pub keys: u64,
    /// Keys of which something would have been blocked.
    pub blocked_keys: u64,
    /// Checks that came with an earlier time than the one before them of the same key. They were decided at that one's
    /// time, as a database does: time never goes back within a bucket.
    pub late: u64,
    /// How far reservations that would have passed were off; None where nothing was reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// The earliest time of a check; None without any.
    pub first_at: Option<DateTime<Utc>>,
    /// The latest time of a check.
    pub last_at: Option<DateTime<Utc>>,
    /// The keys that would have been blocked most often, most first, then in the order of their bytes.
    pub top_blocked: Vec<BlockedKey>,
    /// How long a slice of `timeline` is.
    pub slice_us: i64,
    /// What became of the checks over time, in at most 400 slices; those without a check are left out.
    pub timeline: Vec<TimeSlice>,
}

/// How far reservations were off what they came to, in units that add up; at most 2^63 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Reserved {
    /// What was reserved and not needed.
    pub over: i64,
    /// What was needed and not reserved: it was charged without asking for room.
    pub under: i64,
}

/// A key that would have been blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BlockedKey {
    /// The key.
    pub key: String,
    /// How often.
    pub blocked: u64,
    /// When first.
    pub first_at: Option<DateTime<Utc>>,
    /// When last.
    pub last_at: Option<DateTime<Utc>>,
}

/// What became of the checks of a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct TimeSlice {
    /// When it begins.
    pub from: Option<DateTime<Utc>>,
    /// How many would have passed.
    pub allowed: u64,
    /// How many would have been blocked.
    pub blocked: u64,
}

impl Backtest {
    /// A test of this policy, with no traffic yet.
    ///
    /// # Errors
    /// Invalid: what [`Policy::validate`] refuses.
    pub fn new(policy: Policy) -> Result<Self> {
        policy.validate()?;
        Ok(Self {
            version: [Version { version: 1, policy, changed_us: i64::MIN }],
            buckets: HashMap::new(),
            timeline: Timeline::default(),
            reasons: [0; Reason::ALL.len()],
            allowed_cost: 0,
            blocked_cost: 0,
            bans: 0,
            late: 0,
            reserved: None,
            span_us: None,
        })
    }

    /// Decides the next check of `key`, at a time in microseconds since 1970 in UTC.
    ///
    /// The checks of one key are to come in the order of their times; different keys may come in any order. A check with
    /// an earlier time than the last of its key is decided at that one's time. Cost 0 is a peek: it passes and leaves
    /// nothing behind. A member is left aside unless the policy counts members. Nothing can be reserved.
    ///
    /// # Errors
    /// Invalid, and nothing is counted: what [`Check::validate`](crate::Check::validate) refuses, what the algorithm has
    /// no use for, a time outside of the years 1000 to 9999.
    pub fn check(&mut self, key: &str, ask: &Ask<'_>, at_us: i64) -> Result<Outcome> {
        self.play(key, ask, None, at_us)
    }

    /// As [`check`](Self::check), by a reservation that is settled at once with the cost that is asked for: of `units`, or, by
    /// a shape, of what [is predicted](crate::Limiter::reserve_predicted), and of `units` where nothing is known. So it tells
    /// what a fixed guess and a prediction would have let through, and how far each was off.
    ///
    /// # Errors
    /// Those of [`check`](Self::check). Invalid: the units are out of range, or nothing can be reserved by this policy.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tallygate::backtest::Backtest;
    /// use tallygate::decide::Ask;
    /// use tallygate::Policy;
    ///
    /// let mut test = Backtest::new(Policy::sliding_log(1_000, Duration::from_secs(60))?)?;
    /// for second in 0..5 {
    ///     let ask = Ask { cost: 100, ..Ask::default() };
    ///     test.reserve("tenant:7", &ask, 500, Some("chat/small"), second * 1_000_000)?;
    /// }
    /// let report = test.report(10);
    /// assert_eq!((report.allowed, report.reserved.unwrap().over), (5, 400));
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn reserve(
        &mut self,
        key: &str,
        ask: &Ask<'_>,
        units: i64,
        shape: Option<&str>,
        at_us: i64,
    ) -> Result<Outcome> {
        let algorithm = self.version[0].policy.algorithm();
        if algorithm.family() == Family::Held {
            return Err(Error::invalid(format!("nothing can be reserved in a zone of {algorithm}")));
        }
        if !(1..=UNITS_MAX).contains(&units) {
            return Err(Error::invalid(format!("reserving {units} is out of range; use 1 to {UNITS_MAX}")));
        }
        self.play(key, ask, Some((units, shape)), at_us)
    }

    fn play(
        &mut self,
        key: &str,
        ask: &Ask<'_>,
        reserving: Option<(i64, Option<&str>)>,
        at_us: i64,
    ) -> Result<Outcome> {
        let policy = &self.version[0].policy;
        let ask = &Ask { member: ask.member.filter(|_| policy.algorithm() == Algorithm::Distinct), ..*ask };
        validate(ask, at_us)?;
        let mut new = None;
        let tested = match self.buckets.get_mut(key) {
            Some(tested) => tested,
            None => {
                validate_bytes("bucket key", "key", key)?;
                new.insert(Tested::default())
            }
        };
        let recent = &mut tested.recent;
        let late = recent.head.seq > 0 && at_us < recent.head.last_us;
        recent.advance(policy, at_us);
        let bucket = Bucket { versions: &self.version, head: &recent.head, holds: &recent.holds };
        let known = reserving
            .and_then(|(_, shape)| decide::predict(&tested.shapes, shape?, recent.head.clamp(at_us)));
        let units = reserving.map(|(units, _)| known.map_or(units, decide::Shape::cost));
        let asked = &Ask { cost: units.unwrap_or(ask.cost), ..*ask };
        let mut outcome = decide(bucket, recent, asked, at_us).map_err(failed)?;
        let blocked = !outcome.reason.allows();
        if let (Some(units), false) = (units, blocked) {
            settle(bucket, recent, &mut outcome, ask.cost).map_err(failed)?;
            let reserved = self.reserved.get_or_insert_default();
            reserved.over = reserved.over.saturating_add((units - ask.cost).max(0));
            reserved.under = reserved.under.saturating_add((ask.cost - units).max(0));
            if let Some((_, Some(shape))) = reserving {
                decide::learn(&mut tested.shapes, shape, ask.cost, outcome.decided_us);
            }
        }
        if asked.cost > 0 {
            recent.append(policy, ask, &outcome);
        }
        let cost = if blocked { &mut self.blocked_cost } else { &mut self.allowed_cost };
        *cost = cost.saturating_add(ask.cost);
        if blocked {
            tested.blocked += 1;
            extend(&mut tested.span_us, at_us);
        }
        self.reasons[outcome.reason as usize] += 1;
        self.bans += u64::from(outcome.banned_until_us.is_some());
        self.late += u64::from(late);
        extend(&mut self.span_us, at_us);
        self.timeline.add(at_us, blocked);
        if let Some(new) = new {
            self.buckets.insert(key.into(), new);
        }
        Ok(outcome)
    }

    /// What was found so far, with so many of the keys that were blocked most often.
    pub fn report(&self, top: usize) -> BacktestReport {
        let mut keys: Vec<(&str, &Tested)> = self
            .buckets
            .iter()
            .map(|(key, tested)| (&**key, tested))
            .filter(|(_, tested)| tested.blocked > 0)
            .collect();
        keys.sort_unstable_by(|a, b| b.1.blocked.cmp(&a.1.blocked).then_with(|| a.0.cmp(b.0)));
        let key = |(key, tested): &(&str, &Tested)| BlockedKey {
            key: key.to_string(),
            blocked: tested.blocked,
            first_at: time(tested.span_us.map(|span| span.0)),
            last_at: time(tested.span_us.map(|span| span.1)),
        };
        let reasons = || Reason::ALL.iter().zip(self.reasons).filter(|(_, count)| *count > 0);
        let sum =
            |allows| reasons().filter(|(reason, _)| reason.allows() == allows).map(|(_, count)| count).sum();
        let (allowed, blocked): (u64, u64) = (sum(true), sum(false));
        BacktestReport {
            policy: self.version[0].policy,
            events: allowed + blocked,
            allowed,
            blocked,
            allowed_cost: self.allowed_cost,
            blocked_cost: self.blocked_cost,
            reasons: reasons().map(|(reason, count)| (reason.as_str(), count)).collect(),
            bans: self.bans,
            keys: self.buckets.len() as u64,
            blocked_keys: keys.len() as u64,
            late: self.late,
            reserved: self.reserved,
            first_at: time(self.span_us.map(|span| span.0)),
            last_at: time(self.span_us.map(|span| span.1)),
            top_blocked: keys.iter().take(top).map(key).collect(),
            slice_us: self.timeline.slice_us(),
            timeline: self.timeline.slices(),
        }
    }
}

/// A reservation comes to `cost` at the time at which it was made: as if that had been charged in the first place, whether there
/// was room or not.
fn settle(bucket: Bucket<'_>, recent: &Recent, outcome: &mut Outcome, cost: i64) -> Result<(), Need> {
    let charge = Charge {
        seq: outcome.seq(),
        at_us: outcome.decided_us,
        spent: outcome.spent,
        blocked: false,
        taken: false,
        reserved: true,
        member: false,
        ends_us: None,
    };
    if outcome.spent > 0 {
        let spent_total = bucket.head.spent_total.saturating_add(cost);
        let after = Bucket { head: &outcome.head, ..bucket };
        let settled = happen(after, recent, Event::Undo(Undo::Settle(cost), charge), outcome.decided_us)?;
        outcome.head = Head { spent_total, ..settled.head };
        outcome.spent = cost;
    }
    Ok(())
}

fn extend(span_us: &mut Option<(i64, i64)>, at_us: i64) {
    let (first_us, last_us) = span_us.unwrap_or((at_us, at_us));
    *span_us = Some((first_us.min(at_us), last_us.max(at_us)));
}

fn time(us: Option<i64>) -> Option<DateTime<Utc>> {
    us.and_then(DateTime::from_timestamp_micros)
}

fn validate(ask: &Ask<'_>, at_us: i64) -> Result<()> {
    if !(0..=UNITS_MAX).contains(&ask.cost) {
        return Err(Error::invalid(format!("cost {} is out of range; use 0 to {UNITS_MAX}", ask.cost)));
    }
    if ask.ttl_us.is_some() {
        return Err(Error::invalid("a reservation cannot be back-tested; leave its time to live out"));
    }
    if !TIMES_US.contains(&at_us) {
        return Err(Error::invalid(format!("time {at_us} µs is out of range; use the years 1000 to 9999")));
    }
    ask.member.map_or(Ok(()), |member| validate_bytes("member", "member", member))
}

/// What is kept answers every question, so there is no other need than an error's.
fn failed(need: Need) -> Error {
    match need {
        Need::Failed(error) => error,
        need => Error::schema(format!("the back-test forgot what was asked: {need:?}; report this")),
    }
}
