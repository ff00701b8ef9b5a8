//! A gate before each bucket, inside this process.
//!
//! The database lets one check of a bucket at a time go on. Without the gate all that wait would hold a
//! connection each, and one held bucket could take every connection from all the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

type Bucket = (i32, String);

/// Lets at most `width` checks of one bucket through at a time, in the order of their coming. Remembers
/// only the buckets that someone is in or before.
pub(super) struct Gate {
    width: usize,
    buckets: Mutex<HashMap<Bucket, (Arc<Semaphore>, usize)>>,
}

/// The right to go on; given back when dropped.
pub(super) struct Pass {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

/// A place in or before the gate of a bucket.
struct Place {
    gate: Arc<Gate>,
    bucket: Bucket,
}

impl Gate {
    pub fn new(width: usize) -> Arc<Self> {
        Arc::new(Self { width, buckets: Mutex::default() })
    }

    pub async fn enter(gate: &Arc<Self>, bucket: Bucket) -> Pass {
        let semaphore = {
            let mut buckets = gate.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            let (semaphore, users) =
                buckets.entry(bucket.clone()).or_insert_with(|| (Arc::new(Semaphore::new(gate.width)), 0));
            *users += 1;
            Arc::clone(semaphore)
        };
        let place = Place { gate: Arc::clone(gate), bucket };
        match semaphore.acquire_owned().await {
            Ok(permit) => Pass { _permit: permit, _place: place },
            // Nobody closes these semaphores.
            Err(_) => std::future::pending().await,
        }
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
    async fn a_bucket_is_entered_by_as_many_as_the_width_and_then_forgotten() {
        let gate = Gate::new(2);
        let bucket = || (1, "a".to_owned());
        let first = Gate::enter(&gate, bucket()).await;
        let second = Gate::enter(&gate, bucket()).await;
        let mut third = Box::pin(Gate::enter(&gate, bucket()));
        assert!(futures_util::poll!(&mut third).is_pending());
        let _other = Gate::enter(&gate, (1, "b".to_owned())).await;
        drop(first);
        let third = third.await;
        drop((second, third));
        assert_eq!(gate.buckets.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn one_that_goes_away_while_waiting_leaves_no_place_behind() {
        let gate = Gate::new(1);
        let inside = Gate::enter(&gate, (1, "a".to_owned())).await;
        let mut waiting = Box::pin(Gate::enter(&gate, (1, "a".to_owned())));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(inside);
        assert!(gate.buckets.lock().unwrap().is_empty());
    }
}
