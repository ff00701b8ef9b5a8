//! What callers do besides checks: several limits at once, giving back, settling, banning, overriding.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout_at;
use uuid::Uuid;

use super::{Inner, Limiter, Passing, call, ended, flat, trace, until};
use crate::check::{Check, validate_key};
use crate::decide::{Override, Undo};
use crate::decision::{Decision, Reason};
use crate::entry::{Overridden, Recorded};
use crate::error::{Error, Result};
use crate::store::{Action, Isolation, Spending, Terms, What};
use crate::zone::{UNITS_MAX, micros, validate_name, validate_text, validate_time};

/// The answer to several limits that were asked at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Combined {
    /// True when the transaction may not pass; then none of the limits was spent from.
    pub blocked: bool,
    /// The zone whose limit binds: of those that blocked, the one with the longest wait.
    pub binding: Option<String>,
    /// The least wait in microseconds after which the same passes if nothing else arrives. None when it was allowed,
    /// and when it can never pass.
    pub retry_after_us: Option<i64>,
    /// What each limit said, in the order of the checks.
    pub decisions: Vec<Decision>,
}

impl Combined {
    fn of(decisions: Vec<Decision>) -> Self {
        let blocking = decisions.iter().filter(|d| d.blocked && d.reason != Reason::HeldBack);
        // None is the longest: it never passes. Of equals, the first.
        let binding = blocking.rev().max_by_key(|d| d.retry_after_us.unwrap_or(i64::MAX));
        Self {
            blocked: decisions.iter().any(|decision| decision.blocked),
            binding: binding.map(|decision| decision.zone.clone()),
            retry_after_us: binding.and_then(|decision| decision.retry_after_us),
            decisions,
        }
    }

    /// True when the transaction may pass.
    pub fn is_allowed(&self) -> bool {
        !self.blocked
    }
}

/// A charge by its transaction: in every bucket that this charged, or in one.
///
/// ```
/// use tallygate::Charged;
/// let txn = uuid::Uuid::now_v7();
/// let everywhere = Charged::by(txn);
/// let there = Charged::by(txn).in_bucket("login", "user:42");
/// # let _ = (everywhere, there);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    txn: Uuid,
    bucket: Option<(String, String)>,
}

impl Charged {
    /// In every bucket that the transaction charged.
    pub fn by(txn: Uuid) -> Self {
        Self { txn, bucket: None }
    }

    /// Only in the bucket of this zone and key.
    pub fn in_bucket(self, zone: impl Into<String>, key: impl Into<String>) -> Self {
        Self { bucket: Some((zone.into(), key.into())), ..self }
    }
}

impl From<Uuid> for Charged {
    fn from(txn: Uuid) -> Self {
        Self::by(txn)
    }
}

impl Limiter {
    /// Decides several limits of one transaction: all pass, or none is spent from.
    ///
    /// One call to the database. Each limit has its row in the ledger; one that would have passed but for another
    /// says `held_back`. Locks all their buckets in one order, so that callers cannot deadlock in whatever order they
    /// name them. A zone in shadow mode holds nothing back.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); invalid, if two checks name the same bucket or different transactions.
    pub async fn check_all(&self, checks: Vec<Check>) -> Result<Combined> {
        let mut buckets = BTreeSet::new();
        for check in &checks {
            check.validate()?;
            if !buckets.insert((&check.zone, &check.key)) {
                return Err(Error::invalid(format!(
                    "the bucket {:?} of zone {:?} is named twice; name it once, with the sum of the costs",
                    check.key, check.zone
                )));
            }
        }
        let txns: BTreeSet<Uuid> = checks.iter().filter_map(|check| check.txn).collect();
        if txns.len() > 1 {
            return Err(Error::invalid("the limits of one request have one transaction; name it once"));
        }
        let txn = txns.first().copied().unwrap_or_else(Uuid::now_v7);
        let named = !txns.is_empty();
        let checks: Vec<_> =
            checks.into_iter().map(|check| Check { txn: named.then_some(txn), ..check }).collect();
        let txns = vec![txn; checks.len()];
        let deadline =
            checks.iter().filter_map(|check| check.deadline).min().unwrap_or(self.inner.config.deadline);
        let until = until(deadline);
        // A task of its own, as for `check_many`.
        let inner = Arc::clone(&self.inner);
        let work =
            tokio::spawn(async move { inner.check_many(checks, txns, Passing::Together, until).await });
        ended(timeout_at(until, work).await.map(flat), deadline, txn).map(Combined::of)
    }

