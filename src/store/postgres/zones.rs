//! Zones on PostgreSQL.

use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};

use super::{Postgres, error, time};
use crate::chain;
use crate::error::Result;
use crate::store::{Setting, clock_of, hash_of, spans_of};
use crate::zone::{BanRule, Calendar, Policy, Zone, ZoneVersion};

zone_reads!(Postgres, PgRow);

impl Postgres {
    pub async fn set_zones(&self, settings: &[Setting], by: &str) -> Result<Vec<Zone>> {
        let mut lease = self.lease().await?;
        let mut tx = lease.begin().await.map_err(error)?;
        let mut zones = Vec::with_capacity(settings.len());
        for setting in settings {
            zones.push(set_zone(&mut tx, setting, by).await?);
        }
        tx.commit().await.map_err(error)?;
        Ok(zones)
    }
}

async fn set_zone(tx: &mut PgConnection, setting: &Setting, by: &str) -> Result<Zone> {
    let Setting { name, policy, description } = setting;
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

async fn lock_zone(tx: &mut PgConnection, name: &str) -> Result<Zone> {
    let row = sqlx::query(include_str!("zone_lock.sql")).bind(name).fetch_one(tx).await.map_err(error)?;
    zone(&row)
}
