//! The back-test: the decisions that a policy would have made about past traffic.
//!
//! Pure, like the core that it decides with: no clock, no database. Of each bucket's ledger it keeps what can still be
//! asked about and forgets the rest, so a year of traffic needs no more memory than a window of it.

mod difference;
mod outcomes;
mod recent;
mod report;
mod simulation;
mod suggest;
mod tenants;
mod timeline;
mod traffic;
mod workers;

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::check::validate_bytes;
use crate::decide::{self, Ask, Bucket, Charge, Event, Head, Need, Outcome, Undo, Version, decide, happen};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Family, Policy, UNITS_MAX};
use recent::Recent;
use timeline::Timeline;

pub use difference::{Changed, ChangedKey, Difference};
pub use outcomes::Outcomes;
pub use report::{BacktestReport, BlockedKey, Reserved, TimeSlice};
pub use simulation::{Got, Point, Simulation, simulate};
pub use suggest::{Grid, front};
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
    /// The last of the versions.
    policy: Policy,
    /// All of them in order, mostly one.
    versions: Vec<Version>,
    buckets: HashMap<Box<str>, Tested>,
    /// The buckets of which nothing has been counted yet.
    uncounted: HashMap<Box<str>, Tested>,
    timeline: Timeline,
    /// The number of checks for each reason, in the order of [`Reason::ALL`].
    reasons: [u64; Reason::ALL.len()],
    allowed_cost: i64,
    blocked_cost: i64,
    bans: u64,
    late: u64,
    /// The units by which reservations that passed were off; None without any.
    reserved: Option<Reserved>,
    /// The times of the first event and of the last.
    span_us: Option<(i64, i64)>,
}

/// A bucket, and its checks that were blocked.
#[derive(Default)]
struct Tested {
    recent: Recent,
    shapes: Vec<decide::Shape>,
    blocked: u64,
    /// The times of the first check that was blocked and of the last.
    span_us: Option<(i64, i64)>,
}

impl Backtest {
    /// A test of this policy, with no traffic yet.
    ///
    /// # Errors
    /// Invalid: what [`Policy::validate`] refuses, and policies of `capacity` and `queue`, which decide no checks.
    pub fn new(policy: Policy) -> Result<Self> {
        Self::of_versions(vec![policy.into()])
    }

