//! The explanations of the transactions that a page names.

use tallygate::Limiter;
use tallygate::audit::report::{Explanation, Report};

use super::super::words::Words;
use crate::cli::Result;
use crate::cli::clock::Clock;
use crate::cli::output::plain;
use tallygate::page::second;

/// Explains the first of them. One that cannot be explained says why.
pub async fn explanations(limiter: &Limiter, report: &Report, most: usize) -> Result<Vec<Explanation>> {
    let mut explanations = Vec::new();
    for txn_id in report.transactions().into_iter().take(most) {
        let rows = match limiter.auditor().explain(txn_id, 0).await {
            Ok(explained) => explained
                .rows
                .iter()
                .map(|row| {
                    let told = &row.row;
                    let kind = match (row.is_check(), told.blocked) {
                        (false, _) => told.kind.as_str().replace('_', " "),
                        (true, true) => "blocked".to_owned(),
                        (true, false) => "allowed".to_owned(),
                    };
                    let (zone, key, at) = (plain(&told.zone), plain(&told.key), second(told.decided_at));
                    (
                        format!("{zone} / {key}: {kind} at {at}, row {}", told.seq),
                        Words { all: &explained, clock: Clock::UTC }.sentences(row),
                    )
                })
                .collect(),
            Err(error) => vec![("It could not be explained.".to_owned(), vec![error.to_string()])],
        };
        explanations.push(Explanation { txn_id, rows });
    }
    Ok(explanations)
}
