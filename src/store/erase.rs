//! Erasure: the personal data of a bucket go, and its chain still closes.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Store;
use super::removal::{Removal, Removing};
use crate::error::Result;

/// A bucket that was erased, see [`Owner::erase`](crate::schema::Owner::erase).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Erased {
    /// The zone.
    pub zone: String,
    /// The text in the place of the key: `erased:` and the hash that the bucket's chain begins with.
    pub key: String,
    /// The number of ledger rows of the bucket.
    pub rows: u64,
    /// When, by the database's clock.
    pub erased_at: DateTime<Utc>,
    /// By which name the database knows the session that erased it, see [`Entry::login`](crate::ledger::Entry::login).
    pub login: Option<String>,
}

impl Erased {
    /// The same bucket in another database too.
    pub(crate) fn and(self, other: Self) -> Self {
        if other.rows > self.rows { other } else { self }
    }
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
    /// The record of it, when so many rows have the tombstone in the place of the key.
    pub(super) fn removing<'r>(&'r self, tombstone: &'r str, rows: u64) -> Removing<'r> {
        Removing::Erase { key: tombstone, rows, by: self.by, note: self.note }
    }

    /// The account of it.
    pub(super) fn told(&self, tombstone: String, rows: u64, removal: Removal) -> Erased {
        let Removal { removed_at, login, .. } = removal;
        Erased { zone: self.zone.to_owned(), key: tombstone, rows, erased_at: removed_at, login }
    }
}

impl Store {
    /// Erases a bucket, whole or not at all. None when there is no such bucket.
    pub async fn erase(&self, erasing: &Erasing<'_>) -> Result<Option<Erased>> {
        each!(self, s => s.erase(erasing).await)
    }
}
