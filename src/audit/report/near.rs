//! The buckets that came nearest to their limits, in bounded memory.

use std::cmp::Ordering;
use std::collections::HashMap;

use chrono::{DateTime, Utc};

/// Where a bucket was nearest to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Near {
    pub remaining: i64,
    pub limit: i64,
    pub at: DateTime<Utc>,
}

impl Near {
    /// Nearer first: the least part of the limit that remained; where it is the same, the latest.
    pub fn order(&self, other: &Self) -> Ordering {
        let part = |near: &Self, of: &Self| i128::from(near.remaining) * i128::from(of.limit);
        part(self, other).cmp(&part(other, self)).then_with(|| other.at.cmp(&self.at))
    }
}

/// Keeps the nearest buckets: at least `room` of them, where there are so many, and never more than twice that.
///
/// What is dropped is farther than all that is kept, and a dropped bucket that comes nearer is seen again then. So
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
            Some(known) if near.order(known) == Ordering::Less => *known = near,
            Some(_) => {}
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
                let near = Near { remaining, limit, at };
                nearest.add(&key.to_string(), near);
                let known = best.entry(key.to_string()).or_insert(near);
                if near.order(known) == Ordering::Less {
                    *known = near;
                }
            }
            let mut right: Vec<_> = best.into_iter().collect();
            right.sort_by(|a, b| a.1.order(&b.1));
            right.truncate(3);
            let (most, complete) = nearest.most(3, |_| true);
            prop_assert_eq!(most, right);
            prop_assert!(complete);
        }
    }
}
