//! What becomes of a charge: settled, cancelled, given back, released.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tallygate::{Charged, Recorded};
use uuid::Uuid;

use super::body::Asked;
use crate::app::App;
use crate::caller::{Caller, Right};
use crate::problem::Problem;

/// A charge by its transaction: in every bucket that this charged, or in one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    txn: Uuid,
    zone: Option<String>,
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settled {
    txn: Uuid,
    zone: Option<String>,
    key: Option<String>,
    /// What it was in the end.
    cost: i64,
}

/// A row for each bucket.
#[derive(Serialize)]
pub(crate) struct Acted {
    recorded: Vec<Recorded>,
}

type Answer = Result<Json<Acted>, Problem>;

pub(crate) async fn settle(
    State(app): State<App>,
    caller: Caller,
    Asked { what, .. }: Asked<Settled>,
) -> Answer {
    let Settled { txn, zone, key, cost } = what;
    let charged = Of { txn, zone, key }.charged(&caller)?;
    told(app.limiter().settle(charged, cost).await)
}

pub(crate) async fn cancel(State(app): State<App>, caller: Caller, Asked { what, .. }: Asked<Of>) -> Answer {
    told(app.limiter().cancel(what.charged(&caller)?).await)
}

pub(crate) async fn refund(State(app): State<App>, caller: Caller, Asked { what, .. }: Asked<Of>) -> Answer {
    told(app.limiter().refund(what.charged(&caller)?).await)
}

pub(crate) async fn release(State(app): State<App>, caller: Caller, Asked { what, .. }: Asked<Of>) -> Answer {
    told(app.limiter().release(what.charged(&caller)?).await)
}

impl Of {
    fn charged(self, caller: &Caller) -> Result<Charged, Problem> {
        let charged = Charged::by(self.txn);
        match (self.zone, self.key) {
            (Some(zone), Some(key)) => {
                caller.may(Right::App, &zone)?;
                Ok(charged.in_bucket(zone, key))
            }
            (None, None) => {
                caller.must(Right::App)?;
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

fn told(recorded: tallygate::Result<Vec<Recorded>>) -> Answer {
    Ok(Json(Acted { recorded: recorded? }))
}
