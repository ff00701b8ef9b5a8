//! What a caller asks.

use std::time::Duration;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::zone::{UNITS_MAX, validate_name};

/// A request: may this transaction pass, and if so, spend its cost.
///
/// ```
/// use tallygate::Check;
/// let check = Check::new("login", "user:42");             // costs 1, under a transaction id made for it
/// let check = Check::new("payments", "card:9f3c").cost(1_250).txn(uuid::Uuid::now_v7());
/// # let _ = check;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(crate) zone: String,
    pub(crate) key: String,
    pub(crate) txn: Option<Uuid>,
    pub(crate) cost: i64,
    pub(crate) record: bool,
    pub(crate) deadline: Option<Duration>,
}

impl Check {
    /// A check of cost 1 in `zone` for the bucket named `key`: 1 to 255 bytes of UTF-8 without control
    /// characters, compared byte by byte.
    pub fn new(zone: impl Into<String>, key: impl Into<String>) -> Self {
        Self { zone: zone.into(), key: key.into(), txn: None, cost: 1, record: false, deadline: None }
    }

    /// How much to spend, in the zone's unit: 0 to 2^40. Cost 0 is a peek: it is answered, spends nothing
    /// and leaves no row.
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

    /// Give up after this time instead of the limiter's own deadline.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Refuses what no database would store; the limiter calls it before it asks the database.
    pub fn validate(&self) -> Result<()> {
        validate_name(&self.zone)?;
        validate_key(&self.key)?;
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
    if key.is_empty() {
        return Err(Error::invalid("bucket key is empty; a key is 1 to 255 bytes"));
    }
    if key.len() > 255 {
        return Err(Error::invalid(format!(
            "bucket key has {} bytes; a key is 1 to 255 bytes, so store a digest of longer ones",
            key.len()
        )));
    }
    if key.chars().any(char::is_control) {
        return Err(Error::invalid(format!("bucket key {key:?} has a control character; remove it")));
    }
    Ok(())
}
