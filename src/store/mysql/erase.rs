//! Erasure on MySQL and MariaDB.

use sqlx::{Connection, MySqlConnection};

use super::removal::record;
use super::upkeep::{Alone, heads_go};
use super::{BEGIN, MySql, error};
use crate::chain;
use crate::error::Result;
use crate::store::erase::{Erased, Erasing};
use crate::store::salt_of;

impl MySql {
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
        let Erasing { zone_id, key, .. } = *erasing;
        let known: bool = sqlx::query_scalar(include_str!("erase/known.sql"))
            .bind(zone_id)
            .bind(key.as_bytes())
            .bind(zone_id)
            .bind(key.as_bytes())
            .bind(zone_id)
            .bind(key.as_bytes())
            .fetch_one(&mut *connection)
            .await
            .map_err(error)?;
        if !known {
            return Ok(None);
        }
        heads_go(connection, zone_id).await?;
        let mut tx = connection.begin_with(BEGIN).await.map_err(error)?;
        let salt = hold(&mut tx, zone_id, key).await?;
        heads_go(&mut tx, zone_id).await?;
        let tombstone = chain::tombstone(&chain::bucket(Some(&salt_of(&salt)?), zone_id, key));
        // A row that was never sealed is no row of the ledger.
        sqlx::query("delete from zone_txn where zone_id = ? and bucket_key = ? and not sealed")
            .bind(zone_id)
            .bind(key.as_bytes())
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        let rows = sqlx::query(include_str!("erase/rows.sql"))
            .bind(tombstone.as_bytes())
            .bind(&salt)
            .bind(&salt)
            .bind(&salt)
            .bind(&salt)
            .bind(zone_id)
            .bind(key.as_bytes())
            .execute(&mut *tx)
            .await
            .map_err(error)?
            .rows_affected();
        for statement in [
            "update zone_txn_dropped set bucket_key = ?, salt = null where zone_id = ? and bucket_key = ?",
            "update zone_override set bucket_key = ? where zone_id = ? and bucket_key = ?",
        ] {
            let statement =
                sqlx::query(statement).bind(tombstone.as_bytes()).bind(zone_id).bind(key.as_bytes());
            statement.execute(&mut *tx).await.map_err(error)?;
        }
        for statement in [
            "delete from zone_hold where zone_id = ? and bucket_key = ?",
            "delete from zone_item where zone_id = ? and bucket_key = ?",
            "delete from zone_queue where zone_id = ? and bucket_key = ?",
            "delete from zone_bucket_lock where zone_id = ? and bucket_key = ?",
        ] {
            let statement = sqlx::query(statement).bind(zone_id).bind(key.as_bytes());
            statement.execute(&mut *tx).await.map_err(error)?;
        }
        let removal = record(&mut tx, zone_id, erasing.removing(&tombstone, rows)).await?;
        tx.commit().await.map_err(error)?;
        Ok(Some(erasing.told(tombstone, rows, removal)))
    }
}

/// Locks the bucket's row, which is made as its ledger left it when it was removed, and reads its salt.
pub(super) async fn hold(connection: &mut MySqlConnection, zone_id: i32, key: &str) -> Result<Vec<u8>> {
    let open = sqlx::query("call zone_bucket_open(?, ?, true)").bind(zone_id).bind(key);
    open.execute(&mut *connection).await.map_err(error)?;
    let lock = "select b.salt from zone_bucket_lock b where b.zone_id = ? and b.bucket_key = ? for update";
    let lock = sqlx::query_scalar(lock).bind(zone_id).bind(key.as_bytes());
    lock.fetch_one(connection).await.map_err(error)
}
