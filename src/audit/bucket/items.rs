//! The items of a queue as they stand, beside those that its rows lead to.

use super::Checking;
use crate::audit::fault::FaultKind;
use crate::chain;
use crate::decide::{Item, Load};

impl Checking<'_> {
    /// True when it is a queue whose items are kept here.
    pub fn is_queue(&self) -> bool {
        !self.moved && !chain::is_erased(&self.key) && self.replay.is_whole() && self.replay.is_queue()
    }

    /// The items as they are stored, each with whether its payload is what was offered, and what they come to, at one
    /// moment when the head was that of the last row. Changes that come to items by themselves may have been put down
    /// since.
    pub fn compare_items(&mut self, load: Load, stored: &[(Item, bool)], now_us: i64) {
        let mut wrong = Vec::new();
        let mut derived = self.replay.items().iter().copied().peekable();
        for (item, is_genuine) in stored {
            while let Some(gone) = derived.next_if(|derived| derived.seq < item.seq) {
                wrong.extend((!may_be(gone, None, now_us)).then_some((gone.seq, lacks(gone))));
            }
            match derived.next_if(|derived| derived.seq == item.seq) {
                Some(derived) if !may_be(derived, Some(item), now_us) => {
                    wrong.push((
                        item.seq,
                        format!("zone_item does not hold item {} as the rows lead to it", item.txn),
                    ));
                }
                Some(_) if !is_genuine => {
                    wrong.push((
                        item.seq,
                        format!("the payload of item {} is not the one that was offered", item.txn),
                    ));
                }
                Some(_) => {}
                // It is over, though no call came since that said so.
                None if self.is_dropped(item.seq) && item.due_us.is_some_and(|due_us| due_us <= now_us) => {}
                None => {
                    wrong.push((item.seq, format!("zone_item has item {}, to which no rows lead", item.txn)))
                }
            }
        }
        for gone in derived {
            wrong.extend((!may_be(gone, None, now_us)).then_some((gone.seq, lacks(gone))));
        }
        if wrong.is_empty() && stored.iter().fold(Load::default(), |load, (item, _)| load.with(item)) != load
        {
            wrong.push((self.seq(), "zone_queue does not say what the items come to".to_owned()));
        }
        for (seq, why) in wrong {
            self.fault(FaultKind::WrongHead, None, Some(seq), why);
        }
    }
}

fn lacks(gone: Item) -> String {
    format!("zone_item lacks item {}", gone.txn)
}

/// Is it the item now, or was it at some time since?
fn may_be(derived: Item, stored: Option<&Item>, now_us: i64) -> bool {
    let mut item = Some(derived);
    loop {
        if item.as_ref() == stored {
            return true;
        }
        let due = item.filter(|item| item.due_us.is_some_and(|due_us| due_us <= now_us));
        let Some(due) = due else { return false };
        item = due.next();
    }
}
