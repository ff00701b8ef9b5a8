//! Several limits at once whose buckets are in several databases.
//!
//! There is no transaction over them. Each database decides its part by itself, one after the other in the order of their names;
//! when one blocks, what those before it have taken is given back. Until then it counts, and a process that ends in between
//! leaves it: asking again with the same transaction finishes what was begun.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::shards::{Part, Shards, in_place};
use super::{Inner, Passing, Spanning};
use crate::check::Check;
use crate::decide::Undo;
use crate::decision::{Decision, Reason};
use crate::engine::{Action, What};
use crate::entry::{Kind, Recorded};
use crate::error::{Error, Result};
use crate::shard::moved_to;
use crate::store::Spending;
use crate::zone::{Mode, Policy};

impl Shards {
    /// All, or none.
    pub async fn check_all(&self, checks: Vec<Check>, txn: Uuid, until: Instant) -> Result<Vec<Decision>> {
        if !self.are_several() {
            let txns = vec![txn; checks.len()];
            let inner = self.first();
            return inner.told(inner.check_many(checks, txns, Passing::Together, until).await);
        }
        let at = self.at_each(&checks).await?;
        match self.check_all_at(at, checks.clone(), txn, until).await {
            // Which of them, is not told.
            Err(error) if moved_to(&error).is_some() => {
                let mut at = Vec::with_capacity(checks.len());
                for check in &checks {
                    at.push(self.found(&check.zone, &check.key, until).await?);
                }
                self.check_all_at(at, checks, txn, until).await
            }
            decided => decided,
        }
    }

    async fn check_all_at(
        &self,
        at: Vec<Arc<Inner>>,
        checks: Vec<Check>,
        txn: Uuid,
        until: Instant,
    ) -> Result<Vec<Decision>> {
        let txns = vec![txn; checks.len()];
        let mut parts = Self::parts(at, checks, txns);
        if parts.len() > 1 && self.first().config.spanning == Spanning::Refused {
            return Err(refused(&parts));
        }
        if let [Part { inner, .. }] = &*parts {
            let inner = Arc::clone(inner);
            let Part { checks, txns, .. } = parts.remove(0);
            return inner.told(inner.check_many(checks, txns, Passing::Together, until).await);
        }
        // As all callers take them, so that of two one comes first everywhere.
        parts.sort_by(|a, b| a.inner.name().cmp(b.inner.name()));
        let (mut placed, mut passed, mut blocked) = (Vec::new(), Vec::new(), false);
        for Part { inner, places, mut checks, txns } in parts {
            if blocked {
                // It is not asked any more, so that nothing has to be given back; how it stands is told.
                checks = checks.into_iter().map(peek).collect();
                let fresh = txns.iter().map(|_| Uuid::now_v7()).collect();
                let decisions = inner.told(inner.check_many(checks, fresh, Passing::Each, until).await)?;
                for (place, decision) in places.into_iter().zip(decisions) {
                    let decision = Decision { txn_id: txn, ..decision };
                    placed.push((place, inner.held_back(decision, None).await?));
                }
                continue;
            }
            let decisions = inner.told(inner.check_many(checks, txns, Passing::Together, until).await)?;
            blocked = decisions.iter().any(|decision| decision.blocked);
            let decided = places.into_iter().zip(decisions);
            if blocked {
                placed.extend(decided);
            } else {
                passed.push((inner, decided.collect::<Vec<_>>()));
            }
        }
        for (inner, decided) in passed {
            if !blocked {
                placed.extend(decided);
                continue;
            }
            let given = inner.told(inner.give_back(txn).await)?;
            for (place, decision) in decided {
                let back = |row: &&Recorded| (&row.zone, &row.key) == (&decision.zone, &decision.key);
                let remaining = given.iter().find(back).map(|row| row.remaining);
                placed.push((place, inner.held_back(decision, remaining).await?));
            }
        }
        Ok(in_place(placed))
    }
}

impl Inner {
    /// Gives back all that a transaction has taken, each charge in the way in which it ends.
    async fn give_back(self: &Arc<Self>, txn: Uuid) -> Result<Vec<Recorded>> {
        let charges = self.within(self.store.charges(txn)).await?;
        let mut actions = Vec::with_capacity(charges.len());
        for charge in charges.into_iter().filter(|charge| charge.spent > 0) {
            let zone_id = self.zone(&charge.zone).await?.id;
            let (what, note) = (What::Undo(end_of(&charge)), None);
            let Spending { zone, key, .. } = charge;
            actions.push(Action { zone, zone_id, key, txn, what, note, actor: None });
        }
        if actions.is_empty() {
            return Ok(Vec::new());
        }
        // As every lock is taken.
        actions.sort_by(|a, b| (a.zone_id, &a.key).cmp(&(b.zone_id, &b.key)));
        self.act(actions).await
    }

    /// The decision that would have passed, had another limit not blocked; with what remains when its charge was given
    /// back. A zone that does not enforce its limit blocks nothing here either.
    async fn held_back(&self, decision: Decision, remaining: Option<i64>) -> Result<Decision> {
        let remaining = remaining.unwrap_or(decision.remaining);
        let enforced = |policy: Policy| policy.mode() == Mode::Enforce;
        if decision.blocked || !self.zone(&decision.zone).await?.policy.is_some_and(enforced) {
            return Ok(Decision { remaining, ..decision });
        }
        Ok(Decision {
            blocked: true,
            reason: Reason::HeldBack,
            retry_after_us: None,
            ends_at: None,
            remaining,
            ..decision
        })
    }
}

fn end_of(charge: &Spending) -> Undo {
    match charge.kind {
        Kind::Reserve => Undo::Cancel,
        _ if charge.holds => Undo::Release,
        _ => Undo::Refund,
    }
}

fn peek(check: Check) -> Check {
    Check { cost: 0, record: false, ttl: None, txn: None, ..check }
}

fn refused(parts: &[Part]) -> Error {
    let key = |part: &Part| part.checks.first().map(|check| format!("{:?}", check.key)).unwrap_or_default();
    let parts: Vec<_> =
        parts.iter().map(|part| format!("{} is in {}", key(part), part.inner.name())).collect();
    Error::invalid(format!(
        "these limits are in several databases, which no transaction spans ({}); give all of them one key, ask each by \
         itself, or choose Spanning::InOrder and what it loses",
        parts.join(", ")
    ))
}
