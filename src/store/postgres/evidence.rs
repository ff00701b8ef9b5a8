//! The reads of checkpoints, proofs and exports.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Row;

use super::ledger::ledger_row;
use super::{Postgres, clock, error, is_distributed, text};
use crate::decide::Exception;
use crate::error::Result;
use crate::store::asked::{hash_of, salt_of};
use crate::store::{BucketAt, Evidence, EvidenceOf, ZoneAt, rows_of};
use crate::zone::Limit;

impl Postgres {
    /// The database's time.
    pub async fn now(&self) -> Result<DateTime<Utc>> {
        clock(&mut *self.lease().await?).await
    }

    pub async fn behind(&self) -> Result<Option<Duration>> {
        let behind =
            sqlx::query_scalar(include_str!("behind.sql")).fetch_one(&mut *self.lease().await?).await;
        let behind_us: Option<i64> = behind.map_err(error)?;
        Ok(behind_us.map(|us| Duration::from_micros(us.max(0).unsigned_abs())))
    }

    pub async fn zones_at(&self, at: DateTime<Utc>) -> Result<Vec<ZoneAt>> {
        let rows = sqlx::query(include_str!("zones_at.sql"))
            .bind(at)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_version", &rows, |row| zone_at!(row))
    }

    pub async fn heads_at(&self, zone_id: i32, after: &str, at: DateTime<Utc>) -> Result<Vec<BucketAt>> {
        let mut connection = self.lease().await?;
        let statement = if is_distributed(&mut connection).await? {
            include_str!("heads_at_distributed.sql")
        } else {
            include_str!("heads_at.sql")
        };
        let heads = sqlx::query(statement).bind(zone_id).bind(after).bind(at);
        let rows = heads.fetch_all(&mut *connection).await.map_err(error)?;
        rows_of("zone_txn", &rows, |row| bucket_at!(row))
    }

    pub async fn evidence(&self, of: &EvidenceOf) -> Result<Vec<Evidence>> {
        let (key, at, seq) = &of.after;
        let rows = sqlx::query(include_str!("evidence.sql"))
            .bind(of.zone_id)
            .bind(key)
            .bind(at)
            .bind(seq)
            .bind(of.since)
            .bind(of.until)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| evidence!(row)).collect()
    }
}
