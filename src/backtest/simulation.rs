//! The part of the traffic that gets through: one policy, one stretch of traffic, and the figures.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::Backtest;
use super::tenants::Tenants;
use super::traffic::{REQUESTS_MAX, Request};
use super::workers::Workers;
use crate::decide::Ask;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Policy};

const SECOND_US: i64 = 1_000_000;

/// The number of steps of a curve, about.
const POINTS: i64 = 500;

/// The part of some traffic that a policy lets through. Amounts are units of cost, which are requests where each costs 1.
/// Requests that wait in a queue have passed when their turn comes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Simulation {
    /// The policy that decided.
    pub policy: Policy,
    /// The units that were asked for: `passed` and `blocked` together.
    pub offered: i64,
    /// The units that passed.
    pub passed: i64,
    /// The units that were blocked.
    pub blocked: i64,
    /// The part of `passed` that had to wait for its turn.
    pub delayed: i64,
    /// The longest wait for a turn.
    pub longest_wait_us: i64,
    /// The most that passed of one key in any stretch of the policy's window (its longest, where a calendar has several):
    /// in (t − window, t] for any t.
    pub worst_window: i64,
    /// The most that passed in any second.
    pub peak_per_second: i64,
    /// The number of different keys.
    pub keys: usize,
    /// The share of each client, by its name; empty where none has one.
    pub clients: BTreeMap<String, Got>,
    /// Jain's index of fairness of what the clients got: 1 where all got the same, 1/n where one of n got all. None where
    /// no client got anything. (R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination for
    /// Resource Allocation in Shared Computer Systems, DEC-TR-301, 1984.)
    pub fairness: Option<f64>,
    /// The units that were offered and that passed over time, in at most 501 steps of the same length.
    pub curve: Vec<Point>,
}

/// The share of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Got {
    /// The units that it asked for.
    pub offered: i64,
    /// The part of them that passed.
    pub passed: i64,
}

/// A step of a curve: the most that there was, at any time of it, in the window that ended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Point {
    /// The beginning of the step, in microseconds since 1970 in UTC.
    pub from_us: i64,
    /// The units that were offered, of all keys.
    pub offered: i64,
    /// The units that passed, of all keys.
    pub passed: i64,
}

/// Puts each request to a policy, in its turn, and counts what gets through. The requests of one key are to be in the order of
/// their times. The decisions are those of a [`Backtest`]: to the microsecond those of a zone with this policy. Slots of
/// concurrency are held for their whole time.
///
/// Of a capacity each client of a key (all requests that name none are one client's) keeps a lease: it wants half as much again
/// as it was asked for within one length of a lease, asks again as often as it is told to, and lets through evenly what it has in
/// that length, as a [`Tenant`](crate::capacity::Tenant) does. Up to twice the capacity can pass in one such length, as through a
/// token bucket.
///
/// In a queue each request is an item, less important by a band unless it is critical. Workers take what the pace lets through
/// as soon as it does, and are done with it at once. An item that is evicted is blocked.
///
/// Memory: some 100 bytes a request while it runs.
///
/// ```
/// use std::time::Duration;
/// use tallygate::backtest::{Shape, Traffic, simulate};
/// use tallygate::Policy;
///
/// let minute_us = 60_000_000;
/// let traffic = Traffic {
///     shape: Shape::Border, rate: 20, window_us: minute_us, length_us: 5 * minute_us, members: 1, seed: 1,
/// };
/// let requests = traffic.requests()?;
/// let fixed = simulate(Policy::fixed_window(10, Duration::from_secs(60))?, &requests)?;
/// let exact = simulate(Policy::sliding_log(10, Duration::from_secs(60))?, &requests)?;
/// assert_eq!((fixed.worst_window, exact.worst_window), (20, 10));
/// # Ok::<(), tallygate::Error>(())
/// ```
///
/// # Errors
/// Invalid: what [`Policy::validate`] or [`Backtest::check`] refuses; more than 1,000,000
/// requests.
pub fn simulate(policy: Policy, requests: &[Request]) -> Result<Simulation> {
    if requests.len() > REQUESTS_MAX {
        return Err(Error::invalid(format!(
            "{} requests are too many to simulate; use up to {REQUESTS_MAX}",
            requests.len()
        )));
    }
    let turns = turns(policy, requests)?;
    let (mut asked, mut by_key): (Passes, HashMap<&str, Passes>) = Default::default();
    let mut clients: BTreeMap<String, Got> = BTreeMap::new();
    let (mut delayed, mut longest_wait_us) = (0, 0);
    for (request, turn_us) in requests.iter().zip(turns) {
        let Request { at_us, key, cost, .. } = request;
        asked.push((*at_us, *cost));
        let passes = by_key.entry(key).or_default();
        if let Some(turn_us) = turn_us {
            passes.push((turn_us, *cost));
            let wait_us = turn_us.saturating_sub(*at_us);
            delayed += if wait_us > 0 { *cost } else { 0 };
            longest_wait_us = longest_wait_us.max(wait_us);
        }
        if let Some(client) = &request.client {
            let got = clients.entry(client.clone()).or_default();
            got.offered += cost;
            got.passed += if turn_us.is_some() { *cost } else { 0 };
        }
    }
    by_key.values_mut().for_each(|passes| passes.sort_unstable());
    let window_us = policy.window_us();
    let worst_window = by_key.values().map(|passes| most_within(passes, window_us)).max().unwrap_or(0);
    let mut passed: Passes = by_key.values().flatten().copied().collect();
    asked.sort_unstable();
    passed.sort_unstable();
    // A million times 2^40 fits.
    let [offered_units, passed_units] =
        [&asked, &passed].map(|passes| passes.iter().map(|pass| pass.1).sum::<i64>());
    Ok(Simulation {
        policy,
        offered: offered_units,
        passed: passed_units,
        blocked: offered_units - passed_units,
        delayed,
        longest_wait_us,
        worst_window,
        peak_per_second: most_within(&passed, SECOND_US),
        keys: by_key.len(),
        fairness: fairness(&clients),
        clients,
        curve: curve(&asked, &passed, window_us),
    })
}

