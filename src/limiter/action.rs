//! The calls besides checks: several limits at once, giving back, settling, banning, overriding.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout_at;
use uuid::Uuid;

use super::shards::Shards;
use super::{Inner, Limiter, Passing, Spanning, answer, call, ended, flat, trace, until};
use crate::boxed::{BoxFuture, boxed, spawn};
use crate::check::{Check, validate_key};
use crate::decide::Undo;
use crate::decision::{Decision, Reason};
use crate::engine::{Action, What};
use crate::entry::{Kind, Recorded};
use crate::error::{Error, Result};
use crate::shard::moved_to;
use crate::store::{Caller, Isolation, Joined, Spending, Terms};
use crate::zone::{UNITS_MAX, validate_name};

/// The answer to several limits that were asked at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Combined {
    /// The transaction that was decided.
    pub txn_id: Uuid,
    /// True when the transaction may not pass; then none of the limits was spent from.
    pub blocked: bool,
    /// The zone whose limit binds: of those that blocked, the one with the longest wait.
    pub binding: Option<String>,
    /// The least wait in microseconds after which the same passes if nothing else arrives. None when it was allowed,
    /// and when it can never pass.
    pub retry_after_us: Option<i64>,
    /// The decision of each limit, in the order of the checks.
    pub decisions: Vec<Decision>,
}

impl Combined {
    fn of(txn_id: Uuid, decisions: Vec<Decision>) -> Self {
        let blocking = decisions.iter().filter(|d| d.blocked && d.reason != Reason::HeldBack);
        // None is the longest: it never passes. Of equals, the first.
        let binding = blocking.rev().max_by_key(|d| d.retry_after_us.unwrap_or(i64::MAX));
        Self {
            txn_id,
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

    /// True when it was blocked, and will be after any wait: one of the limits [never](Decision::never_passes) lets it pass.
    pub fn never_passes(&self) -> bool {
        self.decisions.iter().any(Decision::never_passes)
    }

    /// The least wait as a duration; None when it was allowed or [can never pass](Self::never_passes).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us.and_then(|us| u64::try_from(us).ok()).map(Duration::from_micros)
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
    pub fn check_all(&self, checks: Vec<Check>) -> BoxFuture<'_, Result<Combined>> {
        boxed(async move {
            let named = checks.iter().any(|check| check.txn.is_some());
            let (checks, txn) = together(checks)?;
            let deadline = self.shards.deadline(&checks);
            let until = until(deadline);
            let decide = |until| {
                // A task of its own, as for `check_many`.
                let (shards, checks) = (self.shards.clone(), checks.clone());
                let work = spawn(async move { shards.check_all(checks, txn, until).await });
                async move { ended(timeout_at(until, work).await.map(flat), deadline, txn) }
            };
            let decisions = match self.opens(&checks) {
                None => decide(until).await,
                Some(open) => Box::pin(open.or_unchecked(txn, until, decide)).await,
            };
            if decisions
                .as_ref()
                .is_ok_and(|all| all.iter().any(|decision| decision.reason != Reason::Unchecked))
            {
                self.catch_up();
            }
            let decisions = decisions?.into_iter().map(|decision| answer(decision, named));
            Ok(Combined::of(txn, decisions.collect()))
        })
    }

    /// As [`check_all`](Self::check_all), inside the caller's own transaction; on the terms of
    /// [`check_in`](Self::check_in).
    ///
    /// Name all limits of a transaction in one call: two calls lock in the order in which they are made, and callers
    /// that make them in different orders can deadlock.
    ///
    /// # Errors
    /// Those of [`check_all`](Self::check_all), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn check_all_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        checks: Vec<Check>,
    ) -> Result<Combined> {
        let (checks, txn) = together(checks)?;
        let (inner, caller) = self.shards.joined(transaction.into()).await?;
        let txns = vec![txn; checks.len()];
        let decisions = inner.check_in(caller, checks, txns, Passing::Together).await?;
        Ok(Combined::of(txn, decisions))
    }

