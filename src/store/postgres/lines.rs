//! Rows as a report reads them, on PostgreSQL.

use sqlx::Row;

use super::{Postgres, error, text, time, time_if};
use crate::error::Result;
use crate::store::{Line, Lines, rows_of};

impl Postgres {
    pub async fn lines(&self, lines: Lines) -> Result<Vec<Line>> {
        let rows = sqlx::query(include_str!("lines.sql"))
            .bind(lines.zone_id)
            .bind(lines.after.at)
            .bind(lines.until)
            .bind(lines.after.id)
            .bind(lines.of_several)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_txn", &rows, |row| line!(row))
    }
}
