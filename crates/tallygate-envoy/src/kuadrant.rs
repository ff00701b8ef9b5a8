//! Kuadrant's calls: one asks before a request, the other charges what it came to.

use std::time::Duration;

use tallygate::uuid::Uuid;
use tallygate::{Charged, Check};
use tonic::{Request, Response, Status};

use crate::answer::{Decided, answer};
use crate::ask::{Ask, Bucket};
use crate::failure::failed;
use crate::proto::kuadrant_service_server::{RateLimitService, RateLimitServiceServer};
use crate::proto::rate_limit_response::Code;
use crate::proto::{RateLimitRequest, RateLimitResponse};
use crate::service::{RateLimits, to_its_end, zones};

/// The length of a reservation that is settled at once: where the service is killed in between, it ends by itself.
const AT_ONCE: Duration = Duration::from_secs(60);

impl RateLimits {
    /// Kuadrant's service for a server of tonic, `kuadrant.service.ratelimit.v1.RateLimitService`: `CheckRateLimit` spends
    /// nothing, `Report` charges.
    pub fn into_kuadrant_service(self) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self)
    }

    /// Charges what it says, without asking for room: what goes beyond the limit is a debt that later checks feel. So a unit is
    /// reserved, and settled for more. Only where nothing is left at all, nothing is charged.
    async fn charge(
        &self,
        request: &RateLimitRequest,
        named: Option<Uuid>,
    ) -> Result<RateLimitResponse, Status> {
        let ask = Ask::of(&self.mapping, request, named)?;
        let policies = self.policies(&ask).await?;
        if ask.gives_back {
            return Ok(answer(&ask, &self.give_back(&ask, &policies).await?));
        }
        let txn = ask.txn.unwrap_or_else(Uuid::now_v7);
        let reserved =
            |Bucket { zone, key, .. }: &Bucket| Check::new(zone, key).txn(txn).reserved_for(AT_ONCE);
        let reserved = self.limiter.check_many(ask.buckets.iter().map(reserved).collect()).await;
        let decisions = reserved.map_err(|error| failed(&error, &zones(ask.buckets.iter())))?;
        let mut decided = Vec::with_capacity(decisions.len());
        for ((bucket, policy), decision) in ask.buckets.iter().zip(policies).zip(decisions) {
            let mut reserved = Decided { decision, policy, cost: 1 };
            if reserved.is_charged() {
                let charged = Charged::by(txn).in_bucket(&bucket.zone, &bucket.key);
                let settled = self.limiter.settle(charged, bucket.cost).await;
                let settled = settled.map_err(|error| failed(&error, &format!("{:?}", bucket.zone)))?;
                if let Some(settled) = settled.last() {
                    reserved.decision.remaining = settled.remaining;
                }
            }
            decided.push(reserved);
        }
        // The request has been served.
        Ok(RateLimitResponse { overall_code: Code::Ok.into(), ..answer(&ask, &decided) })
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn check_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let mut request = request.into_inner();
        for descriptor in &mut request.descriptors {
            descriptor.hits_addend = Some(0);
        }
        self.decide(request, None).await.map(|(response, _)| Response::new(response))
    }

    async fn report(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (limits, named) = (self.clone(), self.named(request.metadata()));
        to_its_end(async move { limits.charge(request.get_ref(), named).await }).await.map(Response::new)
    }
}
