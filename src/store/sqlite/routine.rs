//! The routines that the project grew from, as the core answers them.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};
use uuid::Uuid;

use super::zones::set_zone;
use super::{Sqlite, error, text};
use crate::decision::{Decision, Velocity};
use crate::engine::{Passing, Request};
use crate::error::{Error, Result};
use crate::store::Terms;
use crate::zone::{Policy, ZoneSetting};

async fn is_of_several(connection: &mut SqliteConnection) -> Result<bool> {
    let named = sqlx::query_scalar("select exists (select 1 from tallygate_shard)");
    named.fetch_one(connection).await.map_err(error)
}

impl Sqlite {
    pub async fn check_velocity(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Velocity> {
        alone!(self, terms, tx => self.check_velocity_in(&mut tx, zone_id, key).await)
    }

    pub async fn check_velocity_in(
        &self,
        connection: &mut SqliteConnection,
        zone_id: i32,
        key: &str,
    ) -> Result<Velocity> {
        let decision = self.check_once(connection, zone_id, key).await?;
        let query = sqlx::query(include_str!("check_velocity.sql")).bind(zone_id).bind(key);
        let query = query.bind(decision.decided_at.timestamp_micros()).bind(decision.seq);
        velocity(&query.fetch_one(connection).await.map_err(error)?)
    }

    pub async fn rate_limiting_request(
        &self,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
        terms: Terms,
    ) -> Result<i64> {
        alone!(self, terms, tx => {
            self.rate_limiting_request_in(&mut tx, rate_id, refill_per_sec, window_seconds).await
        })
    }

    pub async fn rate_limiting_request_in(
        &self,
        connection: &mut SqliteConnection,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> Result<i64> {
        let name = format!("rate_limiting_request {refill_per_sec}/s for {window_seconds} s");
        let zone_id = match self.find_zone_in(connection, &name).await? {
            Some(found) => found.id,
            None if is_of_several(connection).await? => {
                return Err(Error::invalid(
                    "one of several databases makes no zone alone; use a zone that is set in all of them",
                ));
            }
            None => {
                let (rate, seconds) = (i64::from(refill_per_sec), i64::from(window_seconds));
                let policy = Policy::token_bucket(rate, Duration::from_secs(1), Some(rate * seconds))?;
                let by = "rate_limiting_request";
                let setting = ZoneSetting { name, policy, description: Some(format!("made by {by}")) };
                set_zone(connection, &setting, by, self.clock.now_us()).await?.id
            }
        };
        let decision = self.check_once(connection, zone_id, rate_id).await?;
        Ok(if decision.blocked { -1 } else { decision.remaining })
    }

    /// One check of cost 1, under a transaction id made for it.
    async fn check_once(
        &self,
        connection: &mut SqliteConnection,
        zone_id: i32,
        key: &str,
    ) -> Result<Decision> {
        let request = Request {
            zone: String::new(),
            zone_id,
            key: key.to_owned(),
            txn: Uuid::now_v7(),
            cost: 1,
            fresh: true,
            record: true,
            critical: false,
            member: None,
            ttl_us: None,
            shape: None,
        };
        let mut decisions = self.decide_in(connection, &[request], Passing::Each).await?;
        decisions.pop().ok_or_else(|| Error::database("the database gave no decision"))
    }
}

fn velocity(row: &SqliteRow) -> Result<Velocity> {
    velocity!(row)
}
