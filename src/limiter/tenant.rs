//! A client that keeps its lease alive, and paces itself by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::leases::Leases;
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, Result};
use crate::lease::{Lease, Want};

/// The longest wait after a refresh that failed, in seconds.
const BACK_OFF_S: u32 = 60;

/// The capacity that a client may use when its lease has ended and it could not get another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lapsed {
    /// Nothing: for work that can wait.
    #[default]
    Pessimistic,
    /// All that it wants: for what is guarded by other means. The capacity may be exceeded.
    Optimistic,
    /// The units that its last lease said are safe; nothing before the first one. With the capacity by the number of
    /// clients, all that were known together stay within it.
    Safe,
}

/// A client of a resource: it takes a lease, refreshes it, and knows at any time what it may use. Clones are the same client.
///
/// It reckons by a monotonic clock of its own, from when it asked the question that was answered. The database reckons from when
/// it granted, which is later, or tells how long the lease still lasts; so the client stops before others are given what it had,
/// whatever the two clocks show. One thing remains: while a refresh
/// is under way, and if its answer is lost, the client goes by the lease before, of which others may have been given a
/// part. It is over with the answer to the next refresh, and with the end of that lease at the latest.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::capacity::{Lapsed, Tenant, Want};
/// # use tallygate::{Limiter, Policy};
/// # let limiter = Limiter::connect("sqlite::memory:").await?;
/// # let gpus = Policy::capacity(100, Duration::from_secs(60))?;
/// # limiter.operator().set_zone("render", &gpus, None, "docs").await?;
/// let tenant = Tenant::new(limiter.leases(), Want::new("render", "gpu", "worker-1", 40), Lapsed::Safe);
/// assert_eq!(tenant.capacity(), 0, "nothing was granted yet");
/// tenant.refresh().await?; // a service spawns `tenant.run()`, which does so for as long as it lives
/// assert_eq!(tenant.capacity(), 40);
/// assert_eq!(tenant.pass(40, Duration::from_secs(1)), None, "forty in a second may go on");
/// assert!(tenant.pass(1, Duration::from_secs(1)).is_some(), "one more waits");
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Tenant {
    leases: Leases,
    lapsed: Lapsed,
    state: Arc<Mutex<State>>,
}

struct State {
    want: Want,
    /// The last lease, and until when it holds by the client's own clock.
    lease: Option<(Lease, Instant)>,
    /// The question that was asked and not answered yet.
    asked: Option<Want>,
    /// The units that were used at the pace of the capacity, in millionths of a unit, and the time of that.
    used: (i128, Instant),
}

impl Tenant {
    /// A client that has no lease yet.
    pub fn new(leases: Leases, want: Want, lapsed: Lapsed) -> Self {
        let state = State { want, lease: None, asked: None, used: (0, Instant::now()) };
        Self { leases, lapsed, state: Arc::new(Mutex::new(state)) }
    }

    /// Sets what it wants from the next refresh on.
    pub fn want(&self, wants: i64) {
        self.state().want.wants = wants;
    }

    /// The units that it may use now.
    pub fn capacity(&self) -> i64 {
        self.state().capacity(self.lapsed)
    }

    /// May `cost` units go on, where the capacity is so many units per `per`? None if so, and they are counted; else how long
    /// to wait. In memory; up to what flows in during one `per` is saved up.
    pub fn pass(&self, cost: i64, per: Duration) -> Option<Duration> {
        self.state().pass(self.lapsed, cost, per)
    }

