//! A limit of this process alone, in front of all others: a cheap shield against a flood. It is not recorded anywhere.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;
use serde::Deserialize;

use crate::decision::{Decision, Reason};
use crate::engine::Request;
use crate::store::{Bucket, Found};

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
    keys: Mutex<Keys>,
}

/// The keys by the generic cell rate algorithm (ITU-T I.371): of each, when it will have come back to its full burst.
struct Keys {
    full_at: HashMap<Bucket, Instant>,
    swept: Instant,
}

impl From<Shield> for Shielding {
    fn from(shield: Shield) -> Self {
        Self { shield, keys: Mutex::new(Keys { full_at: HashMap::new(), swept: Instant::now() }) }
    }
}

impl Shielding {
    /// A check that comes too soon after others of its key.
    pub fn block(&self, request: &Request, zone: &Found) -> Option<Decision> {
        let wait = self.wait(request.bucket(), Instant::now())?;
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

    /// Takes one check of a key; None where it may pass, else how long until it may.
    fn wait(&self, bucket: Bucket, now: Instant) -> Option<Duration> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.full_at.len() >= MOST && now.duration_since(keys.swept) >= SWEEP {
            keys.swept = now;
            keys.full_at.retain(|_, full_at| *full_at > now);
        }
        let is_full = keys.full_at.len() >= MOST;
        let full_at = match keys.full_at.entry(bucket) {
            Entry::Vacant(_) if is_full => return None,
            entry => entry.or_insert(now),
        };
        let one = Duration::from_secs(1) / self.shield.per_second.get();
        let then = (*full_at).max(now) + one;
        // A full burst takes so long to come back.
        let wait = then.duration_since(now).saturating_sub(one * self.shield.burst.get());
        if wait.is_zero() {
            *full_at = then;
        }
        (!wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_end_take_no_memory_without_end() {
        let shielding = shielding(1, 1);
        let now = Instant::now();
        for n in 0..2 * MOST {
            assert_eq!(shielding.wait((1, format!("key {n}")), now), None);
        }
        assert_eq!(shielding.keys.lock().unwrap().full_at.len(), MOST);
        assert!(shielding.wait((1, "key 0".to_owned()), now).is_some(), "one that is counted is held back");
        shielding.wait((1, "one more".to_owned()), now + SWEEP);
        assert_eq!(
            shielding.keys.lock().unwrap().full_at.len(),
            1,
            "those that are full again are forgotten"
        );
    }

    #[test]
    fn a_burst_passes_and_then_one_after_each_wait() {
        let shielding = shielding(4, 3);
        let (began, key) = (Instant::now(), || (1, "key".to_owned()));
        let quarter = Duration::from_millis(250);
        for _ in 0..3 {
            assert_eq!(shielding.wait(key(), began), None);
        }
        for n in 0..10 {
            let now = began + quarter * n;
            assert_eq!(shielding.wait(key(), now), Some(quarter), "{n}");
            let early = Duration::from_nanos(1);
            assert_eq!(shielding.wait(key(), now + quarter - early), Some(early), "{n}");
            assert_eq!(shielding.wait(key(), now + quarter), None, "{n}");
        }
    }

    fn shielding(per_second: u32, burst: u32) -> Shielding {
        let [per_second, burst] = [per_second, burst].map(|n| NonZeroU32::new(n).unwrap());
        Shielding::from(Shield { per_second, burst })
    }
}
