//! Zones on MySQL and MariaDB.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{Connection, MySqlConnection, Row};
use tokio::time::Instant;

use super::{BEGIN, MySql, called, clock, error, time};
use crate::chain;
use crate::error::{Error, Result};
use crate::store::{Found, ZoneRemoved, hash_of, spans_of};
use crate::zone::{BanRule, Calendar, Durability, Policy, Queueing, Sharing, Zone, ZoneSetting, ZoneVersion};

/// The time for which a change waits for the nodes of a cluster that do not answer.
const EVERY_NODE: Duration = Duration::from_secs(3);

zone_reads!(MySql, MySqlRow);

impl MySql {
    pub async fn called_in_sql(&self, zone_id: i32, within_us: i64) -> Result<bool> {
        let called = sqlx::query_scalar(include_str!("called_in_sql.sql")).bind(zone_id).bind(within_us);
        called.fetch_one(&mut *self.lease().await?).await.map_err(error)
    }

    pub async fn find_zone_in(&self, connection: &mut MySqlConnection, name: &str) -> Result<Option<Found>> {
        let call = "call zone_find(?)";
        let rows = called(connection, call, sqlx::query(call).bind(name)).await?;
        rows.first().map(found).transpose()
    }

    pub async fn set_zones(&self, settings: &[ZoneSetting], by: &str) -> Result<Vec<Zone>> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(BEGIN).await.map_err(error)?;
        let mut zones = Vec::with_capacity(settings.len());
        for setting in settings {
            zones.push(set_zone(&mut tx, setting, by).await?);
        }
        tx.commit().await.map_err(error)?;
        // A node that decides by itself decides by what it was sent: it has the change before that is acknowledged.
        self.connections.catch_up(Instant::now() + EVERY_NODE).await;
        Ok(zones)
    }

    pub async fn copy_zone(&self, zone: &Zone, versions: &[ZoneVersion]) -> Result<()> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(BEGIN).await.map_err(error)?;
        for version in versions {
            copy_version(&mut tx, zone, version).await?;
        }
        tx.commit().await.map_err(error)
    }

    /// The first check of a bucket makes its row. With the place of the zone's rows locked, each that has come before
    /// is seen, and each that comes later waits and finds no zone. Buckets first, as checks do.
    pub async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        let mut lease = self.lease().await?;
        let Some(Found { id, .. }) = self.find_zone_in(&mut lease, name).await? else {
            return Ok(ZoneRemoved::Unknown);
        };
        // Under this level a place where nothing is can be locked.
        let begin = "set transaction isolation level repeatable read; start transaction";
        let mut tx = lease.begin_with(begin).await.map_err(error)?;
        let buckets = "select b.seq from zone_bucket_lock b where b.zone_id = ? limit 1 for update";
        let buckets = sqlx::query(buckets).bind(id).fetch_all(&mut *tx).await.map_err(error)?;
        if lock_zone(&mut tx, name).await?.is_none_or(|zone| zone.id != id) {
            return Err(Error::transient(format!("zone {name:?} was removed meanwhile; try again")));
        }
        // The first look without a lock, so that it sees all that was committed up to now.
        let used = sqlx::query_scalar(include_str!("zone_used.sql")).bind(id);
        if !buckets.is_empty() || used.fetch_one(&mut *tx).await.map_err(error)? {
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

async fn set_zone(tx: &mut MySqlConnection, setting: &ZoneSetting, by: &str) -> Result<Zone> {
    let ZoneSetting { name, policy, description } = setting;
    keeps(policy)?;
    let now = clock(tx).await?.naive_utc();
    let add = sqlx::query(include_str!("zone_add.sql")).bind(name).bind(description);
    bind_policy!(add, policy).bind(now).execute(&mut *tx).await.map_err(error)?;
    let gone = || Error::transient(format!("zone {name:?} was removed meanwhile; try again"));
    let mut zone = lock_zone(tx, name).await?.ok_or_else(gone)?;
    if setting.changes(&zone)? {
        let policy = policy.after(&zone.policy);
        let set = sqlx::query(include_str!("zone_set.sql"));
        let set = set.bind(description.as_ref().unwrap_or(&zone.description));
        // After the lock.
        let now = clock(tx).await?.naive_utc();
        bind_policy!(set, policy).bind(now).bind(zone.id).execute(&mut *tx).await.map_err(error)?;
        zone = lock_zone(tx, name).await?.ok_or_else(gone)?;
    }
    keep_version!(
        tx,
        zone,
        by,
        "select user()",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(zone)
}

/// Unless the zone is as far already.
async fn copy_version(tx: &mut MySqlConnection, of: &Zone, version: &ZoneVersion) -> Result<()> {
    keeps(&version.policy)?;
    match lock_zone(tx, &of.name).await? {
        Some(there) if there.version >= version.version => return Ok(()),
        Some(there) => {
            let set = sqlx::query(include_str!("zone_set.sql")).bind(&version.description);
            let set = bind_policy!(set, &version.policy).bind(version.changed_at.naive_utc()).bind(there.id);
            set.execute(&mut *tx).await.map_err(error)?;
        }
        None => {
            let copy = sqlx::query(include_str!("zone_copy.sql"));
            let copy = copy.bind(of.id).bind(&of.name).bind(&version.description);
            bind_policy!(copy, &version.policy)
                .bind(version.version)
                .bind(of.created_at.naive_utc())
                .bind(version.changed_at.naive_utc())
                .execute(&mut *tx)
                .await
                .map_err(error)?;
        }
    }
    let gone = || Error::transient(format!("zone {:?} was removed meanwhile; try again", of.name));
    let zone = lock_zone(tx, &of.name).await?.ok_or_else(gone)?;
    let by = &version.changed_by;
    keep_version!(
        tx,
        zone,
        by,
        "select user()",
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(())
}

pub(in crate::store) fn keeps(policy: &Policy) -> Result<()> {
    match policy.durability() {
        Durability::Durable => Ok(()),
        _ => Err(Error::invalid(
            "on MySQL and MariaDB a single zone cannot be relaxed; set innodb_flush_log_at_trx_commit for the whole \
             server, or leave the zone durable",
        )),
    }
}

async fn lock_zone(connection: &mut MySqlConnection, name: &str) -> Result<Option<Zone>> {
    let rows =
        sqlx::query(include_str!("zone_lock.sql")).bind(name).fetch_all(connection).await.map_err(error)?;
    rows.first().map(zone).transpose()
}
