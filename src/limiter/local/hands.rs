//! The units that this process has in hand of buckets: without a database, a task or a random number.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch::{self, Receiver, Sender};

use crate::engine::Took;
use crate::store::Bucket;
use crate::zone::UNITS_MAX;

/// Buckets that are known at most; of further ones each check is asked of the database.
const MOST: usize = 16_384;

/// The time between two looks for those that are of no more use, where there are too many.
const SWEEP_US: i64 = 1_000_000;

/// With less than this a process is no better off than by asking for each check: a take and its settlement are two calls, and a
/// key that is asked for now and then would have three rows for each check.
const LEAST: i64 = 4;

/// The hands, by bucket.
pub(super) struct Hands {
    known: Mutex<Known>,
    pub clock: Clock,
}

#[derive(Default)]
struct Known {
    hands: HashMap<Bucket, Hand>,
    swept_us: i64,
}

/// The units in hand of one bucket.
struct Hand {
    /// The oldest first.
    leases: VecDeque<Lease>,
    demand: Demand,
    /// Open while somebody is on the way to take more.
    coming: Receiver<()>,
    /// The units that were left in the bucket when this process last heard of it.
    remaining: i64,
    /// Until then nothing is taken: there was little left.
    exact_until_us: i64,
    local_us: i64,
}

/// Units that were taken, by the clock of this process.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub took: Took,
    pub left: i64,
    /// The time when they were asked for, which is not later than the database took them.
    sent_us: i64,
    /// So it stops before the database's own time is over.
    stops_us: i64,
}

/// The demand: how much is asked for, and how often.
#[derive(Default)]
struct Demand {
    since_us: i64,
    units: Count,
    checks: Count,
}

#[derive(Default)]
struct Count {
    /// Since a while ago.
    now: i64,
    /// A moving average, in the time for which a process may decide.
    average: i64,
}

/// A check that was decided here.
pub(super) struct Spent {
    pub took: Took,
    /// The units that are still in hand of the same.
    pub left: i64,
    /// By the database's clock, at the latest.
    pub at_us: i64,
}

/// The result of a check of a bucket here.
#[derive(Default)]
pub(super) struct Turn {
    /// None where the database must be asked.
    pub spent: Option<Spent>,
    /// Where units are to be taken: what is dropped once they are in hand, or will not be.
    pub asking: Option<Sender<()>>,
    /// Closed once the units that somebody is on the way to take are in hand, or will not be; None where nothing is to
    /// be waited for.
    pub coming: Option<Receiver<()>>,
    /// The leases that ended and were not spent.
    pub ended: Vec<Lease>,
}

/// Microseconds that never go back.
pub(super) enum Clock {
    Own(Instant),
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    Test(crate::testing::Clock),
}

impl Default for Hands {
    fn default() -> Self {
        Self::by(Clock::Own(Instant::now()))
    }
}

impl Hands {
    pub fn by(clock: Clock) -> Self {
        Self { known: Mutex::default(), clock }
    }

    /// Spends of what is in hand, if it is enough, and says whether more is to be taken. Of the cost, so much is `new`: it was
    /// not asked for before.
    pub fn spend(&self, bucket: &Bucket, cost: i64, new: i64, local_us: i64) -> Turn {
        let now_us = self.clock.now_us();
        let mut known = self.known();
        let Some(hand) = known.hand(bucket, local_us, now_us) else { return Turn::default() };
        let ended = hand.end(now_us);
        hand.demand.add(new, local_us, now_us);
        let lease = hand.leases.iter_mut().find(|lease| lease.left >= cost);
        let spent = lease.map(|lease| {
            lease.left -= cost;
            let at_us = lease.took.at_us.saturating_add(now_us.saturating_sub(lease.sent_us));
            Spent { took: lease.took, left: lease.left, at_us }
        });
        let asking = hand.asks(now_us);
        let coming = (spent.is_none() && hand.is_asking()).then(|| hand.coming.clone());
        Turn { spent, asking, ended, coming }
    }

    /// The units to take.
    pub fn wants(&self, bucket: &Bucket) -> i64 {
        self.known().hands.get(bucket).map_or(0, |hand| hand.demand.units.of_half()).clamp(LEAST, UNITS_MAX)
    }

    /// Puts what was taken into the hand.
    pub fn put(&self, bucket: &Bucket, took: Took, sent_us: i64) {
        if let Some(hand) = self.known().hands.get_mut(bucket) {
            let stops_us = sent_us.saturating_add(took.ends_us.saturating_sub(took.at_us));
            hand.leases.push_back(Lease { took, left: took.units, sent_us, stops_us });
            hand.remaining = took.remaining;
        }
    }

    /// Takes nothing more for a time.
    pub fn pause(&self, bucket: &Bucket, for_us: i64) {
        let now_us = self.clock.now_us();
        if let Some(hand) = self.known().hands.get_mut(bucket) {
            hand.exact_until_us = now_us.saturating_add(for_us);
        }
    }

    /// The units that were left in the bucket besides what is in hand.
    pub fn learn(&self, bucket: &Bucket, remaining: i64) {
        if let Some(hand) = self.known().hands.get_mut(bucket) {
            hand.remaining = remaining;
        }
    }

    /// May a check that goes to the database be blocked there because of what is in hand, or on its way to it?
    pub fn stand_in_the_way(&self, bucket: &Bucket, cost: i64) -> bool {
        self.known().hands.get(bucket).is_some_and(|hand| hand.stands_in_the_way(cost))
    }

