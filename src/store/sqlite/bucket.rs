//! What a decision reads of a bucket, and what it writes.

use sqlx::{Row, SqliteConnection};

use super::error;
use crate::decide::{Head, Outcome, Probe, Version, Window};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::store::Request;
use crate::zone::Policy;

pub(super) async fn load_head(connection: &mut SqliteConnection, request: &Request) -> Result<Head> {
    let row = sqlx::query(include_str!("head.sql"))
        .bind(request.zone_id)
        .bind(&request.key)
        .fetch_optional(connection)
        .await
        .map_err(error)?;
    let Some(row) = row else { return Ok(Head::default()) };
    Ok(Head {
        seq: get!(row, "seq"),
        last_us: get!(row, "last_at"),
        spent_total: get!(row, "spent_total"),
        level: get!(row, "level"),
        zone_version: get!(row, "zone_version"),
    })
}

pub(super) async fn load_versions(
    connection: &mut SqliteConnection,
    request: &Request,
    head: &Head,
) -> Result<Vec<Version>> {
    let rows = sqlx::query(include_str!("versions.sql"))
        .bind(request.zone_id)
        .bind((head.seq > 0).then_some(head.zone_version))
        .fetch_all(connection)
        .await
        .map_err(error)?;
    rows.iter()
        .map(|row| {
            Ok(Version {
                version: get!(row, "version"),
                policy: policy!(row),
                changed_us: get!(row, "changed_at"),
            })
        })
        .collect()
}

/// The decision that this transaction had before, if it had one.
pub(super) async fn load_past(
    connection: &mut SqliteConnection,
    request: &Request,
) -> Result<Option<Decision>> {
    let row = sqlx::query(include_str!("past.sql"))
        .bind(request.zone_id)
        .bind(&request.key)
        .bind(request.txn)
        .fetch_optional(connection)
        .await
        .map_err(error)?;
    let Some(row) = &row else { return Ok(None) };
    let cost: i64 = get!(row, "cost");
    if cost != request.cost {
        return Err(Error::conflict(format!(
            "transaction {} was decided with cost {cost}, not {}; use a new id",
            request.txn, request.cost
        )));
    }
    super::decision(row, request).map(Some)
}

pub(super) async fn load_window(
    connection: &mut SqliteConnection,
    request: &Request,
    probe: Probe,
) -> Result<Window> {
    let row = sqlx::query(include_str!("window.sql"))
        .bind(request.zone_id)
        .bind(&request.key)
        .bind(probe.after_us)
        .bind(probe.total)
        .fetch_one(connection)
        .await
        .map_err(error)?;
    let base: Option<i64> = get!(row, "base");
    let base = base.ok_or_else(|| {
        Error::database(format!(
            "the ledger of a bucket in zone {} lacks rows of its window; it was changed from outside",
            request.zone_id
        ))
    })?;
    Ok(Window { base, reached_us: get!(row, "reached_at") })
}

pub(super) async fn append(
    connection: &mut SqliteConnection,
    request: &Request,
    before: &Head,
    outcome: &Outcome,
) -> Result<()> {
    let head = &outcome.head;
    sqlx::query(include_str!("append.sql"))
        .bind(request.txn)
        .bind(request.zone_id)
        .bind(head.zone_version)
        .bind(&request.key)
        .bind(head.seq)
        .bind(outcome.blocked)
        .bind(outcome.reason.as_str())
        .bind(request.cost)
        .bind(outcome.spent)
        .bind(head.spent_total)
        .bind(outcome.remaining)
        .bind(outcome.retry_after_us)
        .bind(head.level)
        .bind(head.last_us)
        .bind((before.seq > 0).then_some(before.last_us))
        .execute(connection)
        .await
        .map_err(error)?;
    Ok(())
}
