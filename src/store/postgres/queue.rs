//! Queues on PostgreSQL.

use sqlx::postgres::PgRow;
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::action::{holding, looking};
use super::check::lock_wait_ms;
use super::engine::Session;
use super::{Postgres, end, error, text_if};
use crate::decide::{Item, Load};
use crate::error::Result;
use crate::item::{self, Noted, Offer, Offered, Said, Size, Take, Taken};
use crate::store::Terms;
use crate::store::engine::{self, Name, Putting, Shelving, Stored, Which, from_us};

impl Postgres {
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
        let rows =
            sqlx::query(include_str!("queue/queue.sql")).bind(zone_id).bind(key).bind(from_us(now_us)?);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        let Some(first) = rows.first() else { return Ok(Default::default()) };
        let load = Load { waiting: get!(first, "waiting"), away: get!(first, "away") };
        let due = |row: &&PgRow| matches!(row.try_get("seq"), Ok(Some::<i64>(_)));
        Ok((load, rows.iter().filter(due).map(|row| item!(row)).collect::<Result<_>>()?))
    }

    async fn items(&mut self, (zone_id, key): Name<'_>, which: Which) -> Result<Vec<Item>> {
        let rows = bind_which!(sqlx::query(include_str!("queue/items.sql")).bind(zone_id).bind(key), which);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows.iter().map(|row| item!(row)).collect()
    }

    async fn payloads(&mut self, (zone_id, key): Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>> {
        let rows = "select p.seq, p.payload, p.recorded from zone_engine_payloads($1, $2, $3) p";
        let rows = sqlx::query(rows).bind(zone_id).bind(key).bind(seqs);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows.iter().map(|row| stored!(row)).collect()
    }

    async fn put(&mut self, (zone_id, key): Name<'_>, putting: &Putting<'_>) -> Result<()> {
        let Putting { items, payload, gone, load } = putting;
        let time = |us: Option<i64>| us.map(from_us).transpose();
        let times = |of: fn(&Item) -> Option<i64>| {
            items.iter().map(|item| time(of(item))).collect::<Result<Vec<_>>>()
        };
        let put = sqlx::query(include_str!("queue/items_set.sql"))
            .bind(zone_id)
            .bind(key)
            .bind(load.waiting)
            .bind(load.away)
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
