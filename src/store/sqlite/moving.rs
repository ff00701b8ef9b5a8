//! Moving buckets on SQLite.

use sqlx::{Connection, SqliteConnection};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::erase::PATIENCE;
use super::removal::record;
use super::statement::rows;
use super::{Sqlite, error};
use crate::chain::{self, End, Hash};
use crate::error::{Error, Result};
use crate::shard::home;
use crate::store::moving::{Arriving, Lists};
use crate::store::{Bucket, StoredHead, moving};

/// A connection whose one transaction has the file's write lock.
pub(in crate::store) struct Holding<'s> {
    connection: SqliteConnection,
    _turn: MutexGuard<'s, ()>,
}

impl Sqlite {
    pub async fn place(&self, bucket: &Bucket) -> Result<Option<String>> {
        self.marked(bucket, None).await
    }

    pub(in crate::store) async fn mark(&self, bucket: &Bucket, to: &str) -> Result<()> {
        self.marked(bucket, Some(to)).await.map(drop)
    }

    /// Under the file's write lock. Where it is not given, `to` is where the key will belong; a bucket that belongs here begins.
    async fn marked(&self, bucket: &Bucket, to: Option<&str>) -> Result<Option<String>> {
        let _turn = self.turn(Instant::now() + PATIENCE).await?;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let place = marked(&mut tx, bucket, to).await?;
        tx.commit().await.map_err(error)?;
        Ok(place)
    }

    /// The row that upkeep removed is made before, so that others see it.
    pub(in crate::store) async fn hold(&self, (zone_id, key): &Bucket) -> Result<Holding<'_>> {
        let turn = self.turn(Instant::now() + PATIENCE).await?;
        let mut connection = self.lease().await?.detach();
        let open = sqlx::query(include_str!("moving/open.sql")).bind(zone_id).bind(key);
        open.execute(&mut connection).await.map_err(error)?;
        sqlx::query("begin immediate").execute(&mut connection).await.map_err(error)?;
        Ok(Holding { connection, _turn: turn })
    }

    pub(in crate::store) async fn arrive(&self, arriving: &Arriving<'_>) -> Result<()> {
        let _turn = self.turn(Instant::now() + PATIENCE).await?;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        write(&mut tx, arriving, self.clock.now_us()).await?;
        tx.commit().await.map_err(error)
    }

    pub async fn open_moved(&self, (zone_id, key): &Bucket, was: &Hash, last: &Hash) -> Result<()> {
        let _turn = self.turn(Instant::now() + PATIENCE).await?;
        let open = "update zone_bucket_lock set moved_to = null, row_hash = ?4
            where zone_id = ?1 and bucket_key = ?2 and row_hash = ?3";
        let open = sqlx::query(open).bind(zone_id).bind(key).bind(&was[..]).bind(&last[..]);
        open.execute(&mut *self.lease().await?).await.map_err(error).map(drop)
    }
}

impl Holding<'_> {
    pub async fn mark(mut self, (zone_id, key): &Bucket, to: &str, hash: &Hash) -> Result<()> {
        let mark =
            "update zone_bucket_lock set moved_to = ?3, row_hash = ?4 where zone_id = ?1 and bucket_key = ?2";
        let mark = sqlx::query(mark).bind(zone_id).bind(key).bind(to).bind(&hash[..]);
        mark.execute(&mut self.connection).await.map_err(error)?;
        sqlx::query("commit").execute(&mut self.connection).await.map_err(error).map(drop)
    }
}

