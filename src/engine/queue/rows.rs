//! The rows that queues write into the ledger.

use super::super::writing::{Writing, plain};
use crate::chain::Row;
use crate::decide::{Bid, Head, Item, Offered, Progress, Progressed, Taken};
use crate::decision::Reason;
use crate::entry::Kind;

impl<'w> Writing<'w> {
    /// An offer, and what made room for it: each of these says for whom.
    pub(super) fn offer(
        &mut self,
        bid: &Bid,
        named: bool,
        payload_hash: Option<&'w str>,
        evictor: &'w str,
        offered: &Offered,
        before_us: Option<i64>,
    ) {
        let Offered { head, limit, remaining, .. } = *offered;
        let row = Row {
            kind: Kind::Offer.as_str(),
            band: Some(bid.band),
            blocked: !offered.reason.allows(),
            reason: offered.reason.as_str(),
            cost: bid.cost,
            remaining,
            retry_after_us: offered.wait_us,
            ends_us: offered.deadline_us,
            member: payload_hash,
            ..plain(bid.txn, &head, limit)
        };
        self.row(0, before_us, named, row);
        for (n, item) in (1..).zip(&offered.evicted) {
            let row = Row {
                kind: Kind::Evict.as_str(),
                band: Some(item.band),
                cost: item.cost,
                remaining,
                target_us: Some(item.offered_us),
                member: Some(evictor),
                ..plain(item.txn, &Head { seq: head.seq + n, ..head }, limit)
            };
            self.row(0, Some(head.last_us), false, row);
        }
    }

    /// A take.
    pub(super) fn take(&mut self, taken: &Taken, worker: Option<&'w str>, before_us: Option<i64>) {
        let Taken { item, limit, remaining, head } = taken;
        let row = Row {
            reason: Reason::WithinLimit.as_str(),
            spent: item.cost,
            remaining: *remaining,
            ends_us: item.due_us,
            member: worker,
            ..of_item(Kind::Take, item, head, *limit)
        };
        self.row(0, before_us, false, row);
    }

    /// The row of what was said of an item that was taken, and by whom, if it was dead.
    pub(super) fn progress(
        &mut self,
        item: &Item,
        said: Progress,
        by: Option<&'w str>,
        progressed: &Progressed,
        before_us: Option<i64>,
    ) {
        let Progressed { limit, remaining, ends_us, head, .. } = progressed;
        let row = Row {
            remaining: *remaining,
            ends_us: *ends_us,
            member: by,
            ..of_item(said.kind(), item, head, *limit)
        };
        self.row(0, before_us, false, row);
    }
}

/// A row about an item that was taken.
fn of_item<'w>(kind: Kind, item: &Item, head: &Head, limit: i64) -> Row<'w> {
    Row {
        kind: kind.as_str(),
        checks: item.takes,
        band: Some(item.band),
        cost: item.cost,
        target_us: Some(item.offered_us),
        ..plain(item.txn, head, limit)
    }
}
