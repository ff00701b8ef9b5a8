//! A lease of capacity: what a client asks for, and what it is granted.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::check::{validate_bytes, validate_key};
use crate::decide::{Claim, WEIGHT_MAX};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{UNITS_MAX, validate_name};

/// The names of the first four bands, after the Google SRE book, chapter 21: what is critical is served before what can be shed.
const BANDS: [&str; 4] = ["critical-plus", "critical", "sheddable-plus", "sheddable"];

/// Reads how important a client is: a number from 0, the most, to 255, or a name of one of the first four.
///
/// ```
/// use tallygate::capacity::parse_band;
/// assert_eq!((parse_band("critical")?, parse_band("17")?), (1, 17));
/// # Ok::<(), tallygate::Error>(())
/// ```
///
/// # Errors
/// Invalid: neither.
pub fn parse_band(text: &str) -> Result<u8> {
    let named = BANDS.iter().zip(0..).find(|(name, _)| **name == text).map(|(_, band)| band);
    named.map_or_else(|| text.parse(), Ok).map_err(|_| {
        Error::invalid(format!(
            "band {text:?} cannot be used; use 0, the most important, to 255, or {}",
            BANDS.join(", ")
        ))
    })
}

/// A client's claim on a resource, see [`Leases::get`](crate::capacity::Leases::get).
///
/// ```
/// use tallygate::capacity::Want;
/// let want = Want::new("render", "gpu", "worker-7", 40).weight(3).band(2);
/// # let _ = want;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Want {
    pub(crate) zone: String,
    pub(crate) resource: String,
    pub(crate) client: String,
    pub(crate) wants: i64,
    pub(crate) weight: i32,
    pub(crate) band: u8,
    pub(crate) follows: Option<i64>,
    pub(crate) txn: Option<Uuid>,
}

impl Want {
    /// A client wants so many units (0 to 2^40) of a resource, which is a bucket of a zone of capacity. It stands for itself
    /// alone, and its band is 0, the most important.
    pub fn new(
        zone: impl Into<String>,
        resource: impl Into<String>,
        client: impl Into<String>,
        wants: i64,
    ) -> Self {
        Self {
            zone: zone.into(),
            resource: resource.into(),
            client: client.into(),
            wants,
            weight: 1,
            band: 0,
            follows: None,
            txn: None,
        }
    }

    /// For how many the client stands: 1 to 1,000,000. It is taken on trust: bind it to who may ask.
    pub fn weight(self, weight: i32) -> Self {
        Self { weight, ..self }
    }

    /// Sets the importance: 0, the most, to 255. It is taken on trust: bind it to who may ask.
    pub fn band(self, band: u8) -> Self {
        Self { band, ..self }
    }

    /// Refreshes this lease and no later one: an error tells a client that another process has taken its name.
    pub fn after(self, lease: &Lease) -> Self {
        self.follows(lease.seq)
    }

    /// The same, by the [`seq`](Lease::seq) of the lease.
    pub fn follows(self, seq: i64) -> Self {
        Self { follows: Some(seq), ..self }
    }

    /// The transaction. A claim that is made again by the same one gets the recorded answer. One is made if
    /// none is named.
    pub fn txn(self, txn: Uuid) -> Self {
        Self { txn: Some(txn), ..self }
    }

    pub(crate) fn claim(&self) -> Claim<'_> {
        Claim { client: &self.client, wants: self.wants, weight: self.weight, band: self.band }
    }

    /// Looks for what no database would store.
    ///
    /// # Errors
    /// Invalid: a name, a resource or a client that cannot be stored, a number out of range, the nil UUID.
    pub fn validate(&self) -> Result<()> {
        validate_name(&self.zone)?;
        validate_key(&self.resource)?;
        validate_bytes("client", "client", &self.client)?;
        if !(0..=UNITS_MAX).contains(&self.wants) {
            return Err(Error::invalid(format!(
                "wants {} is out of range; use 0 to {UNITS_MAX}",
                self.wants
            )));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(Error::invalid(format!(
                "weight {} is out of range; use 1 to {WEIGHT_MAX}",
                self.weight
            )));
        }
        if self.txn == Some(Uuid::nil()) {
            return Err(Error::invalid("the nil UUID names no transaction; use a version 4 or 7 UUID"));
        }
        Ok(())
    }
}

/// The units that a client may use of a resource, and for how long.
///
/// Times are of the database's clock. A client reckons from when it asked, by its own clock, and so stops before the
/// database gives to others what it had, however the two clocks differ: see [`Tenant`](crate::capacity::Tenant).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Lease {
    /// The zone's name.
    pub zone: String,
    /// The resource: the bucket's key.
    pub resource: String,
    /// The client whose lease it is.
    pub client: String,
    /// The transaction that asked for it.
    pub txn_id: Uuid,
    /// Position in the ledger of the resource: each lease has a greater one than those before it.
    pub seq: i64,
    /// The units that were wanted.
    pub wants: i64,
    /// The units that may be used.
    pub has: i64,
    /// Why: `within_limit`, all that was wanted; `over_limit`, less; `banned`, nothing.
    pub reason: Reason,
    /// The number of clients for which it stands.
    pub weight: i32,
    /// The importance: 0 is the most.
    pub band: u8,
    /// The capacity of the resource.
    pub capacity: i64,
    /// The units of the capacity that nobody holds.
    pub remaining: i64,
    /// The units that the client may use when it cannot ask and its lease has ended, if it goes by that.
    pub safe_capacity: i64,
    /// The number of microseconds after which it is to ask again.
    pub refresh_us: i64,
    /// After how many microseconds it ends, from when it was granted.
    pub length_us: i64,
    /// The time when it was granted.
    pub granted_at: DateTime<Utc>,
    /// The version of the zone that granted it.
    pub zone_version: i32,
    /// True when it had been granted before and nothing happened now.
    pub replayed: bool,
}

impl Lease {
    /// The time after which the client is to ask again.
    #[must_use]
    pub fn refresh(&self) -> Duration {
        Duration::from_micros(self.refresh_us.unsigned_abs())
    }

    /// The length for which it lasts.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.length_us.unsigned_abs())
    }
}