/// The time of each request's turn; None where it is blocked.
fn turns(policy: Policy, requests: &[Request]) -> Result<Vec<Option<i64>>> {
    match policy.algorithm() {
        Algorithm::Queue => Workers::new(policy)?.turns(requests),
        Algorithm::Capacity => {
            let mut tenants = Tenants::new(policy)?;
            let turn = |request: &Request| Ok(tenants.pass(request)?.then_some(request.at_us));
            requests.iter().map(turn).collect()
        }
        _ => {
            let mut test = Backtest::new(policy)?;
            requests.iter().map(|request| checked(&mut test, request)).collect()
        }
    }
}

fn checked(test: &mut Backtest, request: &Request) -> Result<Option<i64>> {
    let Request { at_us, key, cost, member, critical, .. } = request;
    let ask = Ask { cost: *cost, critical: *critical, member: member.as_deref(), ..Ask::default() };
    let outcome = test.check(key, &ask, *at_us)?;
    let turn_us = at_us.max(&outcome.decided_us).saturating_add(outcome.delay_us.unwrap_or(0));
    Ok(outcome.reason.allows().then_some(turn_us))
}

/// Times and units, in the order of the times.
type Passes = Vec<(i64, i64)>;

/// The most units in (t − window, t] for any t, by two pointers.
fn most_within(passes: &Passes, window_us: i64) -> i64 {
    let (mut most, mut within) = (0, 0);
    let mut leaving = passes.iter().peekable();
    for (at_us, units) in passes {
        within += units;
        while let Some((_, left)) = leaving.next_if(|old| old.0 <= at_us.saturating_sub(window_us)) {
            within -= left;
        }
        most = most.max(within);
    }
    most
}

/// The curve from the first request until the last of all has left the window, but at most twice as long as the requests took
/// to come.
fn curve(asked: &Passes, passed: &Passes, window_us: i64) -> Vec<Point> {
    let ends = asked.first().zip(asked.last().max(passed.last()));
    let Some(((first_us, _), (last_us, _))) = ends else { return Vec::new() };
    let last_us = last_us.saturating_add(window_us.min(last_us - first_us));
    let step_us = (last_us - first_us) / POINTS + 1;
    let starts_us = (*first_us..=last_us).step_by(usize::try_from(step_us).unwrap_or(usize::MAX));
    let (asked, passed) = (Totals::of(asked), Totals::of(passed));
    let point = |from_us: i64| Point {
        from_us,
        offered: asked.most(from_us, step_us, window_us),
        passed: passed.most(from_us, step_us, window_us),
    };
    starts_us.map(point).collect()
}

/// The sums up to each time.
struct Totals(Passes);

impl Totals {
    fn of(passes: &Passes) -> Self {
        let sum = |total: &mut i64, (at_us, units): &(i64, i64)| {
            *total += units;
            Some((*at_us, *total))
        };
        Self(passes.iter().scan(0, sum).collect())
    }

    /// The most in a window that ends in the step.
    fn most(&self, from_us: i64, step_us: i64, window_us: i64) -> i64 {
        let (first, end) = (self.after(from_us), self.after(from_us.saturating_add(step_us - 1)));
        let rises = self.0.get(first..end).unwrap_or_default().iter().map(|rise| rise.0);
        let within = |at_us: i64| self.up_to(at_us) - self.up_to(at_us.saturating_sub(window_us));
        rises.map(within).fold(within(from_us), i64::max)
    }

    fn up_to(&self, at_us: i64) -> i64 {
        self.after(at_us).checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |total| total.1)
    }

    /// The place of the first sum that is later.
    fn after(&self, at_us: i64) -> usize {
        self.0.partition_point(|total| total.0 <= at_us)
    }
}

fn fairness(clients: &BTreeMap<String, Got>) -> Option<f64> {
    let shares = || clients.values().map(|got| got.passed as f64);
    let squares: f64 = shares().map(|share| share * share).sum();
    (squares > 0.0).then(|| shares().sum::<f64>().powi(2) / (clients.len() as f64 * squares))
}
