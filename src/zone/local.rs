//! A zone of which processes decide locally for a time, and what makes up for it.
//!
//! A process takes units of a bucket at one time and spends them until the time L later. So that no window holds more than
//! was asked for, the policy that is stored and decided by is a stricter one; no decider knows of it:
//!
//! - *Sliding log*, at most R in any W: what is spent in (t − W, t] was taken in (t − W − L, t]. The window counts W + L.
//! - *Token and leaky bucket*, a burst of B and R in each W: what is spent in d was taken in d + L. The burst is less by what
//!   flows in meanwhile, ⌈R L / W⌉.
//! - *Fixed window*: what was taken ends with its window. Nothing else is needed.

use std::time::Duration;

use super::{Algorithm, Policy, WINDOW_US_MAX, micros, show_duration};
use crate::error::{Error, Result};

impl Policy {
    /// For how long at most (1 µs to less than the window) a process may decide checks of a bucket by itself, with units that
    /// it took of it before; None for never. Only for sliding logs, fixed windows, token buckets and leaky buckets.
    ///
    /// The limit still holds in every window. Something makes up for it: a sliding log counts a window that is longer
    /// by that, and the burst of a token bucket or leaky bucket is less by what flows in meanwhile, which
    /// [`window_us`](Self::window_us), [`burst`](Self::burst) and [`limit`](Self::limit) tell from then on. The policy
    /// that was asked for is told by [`asked`](Self::asked), and by JSON.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use tallygate::Policy;
    /// let asked = Policy::sliding_log(1_000, Duration::from_secs(60))?;
    /// let policy = asked.with_local(Some(Duration::from_secs(2)));
    /// assert_eq!((policy.window_us(), policy.asked()), (62_000_000, asked));
    /// let policy = Policy::token_bucket(100, Duration::from_secs(1), Some(500))?.with_local(Some(Duration::from_millis(200)));
    /// assert_eq!(policy.limit(), 480);
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    #[must_use]
    pub fn with_local(self, local: Option<Duration>) -> Self {
        self.locally(local.map(micros))
    }

    pub(super) fn locally(self, local_us: Option<i64>) -> Self {
        let asked = self.asked();
        match local_us {
            Some(local_us) => {
                let (longer_us, less) = asked.price(local_us);
                let burst = if less > 0 { Some(asked.limit().saturating_sub(less)) } else { asked.burst() };
                asked.counting(asked.window_us().saturating_add(longer_us), burst, Some(local_us))
            }
            None => asked,
        }
    }

    /// The policy that was asked for, before its window or burst made up for local decisions; those it has none of.
    #[must_use]
    pub fn asked(&self) -> Self {
        let Some(local_us) = self.local_us() else { return *self };
        let (longer_us, less) = self.price(local_us);
        let burst = if less > 0 { Some(self.limit().saturating_add(less)) } else { self.burst() };
        self.counting(self.window_us().saturating_sub(longer_us), burst, None)
    }

    /// The price of so many microseconds of local decisions: the time by which the window is longer, and the
    /// units by which the burst is less.
    fn price(&self, local_us: i64) -> (i64, i64) {
        let local_us = local_us.clamp(0, WINDOW_US_MAX);
        match self.algorithm() {
            Algorithm::SlidingLog => (local_us, 0),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (0, self.flows_in(local_us)),
            _ => (0, 0),
        }
    }

    /// The tokens that flow into a level in so many microseconds, rounded up: ⌈R t / W⌉.
    pub(crate) fn flows_in(&self, us: i64) -> i64 {
        let (per_us, per_token) = self.units();
        let per_token = i128::from(per_token.max(1));
        let units = (i128::from(us) * i128::from(per_us) + per_token - 1).div_euclid(per_token);
        i64::try_from(units).unwrap_or(i64::MAX)
    }

    pub(super) fn validate_local(&self) -> Result<()> {
        let Some(local_us) = self.local_us() else { return Ok(()) };
        let (asked, algorithm) = (self.asked(), self.algorithm());
        if !matches!(
            algorithm,
            Algorithm::SlidingLog | Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket
        ) {
            return Err(Error::invalid(format!(
                "{algorithm} cannot be decided locally; leave local out, or use sliding-log, fixed-window, token-bucket \
                 or leaky-bucket"
            )).of("local_us"));
        }
        if !(1..asked.window_us()).contains(&local_us) {
            return Err(Error::invalid(format!(
                "local {} is out of range; use 1 µs to less than the window, {}",
                show_duration(local_us),
                show_duration(asked.window_us())
            ))
            .of("local_us"));
        }
        if self.window_us() > WINDOW_US_MAX {
            return Err(Error::invalid(format!(
                "a window of {} and local {} come to more than 10 years; make one of them shorter",
                show_duration(asked.window_us()),
                show_duration(local_us)
            ))
            .of("local_us"));
        }
        if self.limit() < 1 {
            return Err(Error::invalid(format!(
                "in local {} flow in {} units, which leave nothing of a burst of {}; make local shorter or the burst larger",
                show_duration(local_us),
                self.flows_in(local_us),
                asked.limit()
            )).of("local_us"));
        }
        Ok(())
    }
}
