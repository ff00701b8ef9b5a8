//! Queues on PostgreSQL.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::session::Session;
use super::{error, text_if};
use crate::decide::{Item, Load};
use crate::engine::Kept;
use crate::engine::{Behind, Name, Putting, STEP, Shelving, Stored, Which, from_us};
use crate::error::Result;
use crate::store::{row_of, rows_of};

#[async_trait]
impl Shelving for Session<'_> {
    async fn queue(
        &mut self,
        (zone_id, key): Name<'_>,
        now_us: i64,
        (after_us, after_seq): Behind,
    ) -> Result<(Kept, Vec<Item>)> {
        let rows = sqlx::query(include_str!("queue/queue.sql")).bind(zone_id).bind(key);
        let rows = rows.bind(from_us(now_us)?).bind(from_us(after_us)?).bind(after_seq).bind(i32::from(STEP));
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        let Some(first) = rows.first() else { return Ok(Default::default()) };
        let due = |row: &&PgRow| matches!(row.try_get("seq"), Ok(Some::<i64>(_)));
        let kept = Kept { load: load!(first), settled_us: get!(first, "settled_us") };
        let due = rows.iter().filter(due).map(|row| row_of("zone_item", row, |row| item!(row)));
        Ok((kept, due.collect::<Result<_>>()?))
    }

    async fn items(&mut self, (zone_id, key): Name<'_>, which: Which) -> Result<Vec<Item>> {
        let rows = bind_which!(sqlx::query(include_str!("queue/items.sql")).bind(zone_id).bind(key), which);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows_of("zone_item", &rows, |row| item!(row))
    }

    async fn payloads(&mut self, (zone_id, key): Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>> {
        let rows = "select p.seq, p.payload, p.recorded from zone_engine_payloads($1, $2, $3) p";
        let rows = sqlx::query(rows).bind(zone_id).bind(key).bind(seqs);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows.iter().map(|row| stored!(row)).collect()
    }

    async fn put(&mut self, (zone_id, key): Name<'_>, putting: &Putting<'_>) -> Result<()> {
        let Putting { items, payload, gone, load, settled_us } = putting;
        let time = |us: Option<i64>| us.map(from_us).transpose();
        let times = |of: fn(&Item) -> Option<i64>| {
            items.iter().map(|item| time(of(item))).collect::<Result<Vec<_>>>()
        };
        let put = sqlx::query(include_str!("queue/items_set.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(load.waiting)
            .bind(load.away)
            .bind(time(*settled_us)?)
            .bind(gone)
            .bind(payload)
            .bind(items.iter().map(|item| item.seq).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.txn).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.cost).collect::<Vec<_>>())
            .bind(items.iter().map(|item| i16::from(item.band)).collect::<Vec<_>>())
            .bind(times(|item| Some(item.offered_us))?)
            .bind(times(|item| item.deadline_us)?)
            .bind(items.iter().map(|item| item.place.as_str()).collect::<Vec<_>>())
            .bind(times(|item| item.due_us)?)
            .bind(items.iter().map(|item| item.takes).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.last).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.receipt).collect::<Vec<_>>());
        put.execute(&mut *self.connection).await.map_err(error).map(drop)
    }
}
