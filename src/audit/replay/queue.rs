//! The derivation of a queue's row.

use super::{Derived, Replay};
use crate::chain::{self, Row};
use crate::decide::{Bid, Head, Item, Need, Progress, Version, offer, progress, take};
use crate::entry::{Kind, LedgerRow};
use crate::error::Error;
use crate::record;

/// An item that an offer evicted, whose row is the next.
#[derive(Clone, Debug)]
pub(super) struct Evicted {
    pub item: Item,
    /// The row that the offer should have.
    pub offer: LedgerRow,
}

impl Replay {
    pub(super) fn queued(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let for_us = row.ends_us.map(|ends_us| ends_us.saturating_sub(row.at_us));
        match row.kind {
            Kind::Offer => self.offered(versions, row, for_us),
            Kind::Take => self.taken(versions, row, for_us.unwrap_or_default()),
            Kind::Extend => self.progressed(versions, row, Progress::Extend(for_us.unwrap_or_default())),
            Kind::Done => self.progressed(versions, row, Progress::Done),
            Kind::Requeue if row.member.is_some() => self.progressed(versions, row, Progress::Redrive),
            Kind::Requeue => self.progressed(versions, row, Progress::Release(for_us.unwrap_or_default())),
            _ => Err(Error::invalid("no offer before it needed the room").into()),
        }
    }

    fn offered(
        &self,
        versions: &[Version],
        row: &LedgerRow,
        deadline_us: Option<i64>,
    ) -> Result<Derived, Need> {
        let band = row.band.ok_or_else(|| Error::invalid("it does not say how important the item is"))?;
        let payload = row.member.is_some();
        let bid = Bid { txn: row.txn_id, cost: row.cost, band, deadline_us, payload };
        let items = &self.state.items;
        let offered = offer(self.seen(versions), &self.book, items, bid, row.at_us)?;
        let made = Row { member: row.member.as_deref(), ..record::offer(&bid, &offered) };
        let derived = Derived::of(row, &made, offered.head);
        let evicted = offered.evicted.into_iter().map(|item| Evicted { item, offer: derived.row.clone() });
        Ok(Derived { evicted: evicted.collect(), ..derived })
    }

    fn taken(&self, versions: &[Version], row: &LedgerRow, for_us: i64) -> Result<Derived, Need> {
        let next = take(self.seen(versions), &self.book, &self.state.items, for_us, row.at_us)?;
        let taken = next.map_err(|wait_us| {
            Error::invalid(match wait_us {
                Some(wait_us) => format!("the pace lets nothing be taken before {wait_us} µs"),
                None => "nothing waits in the queue".to_owned(),
            })
        })?;
        let made = Row { member: row.member.as_deref(), ..record::take(&taken) };
        Ok(Derived::of(row, &made, taken.head))
    }

    fn progressed(&self, versions: &[Version], row: &LedgerRow, said: Progress) -> Result<Derived, Need> {
        let item = self.state.items.named(row.txn_id);
        let item = item.ok_or_else(|| Error::invalid("its item is not in the queue"))?;
        let load = crate::decide::Shelf::load(&self.state.items);
        let progressed =
            progress(self.seen(versions), &self.book, load, item, item.receipt, said, row.at_us)?;
        let member = row.member.as_deref().filter(|_| said == Progress::Redrive);
        let made = Row { member, ..record::progress(row.kind, &item, &progressed) };
        Ok(Derived::of(row, &made, progressed.head))
    }

    /// The row of an item that had to make room for what the row before offered.
    pub(super) fn evicted(&self, evicted: &Evicted, row: &LedgerRow) -> Derived {
        let Evicted { item, offer } = evicted;
        let head = Head { seq: self.state.head.seq + 1, ..self.state.head };
        let by = offer.txn_id.to_string();
        let erased = row.member.as_deref().filter(|by| chain::is_erased(by));
        let made = record::evict(item, &head, offer.zone_limit, offer.remaining);
        let mut derived = Derived::of(row, &Row { member: erased.or(Some(&by)), ..made }, head);
        derived.row.prev_us = Some(head.last_us);
        derived
    }
}
