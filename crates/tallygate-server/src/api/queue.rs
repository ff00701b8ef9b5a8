//! Queues: what is offered, taken and worked off.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tallygate::queue::{Item, Noted, Offer, Offered, Payload, Receipt, Size, Take, Taken};
use uuid::Uuid;

use super::body::Asked;
use super::check::same;
use super::head::{By, Idempotency, Place, Queried, There, role};
use crate::app::App;
use crate::problem::Problem;

/// An item for a queue.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToOffer {
    /// A zone of queues.
    zone: String,
    /// The queue: a bucket of it.
    queue: String,
    /// Units: 1, if nothing is said, to 2^40.
    #[serde(default = "one")]
    cost: i64,
    /// The importance: 0, the most, to 255; if nothing is said, the most important that the token may claim.
    band: Option<u8>,
    /// After how many microseconds nobody waits for it any longer; without it, never.
    deadline_us: Option<u64>,
    /// The payload that a worker is to know: at most 8 KiB as JSON without spaces.
    #[schemars(with = "Option<Value>")]
    payload: Option<Payload>,
    txn: Option<Uuid>,
}

fn one() -> i64 {
    1
}

/// A worker's question for items.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToTake {
    /// A zone of queues.
    zone: String,
    /// The queue: a bucket of it.
    queue: String,
    /// At most so many items: 1, if nothing is said, to 100.
    #[serde(default = "single")]
    most: u32,
    /// The number of microseconds after which they wait again.
    visible_us: u64,
    /// The worker of the token that takes them, known as `TOKEN/WORKER`; the token itself, if nothing is said.
    worker: Option<String>,
}

fn single() -> u32 {
    1
}

/// An item that a worker keeps.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToExtend {
    zone: String,
    queue: String,
    receipt: Receipt,
    /// The number of microseconds from now.
    visible_us: u64,
}

/// An item that is worked off.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkedOff {
    zone: String,
    queue: String,
    receipt: Receipt,
}

/// An item that a worker gives back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToRelease {
    zone: String,
    queue: String,
    receipt: Receipt,
    /// After how many microseconds it can be taken again: 0, if nothing is said.
    #[serde(default)]
    delay_us: u64,
}

/// A dead item that is to be tried again.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToRedrive {
    zone: String,
    queue: String,
    /// The transaction that offered it.
    txn: Uuid,
}

/// A queue of a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfZone {
    zone: String,
    queue: String,
}

impl Place for OfZone {
    fn zone(&self) -> &str {
        &self.zone
    }
}

/// The dead items that are wanted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedDead {
    /// Those behind this one: the last of the page before.
    after: Option<Uuid>,
    /// At most so many: 100, if nothing is said, to 1,000.
    limit: Option<u32>,
}

/// Dead items, the most important first, of these what was offered first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadItems {
    items: Vec<Item>,
}

/// An item of a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct InQueue {
    zone: String,
    queue: String,
    txn: Uuid,
}

impl Place for InQueue {
    fn zone(&self) -> &str {
        &self.zone
    }
}

type Asker = By<role::App>;

pub(crate) async fn offer(
    State(app): State<App>,
    caller: Asker,
    Idempotency(header): Idempotency,
    Asked(asked): Asked<ToOffer>,
) -> Result<Json<Offered>, Problem> {
    caller.within(&asked.zone)?;
    let ToOffer { zone, queue, cost, band, deadline_us, payload, txn } = asked;
    let band = band.unwrap_or_else(|| caller.band());
    caller.may_claim(band)?;
    let offer = Offer::new(zone, queue).cost(cost).band(band);
    let offer = deadline_us.into_iter().map(Duration::from_micros).fold(offer, Offer::deadline);
    let offer = payload.iter().fold(offer, |offer, payload| offer.payload(payload));
    let offer = same(txn, header)?.into_iter().fold(offer, Offer::txn);
    Ok(Json(app.limiter().queues().offer(offer).await?))
}

pub(crate) async fn take(
    State(app): State<App>,
    caller: Asker,
    Asked(asked): Asked<ToTake>,
) -> Result<Json<Taken>, Problem> {
    caller.within(&asked.zone)?;
    let ToTake { zone, queue, most, visible_us, worker } = asked;
    let take =
        Take::new(zone, queue, Duration::from_micros(visible_us)).most(most).worker(caller.of(worker)?);
    Ok(Json(app.limiter().queues().take(take).await?))
}

pub(crate) async fn extend(
    State(app): State<App>,
    caller: Asker,
    Asked(asked): Asked<ToExtend>,
) -> Result<Json<Noted>, Problem> {
    let ToExtend { zone, queue, receipt, visible_us } = asked;
    caller.within(&zone)?;
    let visible = Duration::from_micros(visible_us);
    Ok(Json(app.limiter().queues().of(caller.name()).extend(&zone, &queue, receipt, visible).await?))
}

pub(crate) async fn done(
    State(app): State<App>,
    caller: Asker,
    Asked(WorkedOff { zone, queue, receipt }): Asked<WorkedOff>,
) -> Result<Json<Noted>, Problem> {
    caller.within(&zone)?;
    Ok(Json(app.limiter().queues().of(caller.name()).done(&zone, &queue, receipt).await?))
}

pub(crate) async fn release(
    State(app): State<App>,
    caller: Asker,
    Asked(asked): Asked<ToRelease>,
) -> Result<Json<Noted>, Problem> {
    let ToRelease { zone, queue, receipt, delay_us } = asked;
    caller.within(&zone)?;
    let delay = Duration::from_micros(delay_us);
    Ok(Json(app.limiter().queues().of(caller.name()).release(&zone, &queue, receipt, delay).await?))
}

pub(crate) async fn redrive(
    State(app): State<App>,
    caller: Asker,
    Asked(ToRedrive { zone, queue, txn }): Asked<ToRedrive>,
) -> Result<Json<Noted>, Problem> {
    caller.within(&zone)?;
    Ok(Json(app.limiter().queues().redrive(&zone, &queue, txn, caller.name()).await?))
}

pub(crate) async fn size(
    State(app): State<App>,
    There { place: OfZone { zone, queue }, .. }: There<role::App, OfZone>,
) -> Result<Json<Size>, Problem> {
    Ok(Json(app.limiter().queues().size(&zone, &queue).await.map_err(Problem::of_read)?))
}

pub(crate) async fn dead(
    State(app): State<App>,
    There { place: OfZone { zone, queue }, .. }: There<role::App, OfZone>,
    Queried(WantedDead { after, limit }): Queried<WantedDead>,
) -> Result<Json<DeadItems>, Problem> {
    let items = app.limiter().queues().dead(&zone, &queue, after, limit.unwrap_or(100)).await;
    Ok(Json(DeadItems { items: items.map_err(Problem::of_read)? }))
}

pub(crate) async fn item(
    State(app): State<App>,
    There { place: InQueue { zone, queue, txn }, .. }: There<role::App, InQueue>,
) -> Result<Json<Item>, Problem> {
    let item = app.limiter().queues().item(&zone, &queue, txn).await.map_err(Problem::of_read)?;
    item.map(Json).ok_or_else(|| Problem::not_found("the transaction offered nothing to this queue"))
}
