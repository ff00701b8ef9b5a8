//! Spans and counters, in this one place: the stores stay bare.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `tallygate_checks_total` | counter | `zone`, `outcome`: allowed, blocked or error, `reason`: the decision's, or the code of the error |
//! | `tallygate_retries_total` | counter | |
//! | `tallygate_check_seconds` | histogram | |
//! | `tallygate_unrecorded_total` | counter | `zone` |
//! | `tallygate_call_checks` | histogram | |
//! | `tallygate_call_seconds` | histogram | |
//! | `tallygate_call_errors_total` | counter | `code` |
//!
//! A check is what a caller asks, from the asking to the answer; a call is what is sent to the database and may
//! carry many checks. Keys are people's addresses and cards, so they are in no span and no label.

use std::time::{Duration, Instant};

use tracing::Instrument;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::Request;

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
            tracing::debug!(zone, txn_id = %decision.txn_id, blocked = decision.blocked, reason = %decision.reason, "decided");
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
