//! Checks: one, several that pass together, a look, a reservation.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tallygate::{Check, Combined};
use uuid::Uuid;

use super::body::Asked;
use crate::app::App;
use crate::caller::{Caller, Right};
use crate::problem::Problem;

/// `?status`: a blocked check is answered with 429, and not only in the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asking {
    status: Option<String>,
}

/// A decision, and whether it passes in the first place.
#[derive(Serialize)]
pub(crate) struct Answer<T> {
    pub allowed: bool,
    #[serde(flatten)]
    pub decided: T,
}

/// Several limits of one transaction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Several {
    checks: Vec<Check>,
    txn: Option<Uuid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Look {
    zone: String,
    key: String,
    member: Option<String>,
}

pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller,
    Query(asking): Query<Asking>,
    Asked { what, txn }: Asked<Check>,
) -> Result<Response, Problem> {
    let decision = app.limiter().check(named(&caller, what, txn)?).await?;
    let (blocked, wait_us) = (decision.blocked, decision.retry_after_us);
    Ok(answer(&asking, blocked, wait_us, decision))
}

/// A check that holds for a time.
pub(crate) async fn reserve(
    app: State<App>,
    caller: Caller,
    asking: Query<Asking>,
    asked: Asked<Check>,
) -> Result<Response, Problem> {
    if asked.what.ttl().is_none() {
        return Err(Problem::invalid("a reservation needs ttl_us: for how many microseconds it holds"));
    }
    one(app, caller, asking, asked).await
}

pub(crate) async fn peek(
    State(app): State<App>,
    caller: Caller,
    Asked { what: Look { zone, key, member }, .. }: Asked<Look>,
) -> Result<Response, Problem> {
    let check = member.into_iter().fold(Check::new(zone, key).cost(0), Check::member);
    let decision = app.limiter().check(named(&caller, check, None)?).await?;
    Ok(Json(Answer { allowed: decision.is_allowed(), decided: decision }).into_response())
}

pub(crate) async fn all(
    State(app): State<App>,
    caller: Caller,
    Query(asking): Query<Asking>,
    Asked { what, txn }: Asked<Several>,
) -> Result<Response, Problem> {
    if what.checks.is_empty() {
        return Err(Problem::invalid("checks is empty: without a limit everything would pass; name one"));
    }
    let txn = same(what.txn, txn)?;
    let checks = what.checks.into_iter().map(|check| named(&caller, check, txn)).collect::<Result<_, _>>()?;
    let combined: Combined = app.limiter().check_all(checks).await?;
    let (blocked, wait_us) = (combined.blocked, combined.retry_after_us);
    Ok(answer(&asking, blocked, wait_us, combined))
}

/// A check that its caller may ask, under the transaction that was named.
pub(crate) fn named(caller: &Caller, check: Check, txn: Option<Uuid>) -> Result<Check, Problem> {
    caller.may(Right::App, check.zone())?;
    let txn = same(check.txn_id(), txn)?;
    Ok(txn.into_iter().fold(check, Check::txn))
}

fn same(named: Option<Uuid>, header: Option<Uuid>) -> Result<Option<Uuid>, Problem> {
    match (named, header) {
        (Some(named), Some(header)) if named != header => {
            Err(Problem::invalid("txn and Idempotency-Key name two transactions; send one of them"))
        }
        (named, header) => Ok(named.or(header)),
    }
}

fn answer<T: Serialize>(asking: &Asking, blocked: bool, wait_us: Option<i64>, decided: T) -> Response {
    let mut response = Json(Answer { allowed: !blocked, decided }).into_response();
    if blocked && asking.status.is_some() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    if let Some(us) = wait_us.filter(|_| blocked) {
        // Not before it passes: rounded up.
        let seconds = us / 1_000_000 + i64::from(us % 1_000_000 > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}
