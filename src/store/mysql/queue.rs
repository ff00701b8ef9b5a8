//! Queues on MySQL and MariaDB.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::session::Session;
use super::{error, text_if, whole};
use crate::decide::{Item, Load};
use crate::engine::Kept;
use crate::engine::{Behind, Name, Putting, STEP, Shelving, Stored, Which};
use crate::error::Result;
use crate::store::list::List;
use crate::store::list::listed;
use crate::store::{row_of, rows_of};

#[async_trait]
impl Shelving for Session<'_> {
    async fn queue(
        &mut self,
        (zone_id, key): Name<'_>,
        now_us: i64,
        (after_us, after_seq): Behind,
    ) -> Result<(Kept, Vec<Item>)> {
        let call = "call zone_engine_queue(?, ?, ?, ?, ?, ?)";
        let rows = sqlx::query(call).bind(zone_id).bind(key).bind(now_us);
        let rows = rows.bind(after_us).bind(after_seq).bind(STEP);
        let rows = whole(self.connection, call, rows).await?;
        let Some(first) = rows.first() else { return Ok(Default::default()) };
        let due = |row: &&MySqlRow| matches!(row.try_get("seq"), Ok(Some::<i64>(_)));
        let kept = Kept { load: load!(first), settled_us: get!(first, "settled_us") };
        let due = rows.iter().filter(due).map(|row| row_of("zone_item", row, |row| item!(row)));
        Ok((kept, due.collect::<Result<_>>()?))
    }

    async fn items(&mut self, (zone_id, key): Name<'_>, which: Which) -> Result<Vec<Item>> {
        let call = "call zone_engine_items(?, ?, ?, ?, ?, ?, ?)";
        let rows = bind_which!(sqlx::query(call).bind(zone_id).bind(key), which);
        let rows = whole(self.connection, call, rows).await?;
        rows_of("zone_item", &rows, |row| item!(row))
    }

    async fn payloads(&mut self, (zone_id, key): Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>> {
        let call = "call zone_engine_payloads(?, ?, ?)";
        let list = List::of(seqs.iter().map(|&seq| [seq.into()])).json();
        let rows = sqlx::query(call).bind(zone_id).bind(key).bind(list);
        let rows = whole(self.connection, call, rows).await?;
        rows.iter().map(|row| stored!(row)).collect()
    }

    async fn put(&mut self, (zone_id, key): Name<'_>, putting: &Putting<'_>) -> Result<()> {
        let Putting { items, payload, gone, load, settled_us } = putting;
        let call = "call zone_engine_items_set(?, ?, ?, ?, ?, ?, ?, ?)";
        let put = sqlx::query(call)
            .bind(zone_id)
            .bind(key)
            .bind(load.waiting)
            .bind(load.away)
            .bind(*settled_us)
            .bind(List::of(gone.iter().map(|&seq| [seq.into()])).json())
            .bind(listed(items).json())
            .bind(payload.map(str::as_bytes));
        whole(self.connection, call, put).await.map(drop)
    }
}