    /// Reserves the check's cost for `ttl` (1 µs to 10 years): charged now, and given back by itself exactly then,
    /// unless [`settle`](Self::settle) or [`cancel`](Self::cancel) come before.
    pub async fn reserve(&self, check: Check, ttl: Duration) -> Result<Decision> {
        self.check(check.reserved_for(ttl)).await
    }

    /// Gives back what a check spent, once: a right password after an attempt that was counted.
    ///
    /// Two round trips, or one when the bucket is named. Locks the buckets that the transaction charged. The same
    /// again is told, and nothing happens.
    ///
    /// # Errors
    /// Invalid: there is no such transaction. Conflict: it was blocked or spent nothing, or it is a reservation or a
    /// slot, or it was ended otherwise.
    pub async fn refund(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.inner.undo(charged.into(), Undo::Refund).await
    }

    /// Turns a reservation into a charge of `cost` units, 0 to 2^40. What it held beyond is given back. What is lacking
    /// is charged without asking for room, as a debt that later checks feel; so is all of it when the reservation has
    /// run out.
    pub async fn settle(&self, charged: impl Into<Charged>, cost: i64) -> Result<Vec<Recorded>> {
        if !(0..=UNITS_MAX).contains(&cost) {
            return Err(Error::invalid(format!("cost {cost} is out of range; use 0 to {UNITS_MAX}")));
        }
        self.inner.undo(charged.into(), Undo::Settle(cost)).await
    }

    /// Gives a reservation back.
    pub async fn cancel(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.inner.undo(charged.into(), Undo::Cancel).await
    }

    /// Gives a slot back, in a zone that counts concurrency.
    pub async fn release(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.inner.undo(charged.into(), Undo::Release).await
    }

    /// Bans a bucket for a time (1 µs to 10 years) from now on: no check passes. In place of a ban that it has.
    pub async fn ban(&self, zone: &str, key: &str, time: Duration, note: &str, by: &str) -> Result<Recorded> {
        validate_time("a ban", micros(time))?;
        self.inner.mark(zone, key, What::Ban(micros(time)), note, by).await
    }

    /// Ends a bucket's ban, and forgets those before it. Conflict when it has none.
    pub async fn unban(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Recorded> {
        self.inner.mark(zone, key, What::Unban, note, by).await
    }

    /// Gives a bucket a limit of its own, in place of one that it has.
    pub async fn set_override(
        &self,
        zone: &str,
        key: &str,
        over: Override,
        note: &str,
        by: &str,
    ) -> Result<Recorded> {
        if let Some(for_us) = over.for_us {
            validate_time("an override", for_us)?;
        }
        if over.limit.is_none() && !over.ban_exempt {
            return Err(Error::invalid(
                "the override changes nothing; give it a rate, or exempt it from bans",
            ));
        }
        self.inner.mark(zone, key, What::Override(Some(over)), note, by).await
    }

    /// Ends a bucket's override. Conflict when it has none.
    pub async fn remove_override(&self, zone: &str, key: &str, note: &str, by: &str) -> Result<Recorded> {
        self.inner.mark(zone, key, What::Override(None), note, by).await
    }

    /// The overrides in force in a zone, by bucket.
    pub async fn overrides(&self, zone: &str) -> Result<Vec<Overridden>> {
        validate_name(zone)?;
        let found = self.inner.zone(zone).await?;
        self.inner.within(self.inner.store.overrides(found.id)).await
    }
}

impl Inner {
    async fn undo(self: &Arc<Self>, charged: Charged, undo: Undo) -> Result<Vec<Recorded>> {
        let Charged { txn, bucket } = charged;
        let buckets = match bucket {
            Some((zone, key)) => {
                validate_name(&zone)?;
                vec![(zone, key)]
            }
            None => self.charged(txn, undo).await?,
        };
        let mut actions = Vec::with_capacity(buckets.len());
        for (zone, key) in buckets {
            validate_key(&key)?;
            let zone_id = self.zone(&zone).await?.id;
            actions.push(Action { zone, zone_id, key, txn, what: What::Undo(undo), note: None, actor: None });
        }
        // As every lock is taken.
        actions.sort_by(|a, b| (a.zone_id, &a.key).cmp(&(b.zone_id, &b.key)));
        self.act(actions).await
    }

