//! Checks on their way to the database: alone through the combiner, several in a call of their own.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{DEADLINE_MAX, GRACE, Inner, trace};
use crate::boxed::{BoxFuture, boxed, caught, spawn};
use crate::check::Check;
use crate::decision::{Decision, Reason};
use crate::engine::Request;
use crate::error::{Error, Result};
use crate::retry::Tries;
use crate::store::{Caller, Found, Store, Terms};
use crate::zone::{Algorithm, BlockedRows, micros};

/// The choice of which checks of a call pass.
#[derive(Clone, Copy)]
pub(super) enum Passing {
    /// Each that fits.
    Each,
    /// All, or none.
    Together,
}

impl Inner {
    pub(super) async fn check(self: &Arc<Self>, check: Check, txn: Uuid, until: Instant) -> Result<Decision> {
        let asked = Instant::now();
        let zone = match self.zones.known(&check.zone) {
            Some(zone) => zone,
            None => {
                let (this, zone) = (Arc::clone(self), check.zone.clone());
                flat(spawn(async move { this.find_zone(&zone).await }).await)?
            }
        };
        decides_checks(&zone)?;
        let request = request(check, zone.id, txn);
        if !request.leaves_row() {
            let this = Arc::clone(self);
            return only(flat(
                spawn(async move { this.decide(vec![request], Passing::Each, until).await }).await,
            )?);
        }
        if let Some(decision) = self.shield.as_ref().and_then(|shield| shield.block(&request, &zone)) {
            trace::decided(&request.zone, Ok(&decision), asked.elapsed());
            return Ok(decision);
        }
        if let Some(decision) = self.decide_here(&request, &zone, asked).await {
            return Ok(decision);
        }
        let local = zone.policy.is_some_and(|policy| policy.local_us().is_some()).then(|| request.bucket());
        if let Some(bucket) = &local {
            self.make_room(bucket, request.cost).await;
        }
        let coalesced = zone.blocked_rows == BlockedRows::Coalesced;
        if coalesced && let Some(decision) = self.floods.answer(&request, asked) {
            trace::decided(&request.zone, Ok(&decision), asked.elapsed());
            return Ok(decision);
        }
        let decision = match self.combiner.check(request.clone(), until).await {
            Err(error) if error.is_unknown_zone() => {
                let this = Arc::clone(self);
                return flat(spawn(async move { Err(this.look_again(vec![zone.id], error).await) }).await);
            }
            decision => decision?,
        };
        if let Some(bucket) = &local {
            self.learn(bucket, &decision);
        }
        if decision.zone_version > zone.version {
            self.renew_zone(&decision.zone);
        } else if coalesced && (!zone.bans || decision.reason == Reason::Banned) {
            self.watch(&request, &decision, asked);
        }
        Ok(decision)
    }

    pub(super) async fn check_many(
        self: &Arc<Self>,
        checks: Vec<Check>,
        txns: Vec<Uuid>,
        passing: Passing,
        until: Instant,
    ) -> Result<Vec<Decision>> {
        let requests = self.requests(None, checks, txns).await?;
        let buckets: Vec<_> = requests.iter().map(Request::bucket).collect();
        for (bucket, request) in buckets.iter().zip(&requests) {
            self.make_room(bucket, request.cost).await;
        }
        let decisions = self.decide(requests, passing, until).await?;
        buckets.iter().zip(&decisions).for_each(|(bucket, decision)| self.learn(bucket, decision));
        Ok(decisions)
    }

    /// Decides in the caller's transaction, once.
    pub(super) fn check_in<'a>(
        &'a self,
        mut caller: Caller<'a>,
        checks: Vec<Check>,
        txns: Vec<Uuid>,
        passing: Passing,
    ) -> BoxFuture<'a, Result<Vec<Decision>>> {
        boxed(async move {
            let requests = self.requests(Some(&mut caller), checks, txns).await?;
            let asked = Instant::now();
            let decisions = async {
                match passing {
                    Passing::Each => self.store.check_in(caller, &requests).await,
                    Passing::Together => self.store.check_all_in(caller, &requests).await,
                }
            };
            let result = trace::call(requests.len(), decisions).await;
            trace::all_decided(&requests, &result, asked.elapsed());
            match &result {
                Ok(decisions) => self.zones.learn(decisions),
                // The next one looks for the zones anew.
                Err(error) if error.is_unknown_zone() => {
                    requests.iter().for_each(|request| drop(self.zones.forget_number(request.zone_id)));
                }
                Err(_) => {}
            }
            result
        })
    }

    async fn requests(
        &self,
        mut caller: Option<&mut Caller<'_>>,
        checks: Vec<Check>,
        txns: Vec<Uuid>,
    ) -> Result<Vec<Request>> {
        let mut requests = Vec::with_capacity(checks.len());
        for (check, txn) in checks.into_iter().zip(txns) {
            let zone = self.zone_of(caller.as_deref_mut(), &check.zone).await?;
            requests.push(request(check, zone.id, txn));
        }
        Ok(requests)
    }

    /// Decides requests in a call of their own.
    async fn decide(
        &self,
        requests: Vec<Request>,
        passing: Passing,
        until: Instant,
    ) -> Result<Vec<Decision>> {
        let asked = Instant::now();
        let terms = Terms { isolation: self.config.isolation, until };
        let held = requests.iter().filter(|request| request.leaves_row()).map(Request::bucket).collect();
        let _entered = self.combiner.enter(held, until).await?;
        // An attempt that failed may have been committed after all.
        let known = LazyLock::new(|| {
            let known = |request: &Request| Request { fresh: false, ..request.clone() };
            requests.iter().map(known).collect::<Vec<_>>()
        });
        let decide = |again: bool| {
            let requests = if again { &*known } else { &requests };
            let decisions = async move {
                match passing {
                    Passing::Each => self.store.check(requests, terms).await,
                    Passing::Together => self.store.check_all(requests, terms).await,
                }
            };
            call(&self.store, requests.len(), until, decisions)
        };
        let result = self.tries(until).run(decide).await;
        trace::all_decided(&requests, &result, asked.elapsed());
        match result {
            Err(error) if error.is_unknown_zone() => {
                let ids = requests.iter().map(|request| request.zone_id).collect();
                Err(self.look_again(ids, error).await)
            }
            result => {
                self.zones.learn(result.as_deref().unwrap_or_default());
                result
            }
        }
    }

    pub(super) fn tries(&self, until: Instant) -> Tries {
        Tries::new(self.config.attempts, until).counted(trace::count_retry)
    }

    /// Ends `work` that is not a check at the deadline.
    pub(super) async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.config.deadline;
        let late =
            |_| Err(Error::transient(format!("the database did not answer within {deadline:?}; try again")));
        self.store.heed(timeout_at(until(deadline), work).await.unwrap_or_else(late))
    }
}

