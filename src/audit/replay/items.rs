//! The items of a queue, as its rows lead to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use crate::decide::{Item, Load, Place, Shelf};
use crate::entry::{Kind, LedgerRow};

/// Items by the rows of their offers, and in the orders in which they are asked for.
#[derive(Clone, Debug, Default)]
pub(in crate::audit) struct Items {
    all: BTreeMap<i64, Item>,
    named: HashMap<Uuid, i64>,
    /// By band and offer.
    waiting: BTreeSet<(u8, i64)>,
    /// By when they are due.
    due: BTreeSet<(i64, i64)>,
    load: Load,
}

impl Items {
    /// The item that a transaction offered.
    pub fn named(&self, txn: Uuid) -> Option<Item> {
        self.all.get(self.named.get(&txn)?).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Item> {
        self.all.values()
    }

    /// Lets become of them what becomes of them by itself up to a time.
    pub fn settle(&mut self, now_us: i64) {
        while let Some(&(_, seq)) = self.due.first().filter(|(due_us, _)| *due_us <= now_us) {
            let Some(item) = self.remove(seq) else { return };
            item.at(now_us).into_iter().for_each(|item| self.put(item));
        }
    }

    /// Takes down what a row says of its item. An item can be taken so often.
    pub fn record(&mut self, row: &LedgerRow, max_takes: i32) {
        let item = self.named(row.txn_id).and_then(|item| self.remove(item.seq));
        let after = match (row.kind, item) {
            (Kind::Offer, _) => (!row.blocked).then(|| Item {
                seq: row.seq,
                txn: row.txn_id,
                cost: row.cost,
                band: row.band.unwrap_or_default(),
                offered_us: row.at_us,
                deadline_us: row.ends_us,
                place: Place::Waiting,
                due_us: row.ends_us,
                takes: 0,
                last: false,
                receipt: None,
                payload: row.member.is_some(),
            }),
            (Kind::Take, Some(item)) => Some(Item {
                place: Place::Away,
                due_us: row.ends_us,
                takes: row.checks,
                last: row.checks >= max_takes,
                receipt: Some(row.seq),
                ..item
            }),
            (Kind::Extend, Some(item)) => Some(Item { due_us: row.ends_us, ..item }),
            (Kind::Requeue, Some(item)) if row.member.is_some() => Some(item.redriven()),
            (Kind::Requeue, Some(item)) if row.ends_us.is_none() => {
                Some(Item { place: Place::Dead, due_us: None, receipt: None, ..item })
            }
            (Kind::Requeue, Some(item)) => Some(Item { due_us: row.ends_us, receipt: None, ..item }),
            _ => None,
        };
        after.and_then(|item| item.at(row.at_us)).into_iter().for_each(|item| self.put(item));
    }

    fn put(&mut self, item: Item) {
        self.load = self.load.with(&item);
        self.named.insert(item.txn, item.seq);
        if item.place == Place::Waiting {
            self.waiting.insert((item.band, item.seq));
        }
        self.due.extend(item.due_us.map(|due_us| (due_us, item.seq)));
        self.all.insert(item.seq, item);
    }

    fn remove(&mut self, seq: i64) -> Option<Item> {
        let item = self.all.remove(&seq)?;
        self.load = self.load.without(&item);
        self.named.remove(&item.txn);
        self.waiting.remove(&(item.band, item.seq));
        item.due_us.into_iter().for_each(|due_us| {
            self.due.remove(&(due_us, seq));
        });
        Some(item)
    }
}

impl Shelf for Items {
    fn load(&self) -> Load {
        self.load
    }

    fn front(&self) -> impl Iterator<Item = &Item> {
        self.waiting.iter().filter_map(|(_, seq)| self.all.get(seq))
    }

    fn back(&self, band: u8) -> impl Iterator<Item = &Item> {
        let less = self.waiting.range((band, i64::MAX)..).rev();
        less.filter_map(|(_, seq)| self.all.get(seq))
    }
}
