//! Checks that this process decides by itself, in zones that allow it ([`Policy::with_local`](crate::Policy::with_local)).
//!
//! It takes units of a bucket as one row of the ledger, spends them in memory until they end, and gives back what it
//! did not spend. A check that cannot be decided so is asked of the database as in any other zone, and so is every
//! check that is blocked.

mod hands;
mod journal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::DateTime;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::calls::flat;
use super::{DEADLINE_MAX, Inner, Limiter, trace, until};
use crate::boxed::{BoxFuture, alone, boxed, spawn};
use crate::decide::Undo;
use crate::decision::Decision;
use crate::engine::{Action, Request, Taking, Took, What};
#[cfg(feature = "testing")]
use crate::entry::Recorded;
use crate::error::{Error, Result};
use crate::store::{Bucket, Found};
#[cfg(feature = "testing")]
use crate::store::{Isolation, Terms};
use hands::{Hands, Lease, Spent, Turn};

pub use journal::LocalJournal;

/// The time for which nothing is taken after the database has said that it will not be.
const REFUSED_US: i64 = 60_000_000;

/// The number of times that a check waits for units that are on their way. The first may have been wanted before it came, the
/// second were not; a check that does not get any of those either has its own turn at the database.
const WAITS: u32 = 2;

/// The state of the checks that this process decides by itself.
#[derive(Default)]
pub(super) struct Local {
    hands: Hands,
    /// True when it was said once that it may not.
    told: AtomicBool,
}

impl Local {
    /// By a clock that a test moves.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub fn by(clock: &crate::testing::Clock) -> Self {
        Self { hands: Hands::by(hands::Clock::Test(clock.clone())), told: AtomicBool::default() }
    }
}

impl Limiter {
    /// Gives back what this process took for local decisions and has not spent: before a program ends, or after a change of a
    /// policy that must take effect at once. It takes anew with the next checks.
    ///
    /// One transaction for each bucket of which anything is left. [`flush`](Self::flush) and [`close`](Self::close) do it too.
    ///
    /// # Errors
    /// Those of [`Limiter`]; the first one is told. Of a database that does not answer for two buckets the others are not tried.
    /// Units that could not be given back count as spent.
    pub fn settle_local(&self) -> BoxFuture<'_, Result<()>> {
        boxed(async move {
            // A caller that leaves meanwhile does not cut it off.
            let settle = |inner: &Arc<Inner>| spawn(Arc::clone(inner).settle_hands());
            let settling: Vec<_> = self.shards.all().map(settle).collect();
            let mut result = Ok(());
            for settled in settling {
                result = result.and(flat(settled.await));
            }
            result
        })
    }
}

/// The calls that the tier itself makes to the database; for this project's own tests.
#[cfg(feature = "testing")]
#[doc(hidden)]
impl Limiter {
    /// Takes so many units: how many were taken, what is left in the bucket, and until when they may be
    /// spent.
    pub fn take_units<'a>(
        &'a self,
        zone_id: i32,
        key: &'a str,
        txn: Uuid,
        wants: i64,
    ) -> BoxFuture<'a, Result<Option<(i64, i64, i64)>>> {
        boxed(async move {
            let (until, again) = (until(Duration::from_secs(30)), true);
            let taking = Taking { zone_id, key: key.to_owned(), txn, wants, again };
            let terms = Terms { isolation: Isolation::RowLock, until };
            let took = self.shards.of(key).store.take_units(&taking, terms).await?;
            Ok(took.map(|took| (took.units, took.remaining, took.ends_us)))
        })
    }

    pub fn settle_units<'a>(
        &'a self,
        zone_id: i32,
        key: &'a str,
        txn: Uuid,
        used: i64,
    ) -> BoxFuture<'a, Result<Recorded>> {
        boxed(async move {
            let terms = Terms { isolation: Isolation::RowLock, until: until(Duration::from_secs(30)) };
            let action = settlement(zone_id, key, txn, used);
            let mut recorded = self.shards.of(key).store.act(&[action], terms).await?;
            recorded.pop().ok_or_else(|| crate::error::Error::database("nothing was recorded"))
        })
    }
}

impl Inner {
    /// Decides a check here, if enough is in hand of its bucket or on its way. A check that needs a row of its own is not
    /// decided here.
    pub(super) async fn decide_here(
        self: &Arc<Self>,
        request: &Request,
        zone: &Found,
        asked: Instant,
    ) -> Option<Decision> {
        let Request { cost, fresh, critical, record, ref member, ttl_us, .. } = *request;
        if cost == 0 || !fresh || critical || record || member.is_some() || ttl_us.is_some() {
            return None;
        }
        let (mut new, mut waits) = (cost, 0);
        let spent = loop {
            let coming = match self.spend(request, zone, new) {
                Ok(spent) => break spent,
                Err(coming) => coming.filter(|_| waits < WAITS),
            };
            // At the database it would hold up what it waits for.
            coming?.changed().await.ok();
            (new, waits) = (0, waits + 1);
        };
        let decision = decision(request, &spent)?;
        trace::decided(&decision.zone, Ok(&decision), asked.elapsed());
        Some(decision)
    }

