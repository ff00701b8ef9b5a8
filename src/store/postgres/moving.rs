//! Moving buckets on PostgreSQL.

use sqlx::{Connection, PgConnection};

use super::removal::record;
use super::upkeep::{LONG_WAIT, run};
use super::{Postgres, erase, error};
use crate::chain::Hash;
use crate::error::Result;
use crate::store::Bucket;
use crate::store::list::List;
use crate::store::moving::{Arriving, Lists};

const BEGIN: &str = "begin isolation level read committed";

/// A connection whose one transaction holds the row of a bucket.
pub(in crate::store) struct Holding(PgConnection);

impl Postgres {
    pub async fn place(&self, (zone_id, key): &Bucket) -> Result<Option<String>> {
        let place = sqlx::query_scalar("select zone_bucket_place($1, $2)").bind(zone_id).bind(key);
        place.fetch_one(&mut *self.lease().await?).await.map_err(error)
    }

    pub(in crate::store) async fn mark(&self, (zone_id, key): &Bucket, to: &str) -> Result<()> {
        let mark = sqlx::query("select zone_bucket_mark($1, $2, $3)").bind(zone_id).bind(key).bind(to);
        mark.execute(&mut *self.lease().await?).await.map_err(error).map(drop)
    }

    /// The row that upkeep removed is made before, so that others see it.
    pub(in crate::store) async fn hold(&self, (zone_id, key): &Bucket) -> Result<Holding> {
        let mut connection = self.lease().await?.detach();
        run(&mut connection, LONG_WAIT).await?;
        let open = sqlx::query("select zone_bucket_open($1, $2, true)").bind(zone_id).bind(key);
        open.execute(&mut connection).await.map_err(error)?;
        run(&mut connection, BEGIN).await?;
        erase::hold(&mut connection, *zone_id, key).await?;
        Ok(Holding(connection))
    }

    pub(in crate::store) async fn arrive(&self, arriving: &Arriving<'_>) -> Result<()> {
        let (zone_id, key) = arriving.bucket;
        let Lists { dropped, rows, overrides, stands, head } = arriving.lists();
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(BEGIN).await.map_err(error)?;
        let there = "select b.row_hash from zone_bucket_lock b
            where b.zone_id = $1 and b.bucket_key = $2 and b.moved_to is not null
            for no key update";
        let there: Option<Vec<u8>> = sqlx::query_scalar(there)
            .bind(zone_id)
            .bind(key)
            .fetch_optional(&mut *tx)
            .await
            .map_err(error)?;
        arriving.is_still(there.as_deref())?;
        add(&mut tx, include_str!("moving/dropped.sql"), dropped).await?;
        if let Some(removing) = arriving.removing() {
            record(&mut tx, *zone_id, removing).await?;
        }
        add(&mut tx, include_str!("moving/rows.sql"), rows).await?;
        add(&mut tx, include_str!("moving/overrides.sql"), overrides).await?;
        if let Some(stands) = stands {
            for clear in [
                "delete from zone_hold where zone_id = $1 and bucket_key = $2",
                "delete from zone_item where zone_id = $1 and bucket_key = $2",
                "delete from zone_queue where zone_id = $1 and bucket_key = $2",
            ] {
                let clear = sqlx::query(clear).bind(zone_id).bind(key);
                clear.execute(&mut *tx).await.map_err(error)?;
            }
            add(&mut tx, include_str!("moving/holds.sql"), stands.holds).await?;
            add(&mut tx, include_str!("moving/load.sql"), stands.load).await?;
            for items in stands.items {
                add(&mut tx, include_str!("moving/items.sql"), items).await?;
            }
        }
        add(&mut tx, include_str!("moving/head.sql"), head).await?;
        tx.commit().await.map_err(error)
    }

    pub async fn open_moved(&self, (zone_id, key): &Bucket, was: &Hash, last: &Hash) -> Result<()> {
        let open = "update zone_bucket_lock set moved_to = null, moved_by = null, row_hash = $4
            where zone_id = $1 and bucket_key = $2 and row_hash = $3";
        let open = sqlx::query(open).bind(zone_id).bind(key).bind(&was[..]).bind(&last[..]);
        open.execute(&mut *self.lease().await?).await.map_err(error).map(drop)
    }
}

impl Holding {
    pub async fn mark(mut self, (zone_id, key): &Bucket, to: &str, hash: &Hash) -> Result<()> {
        let mark = "update zone_bucket_lock set moved_to = $3, moved_by = session_user, row_hash = $4
            where zone_id = $1 and bucket_key = $2";
        let mark = sqlx::query(mark).bind(zone_id).bind(key).bind(to).bind(&hash[..]);
        mark.execute(&mut self.0).await.map_err(error)?;
        run(&mut self.0, "commit").await
    }
}

async fn add(connection: &mut PgConnection, sql: &'static str, list: List) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    sqlx::query(sql).bind(list.json()).execute(connection).await.map_err(error).map(drop)
}
