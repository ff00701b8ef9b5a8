//! The two routines that the project grew from, for callers in Rust. See `docs/sql.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::following::Following;
use super::{Inner, Limiter, call, flat, trace, until};
use crate::boxed::{BoxFuture, boxed, spawn};
use crate::check::validate_key;
use crate::decision::Velocity;
use crate::error::{Error, Result};
use crate::store::{Bucket, Joined, Store, Terms, was_taken_back};

/// The refusal where there are several databases: each would make the zone by itself, under a number of its
/// own.
const APART: &str = "rate_limiting_request makes its zone in one database, and this limiter has several; set a zone with a token \
                     bucket, and check it";

impl Limiter {
    /// May one more transaction of this bucket pass? Calls the database's routine `check_velocity`: a check of cost 1
    /// under a transaction id made for it, of the zone with this number.
    ///
    /// Under [`Config::isolation`](crate::Config::isolation). Retried after a conflict, a deadlock or a lock wait, and
    /// not after a connection broke: the routine has no transaction id by which to ask what became of it. Where that
    /// matters, use [`check`](Self::check).
    ///
    /// # Errors
    /// Unknown zone: none has this number. Invalid: the key cannot be stored. Transient: conflicts did not end, or the
    /// connection broke.
    pub fn check_velocity<'a>(&'a self, zone_id: i32, key: &'a str) -> BoxFuture<'a, Result<Velocity>> {
        boxed(async move {
            validate_key(key)?;
            let asked = key.to_owned();
            let ask = move |store: Store, terms| {
                let key = asked.clone();
                async move { store.check_velocity(zone_id, &key, terms).await }
            };
            let mut inner = self.shards.at_numbered(zone_id, key).await?;
            let mut following = Following::until(until(inner.config.deadline));
            loop {
                match inner.told(inner.routine((zone_id, key.to_owned()), ask.clone()).await) {
                    Err(error) => inner = following.next(&self.shards, error).await?,
                    answer => return answer,
                }
            }
        })
    }

    /// As [`check_velocity`](Self::check_velocity), inside the caller's own transaction; on the terms of
    /// [`check_in`](Self::check_in).
    ///
    /// # Errors
    /// Those of [`check_velocity`](Self::check_velocity), and those of joining, as for [`check_in`](Self::check_in).
    pub async fn check_velocity_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        zone_id: i32,
        key: &str,
    ) -> Result<Velocity> {
        validate_key(key)?;
        let (inner, caller) = self.shards.joined(transaction.into()).await?;
        trace::call(1, inner.store.check_velocity_in(caller, zone_id, key)).await
    }

    /// Takes one token from the bucket of a caller, and returns how many are left: -1 when there was none to take. Calls
    /// the database's routine `rate_limiting_request`.
    ///
    /// The zone follows from the two parameters and is made when there is none: a token bucket into which
    /// `refill_per_sec` tokens flow each second, up to those of `window_seconds`.
    ///
    /// Isolation and retries are those of [`check_velocity`](Self::check_velocity).
    ///
    /// # Errors
    /// Invalid: a parameter below 1, more than 2,147,483,647 tokens in all, an id that cannot be stored; a limiter of several
    /// databases. Transient: as for `check_velocity`.
    pub fn rate_limiting_request<'a>(
        &'a self,
        rate_id: &'a str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> BoxFuture<'a, Result<i64>> {
        boxed(async move {
            validate(rate_id, refill_per_sec, window_seconds)?;
            let asked = rate_id.to_owned();
            let ask = move |store: Store, terms| {
                let rate_id = asked.clone();
                async move { store.rate_limiting_request(&rate_id, refill_per_sec, window_seconds, terms).await }
            };
            // Its zone is known to the routine alone; 0 is no zone's number.
            self.shards.only(APART)?.routine((0, rate_id.to_owned()), ask).await
        })
    }

    /// As [`rate_limiting_request`](Self::rate_limiting_request), inside the caller's own transaction; on the terms of
    /// [`check_in`](Self::check_in).
    ///
    /// # Errors
    /// Those of [`rate_limiting_request`](Self::rate_limiting_request), and those of joining, as for
    /// [`check_in`](Self::check_in).
    pub async fn rate_limiting_request_in(
        &self,
        transaction: impl Into<Joined<'_>>,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> Result<i64> {
        validate(rate_id, refill_per_sec, window_seconds)?;
        let (inner, caller) = self.shards.joined(transaction.into()).await?;
        trace::call(1, inner.store.rate_limiting_request_in(caller, rate_id, refill_per_sec, window_seconds))
            .await
    }
}

fn validate(rate_id: &str, refill_per_sec: i32, window_seconds: i32) -> Result<()> {
    validate_key(rate_id)?;
    let tokens = i64::from(refill_per_sec) * i64::from(window_seconds);
    if refill_per_sec < 1 || window_seconds < 1 || tokens > i64::from(i32::MAX) {
        return Err(Error::invalid(format!(
            "{refill_per_sec} tokens a second for {window_seconds} seconds cannot be counted; use 1 to {} tokens in all",
            i32::MAX
        )));
    }
    Ok(())
}

impl Inner {
    /// Calls a routine until its answer is committed, or it is not known whether it is.
    async fn routine<T, F>(
        self: &Arc<Self>,
        bucket: Bucket,
        ask: impl Fn(Store, Terms) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let this = Arc::clone(self);
        // A task of its own: the caller may go away, the protocol with the database goes on to its end.
        let work = spawn(async move {
            let until = until(this.config.deadline);
            let terms = Terms { isolation: this.config.isolation, until };
            let _entered = this.combiner.enter(BTreeSet::from([bucket]), until).await?;
            let ask = |_| call(&this.store, 1, until, ask(this.store.clone(), terms));
            this.tries(until).when(was_taken_back).run(ask).await
        });
        flat(work.await)
    }
}
