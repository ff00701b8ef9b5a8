//! Zones on MySQL and MariaDB.

use sqlx::mysql::MySqlRow;
use sqlx::{Connection, MySqlConnection, Row};

use super::{MySql, error, time};
use crate::chain;
use crate::error::{Error, Result};
use crate::store::{Setting, clock_of, hash_of, spans_of};
use crate::zone::{BanRule, Calendar, Durability, Policy, Zone, ZoneVersion};

zone_reads!(MySql, MySqlRow);

impl MySql {
    pub async fn set_zones(&self, settings: &[Setting], by: &str) -> Result<Vec<Zone>> {
        let begin = "set transaction isolation level read committed; start transaction";
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(begin).await.map_err(error)?;
        let mut zones = Vec::with_capacity(settings.len());
        for setting in settings {
            zones.push(set_zone(&mut tx, setting, by).await?);
        }
        tx.commit().await.map_err(error)?;
        Ok(zones)
    }
}

async fn set_zone(tx: &mut MySqlConnection, setting: &Setting, by: &str) -> Result<Zone> {
    let Setting { name, policy, description } = setting;
    if policy.durability() != Durability::Durable {
        return Err(Error::invalid(
            "on MySQL and MariaDB a single zone cannot be relaxed; set innodb_flush_log_at_trx_commit for the whole \
             server, or leave the zone durable",
        ));
    }
    let add = sqlx::query(include_str!("zone_add.sql")).bind(name).bind(description);
    bind_policy!(add, policy).execute(&mut *tx).await.map_err(error)?;
    let mut zone = lock_zone(tx, name).await?;
    if setting.changes(&zone) {
        let set = sqlx::query(include_str!("zone_set.sql"));
        let set = set.bind(description.as_ref().unwrap_or(&zone.description));
        bind_policy!(set, policy).bind(zone.id).execute(&mut *tx).await.map_err(error)?;
        zone = lock_zone(tx, name).await?;
    }
    keep_version!(
        tx,
        zone,
        by,
        include_str!("zone_version_last.sql"),
        include_str!("zone_version_add.sql"),
        include_str!("zone_calendar_add.sql")
    );
    Ok(zone)
}

async fn lock_zone(connection: &mut MySqlConnection, name: &str) -> Result<Zone> {
    let rows =
        sqlx::query(include_str!("zone_lock.sql")).bind(name).fetch_all(connection).await.map_err(error)?;
    rows.first()
        .map(zone)
        .transpose()?
        .ok_or_else(|| Error::database(format!("zone {name:?} was not stored")))
}
