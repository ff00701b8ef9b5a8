//! Concurrent checks of one process travel together.
//!
//! A check that finds a lane free goes at once, alone. While all lanes are busy the next checks gather, and the
//! first lane that is free again takes them in one call: the waiting is that of the calls before it, never a
//! timer's. This is the group commit of databases, one layer up.
//!
//! A call with several buckets waits for none of them in the database: those that somebody else holds or has moved
//! come back undecided and go with the next call; those that come back once more go each by itself, where waiting
//! delays nobody. A call that fails is split in two until the one check that is to blame is alone with its error.

mod batch;
mod queue;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::config::{BatchConfig, Config};
use super::trace;
use crate::boxed::alone;
use crate::decision::Decision;
use crate::engine::Request;
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::{Bucket, Isolation, Store, Terms};
use batch::{Batch, Caller};
use queue::{Granted, Queue};

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
    /// Calls that may wait in the database for a bucket. Of the connections that are not the lanes' they may use
    /// half, and calls of the callers' own the other half.
    patient: Arc<Semaphore>,
    visitors: Arc<Semaphore>,
}

struct State {
    queue: Queue<(Request, Caller), oneshot::Sender<Pass>>,
    free_lanes: usize,
}

/// The right to be in a bucket; given back when dropped.
pub(super) struct Pass {
    combiner: Arc<Combiner>,
    bucket: Bucket,
    /// A call has left its checks undecided.
    was_left: AtomicBool,
}

impl Pass {
    fn new(combiner: &Arc<Combiner>, bucket: Bucket) -> Self {
        Self { combiner: Arc::clone(combiner), bucket, was_left: AtomicBool::new(false) }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let granted = self.combiner.state().queue.release(self.bucket.clone());
        self.combiner.grant(granted);
        self.combiner.open_lane();
    }
}

/// The right to make calls of what is ready; given back when dropped.
struct Lane {
    combiner: Arc<Combiner>,
    /// A runtime that ends drops what is spawned on it before it begins. Such a lane opens no other.
    began: bool,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.combiner.state().free_lanes += 1;
        if self.began {
            self.combiner.open_lane();
        }
    }
}

/// The right to wait in the database for a bucket.
type Permit = OwnedSemaphorePermit;

impl Combiner {
    pub fn new(store: Store, config: &Config) -> Arc<Self> {
        let connections = store.connections().max(1) as usize;
        let batch = config.batch.unwrap_or(BatchConfig { size: 1, ..BatchConfig::default() });
        let (lanes, patient) = if config.batch.is_some() {
            let lanes = batch.lanes.clamp(1, (connections - 1).max(1));
            (lanes, (connections - lanes).div_ceil(2).max(1))
        } else {
            (connections, connections)
        };
        Arc::new(Self {
            store,
            isolation: config.isolation,
            attempts: config.attempts,
            size: batch.size.max(1),
            most_waiting: batch.queue,
            state: Mutex::new(State { queue: Queue::default(), free_lanes: lanes }),
            patient: Arc::new(Semaphore::new(patient)),
            visitors: Arc::new(Semaphore::new(patient)),
        })
    }

    /// Decides one check that leaves a row. The caller may go away; what was sent is decided all the same.
    pub fn check(
        self: &Arc<Self>,
        request: Request,
        until: Instant,
    ) -> impl Future<Output = Result<Decision>> + use<> {
        let (caller, answer) = Caller::new(until);
        self.push(request, caller);
        self.open_lane();
        async {
            answer.await.map_err(|failed| Error::transient("the decision was cut short").caused_by(failed))?
        }
    }

    /// Checks that are in no call yet.
    pub fn waiting(&self) -> usize {
        self.state().queue.waiting()
    }

    /// One more than may wait is answered at once.
    fn push(&self, request: Request, caller: Caller) {
        let mut state = self.state();
        let (bucket, waiting) = (request.bucket(), state.queue.waiting());
        let before = state.queue.waiting_for(&bucket);
        let full = if waiting >= self.most_waiting {
            format!("{waiting} checks wait already and the database does not keep up; send fewer")
        } else if before >= self.most_waiting.div_ceil(4) {
            format!(
                "{before} checks of this bucket wait already; they are more than can be decided one after the other"
            )
        } else {
            return state.queue.push_check(bucket, (request, caller));
        };
        drop(state);
        caller.answer(&request.zone, Err(Error::transient(full)));
    }

    /// Waits for buckets, in their order, for a call of the caller's own that may wait in the database.
    pub async fn enter(
        self: &Arc<Self>,
        buckets: BTreeSet<Bucket>,
        until: Instant,
    ) -> Result<(Vec<Pass>, Option<Permit>)> {
        let busy = || Error::transient("the bucket was busy until the deadline");
        if buckets.is_empty() {
            return Ok((Vec::new(), None));
        }
        // The permit first: who waits for one keeps no bucket from others.
        let permit =
            timeout_at(until, Arc::clone(&self.visitors).acquire_owned()).await.map_err(|_| busy())?;
        let mut passes = Vec::with_capacity(buckets.len());
        for bucket in buckets {
            let (turn, pass) = oneshot::channel();
            let granted = self.state().queue.push_turn(bucket, turn);
            self.grant(granted);
            passes.push(timeout_at(until, pass).await.ok().and_then(Result::ok).ok_or_else(busy)?);
        }
        Ok((passes, permit.ok()))
    }

