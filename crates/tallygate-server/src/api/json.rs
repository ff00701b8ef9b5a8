//! `POST /json`, as envoyproxy/ratelimit has it.

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::body::{expect, whole};
use crate::app::App;
use crate::caller::Caller;
use crate::grpc::may;
use crate::problem::Problem;

pub(crate) async fn envoy(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let not_offered =
        || Problem::not_found("Envoy's service is not offered; the setting envoy.mapping names its limits");
    let limits = app.envoy().ok_or_else(not_offered)?;
    may(&caller)?;
    expect(request.headers(), "application/json")?;
    let body = whole(request.into_body(), app.limits()).await?;
    let (status, answer) = limits.json(&body).await;
    Ok((status, [(CONTENT_TYPE, "application/json")], answer).into_response())
}
