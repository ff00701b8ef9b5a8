//! The routes of HTTP, version 1.

mod act;
mod body;
mod check;
mod head;
mod json;
mod lease;
mod lines;
mod openapi;
mod predict;
mod queue;
mod read;
mod zones;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};

use self::openapi::{DELETE, GET, POST, PUT, Routes};
use crate::app::App;
use crate::caller::Caller;
use crate::measured::measure;
use crate::problem::Problem;

/// The routes for callers, and `/metrics` where that has no address of its own.
pub(crate) fn routes(app: App, has_metrics: bool) -> Router {
    whole(if has_metrics { all() } else { health(asked(Routes::new())) }, app)
}

/// The routes of the address for metrics and health.
pub(crate) fn admin(app: App) -> Router {
    whole(metered(health(Routes::new())), app)
}

/// With what is answered where there is no route, and what every answer has.
fn whole(routes: Routes, app: App) -> Router {
    routes
        .router()
        .fallback(async || Problem::not_found("there is no such path; docs/server.md lists them"))
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "invalid",
                "the path is there, and not by this method",
            )
        })
        .layer(map_response(unstored))
        .layer(from_fn(measure))
        .with_state(app)
}

/// Everything that is answered.
fn all() -> Routes {
    metered(health(asked(Routes::new())))
}

/// The routes for callers: by which method and path, who answers, with which problems besides those of the types, and
/// what it does.
fn asked(routes: Routes) -> Routes {
    routes
        .route(POST, "/v1/check", check::one, &[409], "Decides a check and records it")
        .route(POST, "/v1/check-all", check::all, &[409], "Decides checks that pass together or not at all")
        .route(POST, "/v1/checks", lines::checks, &[], "Decides a check a line")
        .route(POST, "/v1/peek", check::peek, &[], "Looks how a bucket stands for a check; spends nothing")
        .route(POST, "/v1/reserve", check::reserve, &[409], "Charges for a time, or until it is settled")
        .route(
            POST,
            "/v1/reserve-predicted",
            predict::reserve,
            &[409],
            "Charges what is predicted for a time",
        )
        .route(POST, "/v1/predict", predict::look, &[], "Predicts what a request will cost; spends nothing")
        .route(POST, "/v1/settle", act::settle, &[409], "Says what a reservation came to")
        .route(POST, "/v1/cancel", act::cancel, &[409], "Gives a reservation back")
        .route(POST, "/v1/refund", act::refund, &[409], "Gives a charge back")
        .route(POST, "/v1/release", act::release, &[409], "Gives a slot back")
        .route(POST, "/v1/lease", lease::get, &[409], "Takes, refreshes or gives back a lease of capacity")
        .route(POST, "/v1/queue/offer", queue::offer, &[409], "Offers an item to a queue")
        .route(POST, "/v1/queue/take", queue::take, &[], "Takes what is next in a queue")
        .route(POST, "/v1/queue/extend", queue::extend, &[409], "Keeps an item that was taken for longer")
        .route(POST, "/v1/queue/done", queue::done, &[409], "Says that an item is worked off")
        .route(POST, "/v1/queue/release", queue::release, &[409], "Gives an item back")
        .route(POST, "/v1/queue/redrive", queue::redrive, &[409], "Tries a dead item again")
        .route(GET, "/v1/queue/{zone}/{queue}", queue::size, &[], "Tells how much waits in a queue")
        .route(GET, "/v1/queue/{zone}/{queue}/dead", queue::dead, &[], "Lists the dead items of a queue")
        .route(GET, "/v1/queue/{zone}/{queue}/{txn}", queue::item, &[404], "Tells what became of an item")
        .route(GET, "/v1/history", read::history, &[404], "Reads rows of the ledger, newest first")
        .route(GET, "/v1/transactions/{txn}", read::transaction, &[404], "Reads the rows of a transaction")
        .route(GET, "/v1/transactions/{txn}/explanation", read::explanation, &[404], "Explains a decision")
        .route(GET, "/v1/buckets", read::find, &[], "Finds the buckets of a key")
        .route(GET, "/v1/zones", zones::list, &[], "Lists the zones")
        .route(GET, "/v1/zones/{zone}", zones::show, &[404], "Shows a zone and its versions")
        .route(PUT, "/v1/zones/{zone}", zones::set, &[], "Makes a zone, or sets its policy")
        .route(GET, "/v1/zones/{zone}/buckets/{key}", read::bucket, &[404], "Shows how a bucket stands now")
        .route(GET, "/v1/zones/{zone}/bans", zones::bans, &[404], "Lists the bans in force")
        .route(PUT, "/v1/zones/{zone}/bans/{key}", zones::ban, &[], "Bans a bucket")
        .route(DELETE, "/v1/zones/{zone}/bans/{key}", zones::unban, &[409], "Ends a ban")
        .route(GET, "/v1/zones/{zone}/overrides", zones::overrides, &[404], "Lists the overrides in force")
        .route(PUT, "/v1/zones/{zone}/overrides/{key}", zones::set_override, &[], "Gives a bucket its limit")
        .route(DELETE, "/v1/zones/{zone}/overrides/{key}", zones::remove_override, &[409], "Ends an override")
        .route(POST, "/json", json::envoy, &[404], "Answers as envoyproxy/ratelimit does at this path")
        .route(GET, "/v1/openapi.json", openapi::openapi, &[], "This document")
}

fn metered(routes: Routes) -> Routes {
    routes.route(GET, "/metrics", metrics, &[], "What is counted, as Prometheus reads it")
}

fn health(routes: Routes) -> Routes {
    routes.route(GET, "/livez", async || "alive\n", &[], "The server runs").route(
        GET,
        "/readyz",
        ready,
        &[],
        "The server is ready for requests",
    )
}

/// No answer holds for a second asking.
async fn unstored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn metrics(State(app): State<App>, _: Caller) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.measured().render()).into_response()
}

async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.leaves() {
        return Err(Problem::leaving());
    }
    app.limiter().ping().await?;
    Ok("ready\n")
}
