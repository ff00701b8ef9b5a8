//! The keys that come most often, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient computation of
//! frequent and top-k elements in data streams, 2005).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// A counter for each of at most so many keys. A key that finds no room takes over the lowest counter, which then counts
/// too much by at most what it held.
pub(super) struct Sketch {
    room: usize,
    counters: Vec<Counter>,
    places: HashMap<Arc<str>, usize>,
    /// The counters from the lowest up; kept from when there is no more room.
    order: BTreeSet<(u64, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub key: Arc<str>,
    /// Never less than how often the key came.
    pub count: u64,
    /// The part of that which may be too much; 0 for an exact count.
    pub error: u64,
    /// When it came first and last, since it is counted.
    pub first_at: DateTime<Utc>,
    pub last_at: DateTime<Utc>,
    /// The transaction of the last one.
    pub last_txn: Uuid,
}

impl Sketch {
    pub fn new(room: usize) -> Self {
        Self { room, counters: Vec::new(), places: HashMap::new(), order: BTreeSet::new() }
    }

    pub fn add(&mut self, key: &str, times: u64, at: DateTime<Utc>, txn: Uuid) {
        if let Some(&place) = self.places.get(key) {
            let counter = &mut self.counters[place];
            let moved = self.order.remove(&(counter.count, place));
            counter.count += times;
            // Of several databases one comes after the other.
            counter.first_at = counter.first_at.min(at);
            if at >= counter.last_at {
                (counter.last_at, counter.last_txn) = (at, txn);
            }
            if moved {
                self.order.insert((counter.count, place));
            }
            return;
        }
        let key: Arc<str> = key.into();
        let new = Counter {
            key: Arc::clone(&key),
            count: times,
            error: 0,
            first_at: at,
            last_at: at,
            last_txn: txn,
        };
        if self.counters.len() < self.room {
            self.places.insert(key, self.counters.len());
            self.counters.push(new);
            return;
        }
        if self.order.is_empty() {
            self.order =
                self.counters.iter().enumerate().map(|(place, counter)| (counter.count, place)).collect();
        }
        let Some((lowest, place)) = self.order.pop_first() else { return };
        self.places.remove(&self.counters[place].key);
        self.places.insert(key, place);
        self.order.insert((lowest + times, place));
        self.counters[place] = Counter { count: lowest + times, error: lowest, ..new };
    }

    /// True when the key certainly came. With [`is_exact`](Self::is_exact), false says that it did not.
    pub fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// True when every key is counted, and no count is too high.
    pub fn is_exact(&self) -> bool {
        self.order.is_empty()
    }

    /// The counters of the keys that came most often, those first.
    pub fn most(mut self, top: usize) -> Vec<Counter> {
        let order = |a: &Counter, b: &Counter| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key));
        self.counters.sort_unstable_by(order);
        self.counters.truncate(top);
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Counts are never too low, too high by no more than the error says, and no error is above the promise:
        /// all that came, divided by the room.
        #[test]
        fn a_count_is_right_within_its_error(
            keys in prop::collection::vec((0..40u32, 1..9u64), 0..400),
            room in 1..50usize,
        ) {
            let mut sketch = Sketch::new(room);
            let (mut came, mut total) = (HashMap::<String, u64>::new(), 0);
            for (key, times) in keys {
                let key = (key * key / 40).to_string();
                sketch.add(&key, times, DateTime::UNIX_EPOCH, Uuid::nil());
                *came.entry(key).or_default() += times;
                total += times;
            }
            prop_assert_eq!(sketch.is_exact(), came.len() <= room);
            let all = sketch.most(usize::MAX);
            prop_assert_eq!(all.len(), came.len().min(room));
            prop_assert!(all.is_sorted_by_key(|counter| std::cmp::Reverse(counter.count)));
            for counter in &all {
                let true_count = came[&*counter.key];
                prop_assert!(counter.count >= true_count && counter.count - counter.error <= true_count);
                prop_assert!(counter.error <= total / room as u64);
            }
            // A key that came more often than the promised error is there.
            for (key, count) in came {
                let there = all.iter().any(|counter| *counter.key == *key);
                prop_assert!(there || count <= total / room as u64);
            }
        }
    }
}
