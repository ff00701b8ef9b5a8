//! Leases of capacity.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use tallygate::capacity::{Lease, Want};
use uuid::Uuid;

use super::body::Asked;
use super::check::same;
use super::head::{By, Idempotency, role};
use crate::app::App;
use crate::problem::Problem;

/// The claim of a client on a resource.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// A zone of capacity.
    zone: String,
    /// The resource: a bucket of it.
    resource: String,
    /// The client of the token that asks, known as `TOKEN/CLIENT`; the token itself, if nothing is said.
    client: Option<String>,
    /// Units, 0 to 2^40; with 0 the lease is given back.
    wants: i64,
    /// For how many the client stands: 1, if nothing is said, to 1,000,000.
    #[serde(default = "one")]
    weight: i32,
    /// The importance: 0, the most, to 255; if nothing is said, the most important that the caller may claim.
    band: Option<u8>,
    /// Only if this `seq` is that of the client's last lease.
    after: Option<i64>,
    txn: Option<Uuid>,
}

fn one() -> i32 {
    1
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: By<role::App>,
    Idempotency(header): Idempotency,
    Asked(wanted): Asked<Wanted>,
) -> Result<Json<Lease>, Problem> {
    caller.within(&wanted.zone)?;
    let Wanted { zone, resource, client, wants, weight, band, after, txn } = wanted;
    let client = caller.of(client)?;
    let band = band.unwrap_or_else(|| caller.band());
    caller.may_claim(band)?;
    let want = Want::new(zone, resource, client, wants).weight(weight).band(band);
    let want = after.into_iter().fold(want, Want::follows);
    let want = same(txn, header)?.into_iter().fold(want, Want::txn);
    Ok(Json(app.limiter().leases().get(want).await?))
}
