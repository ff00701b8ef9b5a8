//! The derivation of a queue's row.

use super::{Derived, Replay};
use crate::audit::compare::event_row;
use crate::chain;
use crate::decide::{
    Bid, Head, Item, Need, Offered, Progress, Progressed, Taken, Version, offer, progress, take,
};
use crate::entry::{Kind, LedgerRow};
use crate::error::Error;

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
        let Offered { reason, limit, remaining, wait_us, deadline_us, evicted, head, .. } =
            offer(self.seen(versions), &self.book, items, bid, row.at_us)?;
        let derived = LedgerRow {
            blocked: !reason.allows(),
            reason,
            cost: row.cost,
            remaining,
            zone_limit: limit,
            retry_after_us: wait_us,
            ends_us: deadline_us,
            at_us: head.last_us,
            member: row.member.clone(),
            ..event_row(row, &head)
        };
        let evicted = evicted.into_iter().map(|item| Evicted { item, offer: derived.clone() }).collect();
        Ok(Derived { evicted, ..Derived::of(derived, head) })
    }

    fn taken(&self, versions: &[Version], row: &LedgerRow, for_us: i64) -> Result<Derived, Need> {
        let next = take(self.seen(versions), &self.book, &self.state.items, for_us, row.at_us)?;
        let Taken { item, limit, remaining, head } = next.map_err(|wait_us| {
            Error::invalid(match wait_us {
                Some(wait_us) => format!("the pace lets nothing be taken before {wait_us} µs"),
                None => "nothing waits in the queue".to_owned(),
            })
        })?;
        let derived = LedgerRow {
            reason: crate::decision::Reason::WithinLimit,
            spent: item.cost,
            remaining,
            zone_limit: limit,
            ends_us: item.due_us,
            member: row.member.clone(),
            ..of_item(row, &item, &head)
        };
        Ok(Derived::of(derived, head))
    }

    fn progressed(&self, versions: &[Version], row: &LedgerRow, said: Progress) -> Result<Derived, Need> {
        let item = self.state.items.named(row.txn_id);
        let item = item.ok_or_else(|| Error::invalid("its item is not in the queue"))?;
        let load = crate::decide::Shelf::load(&self.state.items);
        let Progressed { limit, remaining, ends_us, head, .. } =
            progress(self.seen(versions), &self.book, load, item, item.receipt, said, row.at_us)?;
        let member = row.member.clone().filter(|_| said == Progress::Redrive);
        let derived =
            LedgerRow { remaining, zone_limit: limit, ends_us, member, ..of_item(row, &item, &head) };
        Ok(Derived::of(derived, head))
    }

    /// The row of an item that had to make room for what the row before offered.
    pub(super) fn evicted(&self, evicted: &Evicted, row: &LedgerRow) -> Derived {
        let Evicted { item, offer } = evicted;
        let head = Head { seq: self.state.head.seq + 1, ..self.state.head };
        let erased = row.member.clone().filter(|by| chain::is_erased(by));
        let derived = LedgerRow {
            txn_id: item.txn,
            kind: Kind::Evict,
            band: Some(item.band),
            cost: item.cost,
            remaining: offer.remaining,
            zone_limit: offer.zone_limit,
            target_us: Some(item.offered_us),
            at_us: head.last_us,
            prev_us: Some(head.last_us),
            member: erased.or_else(|| Some(offer.txn_id.to_string())),
            ..event_row(row, &head)
        };
        Derived::of(derived, head)
    }
}

/// A row about an item that was taken.
fn of_item(row: &LedgerRow, item: &Item, head: &Head) -> LedgerRow {
    LedgerRow {
        txn_id: item.txn,
        checks: item.takes,
        band: Some(item.band),
        cost: item.cost,
        target_us: Some(item.offered_us),
        at_us: head.last_us,
        ..event_row(row, head)
    }
}