    /// Takes out of the hand all that stands in the way of such a check, and nothing more for a time; with what is on its way.
    pub fn give_way(&self, bucket: &Bucket, cost: i64) -> (Vec<Lease>, Option<Receiver<()>>) {
        let now_us = self.clock.now_us();
        let mut known = self.known();
        let hand = known.hands.get_mut(bucket).filter(|hand| hand.stands_in_the_way(cost));
        let Some(hand) = hand else { return (Vec::new(), None) };
        hand.exact_until_us = hand.exact_until_us.max(now_us.saturating_add(hand.local_us / 4));
        let coming = hand.is_asking().then(|| hand.coming.clone());
        (hand.leases.drain(..).filter(|lease| lease.left > 0).collect(), coming)
    }

    /// Takes what has ended of a bucket out of the hand.
    pub fn end(&self, bucket: &Bucket) -> Vec<Lease> {
        let now_us = self.clock.now_us();
        self.known().hands.get_mut(bucket).map(|hand| hand.end(now_us)).unwrap_or_default()
    }

    /// Takes everything out of all hands that is not spent.
    pub fn empty(&self) -> Vec<(Bucket, Lease)> {
        let mut known = self.known();
        let hands = known.hands.iter_mut();
        let leases =
            hands.flat_map(|(bucket, hand)| hand.leases.drain(..).map(|lease| (bucket.clone(), lease)));
        leases.filter(|(_, lease)| lease.left > 0).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn hand(&mut self, bucket: &Bucket, local_us: i64, now_us: i64) -> Option<&mut Hand> {
        if !self.hands.contains_key(bucket) {
            if self.hands.len() >= MOST && now_us.saturating_sub(self.swept_us) >= SWEEP_US {
                self.swept_us = now_us;
                self.hands.retain(|_, hand| hand.is_of_use(now_us));
            }
            if self.hands.len() >= MOST {
                return None;
            }
            self.hands.insert(bucket.clone(), Hand::new(local_us, now_us));
        }
        let hand = self.hands.get_mut(bucket)?;
        hand.local_us = local_us;
        Some(hand)
    }
}

impl Hand {
    fn new(local_us: i64, now_us: i64) -> Self {
        let demand = Demand { since_us: now_us, ..Demand::default() };
        let (_, coming) = watch::channel(());
        let (leases, remaining) = (VecDeque::new(), i64::MAX);
        Self { leases, demand, coming, remaining, exact_until_us: now_us, local_us }
    }

    fn is_asking(&self) -> bool {
        !self.coming.is_closed()
    }

    /// The leases that have ended and were not spent. Spent ones need no word.
    fn end(&mut self, now_us: i64) -> Vec<Lease> {
        self.leases.retain(|lease| lease.left > 0);
        let (ended, live) =
            std::mem::take(&mut self.leases).into_iter().partition(|lease| lease.stops_us <= now_us);
        self.leases = live;
        Vec::from_iter::<VecDeque<Lease>>(ended)
    }

    fn left(&self) -> i64 {
        self.leases.iter().map(|lease| lease.left).sum()
    }

    /// It costs about as much as was left besides; others may have spent of that since.
    fn stands_in_the_way(&self, cost: i64) -> bool {
        cost > self.remaining / 2 && (self.left() > 0 || self.is_asking())
    }

    /// Are units to be taken now? A quarter of what was taken last is left, or less.
    fn asks(&mut self, now_us: i64) -> Option<Sender<()>> {
        let taken = self.leases.back().map_or(0, |lease| lease.took.units);
        let enough = self.left() > taken / 4 || self.demand.checks.of_half() < LEAST;
        if enough || now_us < self.exact_until_us || self.is_asking() {
            return None;
        }
        let (asking, coming) = watch::channel(());
        self.coming = coming;
        Some(asking)
    }

    fn is_of_use(&self, now_us: i64) -> bool {
        let idle_us = now_us.saturating_sub(self.demand.since_us);
        self.is_asking() || !self.leases.is_empty() || idle_us <= self.local_us.saturating_mul(2)
    }
}

impl Demand {
    /// Another check; one that was asked for before costs nothing new.
    fn add(&mut self, new: i64, local_us: i64, now_us: i64) {
        let passed_us = now_us.saturating_sub(self.since_us);
        if passed_us >= local_us / 4 {
            self.units.pass(local_us, passed_us);
            self.checks.pass(local_us, passed_us);
            self.since_us = now_us;
        }
        self.units.add(new);
        self.checks.add(new.min(1));
    }
}

impl Count {
    fn add(&mut self, more: i64) {
        self.now = self.now.saturating_add(more);
    }

    fn pass(&mut self, local_us: i64, passed_us: i64) {
        let now = i128::from(self.now) * i128::from(local_us) / i128::from(passed_us.max(1));
        let now = i64::try_from(now).unwrap_or(i64::MAX / 2);
        // A demand of long ago says nothing of now.
        self.average = if passed_us > local_us { now } else { self.average.midpoint(now) };
        self.now = 0;
    }

    /// The number that is likely to be asked for in half of the time: they are spent before it ends then. A quarter of
    /// that has not passed yet since the average was made, so that what came meanwhile tells the least that comes in
    /// four times as long.
    fn of_half(&self) -> i64 {
        self.average.max(self.now.saturating_mul(4)) / 2
    }
}

impl Clock {
    pub fn now_us(&self) -> i64 {
        match self {
            Self::Own(began) => i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX),
            #[cfg(all(feature = "sqlite", feature = "testing"))]
            Self::Test(clock) => clock.now().timestamp_micros(),
        }
    }

    /// Does time pass without anybody moving it?
    pub fn runs(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}
