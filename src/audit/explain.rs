//! The explanation of a transaction: why it was decided as it was.
//!
//! Each bucket that it touched is replayed from its first row, in pages of keyset reads: so what is said holds, bans and
//! overrides included, and costs a few microseconds for each row before it. Memory holds what the longest window does.

mod bars;
mod bucket;
mod counted;
mod explained;
mod finding;
mod shares;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Auditor;
use super::replay::Replay;
use crate::decide::{Exception, Head, Need};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::store::{Bucket, StoredHead};
use crate::zone::ZoneVersion;

pub use explained::{
    Bar, Binding, BlockedCheck, Carry, Cause, Counted, CountedCharge, Explained, ExplainedRow, Fade, Leased,
    Level, OtherLease, Queued, Taught,
};

/// A bucket on its way to the rows that are explained.
struct Explaining<'s> {
    auditor: &'s Auditor,
    bucket: Bucket,
    zone: String,
    versions: Vec<ZoneVersion>,
    overrides: Vec<Exception>,
    replay: Replay,
    /// The last row that was dropped.
    dropped: Option<StoredHead>,
    /// The number of charges to list.
    charges: usize,
    /// The last ban, and the last override.
    ban: Option<Bar>,
    own: Option<Bar>,
    /// The head before the last row.
    head_before: Head,
}

/// Rows that are read at a time.
const PAGE: u32 = 2_000;

/// Explains the transaction, in every database that knows it.
pub(crate) async fn explain_all(auditor: &Auditor, txn: Uuid, charges: usize) -> Result<Explained> {
    let mut known: Option<Explained> = None;
    let mut unknown = None;
    for one in auditor.each() {
        match (explain(one, txn, charges).await, &mut known) {
            // A bucket that was moved has its rows in both databases.
            (Ok(mut more), Some(known)) => {
                let place = |row: &ExplainedRow| (row.row.zone.clone(), row.row.key.clone(), row.row.seq);
                more.rows.retain(|row| known.rows.iter().all(|known| place(known) != place(row)));
                known.rows.extend(more.rows);
            }
            (Ok(first), known) => *known = Some(first),
            (Err(error), _) if error.is_invalid() => unknown = Some(error),
            (Err(error), _) => return Err(error),
        }
    }
    let missing = || unknown.unwrap_or_else(|| Error::database("there is no database to ask"));
    let known = known.ok_or_else(missing)?;
    Ok(Explained { binding: binding(&known.rows), ..known })
}

async fn explain(auditor: &Auditor, txn: Uuid, charges: usize) -> Result<Explained> {
    let mut wanted = auditor.read(|store| store.ledger_txn(txn)).await?.into_iter().peekable();
    if wanted.peek().is_none() {
        return Err(Error::invalid(format!(
            "transaction {txn} is not in the ledger; look for it with: tallygate history --key KEY"
        )));
    }
    let mut rows = Vec::new();
    while let Some((bucket, first)) = wanted.next() {
        let mut of_bucket = vec![first];
        while let Some((_, row)) = wanted.next_if(|(other, _)| *other == bucket) {
            of_bucket.push(row);
        }
        rows.extend(Explaining::new(auditor, bucket, charges).await?.explain(of_bucket).await?);
    }
    Ok(Explained { txn_id: txn, binding: binding(&rows), rows })
}

/// The limit with the longest wait; one that can never pass waits the longest.
fn binding(rows: &[ExplainedRow]) -> Option<Binding> {
    let blocking = rows.iter().filter(|row| row.row.blocked && row.row.reason != Reason::HeldBack);
    let longest = blocking.max_by_key(|row| row.row.retry_after_us.unwrap_or(i64::MAX))?;
    Some(Binding { zone: longest.row.zone.clone(), key: longest.row.key.clone() })
}

fn failed(need: Need) -> Error {
    match need {
        Need::Failed(error) => error,
        _ => Error::database("the ledger lacks rows of the window; it was changed from outside"),
    }
}

pub(super) fn time(us: i64) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(us)
        .ok_or_else(|| Error::database(format!("{us} µs is no time that the calendar knows")))
}
