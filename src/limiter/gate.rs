//! A gate before each bucket, inside this process.
//!
//! The database lets one check of a bucket at a time go on. Without the gate all that wait would hold a
//! connection each, and one held bucket could take every connection from all the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

type Bucket = (i32, String);

/// Whose turn it is in a bucket, and how many are in it or before it.
type Queue = (Arc<Turn<()>>, usize);

/// Lets one check of a bucket through at a time, in the order of their coming. Remembers only the buckets
/// that someone is in or before.
#[derive(Default)]
pub(super) struct Gate {
    buckets: Mutex<HashMap<Bucket, Queue>>,
}

/// The right to go on; given back when dropped.
pub(super) struct Pass {
    _turn: OwnedMutexGuard<()>,
    _place: Place,
}

/// A place in or before the gate of a bucket.
struct Place {
    gate: Arc<Gate>,
    bucket: Bucket,
}

impl Gate {
    pub async fn enter(gate: &Arc<Self>, bucket: Bucket) -> Pass {
        let turn = {
            let mut buckets = gate.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let (turn, users) = buckets.entry(bucket.clone()).or_default();
            *users += 1;
            Arc::clone(turn)
        };
        let place = Place { gate: Arc::clone(gate), bucket };
        Pass { _turn: turn.lock_owned().await, _place: place }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut buckets = self.gate.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, users)) = buckets.get_mut(&self.bucket) {
            *users -= 1;
            if *users == 0 {
                buckets.remove(&self.bucket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bucket_is_entered_by_one_at_a_time_and_then_forgotten() {
        let gate = Arc::new(Gate::default());
        let bucket = |key: &str| (1, key.to_owned());
        let first = Gate::enter(&gate, bucket("a")).await;
        let mut second = Box::pin(Gate::enter(&gate, bucket("a")));
        assert!(futures_util::poll!(&mut second).is_pending());
        let _other = Gate::enter(&gate, bucket("b")).await;
        drop(first);
        drop(second.await);
        assert_eq!(gate.buckets.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn one_that_goes_away_while_waiting_leaves_no_place_behind() {
        let gate = Arc::new(Gate::default());
        let inside = Gate::enter(&gate, (1, "a".to_owned())).await;
        let mut waiting = Box::pin(Gate::enter(&gate, (1, "a".to_owned())));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(inside);
        assert!(gate.buckets.lock().unwrap().is_empty());
    }
}
