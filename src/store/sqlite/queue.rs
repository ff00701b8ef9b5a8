//! Queues on SQLite.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::session::Session;
use super::{error, text_if};
use crate::decide::{Item, Load};
use crate::engine::Kept;
use crate::engine::{Behind, Name, Putting, STEP, Shelving, Stored, Which};
use crate::error::Result;
use crate::store::list::List;
use crate::store::list::listed;
use crate::store::rows_of;

#[async_trait]
impl Shelving for Session<'_> {
    async fn queue(
        &mut self,
        (zone_id, key): Name<'_>,
        now_us: i64,
        (after_us, after_seq): Behind,
    ) -> Result<(Kept, Vec<Item>)> {
        let kept = "select q.waiting, q.away, q.settled_at from zone_queue q where q.zone_id = ?1 and q.bucket_key = ?2";
        let kept = sqlx::query(kept).bind(zone_id).bind(key);
        let kept = kept.fetch_optional(&mut *self.connection).await.map_err(error)?;
        let due = sqlx::query(include_str!("queue/due.sql")).bind(zone_id).bind(key).bind(now_us);
        let due = due.bind(after_us).bind(after_seq).bind(STEP);
        let due = due.fetch_all(&mut *self.connection).await.map_err(error)?;
        let kept = match &kept {
            Some(row) => Kept { load: load!(row), settled_us: get!(row, "settled_at") },
            None => Kept::default(),
        };
        Ok((kept, items(&due)?))
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
        let load = load.bind(putting.load.waiting).bind(putting.load.away).bind(putting.settled_us);
        load.execute(&mut *self.connection).await.map_err(error).map(drop)
    }
}

fn items(rows: &[SqliteRow]) -> Result<Vec<Item>> {
    rows_of("zone_item", rows, |row| item!(row))
}
