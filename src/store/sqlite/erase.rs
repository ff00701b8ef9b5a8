//! Erasure on SQLite.

use std::time::Duration;

use sqlx::{Connection, Row};
use tokio::time::Instant;

use super::removal::record;
use super::upkeep::HEADS_GO;
use super::{Sqlite, error};
use crate::chain::{self, Salt};
use crate::error::Result;
use crate::store::erase::{Erased, Erasing};
use crate::store::salt_of;

/// The time for which the file's write lock is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

impl Sqlite {
    /// Under the file's write lock, row by row: SQLite has no SHA-256.
    pub async fn erase(&self, erasing: &Erasing<'_>) -> Result<Option<Erased>> {
        let Erasing { zone_id, key, .. } = *erasing;
        let _turn = self.turn(Instant::now() + PATIENCE).await?;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let salt: Option<Vec<u8>> = sqlx::query_scalar(include_str!("erase/salt.sql"))
            .bind(zone_id)
            .bind(key)
            .fetch_one(&mut *tx)
            .await
            .map_err(error)?;
        let Some(salt) = salt else { return Ok(None) };
        let salt: Salt = salt_of(&salt)?;
        let tombstone = chain::tombstone(&chain::bucket(Some(&salt), zone_id, key));
        let mut rows = 0;
        loop {
            // Rows that are done are not of this bucket any more.
            let page = sqlx::query(include_str!("erase/page.sql")).bind(zone_id).bind(key);
            let page = page.fetch_all(&mut *tx).await.map_err(error)?;
            if page.is_empty() {
                break;
            }
            for row in &page {
                let id: i64 = get!(row, "id");
                let [member, note, actor]: [Option<String>; 3] =
                    [get!(row, "member"), get!(row, "note"), get!(row, "actor")];
                let hashed = |text: Option<String>| {
                    text.map(|text| chain::tombstone(&chain::text(Some(&salt), &text)))
                };
                sqlx::query(include_str!("erase/row.sql"))
                    .bind(id)
                    .bind(&tombstone)
                    .bind(hashed(member))
                    .bind(hashed(note))
                    .bind(hashed(actor))
                    .execute(&mut *tx)
                    .await
                    .map_err(error)?;
                rows += 1;
            }
        }
        for statement in [
            "update zone_txn_dropped set bucket_key = ?3, salt = null where zone_id = ?1 and bucket_key = ?2",
            "update zone_override set bucket_key = ?3 where zone_id = ?1 and bucket_key = ?2",
        ] {
            let statement = sqlx::query(statement).bind(zone_id).bind(key).bind(&tombstone);
            statement.execute(&mut *tx).await.map_err(error)?;
        }
        for statement in [
            "delete from zone_hold where zone_id = ?1 and bucket_key = ?2",
            "delete from zone_item where zone_id = ?1 and bucket_key = ?2",
            "delete from zone_queue where zone_id = ?1 and bucket_key = ?2",
            "delete from zone_bucket_lock where zone_id = ?1 and bucket_key = ?2",
        ] {
            sqlx::query(statement).bind(zone_id).bind(key).execute(&mut *tx).await.map_err(error)?;
        }
        let now_us = self.clock.now_us();
        let heads_go = sqlx::query(HEADS_GO).bind(zone_id).bind(now_us);
        heads_go.execute(&mut *tx).await.map_err(error)?;
        let removing = erasing.removing(&tombstone, rows);
        let removal = record(&mut tx, zone_id, removing, now_us).await?;
        tx.commit().await.map_err(error)?;
        Ok(Some(erasing.told(tombstone, rows, removal)))
    }
}
