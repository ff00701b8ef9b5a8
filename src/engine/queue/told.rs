//! The answers to callers of queues.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::super::from_us;
use crate::decide::{self, Place, Progressed};
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::item::{Item, Noted, Offer, Offered, Receipt, Said, Sayer, State, Take, Taken, Work};

pub(super) fn offered(offer: &Offer, txn: Uuid, offered: &decide::Offered) -> Result<Offered> {
    Ok(Offered {
        zone: offer.zone.clone(),
        queue: offer.queue.clone(),
        txn_id: txn,
        blocked: offered.item.is_none(),
        reason: offered.reason,
        remaining: offered.remaining,
        retry_after_us: offered.wait_us,
        deadline_at: time(offered.deadline_us)?,
        evicted: offered.evicted.iter().map(|item| item.txn).collect(),
        seq: offered.head.seq,
        offered_at: from_us(offered.head.last_us)?,
        zone_version: offered.head.zone_version,
        replayed: false,
    })
}

/// The answer to the same offer before.
pub(super) fn offered_before(offer: &Offer, row: &LedgerRow) -> Result<Offered> {
    let is_same = (row.cost, row.band, &row.member) == (offer.cost, Some(offer.band), &offer.payload_hash())
        && row.ends_us == offer.deadline_us.map(|us| row.at_us.saturating_add(us));
    if !is_same {
        return Err(Error::conflict(format!(
            "transaction {} offered something else before: cost {}, band {}, or another payload or deadline; use another one",
            row.txn_id,
            row.cost,
            row.band.unwrap_or_default()
        )));
    }
    Ok(Offered {
        zone: offer.zone.clone(),
        queue: offer.queue.clone(),
        txn_id: row.txn_id,
        blocked: row.blocked,
        reason: row.reason,
        remaining: row.remaining,
        retry_after_us: row.retry_after_us,
        deadline_at: time(row.ends_us)?,
        evicted: Vec::new(),
        seq: row.seq,
        offered_at: from_us(row.at_us)?,
        zone_version: row.zone_version,
        replayed: true,
    })
}

pub(super) fn taken(
    take: &Take,
    taken: impl Iterator<Item = decide::Taken>,
    payloads: Vec<Option<Value>>,
) -> Result<Taken> {
    let work = |(decide::Taken { item, head, .. }, payload): (decide::Taken, Option<Value>)| {
        Ok(Work {
            zone: take.zone.clone(),
            queue: take.queue.clone(),
            txn_id: item.txn,
            receipt: Receipt { seq: head.seq, txn_id: item.txn },
            cost: item.cost,
            band: item.band,
            takes: item.takes,
            payload,
            offered_at: from_us(item.offered_us)?,
            taken_at: from_us(head.last_us)?,
            visible_us: take.visible_us,
        })
    };
    Ok(Taken { items: taken.zip(payloads).map(work).collect::<Result<_>>()?, retry_after_us: None })
}

pub(super) fn noted(said: &Said, progressed: &Progressed) -> Result<Noted> {
    let Progressed { item, remaining, ends_us, head, .. } = progressed;
    Ok(Noted {
        zone: said.zone.clone(),
        queue: said.queue.clone(),
        txn_id: said.txn,
        state: match (item, said.progress) {
            (Some(item), _) => place(item),
            (None, decide::Progress::Done) => State::Done,
            (None, _) => State::Expired,
        },
        until: time(ends_us.filter(|_| item.is_some_and(|item| item.place == Place::Away)))?,
        remaining: *remaining,
        seq: head.seq,
        recorded_at: from_us(head.last_us)?,
        replayed: false,
    })
}

/// Nothing of the sort was taken, or offered.
pub(super) fn unknown(said: &Said) -> Error {
    let Said { zone, queue, txn, .. } = said;
    let what = match said.who {
        Sayer::Worker(seq) => format!("the receipt {seq}-{txn} is of no item that was taken from"),
        Sayer::Person(_) => format!("transaction {txn} offered nothing to"),
    };
    Error::conflict(format!(
        "{what} the queue {queue:?} of zone {zone:?}; look where it was: tallygate history --txn {txn}"
    ))
}

/// Nothing can be said of it any more.
pub(super) fn gone(said: &Said, past: &[LedgerRow]) -> Error {
    let Said { txn, .. } = said;
    let what = match said.who {
        Sayer::Worker(seq) => format!("the receipt {seq}-{txn} is lost: its item has gone"),
        Sayer::Person(_) => format!("item {txn} has gone from its queue"),
    };
    Error::conflict(format!("{what}: {}", state(past, None)))
}

