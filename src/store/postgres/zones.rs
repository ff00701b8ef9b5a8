//! Zones on PostgreSQL.

use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};

use super::{Postgres, clock, error, time};
use crate::chain;
use crate::error::{Error, Result};
use crate::store::{Found, ZoneRemoved, hash_of, spans_of};
use crate::zone::{BanRule, Calendar, Policy, Queueing, Sharing, Zone, ZoneSetting, ZoneVersion};

zone_reads!(Postgres, PgRow);

impl Postgres {
    pub async fn called_in_sql(&self, zone_id: i32, within_us: i64) -> Result<bool> {
        let called = sqlx::query_scalar(include_str!("called_in_sql.sql")).bind(zone_id).bind(within_us);
        called.fetch_one(&mut *self.lease().await?).await.map_err(error)
    }

    pub async fn find_zone_in(&self, connection: &mut PgConnection, name: &str) -> Result<Option<Found>> {
        let find = sqlx::query(include_str!("zone_find.sql")).bind(name);
        let row = find.fetch_optional(connection).await.map_err(error)?;
        row.as_ref().map(found).transpose()
    }

    pub async fn set_zones(&self, settings: &[ZoneSetting], by: &str) -> Result<Vec<Zone>> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin().await.map_err(error)?;
        let mut zones = Vec::with_capacity(settings.len());
        for setting in settings {
            zones.push(set_zone(&mut tx, setting, by).await?);
        }
        tx.commit().await.map_err(error)?;
        Ok(zones)
    }

    pub async fn copy_zone(&self, zone: &Zone, versions: &[ZoneVersion]) -> Result<()> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin().await.map_err(error)?;
        for version in versions {
            copy_version(&mut tx, zone, version).await?;
        }
        tx.commit().await.map_err(error)
    }

    /// The first check of a bucket makes its row. With the table of those rows locked, each that has come before is
    /// seen, and each that comes later waits and finds no zone.
    pub async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin isolation level read committed").await.map_err(error)?;
        for statement in [
            // Checks of every zone wait behind this one, so it gives up soon and is tried again.
            "set local lock_timeout = '100ms'",
            "lock table zone_bucket_lock in share row exclusive mode",
            "set local lock_timeout = '5s'",
            // Of Citus, for what is on every node; elsewhere nobody reads it.
            "set local citus.multi_shard_modify_mode = 'sequential'",
        ] {
            sqlx::query(statement).execute(&mut *tx).await.map_err(error)?;
        }
        let Some(Zone { id, .. }) = lock_zone(&mut tx, name).await? else { return Ok(ZoneRemoved::Unknown) };
        let used = sqlx::query_scalar(include_str!("zone_used.sql")).bind(id);
        if used.fetch_one(&mut *tx).await.map_err(error)? {
            return Ok(ZoneRemoved::Used);
        }
        for statement in [
            "delete from zone_bucket_removed where zone_id = $1",
            "delete from zone_calendar where zone_id = $1",
            "delete from zone_version where zone_id = $1",
            "delete from zone_master where id = $1",
        ] {
            sqlx::query(statement).bind(id).execute(&mut *tx).await.map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
        Ok(ZoneRemoved::Removed)
    }
}

async fn set_zone(tx: &mut PgConnection, setting: &ZoneSetting, by: &str) -> Result<Zone> {
    let ZoneSetting { name, policy, description } = setting;
    let now = clock(tx).await?;
    let add = sqlx::query(include_str!("zone_add.sql")).bind(name).bind(description);
    bind_policy!(add, policy).bind(now).execute(&mut *tx).await.map_err(error)?;
    let gone = || Error::transient(format!("zone {name:?} was removed meanwhile; try again"));
    let mut zone = lock_zone(tx, name).await?.ok_or_else(gone)?;
    if setting.changes(&zone)? {
        let policy = policy.after(&zone.policy);
        let set = sqlx::query(include_str!("zone_set.sql"));
        let set = set.bind(description.as_ref().unwrap_or(&zone.description));
        // After the lock, and beside the statement: what is on every node of Citus is set to values only.
        let now = clock(tx).await?;
        bind_policy!(set, policy).bind(zone.id).bind(now).execute(&mut *tx).await.map_err(error)?;
        zone = lock_zone(tx, name).await?.ok_or_else(gone)?;
    }
    keep_version!(
        tx,
        zone,
        by,
        "select session_user::text",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(zone)
}

/// Unless the zone is as far already.
async fn copy_version(tx: &mut PgConnection, of: &Zone, version: &ZoneVersion) -> Result<()> {
    let there = lock_zone(tx, &of.name).await?;
    if there.is_some_and(|there| there.version >= version.version) {
        return Ok(());
    }
    let copy =
        sqlx::query(include_str!("zone_copy.sql")).bind(of.id).bind(&of.name).bind(&version.description);
    bind_policy!(copy, &version.policy)
        .bind(version.version)
        .bind(of.created_at)
        .bind(version.changed_at)
        .execute(&mut *tx)
        .await
        .map_err(error)?;
    // Numbers that zones are given here come after it.
    let behind = "select pg_catalog.nextval(pg_catalog.pg_get_serial_sequence('zone_master', 'id'))";
    while sqlx::query_scalar::<_, i64>(behind).fetch_one(&mut *tx).await.map_err(error)? < i64::from(of.id) {}
    let gone = || Error::transient(format!("zone {:?} was removed meanwhile; try again", of.name));
    let zone = lock_zone(tx, &of.name).await?.ok_or_else(gone)?;
    let by = &version.changed_by;
    keep_version!(
        tx,
        zone,
        by,
        "select session_user::text",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(())
}

async fn lock_zone(tx: &mut PgConnection, name: &str) -> Result<Option<Zone>> {
    let row =
        sqlx::query(include_str!("zone_lock.sql")).bind(name).fetch_optional(tx).await.map_err(error)?;
    row.as_ref().map(zone).transpose()
}
