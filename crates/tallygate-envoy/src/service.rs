//! The service: a request is asked about, and answered.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use tallygate::policy::Algorithm;
use tallygate::uuid::Uuid;
use tallygate::{Charged, Check, Limiter, Policy};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use crate::ConfigError;
use crate::answer::{Decided, answer};
use crate::ask::{Ask, Bucket, transaction};
use crate::failure::{as_http, failed, unfit};
use crate::json;
use crate::mapping::Mapping;
use crate::proto::rate_limit_response::Code;
use crate::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use crate::proto::{RateLimitRequest, RateLimitResponse};

/// Envoy's rate limit service. See the [crate](crate) for an example.
///
/// All descriptors of a request that have a limit are one decision: all pass, or none is spent from. Clones share everything.
#[derive(Clone)]
pub struct RateLimits {
    pub(crate) limiter: Limiter,
    pub(crate) mapping: Arc<Mapping>,
}

impl RateLimits {
    /// The service of these limits.
    pub fn new(limiter: Limiter, mapping: Mapping) -> Self {
        Self { limiter, mapping: Arc::new(mapping) }
    }

    /// Looks whether the zones of the mapping are there, and such as Envoy can use: what a program does before it serves.
    ///
    /// One round trip for each zone.
    ///
    /// # Errors
    /// A zone is not there, counts members or is a queue; or the database did not answer.
    pub async fn ready(&self) -> Result<(), ConfigError> {
        for zone in self.mapping.zones() {
            let (_, policy) =
                self.limiter.policy(zone).await.map_err(|error| ConfigError::new(error.to_string()))?;
            if let Some(why) = unfit(zone, &policy) {
                return Err(ConfigError::new(why));
            }
        }
        Ok(())
    }

