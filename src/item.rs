//! Queues: what is offered, what is taken, and what a worker says of it.

mod payload;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::chain;
use crate::check::{validate_bytes, validate_key};
use crate::decide::{Bid, Progress};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{UNITS_MAX, micros, validate_name, validate_time};

pub use payload::Payload;

/// The longest payload, as JSON without spaces.
pub const PAYLOAD_MAX: usize = 8 * 1024;

/// The most items that are taken at once.
pub const TAKE_MAX: u32 = 100;

/// An item to be offered to a queue, see [`Queues::offer`](crate::queue::Queues::offer).
///
/// ```
/// use std::time::Duration;
/// use tallygate::queue::Offer;
/// let offer = Offer::new("render", "gpu").cost(3).band(2).deadline(Duration::from_secs(600));
/// # let _ = offer;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Offer {
    pub(crate) zone: String,
    pub(crate) queue: String,
    pub(crate) cost: i64,
    pub(crate) band: u8,
    pub(crate) deadline_us: Option<i64>,
    pub(crate) payload: Option<String>,
    pub(crate) txn: Option<Uuid>,
}

impl Offer {
    /// An item for a queue, which is a bucket of a zone of queues. It costs one unit, is of band 0, the most important, and waits
    /// for ever.
    pub fn new(zone: impl Into<String>, queue: impl Into<String>) -> Self {
        let (zone, queue) = (zone.into(), queue.into());
        Self { zone, queue, cost: 1, band: 0, deadline_us: None, payload: None, txn: None }
    }

    /// Sets the cost in units: 1 to 2^40.
    pub fn cost(self, cost: i64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the importance: 0, the most, to 255. It is taken on trust: bind it to who may offer.
    pub fn band(self, band: u8) -> Self {
        Self { band, ..self }
    }

    /// Sets the time after which nobody waits for it any longer: 1 µs to 10 years. It is dropped then, unless somebody
    /// has it.
    pub fn deadline(self, after: Duration) -> Self {
        Self { deadline_us: Some(micros(after)), ..self }
    }

    /// Sets what a worker is to know of it: at most 8 KiB as JSON without spaces. A text that others wrote is read as
    /// [`Payload`], so that nothing of it changes.
    pub fn payload(self, payload: &serde_json::Value) -> Self {
        Self { payload: Some(payload.to_string()), ..self }
    }

    /// The transaction, which names the item. An offer that is made again by the same one gets the recorded answer. One
    /// is made if none is named.
    pub fn txn(self, txn: Uuid) -> Self {
        Self { txn: Some(txn), ..self }
    }

    pub(crate) fn bid(&self, txn: Uuid) -> Bid {
        let Self { cost, band, deadline_us, .. } = *self;
        Bid { txn, cost, band, deadline_us, payload: self.payload.is_some() }
    }

    /// The part of the payload that is recorded.
    pub(crate) fn payload_hash(&self) -> Option<String> {
        self.payload.as_deref().map(payload_hash)
    }

    /// Looks for what no database would store.
    ///
    /// # Errors
    /// Invalid: a name or a queue that cannot be stored, a number out of range, a payload that is too long, the nil UUID.
    pub fn validate(&self) -> Result<()> {
        validate_name(&self.zone)?;
        validate_key(&self.queue)?;
        if !(1..=UNITS_MAX).contains(&self.cost) {
            return Err(Error::invalid(format!("cost {} is out of range; use 1 to {UNITS_MAX}", self.cost)));
        }
        self.deadline_us.map_or(Ok(()), |us| validate_time("deadline", us))?;
        if let Some(long) = self.payload.as_ref().map(String::len).filter(|len| *len > PAYLOAD_MAX) {
            return Err(Error::invalid(format!(
                "a payload of {long} bytes is too long; use at most {PAYLOAD_MAX}, or store it elsewhere and offer its name"
            )));
        }
        validate_txn(self.txn)
    }
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Offered {
    /// The zone's name.
    pub zone: String,
    /// The queue: the bucket's key.
    pub queue: String,
    /// The transaction, which names the item.
    pub txn_id: Uuid,
    /// True when it does not wait.
    pub blocked: bool,
    /// Why: `within_limit`, it waits; `over_limit`, the queue is full; `exceeds_limit`, it never will; `banned`.
    pub reason: Reason,
    /// The units of the backlog that are left.
    pub remaining: i64,
    /// After how many microseconds there is room for the same at the earliest, if workers do what is before it at the zone's
    /// pace; None when it waits, or never will.
    pub retry_after_us: Option<i64>,
    /// The time when nobody waits for it any longer.
    pub deadline_at: Option<DateTime<Utc>>,
    /// The items that had to make room for it, the first that went first.
    pub evicted: Vec<Uuid>,
    /// Position in the ledger of the queue.
    pub seq: i64,
    /// The time when it was offered.
    pub offered_at: DateTime<Utc>,
    /// The version of the zone that decided.
    pub zone_version: i32,
    /// True when it had been offered before and nothing happened now. The items that it then evicted are not
    /// named again.
    pub replayed: bool,
}

/// A worker's question for items, see [`Queues::take`](crate::queue::Queues::take).
///
/// ```
/// use std::time::Duration;
/// use tallygate::queue::Take;
/// let take = Take::new("render", "gpu", Duration::from_secs(30)).most(5).worker("gpu-7");
/// # let _ = take;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Take {
    pub(crate) zone: String,
    pub(crate) queue: String,
    pub(crate) most: u32,
    pub(crate) visible_us: i64,
    pub(crate) worker: Option<String>,
}

impl Take {
    /// One item of a queue, for so long: 1 µs to 10 years. Then it waits again, unless it is done or its time is extended.
    pub fn new(zone: impl Into<String>, queue: impl Into<String>, visible_for: Duration) -> Self {
        let (zone, queue) = (zone.into(), queue.into());
        Self { zone, queue, most: 1, visible_us: micros(visible_for), worker: None }
    }

