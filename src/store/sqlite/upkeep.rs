//! Upkeep on SQLite: there are no partitions, so rows go one by one, in transactions that each take some of them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteQueryResult;
use sqlx::{Connection, Row};
use tokio::time::Instant;

use super::removal::record;
use super::{Sqlite, error, from_us, text, time, time_if};
use crate::decide::Override;
use crate::engine::{Action, What};
use crate::error::Result;
use crate::retry::Tries;
use crate::store::removal::Removing;
use crate::store::renewal::{Renewed, micros_between};
use crate::store::upkeep::{Facts, Maintained, Maintenance, Needed, Plan};
use crate::zone::Limit;

/// The number of rows that go at once: others wait for so long.
const ROWS: i64 = 1_000;

/// The time for which the file's write lock is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// ?1 the zone, in which a bucket without a row is nothing odd from then on; ?2 the time.
pub(super) const HEADS_GO: &str =
    "insert into zone_bucket_removed (zone_id, removed_at) values (?1, ?2) on conflict do nothing";

impl Sqlite {
    /// The time, and what is known of the zones.
    pub async fn facts(&self) -> Result<(DateTime<Utc>, Vec<Facts>)> {
        let now_us = self.clock.now_us();
        let rows = sqlx::query(include_str!("upkeep/facts.sql"))
            .bind(now_us)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        let facts = rows.iter().map(|row| {
            Ok(Facts {
                zone_id: get!(row, "id"),
                override_us: get!(row, "override_us"),
                open: time_if(row, "open")?,
                offered: time_if(row, "offered")?,
            })
        });
        Ok((from_us(now_us)?, facts.collect::<Result<_>>()?))
    }

    /// The records anew of what is in force in a zone and has its row before a time.
    pub async fn in_force(
        &self,
        zone: &Needed,
        from: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Action>> {
        let rows = sqlx::query(include_str!("upkeep/in_force.sql"))
            .bind(zone.zone_id)
            .bind(from.timestamp_micros())
            .bind(now.timestamp_micros());
        let rows = rows.fetch_all(&mut *self.lease().await?).await.map_err(error)?;
        rows.iter().map(|row| renewal!(row, zone, now)).collect()
    }

    pub async fn maintenance(&self) -> Result<Maintenance> {
        let finished = sqlx::query("select u.finished_at from zone_upkeep_lock u");
        let row = finished.fetch_one(&mut *self.lease().await?).await.map_err(error)?;
        Ok(Maintenance { finished_at: time_if(&row, "finished_at")?, partitions_until: None })
    }

    /// Any number may be at it at once: each step is whole, under the file's write lock.
    pub async fn maintain(&self, plan: &Plan) -> Result<Maintained> {
        let mut done = Maintained { dry_run: plan.dry_run, ..Maintained::default() };
        for zone in &plan.zones {
            let id = zone.zone_id;
            if let Some(from) = plan.keep_from {
                let us = from.timestamp_micros();
                done.rows_removed += if plan.dry_run {
                    let old = "select count(*) from zone_txn t where t.zone_id = ?1 and t.created_at < ?2";
                    self.count(old, id, us).await?
                } else {
                    self.announce(id, from).await?;
                    let steps =
                        [include_str!("upkeep/drop_record.sql"), include_str!("upkeep/drop_rows.sql")];
                    self.remove(&steps, id, us).await?
                };
            }
            if !plan.dry_run {
                let us = zone.since.timestamp_micros();
                done.holds_removed += self.remove(&[include_str!("upkeep/holds_remove.sql")], id, us).await?;
                self.step(&[include_str!("upkeep/holding_reset.sql")], id, us).await?;
            }
            if let Some(since) = plan.idle_since {
                let us = since.timestamp_micros();
                let idle = self.count(include_str!("upkeep/heads_count.sql"), id, us).await?;
                done.heads_removed += if plan.dry_run || idle == 0 {
                    idle
                } else {
                    // From then on who finds no row looks at the ledger.
                    self.step(&[HEADS_GO], id, self.clock.now_us()).await?;
                    self.remove(&[include_str!("upkeep/heads_remove.sql")], id, us).await?
                };
            }
        }
        if !plan.dry_run {
            let finished = "update zone_upkeep_lock set finished_at = ?2";
            self.step(&[finished], 0, self.clock.now_us()).await?;
        }
        Ok(done)
    }

    /// Records what is to go, before the first of it does, but for what a run was to remove that was cut off.
    async fn announce(&self, zone_id: i32, cut_at: DateTime<Utc>) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        Tries::new(64, until).run(|_| self.try_announce(zone_id, cut_at, until)).await
    }

    async fn try_announce(&self, zone_id: i32, cut_at: DateTime<Utc>, until: Instant) -> Result<()> {
        let _turn = self.turn(until).await?;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let row = sqlx::query(include_str!("upkeep/drop_count.sql"))
            .bind(zone_id)
            .bind(cut_at.timestamp_micros())
            .fetch_one(&mut *tx)
            .await
            .map_err(error)?;
        let [rows, buckets, told]: [i64; 3] =
            [get!(row, "ledger_rows"), get!(row, "buckets"), get!(row, "told")];
        if rows > told {
            let (buckets, rows) = (buckets.unsigned_abs(), (rows - told).unsigned_abs());
            let removing = Removing::Drop { cut_at, buckets, rows };
            record(&mut tx, zone_id, removing, self.clock.now_us()).await?;
        }
        tx.commit().await.map_err(error)
    }

    async fn count(&self, sql: &'static str, zone_id: i32, us: i64) -> Result<u64> {
        let count: i64 = sqlx::query_scalar(sql)
            .bind(zone_id)
            .bind(us)
            .fetch_one(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        Ok(count.unsigned_abs())
    }

    /// Runs the statements until the last of them finds nothing more to remove. Returns how much it removed.
    async fn remove(&self, statements: &[&'static str], zone_id: i32, us: i64) -> Result<u64> {
        let mut removed = 0;
        loop {
            let gone = self.step(statements, zone_id, us).await?;
            removed += gone;
            if gone == 0 {
                return Ok(removed);
            }
        }
    }

    /// Runs the statements in one transaction. Returns how many rows the last of them changed.
    async fn step(&self, statements: &[&'static str], zone_id: i32, us: i64) -> Result<u64> {
        let until = Instant::now() + PATIENCE;
        Tries::new(64, until).run(|_| self.try_step(statements, zone_id, us, until)).await
    }

    async fn try_step(
        &self,
        statements: &[&'static str],
        zone_id: i32,
        us: i64,
        until: Instant,
    ) -> Result<u64> {
        let _turn = self.turn(until).await?;
        let mut lease = self.lease().await?;
        let mut tx = lease.begin_with("begin immediate").await.map_err(error)?;
        let mut changed = SqliteQueryResult::default();
        for statement in statements {
            let query = sqlx::query(*statement).bind(zone_id).bind(us).bind(ROWS);
            changed = query.execute(&mut *tx).await.map_err(error)?;
        }
        tx.commit().await.map_err(error)?;
        Ok(changed.rows_affected())
    }
}
