//! Blocked checks that are answered from memory, in zones that choose so (`blocked_rows=coalesced`).
//!
//! A blocked decision says for how long a check of that cost stays blocked. Until then, and for a second at most,
//! further checks that ask as much or more need no database: they are counted here and recorded together as one
//! row. So the one who floods a bucket does not decide how much is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{Inner, call, trace, until};
use crate::boxed::alone;
use crate::decision::{Decision, Reason};
use crate::engine::Request;
use crate::error::Result;
use crate::store::{Bucket, Isolation, Terms};

/// The longest that a count is kept before it is recorded; it is also how late a change of policy is noticed.
const KEPT: Duration = Duration::from_secs(1);

/// Buckets that are remembered at most. A flood over more of them is recorded row by row.
const MOST: usize = 16_384;

pub(super) struct Floods {
    known: Mutex<HashMap<Bucket, Flood>>,
    most: usize,
}

/// A bucket that is blocked for a while.
struct Flood {
    /// The check that was blocked, under the name that the row of those after it will have.
    request: Request,
    decision: Decision,
    answered: Instant,
    until: Instant,
    checks: u32,
}

impl Default for Floods {
    fn default() -> Self {
        Self { known: Mutex::default(), most: MOST }
    }
}

impl Floods {
    /// Nothing is answered from memory.
    pub fn none() -> Self {
        Self { most: 0, ..Self::default() }
    }

    /// Remembers a blocked decision, if it was made now and says how long it holds. Returns when what was counted
    /// by then must be taken.
    ///
    /// The database decided between the asking and the answer. Counted from the asking, nothing is blocked longer
    /// than it promised; counted from the answer, whoever waits as long as he is told waits long enough.
    pub fn remember(
        &self,
        request: &Request,
        decision: &Decision,
        asked: Instant,
        answered: Instant,
    ) -> Option<Instant> {
        let blocks = decision.blocked && decision.reason != Reason::HeldBack && !decision.replayed;
        let wait = decision.retry_after().filter(|_| blocks)?;
        let mut floods = self.floods();
        let bucket = request.bucket();
        if floods.len() >= self.most || floods.contains_key(&bucket) {
            return None;
        }
        let until = asked + wait.min(KEPT);
        // Its row is looked for at the first attempt too: retries do not know what became of those before.
        let request = Request { txn: Uuid::now_v7(), fresh: false, ..request.clone() };
        floods.insert(bucket, Flood { request, decision: decision.clone(), answered, until, checks: 0 });
        Some(until)
    }

    /// The answer to a check of a bucket that is known to be blocked for one that asked for no more. Where blocked checks
    /// lead to bans, only banned buckets are known: what counts towards a ban has its row.
    ///
    /// Not to one whose id the caller chose: that may have been decided before, and then has its answer.
    pub fn answer(&self, request: &Request, now: Instant) -> Option<Decision> {
        let mut floods = self.floods();
        if floods.is_empty() || !request.fresh {
            return None;
        }
        let flood = floods.get_mut(&request.bucket())?;
        let harder = request.cost >= flood.request.cost && request.critical <= flood.request.critical;
        if !harder || request.member != flood.request.member || now >= flood.until {
            return None;
        }
        flood.checks = flood.checks.checked_add(1)?;
        let passed_us = i64::try_from(now.saturating_duration_since(flood.answered).as_micros()).ok()?;
        Some(Decision {
            txn_id: request.txn,
            retry_after_us: flood.decision.retry_after_us.map(|wait_us| (wait_us - passed_us).max(1)),
            decided_at: flood.decision.decided_at + Duration::from_micros(passed_us.unsigned_abs()),
            seq: None,
            ..flood.decision.clone()
        })
    }

    /// Answers no more checks of a bucket, and learns nothing of it until what was counted is taken.
    pub fn end(&self, bucket: &Bucket) {
        if let Some(flood) = self.floods().get_mut(bucket) {
            flood.until = Instant::now();
        }
    }

    /// Forgets a bucket. Returns how many checks were answered, and under which request they are recorded.
    pub fn take(&self, bucket: &Bucket) -> Option<(Request, u32)> {
        self.floods()
            .remove(bucket)
            .map(|flood| (flood.request, flood.checks))
            .filter(|(_, checks)| *checks > 0)
    }

