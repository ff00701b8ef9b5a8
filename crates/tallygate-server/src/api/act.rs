//! The ends of a charge: settled, cancelled, given back, released.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tallygate::{Charged, Recorded};
use uuid::Uuid;

use super::body::Asked;
use super::check::same;
use super::head::{By, Idempotency, role};
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

/// A charge by its transaction: in every bucket that this charged, or in one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Charge")]
pub(crate) struct Of {
    txn: Uuid,
    zone: Option<String>,
    key: Option<String>,
}

/// The cost that a reservation came to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settled {
    txn: Uuid,
    zone: Option<String>,
    key: Option<String>,
    /// The cost in the end.
    cost: i64,
}

/// A row for each bucket.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Acted {
    recorded: Vec<Recorded>,
}

/// With the transaction, for the log.
type Answer = Result<(Extension<Uuid>, Json<Acted>), Problem>;
type Asker = By<role::App>;

pub(crate) async fn settle(
    State(app): State<App>,
    caller: Asker,
    header: Idempotency,
    Asked(Settled { txn, zone, key, cost }): Asked<Settled>,
) -> Answer {
    let charged = Of { txn, zone, key }.charged(&caller, header)?;
    told(txn, app.limiter().settle(charged, cost).await)
}

pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Asker,
    header: Idempotency,
    Asked(of): Asked<Of>,
) -> Answer {
    told(of.txn, app.limiter().cancel(of.charged(&caller, header)?).await)
}

pub(crate) async fn refund(
    State(app): State<App>,
    caller: Asker,
    header: Idempotency,
    Asked(of): Asked<Of>,
) -> Answer {
    told(of.txn, app.limiter().refund(of.charged(&caller, header)?).await)
}

pub(crate) async fn release(
    State(app): State<App>,
    caller: Asker,
    header: Idempotency,
    Asked(of): Asked<Of>,
) -> Answer {
    told(of.txn, app.limiter().release(of.charged(&caller, header)?).await)
}

impl Of {
    /// The charge that the caller may have made. The header names the same transaction, if it is there.
    fn charged(self, caller: &Caller, Idempotency(header): Idempotency) -> Result<Charged, Problem> {
        same(Some(self.txn), header)?;
        let charged = Charged::by(self.txn);
        match (self.zone, self.key) {
            (Some(zone), Some(key)) => {
                caller.within(&zone)?;
                Ok(charged.in_bucket(zone, key))
            }
            (None, None) => {
                if caller.sees_all() {
                    return Ok(charged);
                }
                // It may have charged where the caller may not look.
                Err(Problem::forbidden(
                    "the token is for some zones only; name the zone and the key of the charge",
                ))
            }
            _ => Err(Problem::invalid("a bucket is a zone and a key; name both or none")),
        }
    }
}

fn told(txn: Uuid, recorded: tallygate::Result<Vec<Recorded>>) -> Answer {
    Ok((Extension(txn), Json(Acted { recorded: recorded? })))
}