    /// Gives the bucket to the first who still waits for it.
    fn grant(self: &Arc<Self>, mut granted: Granted<oneshot::Sender<Pass>>) {
        while let Some((bucket, turn)) = granted {
            if !turn.is_closed() {
                turn.send(Pass::new(self, bucket)).ok();
                return;
            }
            granted = self.state().queue.release(bucket);
        }
    }

    fn open_lane(self: &Arc<Self>) {
        // Without a runtime nobody waits for an answer either.
        if Handle::try_current().is_err() {
            return;
        }
        let mut state = self.state();
        if state.free_lanes > 0 && state.queue.is_ready() {
            state.free_lanes -= 1;
            drop(state);
            alone(Lane { combiner: Arc::clone(self), began: false }.run());
        }
    }

    /// The checks that are ready, for one call with what the one before has left; None when there are none.
    fn take(self: &Arc<Self>, left: Batch) -> Option<Batch> {
        let taken = self.state().queue.take(self.size.saturating_sub(left.requests.len()));
        let mut batch = left;
        for (bucket, checks) in taken {
            let pass = Arc::new(Pass::new(self, bucket));
            for (request, caller) in checks {
                batch.push(request, caller, Arc::clone(&pass));
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides a batch and answers its callers. With a permit it waits for a bucket that somebody else holds;
    /// without one it returns the checks of such buckets, for a call each.
    ///
    /// Boxed, because it calls itself.
    fn decide<'a>(
        self: &'a Arc<Self>,
        batch: Batch,
        permit: Option<&'a Permit>,
    ) -> Pin<Box<dyn Future<Output = Vec<Batch>> + Send + 'a>> {
        Box::pin(self.decide_batch(batch, permit))
    }

    async fn decide_batch(self: &Arc<Self>, mut batch: Batch, permit: Option<&Permit>) -> Vec<Batch> {
        batch.drop_who_left();
        let Some(until) = batch.until() else { return Vec::new() };
        let terms = Terms { isolation: self.isolation, until };
        let mut tries = Tries::new(self.attempts, until).counted(trace::count_retry);
        let mut whole = true;
        loop {
            let error = match self.call(&batch.requests, terms, permit).await {
                Ok(decisions) => return batch.answer(decisions),
                Err(error) => error,
            };
            let again = tries.again(&error).await;
            // This attempt may have been committed, whatever the error is.
            batch.requests.iter_mut().for_each(|request| request.fresh = false);
            // A conflict or a lost connection is most likely gone when all is tried once more.
            if again && std::mem::take(&mut whole) {
                continue;
            }
            if let Some(mut rest) = batch.split() {
                let mut held = self.decide(batch, permit).await;
                // Those of a bucket stay together, and in their order.
                held.iter_mut().for_each(|held| held.take_of_its_bucket(&mut rest));
                held.extend(self.decide(rest, permit).await);
                return held;
            }
            if !again {
                batch.fail(error);
                return Vec::new();
            }
        }
    }

    /// Decides what a call left because somebody else holds the bucket.
    async fn decide_patiently(self: Arc<Self>, batch: Batch) {
        let permit = Arc::clone(&self.patient).acquire_owned().await.ok();
        self.decide(batch, permit.as_ref()).await;
    }

    async fn call(
        &self,
        requests: &[Request],
        terms: Terms,
        permit: Option<&Permit>,
    ) -> Result<Vec<Option<Decision>>> {
        let decisions = async {
            match permit {
                Some(_) => Ok(self.store.check(requests, terms).await?.into_iter().map(Some).collect()),
                None => self.store.check_free(requests, terms).await,
            }
        };
        super::call(&self.store, requests.len(), terms.until, decisions).await
    }
}

impl Lane {
    /// Makes calls for as long as something is ready.
    async fn run(mut self) {
        self.began = true;
        let combiner = Arc::clone(&self.combiner);
        let mut left = Batch::default();
        loop {
            // Callers that were answered ask again, and their next checks go along.
            tokio::task::yield_now().await;
            let Some(batch) = combiner.take(std::mem::take(&mut left)) else { return };
            let permit = match batch.is_of_one_bucket() {
                true => Arc::clone(&combiner.patient).try_acquire_owned().ok(),
                false => None,
            };
            if permit.is_none() {
                for held in combiner.decide(batch, None).await {
                    if held.leave() {
                        left.append(held);
                    } else {
                        alone(Arc::clone(&combiner).decide_patiently(held));
                    }
                }
                continue;
            }
            let mut call = combiner.decide(batch, permit.as_ref());
            if timeout(PATIENCE, &mut call).await.is_err() {
                drop(self);
                call.await;
                return;
            }
        }
    }
}