    /// Spends of what is in hand, and begins whatever follows from it. Of the cost, so much is `new`: it was not asked for
    /// before. Too little in hand is told with what is on its way.
    fn spend(
        self: &Arc<Self>,
        request: &Request,
        zone: &Found,
        new: i64,
    ) -> Result<Spent, Option<Receiver<()>>> {
        let local_us = zone.policy.and_then(|policy| policy.local_us()).ok_or(None)?;
        let bucket = request.bucket();
        let Turn { spent, asking, ended, coming } =
            self.local.hands.spend(&bucket, request.cost, new, local_us);
        if !ended.is_empty() {
            let (this, bucket) = (Arc::clone(self), bucket.clone());
            alone(async move { this.settle_all(&bucket, ended).await });
        }
        if let Some(asking) = asking {
            let (this, zone) = (Arc::clone(self), (request.zone.clone(), zone.version));
            alone(async move { this.fill(zone, bucket, asking, local_us).await });
        }
        spent.ok_or(coming)
    }

    /// Gives back what this process has in hand, where a check that goes to the database may be in want of it.
    pub(super) async fn make_room(self: &Arc<Self>, bucket: &Bucket, cost: i64) {
        if !self.local.hands.stand_in_the_way(bucket, cost) {
            return;
        }
        let (this, bucket) = (Arc::clone(self), bucket.clone());
        let room = async move {
            // Once for those in hand, once for those that were on their way.
            for _ in 0..2 {
                let (back, more) = this.local.hands.give_way(&bucket, cost);
                this.settle_all(&bucket, back).await;
                let Some(mut more) = more else { break };
                more.changed().await.ok();
            }
        };
        alone(room).await.ok();
    }

    /// Remembers what the database told of a bucket.
    pub(super) fn learn(&self, bucket: &Bucket, decision: &Decision) {
        self.local.hands.learn(bucket, decision.remaining);
    }

    /// Takes units of a bucket, tells those who wait for them, and gives back in the end what is left.
    async fn fill(
        self: Arc<Self>,
        (zone, version): (String, i32),
        bucket: Bucket,
        asking: Sender<()>,
        local_us: i64,
    ) {
        let hands = &self.local.hands;
        match self.take(&bucket).await {
            Ok(Some((took, sent_us))) => {
                hands.put(&bucket, took, sent_us);
                drop(asking);
                if took.zone_version > version {
                    self.renew_zone(&zone);
                }
                let left_us = took.ends_us.saturating_sub(took.at_us);
                if hands.clock.runs() {
                    sleep(Duration::from_micros(left_us.unsigned_abs()).min(DEADLINE_MAX)).await;
                    self.settle_all(&bucket, hands.end(&bucket)).await;
                }
            }
            Ok(None) => hands.pause(&bucket, local_us / 4),
            Err(error) if error.is_transient() => hands.pause(&bucket, local_us / 4),
            Err(error) => {
                hands.pause(&bucket, REFUSED_US);
                if !self.local.told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, zone, "nothing is decided locally");
                }
            }
        }
    }

    /// Takes units: how many there were, and when they were asked for. The wait for its turn in this process does not
    /// count, and what is asked for meanwhile is wanted too. Of several attempts the first counts, which may be the one that
    /// was committed.
    async fn take(&self, bucket: &Bucket) -> Result<Option<(Took, i64)>> {
        let (hands, txn, first) = (&self.local.hands, Uuid::now_v7(), &OnceLock::new());
        self.holding(bucket.clone(), until(self.config.deadline), |terms, again| async move {
            let &(sent_us, wants) = first.get_or_init(|| (hands.clock.now_us(), hands.wants(bucket)));
            let (zone_id, key) = bucket.clone();
            let taking = Taking { zone_id, key, txn, wants, again };
            Ok(self.store.take_units(&taking, terms).await?.map(|took| (took, sent_us)))
        })
        .await
    }

    async fn settle_all(&self, bucket: &Bucket, leases: Vec<Lease>) {
        for lease in leases {
            if let Err(error) = self.settle(bucket, &lease).await {
                tracing::warn!(%error, units = lease.left, "what was taken for local decisions counts as spent");
            }
        }
    }

    /// Settles all that is in hand.
    async fn settle_hands(self: Arc<Self>) -> Result<()> {
        let (mut result, mut silent) = (Ok(()), 0);
        for (bucket, lease) in self.local.hands.empty() {
            let settled = self.settle(&bucket, &lease).await;
            silent += u32::from(settled.as_ref().is_err_and(Error::is_transient));
            result = result.and(settled);
            if silent == 2 {
                break;
            }
        }
        result
    }

    /// Settles what was taken, once nobody can spend of it any more.
    async fn settle(&self, bucket: &Bucket, lease: &Lease) -> Result<()> {
        let used = lease.took.units.saturating_sub(lease.left);
        let action = &[settlement(bucket.0, &bucket.1, lease.took.txn, used)];
        let until = until(self.config.deadline);
        let settle = |terms, _| async move { self.store.act(action, terms).await };
        self.holding(bucket.clone(), until, settle).await.map(drop)
    }
}

fn settlement(zone_id: i32, key: &str, txn: Uuid, used: i64) -> Action {
    let (zone, key, what) = (String::new(), key.to_owned(), What::Undo(Undo::Used(used)));
    Action { zone, zone_id, key, txn, what, note: None, actor: None }
}

/// The answer to the caller.
fn decision(request: &Request, spent: &Spent) -> Option<Decision> {
    let Spent { took, left, at_us } = spent;
    Some(Decision {
        zone: request.zone.clone(),
        key: request.key.clone(),
        txn_id: request.txn,
        blocked: false,
        reason: took.reason,
        limit: took.limit,
        remaining: took.remaining.saturating_add(*left),
        retry_after_us: None,
        delay_us: None,
        ends_at: None,
        seq: None,
        zone_version: took.zone_version,
        decided_at: DateTime::from_timestamp_micros(*at_us)?,
        replayed: false,
        local: Some(took.txn),
    })
}
