//! Counts of requests, checks and the database, and a line of the log for each request. Keys are in neither: a path is
//! told by its route.

use std::convert::Infallible;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use chrono::{DateTime, Utc};
use metrics::{Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tallygate::Limiter;
use tallygate::audit::Auditor;
use tallygate::metrics::{CHECKS, SECONDS, describe};
use tracing::Instrument;
use uuid::Uuid;

use crate::Failure;
use crate::traceparent::Parent;

/// The time between two times that measurements are taken into their buckets. Where nobody scrapes it would
/// grow without bound.
const TAKEN_IN: Duration = Duration::from_secs(5);
/// The number of these times until the database is asked how upkeep stands. No scrape waits for it.
const UPKEEP_EVERY: u32 = 12;

type Describe = fn(&'static str, Unit, &'static str);

const COUNTER: Describe = |name, unit, help| metrics::describe_counter!(name, unit, help);
const GAUGE: Describe = |name, unit, help| metrics::describe_gauge!(name, unit, help);
const HISTOGRAM: Describe = |name, unit, help| metrics::describe_histogram!(name, unit, help);

/// Those beside the library's. The table of docs/operations.md has the same, with their labels.
const METRICS: [(Describe, &str, Unit, &str); 9] = [
    (COUNTER, "tallygate_requests_total", Unit::Count, "Requests, by route, method and status of HTTP."),
    (
        HISTOGRAM,
        "tallygate_request_seconds",
        Unit::Seconds,
        "From the head of a request to the head of its answer, by route.",
    ),
    (GAUGE, "tallygate_connections", Unit::Count, "Connections to the database, by role and state."),
    (GAUGE, "tallygate_connections_limit", Unit::Count, "Connections to the database at most, by role."),
    (GAUGE, "tallygate_checks_waiting", Unit::Count, "Checks that wait for a call to the database."),
    (
        GAUGE,
        "tallygate_journal_bytes",
        Unit::Bytes,
        "What passed while the database did not answer and is not in the ledger yet.",
    ),
    (GAUGE, "tallygate_journal_limit_bytes", Unit::Bytes, "What the journal has room for."),
    (
        GAUGE,
        "tallygate_maintain_finished_timestamp_seconds",
        Unit::Seconds,
        "When tallygate maintain last came to its end; 0: never, NaN: not known.",
    ),
    (
        GAUGE,
        "tallygate_partitions_until_timestamp_seconds",
        Unit::Seconds,
        "Up to when the ledger has partitions; NaN: not known, or there are none.",
    ),
];

/// One for the process: what counts knows nothing of servers.
static RECORDER: RwLock<Option<PrometheusHandle>> = RwLock::new(None);
static BEGUN: OnceLock<()> = OnceLock::new();

/// The counts, those of the process, and those of a server's own connections.
pub(crate) struct Measured {
    handle: PrometheusHandle,
    app: Limiter,
    /// Each role that has connections of its own.
    roles: Vec<(&'static str, Limiter)>,
}

impl Measured {
    /// Counts from now on.
    pub fn begin(
        app: Limiter,
        others: impl IntoIterator<Item = (&'static str, Limiter)>,
    ) -> Result<Self, Failure> {
        let roles = [("app", app.clone())].into_iter().chain(others).collect();
        Ok(Self { handle: recorder()?, app, roles })
    }

    /// Everything, as Prometheus reads it. Asks no database.
    pub fn render(&self) -> String {
        for (role, limiter) in &self.roles {
            let load = limiter.load();
            gauge!("tallygate_connections", "role" => *role, "state" => "in_use")
                .set(load.connections_in_use);
            gauge!("tallygate_connections", "role" => *role, "state" => "idle").set(load.connections_idle);
            gauge!("tallygate_connections_limit", "role" => *role).set(load.connections_most);
        }
        let load = self.app.load();
        gauge!("tallygate_checks_waiting").set(load.checks_waiting as f64);
        if let (Some(bytes), Some(most)) = (load.journal_bytes, load.journal_most_bytes) {
            gauge!("tallygate_journal_bytes").set(bytes as f64);
            gauge!("tallygate_journal_limit_bytes").set(most as f64);
        }
        self.handle.run_upkeep();
        self.handle.render()
    }

    /// Looks from time to time at what only an auditor of the database sees.
    pub async fn watch(&self, auditor: Auditor) -> Infallible {
        loop {
            let (finished, until) = match auditor.maintenance().await {
                Ok(found) => {
                    (found.finished_at.map_or(0.0, seconds), found.partitions_until.map_or(f64::NAN, seconds))
                }
                Err(error) => {
                    tracing::debug!(code = error.code(), %error, "how upkeep stands cannot be read");
                    (f64::NAN, f64::NAN)
                }
            };
            gauge!("tallygate_maintain_finished_timestamp_seconds").set(finished);
            gauge!("tallygate_partitions_until_timestamp_seconds").set(until);
            for _ in 0..UPKEEP_EVERY {
                tokio::time::sleep(TAKEN_IN).await;
                self.handle.run_upkeep();
            }
        }
    }
}

fn seconds(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1_000.0
}

fn recorder() -> Result<PrometheusHandle, Failure> {
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
    BEGUN.get_or_init(|| {
        METRICS.iter().for_each(|(of, name, unit, help)| of(name, *unit, help));
        describe();
    });
    Ok(recorder.insert(handle).clone())
}

/// Counts a request and writes its line, with the transaction that was decided, which its answer has as an extension.
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
    // Of a level that the faults told in it have too.
    let parent = Parent::of(request.headers());
    let span = tracing::error_span!("request", trace_id = parent.map(Parent::trace));
    #[cfg(feature = "otlp")]
    parent.into_iter().for_each(|parent| parent.adopt(&span));
    async {
        let response = next.run(request).await;
        let (status, took) = (response.status().as_u16(), began.elapsed());
        let txn = response.extensions().get::<Uuid>().map(tracing::field::display);
        tracing::info!(method, route, status, us = took.as_micros() as u64, txn, "request");
        histogram!("tallygate_request_seconds", "route" => route.clone()).record(took);
        counter!("tallygate_requests_total", "route" => route, "method" => method, "status" => status.to_string())
            .increment(1);
        response
    }
    .instrument(span)
    .await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_of_the_document_is_what_there_is() {
        let document = include_str!("../../../docs/operations.md");
        let (_, document) = document.split_once("`tallygate serve` has them as well").unwrap();
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `tallygate_"));
        let told: Vec<_> =
            rows.map(|row| format!("tallygate_{}", row.split(['{', '`']).next().unwrap())).collect();
        let there: Vec<_> = METRICS.iter().map(|(_, name, ..)| *name).collect();
        assert_eq!(told, there);
        assert_eq!(there.iter().collect::<BTreeSet<_>>().len(), there.len());
    }
}
