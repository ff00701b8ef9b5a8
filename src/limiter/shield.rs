//! A limit of this process alone, in front of all others: a cheap shield against a flood. It is not recorded anywhere.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chrono::Utc;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use serde::Deserialize;

use crate::decision::{Decision, Reason};
use crate::store::{Bucket, Found, Request};

/// Keys that are counted at most. While as many come in quick succession, further ones are not held back.
const MOST: usize = 65_536;

/// The time between two rounds in which those are forgotten that have come back to their full burst.
const SWEEP: Duration = Duration::from_secs(1);

/// A limit of each key that this process keeps by itself ([`Config::shield`](crate::Config::shield)): `per_second` checks in a
/// second, and `burst` at once.
///
/// It comes before everything else, counts checks and not their costs, and knows nothing of other processes. A check
/// that it blocks has the reason `local_limit` and no row in the ledger. Of more than 65,536 busy keys the rest is not
/// held back.
///
/// ```
/// use std::num::NonZeroU32;
/// use tallygate::{Config, Shield};
/// let [per_second, burst] = [100, 200].map(|n| NonZeroU32::new(n).unwrap());
/// let config = Config { shield: Some(Shield { per_second, burst }), ..Config::default() };
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shield {
    /// Checks in a second.
    pub per_second: NonZeroU32,
    /// Checks at once.
    pub burst: NonZeroU32,
}

/// A shield, and the keys that it counts.
pub(super) struct Shielding {
    shield: Shield,
    // The middleware is named, since what it is by default depends on the features that others ask of the crate.
    keys: RateLimiter<Bucket, HashMapStateStore<Bucket>, MonotonicClock, NoOpMiddleware<Instant>>,
    swept: Mutex<Instant>,
}

impl From<Shield> for Shielding {
    fn from(shield: Shield) -> Self {
        let quota = Quota::per_second(shield.per_second).allow_burst(shield.burst);
        let keys = RateLimiter::new(quota, HashMapStateStore::default(), MonotonicClock);
        Self { shield, keys, swept: Mutex::new(Instant::now()) }
    }
}

impl Shielding {
    /// A check that comes too soon after others of its key.
    pub fn block(&self, request: &Request, zone: &Found) -> Option<Decision> {
        if self.is_full() {
            return None;
        }
        let wait = self.keys.check_key(&request.bucket()).err()?.wait_time_from(MonotonicClock.now());
        Some(Decision {
            zone: request.zone.clone(),
            key: request.key.clone(),
            txn_id: request.txn,
            blocked: true,
            reason: Reason::LocalLimit,
            limit: self.shield.burst.get().into(),
            remaining: 0,
            retry_after_us: Some(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX).saturating_add(1)),
            delay_us: None,
            ends_at: None,
            seq: None,
            zone_version: zone.version,
            decided_at: Utc::now(),
            replayed: false,
            local: None,
        })
    }

    fn is_full(&self) -> bool {
        if self.keys.len() < MOST {
            return false;
        }
        if let Ok(mut swept) = self.swept.try_lock()
            && swept.elapsed() >= SWEEP
        {
            *swept = Instant::now();
            self.keys.retain_recent();
        }
        self.keys.len() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_end_take_no_memory_without_end() {
        let one = NonZeroU32::MIN;
        let shielding = Shielding::from(Shield { per_second: one, burst: one });
        for n in 0..2 * MOST {
            if !shielding.is_full() {
                shielding.keys.check_key(&(1, format!("key {n}"))).ok();
            }
        }
        assert_eq!(shielding.keys.len(), MOST);
    }
}
