//! The ledger as it is stored, for who explains and verifies it: each page a short statement of its own.

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Postgres, error, text, text_if, time, time_if};
use crate::decide::{BucketOverride, Carried, Head, Hold};
use crate::entry::LedgerRow;
use crate::error::Result;
use crate::store::{At, Bucket, Chained, Range, StoredHead, hash_of, salt_of};
use crate::zone::{BanRule, Calendar, ClockSpan, Limit, Policy, ZoneVersion};

impl Postgres {
    pub async fn ledger_txn(&self, txn: Uuid) -> Result<Vec<(Bucket, LedgerRow)>> {
        let rows = sqlx::query(include_str!("ledger_txn.sql")).bind(txn);
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        let bucket = |row: &PgRow| Ok::<_, crate::Error>((get!(row, "zone_id"), text(row, "bucket_key")?));
        rows.iter().map(|row| Ok((bucket(row)?, ledger_row(row)?))).collect()
    }

    pub async fn ledger_bucket(
        &self,
        (zone_id, key): &Bucket,
        after: At,
        limit: u32,
    ) -> Result<Vec<LedgerRow>> {
        let rows = sqlx::query(include_str!("ledger_bucket.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(after.0)
            .bind(after.1)
            .bind(i64::from(limit))
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(ledger_row).collect()
    }

    pub async fn ledger_range(&self, range: &Range, limit: u32) -> Result<Vec<(String, LedgerRow)>> {
        let rows = sqlx::query(include_str!("ledger_range.sql"));
        let rows = rows.bind(range.zone_id).bind(&range.from).bind(&range.to).bind(i64::from(limit));
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| Ok((text(row, "bucket_key")?, ledger_row(row)?))).collect()
    }

    pub async fn bucket_overrides(&self, range: &Range) -> Result<Vec<(String, BucketOverride)>> {
        let rows = sqlx::query(include_str!("bucket_overrides.sql"));
        let rows = rows.bind(range.zone_id).bind(&range.from).bind(&range.to);
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| bucket_override!(row)).collect()
    }

    pub async fn heads(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
        let rows = sqlx::query(include_str!("heads_range.sql"));
        let rows = rows.bind(range.zone_id).bind(&range.from).bind(&range.to).bind(i64::from(limit));
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| stored_head!(row)).collect()
    }

    pub async fn dropped(&self, range: &Range, limit: u32) -> Result<Vec<StoredHead>> {
        let rows = sqlx::query(include_str!("dropped_range.sql"));
        let rows = rows.bind(range.zone_id).bind(&range.from).bind(&range.to).bind(i64::from(limit));
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| dropped!(row)).collect()
    }

    pub async fn heads_removed(&self, zone_id: i32) -> Result<bool> {
        let removed = sqlx::query_scalar("select z.heads_removed from zone_master_view z where z.id = $1")
            .bind(zone_id);
        let removed = removed.fetch_optional(&mut *self.lease().await?).await.map_err(error)?;
        Ok(removed.unwrap_or(false))
    }

    pub async fn bucket_holds(&self, (zone_id, key): &Bucket) -> Result<(i64, Vec<Hold>)> {
        let rows = sqlx::query(include_str!("bucket_holds.sql")).bind(zone_id).bind(key);
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        stored_holds!(rows)
    }

    pub async fn zone_chain(&self, zone_id: i32) -> Result<Vec<Chained>> {
        let mut lease = self.lease().await?;
        let rows = sqlx::query(include_str!("zone_chain.sql")).bind(zone_id);
        let rows = rows.fetch_all(&mut *lease).await.map_err(error)?;
        let spans = sqlx::query(include_str!("zone_clocks.sql")).bind(zone_id);
        let spans = spans.fetch_all(&mut *lease).await.map_err(error)?;
        chained_versions!(rows, spans)
    }

    pub async fn ledger_zone_after(&self, zone_id: i32) -> Result<Option<i32>> {
        let next = sqlx::query_scalar(include_str!("ledger_zone_after.sql")).bind(zone_id);
        next.fetch_one(&mut *self.lease().await?).await.map_err(error)
    }
}

fn ledger_row(row: &PgRow) -> Result<LedgerRow> {
    ledger_row!(row)
}
