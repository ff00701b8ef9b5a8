//! The row that follows from an outcome of the core: what an engine writes, and what an auditor compares with.

use uuid::Uuid;

use crate::chain::Row;
use crate::decide::{Bid, Granted, Happened, Head, Item, Offered, Outcome, Progressed, Taken, UnitsTaken};
use crate::decision::Reason;
use crate::entry::Kind;

/// A check, but for what was asked: how many, what it cost, and about whom.
pub(crate) fn check(kind: Kind, txn: Uuid, outcome: &Outcome) -> Row<'static> {
    Row {
        seq: outcome.seq(),
        blocked: outcome.blocked,
        reason: outcome.reason,
        spent: outcome.spent,
        remaining: outcome.remaining,
        retry_after_us: outcome.retry_after_us,
        delay_us: outcome.delay_us,
        ends_us: outcome.ends_us,
        ..plain(kind, txn, &outcome.head, outcome.limit)
    }
}

/// The ban that a check brought about, behind it.
pub(crate) fn ban(txn: Uuid, until_us: i64, head: &Head, limit: i64) -> Row<'static> {
    Row { ends_us: Some(until_us), ..plain(Kind::Ban, txn, head, limit) }
}

/// An event besides checks, but for who did it and why; with what a peek finds afterwards.
pub(crate) fn event(kind: Kind, txn: Uuid, happened: &Happened, limit: i64, remaining: i64) -> Row<'static> {
    Row {
        reason: if kind == Kind::Unchecked { Reason::Unchecked } else { Reason::Recorded },
        cost: happened.cost,
        spent: happened.spent,
        remaining,
        target_us: happened.target_us,
        ends_us: happened.ends_us,
        ..plain(kind, txn, &happened.head, limit)
    }
}

/// A lease of a client who wants so much, but for its weight and its band.
pub(crate) fn lease<'r>(txn: Uuid, client: &'r str, wants: i64, granted: &Granted) -> Row<'r> {
    Row {
        blocked: granted.blocked(wants),
        reason: granted.reason,
        cost: wants,
        spent: granted.has,
        remaining: granted.remaining,
        retry_after_us: Some(granted.refresh_us),
        ends_us: granted.hold(client).map(|hold| hold.ends_us),
        member: Some(client),
        target_us: Some(granted.since_us),
        ..plain(Kind::Lease, txn, &granted.head, granted.limit)
    }
}

/// Units that are taken for local decisions, of so many that were wanted.
pub(crate) fn units(txn: Uuid, wants: i64, taken: &UnitsTaken) -> Row<'static> {
    Row {
        reason: taken.reason,
        cost: wants,
        spent: taken.units,
        remaining: taken.remaining,
        ends_us: Some(taken.ends_us),
        ..plain(Kind::Local, txn, &taken.head, taken.limit)
    }
}

/// An offer, but for the hash of its payload.
pub(crate) fn offer(bid: &Bid, offered: &Offered) -> Row<'static> {
    Row {
        band: Some(bid.band),
        blocked: !offered.reason.allows(),
        reason: offered.reason,
        cost: bid.cost,
        remaining: offered.remaining,
        retry_after_us: offered.wait_us,
        ends_us: offered.deadline_us,
        ..plain(Kind::Offer, bid.txn, &offered.head, offered.limit)
    }
}

/// An item that made room for an offer, which left so much; but for whose offer that was.
pub(crate) fn evict(item: &Item, head: &Head, limit: i64, remaining: i64) -> Row<'static> {
    Row {
        band: Some(item.band),
        cost: item.cost,
        remaining,
        target_us: Some(item.offered_us),
        ..plain(Kind::Evict, item.txn, head, limit)
    }
}

/// A take, but for the worker.
pub(crate) fn take(taken: &Taken) -> Row<'static> {
    let Taken { item, limit, remaining, head } = taken;
    Row {
        reason: Reason::WithinLimit,
        spent: item.cost,
        ends_us: item.due_us,
        ..of_item(Kind::Take, item, head, *limit, *remaining)
    }
}

/// The word of a worker about an item that was taken, but for who said it.
pub(crate) fn progress(kind: Kind, item: &Item, progressed: &Progressed) -> Row<'static> {
    let Progressed { limit, remaining, ends_us, head, .. } = progressed;
    Row { ends_us: *ends_us, ..of_item(kind, item, head, *limit, *remaining) }
}

fn of_item(kind: Kind, item: &Item, head: &Head, limit: i64, remaining: i64) -> Row<'static> {
    Row {
        checks: item.takes,
        band: Some(item.band),
        cost: item.cost,
        remaining,
        target_us: Some(item.offered_us),
        ..plain(kind, item.txn, head, limit)
    }
}

/// A row that says what the head does, and else nothing.
fn plain(kind: Kind, txn: Uuid, head: &Head, limit: i64) -> Row<'static> {
    Row {
        txn,
        seq: head.seq,
        zone_version: head.zone_version,
        checks: 1,
        blocked: false,
        critical: false,
        band: None,
        cost: 0,
        spent: 0,
        spent_total: head.spent_total,
        remaining: 0,
        limit,
        retry_after_us: None,
        delay_us: None,
        level: head.level,
        strikes: head.strikes,
        target_us: None,
        decided_us: head.last_us,
        ends_us: None,
        kind,
        reason: Reason::Recorded,
        member: None,
        note: None,
        actor: None,
        login: None,
        exception: None,
    }
}
