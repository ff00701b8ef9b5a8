//! The routines that the project grew from, called on PostgreSQL.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, Row};

use super::check::Owner;
use super::{Postgres, end, error, text};
use crate::decision::Velocity;
use crate::error::Result;
use crate::store::{Isolation, Terms};

impl Postgres {
    pub async fn check_velocity(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Velocity> {
        let query = check_velocity(zone_id, key, Owner::by(terms).lock_wait_ms());
        velocity(&self.call(query, terms).await?)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn check_velocity_in(
        &self,
        connection: &mut PgConnection,
        zone_id: i32,
        key: &str,
    ) -> Result<Velocity> {
        let query = check_velocity(zone_id, key, None);
        velocity(&query.fetch_one(connection).await.map_err(error)?)
    }

    pub async fn rate_limiting_request(
        &self,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
        terms: Terms,
    ) -> Result<i64> {
        let wait_ms = Owner::by(terms).lock_wait_ms();
        let query = rate_limiting_request(rate_id, refill_per_sec, window_seconds, wait_ms);
        tokens(&self.call(query, terms).await?)
    }

    /// The caller's own `lock_timeout` holds.
    pub async fn rate_limiting_request_in(
        &self,
        connection: &mut PgConnection,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> Result<i64> {
        let query = rate_limiting_request(rate_id, refill_per_sec, window_seconds, None);
        tokens(&query.fetch_one(connection).await.map_err(error)?)
    }

    /// In a transaction of its own.
    async fn call(&self, query: Query<'_, sqlx::Postgres, PgArguments>, terms: Terms) -> Result<PgRow> {
        let mut lease = self.connections.lease(terms.until).await?;
        let row = match terms.isolation {
            Isolation::RowLock => query.fetch_one(&mut *lease).await.map_err(error),
            Isolation::Serializable => serializable(&mut lease, query).await,
        };
        lease.end(row)
    }
}

async fn serializable(
    connection: &mut PgConnection,
    query: Query<'_, sqlx::Postgres, PgArguments>,
) -> Result<PgRow> {
    let mut tx = connection.begin_with("begin isolation level serializable").await.map_err(error)?;
    let row = query.fetch_one(&mut *tx).await.map_err(error);
    end(tx, row).await
}

fn check_velocity(
    zone_id: i32,
    key: &str,
    lock_wait_ms: Option<i32>,
) -> Query<'_, sqlx::Postgres, PgArguments> {
    sqlx::query(include_str!("check_velocity.sql")).bind(zone_id).bind(key).bind(lock_wait_ms)
}

fn rate_limiting_request(
    rate_id: &str,
    refill_per_sec: i32,
    window_seconds: i32,
    lock_wait_ms: Option<i32>,
) -> Query<'_, sqlx::Postgres, PgArguments> {
    let query = sqlx::query(include_str!("rate_limiting_request.sql")).bind(rate_id);
    query.bind(refill_per_sec).bind(window_seconds).bind(lock_wait_ms)
}

fn velocity(row: &PgRow) -> Result<Velocity> {
    velocity!(row)
}

fn tokens(row: &PgRow) -> Result<i64> {
    Ok(get!(row, "rate_limiting_request"))
}
