//! Concurrent checks of one process travel together.
//!
//! A check that finds a lane free goes at once, alone. While all lanes are busy the next checks gather, and the
//! first lane that is free again takes them in one call: the waiting is that of the calls before it, never a
//! timer's. This is the group commit of databases, one layer up.
//!
//! A call with several buckets waits for none of them in the database: those that somebody else holds come back
//! undecided and go each by itself, where waiting delays nobody. A call that fails is split in two until the
//! one check that is to blame is alone with its error.

mod batch;
mod queue;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::GRACE;
use super::config::{BatchConfig, Config};
use super::trace;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::{Isolation, Request, Store, Terms};
use batch::{Batch, Caller};
use queue::{Bucket, Granted, Queue};

/// A call that waits for a bucket longer than this keeps its lane no more.
const PATIENCE: Duration = Duration::from_millis(20);

pub(super) struct Combiner {
    store: Store,
    isolation: Isolation,
    attempts: u32,
    /// Checks in one call.
    size: usize,
    /// Checks that wait for a call.
    most_waiting: usize,
    state: Mutex<State>,
    /// Calls that may wait in the database for a bucket; the other connections are for those that do not.
    patient: Arc<Semaphore>,
}

struct State {
    queue: Queue<(Request, Caller), oneshot::Sender<Pass>>,
    free_lanes: usize,
}

/// The right to be in a bucket; given back when dropped.
pub(super) struct Pass {
    combiner: Arc<Combiner>,
    bucket: Bucket,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let granted = self.combiner.state().queue.release(self.bucket.clone());
        self.combiner.grant(granted);
        self.combiner.open_lane();
    }
}

/// The right to make calls of what is ready; given back when dropped.
struct Lane(Arc<Combiner>);

impl Drop for Lane {
    fn drop(&mut self) {
        self.0.state().free_lanes += 1;
        self.0.open_lane();
    }
}

/// The right to wait in the database for a bucket.
type Permit = OwnedSemaphorePermit;

impl Combiner {
    pub fn new(store: Store, config: &Config) -> Arc<Self> {
        let connections = store.connections().max(1) as usize;
        let alone = BatchConfig { size: 1, lanes: connections, ..BatchConfig::default() };
        let batch = config.batch.unwrap_or(alone);
        let lanes = batch.lanes.clamp(1, connections);
        let patient = if config.batch.is_some() { (connections - lanes).max(1) } else { connections };
        Arc::new(Self {
            store,
            isolation: config.isolation,
            attempts: config.attempts,
            size: batch.size.max(1),
            most_waiting: batch.queue,
            state: Mutex::new(State { queue: Queue::default(), free_lanes: lanes }),
            patient: Arc::new(Semaphore::new(patient)),
        })
    }

    /// Decides one check that leaves a row. The caller may go away; what was sent is decided all the same.
    pub async fn check(self: &Arc<Self>, request: Request, until: Instant) -> Result<Decision> {
        let (caller, answer) = Caller::new(until);
        self.push(request, caller)?;
        self.open_lane();
        answer.await.map_err(|failed| Error::transient("the decision was cut short").caused_by(failed))?
    }

    fn push(&self, request: Request, caller: Caller) -> Result<()> {
        let mut state = self.state();
        let waiting = state.queue.waiting();
        if waiting >= self.most_waiting {
            return Err(Error::transient(format!(
                "{waiting} checks wait already and the database does not keep up; send fewer"
            )));
        }
        state.queue.push_check(request.bucket(), (request, caller));
        Ok(())
    }

    /// Waits for buckets, in their order, for a call of the caller's own that may wait in the database.
    pub async fn enter(
        self: &Arc<Self>,
        buckets: BTreeSet<Bucket>,
        until: Instant,
    ) -> Result<(Vec<Pass>, Option<Permit>)> {
        let busy = || Error::transient("the bucket was busy until the deadline");
        let mut passes = Vec::with_capacity(buckets.len());
        for bucket in buckets {
            let (turn, pass) = oneshot::channel();
            let granted = self.state().queue.push_turn(bucket, turn);
            self.grant(granted);
            passes.push(timeout_at(until, pass).await.ok().and_then(Result::ok).ok_or_else(busy)?);
        }
        let permit = match passes.is_empty() {
            true => None,
            false => timeout_at(until, self.permit()).await.map_err(|_| busy())?,
        };
        Ok((passes, permit))
    }

