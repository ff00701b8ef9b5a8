//! Queues on SQLite.

use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::engine::Session;
use super::{Sqlite, error, text_if};
use crate::decide::{Item, Load};
use crate::error::Result;
use crate::item::{self, Noted, Offer, Offered, Said, Size, Take, Taken};
use crate::store::Terms;
use crate::store::engine::{self, Name, Putting, Shelving, Stored, Which, listed};
use crate::store::list::List;

impl Sqlite {
    pub async fn offer(&self, zone_id: i32, offer: &Offer, txn: Uuid, terms: Terms) -> Result<Offered> {
        alone!(self, terms, tx => engine::offer(&mut self.session(&mut tx), zone_id, offer, txn).await)
    }

    pub async fn take_next(&self, zone_id: i32, take: &Take, terms: Terms) -> Result<Taken> {
        alone!(self, terms, tx => engine::take(&mut self.session(&mut tx), zone_id, take).await)
    }

    pub async fn progress(&self, zone_id: i32, said: &Said, terms: Terms) -> Result<Noted> {
        alone!(self, terms, tx => engine::progress(&mut self.session(&mut tx), zone_id, said).await)
    }

    pub async fn item(&self, name: Name<'_>, txn: Uuid, terms: Terms) -> Result<Option<item::Item>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let item = engine::item(&mut self.session(&mut lease), name, txn).await;
        lease.end(item)
    }

    pub async fn dead(
        &self,
        name: Name<'_>,
        after: Option<Uuid>,
        most: u32,
        terms: Terms,
    ) -> Result<Vec<item::Item>> {
        let mut lease = self.connections.lease(terms.until).await?;
        let dead = engine::dead(&mut self.session(&mut lease), name, after, most).await;
        lease.end(dead)
    }

    pub async fn size(&self, name: Name<'_>, terms: Terms) -> Result<Size> {
        let mut lease = self.connections.lease(terms.until).await?;
        let size = engine::size(&mut self.session(&mut lease), name).await;
        lease.end(size)
    }
}

impl Shelving for Session<'_> {
    async fn queue(&mut self, (zone_id, key): Name<'_>, now_us: i64) -> Result<(Load, Vec<Item>)> {
        let load = "select q.waiting, q.away from zone_queue q where q.zone_id = ?1 and q.bucket_key = ?2";
        let load = sqlx::query_as(load).bind(zone_id).bind(key);
        let load: Option<(i64, i64)> = load.fetch_optional(&mut *self.connection).await.map_err(error)?;
        let due = sqlx::query(include_str!("queue/due.sql")).bind(zone_id).bind(key).bind(now_us);
        let due = due.fetch_all(&mut *self.connection).await.map_err(error)?;
        let load = load.map_or_else(Load::default, |(waiting, away)| Load { waiting, away });
        Ok((load, items(&due)?))
    }

    async fn items(&mut self, (zone_id, key): Name<'_>, which: Which) -> Result<Vec<Item>> {
        let (what, band, (after, seq), most) = which.asked();
        let rows = match which {
            Which::One(_) => sqlx::query(include_str!("queue/one.sql")).bind(zone_id).bind(key).bind(seq),
            Which::Back { .. } => {
                let back = sqlx::query(include_str!("queue/back.sql")).bind(zone_id).bind(key);
                back.bind(band).bind(after).bind(seq).bind(most)
            }
            Which::Front { .. } | Which::Dead { .. } => {
                let front = sqlx::query(include_str!("queue/front.sql")).bind(zone_id).bind(key);
                front.bind(what).bind(after).bind(seq).bind(most)
            }
        };
        items(&rows.fetch_all(&mut *self.connection).await.map_err(error)?)
    }

    async fn payloads(&mut self, (zone_id, key): Name<'_>, seqs: &[i64]) -> Result<Vec<Stored>> {
        let list = List::of(seqs.iter().map(|&seq| [seq.into()])).json();
        let rows = sqlx::query(include_str!("queue/payloads.sql")).bind(zone_id).bind(key).bind(list);
        let rows = rows.fetch_all(&mut *self.connection).await.map_err(error)?;
        rows.iter().map(|row| stored!(row)).collect()
    }

    async fn put(&mut self, (zone_id, key): Name<'_>, putting: &Putting<'_>) -> Result<()> {
        if !putting.items.is_empty() {
            let put = sqlx::query(include_str!("queue/put.sql")).bind(zone_id).bind(key);
            let put = put.bind(listed(&putting.items).json()).bind(putting.payload);
            put.execute(&mut *self.connection).await.map_err(error)?;
        }
        if !putting.gone.is_empty() {
            let list = List::of(putting.gone.iter().map(|&seq| [seq.into()])).json();
            let gone = sqlx::query(include_str!("queue/gone.sql")).bind(zone_id).bind(key).bind(list);
            gone.execute(&mut *self.connection).await.map_err(error)?;
        }
        let load = sqlx::query(include_str!("queue/load.sql")).bind(zone_id).bind(key);
        let load = load.bind(putting.load.waiting).bind(putting.load.away);
        load.execute(&mut *self.connection).await.map_err(error).map(drop)
    }
}

fn items(rows: &[SqliteRow]) -> Result<Vec<Item>> {
    rows.iter().map(|row| item!(row)).collect()
}
