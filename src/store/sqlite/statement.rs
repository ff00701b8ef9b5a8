//! Statements over lists of rows.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::error;
use crate::error::{Error, Result};
use crate::store::list::List;

/// Runs a statement over a list; not at all when there is nothing in it.
pub(super) async fn rows(
    connection: &mut SqliteConnection,
    sql: &'static str,
    list: List,
) -> Result<Vec<SqliteRow>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(sql).bind(list.json()).fetch_all(connection).await.map_err(error)
}

/// A row of what a statement says in one text: a place in the list, some numbers, and one that may be missing.
pub(super) type Numbers<const N: usize> = (usize, [i64; N], Option<i64>);

/// The numbers that a statement says in one text.
pub(super) async fn numbers<const N: usize>(
    connection: &mut SqliteConnection,
    sql: &'static str,
    list: List,
) -> Result<Vec<Numbers<N>>> {
    let text = text(connection, sql, list).await?;
    text.split_terminator(',').map(read).collect()
}

/// The one text that a statement says.
pub(super) async fn text(connection: &mut SqliteConnection, sql: &'static str, list: List) -> Result<String> {
    let said = rows(connection, sql, list).await?;
    let Some(row) = said.first() else { return Ok(String::new()) };
    let text: Option<String> = get!(row, "numbers");
    Ok(text.unwrap_or_default())
}

/// The numbers of a row.
pub(super) fn read<const N: usize>(row: &str) -> Result<Numbers<N>> {
    let read = || {
        let mut words = row.split(' ');
        let place = words.next()?.parse().ok()?;
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = words.next()?.parse().ok()?;
        }
        Some((place, numbers, words.next().map(str::parse).transpose().ok()?))
    };
    read().ok_or_else(|| unreadable(&row))
}

/// The place in the list that a row is about.
pub(super) fn place(row: &SqliteRow) -> Result<usize> {
    let place: i64 = get!(row, "n");
    usize::try_from(place).map_err(|_| unreadable(&place))
}

pub(super) fn unreadable(said: &dyn std::fmt::Display) -> Error {
    Error::database(format!("the database said {said} where other numbers were asked for"))
}
