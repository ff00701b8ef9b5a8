//! `POST /json`, as envoyproxy/ratelimit has it.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::body::{expect, whole};
use super::head::{By, role};
use crate::app::App;
use crate::grpc::may;
use crate::problem::Problem;

/// An answer with the names of Envoy's messages.
pub(crate) struct Envoys(StatusCode, String);

pub(crate) async fn envoy(
    State(app): State<App>,
    caller: By<role::App>,
    request: Request,
) -> Result<Envoys, Problem> {
    let not_offered =
        || Problem::not_found("Envoy's service is not offered; the setting envoy.mapping names its limits");
    let limits = app.envoy().ok_or_else(not_offered)?;
    may(&caller)?;
    expect(request.headers(), "application/json")?;
    let body = whole(request.into_body(), app.limits()).await?;
    let (status, answer) = limits.json(&body).await;
    Ok(Envoys(status, answer))
}

impl IntoResponse for Envoys {
    fn into_response(self) -> Response {
        (self.0, [(CONTENT_TYPE, "application/json")], self.1).into_response()
    }
}
