//! Kuadrant's calls over gRPC: one asks and spends nothing, the other charges what a request came to.

use std::time::Duration;

use tallygate::testing::Clock;
use tallygate::uuid::Uuid;
use tallygate::{Limiter, Policy};
use tallygate_envoy::proto::kuadrant_service_client::RateLimitServiceClient;
use tallygate_envoy::proto::kuadrant_service_server::RateLimitServiceServer;
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::rate_limit_response::{Code, DescriptorStatus};
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tallygate_envoy::{Mapping, RateLimits};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};

const MINUTE: Duration = Duration::from_secs(60);

const MAPPING: &str = r#"
    transaction = "x-request-id"
    limit = [
        { domain = "llm", entries = ["user"], zone = "tokens" },
        { domain = "llm", entries = ["model"], zone = "model" },
        { domain = "llm", entries = ["slot"], zone = "slots" },
    ]
"#;

struct Served {
    client: RateLimitServiceClient<Channel>,
    limiter: Limiter,
    clock: Clock,
}

/// With 10 tokens for a user and 8 for a model in a minute.
async fn served() -> Served {
    let clock = Clock::at("2026-11-23T12:00:00Z".parse().unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    for (zone, policy) in [
        ("tokens", Policy::sliding_log(10, MINUTE)),
        ("model", Policy::token_bucket(8, MINUTE, Some(8))),
        ("slots", Policy::concurrency(2, MINUTE)),
    ] {
        limiter.operator().set_zone(zone, &policy.unwrap(), None, "test").await.unwrap();
    }
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let limits = RateLimits::new(limiter.clone(), Mapping::read(MAPPING).unwrap());
    let server = Server::builder().add_service(limits.into_kuadrant_service());
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    Served { client: RateLimitServiceClient::new(channel), limiter, clock }
}

fn request(of: &[(&str, &str)], hits_addend: u32) -> RateLimitRequest {
    let descriptor = |(key, value): &(&str, &str)| RateLimitDescriptor {
        entries: vec![Entry { key: (*key).to_owned(), value: (*value).to_owned() }],
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "llm".to_owned(),
        descriptors: of.iter().map(descriptor).collect(),
        hits_addend,
    }
}

impl Served {
    async fn check(&self, of: &[(&str, &str)], hits: u32) -> Code {
        self.client.clone().check_rate_limit(request(of, hits)).await.unwrap().into_inner().overall_code()
    }

    async fn report(&self, of: &[(&str, &str)], hits: u32, txn: Uuid) -> Result<RateLimitResponse, Status> {
        let mut request = Request::new(request(of, hits));
        request.metadata_mut().insert("x-request-id", txn.to_string().parse().unwrap());
        self.client.clone().report(request).await.map(tonic::Response::into_inner)
    }

    async fn left(&self, zone: &str, key: &str) -> i64 {
        self.limiter.peek(zone, key).await.unwrap().remaining
    }
}

fn codes(response: &RateLimitResponse) -> Vec<(Code, u32)> {
    let status = |status: &DescriptorStatus| (status.code(), status.limit_remaining);
    response.statuses.iter().map(status).collect()
}

#[tokio::test]
async fn a_check_spends_nothing_and_a_report_charges_beyond_the_limit() {
    assert_eq!(RateLimitServiceServer::<RateLimits>::NAME, "kuadrant.service.ratelimit.v1.RateLimitService");
    let (served, alice) = (served().await, [("user", "alice")]);
    // The number of hits that it says is not looked at: one more has to fit.
    for hits in [0, 1, 99] {
        assert_eq!(served.check(&alice, hits).await, Code::Ok);
    }
    assert_eq!(served.left("tokens", "user=alice").await, 10);
    let response = served.report(&alice, 7, Uuid::now_v7()).await.unwrap();
    assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![(Code::Ok, 3)]));
    assert_eq!(served.check(&alice, 99).await, Code::Ok);
    // It came to more than is left.
    served.clock.advance(Duration::from_secs(30));
    let response = served.report(&alice, 9, Uuid::now_v7()).await.unwrap();
    assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![(Code::Ok, 0)]));
    assert_eq!(served.check(&alice, 1).await, Code::OverLimit);
    // Where nothing is left nothing is charged, and it is told.
    let response = served.report(&alice, 9, Uuid::now_v7()).await.unwrap();
    assert_eq!((response.overall_code(), codes(&response)), (Code::Ok, vec![(Code::OverLimit, 0)]));
    // The first 7 are gone, and of 10 the other 9 are still there.
    served.clock.advance(Duration::from_secs(30));
    assert_eq!(served.left("tokens", "user=alice").await, 1);
    assert_eq!(served.check(&[("user", "bob")], 1).await, Code::Ok);
}

#[tokio::test]
async fn each_limit_of_a_report_is_charged_by_itself_and_once() {
    let served = served().await;
    let both = [("user", "alice"), ("model", "m"), ("no", "limit")];
    served.report(&[("user", "alice")], 12, Uuid::now_v7()).await.unwrap();
    let txn = Uuid::now_v7();
    for _ in 0..2 {
        let response = served.report(&both, 3, txn).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(codes(&response), [(Code::OverLimit, 0), (Code::Ok, 5), (Code::Ok, 0)]);
    }
    assert_eq!((served.left("tokens", "user=alice").await, served.left("model", "model=m").await), (0, 5));
    // The same transaction came to something else; slots are nothing that a request comes to; nobody named a domain.
    let refused = served.report(&both, 4, txn).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Aborted);
    let refused = served.report(&[("slot", "a")], 1, Uuid::now_v7()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let nowhere = RateLimitRequest { domain: String::new(), ..request(&both, 1) };
    assert_eq!(
        served.client.clone().check_rate_limit(nowhere).await.unwrap_err().code(),
        tonic::Code::InvalidArgument
    );
}
