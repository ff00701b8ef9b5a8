//! The layer in axum apps, on the embedded engine: what a client gets, and what the ledger says of it.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Extension, State};
use axum::routing::{any, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt;
use sfv::{BareItem, Parser};
use tallygate::ledger::{History, Kind};
use tallygate::policy::{BlockedRows, Mode};
use tallygate::testing::Clock;
use tallygate::uuid::Uuid;
use tallygate::{Check, Limiter, Policy};
use tallygate_tower::who::{self, Subject};
use tallygate_tower::{
    After, ClientAddress, Decided, Fields, Limit, Nobody, OnBlocked, Peer, RateLimit, Refused,
};
use tower::{Layer, Service, ServiceExt};

const MINUTE: Duration = Duration::from_secs(60);

/// A limiter with these zones, and the clock that it decides by.
async fn limiter(zones: &[(&str, Policy)]) -> (Limiter, Clock) {
    let clock = Clock::at("2026-11-23T12:00:00Z".parse().unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    for (zone, policy) in zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    (limiter, clock)
}

fn log(rate: i64) -> Policy {
    Policy::sliding_log(rate, MINUTE).unwrap()
}

fn app(layer: RateLimit) -> Router {
    Router::new().route("/", any(async || "welcome")).route("/slow", get(async || "slowly")).layer(layer)
}

fn from(address: &str) -> Request<Body> {
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 4711)));
    request
}

fn with(name: &'static str, value: &str) -> Request<Body> {
    Request::get("/").header(name, value).body(Body::empty()).unwrap()
}

async fn answer<B>(app: &Router, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    app.clone().oneshot(request.map(Body::new)).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    Some(response.headers().get(name)?.to_str().unwrap())
}

/// The rows of a zone, oldest first: kind, key, blocked and what was spent.
async fn rows(limiter: &Limiter, zone: &str) -> Vec<(Kind, String, bool, i64)> {
    let history = History { zone: Some(zone.to_owned()), ..History::default() };
    let page = limiter.auditor().history(&history).await.unwrap();
    page.rows.into_iter().rev().map(|row| (row.kind, row.key, row.blocked, row.spent)).collect()
}

/// Waits for something that becomes true within a moment: work that goes on after the answer.
async fn soon(mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be");
}

#[tokio::test]
async fn one_line_protects_a_login() {
    let (limiter, clock) = limiter(&[("login", log(2))]).await;
    let app =
        app(RateLimit::new(limiter.clone(), "login").by(ClientAddress::behind(["10.0.0.0/8"]).unwrap()));
    for remaining in ["1", "0"] {
        let response = answer(&app, from("203.0.113.9")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "ratelimit"), Some(format!("\"login\";r={remaining}").as_str()));
        assert_eq!(header(&response, "ratelimit-policy"), Some("\"login\";q=2;w=60"));
        assert_eq!(header(&response, "retry-after"), None);
        assert_eq!(text(response).await, "welcome");
    }
    clock.advance(Duration::from_millis(500));
    let response = answer(&app, from("203.0.113.9")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    // Rounded up: whoever comes then passes.
    assert_eq!(header(&response, "retry-after"), Some("60"));
    assert_eq!(header(&response, "ratelimit"), Some("\"login\";r=0;t=60"));
    assert_eq!(header(&response, "cache-control"), Some("no-store"));
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    let decided = response.extensions().get::<Decided>().unwrap().clone();
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    assert_eq!(problem["detail"], "try again in 60 seconds");
    assert_eq!(problem["transaction"], decided.decisions()[0].txn_id.to_string());
    // A request by way of our proxy is that of its client.
    let mut request = from("10.0.0.1");
    request.headers_mut().insert("x-forwarded-for", "203.0.113.9".parse().unwrap());
    assert_eq!(answer(&app, request).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer(&app, from("203.0.113.10")).await.status(), StatusCode::OK);
    clock.advance(MINUTE);
    assert_eq!(answer(&app, from("203.0.113.9")).await.status(), StatusCode::OK);
    let keys: Vec<_> = rows(&limiter, "login").await.into_iter().map(|(_, key, ..)| key).collect();
    assert_eq!(keys, [&["ip:203.0.113.9"; 4][..], &["ip:203.0.113.10"], &["ip:203.0.113.9"]].concat());
}

