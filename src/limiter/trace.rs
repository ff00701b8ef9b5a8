//! Spans and counters, in this one place: the stores stay bare.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `tallygate_checks_total` | counter | `zone`, `outcome`: allowed, blocked or error |
//! | `tallygate_retries_total` | counter | |
//! | `tallygate_check_seconds` | histogram | |
//!
//! Keys are people's addresses and cards, so they are in no span and no label.

use std::time::Instant;

use tracing::Instrument;

use crate::decision::Decision;
use crate::error::Result;
use crate::store::Request;

/// Runs `work` on the requests inside a span and counts what came of it.
pub(super) async fn observe(
    requests: &[Request],
    work: impl Future<Output = Result<Vec<Decision>>>,
) -> Result<Vec<Decision>> {
    let zone = requests.first().map_or("", |request| request.zone.as_str());
    let span = tracing::debug_span!("tallygate.check", zone, checks = requests.len());
    let start = Instant::now();
    let result = work.instrument(span.clone()).await;
    metrics::histogram!("tallygate_check_seconds").record(start.elapsed());
    let _in_span = span.enter();
    match &result {
        Ok(decisions) => {
            for decision in decisions {
                tracing::debug!(txn_id = %decision.txn_id, blocked = decision.blocked, reason = %decision.reason, "decided");
                count(&decision.zone, if decision.blocked { "blocked" } else { "allowed" });
            }
        }
        Err(error) => {
            tracing::debug!(%error, "not decided");
            requests.iter().for_each(|request| count(&request.zone, "error"));
        }
    }
    result
}

pub(super) fn count_retry() {
    metrics::counter!("tallygate_retries_total").increment(1);
}

fn count(zone: &str, outcome: &'static str) {
    metrics::counter!("tallygate_checks_total", "zone" => zone.to_owned(), "outcome" => outcome).increment(1);
}
