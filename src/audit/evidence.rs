//! Evidence of the ledger for others.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::Auditor;
use super::checkpoint::{self, Checkpoint, Comparison, Proof};
use super::export::{self, Export, Manifest};
use crate::boxed::{BoxFuture, boxed};
use crate::error::Result;

impl Auditor {
    /// Makes a checkpoint: the state of the ledger, by the database's clock, `margin` ago. Sign it with
    /// [`Checkpoint::sign`].
    ///
    /// The margin must be longer than any transaction takes from its check to its commit: a row that is committed later than
    /// that looks as if it had been slipped in. With `heads`, a file of 76 bytes for each bucket is written there; with it
    /// [`compare`](Self::compare) names the buckets that were changed.
    ///
    /// Takes no lock. Buckets are read 1,000 at a time, each page a statement of its own. Has no deadline. Heads that
    /// do not fit in 84 MB of memory are sorted in the folder for temporary files: 76 bytes for each bucket of a zone.
    /// `progress` is called with the number of buckets that were read.
    ///
    /// # Errors
    /// Invalid: the file cannot be written.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// let decision = limiter.check(Check::new("login", "user:42")).await?;
    /// let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await?;
    /// assert_eq!((checkpoint.buckets, checkpoint.rows), (1, 1));
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// assert_eq!(limiter.auditor().compare(&checkpoint, None, |_| ()).await?.differences, []);
    /// let proof = limiter.auditor().prove(decision.txn_id, &checkpoint, false, 100_000).await?;
    /// assert_eq!(proof.check(&checkpoint)?[0].decided_at, decision.decided_at);
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn checkpoint(
        &self,
        margin: Duration,
        heads: Option<&Path>,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Checkpoint> {
        self.alone("a checkpoint")?;
        checkpoint::take(self, margin, heads, &mut progress).await
    }

    /// The places where the ledger of before a checkpoint is no longer what it was; nothing when it is. With the file
    /// of `heads` that was written with the checkpoint, the first 1,000 buckets are named.
    ///
    /// Compares the ends of chains as they are recorded. That rows are what their hashes say is for the verification of the
    /// chains: only both together prove the ledger of before. Reads as [`checkpoint`](Self::checkpoint) does.
    ///
    /// # Errors
    /// Invalid: the file of heads is another one.
    pub async fn compare(
        &self,
        checkpoint: &Checkpoint,
        heads: Option<&Path>,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Comparison> {
        self.alone("a checkpoint")?;
        checkpoint::check(self, checkpoint, heads, &mut progress).await
    }

    /// Proves to others that a transaction's rows were in the ledger at a checkpoint. It holds what each row of the bucket from
    /// there to the checkpoint is hashed as, some 200 bytes each, of which at most `rows_max` are read. With `disclose` it
    /// tells the key, and with the salt it lets members, notes and authors of these rows be guessed.
    ///
    /// Reads all buckets of the zones that the transaction touched, as [`checkpoint`](Self::checkpoint) does.
    ///
    /// # Errors
    /// Invalid: no row has this transaction, it is younger than the checkpoint, more rows follow it, or the ledger is not what
    /// it was.
    pub fn prove<'a>(
        &'a self,
        txn: Uuid,
        checkpoint: &'a Checkpoint,
        disclose: bool,
        rows_max: u32,
    ) -> BoxFuture<'a, Result<Proof>> {
        boxed(async move {
            self.alone("a proof")?;
            checkpoint::prove(self, txn, checkpoint, disclose, rows_max).await
        })
    }

    /// Writes the ledger into files, for who audits it with tools of their own; what was begun is gone on with. The columns
    /// are told in `docs/audit.md`.
    ///
    /// Takes no lock. Rows are read bucket by bucket, 2,000 at a time, each page a statement of its own: with `since` or
    /// `until` the index of all rows of the zone is read nevertheless. Has no deadline. Memory is that of a page, and 50 MB
    /// for Parquet. A file has its name, and is in the manifest, when it is whole. `progress` is called with the number of
    /// rows that are written.
    ///
    /// # Errors
    /// Unknown zone. Invalid: `since` after `until`, a folder that cannot be written or has an export of something else.
    pub async fn export(&self, export: &Export, mut progress: impl FnMut(u64) + Send) -> Result<Manifest> {
        self.alone("an export")?;
        export::export(self, export, &mut progress).await
    }
}