    /// Reserves the check's cost for `ttl` (1 µs to 10 years): charged now, and given back by itself exactly then,
    /// unless [`settle`](Self::settle) or [`cancel`](Self::cancel) come before.
    ///
    /// # Errors
    /// Those of [`check`](Self::check). Invalid: the time is out of range, the cost is 0, or the zone counts members or
    /// slots, of which nothing can be reserved.
    pub fn reserve(&self, check: Check, ttl: Duration) -> BoxFuture<'_, Result<Decision>> {
        boxed(async move { self.check(check.reserved_for(ttl)).await })
    }

    /// As [`reserve`](Self::reserve), inside the caller's own transaction; on the terms of [`check_in`](Self::check_in).
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn reserve_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        check: Check,
        ttl: Duration,
    ) -> Result<Decision> {
        self.check_in(transaction, check.reserved_for(ttl)).await
    }

    /// Gives back what a check spent, once: a right password after an attempt that was counted.
    ///
    /// One round trip finds the buckets, unless one is named. The refund takes four more, on PostgreSQL five, with those that
    /// begin and commit. Locks the buckets that the transaction charged. The same again is told, and nothing happens.
    ///
    /// # Errors
    /// Invalid: there is no such transaction. Conflict: it was blocked or spent nothing, or it is a reservation or a
    /// slot, or it was ended otherwise.
    pub async fn refund(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.shards.undo(charged.into(), Undo::Refund).await
    }

    /// As [`refund`](Self::refund), inside the caller's own transaction, which also sees what it charged itself just
    /// before; on the terms of [`check_in`](Self::check_in).
    ///
    /// A transaction that reads from an old snapshot does not see what was charged since: then name the bucket, or begin
    /// it as READ COMMITTED.
    ///
    /// # Errors
    /// Those of [`refund`](Self::refund), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn refund_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        charged: impl Into<Charged>,
    ) -> Result<Vec<Recorded>> {
        self.undo_in(transaction.into(), charged.into(), Undo::Refund).await
    }

    /// Turns a reservation into a charge of `cost` units, 0 to 2^40. The units that it held beyond that are given back.
    /// Units that are lacking are charged without asking for room, as a debt that later checks feel; so is all of it
    /// when the reservation has run out.
    ///
    /// # Errors
    /// Invalid: there is no such transaction, the cost is out of range, or the bucket's running total would leave 63
    /// bits. Conflict: the transaction was blocked or spent nothing, is no reservation, was settled with another cost
    /// or ended otherwise. Unknown zone: there is none of the name that [`Charged::in_bucket`] gives. And those of
    /// [`Limiter`].
    pub async fn settle(&self, charged: impl Into<Charged>, cost: i64) -> Result<Vec<Recorded>> {
        self.shards.undo(charged.into(), Undo::Settle(cost)).await
    }

    /// As [`settle`](Self::settle), inside the caller's own transaction; on the terms of
    /// [`refund_in`](Self::refund_in).
    ///
    /// # Errors
    /// Those of [`settle`](Self::settle), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn settle_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        charged: impl Into<Charged>,
        cost: i64,
    ) -> Result<Vec<Recorded>> {
        self.undo_in(transaction.into(), charged.into(), Undo::Settle(cost)).await
    }

    /// Gives a reservation back.
    ///
    /// # Errors
    /// Invalid: there is no such transaction. Conflict: it was blocked or spent nothing, it is no reservation, its time
    /// is over, or it was ended otherwise. Unknown zone: there is none of the name that [`Charged::in_bucket`] gives.
    /// And those of [`Limiter`].
    pub async fn cancel(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.shards.undo(charged.into(), Undo::Cancel).await
    }

    /// As [`cancel`](Self::cancel), inside the caller's own transaction; on the terms of
    /// [`refund_in`](Self::refund_in).
    ///
    /// # Errors
    /// Those of [`cancel`](Self::cancel), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn cancel_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        charged: impl Into<Charged>,
    ) -> Result<Vec<Recorded>> {
        self.undo_in(transaction.into(), charged.into(), Undo::Cancel).await
    }

    /// Gives a slot back, in a zone that counts concurrency.
    ///
    /// # Errors
    /// Invalid: there is no such transaction. Conflict: it was blocked or spent nothing, it holds no slot, its time is
    /// over, or it was ended otherwise. Unknown zone: there is none of the name that [`Charged::in_bucket`] gives. And
    /// those of [`Limiter`].
    pub async fn release(&self, charged: impl Into<Charged>) -> Result<Vec<Recorded>> {
        self.shards.undo(charged.into(), Undo::Release).await
    }

    /// As [`release`](Self::release), inside the caller's own transaction; on the terms of
    /// [`refund_in`](Self::refund_in).
    ///
    /// # Errors
    /// Those of [`release`](Self::release), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn release_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        charged: impl Into<Charged>,
    ) -> Result<Vec<Recorded>> {
        self.undo_in(transaction.into(), charged.into(), Undo::Release).await
    }
}

