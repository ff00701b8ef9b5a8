//! Erasure on PostgreSQL.

use sqlx::{Connection, PgConnection};

use super::removal::record;
use super::upkeep::{Alone, LONG_WAIT, heads_go, run};
use super::{Postgres, error};
use crate::chain;
use crate::error::Result;
use crate::store::erase::{Erased, Erasing};
use crate::store::salt_of;

impl Postgres {
    /// On a connection of its own, and beside no upkeep: that could note of rows what is just being erased.
    pub async fn erase(&self, erasing: &Erasing<'_>) -> Result<Option<Erased>> {
        let alone = Alone::begin(self).await?;
        let erased = self.erase_alone(erasing).await;
        alone.end().await;
        erased
    }

    async fn erase_alone(&self, erasing: &Erasing<'_>) -> Result<Option<Erased>> {
        let mut connection = self.lease().await?.detach();
        let connection = &mut connection;
        run(connection, LONG_WAIT).await?;
        let Erasing { zone_id, key, .. } = *erasing;
        let known: bool = sqlx::query_scalar(include_str!("erase/known.sql"))
            .bind(zone_id)
            .bind(key)
            .fetch_one(&mut *connection)
            .await
            .map_err(error)?;
        if !known {
            return Ok(None);
        }
        heads_go(connection, zone_id).await?;
        let mut tx = connection.begin_with("begin isolation level read committed").await.map_err(error)?;
        let salt = hold(&mut tx, zone_id, key).await?;
        let tombstone = chain::tombstone(&chain::bucket(Some(&salt_of(&salt)?), zone_id, key));
        let rows = sqlx::query(include_str!("erase/rows.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(&tombstone)
            .bind(&salt)
            .execute(&mut *tx)
            .await
            .map_err(error)?
            .rows_affected();
        for statement in [include_str!("erase/dropped.sql"), include_str!("erase/overrides.sql")] {
            let statement = sqlx::query(statement).bind(zone_id).bind(key).bind(&tombstone);
            statement.execute(&mut *tx).await.map_err(error)?;
        }
        for statement in [
            "delete from zone_txn where zone_id = $1 and bucket_key = $2",
            "delete from zone_txn_dropped where zone_id = $1 and bucket_key = $2",
            "delete from zone_override where zone_id = $1 and bucket_key = $2",
            "delete from zone_hold where zone_id = $1 and bucket_key = $2",
            "delete from zone_item where zone_id = $1 and bucket_key = $2",
            "delete from zone_queue where zone_id = $1 and bucket_key = $2",
            "delete from zone_bucket_lock where zone_id = $1 and bucket_key = $2",
        ] {
            sqlx::query(statement).bind(zone_id).bind(key).execute(&mut *tx).await.map_err(error)?;
        }
        let removal = record(&mut tx, zone_id, erasing.removing(&tombstone, rows)).await?;
        tx.commit().await.map_err(error)?;
        Ok(Some(erasing.told(tombstone, rows, removal)))
    }
}

/// Locks the bucket's row, which is made as its ledger left it when it was removed, and reads its salt.
pub(super) async fn hold(connection: &mut PgConnection, zone_id: i32, key: &str) -> Result<Vec<u8>> {
    let open = sqlx::query("select zone_bucket_open($1, $2, true)").bind(zone_id).bind(key);
    open.execute(&mut *connection).await.map_err(error)?;
    let lock = "select b.salt from zone_bucket_lock b where b.zone_id = $1 and b.bucket_key = $2 for update";
    sqlx::query_scalar(lock).bind(zone_id).bind(key).fetch_one(connection).await.map_err(error)
}