    /// Every bucket that is remembered.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.floods().keys().cloned().collect()
    }

    fn floods(&self) -> MutexGuard<'_, HashMap<Bucket, Flood>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Has a look at a decision of a zone whose blocked rows are coalesced.
    pub(super) fn watch(self: &Arc<Self>, request: &Request, decision: &Decision, asked: Instant) {
        let Some(until) = self.floods.remember(request, decision, asked, Instant::now()) else {
            return;
        };
        let (this, bucket) = (Arc::clone(self), request.bucket());
        alone(async move {
            sleep_until(until).await;
            if let Err(error) = this.record(&bucket).await {
                tracing::error!(%error, "checks that were answered blocked have no row");
            }
        });
    }

    /// Records what was answered from memory in a bucket, and forgets it.
    pub(super) async fn record(&self, bucket: &Bucket) -> Result<()> {
        let Some((request, checks)) = self.floods.take(bucket) else { return Ok(()) };
        let until = until(self.config.deadline);
        let terms = Terms { isolation: Isolation::RowLock, until };
        let recorded = async {
            let _entered = self.combiner.enter(BTreeSet::from([bucket.clone()]), until).await?;
            let record = |_| call(&self.store, 1, until, self.store.record_blocked(&request, checks, terms));
            self.tries(until).run(record).await
        };
        recorded.await.inspect_err(|_| trace::count_unrecorded(&request.zone, checks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cost: i64) -> Request {
        let (zone, key) = ("login".to_owned(), "42".to_owned());
        Request {
            zone,
            zone_id: 1,
            key,
            txn: Uuid::now_v7(),
            cost,
            fresh: true,
            record: false,
            critical: true,
            member: None,
            ttl_us: None,
            shape: None,
        }
    }

    fn blocked(request: &Request, wait_us: i64) -> Decision {
        Decision {
            zone: request.zone.clone(),
            key: request.key.clone(),
            txn_id: request.txn,
            blocked: true,
            reason: Reason::OverLimit,
            limit: 5,
            remaining: 1,
            retry_after_us: Some(wait_us),
            delay_us: None,
            ends_at: None,
            seq: Some(7),
            zone_version: 1,
            decided_at: chrono::DateTime::from_timestamp_micros(1_000_000).unwrap(),
            replayed: false,
            local: None,
        }
    }

    #[test]
    fn what_asks_as_much_is_answered_until_the_wait_is_over() {
        let (floods, start) = (Floods::default(), Instant::now());
        let first = request(2);
        assert_eq!(floods.answer(&first, start), None);
        let until = floods.remember(&first, &blocked(&first, 500_000), start, start);
        assert_eq!(until, Some(start + Duration::from_millis(500)));
        let next = request(3);
        let answer = floods.answer(&next, start + Duration::from_millis(100)).unwrap();
        assert!(answer.blocked && answer.seq.is_none() && answer.txn_id == next.txn);
        assert_eq!(answer.retry_after_us, Some(400_000));
        assert_eq!(answer.decided_at.timestamp_micros(), 1_100_000);
        assert_eq!(floods.answer(&request(2), start + Duration::from_millis(500)), None);
        let (recorded, checks) = floods.take(&first.bucket()).unwrap();
        assert!(checks == 1 && recorded.cost == 2 && recorded.txn != first.txn);
        assert!(floods.take(&first.bucket()).is_none());
    }

    #[test]
    fn what_may_pass_or_was_decided_before_goes_to_the_database() {
        let (floods, start) = (Floods::default(), Instant::now());
        let first = Request { critical: false, ..request(2) };
        floods.remember(&first, &blocked(&first, 500_000), start, start);
        assert_eq!(floods.answer(&Request { critical: false, ..request(1) }, start), None);
        assert_eq!(floods.answer(&request(2), start), None, "it may take from the reserve");
        let request = |cost| Request { critical: false, ..request(cost) };
        assert_eq!(floods.answer(&Request { fresh: false, ..request(2) }, start), None);
        assert_eq!(floods.answer(&Request { member: Some("card".to_owned()), ..request(2) }, start), None);
        assert_eq!(floods.answer(&Request { key: "43".to_owned(), ..request(2) }, start), None);
        assert!(floods.take(&first.bucket()).is_none());
    }

    #[test]
    fn a_decision_of_earlier_says_nothing_about_now() {
        let (floods, start) = (Floods::default(), Instant::now());
        let first = request(2);
        let replayed = Decision { replayed: true, ..blocked(&first, 500_000) };
        assert_eq!(floods.remember(&first, &replayed, start, start), None);
        assert_eq!(floods.answer(&request(2), start), None);
    }

    #[test]
    fn a_long_wait_is_remembered_for_a_second() {
        let (floods, start) = (Floods::default(), Instant::now());
        let first = request(1);
        assert_eq!(floods.remember(&first, &blocked(&first, i64::MAX), start, start), Some(start + KEPT));
        assert_eq!(floods.remember(&first, &blocked(&first, i64::MAX), start, start), None);
        let never = Decision { reason: Reason::ExceedsLimit, retry_after_us: None, ..blocked(&first, 1) };
        assert_eq!(floods.remember(&Request { key: "43".to_owned(), ..first }, &never, start, start), None);
    }
}