    /// A test of the policies that a zone had, each from the time when it came into force, and the first one before that too.
    /// A change does to buckets in use what the zone's [`RunningBuckets`](crate::policy::RunningBuckets) said.
    ///
    /// # Errors
    /// Invalid: there is none, they are not in the order of their numbers and times, or what [`new`](Self::new) refuses.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tallygate::backtest::Backtest;
    /// use tallygate::decide::{Ask, Version};
    /// use tallygate::Policy;
    ///
    /// let of = |version, rate, second: i64| -> tallygate::Result<Version> {
    ///     let policy = Policy::sliding_log(rate, Duration::from_secs(60))?;
    ///     Ok(Version { version, policy, changed_us: second * 1_000_000 })
    /// };
    /// let mut test = Backtest::of_versions(vec![of(1, 1, 0)?, of(2, 3, 30)?])?;
    /// for second in [0, 10, 20, 30, 40, 50] {
    ///     test.check("user:42", &Ask { cost: 1, ..Ask::default() }, second * 1_000_000)?;
    /// }
    /// let report = test.report(10);
    /// assert_eq!((report.allowed, report.blocked), (3, 3));
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn of_versions(versions: Vec<Version>) -> Result<Self> {
        let Some(last) = versions.last() else {
            return Err(Error::invalid("no policy was given to decide by"));
        };
        if !versions.is_sorted_by(|a, b| a.version < b.version && a.changed_us <= b.changed_us) {
            return Err(Error::invalid("the versions of a policy are not in their order; sort them"));
        }
        versions.iter().try_for_each(|version| version.policy.validate())?;
        if let algorithm @ (Algorithm::Capacity | Algorithm::Queue) = last.policy.algorithm() {
            return Err(Error::invalid(format!(
                "a zone of {algorithm} decides no checks, so there is nothing to test it with; simulate it"
            )));
        }
        Ok(Self {
            policy: last.policy,
            versions,
            buckets: HashMap::new(),
            uncounted: HashMap::new(),
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

    /// Counts from here on: the checks that were played stay in the buckets, where windows still ask about them, and are told
    /// nowhere.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tallygate::{Policy, backtest::Backtest, decide::Ask};
    /// let mut test = Backtest::new(Policy::sliding_log(2, Duration::from_secs(60))?)?;
    /// let login = Ask { cost: 1, ..Ask::default() };
    /// test.check("203.0.113.7", &login, 0)?;
    /// test.count_from_here();
    /// for second in [10, 20] {
    ///     test.check("203.0.113.7", &login, second * 1_000_000)?;
    /// }
    /// assert_eq!((test.report(0).events, test.report(0).blocked), (2, 1));
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn count_from_here(&mut self) {
        self.uncounted.extend(self.buckets.drain());
        for tested in self.uncounted.values_mut() {
            (tested.blocked, tested.span_us) = (0, None);
        }
        self.timeline = Timeline::default();
        self.reasons = [0; Reason::ALL.len()];
        (self.allowed_cost, self.blocked_cost, self.bans, self.late) = (0, 0, 0, 0);
        (self.reserved, self.span_us) = (None, None);
    }

    /// The time before a check, in microseconds, that the policy asks about: its window and the one before it, or the time that
    /// an empty level takes to fill, and the time in which blocked checks add up to the longest ban. Decisions from then on
    /// hardly depend on anything earlier: a bucket of which nothing is known is taken for one that was not in use.
    pub fn looks_back_us(&self) -> i64 {
        let back_us = |version: &Version| {
            let policy = &version.policy;
            let full_us = i128::from(policy.limit()) * i128::from(policy.window_us())
                / i128::from(policy.rate().max(1));
            let window_us = match policy.algorithm().family() {
                Family::Level => i64::try_from(full_us).unwrap_or(i64::MAX),
                Family::Window | Family::Held => policy.window_us().saturating_mul(2),
            };
            let ban_us = policy.ban().map_or(0, |rule| rule.within_us.saturating_add(rule.longest_us));
            window_us.saturating_add(ban_us)
        };
        self.versions.iter().map(back_us).max().unwrap_or(0)
    }

    /// The number of checks of a key that would have been blocked so far.
    pub fn blocked(&self, key: &str) -> u64 {
        self.buckets.get(key).map_or(0, |tested| tested.blocked)
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
    /// a shape, of the cost that [is predicted](crate::Limiter::reserve_predicted), and of `units` where nothing is known. So it
    /// tells what a fixed guess and a prediction would have let through, and how far each was off.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check). Invalid: the units are out of range, or nothing can be reserved by this policy.
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
        let algorithm = self.policy.algorithm();
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
        validate(ask, at_us)?;
        let mut new = None;
        let tested = match self.buckets.get_mut(key) {
            Some(tested) => tested,
            None => match self.uncounted.get_mut(key) {
                Some(tested) => tested,
                None => {
                    validate_bytes("bucket key", "key", key)?;
                    new.insert(Tested::default())
                }
            },
        };
        let recent = &mut tested.recent;
        let late = recent.head.seq > 0 && at_us < recent.head.last_us;
        let versions = in_force(&self.versions, &recent.head, at_us);
        let policy = versions.last().map(|version| &version.policy);
        let counts_members = policy.is_some_and(|policy| policy.algorithm() == Algorithm::Distinct);
        let ask = &Ask { member: ask.member.filter(|_| counts_members), ..*ask };
        ask.member.map_or(Ok(()), |member| validate_bytes("member", "member", member))?;
        recent.advance(&self.versions, at_us);
        let bucket = Bucket { versions, head: &recent.head, holds: &recent.holds };
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
            recent.append(&self.versions, ask, &outcome);
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
        // Mostly there are none, and the key need not be hashed once more.
        } else if !self.uncounted.is_empty()
            && let Some((key, known)) = self.uncounted.remove_entry(key)
        {
            self.buckets.insert(key, known);
        }
        Ok(outcome)
    }
}

/// Settles a reservation for `cost` at the time when it was made: as if that had been charged in the first place, whether
/// there was room or not.
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
    Ok(())
}

/// The versions that matter to a bucket at a time: from the one that decided its last row to the one in force.
fn in_force<'v>(versions: &'v [Version], head: &Head, at_us: i64) -> &'v [Version] {
    if versions.len() == 1 {
        return versions;
    }
    let at_us = if head.seq == 0 { at_us } else { head.clamp(at_us) };
    let end = versions.partition_point(|version| version.changed_us <= at_us).max(1);
    let decided = versions.partition_point(|version| version.version < head.zone_version);
    versions.get(decided.min(end - 1)..end).unwrap_or(versions)
}

/// The error of a need: the rows that are kept answer every question.
fn failed(need: Need) -> Error {
    match need {
        Need::Failed(error) => error,
        need => Error::schema(format!("the back-test forgot what was asked: {need:?}; report this")),
    }
}
