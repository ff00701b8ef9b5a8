//! The routines that the project grew from, called on MySQL and MariaDB.
//!
//! They own their transaction, which is READ COMMITTED. In any other they are called by their names with `_in`. The
//! session's own `innodb_lock_wait_timeout` holds.

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{Connection, MySqlConnection, Row};

use super::{BEGIN_SERIALIZABLE, MySql, end, ended, error, rows, text};
use crate::decision::Velocity;
use crate::error::{Error, Result};
use crate::store::{Isolation, Terms};

const CHECK_VELOCITY_IN: &str = "call check_velocity_in(?, ?)";
const RATE_LIMITING_REQUEST_IN: &str = "call rate_limiting_request_in(?, ?, ?)";

impl MySql {
    pub async fn check_velocity(&self, zone_id: i32, key: &str, terms: Terms) -> Result<Velocity> {
        let call = match terms.isolation {
            Isolation::RowLock => "call check_velocity(?, ?)",
            Isolation::Serializable => CHECK_VELOCITY_IN,
        };
        velocity(&self.call(call, sqlx::query(call).bind(zone_id).bind(key.to_owned()), terms).await?)
    }

    pub async fn check_velocity_in(
        &self,
        connection: &mut MySqlConnection,
        zone_id: i32,
        key: &str,
    ) -> Result<Velocity> {
        let query = sqlx::query(CHECK_VELOCITY_IN).bind(zone_id).bind(key.to_owned());
        velocity(&one(connection, CHECK_VELOCITY_IN, query).await?)
    }

    pub async fn rate_limiting_request(
        &self,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
        terms: Terms,
    ) -> Result<i64> {
        let call = match terms.isolation {
            Isolation::RowLock => "call rate_limiting_request(?, ?, ?)",
            Isolation::Serializable => RATE_LIMITING_REQUEST_IN,
        };
        let query = sqlx::query(call).bind(rate_id.to_owned()).bind(refill_per_sec).bind(window_seconds);
        tokens(&self.call(call, query, terms).await?)
    }

    pub async fn rate_limiting_request_in(
        &self,
        connection: &mut MySqlConnection,
        rate_id: &str,
        refill_per_sec: i32,
        window_seconds: i32,
    ) -> Result<i64> {
        let query = sqlx::query(RATE_LIMITING_REQUEST_IN).bind(rate_id.to_owned());
        tokens(
            &one(connection, RATE_LIMITING_REQUEST_IN, query.bind(refill_per_sec).bind(window_seconds))
                .await?,
        )
    }

    /// In a transaction of its own.
    async fn call(
        &self,
        call: &str,
        query: Query<'_, sqlx::MySql, MySqlArguments>,
        terms: Terms,
    ) -> Result<MySqlRow> {
        let mut lease = self.connections.lease(terms.until).await?;
        let row = match terms.isolation {
            Isolation::RowLock => one(&mut lease, call, query).await,
            Isolation::Serializable => serializable(&mut lease, call, query).await,
        };
        ended(lease, row)
    }
}

async fn serializable(
    connection: &mut MySqlConnection,
    call: &str,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
) -> Result<MySqlRow> {
    let mut tx = connection.begin_with(BEGIN_SERIALIZABLE).await.map_err(error)?;
    let row = one(&mut tx, call, query).await;
    end(tx, row).await
}

async fn one(
    connection: &mut MySqlConnection,
    call: &str,
    query: Query<'_, sqlx::MySql, MySqlArguments>,
) -> Result<MySqlRow> {
    let mut rows = rows(connection, call, query, 1).await?;
    rows.pop().ok_or_else(|| Error::database("the routine gave no answer"))
}

fn velocity(row: &MySqlRow) -> Result<Velocity> {
    velocity!(row)
}

fn tokens(row: &MySqlRow) -> Result<i64> {
    Ok(get!(row, "rate_limiting_request"))
}
