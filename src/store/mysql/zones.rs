//! Zones on MySQL and MariaDB.

use sqlx::mysql::MySqlRow;
use sqlx::{Connection, MySqlConnection, Row};

use super::{MySql, error, time};
use crate::error::{Error, Result};
use crate::zone::{Durability, Policy, Zone, ZoneVersion};

impl MySql {
    pub async fn set_zone(
        &self,
        name: &str,
        policy: &Policy,
        description: Option<&str>,
        by: &str,
    ) -> Result<Zone> {
        if policy.durability() != Durability::Durable {
            return Err(Error::invalid(
                "on MySQL and MariaDB a single zone cannot be relaxed; set innodb_flush_log_at_trx_commit for the whole \
                 server, or leave the zone durable",
            ));
        }
        let begin = "set transaction isolation level read committed; start transaction";
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with(begin).await.map_err(error)?;
        sqlx::query(include_str!("zone_add.sql"))
            .bind(name)
            .bind(description)
            .bind(policy.algorithm().as_str())
            .bind(policy.rate())
            .bind(policy.window_us())
            .bind(policy.burst())
            .bind(policy.gcd())
            .bind(policy.durability().as_str())
            .bind(policy.blocked_rows().as_str())
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        let mut zone = lock_zone(&mut tx, name).await?;
        let description = description.unwrap_or(&zone.description);
        if zone.policy != *policy || zone.description != description {
            sqlx::query(include_str!("zone_set.sql"))
                .bind(description)
                .bind(policy.algorithm().as_str())
                .bind(policy.rate())
                .bind(policy.window_us())
                .bind(policy.burst())
                .bind(policy.gcd())
                .bind(policy.durability().as_str())
                .bind(policy.blocked_rows().as_str())
                .bind(zone.id)
                .execute(&mut *tx)
                .await
                .map_err(error)?;
            zone = lock_zone(&mut tx, name).await?;
        }
        sqlx::query(include_str!("zone_version_add.sql"))
            .bind(by)
            .bind(zone.id)
            .execute(&mut *tx)
            .await
            .map_err(error)?;
        tx.commit().await.map_err(error)?;
        Ok(zone)
    }

    pub async fn zones(&self) -> Result<Vec<Zone>> {
        let rows = sqlx::query(include_str!("zones.sql"))
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(zone).collect()
    }

    pub async fn zone(&self, name: &str) -> Result<Option<Zone>> {
        let rows = sqlx::query(include_str!("zone.sql"))
            .bind(name)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.first().map(zone).transpose()
    }

    pub async fn zone_versions(&self, zone_id: i32) -> Result<Vec<ZoneVersion>> {
        let rows = sqlx::query(include_str!("zone_versions.sql"))
            .bind(zone_id)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows.iter().map(|row| zone_version!(row)).collect()
    }
}

async fn lock_zone(connection: &mut MySqlConnection, name: &str) -> Result<Zone> {
    let rows =
        sqlx::query(include_str!("zone_lock.sql")).bind(name).fetch_all(connection).await.map_err(error)?;
    rows.first()
        .map(zone)
        .transpose()?
        .ok_or_else(|| Error::database(format!("zone {name:?} was not stored")))
}

fn zone(row: &MySqlRow) -> Result<Zone> {
    zone!(row)
}
