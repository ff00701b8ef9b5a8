//! The reads of checkpoints, proofs and exports.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Row;

use super::ledger::ledger_row;
use super::{Sqlite, error, text};
use crate::decide::Exception;
use crate::error::Result;
use crate::store::asked::{hash_of, salt_of};
use crate::store::{BucketAt, Evidence, EvidenceOf, ZoneAt, rows_of};
use crate::zone::Limit;

impl Sqlite {
    /// The database's time.
    pub async fn now(&self) -> Result<DateTime<Utc>> {
        super::from_us(self.clock.now_us())
    }

    /// There is one file.
    pub async fn behind(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    pub async fn zones_at(&self, at: DateTime<Utc>) -> Result<Vec<ZoneAt>> {
        let rows = sqlx::query(include_str!("zones_at.sql"))
            .bind(at.timestamp_micros())
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_version", &rows, |row| zone_at!(row))
    }

    pub async fn heads_at(&self, zone_id: i32, after: &str, at: DateTime<Utc>) -> Result<Vec<BucketAt>> {
        let rows = sqlx::query(include_str!("heads_at.sql"))
            .bind(zone_id)
            .bind(after)
            .bind(at.timestamp_micros())
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_txn", &rows, |row| bucket_at!(row))
    }

    pub async fn evidence(&self, of: &EvidenceOf) -> Result<Vec<Evidence>> {
        let (key, at, seq) = &of.after;
        let rows = sqlx::query(include_str!("evidence.sql"))
            .bind(of.zone_id)
            .bind(key)
            .bind(at.timestamp_micros())
            .bind(seq)
            .bind(of.since.timestamp_micros())
            .bind(of.until.timestamp_micros())
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| evidence!(row)).collect()
    }
}
