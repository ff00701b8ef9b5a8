//! Costs that are predicted.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use tallygate::{Check, Predicted, Prediction};

use super::body::{Asked, Object};
use super::check::{Asking, Told, named, ttl_of, wait_us};
use super::head::{By, Idempotency, Queried, role};
use crate::app::App;
use crate::problem::Problem;

/// A reservation of what requests of its shape cost lately.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shaped {
    /// The word for requests that are alike in cost, such as route and size class: 1 to 64 bytes.
    shape: String,
    /// With `ttl_us`; its cost is reserved where nothing is known of the shape.
    #[schemars(with = "Check")]
    check: Object<Check>,
}

/// A shape of requests in a bucket.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Look {
    zone: String,
    key: String,
    shape: String,
}

pub(crate) async fn reserve(
    State(app): State<App>,
    caller: By<role::App>,
    Queried(asking): Queried<Asking>,
    Idempotency(txn): Idempotency,
    Asked(Shaped { shape, check: Object(check) }): Asked<Shaped>,
) -> Result<Told<Predicted>, Problem> {
    let ttl = ttl_of(&check)?;
    let told = app.limiter().reserve_predicted(named(&app, &caller, check, txn)?, ttl, &shape).await?;
    let decision = &told.decision;
    let (txn, blocked, wait_us) = (Some(decision.txn_id), decision.blocked, wait_us(decision));
    Ok(super::check::told(&asking, txn, blocked, wait_us, told))
}

pub(crate) async fn look(
    State(app): State<App>,
    caller: By<role::App>,
    Asked(Look { zone, key, shape }): Asked<Look>,
) -> Result<Json<Prediction>, Problem> {
    caller.within(&zone)?;
    Ok(Json(app.limiter().predict(&zone, &key, &shape).await?))
}
