//! Waiting in the caller, until a check passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Line, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Inner, Limiter, until};
use crate::boxed::{BoxFuture, boxed};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::{Error, Result};

/// While a wait is longer than this, the bucket is looked at in between: something may be given back.
const GLANCE: Duration = Duration::from_secs(1);

/// A bucket by the name of its zone.
type Name = (String, String);

/// A line for each bucket that somebody waits for.
#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<Name, Waiting>>);

struct Waiting {
    /// The holder asks; the others wait in the order of their coming.
    line: Arc<Line<()>>,
    /// The number of those in it.
    count: usize,
}

/// A place in a line.
struct Place {
    inner: Arc<Inner>,
    name: Name,
}

impl Limiter {
    /// Decides a check, and while it is blocked waits and asks again, until it passes or `wait` is over.
    ///
    /// Waits exactly as long as the decision said, and up to a 32nd more, so that many who wait do not come at once.
    /// Where that is long, the bucket is looked at each second in between: a refund or a release may have made room. Of
    /// those who wait for one bucket in this process one asks at a time, in the order of their coming; at most
    /// [`Config::waiters`](crate::Config::waiters) wait in all. Each attempt is a decision of its own in the ledger, under a
    /// new transaction; the one that is returned names its own.
    ///
    /// # Errors
    /// Those of [`check`](Self::check). Invalid: the check names a transaction, whose first answer would hold for ever.
    /// Transient: too many wait already.
    pub fn check_until(&self, check: Check, wait: Duration) -> BoxFuture<'_, Result<Decision>> {
        boxed(async move {
            check.validate()?;
            if let Some(txn) = check.txn {
                return Err(Error::invalid(format!(
                    "a check that waits is asked anew each time, so it cannot be transaction {txn}; leave the id out"
                )));
            }
            let until = until(wait);
            let place = self.shards.of(&check.key).line_up((check.zone.clone(), check.key.clone()))?;
            let Ok(_turn) = timeout_at(until, place.turn()).await else {
                // Others came first all the time. The bucket's answer is told, as to anybody.
                return self.check(check).await;
            };
            loop {
                let asked = Instant::now();
                let decision = self.check(check.clone()).await?;
                let Some(wait) = decision.retry_after().filter(|_| decision.blocked) else {
                    return Ok(decision);
                };
                let jitter = Duration::from_micros(fastrand::u64(0..=micros(wait) / 32));
                let there = Instant::now().max(asked) + wait + jitter;
                if !self.room(&check, there, until).await? {
                    return Ok(decision);
                }
            }
        })
    }

    /// Waits until `there`, or until there is room before; false when `until` comes first.
    async fn room(&self, check: &Check, there: Instant, until: Instant) -> Result<bool> {
        loop {
            let glance = (Instant::now() + GLANCE).min(until);
            if there <= glance {
                sleep_until(there).await;
                return Ok(true);
            }
            sleep_until(glance).await;
            if glance == until {
                return Ok(false);
            }
            let peek = Check { cost: 0, record: false, ttl: None, ..check.clone() };
            let peek = self.check(peek).await?;
            if peek.remaining >= check.cost {
                return Ok(true);
            }
        }
    }
}

impl Inner {
    fn line_up(self: &Arc<Self>, name: Name) -> Result<Place> {
        let mut lines = self.waiters.lines();
        let waiting: usize = lines.values().map(|waiting| waiting.count).sum();
        if waiting >= self.config.waiters {
            return Err(Error::transient(format!("{waiting} checks wait already; try again later")));
        }
        let waiting = lines.entry(name.clone()).or_insert_with(|| Waiting { line: Arc::default(), count: 0 });
        waiting.count += 1;
        Ok(Place { inner: Arc::clone(self), name })
    }
}

impl Place {
    async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let line = self.inner.waiters.lines().get(&self.name).map(|waiting| Arc::clone(&waiting.line))?;
        Some(line.lock_owned().await)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.inner.waiters.lines();
        if let Some(waiting) = lines.get_mut(&self.name) {
            waiting.count -= 1;
            if waiting.count == 0 {
                lines.remove(&self.name);
            }
        }
    }
}

impl Waiters {
    fn lines(&self) -> MutexGuard<'_, HashMap<Name, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
