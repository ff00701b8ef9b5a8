//! The example, asked as its clients ask.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, StatusCode};
use tallygate::Limiter;
use tower::ServiceExt;

#[path = "../examples/shop.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

async fn login(shop: &Router, address: &str, user: &str, password: &str) -> StatusCode {
    let body = Body::from(format!("password={password}"));
    let mut request = Request::post(format!("/login?user={user}")).body(body).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 4711)));
    shop.clone().oneshot(request).await.unwrap().status()
}

async fn pay(shop: &Router, cents: &str, txn: &str) -> StatusCode {
    let request = Request::post("/pay").header("x-card", "9f3c").header("x-cents", cents);
    let request = request.header("idempotency-key", txn).body(Body::empty()).unwrap();
    shop.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn nobody_locks_alice_out() {
    let shop = example::shop(Limiter::connect("sqlite::memory:").await.unwrap()).await.unwrap();
    let mut looked_at = 0;
    for _ in 0..30 {
        looked_at +=
            usize::from(login(&shop, "203.0.113.66", "alice", "guess").await == StatusCode::FORBIDDEN);
    }
    assert_eq!(looked_at, 5);
    // A request that was blocked for one user took nothing from the address.
    for n in 0..20 {
        let user = format!("user{n}");
        looked_at += usize::from(login(&shop, "203.0.113.66", &user, "guess").await == StatusCode::FORBIDDEN);
    }
    assert_eq!(looked_at, 20);
    // She comes from elsewhere, as often as she likes.
    for _ in 0..30 {
        assert_eq!(login(&shop, "198.51.100.3", "alice", "correct horse").await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_card_pays_so_much_and_once() {
    let shop = example::shop(Limiter::connect("sqlite::memory:").await.unwrap()).await.unwrap();
    let (one, two, three) = (
        "0198f6a0-0000-7000-8000-000000000001",
        "0198f6a0-0000-7000-8000-000000000002",
        "0198f6a0-0000-7000-8000-000000000003",
    );
    for _ in 0..3 {
        assert_eq!(pay(&shop, "30000", one).await, StatusCode::OK);
    }
    assert_eq!(pay(&shop, "30000", two).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(pay(&shop, "20000", three).await, StatusCode::OK);
    // Less than nothing is a cent, and none is left.
    let four = "0198f6a0-0000-7000-8000-000000000004";
    assert_eq!(pay(&shop, "-1", four).await, StatusCode::TOO_MANY_REQUESTS);
}