    /// The service for a server of tonic.
    pub fn into_service(self) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self)
    }

    /// Answers a `RateLimitRequest` in the JSON of protocol buffers, as `POST /json` of envoyproxy/ratelimit does: 200, and 429
    /// where it does not pass, with a `RateLimitResponse`; 400 where the request cannot be decided, 500 where the operator or
    /// the database did something wrong and 503 where that passes, with a `code` and a `message`.
    ///
    /// The body is read at once: bound its size before.
    pub async fn json(&self, body: &[u8]) -> (StatusCode, String) {
        let answered = match json::request(body) {
            Ok(request) => self.decide(request, None).await.map(|(response, _)| response),
            Err(status) => Err(status),
        };
        match answered {
            Ok(response) if response.overall_code == i32::from(Code::OverLimit) => {
                (StatusCode::TOO_MANY_REQUESTS, json::response(&response))
            }
            Ok(response) => (StatusCode::OK, json::response(&response)),
            Err(status) => (as_http(status.code()), json::failure(&status)),
        }
    }

    /// The answer, and the transaction that was decided; None where no limit was asked for.
    pub(crate) async fn decide(
        &self,
        request: RateLimitRequest,
        named: Option<Uuid>,
    ) -> Result<(RateLimitResponse, Option<Uuid>), Status> {
        let limits = self.clone();
        to_its_end(async move {
            let ask = Ask::of(&limits.mapping, &request, named)?;
            let policies = limits.policies(&ask).await?;
            let decided = match ask.gives_back {
                // Boxed: it is rare, and much larger than a check.
                true => Box::pin(limits.give_back(&ask, &policies)).await?,
                false => limits.check(&ask, &policies).await?,
            };
            Ok((answer(&ask, &decided), decided.first().map(|decided| decided.decision.txn_id)))
        })
        .await
    }

    /// The policies of the buckets, in their order.
    pub(crate) async fn policies(&self, ask: &Ask) -> Result<Vec<Policy>, Status> {
        let mut policies = Vec::with_capacity(ask.buckets.len());
        for Bucket { zone, .. } in &ask.buckets {
            // Remembered by the limiter.
            let policy = self.limiter.policy(zone).await;
            let (_, policy) = policy.map_err(|error| failed(&error, &format!("{zone:?}")))?;
            match unfit(zone, &policy) {
                Some(why) => return Err(Status::failed_precondition(why)),
                None => policies.push(policy),
            }
        }
        Ok(policies)
    }

    /// The transaction that is named beside a request.
    pub(crate) fn named(&self, metadata: &MetadataMap) -> Option<Uuid> {
        let field = self.mapping.transaction.as_deref()?;
        transaction(metadata.get(field)?.to_str().ok()?)
    }

    async fn check(&self, ask: &Ask, policies: &[Policy]) -> Result<Vec<Decided>, Status> {
        let (looks, mut spends): (Vec<_>, Vec<_>) =
            asked(ask, policies).partition(|(bucket, _)| bucket.cost == 0);
        // To the limiter a look passes always, and would hold nothing back: so looks go first.
        let looks = self.decisions(looks, None).await?;
        let is_held = looks.iter().any(Decided::is_over);
        if is_held {
            spends.iter_mut().for_each(|(bucket, _)| bucket.cost = 0);
        }
        let spends = self.decisions(spends, ask.txn.filter(|_| !is_held)).await?;
        let (mut looks, mut spends) = (looks.into_iter(), spends.into_iter());
        let in_order = ask.buckets.iter().filter_map(|bucket| match bucket.cost {
            0 => looks.next(),
            _ => spends.next(),
        });
        Ok(in_order.collect())
    }

    /// Gives back what the transaction took of these buckets, if it was just so much.
    pub(crate) async fn give_back(&self, ask: &Ask, policies: &[Policy]) -> Result<Vec<Decided>, Status> {
        let Some(txn) = ask.txn else {
            return Err(Status::invalid_argument(
                "hits are given back by the transaction that took them, and the request names none; say in the \
                 mapping what does: transaction = \"x-request-id\"",
            ));
        };
        // The same charge again is told what became of the first, and spends nothing. One of another cost, or of buckets of
        // which only some were charged, is a conflict.
        let mut decided = self.decisions(asked(ask, policies).collect(), Some(txn)).await?;
        let is_new = decided.iter().any(|decided| !decided.decision.replayed);
        if is_new || decided.iter().any(|decided| decided.decision.blocked) {
            // Units that had not been taken before were taken just now, and go back at once.
            for new in decided.iter().filter(|decided| !decided.decision.replayed) {
                self.end(new, txn).await?;
            }
            return Err(Status::invalid_argument(format!(
                "the transaction has taken no such hits in {}; nothing is given back",
                zones(ask.buckets.iter())
            )));
        }
        for decided in &mut decided {
            if let Some(remaining) = self.end(decided, txn).await? {
                decided.decision.remaining = remaining;
            }
        }
        Ok(decided)
    }

    /// Ends a charge, and tells what is left then; None where nothing was charged.
    async fn end(&self, decided: &Decided, txn: Uuid) -> Result<Option<i64>, Status> {
        let Decided { decision, policy, .. } = decided;
        if !decided.is_charged() {
            return Ok(None);
        }
        let charged = Charged::by(txn).in_bucket(&decision.zone, &decision.key);
        let ended = match policy.algorithm() {
            Algorithm::Concurrency => self.limiter.release(charged).await,
            _ => self.limiter.refund(charged).await,
        };
        let ended = ended.map_err(|error| failed(&error, &format!("{:?}", decision.zone)))?;
        Ok(ended.last().map(|recorded| recorded.remaining))
    }

    async fn decisions(
        &self,
        asked: Vec<(Bucket, Policy)>,
        txn: Option<Uuid>,
    ) -> Result<Vec<Decided>, Status> {
        let check = |bucket: &Bucket| {
            let check = Check::new(&bucket.zone, &bucket.key).cost(bucket.cost);
            match txn {
                Some(txn) => check.txn(txn),
                None => check,
            }
        };
        let mut checks: Vec<_> = asked.iter().map(|(bucket, _)| check(bucket)).collect();
        let limiter = &self.limiter;
        let decisions = match (checks.len(), checks.pop()) {
            (_, None) => Ok(Vec::new()),
            // One goes with those of other requests.
            (1, Some(check)) => limiter.check(check).await.map(|decision| vec![decision]),
            (_, Some(last)) => {
                checks.push(last);
                limiter.check_all(checks).await.map(|combined| combined.decisions)
            }
        };
        let decisions =
            decisions.map_err(|error| failed(&error, &zones(asked.iter().map(|(bucket, _)| bucket))))?;
        let decided = asked.into_iter().zip(decisions);
        Ok(decided
            .map(|((bucket, policy), decision)| Decided { decision, policy, cost: bucket.cost })
            .collect())
    }
}

/// Envoy waits 20 ms by itself, and may let the request pass then: what was asked is decided, and charged, all the same.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(work.in_current_span()).await;
    done.unwrap_or_else(|_| Err(Status::internal("the decision was cut short; see the log of the service")))
}

fn asked<'a>(ask: &'a Ask, policies: &'a [Policy]) -> impl Iterator<Item = (Bucket, Policy)> + 'a {
    ask.buckets.iter().cloned().zip(policies.iter().copied())
}

/// The names of the zones, for the operator.
pub(crate) fn zones<'b>(buckets: impl Iterator<Item = &'b Bucket>) -> String {
    let zones: BTreeSet<_> = buckets.map(|bucket| &bucket.zone).collect();
    zones.into_iter().map(|zone| format!("{zone:?}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits").field("mapping", &self.mapping).finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let named = self.named(request.metadata());
        let (answer, txn) = self.decide(request.into_inner(), named).await?;
        let mut response = Response::new(answer);
        // For whoever logs it.
        txn.and_then(|txn| response.extensions_mut().insert(txn));
        Ok(response)
    }
}