    /// The buckets that a transaction charged, of those charges that end in this way.
    async fn charged(self: &Arc<Self>, txn: Uuid, undo: Undo) -> Result<Vec<(String, String)>> {
        let mut charges = self.within(self.store.charges(txn)).await?;
        if charges.is_empty() {
            return Err(Error::invalid(format!(
                "there is no transaction {txn} in the ledger; look at its name"
            )));
        }
        // Those that it does not concern are left out, unless there is no other: then one says why.
        if charges.iter().any(|row| concerns(undo, row)) {
            charges.retain(|row| concerns(undo, row));
        } else {
            charges.truncate(1);
        }
        Ok(charges.into_iter().map(|row| (row.zone, row.key)).collect())
    }

    async fn mark(
        self: &Arc<Self>,
        zone: &str,
        key: &str,
        what: What,
        note: &str,
        by: &str,
    ) -> Result<Recorded> {
        validate_name(zone)?;
        validate_key(key)?;
        validate_text("note", note)?;
        validate_text("the name of who does it", by)?;
        let zone_id = self.zone(zone).await?.id;
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let action = Action {
            zone: zone.to_owned(),
            zone_id,
            key: key.to_owned(),
            txn: Uuid::now_v7(),
            what,
            note: text(note),
            actor: text(by),
        };
        let mut recorded = self.act(vec![action]).await?;
        recorded.pop().ok_or_else(|| Error::database("the database recorded nothing"))
    }

    /// Records actions in a call of their own, once.
    pub(super) async fn act(self: &Arc<Self>, actions: Vec<Action>) -> Result<Vec<Recorded>> {
        let until = until(self.config.deadline);
        let this = Arc::clone(self);
        // A task of its own: the caller may go away, the protocol with the database goes on to its end.
        let work = tokio::spawn(async move {
            let terms = Terms { isolation: Isolation::RowLock, until };
            let buckets: BTreeSet<_> =
                actions.iter().map(|action| (action.zone_id, action.key.clone())).collect();
            let recorded = async {
                let _entered = this.combiner.enter(buckets.clone(), until).await?;
                let mut tries = this.tries(until);
                loop {
                    match call(actions.len(), until, this.store.act(&actions, terms)).await {
                        Err(error) if tries.again(&error).await => trace::count_retry(),
                        result => return result,
                    }
                }
            };
            let recorded = recorded.await?;
            // What is known from memory of these buckets is not true any more.
            for bucket in &buckets {
                this.record(bucket).await?;
            }
            Ok(recorded)
        });
        flat(work.await)
    }
}

/// Is this how such a charge ends?
fn concerns(undo: Undo, row: &Spending) -> bool {
    let reserved = row.kind == "reserve";
    let slot = row.holds && !reserved;
    row.spent > 0
        && match undo {
            Undo::Refund => !reserved && !slot,
            Undo::Settle(_) | Undo::Cancel => reserved,
            Undo::Release => slot,
        }
}
