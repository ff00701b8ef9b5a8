//! Rows as a report reads them, on MySQL and MariaDB.

use sqlx::Row;

use super::{MySql, error, text, time, time_if};
use crate::error::Result;
use crate::store::{Line, Lines, rows_of};

impl MySql {
    pub async fn lines(&self, lines: Lines) -> Result<Vec<Line>> {
        let rows = sqlx::query(include_str!("lines.sql"))
            .bind(lines.zone_id)
            .bind(lines.after.at.naive_utc())
            .bind(lines.until.naive_utc())
            .bind(lines.after.at.naive_utc())
            .bind(lines.after.id)
            .bind(lines.of_several)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_txn", &rows, |row| line!(row))
    }
}
