//! The routes of HTTP, version 1.

mod act;
mod body;
mod check;
mod json;
mod lines;
mod read;
mod zones;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};

use crate::app::App;
use crate::caller::Caller;
use crate::measured::measure;
use crate::problem::Problem;

pub(crate) fn routes(app: App) -> Router {
    Router::new()
        .route("/v1/check", post(check::one))
        .route("/v1/check-all", post(check::all))
        .route("/v1/checks", post(lines::checks))
        .route("/v1/peek", post(check::peek))
        .route("/v1/reserve", post(check::reserve))
        .route("/v1/settle", post(act::settle))
        .route("/v1/cancel", post(act::cancel))
        .route("/v1/refund", post(act::refund))
        .route("/v1/release", post(act::release))
        .route("/v1/history", get(read::history))
        .route("/v1/transactions/{txn}", get(read::transaction))
        .route("/v1/transactions/{txn}/explanation", get(read::explanation))
        .route("/v1/buckets", get(read::find))
        .route("/v1/zones", get(zones::list))
        .route("/v1/zones/{zone}", get(zones::show).put(zones::set))
        .route("/v1/zones/{zone}/buckets/{key}", get(read::bucket))
        .route("/v1/zones/{zone}/bans", get(zones::bans))
        .route("/v1/zones/{zone}/bans/{key}", put(zones::ban).delete(zones::unban))
        .route("/v1/zones/{zone}/overrides", get(zones::overrides))
        .route("/v1/zones/{zone}/overrides/{key}", put(zones::set_override).delete(zones::remove_override))
        .route("/json", post(json::envoy))
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
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

/// No answer holds for a second asking.
async fn unstored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn metrics(State(app): State<App>, _: Caller) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics()).into_response()
}

async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    if app.leaves() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "leaving", "the server is about to end"));
    }
    app.limiter().ping().await?;
    Ok("ready\n")
}
