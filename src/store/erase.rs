//! Erasure: the personal data of a bucket go, and its chain still closes.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Store;
use crate::error::{Error, Result};

/// A bucket that was erased, see [`Limiter::erase`](crate::Limiter::erase).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Erased {
    /// The zone.
    pub zone: String,
    /// What stands in the place of the key: `erased:` and the hash that the bucket's chain begins with.
    pub key: String,
    /// How many rows of the ledger the bucket has.
    pub rows: u64,
    /// When, by the database's clock.
    pub erased_at: DateTime<Utc>,
}

/// A bucket that is to be erased, and what is kept of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Erasing<'e> {
    pub zone_id: i32,
    pub zone: &'e str,
    pub key: &'e str,
    pub note: &'e str,
    pub by: &'e str,
}

impl Erasing<'_> {
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn elsewhere() -> Error {
        Error::transient("another maintain or erase is at work on this database; try again when it has ended")
    }
}

impl Store {
    /// Erases a bucket, whole or not at all. None when there is no such bucket.
    pub async fn erase(&self, erasing: &Erasing<'_>) -> Result<Option<Erased>> {
        match *self {
            #[cfg(feature = "postgres")]
            Self::Postgres(ref store) => store.erase(erasing).await,
            #[cfg(feature = "mysql")]
            Self::MySql(ref store) => store.erase(erasing).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref store) => store.erase(erasing).await,
        }
    }
}