impl Limiter {
    async fn undo_in(&self, transaction: Joined<'_>, charged: Charged, undo: Undo) -> Result<Vec<Recorded>> {
        let (inner, caller) = self.shards.joined(transaction).await?;
        inner.undo(Some(caller), charged, undo).await
    }
}

/// The limits of one transaction, and its name: different buckets, and one name.
fn together(checks: Vec<Check>) -> Result<(Vec<Check>, Uuid)> {
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
    let checks = checks.into_iter().map(|check| Check { txn: named.then_some(txn), ..check }).collect();
    Ok((checks, txn))
}

impl Shards {
    /// Without the name of a bucket, in every database that knows the transaction.
    fn undo(&self, charged: Charged, undo: Undo) -> BoxFuture<'_, Result<Vec<Recorded>>> {
        boxed(async move {
            if !self.are_several() {
                return self.first().told(self.first().undo(None, charged, undo).await);
            }
            if charged.bucket.is_some() {
                return self.undo_in_bucket(charged, undo).await;
            }
            let (txn, mut known, mut failed) = (charged.txn, Vec::new(), None);
            let charges = |inner: Arc<Inner>| async move { inner.within(inner.store.charges(txn)).await };
            for (inner, charges) in self.each(charges).await {
                match charges {
                    Ok(charges) if charges.is_empty() => {}
                    Ok(_) => known.push(inner),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            // A transaction is in one database, unless it may span them: then one that is silent may know it too.
            if let Some(error) = failed
                && (known.is_empty() || self.first().config.spanning != Spanning::Refused)
            {
                return Err(
                    error.at("where the transaction is cannot be told; name its bucket, or try again")
                );
            }
            if known.is_empty() {
                return Err(unknown(txn));
            }
            let mut recorded: Vec<Recorded> = Vec::new();
            for inner in known {
                let done = match inner.undo(None, charged.clone(), undo).await {
                    Err(error) if moved_to(&error).is_some() => {
                        self.undo_one_by_one(inner, txn, undo).await?
                    }
                    done => inner.told(done)?,
                };
                // A bucket that was moved has its rows in both databases.
                let is_new = |row: &Recorded| {
                    recorded.iter().all(|known| (&known.zone, &known.key) != (&row.zone, &row.key))
                };
                let new: Vec<_> = done.into_iter().filter(is_new).collect();
                recorded.extend(new);
            }
            Ok(recorded)
        })
    }

    async fn undo_in_bucket(&self, charged: Charged, undo: Undo) -> Result<Vec<Recorded>> {
        let (zone, key) = charged.bucket.clone().unwrap_or_default();
        validate_name(&zone)?;
        validate_key(&key)?;
        let until = until(self.first().config.deadline);
        let ask = |inner: Arc<Inner>| {
            let charged = charged.clone();
            async move { inner.undo(None, charged, undo).await }
        };
        Box::pin(self.ask(&zone, &key, until, ask)).await
    }

    /// Ends what a database could not end at once, since one of the buckets was moved.
    async fn undo_one_by_one(&self, inner: &Arc<Inner>, txn: Uuid, undo: Undo) -> Result<Vec<Recorded>> {
        let mut recorded = Vec::new();
        for (zone, key) in inner.told(inner.charged(None, txn, undo).await)? {
            recorded.extend(self.undo_in_bucket(Charged::by(txn).in_bucket(zone, key), undo).await?);
        }
        Ok(recorded)
    }
}

impl Inner {
    /// In the caller's transaction, or in one of its own.
    fn undo<'a>(
        self: &'a Arc<Self>,
        mut caller: Option<Caller<'a>>,
        charged: Charged,
        undo: Undo,
    ) -> BoxFuture<'a, Result<Vec<Recorded>>> {
        boxed(async move {
            if let Undo::Settle(cost) = undo
                && !(0..=UNITS_MAX).contains(&cost)
            {
                return Err(Error::invalid(format!("cost {cost} is out of range; use 0 to {UNITS_MAX}")));
            }
            let Charged { txn, bucket } = charged;
            let buckets = match bucket {
                Some((zone, key)) => {
                    validate_name(&zone)?;
                    vec![(zone, key)]
                }
                None => self.charged(caller.as_mut(), txn, undo).await?,
            };
            let mut actions = Vec::with_capacity(buckets.len());
            for (zone, key) in buckets {
                validate_key(&key)?;
                let zone_id = self.zone_of(caller.as_mut(), &zone).await?.id;
                actions.push(Action {
                    zone,
                    zone_id,
                    key,
                    txn,
                    what: What::Undo(undo),
                    note: None,
                    actor: None,
                });
            }
            // As every lock is taken.
            actions.sort_by(|a, b| (a.zone_id, &a.key).cmp(&(b.zone_id, &b.key)));
            match caller {
                Some(caller) => self.act_in(caller, &actions).await,
                None => self.act(actions).await,
            }
        })
    }

    /// The buckets that a transaction charged, of those charges that end in this way.
    async fn charged(
        &self,
        caller: Option<&mut Caller<'_>>,
        txn: Uuid,
        undo: Undo,
    ) -> Result<Vec<(String, String)>> {
        let mut charges = match caller {
            Some(caller) => self.store.charges_in(caller, txn).await?,
            None => self.within(self.store.charges(txn)).await?,
        };
        if charges.is_empty() {
            return Err(unknown(txn));
        }
        // Those that it does not concern are left out, unless there is no other: then one says why.
        if charges.iter().any(|row| concerns(undo, row)) {
            charges.retain(|row| concerns(undo, row));
        } else {
            charges.truncate(1);
        }
        Ok(charges.into_iter().map(|row| (row.zone, row.key)).collect())
    }

    /// Records actions in a call of their own, once.
    pub(super) async fn act(self: &Arc<Self>, actions: Vec<Action>) -> Result<Vec<Recorded>> {
        let until = until(self.config.deadline);
        let this = Arc::clone(self);
        // A task of its own: the caller may go away, the protocol with the database goes on to its end.
        let work = spawn(async move {
            let terms = Terms { isolation: Isolation::RowLock, until };
            let buckets: BTreeSet<_> =
                actions.iter().map(|action| (action.zone_id, action.key.clone())).collect();
            let recorded = async {
                let _entered = this.combiner.enter(buckets.clone(), until).await?;
                let act = |_| call(&this.store, actions.len(), until, this.store.act(&actions, terms));
                this.tries(until).run(act).await
            };
            let recorded = match recorded.await {
                Err(error) if error.is_unknown_zone() => {
                    let ids = actions.iter().map(|action| action.zone_id).collect();
                    return Err(this.look_again(ids, error).await);
                }
                recorded => recorded?,
            };
            // The memory of these buckets is not true any more.
            for bucket in &buckets {
                this.record(bucket).await?;
            }
            Ok(recorded)
        });
        flat(work.await)
    }

    /// Records actions in the caller's transaction, once.
    async fn act_in(&self, caller: Caller<'_>, actions: &[Action]) -> Result<Vec<Recorded>> {
        let recorded = trace::call(actions.len(), self.store.act_in(caller, actions)).await?;
        // The memory of these buckets will not be true any more. Its row waits for the caller's transaction to
        // end.
        for action in actions {
            self.floods.end(&(action.zone_id, action.key.clone()));
        }
        Ok(recorded)
    }
}

fn unknown(txn: Uuid) -> Error {
    Error::invalid(format!(
        "there is no transaction {txn} in the ledger that charged a bucket; look at its name, and at what it was: tallygate \
         history --txn {txn}"
    ))
}

/// Is this how such a charge ends?
fn concerns(undo: Undo, row: &Spending) -> bool {
    let reserved = row.kind == Kind::Reserve;
    let taken = row.kind == Kind::Local;
    let slot = row.holds && !reserved && !taken;
    row.spent > 0
        && match undo {
            Undo::Refund => !reserved && !slot && !taken,
            Undo::Settle(_) | Undo::Cancel => reserved,
            Undo::Release => slot,
            Undo::Used(_) => taken,
        }
}
