//! Rows as a report reads them, on SQLite.

use sqlx::Row;

use super::{Sqlite, error, text, time, time_if};
use crate::error::Result;
use crate::store::{Line, Lines, rows_of};

impl Sqlite {
    pub async fn lines(&self, lines: Lines) -> Result<Vec<Line>> {
        let rows = sqlx::query(include_str!("lines.sql"))
            .bind(lines.zone_id)
            .bind(lines.after.at.timestamp_micros())
            .bind(lines.until.timestamp_micros())
            .bind(lines.after.id)
            .bind(lines.of_several)
            .fetch_all(&mut *self.lease().await?)
            .await
            .map_err(error)?;
        rows_of("zone_txn", &rows, |row| line!(row))
    }
}