    /// At most so many items at once: 1 to 100.
    pub fn most(self, most: u32) -> Self {
        Self { most, ..self }
    }

    /// Names the worker that takes them: 1 to 255 bytes. It is recorded, and else means nothing.
    pub fn worker(self, worker: impl Into<String>) -> Self {
        Self { worker: Some(worker.into()), ..self }
    }

    /// Looks for what no database would store.
    ///
    /// # Errors
    /// Invalid: a name, a queue or a worker that cannot be stored, a number or a time out of range.
    pub fn validate(&self) -> Result<()> {
        validate_name(&self.zone)?;
        validate_key(&self.queue)?;
        if !(1..=TAKE_MAX).contains(&self.most) {
            return Err(Error::invalid(format!(
                "{} items at once are out of range; use 1 to {TAKE_MAX}",
                self.most
            )));
        }
        validate_time("visibility", self.visible_us)?;
        self.worker.as_deref().map_or(Ok(()), |worker| validate_bytes("worker", "worker", worker))
    }
}

/// An answer to a worker: the items that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Taken {
    /// The items, in the order in which they were next.
    pub items: Vec<Work>,
    /// Where nothing was taken although something waits, the number of microseconds after which the pace lets the next
    /// one be taken.
    pub retry_after_us: Option<i64>,
}

/// An item that a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Work {
    /// The zone's name.
    pub zone: String,
    /// The queue: the bucket's key.
    pub queue: String,
    /// The item: the transaction that offered it.
    pub txn_id: Uuid,
    /// With which its worker says what becomes of it. Another take of the same item has another one.
    pub receipt: Receipt,
    /// Units.
    pub cost: i64,
    /// The importance: 0 is the most.
    pub band: u8,
    /// The number of times that it was taken, this time included.
    pub takes: i32,
    /// The payload that was given with it.
    pub payload: Option<serde_json::Value>,
    /// The time when it was offered.
    pub offered_at: DateTime<Utc>,
    /// The time when it was taken.
    pub taken_at: DateTime<Utc>,
    /// After how many microseconds it waits again, from when it was taken.
    pub visible_us: i64,
}

/// Names one take of one item. As text it is a number and a UUID, such as `57-0199b1c2-…`.
///
/// ```
/// let receipt: tallygate::queue::Receipt = "57-01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// assert_eq!(receipt.seq, 57);
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The row of the take, in the ledger of the queue: a later take has a greater one.
    pub seq: i64,
    /// The item.
    pub txn_id: Uuid,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.txn_id)
    }
}

