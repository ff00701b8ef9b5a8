//! What the ledger proves.

use uuid::Uuid;

use super::{DEADLINE_MAX, Limiter, until};
use crate::audit::{Explained, Verified, Verify, Verifying, explain, verify};
use crate::error::{Error, Result};
use crate::store::Store;

impl Limiter {
    /// Why a transaction was decided as it was: each of its rows with the policy, the charges, the level, the ban and the
    /// override that it was decided from, and whether it can be derived again. Of the charges that counted, the newest
    /// `charges` are listed.
    ///
    /// Takes no lock. Reads each bucket that the transaction touched from its first row, 2,000 rows at a time, each page
    /// a statement of its own: some 10 µs for each row before it. Has no deadline.
    ///
    /// # Errors
    /// Invalid: no row of the ledger has this transaction.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// let decision = limiter.check(Check::new("login", "user:42")).await?;
    /// let explained = limiter.explain(decision.txn_id, 20).await?;
    /// assert_eq!(explained.rows[0].left_before, Some(5));
    /// assert_eq!(explained.rows[0].reproduced, Some(true));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn explain(&self, txn: Uuid, charges: usize) -> Result<Explained> {
        explain::explain(&self.inner.store, txn, charges).await
    }

    /// Walks every bucket and tells what in it is not as the library left it: rows that were edited, removed, inserted or
    /// moved, decisions that the rows before them do not lead to, heads and holds that are not what the rows lead to, zones
    /// whose versions were changed. Where nothing is told, no window ever held more than its limit, since every decision
    /// follows from the rows before it.
    ///
    /// Takes no lock and holds no snapshot: each page of rows is a statement of its own, and buckets may be in use. Reads
    /// every row once, on as many connections as there are jobs. Has no deadline; dropping the call ends it.
    ///
    /// # Errors
    /// Invalid: there is no such zone.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy, Verify, Verifying};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// let everything = Verify::default();
    /// let verified = limiter.verify(&everything, |told| {
    ///     if let Verifying::Fault(fault) = told {
    ///         println!("{fault:?}");
    ///     }
    /// });
    /// let verified = verified.await?;
    /// assert_eq!((verified.rows, verified.faults), (1, 0));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn verify(&self, what: &Verify, tell: impl FnMut(Verifying)) -> Result<Verified> {
        if what.key.is_some() && what.zone.is_none() {
            return Err(Error::invalid("a key names a bucket only inside a zone; name the zone too"));
        }
        verify::verify(&self.inner.store, what, tell).await
    }

    /// Reads a page of the ledger. Reading may be tried again whatever went wrong, and has no deadline.
    pub(crate) async fn read<T>(&self, page: impl AsyncFn(&Store) -> Result<T>) -> Result<T> {
        let mut tries = self.inner.tries(until(DEADLINE_MAX));
        loop {
            match page(&self.inner.store).await {
                Err(error) if tries.again(&error).await => {}
                result => return result,
            }
        }
    }
}
