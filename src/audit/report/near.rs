//! The buckets that came nearest to their limits, in bounded memory.

use std::cmp::Ordering;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The moment at which a bucket was nearest to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Near {
    pub remaining: i64,
    pub limit: i64,
    pub at: DateTime<Utc>,
    pub txn: Uuid,
    /// The number of checks that left that part of the limit.
    pub checks: u64,
}

impl Near {
    /// Nearer first: the least part of the limit that remained; where it is the same, the latest.
    pub fn order(&self, other: &Self) -> Ordering {
        self.part(other).then_with(|| other.at.cmp(&self.at))
    }

    fn part(&self, other: &Self) -> Ordering {
        let part = |near: &Self, of: &Self| i128::from(near.remaining) * i128::from(of.limit);
        part(self, other).cmp(&part(other, self))
    }
}

/// Keeps the nearest buckets: at least `room` of them, where there are so many, and never more than twice that.
///
/// A bucket that is dropped is farther than all that are kept, and a dropped bucket that comes nearer is seen again then. So
/// those that are kept are the right ones.
pub(super) struct Nearest {
    room: usize,
    buckets: HashMap<String, Near>,
    /// The nearest that was dropped.
    dropped: Option<Near>,
}

impl Nearest {
    pub fn new(room: usize) -> Self {
        Self { room, buckets: HashMap::new(), dropped: None }
    }

    pub fn add(&mut self, key: &str, near: Near) {
        if near.limit <= 0 || self.is_beyond(&near) {
            return;
        }
        match self.buckets.get_mut(key) {
            Some(known) => match near.part(known) {
                Ordering::Less => *known = near,
                Ordering::Equal => {
                    let checks = known.checks + near.checks;
                    let latest = if near.at >= known.at { near } else { *known };
                    *known = Near { checks, ..latest };
                }
                Ordering::Greater => {}
            },
            None => {
                self.buckets.insert(key.to_owned(), near);
                if self.buckets.len() > 2 * self.room {
                    self.shrink();
                }
            }
        }
    }

    /// Drops all but the nearest.
    fn shrink(&mut self) {
        let mut all: Vec<Near> = self.buckets.values().copied().collect();
        let (_, first, _) = all.select_nth_unstable_by(self.room, Near::order);
        let first = *first;
        self.buckets.retain(|_, near| near.order(&first) == Ordering::Less);
        self.dropped = Some(first);
    }

    /// Farther than all that is kept.
    fn is_beyond(&self, near: &Near) -> bool {
        self.dropped.is_some_and(|dropped| near.order(&dropped) != Ordering::Less)
    }

    /// The nearest of the buckets that are wanted, those first, and whether they are all that there are.
    pub fn most(self, top: usize, wanted: impl Fn(&str) -> bool) -> (Vec<(String, Near)>, bool) {
        let mut all: Vec<_> = self.buckets.into_iter().filter(|(key, _)| wanted(key)).collect();
        all.sort_unstable_by(|a, b| a.1.order(&b.1).then_with(|| a.0.cmp(&b.0)));
        let complete = self.dropped.is_none() || all.len() >= top;
        all.truncate(top);
        (all, complete)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nearest_are_those_of_all(
            seen in prop::collection::vec((0..60u32, 0..9i64, 1..9i64), 0..300),
            room in 3..20usize,
        ) {
            let mut nearest = Nearest::new(room);
            let mut best = HashMap::<String, Near>::new();
            for (n, (key, remaining, limit)) in seen.into_iter().enumerate() {
                let at = DateTime::from_timestamp_micros(n as i64).unwrap();
                let near = Near { remaining, limit, at, txn: Uuid::nil(), checks: 1 };
                nearest.add(&key.to_string(), near);
                let known = best.entry(key.to_string()).or_insert(Near { checks: 0, ..near });
                match near.part(known) {
                    Ordering::Less => *known = near,
                    Ordering::Equal => *known = Near { checks: known.checks + 1, ..near },
                    Ordering::Greater => {}
                }
            }
            let kept_all = room * 2;
            let mut right: Vec<_> = best.clone().into_iter().collect();
            right.sort_by(|a, b| a.1.order(&b.1));
            right.truncate(3);
            let (most, complete) = nearest.most(3, |_| true);
            prop_assert_eq!(most.len(), right.len());
            for ((key, near), (right_key, right)) in most.iter().zip(&right) {
                prop_assert_eq!((key, near.remaining, near.limit, near.at), (right_key, right.remaining, right.limit, right.at));
                // One that was dropped and came again is counted from then on.
                prop_assert!(near.checks <= right.checks && (kept_all < best.len() || near.checks == right.checks));
            }
            prop_assert!(complete);
        }
    }
}