    /// Takes a lease, or refreshes it. In any case [`capacity`](Self::capacity) goes by what is known
    /// afterwards.
    ///
    /// # Errors
    /// Those of [`Leases::get`]. Conflict: another process goes by this client's name.
    pub fn refresh(&self) -> BoxFuture<'_, Result<Lease>> {
        boxed(async move {
            loop {
                let began = Instant::now();
                let want = self.state().ask();
                let granted = self.leases.get(want).await;
                let mut state = self.state();
                let refused = |error: &Error| error.is_invalid() || error.is_conflict();
                if granted.as_ref().err().is_none_or(refused) {
                    state.asked = None;
                }
                let lease = granted?;
                state.lease = Some((lease.clone(), began + lease.length()));
                // The answer that was lost is of so long ago that its lease has ended: ask anew.
                if !lease.replayed || lease.wants == 0 || lease.length_us > 0 {
                    return Ok(lease);
                }
            }
        })
    }

    /// Refreshes as often as each lease says, for ever; after a failure it waits 1 to 60 seconds, at random and longer each time.
    pub fn run(&self) -> BoxFuture<'_, ()> {
        boxed(async move {
            let mut failures = 0_u32;
            loop {
                let wait = match self.refresh().await {
                    Ok(lease) => {
                        failures = 0;
                        lease.refresh()
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a lease was not refreshed");
                        failures += 1;
                        let most = 2_u32.saturating_pow(failures).min(BACK_OFF_S);
                        Duration::from_secs(1).mul_f64(1.0 + f64::from(most - 1) * fastrand::f64())
                    }
                };
                sleep(wait).await;
            }
        })
    }

    /// Gives back what it has. It may use nothing from when this is called.
    ///
    /// # Errors
    /// Those of [`Leases::release`].
    pub fn release(&self) -> BoxFuture<'_, Result<()>> {
        boxed(async move {
            let lease = self.state().lease.take();
            match lease {
                Some((lease, _)) => self.leases.release(lease).await.map(drop),
                None => Ok(()),
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The question to ask: the same again, under the same transaction, while it was not answered; the answer may have
    /// been lost.
    fn ask(&mut self) -> Want {
        if let Some(asked) = &self.asked {
            return asked.clone();
        }
        let want = self.want.clone().txn(Uuid::now_v7());
        let live = self.lease.as_ref().filter(|(_, until)| *until > Instant::now());
        let want = live.map(|(lease, _)| want.clone().after(lease)).unwrap_or(want);
        self.asked.insert(want).clone()
    }

    fn capacity(&self, lapsed: Lapsed) -> i64 {
        match (&self.lease, lapsed) {
            (Some((lease, until)), _) if *until > Instant::now() => lease.has,
            (_, Lapsed::Pessimistic) => 0,
            (_, Lapsed::Optimistic) => self.want.wants,
            (lease, Lapsed::Safe) => lease.as_ref().map_or(0, |(lease, _)| lease.safe_capacity),
        }
    }

    fn pass(&mut self, lapsed: Lapsed, cost: i64, per: Duration) -> Option<Duration> {
        let now = Instant::now();
        let per_us = i128::try_from(per.as_micros()).unwrap_or(i128::MAX >> 64).max(1);
        let capacity = i128::from(self.capacity(lapsed));
        let passed_us =
            i128::try_from(now.duration_since(self.used.1).as_micros()).unwrap_or(i128::MAX >> 64);
        // A level that drains: a microsecond takes the capacity, a unit is as many as `per` has microseconds.
        let used = (self.used.0 - passed_us.min(per_us) * capacity).max(0);
        let wanted = used + i128::from(cost.max(0)) * per_us;
        let room = capacity * per_us;
        if wanted <= room {
            self.used = (wanted, now);
            return None;
        }
        self.used = (used, now);
        let wait_us = if capacity == 0 { per_us } else { (wanted - room + capacity - 1) / capacity };
        Some(Duration::from_micros(u64::try_from(wait_us).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::decision::Reason;

    fn state(has: i64) -> State {
        let want = Want::new("render", "gpu", "worker", 50);
        let lease = Lease {
            zone: "render".to_owned(),
            resource: "gpu".to_owned(),
            client: "worker".to_owned(),
            txn_id: Uuid::now_v7(),
            seq: 7,
            wants: 50,
            has,
            reason: Reason::OverLimit,
            weight: 1,
            band: 0,
            capacity: 100,
            remaining: 0,
            safe_capacity: 10,
            refresh_us: 5_000_000,
            length_us: 20_000_000,
            granted_at: DateTime::UNIX_EPOCH,
            zone_version: 1,
            replayed: false,
        };
        let now = Instant::now();
        State { want, lease: Some((lease.clone(), now + lease.length())), asked: None, used: (0, now) }
    }

    const MODES: [Lapsed; 3] = [Lapsed::Pessimistic, Lapsed::Optimistic, Lapsed::Safe];

    #[tokio::test(start_paused = true)]
    async fn a_lapsed_lease_leaves_what_the_mode_says() {
        let mut state = state(40);
        assert_eq!(MODES.map(|mode| state.capacity(mode)), [40, 40, 40]);
        tokio::time::advance(Duration::from_micros(19_999_999)).await;
        assert_eq!(MODES.map(|mode| state.capacity(mode)), [40, 40, 40]);
        tokio::time::advance(Duration::from_micros(1)).await;
        assert_eq!(MODES.map(|mode| state.capacity(mode)), [0, 50, 10]);
        state.lease = None;
        assert_eq!(MODES.map(|mode| state.capacity(mode)), [0, 50, 0], "nothing was ever granted");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_answered_is_asked_again_as_it_was() {
        let mut state = state(40);
        let first = state.ask();
        assert_eq!(first.follows, Some(7));
        tokio::time::advance(Duration::from_secs(3)).await;
        state.want.wants = 9;
        assert_eq!(state.ask(), first, "its answer may have been lost");
        state.asked = None;
        let next = state.ask();
        assert_eq!((next.wants, next.follows), (9, Some(7)));
        assert!(next.txn != first.txn);
        // A lease that has ended is followed by a new one.
        state.asked = None;
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(state.ask().follows, None);
    }

    /// The answer to the first question is lost, or the question itself. The database is there again when a lease that was granted
    /// then has ended, or while it lasts.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    #[tokio::test]
    async fn after_an_outage_it_has_its_lease_for_as_long_as_that_lasts() {
        let (minute, want) = (Duration::from_secs(60), Want::new("render", "gpu", "worker", 40));
        for (reached, outage_s, left_s) in [(false, 300, 60), (true, 300, 60), (true, 45, 15)] {
            let clock = crate::testing::Clock::at(DateTime::UNIX_EPOCH);
            let limiter =
                crate::Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
            let gpus = crate::Policy::capacity(100, minute).unwrap();
            limiter.operator().set_zone("render", &gpus, None, "test").await.unwrap();
            let tenant = Tenant::new(limiter.leases(), want.clone(), Lapsed::Pessimistic);
            let lost = tenant.state().ask();
            if reached {
                limiter.leases().get(lost).await.unwrap();
            }
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(outage_s)).await;
            tokio::time::resume();
            clock.advance(Duration::from_secs(outage_s));
            let lease = tenant.refresh().await.unwrap();
            assert_eq!(
                (lease.has, lease.length()),
                (40, Duration::from_secs(left_s)),
                "{reached} {outage_s}"
            );
            assert_eq!(tenant.capacity(), 40, "{reached} {outage_s}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_paced_by_the_capacity() {
        let mut state = state(4);
        let second = Duration::from_secs(1);
        let mut pass = |cost| state.pass(Lapsed::Pessimistic, cost, second);
        assert_eq!([pass(3), pass(1)], [None, None]);
        assert_eq!(pass(1), Some(Duration::from_millis(250)));
        tokio::time::advance(Duration::from_micros(249_999)).await;
        assert_eq!(pass(1), Some(Duration::from_micros(1)));
        tokio::time::advance(Duration::from_micros(1)).await;
        assert_eq!(pass(1), None);
        // No more than one second's worth is saved up.
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!([pass(4), pass(1)], [None, Some(Duration::from_millis(250))]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pass(1), Some(second), "there is no lease any more");
    }
}
