//! Reservations whose cost is predicted from what requests of the same shape came to.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::Uuid;

use super::calls::request;
use super::{Inner, Limiter, ended, until};
use crate::boxed::{BoxFuture, boxed};
use crate::check::{Check, validate_bytes, validate_key};
use crate::decide::SHARED_SHAPE;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::{Isolation, Terms};
use crate::zone::validate_name;

/// The longest name of a shape, in bytes: 32 of them stand in the bucket's row.
const SHAPE_BYTES: usize = 64;

/// A reservation whose cost was predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Predicted {
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// The cost that was asked for: what was predicted, or what the caller gave where nothing was known.
    pub cost: i64,
}

/// The knowledge of the cost of requests of a shape, see [`Limiter::predict`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Prediction {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// The shape.
    pub shape: String,
    /// The cost that is predicted; None where no request of the shape was settled within 15 minutes.
    pub cost: Option<i64>,
    /// From how many settlements.
    pub samples: i64,
    /// The time of the last of them.
    pub learned_at: Option<DateTime<Utc>>,
    /// True when it is known of all shapes together that are not kept apart, and not of this one.
    pub shared: bool,
}

impl Limiter {
    /// As [`reserve`](Self::reserve), with a cost that is predicted: what requests of the same `shape` in the same bucket came
    /// to lately, or the check's own cost where nothing is known. A shape is what makes requests alike in cost, such as route
    /// and size class, 1 to 64 bytes; its name stands in the ledger. [`settle`](Self::settle) with the truth teaches it.
    ///
    /// The prediction is an exponentially weighted moving average (Roberts 1959) of the costs that settlements came to, rounded up,
    /// and at least 1: `a += (x − a) / min(n, 8)` at the n-th, in 256ths of a unit. The first one sets it. Of a later one `x` is
    /// its cost, but at least half of `a` and at most twice: so one that is far off moves the prediction by half at most. It is
    /// forgotten 15 minutes after the last one. Of a bucket 32 shapes are kept apart; all further ones share one. Every
    /// prediction can be derived again from the ledger: see [`verify`](crate::audit::Auditor::verify).
    ///
    /// Three round trips, and two for the transaction; holds the bucket's lock for that long. The same transaction again is
    /// told what was decided, with its cost, whatever is predicted by then.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve). Invalid: a shape that is empty, too long, has control characters or is `*`; a member.
    /// Conflict: the transaction was decided otherwise before. Refused: the user has not the role *app*.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use std::time::Duration;
    /// use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// let tokens = Policy::sliding_log(10_000, Duration::from_secs(60))?;
    /// limiter.operator().set_zone("llm", &tokens, None, "docs").await?;
    /// let reserve = || limiter.reserve_predicted(
    ///     Check::new("llm", "tenant:7").cost(1_000), Duration::from_secs(30), "chat/small",
    /// );
    /// let first = reserve().await?;
    /// assert_eq!(first.cost, 1_000);
    /// limiter.settle(first.decision.txn_id, 120).await?;
    /// assert_eq!(reserve().await?.cost, 120);
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn reserve_predicted<'a>(
        &'a self,
        check: Check,
        ttl: Duration,
        shape: &'a str,
    ) -> BoxFuture<'a, Result<Predicted>> {
        boxed(async move {
            let check = check.reserved_for(ttl);
            check.validate()?;
            validate_shape(shape)?;
            if check.member.is_some() {
                return Err(Error::invalid("a reservation is about no member; leave the member out"));
            }
            let deadline = check.deadline.unwrap_or(self.shards.first().config.deadline);
            let until = until(deadline);
            let txn = check.txn.unwrap_or_else(Uuid::now_v7);
            let (zone, key) = (check.zone.clone(), check.key.clone());
            let ask = |inner: Arc<Inner>| {
                let (check, shape) = (check.clone(), shape.to_owned());
                async move { inner.reserve_predicted(check, txn, shape, until).await }
            };
            ended(Ok(self.shards.ask(&zone, &key, until, ask).await), deadline, txn)
        })
    }

    /// Looks at what a reservation of this shape would cost now, and does nothing else.
    ///
    /// Two round trips; takes no lock.
    ///
    /// # Errors
    /// Unknown zone. Invalid: a name, a key or a shape that cannot be stored. Refused: the user has not the role *app*. And
    /// those of [`Limiter`].
    pub fn predict<'a>(
        &'a self,
        zone: &'a str,
        key: &'a str,
        shape: &'a str,
    ) -> BoxFuture<'a, Result<Prediction>> {
        boxed(async move {
            validate_name(zone)?;
            validate_key(key)?;
            validate_shape(shape)?;
            let until = until(self.shards.first().config.deadline);
            let known = |inner: Arc<Inner>| async move {
                let zone_id = inner.within(inner.zone(zone)).await?.id;
                let terms = Terms { isolation: Isolation::RowLock, until };
                inner.within(inner.store.known_shape(zone_id, key, shape, terms)).await
            };
            let known = self.shards.ask(zone, key, until, known).await?;
            Ok(Prediction {
                zone: zone.to_owned(),
                key: key.to_owned(),
                shape: shape.to_owned(),
                cost: known.as_ref().map(|known| known.cost()),
                samples: known.as_ref().map_or(0, |known| known.samples),
                learned_at: known
                    .as_ref()
                    .and_then(|known| DateTime::from_timestamp_micros(known.learned_us)),
                shared: known.is_some_and(|known| known.name == SHARED_SHAPE),
            })
        })
    }
}

impl Inner {
    async fn reserve_predicted(
        self: &Arc<Self>,
        check: Check,
        txn: Uuid,
        shape: String,
        until: Instant,
    ) -> Result<Predicted> {
        let (zone, key) = (check.zone.clone(), check.key.clone());
        self.holding_of(&zone, key, until, move |inner, zone_id, terms, again| {
            let mut request = request(check.clone(), zone_id, txn);
            request.fresh &= !again;
            request.shape = Some(shape.clone());
            async move {
                let (decision, cost) = inner.store.reserve_predicted(&request, terms).await?;
                Ok(Predicted { decision, cost })
            }
        })
        .await
    }
}

fn validate_shape(shape: &str) -> Result<()> {
    if !(1..=SHAPE_BYTES).contains(&shape.len()) {
        return Err(Error::invalid(format!(
            "shape {shape:?} has {} bytes; a shape is 1 to {SHAPE_BYTES} bytes, such as a route and a size class",
            shape.len()
        )));
    }
    validate_bytes("shape", "shape", shape)?;
    if shape == SHARED_SHAPE {
        return Err(Error::invalid("shape \"*\" stands for all that are not kept apart; use another name"));
    }
    Ok(())
}
