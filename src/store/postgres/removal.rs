//! Removals by owners from the ledger, on PostgreSQL.

use sqlx::{PgConnection, Row};

use super::{clock, error, time};
use crate::error::{Error, Result};
use crate::store::hash_of;
use crate::store::removal::{Before, Removal, Removing};

/// Records a removal behind the last one of the zone. One owner is at work at a time.
pub(super) async fn record(
    connection: &mut PgConnection,
    zone_id: i32,
    removing: Removing<'_>,
) -> Result<Removal> {
    let now = clock(connection).await?;
    let row = sqlx::query(include_str!("removal/last.sql"))
        .bind(zone_id)
        .bind(now)
        .fetch_one(&mut *connection)
        .await
        .map_err(error)?;
    let removal = removing.after(zone_id, before_removal!(row));
    sqlx::query(include_str!("removal/add.sql"))
        .bind(zone_id)
        .bind(removal.seq)
        .bind(&removal.kind)
        .bind(removal.removed_at)
        .bind(removal.cut_at)
        .bind(&removal.bucket_key)
        .bind(removal.buckets)
        .bind(removal.ledger_rows)
        .bind(&removal.actor)
        .bind(&removal.note)
        .bind(&removal.row_hash[..])
        .execute(connection)
        .await
        .map_err(error)?;
    Ok(removal)
}
