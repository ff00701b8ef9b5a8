//! The rows that queues write into the ledger.

use super::super::writing::Writing;
use crate::chain::Row;
use crate::decide::{Bid, Head, Item, Offered, Progress, Progressed, Taken};
use crate::record;

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
        self.row(0, before_us, named, Row { member: payload_hash, ..record::offer(bid, offered) });
        for (n, item) in (1..).zip(&offered.evicted) {
            let row = record::evict(item, &Head { seq: head.seq + n, ..head }, limit, remaining);
            self.row(0, Some(head.last_us), false, Row { member: Some(evictor), ..row });
        }
    }

    /// A take.
    pub(super) fn take(&mut self, taken: &Taken, worker: Option<&'w str>, before_us: Option<i64>) {
        self.row(0, before_us, false, Row { member: worker, ..record::take(taken) });
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
        let row = record::progress(said.kind(), item, progressed);
        self.row(0, before_us, false, Row { member: by, ..row });
    }
}
