//! Checks that pass while the database does not answer, as soon as it is known to be gone.
//!
//! A check that waits for its decision asks whether the database is there, on a connection of its own. Where it is gone, every
//! check of an open zone passes at once by the [journal](super::journal), until a look each second finds it again.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::Utc;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::journal::{Journal, Passed};
use super::{Inner, Limiter, trace, until};
use crate::boxed::alone;
use crate::check::Check;
use crate::decision::{Decision, Reason};
use crate::error::{Error, Result};
use crate::zone::OnOutage;

/// The time that a check waits for its decision before it asks whether the database is there.
const PATIENCE: Duration = Duration::from_millis(100);

/// The time that the database may take to answer that it is there.
const PROBE: Duration = Duration::from_secs(1);

/// The time for which its answer holds, and the time between two looks while it is gone.
const HOLDS: Duration = Duration::from_secs(1);

/// The knowledge of a database whether it is there.
#[derive(Default)]
pub(super) struct Outage {
    gone: AtomicBool,
    /// The time when it was last found there. Locked by who looks.
    found: Mutex<Option<Instant>>,
}

/// Checks that may pass unchecked.
pub(super) struct Open<'l> {
    journal: &'l Journal,
    /// Each with its database and the version of its zone.
    checks: Vec<(Check, &'l Arc<Inner>, i32)>,
}

impl Limiter {
    /// The way past the database for these checks; None where one of them has none.
    pub(super) fn opens(&self, checks: &[Check]) -> Option<Open<'_>> {
        let journal = self.journal.as_ref()?;
        let open = |check: &Check| {
            let inner = self.shards.of(&check.key);
            let zone = inner.zones.known(&check.zone).filter(|zone| zone.on_outage == OnOutage::Open)?;
            let peeks = check.cost == 0 && !check.record;
            (!peeks).then(|| (check.clone(), inner, zone.version))
        };
        Some(Open { journal, checks: checks.iter().map(open).collect::<Option<_>>()? })
    }
}

impl Open<'_> {
    /// The decisions of the database, or that the checks pass where it is gone.
    ///
    /// A bucket that is held, a queue that is full or a short deadline are no outage, or whoever floods a zone would open
    /// it: so the database is asked for something that waits for nobody, and only if it is silent the checks pass.
    pub async fn or_unchecked<F>(
        self,
        txn: Uuid,
        soon: Instant,
        ask: impl Fn(Instant) -> F,
    ) -> Result<Vec<Decision>>
    where
        F: Future<Output = Result<Vec<Decision>>>,
    {
        if self.checks.iter().any(|(_, inner, _)| inner.outage.is_on()) {
            return self.pass(txn).await;
        }
        let (mut asked, mut looking) = (pin!(ask(soon)), Duration::ZERO);
        loop {
            let failed = match timeout(PATIENCE, &mut asked).await {
                Ok(Err(error)) if error.is_transient() => Some(error),
                Ok(decided) => return decided,
                Err(_) => None,
            };
            let began = Instant::now();
            if !self.answers().await {
                return self.pass(txn).await;
            }
            looking += began.elapsed();
            match failed {
                None => {}
                // It was hardly there before, and the look took what the check had of its time.
                Some(_) if looking > PATIENCE => return ask(until(PROBE)).await,
                Some(error) => return Err(error),
            }
        }
    }

    /// Do all of the databases answer?
    async fn answers(&self) -> bool {
        for (_, inner, _) in &self.checks {
            if !inner.answers().await {
                return false;
            }
        }
        true
    }

    async fn pass(self, txn: Uuid) -> Result<Vec<Decision>> {
        let (asked, at) = (Instant::now(), Utc::now());
        let passed = |(check, ..): &(Check, _, _)| {
            let Check { zone, key, cost, .. } = check.clone();
            Passed { zone, key, txn, cost, at }
        };
        self.journal.add(self.checks.iter().map(passed).collect()).await.map_err(|why| {
            Error::transient(format!("the database does not answer, and the journal takes no more: {why}"))
        })?;
        let decided = |(check, _, zone_version): (Check, _, _)| Decision {
            zone: check.zone,
            key: check.key,
            txn_id: txn,
            blocked: false,
            reason: Reason::Unchecked,
            limit: 0,
            remaining: 0,
            retry_after_us: None,
            delay_us: None,
            ends_at: None,
            seq: None,
            zone_version,
            decided_at: at,
            replayed: false,
            local: None,
        };
        let decisions: Vec<_> = self.checks.into_iter().map(decided).collect();
        for decision in &decisions {
            trace::decided(&decision.zone, Ok(decision), asked.elapsed());
        }
        Ok(decisions)
    }
}

impl Outage {
    fn is_on(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Inner {
    /// Does the database answer? For all who ask it is looked once, and then not for a second.
    async fn answers(self: &Arc<Self>) -> bool {
        let mut found = self.outage.found.lock().await;
        if !self.outage.is_on() && found.is_none_or(|at| at.elapsed() >= HOLDS) {
            if self.store.is_there(Instant::now() + PROBE).await {
                *found = Some(Instant::now());
            } else {
                tracing::warn!(
                    "the database does not answer; checks of zones that are open on an outage pass"
                );
                alone(Gone::new(self).watch());
            }
        }
        !self.outage.is_on()
    }
}

/// The database is gone, until this is dropped: by a runtime that ends, too.
struct Gone(Weak<Inner>);

impl Gone {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.outage.gone.store(true, Ordering::Release);
        Self(Arc::downgrade(inner))
    }

    async fn watch(self) {
        loop {
            sleep(HOLDS).await;
            let Some(inner) = self.0.upgrade() else { return };
            if inner.store.is_there(Instant::now() + PROBE).await {
                tracing::info!("the database answers again");
                return;
            }
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.outage.gone.store(false, Ordering::Release);
        }
    }
}
