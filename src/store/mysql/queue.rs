//! Queues on MySQL and MariaDB.

use sqlx::mysql::MySqlRow;
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::action::{holding, looking};
use super::engine::Session;
use super::{MySql, end, ended, error, lock_wait_s, text_if, whole};
use crate::decide::{Item, Load};
use crate::error::Result;
use crate::item::{self, Noted, Offer, Offered, Said, Size, Take, Taken};
use crate::store::Terms;
use crate::store::engine::{self, Name, Putting, Shelving, Stored, Which, listed};
use crate::store::list::List;

impl MySql {
    pub async fn offer(&self, zone_id: i32, offer: &Offer, txn: Uuid, terms: Terms) -> Result<Offered> {
        holding!(self, terms, session => engine::offer(&mut session, zone_id, offer, txn).await)
    }

    pub async fn take_next(&self, zone_id: i32, take: &Take, terms: Terms) -> Result<Taken> {
        holding!(self, terms, session => engine::take(&mut session, zone_id, take).await)
    }

    pub async fn progress(&self, zone_id: i32, said: &Said, terms: Terms) -> Result<Noted> {
        holding!(self, terms, session => engine::progress(&mut session, zone_id, said).await)
    }

    pub async fn item(&self, name: Name<'_>, txn: Uuid, terms: Terms) -> Result<Option<item::Item>> {
        looking!(self, terms, session => engine::item(&mut session, name, txn).await)
    }

    pub async fn dead(
        &self,
        name: Name<'_>,
        after: Option<Uuid>,
        most: u32,
        terms: Terms,
    ) -> Result<Vec<item::Item>> {
        looking!(self, terms, session => engine::dead(&mut session, name, after, most).await)
    }

    pub async fn size(&self, name: Name<'_>, terms: Terms) -> Result<Size> {
        looking!(self, terms, session => engine::size(&mut session, name).await)
    }
}

impl Shelving for Session<'_> {
    async fn queue(&mut self, (zone_id, key): Name<'_>, now_us: i64) -> Result<(Load, Vec<Item>)> {
        let call = "call zone_engine_queue(?, ?, ?)";
        let rows = sqlx::query(call).bind(zone_id).bind(key).bind(now_us);
        let rows = whole(self.connection, call, rows).await?;
        let Some(first) = rows.first() else { return Ok(Default::default()) };
        let load = Load { waiting: get!(first, "waiting"), away: get!(first, "away") };
        let due = |row: &&MySqlRow| matches!(row.try_get("seq"), Ok(Some::<i64>(_)));
        Ok((load, rows.iter().filter(due).map(|row| item!(row)).collect::<Result<_>>()?))
    }

    async fn items(&mut self, (zone_id, key): Name<'_>, which: Which) -> Result<Vec<Item>> {
        let call = "call zone_engine_items(?, ?, ?, ?, ?, ?, ?)";
        let rows = bind_which!(sqlx::query(call).bind(zone_id).bind(key), which);
        let rows = whole(self.connection, call, rows).await?;
        rows.iter().map(|row| item!(row)).collect()
    }

    async fn payloads(&mut self, (zone_id, key): Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>> {
        let call = "call zone_engine_payloads(?, ?, ?)";
        let list = List::of(seqs.iter().map(|&seq| [seq.into()])).json();
        let rows = sqlx::query(call).bind(zone_id).bind(key).bind(list);
        let rows = whole(self.connection, call, rows).await?;
        rows.iter().map(|row| stored!(row)).collect()
    }

    async fn put(&mut self, (zone_id, key): Name<'_>, putting: &Putting<'_>) -> Result<()> {
        let Putting { items, payload, gone, load } = putting;
        let call = "call zone_engine_items_set(?, ?, ?, ?, ?, ?, ?)";
        let put = sqlx::query(call)
            .bind(zone_id)
            .bind(key)
            .bind(load.waiting)
            .bind(load.away)
            .bind(List::of(gone.iter().map(|&seq| [seq.into()])).json())
            .bind(listed(items).json())
            .bind(payload.map(str::as_bytes));
        whole(self.connection, call, put).await.map(drop)
    }
}