#[tokio::test]
async fn several_limits_pass_together_or_none_is_spent_from() {
    let (limiter, _) = limiter(&[("address", log(3)), ("user", log(1))]).await;
    let user = Limit::new("user").by(who::header(HeaderName::from_static("x-user")));
    let app = app(RateLimit::new(limiter.clone(), "address").and(user));
    assert_eq!(answer(&app, with("x-user", "alice")).await.status(), StatusCode::OK);
    for _ in 0..5 {
        let response = answer(&app, with("x-user", "alice")).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        // The limit that was held back is not violated.
        assert_eq!(header(&response, "ratelimit"), Some("\"address\";r=2, \"user\";r=0;t=60"));
        let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["user"]));
    }
    assert_eq!(answer(&app, with("x-user", "bob")).await.status(), StatusCode::OK);
    assert_eq!(limiter.peek("address", "all").await.unwrap().remaining, 1);
}

#[tokio::test]
async fn who_does_not_say_his_name_is_treated_as_it_was_said() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let by = |nobody| {
        let user = who::header(HeaderName::from_static("x-user"));
        app(RateLimit::new(limiter.clone(), "login").by(user).nobody(nobody))
    };
    let request = || Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(answer(&by(Nobody::Refuse), request()).await.status(), StatusCode::BAD_REQUEST);
    assert!(rows(&limiter, "login").await.is_empty());
    for _ in 0..3 {
        assert_eq!(answer(&by(Nobody::Skip), request()).await.status(), StatusCode::OK);
    }
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(answer(&by(Nobody::Share), request()).await.status(), status);
    }
    let refuse = |_: &http::request::Parts| Subject::Refuse(StatusCode::UNAUTHORIZED);
    let refused = app(RateLimit::new(limiter.clone(), "login").by(refuse));
    assert_eq!(answer(&refused, request()).await.status(), StatusCode::UNAUTHORIZED);
    // Without axum, a server says itself who its peer is.
    let app = app(RateLimit::new(limiter.clone(), "login").by(ClientAddress::of_peer()));
    assert_eq!(answer(&app, request()).await.status(), StatusCode::BAD_REQUEST);
    let mut told = request();
    told.extensions_mut().insert(Peer("192.0.2.1:80".parse().unwrap()));
    assert_eq!(answer(&app, told).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_key_that_is_too_long_is_hashed_with_a_secret_or_refused() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let by = || RateLimit::new(limiter.clone(), "login").by(who::header(HeaderName::from_static("x-user")));
    let (long, other) = ("a".repeat(400), format!("{}b", "a".repeat(399)));
    assert_eq!(answer(&app(by()), with("x-user", &long)).await.status(), StatusCode::BAD_REQUEST);
    let app = app(by().secret(*b"0123456789abcdef0123456789abcdef"));
    assert_eq!(answer(&app, with("x-user", &long)).await.status(), StatusCode::OK);
    assert_eq!(answer(&app, with("x-user", &long)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let response = answer(&app, with("x-user", &other)).await;
    assert_eq!(response.status(), StatusCode::OK);
    // The bucket is told apart without being named.
    let told = Parser::new(header(&response, "ratelimit").unwrap()).parse::<sfv::List>().unwrap();
    let sfv::ListEntry::Item(item) = &told[0] else { panic!("{told:?}") };
    let Some(BareItem::ByteSequence(bytes)) = item.params.get("pk") else { panic!("{item:?}") };
    assert_eq!(bytes.len(), 12);
    let keys: Vec<_> = rows(&limiter, "login").await.into_iter().map(|(_, key, ..)| key).collect();
    assert!(keys.iter().all(|key| key.starts_with("header#") && key.len() == 71), "{keys:?}");
}

#[tokio::test]
async fn a_blocked_request_gets_what_was_chosen() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let by = |on_blocked| RateLimit::new(limiter.clone(), "login").on_blocked(on_blocked);
    let request = || Request::get("/").body(Body::empty()).unwrap();
    assert_eq!(answer(&app(by(OnBlocked::Text)), request()).await.status(), StatusCode::OK);

    let response = answer(&app(by(OnBlocked::Text)), request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(response).await, "Too many requests: try again in 60 seconds.\n");

    let redirected = app(by(OnBlocked::redirect("/slow").unwrap()));
    let response = answer(&redirected, request()).await;
    assert_eq!((response.status(), header(&response, "location")), (StatusCode::SEE_OTHER, Some("/slow")));
    assert_eq!((header(&response, "retry-after"), header(&response, "ratelimit")), (None, None));
    let there = Request::get("/slow").body(Body::empty()).unwrap();
    assert_eq!(text(answer(&redirected, there).await).await, "slowly");
    let nested = Router::new().nest("/a", app(by(OnBlocked::redirect("/a/slow").unwrap())));
    let there = Request::get("/a/slow").body(Body::empty()).unwrap();
    assert_eq!(text(answer(&nested, there).await).await, "slowly");
    // The path of somebody else's URL is not left out here.
    let elsewhere = app(by(OnBlocked::redirect("https://captcha.example/slow").unwrap()));
    let here = Request::get("/slow").body(Body::empty()).unwrap();
    assert_eq!(answer(&elsewhere, here).await.status(), StatusCode::SEE_OTHER);
    assert!(OnBlocked::redirect("no uri").is_err());

    let handler = |Extension(decided): Extension<Decided>, headers: http::HeaderMap| async move {
        format!("{} {}", decided.is_blocked(), headers.contains_key("tallygate-reduced"))
    };
    let reduced = Router::new().route("/", any(handler)).layer(by(OnBlocked::Reduce));
    assert_eq!(text(answer(&reduced, request()).await).await, "true true");

    let own = OnBlocked::with(|decided| {
        let mut response = Response::new(Bytes::from(decided.decisions()[0].zone.clone()));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    let response = answer(&app(by(own)), request()).await;
    assert_eq!((response.status(), header(&response, "retry-after")), (StatusCode::IM_A_TEAPOT, Some("60")));
    assert_eq!(text(response).await, "login");

    let mut grpc = request();
    *grpc.method_mut() = http::Method::POST;
    grpc.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    let response = answer(&app(by(OnBlocked::Problem)), grpc).await;
    assert_eq!((response.status(), header(&response, "grpc-status")), (StatusCode::OK, Some("8")));
    assert_eq!(header(&response, "grpc-retry-pushback-ms"), Some("60000"));
    assert_eq!(
        (header(&response, "cache-control"), header(&response, "ratelimit")),
        (Some("no-store"), Some("\"login\";r=0;t=60"))
    );
    assert!(response.extensions().get::<Decided>().is_some());
    assert_eq!(text(response).await, "");
    // No client makes a page of it that a cache would keep.
    let page = with("content-type", "application/grpc");
    assert_eq!(answer(&app(by(OnBlocked::Problem)), page).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_reduced_marker_of_the_clients_own_is_taken_off() {
    let (limiter, _) = limiter(&[("login", log(9))]).await;
    let handler =
        |headers: http::HeaderMap| async move { headers.contains_key("tallygate-reduced").to_string() };
    let layer = RateLimit::new(limiter, "login").on_blocked(OnBlocked::Reduce);
    let app = Router::new().route("/", any(handler)).layer(layer);
    assert_eq!(text(answer(&app, with("tallygate-reduced", "1")).await).await, "false");
}

#[tokio::test]
async fn a_layer_within_leaves_what_one_without_said() {
    let (limiter, _) = limiter(&[("all", log(1)), ("route", log(9))]).await;
    let handler = |Extension(decided): Extension<Decided>, headers: http::HeaderMap| async move {
        let zones: Vec<_> = decided.decisions().iter().map(|decision| decision.zone.as_str()).collect();
        format!("{} {} {}", zones.join(" "), decided.is_blocked(), headers.contains_key("tallygate-reduced"))
    };
    let app = Router::new()
        .route("/", get(handler).layer(RateLimit::new(limiter.clone(), "route")))
        .layer(RateLimit::new(limiter, "all").on_blocked(OnBlocked::Reduce));
    for is_blocked in [false, true] {
        let response = answer(&app, Request::get("/").body(Body::empty()).unwrap()).await;
        let told: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(response.extensions().get::<Decided>().unwrap().decisions().len(), 2);
        assert_eq!(text(response).await, format!("all route {is_blocked} {is_blocked}"));
    }
}

#[tokio::test]
async fn a_charge_is_given_back_or_settled_by_the_answer() {
    let (limiter, _) = limiter(&[("login", log(100)), ("tokens", log(100))]).await;
    let statuses = |status: StatusCode| Router::new().route("/", any(async move || (status, "12345")));
    let request = || Request::get("/").body(Body::empty()).unwrap();
    let left = async |zone: &str| limiter.peek(zone, "all").await.unwrap().remaining;

    // The right password costs nothing.
    let layer = RateLimit::new(limiter.clone(), "login")
        .after(|answer| if answer.status.is_success() { After::GiveBack } else { After::Keep });
    answer(&statuses(StatusCode::OK).layer(layer.clone()), request()).await;
    assert_eq!(left("login").await, 100);
    answer(&statuses(StatusCode::FORBIDDEN).layer(layer), request()).await;
    assert_eq!(left("login").await, 99);

    // The cost is known afterwards.
    let reserve = || Limit::new("tokens").cost(|_| 50).reserved_for(MINUTE);
    for (after, remaining) in [(After::Keep, 50), (After::GiveBack, 50), (After::Charge(7), 43)] {
        let layer = RateLimit::of(limiter.clone(), [reserve()]).after(move |_| after);
        answer(&statuses(StatusCode::OK).layer(layer), request()).await;
        assert_eq!(left("tokens").await, remaining, "{after:?}");
    }
    let layer = RateLimit::of(limiter.clone(), [reserve().cost(|_| 40)]).after(|_| After::ChargeBytes);
    let response = answer(&statuses(StatusCode::OK).layer(layer), request()).await;
    assert_eq!(left("tokens").await, 3);
    assert_eq!(text(response).await, "12345");
    soon(async || left("tokens").await == 38).await;

    // A client that leaves once the service works pays for it.
    let layer = RateLimit::of(limiter.clone(), [reserve().cost(|_| 20)]);
    let never = Router::new().route("/", any(pending::<()>)).layer(layer);
    assert!(tokio::time::timeout(Duration::from_millis(300), answer(&never, request())).await.is_err());
    soon(async || rows(&limiter, "tokens").await.last().is_some_and(|row| row.0 == Kind::Settle)).await;
    assert_eq!(left("tokens").await, 18);

    // The service does it itself.
    let layer = RateLimit::of(limiter.clone(), [reserve().cost(|_| 10)]).after(|_| After::Leave);
    let response = answer(&statuses(StatusCode::OK).layer(layer), request()).await;
    let txn = response.extensions().get::<Decided>().unwrap().decisions()[0].txn_id;
    limiter.settle(txn, 1).await.unwrap();
    assert_eq!(left("tokens").await, 17);
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_ends() {
    let (limiter, _) = limiter(&[("uploads", Policy::concurrency(1, MINUTE).unwrap())]).await;
    let layer = RateLimit::new(limiter.clone(), "uploads");
    let app = app(layer.clone());
    let request = || Request::get("/").body(Body::empty()).unwrap();
    let response = answer(&app, request()).await;
    assert_eq!(header(&response, "ratelimit-policy"), Some("\"uploads\";q=1;qu=\"concurrent-requests\""));
    // It may be free at any time, and not only when it would end by itself.
    let blocked = answer(&app, request()).await;
    assert_eq!(
        (blocked.status(), header(&blocked, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some("1"))
    );
    assert_eq!(header(&blocked, "ratelimit"), Some("\"uploads\";r=0"));
    assert_eq!(text(response).await, "welcome");
    soon(async || limiter.peek("uploads", "all").await.unwrap().remaining == 1).await;
    // Nobody reads it.
    drop(answer(&app, request()).await);
    soon(async || limiter.peek("uploads", "all").await.unwrap().remaining == 1).await;
    // Nobody waits for the service.
    let never = Router::new().route("/", any(pending::<()>)).layer(layer);
    let left = tokio::time::timeout(Duration::from_millis(200), answer(&never, request())).await;
    assert!(left.is_err());
    soon(async || limiter.peek("uploads", "all").await.unwrap().remaining == 1).await;
}

/// However early it leaves: before it is asked about, while it is decided, while the service works.
#[tokio::test]
async fn whoever_leaves_leaves_no_slot_behind() {
    let (limiter, _) = limiter(&[("uploads", Policy::concurrency(50, MINUTE).unwrap())]).await;
    let works = Router::new().route("/", any(async || tokio::time::sleep(Duration::from_millis(5)).await));
    let app = works.layer(RateLimit::new(limiter.clone(), "uploads"));
    let mut left = 0;
    for n in 0..200 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let patience = Duration::from_micros(n * 20);
        left += usize::from(tokio::time::timeout(patience, answer(&app, request)).await.is_err());
    }
    assert!(left > 100, "{left}");
    soon(async || limiter.peek("uploads", "all").await.unwrap().remaining == 50).await;
}

#[tokio::test]
async fn a_request_waits_for_its_turn_and_gives_it_back_when_it_leaves() {
    let (limiter, _) =
        limiter(&[("mails", Policy::leaky_queue(10, Duration::from_secs(1), Some(4)).unwrap())]).await;
    let layer = RateLimit::new(limiter.clone(), "mails");
    let request = || Request::get("/").body(Body::empty()).unwrap();
    let app = app(layer.clone());
    assert_eq!(answer(&app, request()).await.status(), StatusCode::OK);
    let before = std::time::Instant::now();
    assert_eq!(answer(&app, request()).await.status(), StatusCode::OK);
    assert!(before.elapsed() >= Duration::from_millis(100));
    let there = limiter.peek("mails", "all").await.unwrap().remaining;
    let left = tokio::time::timeout(Duration::from_millis(20), answer(&app, request())).await;
    assert!(left.is_err());
    soon(async || limiter.peek("mails", "all").await.unwrap().remaining == there).await;
    // The queue is longer than anybody is to wait.
    let hasty = self::app(layer.longest_delay(Duration::from_millis(1)));
    let response = answer(&hasty, request()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&response, "retry-after"), Some("1"));
    soon(async || limiter.peek("mails", "all").await.unwrap().remaining == there).await;
}

#[tokio::test]
async fn a_queue_in_shadow_mode_keeps_nobody_waiting() {
    let queue = Policy::leaky_queue(1, MINUTE, Some(4)).unwrap().with_mode(Mode::Shadow);
    let (limiter, _) = limiter(&[("mails", queue)]).await;
    let app = app(RateLimit::new(limiter, "mails").longest_delay(Duration::from_millis(1)));
    for _ in 0..9 {
        let response = answer(&app, Request::get("/").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_flood_is_coalesced_where_the_zone_says_so() {
    let (limiter, _) = limiter(&[("login", log(1).with_blocked_rows(BlockedRows::Coalesced))]).await;
    let app = app(RateLimit::new(limiter.clone(), "login"));
    for _ in 0..50 {
        answer(&app, Request::get("/").body(Body::empty()).unwrap()).await;
    }
    limiter.flush().await.unwrap();
    let rows = rows(&limiter, "login").await.len();
    assert!((3..10).contains(&rows), "{rows}");
}

#[tokio::test]
async fn a_zone_that_enforces_nothing_is_not_told_of() {
    let (limiter, _) =
        limiter(&[("shadow", log(1).with_mode(Mode::Shadow)), ("soft", log(9).with_soft_rate(Some(1)))])
            .await;
    let shadow = app(RateLimit::new(limiter.clone(), "shadow").fields(Fields::Both));
    let request = || Request::get("/").body(Body::empty()).unwrap();
    for _ in 0..3 {
        let response = answer(&shadow, request()).await;
        assert_eq!(response.status(), StatusCode::OK);
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "retry-after"] {
            assert_eq!(header(&response, name), None);
        }
    }
    let handler = async |Extension(decided): Extension<Decided>| decided.is_warned().to_string();
    let layer = RateLimit::new(limiter, "soft").fields(Fields::Both);
    let soft = Router::new().route("/", any(handler)).layer(layer);
    for (remaining, is_warned) in [("8", "false"), ("7", "true")] {
        let response = answer(&soft, request()).await;
        assert_eq!(header(&response, "ratelimit-policy"), Some("\"soft\";q=9;w=60;tallygate-soft=1"));
        assert_eq!(header(&response, "x-ratelimit-limit"), Some("9"));
        assert_eq!(header(&response, "x-ratelimit-remaining"), Some(remaining));
        assert_eq!(text(response).await, is_warned);
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_spends_nothing() {
    let (limiter, clock) = limiter(&[("pay", log(2))]).await;
    let layer = RateLimit::of(
        limiter.clone(),
        [Limit::new("pay").cost(|head| {
            head.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
        })],
    );
    let app = app(layer.clone().idempotent());
    let txn = Uuid::now_v7().to_string();
    for _ in 0..5 {
        assert_eq!(answer(&app, with("idempotency-key", &txn)).await.status(), StatusCode::OK);
    }
    assert_eq!(rows(&limiter, "pay").await.len(), 1);
    // A decision that is told again is given back by nobody else.
    let back = self::app(layer.clone().idempotent().after(|_| After::GiveBack));
    assert_eq!(answer(&back, with("idempotency-key", &txn)).await.status(), StatusCode::OK);
    assert_eq!(rows(&limiter, "pay").await.len(), 1);
    let mut other = with("idempotency-key", &txn);
    other.headers_mut().insert("x-cost", "2".parse().unwrap());
    assert_eq!(answer(&app, other).await.status(), StatusCode::CONFLICT);
    assert_eq!(answer(&app, with("idempotency-key", "again")).await.status(), StatusCode::BAD_REQUEST);
    let nil = Uuid::nil().to_string();
    assert_eq!(answer(&app, with("idempotency-key", &nil)).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(rows(&limiter, "pay").await.len(), 1);
    // Once blocked, it stays so: to wait does not help.
    let other = with("idempotency-key", &Uuid::now_v7().to_string());
    assert_eq!(answer(&app, other).await.status(), StatusCode::OK);
    let late = Uuid::now_v7().to_string();
    for retry_after in [Some("60"), None] {
        let response = answer(&app, with("idempotency-key", &late)).await;
        assert_eq!(
            (response.status(), header(&response, "retry-after")),
            (StatusCode::TOO_MANY_REQUESTS, retry_after)
        );
    }
    clock.advance(MINUTE);
    // Given back, it would have been allowed and cost nothing.
    let kept = Uuid::now_v7().to_string();
    for _ in 0..2 {
        assert_eq!(answer(&back, with("idempotency-key", &kept)).await.status(), StatusCode::OK);
    }
    assert_eq!(limiter.peek("pay", "all").await.unwrap().remaining, 1);
    clock.advance(MINUTE);
    // Where clients may not choose, it is a header like others.
    let deaf = self::app(layer);
    for status in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(answer(&deaf, with("idempotency-key", &txn)).await.status(), status);
    }
}

#[tokio::test]
async fn what_cannot_be_decided_does_not_pass() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let request = || Request::get("/").body(Body::empty()).unwrap();
    let response = answer(&app(RateLimit::new(limiter.clone(), "nowhere")), request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["code"], "unknown_zone");
    // A fault in what a client sends is not the operator's.
    let control = |_: &http::request::Parts| Subject::Key("a\u{7}".to_owned());
    let response = answer(&app(RateLimit::new(limiter.clone(), "login").by(control)), request()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    // A fault of the operator's is not the client's.
    let members = Policy::distinct(5, MINUTE).unwrap();
    limiter.operator().set_zone("cards", &members, None, "test").await.unwrap();
    let response = answer(&app(RateLimit::new(limiter.clone(), "cards")), request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let app = app(RateLimit::new(limiter.clone(), "login"));
    limiter.close().await.unwrap();
    let response = answer(&app, request()).await;
    assert!(response.status().is_server_error(), "{}", response.status());
    assert_eq!(header(&response, "cache-control"), Some("no-store"));
}

/// Only the service that said it was ready may be called.
#[derive(Default)]
struct Fussy {
    is_ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Fussy {
    fn clone(&self) -> Self {
        Self { is_ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl<B> Service<Request<B>> for Fussy {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was not ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_called() {
    let (limiter, _) = limiter(&[("login", log(2))]).await;
    let fussy = Fussy::default();
    let mut service = RateLimit::new(limiter, "login").layer(fussy.clone());
    for _ in 0..5 {
        ServiceExt::<Request<()>>::ready(&mut service).await.unwrap().call(Request::new(())).await.unwrap();
    }
    assert_eq!(fussy.calls.load(Ordering::SeqCst), 2);
}

/// A body without an end, which says when it is asked for more.
struct Endless(Arc<AtomicBool>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.store(true, Ordering::SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b"more")))))
    }
}

#[tokio::test]
async fn bodies_are_not_read() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let was_read = Arc::new(AtomicBool::new(false));
    let app = Router::new()
        .route("/", any(async || Response::new(Body::new(Endless(Arc::default())))))
        .layer(RateLimit::new(limiter, "login"));
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let request = Request::post("/").body(Endless(Arc::clone(&was_read))).unwrap();
        let mut response = answer(&app, request).await;
        assert_eq!(response.status(), status);
        assert!(response.body_mut().frame().await.unwrap().unwrap().is_data());
    }
    assert!(!was_read.load(Ordering::SeqCst));
}

#[tokio::test]
async fn what_is_left_out_is_not_asked_about() {
    let (limiter, _) = limiter(&[("login", log(1))]).await;
    let app =
        app(RateLimit::new(limiter.clone(), "login").unless(|head| head.method == http::Method::OPTIONS));
    for _ in 0..3 {
        let preflight = Request::options("/").body(Body::empty()).unwrap();
        let response = answer(&app, preflight).await;
        assert_eq!((response.status(), header(&response, "ratelimit")), (StatusCode::OK, None));
    }
    assert!(rows(&limiter, "login").await.is_empty());
}

/// As a handler answers that asks the limiter about what it read in a body.
#[tokio::test]
async fn a_handler_answers_as_the_layer_does() {
    let (limiter, clock) = limiter(&[("login", log(1)), ("user", log(5))]).await;
    let clients = ClientAddress::behind(["10.0.0.0/8"]).unwrap();
    let handler = async |State((limiter, clients)): State<(Limiter, ClientAddress)>,
                         ConnectInfo(peer): ConnectInfo<SocketAddr>,
                         headers: HeaderMap,
                         user: String| {
        let limits = vec![Check::new("login", clients.key(peer.ip(), &headers)), Check::new("user", user)];
        Decided::from(limiter.check_all(limits).await?).passed()?;
        Ok::<_, Refused>("welcome")
    };
    let app = Router::new().route("/", any(handler)).with_state((limiter.clone(), clients.clone()));
    let layer = self::app(RateLimit::new(limiter.clone(), "login").by(clients));
    let ask = |user: &str| {
        let mut request = from("10.0.0.1").map(|_| Body::from(user.to_owned()));
        request.headers_mut().insert("x-forwarded-for", "203.0.113.9".parse().unwrap());
        request
    };
    let passed = answer(&app, ask("alice")).await;
    assert_eq!((passed.status(), text(passed).await.as_str()), (StatusCode::OK, "welcome"));
    assert_eq!(rows(&limiter, "login").await[0].1, "ip:203.0.113.9");
    clock.advance(Duration::from_millis(500));
    let (blocked, by_layer) = (answer(&app, ask("alice")).await, answer(&layer, ask("alice")).await);
    assert_eq!(blocked.status(), StatusCode::TOO_MANY_REQUESTS);
    for field in ["retry-after", "content-type", "cache-control"] {
        assert_eq!(header(&blocked, field), header(&by_layer, field), "{field}");
    }
    let document = async |response| {
        let mut document: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        document["transaction"].take();
        document
    };
    assert_eq!(document(blocked).await, document(by_layer).await);

    // No key, and no zone.
    let refused = answer(&app, ask("")).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
    let error = limiter.check(Check::new("nowhere", "alice")).await.unwrap_err();
    assert_eq!(Refused::from(error).into_inner().status(), StatusCode::INTERNAL_SERVER_ERROR);
}
