//! The answer whether the schema is spread over the nodes of Citus. There a call about one bucket is decided on the
//! node that has it, in one round trip from the coordinator; a call about several is not.

use std::sync::atomic::Ordering;

use sqlx::PgConnection;

use super::{Postgres, error};
use crate::error::Result;

impl Postgres {
    pub async fn is_distributed(&self) -> Result<bool> {
        let is_spread = is_distributed(&mut *self.lease().await?).await?;
        self.process.is_spread.store(is_spread, Ordering::Relaxed);
        Ok(is_spread)
    }
}

pub async fn is_distributed(connection: &mut PgConnection) -> Result<bool> {
    // Where there is no extension there is no such table, and a statement that names it fails.
    let known = "select to_regclass('pg_catalog.pg_dist_partition') is not null";
    let known: bool = sqlx::query_scalar(known).fetch_one(&mut *connection).await.map_err(error)?;
    if !known {
        return Ok(false);
    }
    let asked = sqlx::query_scalar(include_str!("distributed.sql"));
    asked.fetch_one(connection).await.map_err(error)
}