/// The row by which the worker said the same before, while nobody else has said anything of that take; or by which a dead item
/// was given another chance that nobody has taken yet.
pub(super) fn said_before<'p>(
    said: &Said,
    past: &'p [LedgerRow],
    item: Option<&decide::Item>,
) -> Option<&'p LedgerRow> {
    let Sayer::Worker(seq) = said.who else {
        let waits = item.is_some_and(|item| item.place == Place::Waiting && item.takes == 0);
        return past.last().filter(|last| waits && last.kind == Kind::Requeue);
    };
    let has_it = item.is_some_and(|item| item.receipt == Some(seq));
    let ends = |row: &&LedgerRow| row.seq > seq && row.kind != Kind::Extend;
    let next =
        past.iter().find(ends).filter(|row| !has_it && past.last().is_some_and(|last| last.seq == row.seq));
    // A redrive is no word of a worker's.
    next.filter(|row| row.kind == said.progress.kind() && row.member.is_none())
}

pub(super) fn noted_before(said: &Said, row: &LedgerRow, item: Option<&decide::Item>) -> Result<Noted> {
    let state = state(std::slice::from_ref(row), item);
    Ok(Noted {
        zone: said.zone.clone(),
        queue: said.queue.clone(),
        txn_id: row.txn_id,
        state,
        until: time(row.ends_us.filter(|_| matches!(state, State::Taken | State::Delayed)))?,
        remaining: row.remaining,
        seq: row.seq,
        recorded_at: from_us(row.at_us)?,
        replayed: true,
    })
}

/// The state of an item by its rows, and by where it is.
pub(super) fn item(
    queue: &str,
    past: &[LedgerRow],
    item: Option<&decide::Item>,
    payload: Option<Value>,
) -> Result<Item> {
    let state = state(past, item);
    let (Some(offered), Some(last)) = (past.iter().find(|row| row.kind == Kind::Offer), past.last()) else {
        return Err(Error::database("an item has no row of its offer"));
    };
    let until_us = item.filter(|item| item.place == Place::Away).and_then(|item| item.due_us);
    let evictor = last.member.as_deref().filter(|_| state == State::Evicted);
    Ok(Item {
        zone: String::new(),
        queue: queue.to_owned(),
        txn_id: offered.txn_id,
        state,
        cost: offered.cost,
        band: offered.band.unwrap_or_default(),
        takes: item.map_or_else(|| takes(past), |item| item.takes),
        payload,
        offered_at: from_us(offered.at_us)?,
        deadline_at: time(offered.ends_us)?,
        until: time(until_us)?,
        evicted_by: evictor.and_then(|txn| txn.parse().ok()),
    })
}

/// The number of its takes, since it was last tried again.
fn takes(past: &[LedgerRow]) -> i32 {
    let is_redrive = |row: &&LedgerRow| row.kind == Kind::Requeue && row.member.is_some();
    let since = past.iter().rev().take_while(|row| !is_redrive(row));
    i32::try_from(since.filter(|row| row.kind == Kind::Take).count()).unwrap_or(i32::MAX)
}

/// An item that is in the queue.
pub(super) fn standing(queue: &str, item: &decide::Item, payload: Option<Value>) -> Result<Item> {
    Ok(Item {
        zone: String::new(),
        queue: queue.to_owned(),
        txn_id: item.txn,
        state: place(item),
        cost: item.cost,
        band: item.band,
        takes: item.takes,
        payload,
        offered_at: from_us(item.offered_us)?,
        deadline_at: time(item.deadline_us)?,
        until: time(item.due_us.filter(|_| item.place == Place::Away))?,
        evicted_by: None,
    })
}

pub(super) fn state(past: &[LedgerRow], item: Option<&decide::Item>) -> State {
    match (item, past.last().map(|row| (row.kind, row.blocked))) {
        (Some(item), _) => place(item),
        (None, Some((Kind::Offer, true))) => State::Refused,
        (None, Some((Kind::Done, _))) => State::Done,
        (None, Some((Kind::Evict, _))) => State::Evicted,
        _ => State::Expired,
    }
}

fn place(item: &decide::Item) -> State {
    match item.place {
        Place::Waiting => State::Waiting,
        Place::Away if item.receipt.is_some() => State::Taken,
        Place::Away => State::Delayed,
        Place::Dead => State::Dead,
    }
}

fn time(us: Option<i64>) -> Result<Option<DateTime<Utc>>> {
    us.map(from_us).transpose()
}