/// Makes a call to the database that carries so many checks and ends soon after the deadline in any case. One of several
/// servers gets half of the time that is left: the rest is for another. A panic is an error like any other, so that a row that a
/// driver cannot read fails the checks of its own bucket alone. Boxed, since unoptimized code keeps a future by value in each frame
/// above it, and this one is large: 1.5 of the 2 MB that a worker's stack has.
pub(super) fn call<'c, T: Send + 'c>(
    store: &'c Store,
    checks: usize,
    until: Instant,
    call: impl Future<Output = Result<T>> + Send + 'c,
) -> BoxFuture<'c, Result<T>> {
    let call = caught(boxed(call));
    boxed(async move {
        let patience = match store.is_of_several() {
            true => Instant::now() + until.saturating_duration_since(Instant::now()) / 2,
            false => until + GRACE,
        };
        let heeded = async {
            match timeout_at(patience, call).await {
                Ok(Some(result)) => store.heed(result),
                Ok(None) => Err(Error::database(
                    "the program broke off in the middle of a call; what it said on stderr tells where, please report it",
                )),
                Err(_) => {
                    store.doubt();
                    Err(Error::transient("the database did not answer; try again"))
                }
            }
        };
        trace::call(checks, heeded).await
    })
}

/// A peek would tell something else than what can be had there.
fn decides_checks(zone: &Found) -> Result<()> {
    match zone.policy.map(|policy| policy.algorithm()) {
        Some(algorithm @ (Algorithm::Capacity | Algorithm::Queue)) => Err(Error::invalid(format!(
            "a zone of {algorithm} decides no checks; {}",
            algorithm.is_asked_by()
        ))),
        _ => Ok(()),
    }
}

/// The answer to the caller of a check: an error that may hide a decision says how that is learned.
pub(super) fn ended<T>(result: Result<Result<T>, Elapsed>, deadline: Duration, txn: Uuid) -> Result<T> {
    let ask_again = format!("whether it was decided is learned by asking again with transaction {txn}");
    match result {
        Ok(Err(error)) if error.is_transient() => {
            Err(Error::transient(format!("{error}; {ask_again}")).caused_by(error))
        }
        Ok(result) => result,
        Err(_) => Err(Error::transient(format!("no decision within {deadline:?}; {ask_again}"))),
    }
}

/// The answer to a caller, who named the transaction or did not. An id that was made here can have been decided before by an attempt
/// of the same call alone, whose answer was lost.
pub(super) fn answer(decision: Decision, named: bool) -> Decision {
    Decision { replayed: decision.replayed && named, ..decision }
}

/// The result of work in a task of its own.
pub(super) fn flat<T>(result: Result<Result<T>, JoinError>) -> Result<T> {
    result.unwrap_or_else(|failed| Err(Error::transient("the decision was cut short").caused_by(failed)))
}

pub(super) fn only(mut decisions: Vec<Decision>) -> Result<Decision> {
    decisions.pop().ok_or_else(|| Error::database("the database gave no decision"))
}

pub(super) fn until(deadline: Duration) -> Instant {
    Instant::now() + deadline.min(DEADLINE_MAX)
}

pub(super) fn request(check: Check, zone_id: i32, txn: Uuid) -> Request {
    Request {
        critical: check.claimed_band() == Some(0),
        zone: check.zone,
        zone_id,
        key: check.key,
        txn,
        cost: check.cost,
        fresh: check.txn.is_none(),
        record: check.record,
        member: check.member,
        ttl_us: check.ttl.map(micros),
        shape: None,
    }
}

#[cfg(test)]
mod tests {
    /// Of several checks in one call, then, those of other buckets are decided by the next ones.
    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_call_that_panics_has_failed_like_any_other() {
        use super::*;

        let limiter = crate::limiter::Limiter::connect("sqlite::memory:").await.unwrap();
        let store = &limiter.shards.first().store;
        let dies = async { panic!("as a driver does") };
        let ended: Result<()> = call(store, 2, until(Duration::from_secs(120)), dies).await;
        assert_eq!(ended.unwrap_err().kind(), crate::ErrorKind::Database);
    }
}
