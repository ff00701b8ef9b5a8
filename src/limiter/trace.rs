//! Spans and counters, in this one place: the stores stay bare. `docs/operations.md` tells what there is.
//!
//! A check is what a caller asks, from the asking to the answer; a call is what is sent to the database and may
//! carry many checks. Keys are people's addresses and cards, so they are in no span and no label.

use std::time::{Duration, Instant};

use chrono::Utc;
use metrics::Unit;
use tracing::Instrument;

use crate::decision::{Decision, is_ahead};
use crate::engine::Request;
use crate::error::{Error, ErrorKind, Result};

/// The bounds of buckets for times, in seconds: `PrometheusBuilder::set_buckets(&SECONDS)`. An exporter that is given none tells
/// quantiles instead, which cannot be added up over processes.
pub const SECONDS: [f64; 13] =
    [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// The bounds of buckets for `tallygate_call_checks`: the checks of a call.
pub const CHECKS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

const COUNTERS: [(&str, &str); 5] = [
    ("tallygate_checks_total", "Checks that were decided, by zone, outcome and reason."),
    ("tallygate_retries_total", "Calls that were tried again after a conflict or a lost connection."),
    ("tallygate_call_errors_total", "Calls to the database that failed, by code."),
    ("tallygate_unrecorded_total", "Blocked checks answered from memory that no row stands for."),
    ("tallygate_ahead_total", "Decisions of buckets whose time is over a minute ahead of this host's clock."),
];

const HISTOGRAMS: [(&str, Unit, &str); 3] = [
    ("tallygate_check_seconds", Unit::Seconds, "From a check's asking to its answer."),
    ("tallygate_call_seconds", Unit::Seconds, "A call to the database, with as many checks as it carries."),
    ("tallygate_call_checks", Unit::Count, "Checks that a call to the database carries."),
];

/// Tells the exporter that is installed what each metric of the library is about; call it once, after that. The example is
/// in `docs/operations.md`.
pub fn describe() {
    for (name, help) in COUNTERS {
        metrics::describe_counter!(name, Unit::Count, help);
    }
    for (name, unit, help) in HISTOGRAMS {
        metrics::describe_histogram!(name, unit, help);
    }
    // A rate can be told of the first one only where there was a 0 before it.
    metrics::counter!("tallygate_retries_total").increment(0);
    metrics::counter!("tallygate_ahead_total").increment(0);
    for kind in [ErrorKind::Transient, ErrorKind::Schema, ErrorKind::Refused, ErrorKind::Database] {
        metrics::counter!("tallygate_call_errors_total", "code" => kind.as_str()).increment(0);
    }
}

/// Makes a call of `checks` inside a span.
pub(super) async fn call<T>(checks: usize, call: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let result = call.instrument(tracing::debug_span!("tallygate.call", checks)).await;
    metrics::histogram!("tallygate_call_checks").record(checks as f64);
    metrics::histogram!("tallygate_call_seconds").record(start.elapsed());
    result.inspect_err(count_error)
}

/// Counts what went wrong with a call.
pub(super) fn count_error(error: &Error) {
    metrics::counter!("tallygate_call_errors_total", "code" => error.code()).increment(1);
}

/// Counts what came of a check.
pub(super) fn decided(zone: &str, result: Result<&Decision, &Error>, took: Duration) {
    metrics::histogram!("tallygate_check_seconds").record(took);
    let (outcome, reason) = match result {
        Ok(decision) => {
            let Decision { txn_id, blocked, decided_at, .. } = decision;
            tracing::debug!(zone, %txn_id, blocked, reason = %decision.reason, "decided");
            if is_ahead(*decided_at, Utc::now()) {
                tracing::warn!(zone, %txn_id, %decided_at, "the bucket's time is still to come: a clock was ahead, or this is behind");
                metrics::counter!("tallygate_ahead_total").increment(1);
            }
            (if decision.blocked { "blocked" } else { "allowed" }, decision.reason.as_str())
        }
        Err(error) => {
            tracing::debug!(zone, %error, "not decided");
            ("error", error.code())
        }
    };
    metrics::counter!("tallygate_checks_total", "zone" => zone.to_owned(), "outcome" => outcome, "reason" => reason)
        .increment(1);
}

/// Counts what came of the checks of one call.
pub(super) fn all_decided(requests: &[Request], result: &Result<Vec<Decision>>, took: Duration) {
    for (position, request) in requests.iter().enumerate() {
        decided(&request.zone, result.as_ref().map(|decisions| &decisions[position]), took);
    }
}

pub(super) fn count_retry() {
    metrics::counter!("tallygate_retries_total").increment(1);
}

/// Counts checks that were answered from memory and could not be recorded.
pub(super) fn count_unrecorded(zone: &str, checks: u32) {
    metrics::counter!("tallygate_unrecorded_total", "zone" => zone.to_owned()).increment(checks.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_document_is_what_there_is() {
        let document = include_str!("../../docs/operations.md");
        let table = document.split("`tallygate serve` has them as well").next().unwrap_or_default();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `tallygate_"));
        let told: Vec<_> = rows.map(|row| row.split(['{', '`']).next().unwrap_or_default()).collect();
        let there = COUNTERS.map(|(name, _)| name).into_iter().chain(HISTOGRAMS.map(|(name, ..)| name));
        assert_eq!(told, there.map(|name| &name["tallygate_".len()..]).collect::<Vec<_>>());
    }
}
