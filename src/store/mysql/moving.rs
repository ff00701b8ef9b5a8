//! Moving buckets on MySQL and MariaDB.

use sqlx::{Connection, MySqlConnection, Row};

use super::removal::record;
use super::upkeep::run;
use super::{BEGIN, MySql, end, ended, erase, error, rows};
use crate::chain::Hash;
use crate::error::{Error, Result};
use crate::store::Bucket;
use crate::store::list::List;
use crate::store::moving::{Arriving, Lists};

/// A connection whose one transaction holds the row of a bucket.
pub(in crate::store) struct Holding(MySqlConnection);

impl MySql {
    pub async fn place(&self, (zone_id, key): &Bucket) -> Result<Option<String>> {
        let mut lease = self.lease().await?;
        let call = "call zone_bucket_place(?, ?)";
        // The zone by its number, as text.
        let rows =
            rows(&mut lease, call, sqlx::query(call).bind(zone_id.to_string()).bind(key.clone()), 1).await;
        let row = ended(lease, rows)?.pop();
        let row = row.ok_or_else(|| Error::database("a bucket that was to be placed got no answer"))?;
        Ok(get!(row, "place"))
    }

    pub(in crate::store) async fn mark(&self, (zone_id, key): &Bucket, to: &str) -> Result<()> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(BEGIN).await.map_err(error)?;
        let mark = sqlx::query("call zone_bucket_mark(?, ?, ?, @place)").bind(zone_id).bind(key).bind(to);
        let marked = mark.execute(&mut *tx).await.map_err(error).map(drop);
        let marked = end(tx, marked).await;
        ended(lease, marked)
    }

    /// The row that upkeep removed is made before, so that others see it.
    pub(in crate::store) async fn hold(&self, (zone_id, key): &Bucket) -> Result<Holding> {
        let mut connection = self.lease().await?.detach();
        let open = sqlx::query("call zone_bucket_open(?, ?, true)").bind(zone_id).bind(key);
        open.execute(&mut connection).await.map_err(error)?;
        run(&mut connection, BEGIN).await?;
        erase::hold(&mut connection, *zone_id, key).await?;
        Ok(Holding(connection))
    }

    pub(in crate::store) async fn arrive(&self, arriving: &Arriving<'_>) -> Result<()> {
        let mut lease = self.lease().await?;
        let tx = lease.begin_with(BEGIN).await.map_err(error)?;
        let arrived = arrive(tx, arriving).await;
        ended(lease, arrived)
    }

    pub async fn open_moved(&self, (zone_id, key): &Bucket, was: &Hash, last: &Hash) -> Result<()> {
        let open = "update zone_bucket_lock set moved_to = null, moved_by = null, row_hash = ?
            where zone_id = ? and bucket_key = ? and row_hash = ?";
        let open = sqlx::query(open).bind(&last[..]).bind(zone_id).bind(key.as_bytes()).bind(&was[..]);
        open.execute(&mut *self.lease().await?).await.map_err(error).map(drop)
    }
}

impl Holding {
    pub async fn mark(mut self, (zone_id, key): &Bucket, to: &str, hash: &Hash) -> Result<()> {
        let mark = "update zone_bucket_lock set moved_to = ?, moved_by = user(), row_hash = ?
            where zone_id = ? and bucket_key = ?";
        let mark = sqlx::query(mark).bind(to).bind(&hash[..]).bind(zone_id).bind(key.as_bytes());
        mark.execute(&mut self.0).await.map_err(error)?;
        run(&mut self.0, "commit").await
    }
}

async fn arrive(mut tx: sqlx::Transaction<'_, sqlx::MySql>, arriving: &Arriving<'_>) -> Result<()> {
    let written = write(&mut tx, arriving).await;
    end(tx, written).await
}

async fn write(connection: &mut MySqlConnection, arriving: &Arriving<'_>) -> Result<()> {
    let (zone_id, key) = arriving.bucket;
    let Lists { dropped, rows, overrides, stands, head } = arriving.lists();
    let there = "select b.row_hash from zone_bucket_lock b
        where b.zone_id = ? and b.bucket_key = ? and b.moved_to is not null
        for update";
    let there = sqlx::query_scalar(there).bind(zone_id).bind(key.as_bytes());
    let there: Option<Vec<u8>> = there.fetch_optional(&mut *connection).await.map_err(error)?;
    arriving.is_still(there.as_deref())?;
    add(connection, include_str!("moving/dropped.sql"), dropped).await?;
    if let Some(removing) = arriving.removing() {
        record(connection, *zone_id, removing).await?;
    }
    add(connection, include_str!("moving/rows.sql"), rows).await?;
    add(connection, include_str!("moving/overrides.sql"), overrides).await?;
    if let Some(stands) = stands {
        for clear in [
            "delete from zone_hold where zone_id = ? and bucket_key = ?",
            "delete from zone_item where zone_id = ? and bucket_key = ?",
            "delete from zone_queue where zone_id = ? and bucket_key = ?",
        ] {
            let clear = sqlx::query(clear).bind(zone_id).bind(key.as_bytes());
            clear.execute(&mut *connection).await.map_err(error)?;
        }
        add(connection, include_str!("moving/holds.sql"), stands.holds).await?;
        add(connection, include_str!("moving/load.sql"), stands.load).await?;
        for items in stands.items {
            add(connection, include_str!("moving/items.sql"), items).await?;
        }
    }
    add(connection, include_str!("moving/head.sql"), head).await
}

async fn add(connection: &mut MySqlConnection, sql: &'static str, list: List) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    sqlx::query(sql).bind(list.json()).execute(connection).await.map_err(error).map(drop)
}
