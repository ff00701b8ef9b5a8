//! A shop: a login and a payment, each behind its limits.
//!
//! Run it with: cargo run --package tallygate-tower --example shop
//! and ask it: curl -i -X POST 'localhost:3000/login?user=alice' -d 'password=guess'

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use tallygate::{Limiter, Policy};
use tallygate_tower::{After, ClientAddress, Limit, RateLimit, who};

/// Attempts count by address, and by user from each address: whoever guesses at Alice's password from elsewhere does not lock
/// her out. The right password costs nothing.
fn login(limiter: Limiter) -> Result<RateLimit, Box<dyn Error>> {
    let address = ClientAddress::behind(["127.0.0.0/8", "10.0.0.0/8"])?;
    let by_address = Limit::new("login").by(address.clone());
    let by_user = Limit::new("login of a user").by(who::both(who::query("user"), address));
    Ok(RateLimit::of(limiter, [by_address, by_user])
        .after(|answer| if answer.status.is_success() { After::GiveBack } else { After::Keep }))
}

/// A card pays so much a day. The same payment sent again is charged once.
fn payment(limiter: Limiter) -> RateLimit {
    let header = HeaderName::from_static;
    let cents =
        |head: &Parts| head.headers.get("x-cents").and_then(|cents| cents.to_str().ok()?.parse().ok());
    let by_card = Limit::new("payments")
        .by(who::header(header("x-card")))
        .cost(move |head| cents(head).map_or(50_000, |cents: i64| cents.max(1)));
    RateLimit::of(limiter, [by_card]).idempotent()
}

pub(crate) async fn shop(limiter: Limiter) -> Result<Router, Box<dyn Error>> {
    let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    for (zone, policy) in [
        ("login", Policy::sliding_log(20, minute)?),
        ("login of a user", Policy::sliding_log(5, minute)?),
        ("payments", Policy::sliding_log(50_000, day)?),
    ] {
        limiter.operator().set_zone(zone, &policy, Some("the shop"), "example").await?;
    }
    let check = async |body: String| match body.as_str() {
        "password=correct horse" => (StatusCode::OK, "Welcome.\n"),
        _ => (StatusCode::FORBIDDEN, "Wrong password.\n"),
    };
    Ok(Router::new()
        .route("/login", post(check).layer(login(limiter.clone())?))
        .route("/pay", post(async || "Paid.\n").layer(payment(limiter))))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = shop(Limiter::connect("sqlite::memory:").await?).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, shop.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
