//! The use that counted when a row was decided: charges of a window, what was held, a level.

use chrono::{DateTime, Utc};

use super::{Carry, Counted, CountedCharge, Explaining, Fade, Level, time};
use crate::audit::book::Book;
use crate::decide::{self, Seen};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::zone::Family;

impl Explaining<'_> {
    /// The charges that counted.
    pub(super) fn counted(
        &self,
        row: &LedgerRow,
        bucket: decide::Bucket<'_>,
        book: &Book,
        seen: &Seen,
    ) -> Result<Option<Counted>> {
        let forgot = |seq: i64| seen.head.carried.is_some_and(|carried| seq <= carried.seq);
        let mut found: Vec<CountedCharge> = Vec::new();
        if seen.policy.algorithm().family() == Family::Held {
            let live = bucket.holds.iter().filter(|hold| hold.ends_us > row.at_us && !forgot(hold.seq));
            for hold in live {
                found.push(CountedCharge {
                    txn_id: book.by_seq(hold.seq).map(|step| step.txn),
                    seq: hold.seq,
                    at: time(hold.charged_us)?,
                    cost: hold.amount,
                    given_back: 0,
                    ends_at: Some(time(hold.ends_us)?),
                    member: hold.member.clone(),
                });
            }
            found.sort_by_key(|charge| charge.seq);
            let used = found.iter().map(|charge| charge.cost).sum();
            return Ok(Some(self.list(found, Counted { used, ..nothing(None) })));
        }
        let Some(from_us) = seen.from_us else { return Ok(None) };
        let ended = |seq: i64| {
            let holds = bucket.holds.iter().filter(|hold| hold.seq == seq && hold.ends_us <= row.at_us);
            holds.map(|hold| hold.amount).sum::<i64>()
        };
        let first_us = seen.fade.map_or(from_us, |fade| fade.from_us);
        let (mut full, mut fading) = (0, 0);
        let mut add = |at_us: i64, net: i64| if at_us >= from_us { full += net } else { fading += net };
        for step in book.charges(first_us).filter(|step| !forgot(step.seq)) {
            let given_back = ended(step.seq);
            add(step.at_us, step.spent - given_back);
            let own = bucket.holds.iter().find(|hold| hold.seq == step.seq && hold.ends_us > row.at_us);
            found.push(CountedCharge {
                txn_id: Some(step.txn),
                seq: step.seq,
                at: time(step.at_us)?,
                cost: step.spent,
                given_back,
                ends_at: own.map(|hold| time(hold.ends_us)).transpose()?,
                member: None,
            });
        }
        let carried = seen.head.carried.filter(|carried| carried.at_us >= first_us && carried.amount > 0);
        carried.iter().for_each(|carried| add(carried.at_us, carried.amount));
        let carried =
            carried.map(|carried| Ok::<_, Error>(Carry { at: time(carried.at_us)?, amount: carried.amount }));
        let fade = seen.fade.map(|fade| {
            let (from, counts) = (time(fade.from_us)?, fade.share(fading));
            Ok::<_, Error>(Fade { from, spent: fading, part_us: fade.part, of_us: fade.of, counts })
        });
        let fade = fade.transpose()?;
        let used = full + fade.map_or(0, |fade| fade.counts);
        let counted =
            Counted { used, fading: fade, carried: carried.transpose()?, ..nothing(Some(time(from_us)?)) };
        Ok(Some(self.list(found, counted)))
    }

    /// The newest of the charges.
    fn list(&self, mut charges: Vec<CountedCharge>, counted: Counted) -> Counted {
        let transactions = charges.len() as u64;
        charges.drain(..charges.len().saturating_sub(self.charges));
        Counted { transactions, charges, ..counted }
    }
}

/// The level, where the zone has one.
pub(super) fn level(row: &LedgerRow, bucket: decide::Bucket<'_>, seen: &Seen) -> Result<Option<Level>> {
    let Some(units) = seen.units else { return Ok(None) };
    let head = bucket.head;
    let before = head.level.filter(|_| head.seq > 0);
    let elapsed_us = if head.seq > 0 { row.at_us.saturating_sub(head.last_us) } else { 0 };
    let flowed_in = elapsed_us.saturating_mul(units.per_us);
    let now = seen.head.level.unwrap_or(units.capacity);
    let by_time =
        before.map_or(units.capacity, |before| before.saturating_add(flowed_in).min(units.capacity));
    Ok(Some(Level {
        before,
        before_at: (head.seq > 0).then(|| time(head.last_us)).transpose()?,
        flowed_in,
        now,
        after: row.level,
        capacity: units.capacity,
        per_us: units.per_us,
        per_token: units.per_token,
        changed: by_time != now,
    }))
}

fn nothing(from: Option<DateTime<Utc>>) -> Counted {
    Counted { used: 0, from, fading: None, carried: None, transactions: 0, charges: Vec::new() }
}
