//! For the tests of an application: a clock that they move by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

/// A clock that stands still until a test moves it; clones show the same time. It is for the embedded engine. A server's database
/// decides by its own, and one of tests by a clock in it: [`Owner::set_clock`](crate::schema::Owner::set_clock).
///
/// The time of the runtime goes on beside it. Pausing that (`tokio::time::pause`) is no way: every deadline would be over at
/// once.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::testing::Clock;
/// use tallygate::{Check, Limiter, Policy};
///
/// let clock = Clock::at("2026-03-29T00:59:59Z".parse().unwrap());
/// let limiter = Limiter::connect("sqlite::memory:").await?.with_clock(&clock)?;
/// limiter.operator().set_zone("login", &Policy::sliding_log(1, Duration::from_secs(60))?, None, "test").await?;
/// assert!(limiter.check(Check::new("login", "user:42")).await?.is_allowed());
/// assert!(limiter.check(Check::new("login", "user:42")).await?.blocked);
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check(Check::new("login", "user:42")).await?.is_allowed());
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Shows this time, to the microsecond.
    pub fn at(time: DateTime<Utc>) -> Self {
        Self(Arc::new(AtomicI64::new(time.timestamp_micros())))
    }

    /// The time that it shows.
    pub fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0.load(Ordering::SeqCst)).unwrap_or_default()
    }

    /// Sets it, forwards or back.
    pub fn set(&self, time: DateTime<Utc>) {
        self.0.store(time.timestamp_micros(), Ordering::SeqCst);
    }

    /// Moves it forwards.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}