/// Rows move their head by a trigger, from where it stands when the first of them comes; then it says the rest.
async fn write(connection: &mut SqliteConnection, arriving: &Arriving<'_>, now_us: i64) -> Result<()> {
    let (zone_id, key) = arriving.bucket;
    let Lists { dropped, rows: ledger, overrides, stands, head } = arriving.lists();
    let there = "select b.row_hash from zone_bucket_lock b
        where b.zone_id = ?1 and b.bucket_key = ?2 and b.moved_to is not null";
    let there = sqlx::query_scalar(there).bind(zone_id).bind(key);
    let there: Option<Vec<u8>> = there.fetch_optional(&mut *connection).await.map_err(error)?;
    arriving.is_still(there.as_deref())?;
    if let Some(left) = arriving.dropped {
        let begin = StoredHead { moved_to: arriving.head.moved_to.clone(), ..left.clone() };
        rows(connection, include_str!("moving/head.sql"), moving::head(*zone_id, key, &begin)).await?;
    } else if arriving.begins {
        let made_by_row = sqlx::query("delete from zone_bucket_lock where zone_id = ?1 and bucket_key = ?2");
        made_by_row.bind(zone_id).bind(key).execute(&mut *connection).await.map_err(error)?;
    }
    rows(connection, include_str!("moving/dropped.sql"), dropped).await?;
    if let Some(removing) = arriving.removing() {
        record(connection, *zone_id, removing, now_us).await?;
    }
    rows(connection, include_str!("moving/rows.sql"), ledger).await?;
    rows(connection, include_str!("override_add.sql"), overrides).await?;
    if let Some(stands) = stands {
        for clear in [
            "delete from zone_hold where zone_id = ?1 and bucket_key = ?2",
            "delete from zone_item where zone_id = ?1 and bucket_key = ?2",
            "delete from zone_queue where zone_id = ?1 and bucket_key = ?2",
        ] {
            let clear = sqlx::query(clear).bind(zone_id).bind(key);
            clear.execute(&mut *connection).await.map_err(error)?;
        }
        rows(connection, include_str!("holds_add.sql"), stands.holds).await?;
        rows(connection, include_str!("moving/load.sql"), stands.load).await?;
        for items in stands.items {
            rows(connection, include_str!("moving/items.sql"), items).await?;
        }
    }
    rows(connection, include_str!("moving/head.sql"), head).await.map(drop)
}

async fn marked(
    connection: &mut SqliteConnection,
    (zone_id, key): &Bucket,
    to: Option<&str>,
) -> Result<Option<String>> {
    let begun = "delete from zone_bucket_lock where zone_id = ?1 and bucket_key = ?2 and seq = 0 and moved_to is null";
    sqlx::query(begun).bind(zone_id).bind(key).execute(&mut *connection).await.map_err(error)?;
    let head = "select b.moved_to from zone_bucket_lock b where b.zone_id = ?1 and b.bucket_key = ?2";
    let head = sqlx::query_scalar(head).bind(zone_id).bind(key);
    let head: Option<Option<String>> = head.fetch_optional(&mut *connection).await.map_err(error)?;
    if let Some(moved_to) = head {
        return Ok(moved_to);
    }
    let salt = sqlx::query_scalar(include_str!("erase/salt.sql")).bind(zone_id).bind(key);
    let salt: Option<Vec<u8>> = salt.fetch_one(&mut *connection).await.map_err(error)?;
    if salt.is_some() {
        return Ok(None);
    }
    let shard = sqlx::query_as("select s.name, s.will from tallygate_shard s");
    let shard: Option<(String, String)> = shard.fetch_optional(&mut *connection).await.map_err(error)?;
    let will = shard.as_ref().map(|(name, will)| (name, home(will, key))).filter(|(name, will)| name != will);
    let to = to.or(will.map(|(_, will)| will));
    let end = End::new(*zone_id, key);
    let mark = sqlx::query(include_str!("moving/mark.sql"))
        .bind(zone_id)
        .bind(key)
        .bind(end.salt.as_ref().map(|salt| &salt[..]))
        .bind(to.map_or(end.hash, |to| chain::moved(&end.hash, to)).to_vec())
        .bind(to);
    match mark.execute(connection).await.map_err(error)?.rows_affected() {
        0 => Err(Error::unknown_zone(format!(
            "there is no zone {zone_id}; list them with: tallygate zone list"
        ))),
        _ => Ok(to.map(str::to_owned)),
    }
}
