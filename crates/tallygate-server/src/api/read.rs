//! The ledger: what was decided, why, and how buckets stand.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tallygate::audit::explain::Explained;
use tallygate::audit::{Bucket, Standing};
use tallygate::ledger::{Entry, History};
use uuid::Uuid;

use super::head::{By, InBucket, Named, Queried, There, Transaction, role};
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

/// Charges that an explanation lists, if it is not said.
const CHARGES: usize = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    zone: Option<String>,
    key: Option<String>,
    txn: Option<Uuid>,
    blocked: Option<bool>,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    /// Rows of a page, at most.
    limit: Option<u32>,
    /// The last page's `next`.
    before: Option<String>,
}

/// A page of rows, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Rows {
    rows: Vec<Entry>,
    /// The value of `before` for the next page; null when this was the last.
    next: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The number of the charges that counted that are listed.
    charges: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    key: String,
}

/// The buckets of a key, by zone.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Buckets {
    buckets: Vec<Bucket>,
}

type Auditor = By<role::Auditor>;

pub(crate) async fn history(
    State(app): State<App>,
    caller: Auditor,
    Queried(asked): Queried<Asked>,
) -> Result<Json<Rows>, Problem> {
    let Asked { zone, key, txn, blocked, since, until, limit, before } = asked;
    if let Some(zone) = &zone {
        caller.within(zone)?;
    }
    let mut history = History::default();
    (history.zone, history.key, history.txn, history.blocked) = (zone, key, txn, blocked);
    (history.since, history.until) = (since, until);
    history.limit = limit.unwrap_or(history.limit);
    history.before = before.map(|before| before.parse()).transpose()?;
    rows(&app, &caller, &history).await
}

pub(crate) async fn transaction(
    State(app): State<App>,
    caller: Auditor,
    Named(Transaction { txn }): Named<Transaction>,
) -> Result<Json<Rows>, Problem> {
    let history = History::default().txn(txn).limit(10_000);
    let rows = rows(&app, &caller, &history).await?;
    if rows.rows.is_empty() {
        return Err(Problem::not_found("no row of the ledger has this transaction"));
    }
    Ok(rows)
}

async fn rows(app: &App, caller: &Caller, history: &History) -> Result<Json<Rows>, Problem> {
    let page = app.auditor().history(history).await.map_err(Problem::of_read)?;
    // A page may get shorter so, and still be followed by another.
    let rows = page.rows.into_iter().filter(|row| caller.sees(&row.zone)).collect();
    Ok(Json(Rows { rows, next: page.next.map(|next| next.to_string()) }))
}

pub(crate) async fn explanation(
    State(app): State<App>,
    caller: Auditor,
    Named(Transaction { txn }): Named<Transaction>,
    Queried(wanted): Queried<Wanted>,
) -> Result<Json<Explained>, Problem> {
    // Looked at first: an explanation reads whole buckets.
    let known = app.auditor().history(&History::default().txn(txn).limit(10_000)).await?;
    if !known.rows.iter().any(|row| caller.sees(&row.zone)) {
        return Err(Problem::not_found("no row of the ledger has this transaction"));
    }
    let mut explained = app.auditor().explain(txn, wanted.charges.unwrap_or(CHARGES).min(10_000)).await?;
    explained.rows.retain(|row| caller.sees(&row.row.zone));
    explained.binding = explained.binding.filter(|binding| caller.sees(&binding.zone));
    Ok(Json(explained))
}

pub(crate) async fn find(
    State(app): State<App>,
    caller: Auditor,
    Queried(Key { key }): Queried<Key>,
) -> Result<Json<Buckets>, Problem> {
    let mut buckets = app.auditor().find(&key).await?;
    buckets.retain(|bucket| caller.sees(&bucket.zone));
    Ok(Json(Buckets { buckets }))
}

pub(crate) async fn bucket(
    State(app): State<App>,
    There { place: InBucket { zone, key }, .. }: There<role::Auditor, InBucket>,
) -> Result<Json<Standing>, Problem> {
    let standing = app.auditor().bucket(&zone, &key).await.map_err(Problem::of_read)?;
    standing
        .map(Json)
        .ok_or_else(|| Problem::not_found("nobody was ever checked under this key in this zone"))
}
