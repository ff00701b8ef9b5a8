//! The ledger as it is stored, for who explains and verifies it: each page a short statement of its own.

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Sqlite, error, text, text_if, time, time_if};
use crate::decide::{Carried, Exception, Head, Hold, Item, Load};
use crate::engine::Kept;
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::store::{At, Bucket, Chained, Range, Removal, StoredHead, StoredItem, hash_of, salt_of};
use crate::zone::{BanRule, Calendar, ClockSpan, Limit, Policy, Queueing, Sharing, ZoneVersion};

ledger_reads!(Sqlite, SqliteRow);

impl Sqlite {
    pub async fn ledger_bucket(
        &self,
        (zone_id, key): &Bucket,
        after: At,
        limit: u32,
    ) -> Result<Vec<LedgerRow>> {
        let rows = sqlx::query(include_str!("ledger_bucket.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(after.0.timestamp_micros())
            .bind(after.1)
            .bind(limit)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(ledger_row).collect()
    }

    pub async fn ledger_before(
        &self,
        (zone_id, key): &Bucket,
        at: DateTime<Utc>,
    ) -> Result<Option<LedgerRow>> {
        let row = sqlx::query(include_str!("ledger_before.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(at.timestamp_micros())
            .fetch_optional(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        row.as_ref().map(ledger_row).transpose()
    }
}
