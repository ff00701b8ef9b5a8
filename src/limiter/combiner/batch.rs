//! Checks that share a call, and who waits for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::trace;
use super::Pass;
use crate::decision::Decision;
use crate::engine::Request;
use crate::error::{Error, Result};

/// The caller, and the time until which it waits for the answer.
pub(super) struct Caller {
    asked: Instant,
    until: Instant,
    reply: oneshot::Sender<Result<Decision>>,
}

impl Caller {
    pub fn new(until: Instant) -> (Self, oneshot::Receiver<Result<Decision>>) {
        let (reply, answer) = oneshot::channel();
        (Self { asked: Instant::now(), until, reply }, answer)
    }

    pub fn answer(self, zone: &str, result: Result<Decision>) {
        trace::decided(zone, result.as_ref(), self.asked.elapsed());
        // Nobody may be there any more.
        self.reply.send(result).ok();
    }
}

/// Checks of one call, those of a bucket beside each other in the order of their coming.
#[derive(Default)]
pub(super) struct Batch {
    pub requests: Vec<Request>,
    /// Each with the right to be in its bucket, which ends with the last of them.
    callers: Vec<(Caller, Arc<Pass>)>,
}

impl Batch {
    pub fn push(&mut self, request: Request, caller: Caller, pass: Arc<Pass>) {
        self.requests.push(request);
        self.callers.push((caller, pass));
    }

    pub fn append(&mut self, other: Self) {
        self.requests.extend(other.requests);
        self.callers.extend(other.callers);
    }

    /// Leaves those of its one bucket to the next call; false where they were left before.
    pub fn leave(&self) -> bool {
        self.callers.first().is_some_and(|(_, pass)| !pass.was_left.swap(true, Ordering::Relaxed))
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn is_of_one_bucket(&self) -> bool {
        self.requests.windows(2).all(|pair| pair[0].is_beside(&pair[1]))
    }

    /// The time when the last of the callers stops waiting; None for no caller.
    pub fn until(&self) -> Option<Instant> {
        self.callers.iter().map(|(caller, _)| caller.until).max()
    }

    /// Drops the checks whose callers no longer wait.
    pub fn drop_who_left(&mut self) {
        let now = Instant::now();
        let left = |caller: &Caller| caller.reply.is_closed() || caller.until <= now;
        if self.callers.iter().any(|(caller, _)| left(caller)) {
            let all = std::mem::take(self);
            for (request, (caller, pass)) in all.requests.into_iter().zip(all.callers) {
                if left(&caller) {
                    caller.answer(&request.zone, Err(Error::transient("the deadline passed")));
                } else {
                    self.push(request, caller, pass);
                }
            }
        }
    }

    /// Keeps the first half and returns the second; None for a single check.
    pub fn split(&mut self) -> Option<Self> {
        let middle = self.requests.len().div_ceil(2);
        let rest =
            Self { requests: self.requests.split_off(middle), callers: self.callers.split_off(middle) };
        (!rest.is_empty()).then_some(rest)
    }

    /// Moves those of the same bucket from the beginning of another batch to the end of this one.
    pub fn take_of_its_bucket(&mut self, other: &mut Self) {
        let Some(own) = self.requests.first() else { return };
        let count = other.requests.iter().take_while(|request| request.is_beside(own)).count();
        self.requests.extend(other.requests.drain(..count));
        self.callers.extend(other.callers.drain(..count));
    }

    /// Answers the decided checks. Returns the others, a batch for each of their buckets.
    pub fn answer(self, decisions: Vec<Option<Decision>>) -> Vec<Self> {
        let mut undecided: Vec<Self> = Vec::new();
        for ((request, (caller, pass)), decision) in
            self.requests.into_iter().zip(self.callers).zip(decisions)
        {
            if let Some(decision) = decision {
                caller.answer(&request.zone, Ok(decision));
                continue;
            }
            match undecided.last_mut() {
                Some(batch) if batch.requests[0].is_beside(&request) => batch.push(request, caller, pass),
                _ => undecided.push(Self { requests: vec![request], callers: vec![(caller, pass)] }),
            }
        }
        undecided
    }

    /// Answers the one caller of a batch that cannot be split.
    pub fn fail(self, error: Error) {
        if let Some((request, (caller, _))) = self.requests.into_iter().zip(self.callers).next() {
            caller.answer(&request.zone, Err(error));
        }
    }
}
