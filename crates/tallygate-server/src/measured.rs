//! What is counted of requests, and a line of the log for each. Keys are in neither: a path is told by its route.

use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::Failure;

const SECONDS: [f64; 13] = [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
const CHECKS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// One for the process: what counts knows nothing of servers.
static RECORDER: RwLock<Option<PrometheusHandle>> = RwLock::new(None);
static DESCRIBED: OnceLock<()> = OnceLock::new();

/// Counts from now on.
pub(crate) fn recorder() -> Result<PrometheusHandle, Failure> {
    let mut recorder = RECORDER.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*recorder {
        return Ok(handle.clone());
    }
    let failed = |error: String| Failure::new(format!("what the server counts cannot be collected: {error}"));
    let handle = PrometheusBuilder::new()
        .set_buckets(&SECONDS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Full("tallygate_call_checks".to_owned()), &CHECKS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| failed(error.to_string()))?;
    DESCRIBED.get_or_init(describe);
    Ok(recorder.insert(handle).clone())
}

fn describe() {
    use metrics::{Unit, describe_counter, describe_histogram};
    describe_counter!("tallygate_checks_total", "Checks that were decided, by zone and outcome.");
    describe_counter!(
        "tallygate_retries_total",
        "Calls that were tried again after a conflict or a lost connection."
    );
    describe_counter!(
        "tallygate_unrecorded_total",
        "Blocked checks answered from memory that no row stands for."
    );
    describe_histogram!("tallygate_check_seconds", Unit::Seconds, "From a check's asking to its answer.");
    describe_histogram!(
        "tallygate_call_seconds",
        Unit::Seconds,
        "A call to the database, with as many checks as it carries."
    );
    describe_histogram!("tallygate_call_checks", "Checks that a call to the database carries.");
    describe_counter!("tallygate_requests_total", "Requests over HTTP, by route, method and status.");
    describe_histogram!(
        "tallygate_request_seconds",
        Unit::Seconds,
        "From the head of a request to the head of its answer."
    );
}

pub(crate) async fn measure(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = request.method().as_str().to_owned();
    // Any word may be a method.
    let method = if ["GET", "HEAD", "POST", "PUT", "DELETE"].contains(&&*method) {
        method
    } else {
        "other".to_owned()
    };
    let response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), began.elapsed());
    tracing::info!(method, route, status, us = took.as_micros() as u64, "request");
    metrics::histogram!("tallygate_request_seconds").record(took);
    metrics::counter!("tallygate_requests_total", "route" => route, "method" => method, "status" => status.to_string())
        .increment(1);
    response
}
