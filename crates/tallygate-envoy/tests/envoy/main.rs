//! A real Envoy in front of a service: the configuration of `docs/envoy.md`, with ports of its own. `with-envoy` runs it.

mod envoy;
mod outage;
mod postgres;
mod timeout;

use std::net::SocketAddr;
use std::time::Duration;

use tallygate::ledger::History;
use tallygate::{Limiter, Policy};
use tallygate_envoy::{Mapping, RateLimits};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::envoy::{CLOSED, Envoy, code, shop};

/// The rate limit service with the mapping of the document, and what ends it.
struct Limits {
    limiter: Limiter,
    address: SocketAddr,
    end: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn limits() -> Limits {
    limits_of(Limiter::connect("sqlite::memory:").await.unwrap(), [5, 3]).await
}

/// With so many logins for each address and each user in an hour.
async fn limits_of(limiter: Limiter, rates: [i64; 2]) -> Limits {
    for (zone, rate) in ["login", "login-user"].into_iter().zip(rates) {
        let policy = Policy::sliding_log(rate, Duration::from_secs(3600)).unwrap();
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let limits = RateLimits::new(limiter.clone(), Mapping::read(code("toml")).unwrap());
    limits.ready().await.unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (end, told) = oneshot::channel::<()>();
    let server = Server::builder().add_service(limits.into_service());
    let ended = tokio::spawn(async move {
        server.serve_with_incoming_shutdown(incoming, async move { drop(told.await) }).await.unwrap();
    });
    Limits { limiter, address, end, ended }
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn envoy_lets_pass_what_fits_and_answers_429_to_what_does_not() {
    let limits = limits().await;
    let envoy = Envoy::begin(shop().await, limits.address, &[]).await;
    for remaining in ["2", "1", "0"] {
        let answer = envoy.get("/login", "alice").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"), "{answer:?}");
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining), "{answer:?}");
        // The limit that is nearest to its end, and the other one: an hour is a unit.
        let told = answer.field("x-ratelimit-limit").unwrap();
        assert!(told.starts_with("3, ") && told.contains("3;w=3600;name=\"login-user\""), "{told}");
        assert!(told.contains("5;w=3600;name=\"login\""), "{told}");
    }
    let answer = envoy.get("/login", "alice").await;
    assert_eq!((answer.status, answer.field("x-envoy-ratelimited")), (429, Some("true")), "{answer:?}");
    let wait: u64 = answer.field("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{answer:?}");
    // The units that were held back by alice's limit are there for bob, and no more than that.
    let statuses = [envoy.get("/login", "bob").await.status, envoy.get("/login", "bob").await.status];
    assert_eq!(statuses, [200, 200]);
    let answer = envoy.get("/login", "carol").await;
    assert_eq!((answer.status, answer.field("x-envoy-ratelimited")), (429, Some("true")), "{answer:?}");
    assert_eq!(limits.limiter.peek("login", "remote_address=127.0.0.1").await.unwrap().remaining, 0);
    assert_eq!(limits.limiter.peek("login-user", "user=carol").await.unwrap().remaining, 3);
    // Other routes are asked about nobody.
    assert_eq!(envoy.get("/", "alice").await.status, 200);
    // Envoy's log says which limit it was, and under which transaction it is found.
    let log = envoy.log(8).await;
    let refused: Vec<_> = log.iter().filter(|(status, ..)| *status == 429).collect();
    assert_eq!(refused.len(), 2, "{log:?}");
    for ((_, request_id, told), zone) in refused.iter().zip(["login-user", "login"]) {
        let told = told.as_ref().unwrap();
        assert_eq!((&told["zone"], &told["reason"]), (&zone.into(), &"over_limit".into()), "{log:?}");
        assert_eq!(told["transaction"], **request_id, "{log:?}");
    }
    let request_id = &refused[0].1;
    let history = History { txn: Some(request_id.parse().unwrap()), ..History::default() };
    assert_eq!(limits.limiter.auditor().history(&history).await.unwrap().rows.len(), 2);
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn without_the_service_requests_pass_unless_envoy_is_told_otherwise() {
    let (limits, shop) = (limits().await, shop().await);
    let open = Envoy::begin(shop, limits.address, &[]).await;
    let closed = Envoy::begin(shop, limits.address, &[CLOSED]).await;
    for envoy in [&open, &closed] {
        assert!(envoy.get("/login", "alice").await.field("x-ratelimit-remaining").is_some());
    }
    limits.end.send(()).unwrap();
    limits.ended.await.unwrap();
    for (envoy, status) in [(&open, 200), (&closed, 500)] {
        // More often than the limit is.
        for _ in 0..7 {
            let answer = envoy.get("/login", "alice").await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.field("x-ratelimit-remaining"), None, "{answer:?}");
        }
        assert_eq!(envoy.get("/", "alice").await.status, 200);
    }
}

#[tokio::test]
#[ignore = "needs an Envoy: run tests/with-envoy, or set TALLYGATE_ENVOY to its path"]
async fn a_zone_that_is_missing_is_an_error_to_envoy_and_no_pass() {
    let change = (
        "failure_mode_deny: false # true: 500 where nothing was decided\n",
        "failure_mode_deny: true\n                      status_on_error: { code: ServiceUnavailable }\n",
    );
    let missing = Limiter::connect("sqlite::memory:").await.unwrap();
    let service = RateLimits::new(missing, Mapping::read(code("toml")).unwrap());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_service(service.into_service()).serve_with_incoming(incoming));
    let envoy = Envoy::begin(shop().await, address, &[change]).await;
    assert_eq!(envoy.get("/login", "alice").await.status, 503);
    assert_eq!(envoy.get("/", "alice").await.status, 200);
}
