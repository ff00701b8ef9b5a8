//! The question of a caller.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::zone::{UNITS_MAX, micros, validate_name, validate_time};

/// The beginning of every erased text, and of no key.
pub const ERASED: &str = "erased:";

/// A request: may this transaction pass, and if so, spend its cost.
///
/// ```
/// use tallygate::Check;
/// let check = Check::new("login", "user:42");             // costs 1, under a transaction id made for it
/// let check = Check::new("payments", "card:9f3c").cost(1_250).txn(uuid::Uuid::now_v7());
/// # let _ = check;
/// ```
///
/// As JSON it is an object of its zone, its key and whatever else is not as it is by itself. Names that it does not have
/// are refused; what no database would store is refused by [`validate`](Self::validate), not by reading it.
///
/// ```
/// # use tallygate::Check;
/// let check: Check = serde_json::from_str(r#"{"zone":"login","key":"user:42","cost":3}"#)?;
/// assert_eq!(check, Check::new("login", "user:42").cost(3));
/// assert_eq!(serde_json::to_string(&check)?, r#"{"zone":"login","key":"user:42","cost":3}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The zone's name.
    pub(crate) zone: String,
    /// The bucket's key: 1 to 255 bytes without control characters.
    pub(crate) key: String,
    /// The caller's name for its business event: the same again is answered as it was, and spends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) txn: Option<Uuid>,
    /// The units to spend: 0 to 2^40; 0 looks, and leaves no row.
    #[serde(default = "one", deserialize_with = "cost")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<i64>"))]
    pub(crate) cost: i64,
    /// Leave a row even where the cost is 0.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) record: bool,
    /// May take from what the zone keeps in reserve.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) critical: bool,
    /// The importance: 0, the most, is the same as critical; 1 to 255 is as if nothing were said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) band: Option<u8>,
    /// The member that it is about, where the zone counts distinct members: as a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    /// A reservation: what it charges is given back after so many microseconds, up to 10 years.
    #[serde(default, rename = "ttl_us", with = "in_micros", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub(crate) ttl: Option<Duration>,
    /// Give up after so many microseconds.
    #[serde(default, rename = "deadline_us", with = "in_micros", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub(crate) deadline: Option<Duration>,
}

fn one() -> i64 {
    1
}

/// A cost; null is the cost that a check has by itself.
fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(one))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A duration as whole microseconds.
mod in_micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::zone::micros;

    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(micros).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

impl Check {
    /// A check of cost 1 in `zone` for the bucket named `key`: 1 to 255 bytes of UTF-8 without control
    /// characters, compared byte by byte.
    pub fn new(zone: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            zone: zone.into(),
            key: key.into(),
            txn: None,
            cost: 1,
            record: false,
            critical: false,
            band: None,
            member: None,
            ttl: None,
            deadline: None,
        }
    }

    /// Sets the units to spend, in the zone's unit: 0 to 2^40. Cost 0 is a peek: it is answered, spends
    /// nothing and leaves no row.
    pub fn cost(mut self, cost: i64) -> Self {
        self.cost = cost;
        self
    }

    /// The caller's name for its business event. The same id on the same bucket again gives the recorded
    /// decision and spends nothing; a random or version 7 UUID, never the nil one.
    pub fn txn(mut self, txn: Uuid) -> Self {
        self.txn = Some(txn);
        self
    }

    /// Leave a ledger row even for a peek.
    pub fn recorded(mut self) -> Self {
        self.record = true;
        self
    }

    /// May take from what the zone keeps in reserve.
    pub fn critical(mut self) -> Self {
        self.critical = true;
        self
    }

    /// Sets the importance, by the bands of [capacity](crate::capacity::parse_band): 0, the most, is
    /// [`critical`](Self::critical) in another word; 1 to 255 is a check as it is by itself. It is not recorded but for
    /// that.
    pub fn band(mut self, band: u8) -> Self {
        self.band = Some(band);
        self
    }

    /// Names the member that the check is about, in a zone that counts distinct members: 1 to 255 bytes, as a
    /// key. "Five cards per address": the address is the key, the card the member.
    pub fn member(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// A reservation: what it charges is given back by itself after so long (1 µs to 10 years), unless it is settled or
    /// cancelled before; see [`Limiter::reserve`](crate::Limiter::reserve).
    pub fn reserved_for(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Give up after this time instead of the limiter's own deadline.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The name of its zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The key of its bucket.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The transaction that it names; None when one will be made for it.
    pub fn txn_id(&self) -> Option<Uuid> {
        self.txn
    }

    /// The band that it claims: 0 when it is critical; None when it says nothing.
    pub fn claimed_band(&self) -> Option<u8> {
        if self.critical { Some(0) } else { self.band }
    }

    /// The time for which it reserves; None when it does not.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// The time after which it gives up; None for the limiter's own deadline.
    pub fn patience(&self) -> Option<Duration> {
        self.deadline
    }

    /// Looks for what no database would store; the limiter calls it before it asks the database.
    ///
    /// # Errors
    /// Invalid: a zone's name, a key or a member that cannot be stored, a cost or a reservation's time out of range, a
    /// reservation of cost 0, the nil UUID as a transaction, a critical check of another band than 0.
    pub fn validate(&self) -> Result<()> {
        validate_name(&self.zone)?;
        validate_key(&self.key)?;
        if let Some(member) = &self.member {
            validate_bytes("member", "member", member)?;
        }
        if let Some(band) = self.band.filter(|&band| self.critical && band > 0) {
            return Err(Error::invalid(format!(
                "a check of band {band} is not critical, which is band 0; leave one of them out"
            )));
        }
        if let Some(ttl) = self.ttl {
            validate_time("a reservation", micros(ttl))?;
            if self.cost == 0 {
                return Err(Error::invalid("a reservation of cost 0 reserves nothing; use 1 or more"));
            }
        }
        if !(0..=UNITS_MAX).contains(&self.cost) {
            return Err(Error::invalid(format!("cost {} is out of range; use 0 to {UNITS_MAX}", self.cost)));
        }
        if self.txn == Some(Uuid::nil()) {
            return Err(Error::invalid("the nil UUID names no transaction; use a version 4 or 7 UUID"));
        }
        Ok(())
    }
}

pub(crate) fn validate_key(key: &str) -> Result<()> {
    validate_bytes("bucket key", "key", key)?;
    if key.starts_with(ERASED) {
        return Err(Error::invalid(format!(
            "bucket key {key:?} begins with \"{ERASED}\", which stands for keys that were erased; use another key"
        )));
    }
    Ok(())
}

pub(crate) fn validate_bytes(what: &str, noun: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty; a {noun} is 1 to 255 bytes")));
    }
    if text.len() > 255 {
        return Err(Error::invalid(format!(
            "{what} has {} bytes; a {noun} is 1 to 255 bytes, so store a digest of longer ones",
            text.len()
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} {text:?} has a control character; remove it")));
    }
    Ok(())
}