impl FromStr for Receipt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('-').and_then(|(seq, txn)| {
            Some(Self { seq: seq.parse().ok().filter(|seq| *seq > 0)?, txn_id: txn.parse().ok()? })
        });
        parts.ok_or_else(|| {
            Error::invalid(format!("{text:?} is no receipt; use the one that came with the item"))
        })
    }
}

impl Serialize for Receipt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Receipt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Receipt {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Receipt".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "Names one take of one item." })
    }
}

/// The word about an item that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub zone: String,
    pub queue: String,
    pub txn: Uuid,
    pub progress: Progress,
    pub who: Sayer,
    /// The owner of the worker that took it; None: whoever has the receipt is believed.
    pub owner: Option<String>,
}

impl Said {
    /// May it be said of what this worker took?
    pub fn is_of(&self, worker: Option<&str>) -> bool {
        let Some(owner) = &self.owner else { return true };
        let rest = worker.and_then(|worker| worker.strip_prefix(owner.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The one who says it.
#[derive(Clone, Debug)]
pub(crate) enum Sayer {
    /// The worker who has the receipt of this row.
    Worker(i64),
    /// Somebody who looked after what is dead.
    Person(String),
}

/// A worker's word about an item, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Noted {
    /// The zone's name.
    pub zone: String,
    /// The queue: the bucket's key.
    pub queue: String,
    /// The item.
    pub txn_id: Uuid,
    /// The state that it is in now.
    pub state: State,
    /// Until when it is kept, or when it can be taken again.
    pub until: Option<DateTime<Utc>>,
    /// The units of the backlog that are left.
    pub remaining: i64,
    /// Position in the ledger of the queue.
    pub seq: i64,
    /// The time when it was recorded.
    pub recorded_at: DateTime<Utc>,
    /// True when it had been said before and nothing happened now.
    pub replayed: bool,
}

/// The states of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It does not wait: there was no room for it.
    Refused,
    /// It can be taken.
    Waiting,
    /// A worker has it.
    Taken,
    /// A worker gave it back, to be taken again later.
    Delayed,
    /// It was worked off.
    Done,
    /// It was taken too often, and is kept to be looked at.
    Dead,
    /// It had to make room for a more important one.
    Evicted,
    /// Its deadline was over, and nobody had it.
    Expired,
}

crate::names::names!(
    State, "state",
    Refused "refused", Waiting "waiting", Taken "taken", Delayed "delayed", Done "done", Dead "dead", Evicted "evicted",
    Expired "expired",
);

/// An item, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Item {
    /// The zone's name.
    pub zone: String,
    /// The queue: the bucket's key.
    pub queue: String,
    /// The item: the transaction that offered it.
    pub txn_id: Uuid,
    /// The state that it is in.
    pub state: State,
    /// Units.
    pub cost: i64,
    /// The importance: 0 is the most.
    pub band: u8,
    /// The number of times that it was taken, since it was last tried again.
    pub takes: i32,
    /// The payload that was given with it; None when it has gone.
    pub payload: Option<serde_json::Value>,
    /// The time when it was offered.
    pub offered_at: DateTime<Utc>,
    /// The time when nobody waits for it any longer.
    pub deadline_at: Option<DateTime<Utc>>,
    /// Until when a worker has it, or when it can be taken again.
    pub until: Option<DateTime<Utc>>,
    /// The transaction that it had to make room for.
    pub evicted_by: Option<Uuid>,
}

/// The size of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Size {
    /// Units that wait.
    pub waiting: i64,
    /// Units that are taken, or were given back for a time.
    pub away: i64,
    /// The most that both can come to.
    pub backlog: i64,
}

/// The part of a payload that is recorded: its SHA-256.
pub(crate) fn payload_hash(payload: &str) -> String {
    chain::hex(&chain::sha256(&[payload.as_bytes()]))
}

pub(crate) fn validate_txn(txn: Option<Uuid>) -> Result<()> {
    if txn == Some(Uuid::nil()) {
        return Err(Error::invalid("the nil UUID names no transaction; use a version 4 or 7 UUID"));
    }
    Ok(())
}