    /// One that no longer waits drops its pass, and so the next in line gets it.
    fn grant(self: &Arc<Self>, granted: Granted<oneshot::Sender<Pass>>) {
        if let Some((bucket, turn)) = granted {
            turn.send(Pass { combiner: Arc::clone(self), bucket }).ok();
        }
    }

    async fn permit(&self) -> Option<Permit> {
        Arc::clone(&self.patient).acquire_owned().await.ok()
    }

    fn open_lane(self: &Arc<Self>) {
        // Without a runtime nobody waits for an answer either.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state();
        if state.free_lanes > 0 && state.queue.is_ready() {
            state.free_lanes -= 1;
            drop(state);
            runtime.spawn(Lane(Arc::clone(self)).run());
        }
    }

    /// What is ready, for one call; None when nothing is.
    fn take(self: &Arc<Self>) -> Option<Batch> {
        loop {
            let taken = self.state().queue.take(self.size);
            if taken.is_empty() {
                return None;
            }
            let mut batch = Batch::default();
            for (bucket, checks) in taken {
                let pass = Arc::new(Pass { combiner: Arc::clone(self), bucket });
                for (request, caller) in checks {
                    batch.push(request, caller, Arc::clone(&pass));
                }
            }
            batch.drop_who_left();
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides a batch and answers its callers. With a permit it waits for a bucket that somebody else holds;
    /// without one such a bucket is left to a call of its own.
    ///
    /// Boxed, because it calls itself.
    fn decide<'a>(
        self: &'a Arc<Self>,
        batch: Batch,
        permit: Option<&'a Permit>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.decide_batch(batch, permit))
    }

    async fn decide_batch(self: &Arc<Self>, mut batch: Batch, permit: Option<&Permit>) {
        batch.drop_who_left();
        let Some(until) = batch.until() else { return };
        let terms = Terms { isolation: self.isolation, until };
        let mut tries = Tries::new(self.attempts, until);
        loop {
            let error = match self.call(&batch.requests, terms, permit).await {
                Ok(decisions) => {
                    for held in batch.answer(decisions) {
                        tokio::spawn(Arc::clone(self).decide_patiently(held));
                    }
                    return;
                }
                Err(error) => error,
            };
            let again = tries.again(&error).await;
            if again {
                trace::count_retry();
            }
            if error.is_transient() {
                // This attempt may have been committed after all.
                batch.requests.iter_mut().for_each(|request| request.fresh = false);
            }
            if let Some(rest) = batch.split() {
                self.decide(batch, permit).await;
                return self.decide(rest, permit).await;
            }
            if !again {
                return batch.fail(error);
            }
        }
    }

    async fn decide_patiently(self: Arc<Self>, batch: Batch) {
        let permit = self.permit().await;
        self.decide(batch, permit.as_ref()).await;
    }

    async fn call(
        &self,
        requests: &[Request],
        terms: Terms,
        permit: Option<&Permit>,
    ) -> Result<Vec<Option<Decision>>> {
        let call = async {
            match permit {
                Some(_) => Ok(self.store.check(requests, terms).await?.into_iter().map(Some).collect()),
                None => self.store.check_free(requests, terms).await,
            }
        };
        let silent = |_| Err(Error::transient("the database did not answer; try again"));
        timeout_at(terms.until + GRACE, trace::call(requests.len(), call)).await.unwrap_or_else(silent)
    }
}

impl Lane {
    /// Makes calls for as long as something is ready.
    async fn run(self) {
        let combiner = Arc::clone(&self.0);
        while let Some(batch) = combiner.take() {
            let permit = match batch.is_of_one_bucket() {
                true => Arc::clone(&combiner.patient).try_acquire_owned().ok(),
                false => None,
            };
            if permit.is_none() {
                combiner.decide(batch, None).await;
                continue;
            }
            let mut call = combiner.decide(batch, permit.as_ref());
            tokio::select! {
                () = &mut call => {}
                () = sleep(PATIENCE) => {
                    drop(self);
                    return call.await;
                }
            }
        }
    }
}
