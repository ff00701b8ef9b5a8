//! Checks: one, several that pass together, a look, a reservation.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tallygate::{Check, Combined, Decision};
use uuid::Uuid;

use super::body::{Asked, Object};
use super::head::{By, Idempotency, Queried, role};
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

/// `?status`: a blocked check is answered with 429, and not only in the body.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asking {
    /// With any value: a blocked check is answered with 429.
    status: Option<String>,
}

/// A decision, and whether it passes in the first place.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}Answer")]
pub(crate) struct Answer<T> {
    /// True when the transaction may pass.
    pub allowed: bool,
    #[serde(flatten)]
    pub decided: T,
}

/// The answer to a check, with the status that was asked for and the time to wait.
pub(crate) struct Told<T> {
    answer: Answer<T>,
    /// For the log.
    txn: Option<Uuid>,
    wait_us: Option<i64>,
    by_status: bool,
}

/// Several limits of one transaction.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Several {
    #[schemars(with = "Vec<Check>")]
    checks: Vec<Object<Check>>,
    txn: Option<Uuid>,
}

/// A bucket to be looked at.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Look {
    zone: String,
    key: String,
    member: Option<String>,
}

pub(crate) async fn one(
    State(app): State<App>,
    caller: By<role::App>,
    Queried(asking): Queried<Asking>,
    Idempotency(txn): Idempotency,
    Asked(check): Asked<Check>,
) -> Result<Told<Decision>, Problem> {
    let decision = app.limiter().check(named(&app, &caller, check, txn)?).await?;
    let (txn, blocked, wait_us) = (Some(decision.txn_id), decision.blocked, wait_us(&decision));
    Ok(told(&asking, txn, blocked, wait_us, decision))
}

/// A check that holds for a time.
pub(crate) async fn reserve(
    app: State<App>,
    caller: By<role::App>,
    asking: Queried<Asking>,
    txn: Idempotency,
    Asked(check): Asked<Check>,
) -> Result<Told<Decision>, Problem> {
    ttl_of(&check)?;
    one(app, caller, asking, txn, Asked(check)).await
}

/// The time for which a reservation holds.
pub(super) fn ttl_of(check: &Check) -> Result<Duration, Problem> {
    let missing = || Problem::invalid("a reservation needs ttl_us: for how many microseconds it holds");
    check.ttl().ok_or_else(missing)
}

pub(crate) async fn peek(
    State(app): State<App>,
    caller: By<role::App>,
    Asked(Look { zone, key, member }): Asked<Look>,
) -> Result<Json<Answer<Decision>>, Problem> {
    let check = member.into_iter().fold(Check::new(zone, key).cost(0), Check::member);
    let decision = app.limiter().check(named(&app, &caller, check, None)?).await?;
    Ok(Json(Answer { allowed: decision.is_allowed(), decided: decision }))
}

pub(crate) async fn all(
    State(app): State<App>,
    caller: By<role::App>,
    Queried(asking): Queried<Asking>,
    Idempotency(header): Idempotency,
    Asked(Several { checks, txn }): Asked<Several>,
) -> Result<Told<Combined>, Problem> {
    if checks.is_empty() {
        return Err(Problem::invalid("checks is empty: without a limit everything would pass; name one"));
    }
    let txn = same(txn, header)?;
    let checks =
        checks.into_iter().map(|Object(check)| named(&app, &caller, check, txn)).collect::<Result<_, _>>()?;
    let combined = app.limiter().check_all(checks).await?;
    let first = combined.decisions.first();
    let (txn, wait_us) = (first.map(|decision| decision.txn_id), combined.retry_after_us);
    let wait_us = wait_us.filter(|_| first.is_some_and(|decision| !decision.replayed));
    Ok(told(&asking, txn, combined.blocked, wait_us, combined))
}

/// The time until a new attempt may pass. The wait of a decision that is told again was true when it was made.
pub(super) fn wait_us(decision: &Decision) -> Option<i64> {
    decision.retry_after_us.filter(|_| !decision.replayed)
}

/// A check that its caller may ask, under the transaction that was named.
pub(crate) fn named(app: &App, caller: &Caller, check: Check, txn: Option<Uuid>) -> Result<Check, Problem> {
    caller.within(check.zone())?;
    let most_s = app.limits().deadline_s;
    if let Some(patience) = check.patience()
        && (patience.is_zero() || patience > Duration::from_secs(most_s))
    {
        return Err(Problem::invalid(format!(
            "deadline_us is out of range; use 1 to the {most_s} s of limits.deadline_s, and ask again with the same Idempotency-Key"
        )));
    }
    check.claimed_band().map_or(Ok(()), |band| caller.may_claim(band))?;
    let txn = same(check.txn_id(), txn)?;
    Ok(txn.into_iter().fold(check, Check::txn))
}

pub(super) fn same(named: Option<Uuid>, header: Option<Uuid>) -> Result<Option<Uuid>, Problem> {
    match (named, header) {
        (Some(named), Some(header)) if named != header => {
            Err(Problem::invalid("txn and Idempotency-Key name two transactions; send one of them"))
        }
        (named, header) => Ok(named.or(header)),
    }
}

pub(super) fn told<T>(
    asking: &Asking,
    txn: Option<Uuid>,
    blocked: bool,
    wait_us: Option<i64>,
    decided: T,
) -> Told<T> {
    Told { answer: Answer { allowed: !blocked, decided }, txn, wait_us, by_status: asking.status.is_some() }
}

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response {
        let blocked = !self.answer.allowed;
        let mut response = Json(self.answer).into_response();
        if blocked && self.by_status {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        if let Some(txn) = self.txn {
            response.extensions_mut().insert(txn);
        }
        if let Some(us) = self.wait_us.filter(|_| blocked) {
            // Not before it passes: rounded up.
            let seconds = us / 1_000_000 + i64::from(us % 1_000_000 > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}
