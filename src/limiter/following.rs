//! Where a bucket is: with the database to which its key belongs, unless the list changes, or it was moved.
//!
//! While a list changes, a key may have two databases: the one that had it and the one that will have it. The first one is
//! asked to leave the bucket to the second, which it does where there is nothing of it; so whoever asks first, with whichever
//! list, one of the two decides and the other one refuses. A bucket that was moved leaves the name of where it went behind, and
//! is followed there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::shards::Shards;
use super::{Inner, ended};
use crate::check::Check;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::shard::{elsewhere, moved_to};
use crate::store::Bucket;

/// Between two tries of a bucket that is moved at this moment, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

impl Shards {
    /// Asks the database that has a bucket; when that says where it went, asks there.
    ///
    /// One round trip more where the list changes and the key has two databases.
    pub async fn ask<T, F>(
        &self,
        zone: &str,
        key: &str,
        until: Instant,
        ask: impl Fn(Arc<Inner>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let late = |_| Error::transient("the database that had the key did not answer in time; try again");
        let mut inner = timeout_at(until, self.at(zone, key)).await.map_err(late)??;
        let mut following = Following::until(until);
        loop {
            match inner.told(ask(Arc::clone(inner)).await) {
                Err(error) => inner = following.next(self, error).await?,
                answer => return answer,
            }
        }
    }

    /// Decides a check, wherever its bucket is.
    pub async fn check(
        &self,
        check: Check,
        txn: Uuid,
        until: Instant,
        deadline: Duration,
    ) -> Result<Decision> {
        let (zone, key) = (check.zone.clone(), check.key.clone());
        let decide = |inner: Arc<Inner>| {
            let check = check.clone();
            async move { ended(timeout_at(until, inner.check(check, txn, until)).await, deadline, txn) }
        };
        self.ask(&zone, &key, until, decide).await
    }

    /// The database that has a bucket, from the bucket itself.
    pub async fn found(&self, zone: &str, key: &str, until: Instant) -> Result<Arc<Inner>> {
        let look = |inner: Arc<Inner>| async move {
            inner.check(Check::new(zone, key).cost(0), Uuid::now_v7(), until).await.map(|_| inner)
        };
        self.ask(zone, key, until, look).await
    }

    /// As [`at`](Self::at), of each check.
    pub async fn at_each(&self, checks: &[Check]) -> Result<Vec<Arc<Inner>>> {
        let mut places = Vec::with_capacity(checks.len());
        for check in checks {
            places.push(Arc::clone(self.at(&check.zone, &check.key).await?));
        }
        Ok(places)
    }

    /// The database that has a bucket, as far as that is known without asking for the bucket.
    pub async fn at(&self, zone: &str, key: &str) -> Result<&Arc<Inner>> {
        let (was, will) = self.owners(key);
        if Arc::ptr_eq(was, will) {
            return Ok(will);
        }
        Box::pin(async move {
            let zone_id = was.told(was.within(was.zone(zone)).await)?.id;
            // One that is new may lack the zone.
            if will.within(will.zone(zone)).await.is_err_and(|error| error.is_unknown_zone()) {
                return Ok(was);
            }
            self.placed(was, will, (zone_id, key.to_owned())).await
        })
        .await
    }

    /// As [`at`](Self::at), by the number of a zone.
    pub async fn at_numbered(&self, zone_id: i32, key: &str) -> Result<&Arc<Inner>> {
        let (was, will) = self.owners(key);
        if Arc::ptr_eq(was, will) {
            return Ok(will);
        }
        Box::pin(self.placed(was, will, (zone_id, key.to_owned()))).await
    }

    /// The one that a key had, unless it leaves the bucket to the one that the key will have, which then begins it.
    async fn placed<'s>(
        &'s self,
        was: &'s Arc<Inner>,
        will: &'s Arc<Inner>,
        bucket: Bucket,
    ) -> Result<&'s Arc<Inner>> {
        let Some(name) = was.told(was.place(&bucket).await)? else { return Ok(was) };
        let next = self.gone_to(elsewhere(&name))?;
        match Arc::ptr_eq(next, will) {
            true => {
                will.told(will.place(&bucket).await)?.map_or(Ok(will), |name| self.gone_to(elsewhere(&name)))
            }
            false => Ok(next),
        }
    }

    /// The database that an error names as the one which has the bucket.
    fn gone_to(&self, error: Error) -> Result<&Arc<Inner>> {
        let Some(name) = moved_to(&error) else { return Err(error) };
        match self.all().find(|inner| inner.name() == name) {
            Some(inner) => Ok(inner),
            None if self.are_several() => {
                let told = format!("{error}; {name} is not in this list of databases");
                Err(error.told(told))
            }
            None => Err(error),
        }
    }
}

/// The way of a bucket from one database to another.
pub(super) struct Following {
    until: Instant,
    /// None before the first step, which needs no pause.
    pause: Option<Duration>,
}

impl Following {
    pub fn until(until: Instant) -> Self {
        Self { until, pause: None }
    }

    /// The place to ask now; the error itself unless it says so.
    pub async fn next<'s>(&mut self, shards: &'s Shards, error: Error) -> Result<&'s Arc<Inner>> {
        let next = shards.gone_to(error)?;
        let pause = self.pause.unwrap_or_default();
        if Instant::now() + pause > self.until {
            return Err(Error::transient(
                "the bucket is being moved, and neither database decides until that is done; try again, and if it stays so \
                 finish the move: tallygate move",
            ));
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        self.pause = Some((2 * pause).clamp(PAUSE.0, PAUSE.1));
        Ok(next)
    }
}
