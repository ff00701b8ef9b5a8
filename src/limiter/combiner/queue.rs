//! The lines of callers that wait for buckets, and whose turn it is. No clock, no database, no task.

use std::collections::{HashMap, VecDeque};

use crate::store::Bucket;

/// A line of waiting callers for each bucket that somebody is in or before; others are not remembered.
///
/// A caller that is in a bucket has left its line. A bucket is in one call at a time, so a call never waits in the
/// database for another one of this process. `C` is a check, which may share its call with others; `T` wants a bucket
/// for a call of its own.
pub(super) struct Queue<C, T> {
    lines: HashMap<Bucket, Line<C, T>>,
    /// Free buckets whose line begins with a check, in the order in which they became so. None is in it twice.
    ready: VecDeque<Bucket>,
    /// Checks in all lines.
    waiting: usize,
}

/// Those behind the ones that are in the bucket.
type Line<C, T> = VecDeque<Waiting<C, T>>;

enum Waiting<C, T> {
    Check(C),
    Turn(T),
}

/// A turn that has come.
pub(super) type Granted<T> = Option<(Bucket, T)>;

impl<C, T> Default for Queue<C, T> {
    fn default() -> Self {
        Self { lines: HashMap::new(), ready: VecDeque::new(), waiting: 0 }
    }
}

impl<C, T> Queue<C, T> {
    /// Checks that are in no call yet.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Those of them that are before one bucket.
    pub fn waiting_for(&self, bucket: &Bucket) -> usize {
        self.lines.get(bucket).map_or(0, Line::len)
    }

    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn push_check(&mut self, bucket: Bucket, check: C) {
        self.waiting += 1;
        self.push(bucket, Waiting::Check(check));
    }

    /// Its turn comes at once when nobody is in or before the bucket.
    pub fn push_turn(&mut self, bucket: Bucket, turn: T) -> Granted<T> {
        self.push(bucket, Waiting::Turn(turn))
    }

    fn push(&mut self, bucket: Bucket, waiting: Waiting<C, T>) -> Granted<T> {
        match self.lines.get_mut(&bucket) {
            Some(line) => {
                line.push_back(waiting);
                None
            }
            None => {
                self.lines.insert(bucket.clone(), Line::from([waiting]));
                self.release(bucket)
            }
        }
    }

    /// Takes up to `size` checks for one call, bucket by bucket; those of a bucket in the order of their coming.
    ///
    /// Dealt like cards: each ready bucket gets one place, then each that still has checks another, until the
    /// call is full. So a hot bucket fills what the others leave, and delays none of them.
    pub fn take(&mut self, size: usize) -> Vec<(Bucket, Vec<C>)> {
        let mut taken: Vec<(Bucket, Vec<C>)> = Vec::new();
        while taken.len() < size
            && let Some(bucket) = self.ready.pop_front()
        {
            let first = self.next_check(&bucket);
            taken.push((bucket, Vec::from_iter(first)));
        }
        let mut room = size - taken.len();
        let mut dealt = true;
        while dealt && room > 0 {
            dealt = false;
            for (bucket, checks) in &mut taken {
                if room > 0
                    && let Some(check) = self.next_check(bucket)
                {
                    checks.push(check);
                    room -= 1;
                    dealt = true;
                }
            }
        }
        self.waiting -= taken.iter().map(|(_, checks)| checks.len()).sum::<usize>();
        taken
    }

    /// Nobody is in the bucket: the next in line may go.
    pub fn release(&mut self, bucket: Bucket) -> Granted<T> {
        let line = self.lines.get_mut(&bucket)?;
        match line.pop_front() {
            None => {
                self.lines.remove(&bucket);
                None
            }
            Some(Waiting::Turn(turn)) => Some((bucket, turn)),
            Some(check) => {
                line.push_front(check);
                self.ready.push_back(bucket);
                None
            }
        }
    }

    fn next_check(&mut self, bucket: &Bucket) -> Option<C> {
        let line = self.lines.get_mut(bucket)?;
        match line.pop_front()? {
            Waiting::Check(check) => Some(check),
            turn => {
                line.push_front(turn);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(key: &str) -> Bucket {
        (1, key.to_owned())
    }

    fn queue(checks: &[(&str, u32)]) -> Queue<u32, u32> {
        let mut queue = Queue::default();
        for (key, check) in checks {
            queue.push_check(bucket(key), *check);
        }
        queue
    }

    #[test]
    fn a_hot_bucket_fills_what_the_others_leave() {
        let mut queue = queue(&[("hot", 1), ("hot", 2), ("hot", 3), ("cold", 4), ("hot", 5)]);
        assert_eq!(queue.take(4), [(bucket("hot"), vec![1, 2, 3]), (bucket("cold"), vec![4])]);
        assert_eq!(queue.waiting(), 1);
    }

    #[test]
    fn every_ready_bucket_has_a_place_before_one_has_two() {
        let mut queue = queue(&[("hot", 1), ("hot", 2), ("a", 3), ("b", 4)]);
        assert_eq!(queue.take(2), [(bucket("hot"), vec![1]), (bucket("a"), vec![3])]);
        assert_eq!(queue.take(2), [(bucket("b"), vec![4])]);
    }

    #[test]
    fn a_bucket_is_in_one_call_at_a_time_and_then_forgotten() {
        let mut queue = queue(&[("a", 1)]);
        assert_eq!(queue.take(9).len(), 1);
        queue.push_check(bucket("a"), 2);
        assert!(queue.take(9).is_empty());
        assert_eq!(queue.release(bucket("a")), None);
        assert_eq!(queue.take(9), [(bucket("a"), vec![2])]);
        assert_eq!(queue.release(bucket("a")), None);
        assert!(queue.lines.is_empty() && !queue.is_ready() && queue.waiting() == 0);
    }

    #[test]
    fn a_turn_waits_for_those_before_it_and_holds_those_behind_it() {
        let mut queue = queue(&[("a", 1)]);
        assert_eq!(queue.push_turn(bucket("a"), 2), None);
        queue.push_check(bucket("a"), 3);
        assert_eq!(queue.take(9), [(bucket("a"), vec![1])]);
        assert_eq!(queue.release(bucket("a")), Some((bucket("a"), 2)));
        assert!(!queue.is_ready());
        assert_eq!(queue.release(bucket("a")), None);
        assert_eq!(queue.take(9), [(bucket("a"), vec![3])]);
        assert_eq!(queue.push_turn(bucket("b"), 4), Some((bucket("b"), 4)));
    }
}
