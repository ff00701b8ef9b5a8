//! Zones on SQLite.

use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};

use super::{Sqlite, error, time};
use crate::chain;
use crate::error::Result;
use crate::store::{Found, ZoneRemoved, hash_of, spans_of};
use crate::zone::{BanRule, Calendar, Policy, Queueing, Sharing, Zone, ZoneSetting, ZoneVersion};

zone_reads!(Sqlite, SqliteRow);

impl Sqlite {
    pub async fn set_zones(&self, settings: &[ZoneSetting], by: &str) -> Result<Vec<Zone>> {
        let _turn = self.writer.lock().await;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let mut zones = Vec::with_capacity(settings.len());
        for setting in settings {
            zones.push(set_zone(&mut tx, setting, by, self.clock.now_us()).await?);
        }
        tx.commit().await.map_err(error)?;
        Ok(zones)
    }

    pub async fn copy_zone(&self, zone: &Zone, versions: &[ZoneVersion]) -> Result<()> {
        let _turn = self.writer.lock().await;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        for version in versions {
            copy_version(&mut tx, zone, version).await?;
        }
        tx.commit().await.map_err(error)
    }

    /// There are no routines.
    pub async fn called_in_sql(&self, _zone_id: i32, _within_us: i64) -> Result<bool> {
        Ok(false)
    }

    pub async fn find_zone_in(&self, connection: &mut SqliteConnection, name: &str) -> Result<Option<Found>> {
        let find = sqlx::query(include_str!("zone_find.sql")).bind(name);
        let row = find.fetch_optional(connection).await.map_err(error)?;
        row.as_ref().map(found).transpose()
    }
}

impl Sqlite {
    /// Nobody checks meanwhile: checks write, too.
    pub async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        let _turn = self.writer.lock().await;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let Some(Found { id, .. }) = self.find_zone_in(&mut tx, name).await? else {
            return Ok(ZoneRemoved::Unknown);
        };
        let used = sqlx::query_scalar(include_str!("zone_used.sql")).bind(id);
        if used.fetch_one(&mut *tx).await.map_err(error)? {
            return Ok(ZoneRemoved::Used);
        }
        for statement in [
            "delete from zone_bucket_removed where zone_id = ?",
            "delete from zone_calendar where zone_id = ?",
            "delete from zone_version where zone_id = ?",
            "delete from zone_master where id = ?",
        ] {
            sqlx::query(statement).bind(id).execute(&mut *tx).await.map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
        Ok(ZoneRemoved::Removed)
    }
}

pub(super) async fn set_zone(
    tx: &mut SqliteConnection,
    setting: &ZoneSetting,
    by: &str,
    now_us: i64,
) -> Result<Zone> {
    let ZoneSetting { name, policy, description } = setting;
    let add = sqlx::query(include_str!("zone_add.sql")).bind(name).bind(description);
    bind_policy!(add, policy).bind(now_us).execute(&mut *tx).await.map_err(error)?;
    let mut zone = stored_zone(tx, name).await?;
    if setting.changes(&zone)? {
        let policy = policy.after(&zone.policy);
        let set = sqlx::query(include_str!("zone_set.sql"));
        let set = set.bind(description.as_ref().unwrap_or(&zone.description));
        bind_policy!(set, policy).bind(now_us).bind(zone.id).execute(&mut *tx).await.map_err(error)?;
        zone = stored_zone(tx, name).await?;
    }
    keep_version!(
        tx,
        zone,
        by,
        "select null",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(zone)
}

/// Unless the zone is as far already.
async fn copy_version(tx: &mut SqliteConnection, of: &Zone, version: &ZoneVersion) -> Result<()> {
    let row =
        sqlx::query(include_str!("zone.sql")).bind(&of.name).fetch_optional(&mut *tx).await.map_err(error)?;
    let there = row.as_ref().map(zone).transpose()?;
    if there.is_some_and(|there| there.version >= version.version) {
        return Ok(());
    }
    let copy =
        sqlx::query(include_str!("zone_copy.sql")).bind(of.id).bind(&of.name).bind(&version.description);
    bind_policy!(copy, &version.policy)
        .bind(version.version)
        .bind(of.created_at.timestamp_micros())
        .bind(version.changed_at.timestamp_micros())
        .execute(&mut *tx)
        .await
        .map_err(error)?;
    let zone = stored_zone(tx, &of.name).await?;
    let by = &version.changed_by;
    keep_version!(
        tx,
        zone,
        by,
        "select null",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(())
}

/// Nobody else writes, so there is nothing to lock.
async fn stored_zone(tx: &mut SqliteConnection, name: &str) -> Result<Zone> {
    let row = sqlx::query(include_str!("zone.sql")).bind(name).fetch_one(tx).await.map_err(error)?;
    zone(&row)
}
