//! Events of a bucket besides checks: a charge is given back or settled, a ban or an override is set or lifted.

use super::bring::Brought;
use super::{Bucket, Exception, Head, Hold, Ledger, Need, bring, local, token_bucket};
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::zone::{Family, Limit, RunningBuckets};

/// The ways in which a caller ends a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// The charge of an ordinary check is given back.
    Refund,
    /// A reservation becomes a charge of this many units, 0 to 2^40. The units that it held beyond that are given
    /// back; those that are lacking are charged without asking for room.
    Settle(i64),
    /// A reservation is given back.
    Cancel,
    /// A slot of a zone that counts concurrency is given back.
    Release,
    /// Of what a process took for local decisions it spent so many units, 0 to what it took. The part of the rest that
    /// comes back is told by [`Happened::hold`].
    Used(i64),
}

/// A charge, as its ledger row has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Its row.
    pub seq: i64,
    /// The time when it was made.
    pub at_us: i64,
    /// The units that were spent; 0 when it was blocked.
    pub spent: i64,
    /// Was it blocked?
    pub blocked: bool,
    /// Is it a reservation?
    pub reserved: bool,
    /// Did a process take it for local decisions?
    pub taken: bool,
    /// Does it count a member?
    pub member: bool,
    /// The time when it ends by itself.
    pub ends_us: Option<i64>,
}

impl From<&LedgerRow> for Charge {
    fn from(row: &LedgerRow) -> Self {
        Self {
            seq: row.seq,
            at_us: row.at_us,
            spent: row.spent,
            blocked: row.blocked,
            reserved: row.kind == Kind::Reserve,
            taken: row.kind == Kind::Local,
            member: row.member.is_some(),
            ends_us: row.ends_us,
        }
    }
}

/// An event of a bucket, besides checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A charge ends.
    Undo(Undo, Charge),
    /// Nothing passes for so many microseconds.
    Ban(i64),
    /// A ban ends now, and those before it are forgotten.
    Unban,
    /// A limit of the bucket's own begins, or ends.
    Override(Option<Override>),
    /// A check of this cost passed while the database did not answer. It is noted, not charged.
    Unchecked(i64),
}

/// A limit for one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Another limit than the zone's; None keeps that.
    pub limit: Option<Limit>,
    /// True when blocked checks do not lead to a ban.
    pub ban_exempt: bool,
    /// The length for which it holds, in microseconds; None for ever.
    pub for_us: Option<i64>,
}

/// The trace that an event leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The time when it was recorded.
    pub at_us: i64,
    /// For an [`Undo`], how much was given back; for a settlement what it came to; for a check that
    /// passed unchecked what it asked for; else 0.
    pub cost: i64,
    /// The units that were charged: by a settlement beyond its reservation.
    pub spent: i64,
    /// When what it began ends: a ban, an override.
    pub ends_us: Option<i64>,
    /// The time of the charge that it ends.
    pub target_us: Option<i64>,
    /// The part of the charge that ends now, in place of what was to end of it.
    pub hold: Option<Hold>,
    /// The bucket's next head.
    pub head: Head,
}

/// Records an event. It has no say in whether it may: a refund is never refused for want of room.
///
/// # Errors
/// The [`Need`] that `ledger` answers with; else [`Need::Failed`], and nothing happens. Conflict: there is nothing to
/// undo, to lift or to end, or the charge does not end in this way. Invalid: no policy was given, or the bucket's
/// running total would leave 63 bits.
pub fn happen(bucket: Bucket<'_>, ledger: &impl Ledger, event: Event, now_us: i64) -> Result<Happened, Need> {
    let now_us = bucket.head.clamp(now_us);
    let current = bucket.versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
    let Brought { head, level, policy } = bring::to(&bucket, ledger, now_us)?;
    let head = Head { level, ..*head };
    let mut happened =
        Happened { at_us: now_us, cost: 0, spent: 0, ends_us: None, target_us: None, hold: None, head };
    let head = &mut happened.head;
    match event {
        Event::Undo(undo, charge) => {
            let Ended { mut back, extra, mut hold } = end(undo, &charge, now_us)?;
            if charge.taken {
                back = local::back(&policy, current.changed_us, &charge, back, now_us);
                hold.iter_mut().for_each(|hold| hold.amount = back);
            }
            happened.cost = if let Undo::Settle(cost) | Undo::Used(cost) = undo { cost } else { back };
            happened.spent = extra;
            happened.target_us = Some(charge.at_us);
            happened.hold = hold;
            if policy.algorithm().family() == Family::Level {
                let back = if head.forgot(charge.seq) { 0 } else { back };
                head.level = head.level.map(|level| token_bucket::give_back(&policy, level, back));
                if extra > 0 {
                    head.level = Some(token_bucket::take(&policy, head.level, extra));
                }
            }
            head.spent_total = head.spent_total.checked_add(extra).ok_or_else(|| {
                Error::invalid(format!(
                    "the bucket has spent {} in all and cannot count {extra} more",
                    head.spent_total
                ))
            })?;
        }
        Event::Ban(for_us) => {
            happened.ends_us = Some(now_us.saturating_add(for_us));
            head.banned_until_us = happened.ends_us;
            head.ban_strikes = head.strikes;
        }
        Event::Unban => {
            head.banned_until_us
                .filter(|&until_us| until_us > now_us)
                .ok_or_else(|| Error::conflict("the bucket is not banned"))?;
            head.banned_until_us = None;
            head.bans = 0;
            head.ban_strikes = head.strikes;
        }
        Event::Override(new) => {
            if new.is_none() && head.exception.is_none() {
                return Err(Error::conflict("the bucket has no override").into());
            }
            happened.ends_us = new.and_then(|new| new.for_us).map(|for_us| now_us.saturating_add(for_us));
            head.exception = new.map(|Override { limit, ban_exempt, .. }| Exception {
                seq: head.seq + 1,
                limit,
                ban_exempt,
                until_us: happened.ends_us,
            });
            let after = bring::effective(current, head.exception.as_ref());
            bring::convert(head, &bucket, ledger, [&policy, &after], RunningBuckets::AsIs, now_us)?;
        }
        Event::Unchecked(cost) => happened.cost = cost,
    }
    head.seq += 1;
    head.last_us = now_us;
    head.zone_version = current.version;
    Ok(happened)
}

struct Ended {
    back: i64,
    extra: i64,
    hold: Option<Hold>,
}

fn end(undo: Undo, charge: &Charge, now_us: i64) -> Result<Ended> {
    let conflict = |message: &str| Err(Error::conflict(message));
    if charge.blocked {
        return conflict("the transaction was blocked; there is nothing to give back");
    }
    if charge.spent == 0 {
        return conflict("the transaction spent nothing; there is nothing to give back");
    }
    let slot = charge.ends_us.is_some() && !charge.reserved && !charge.taken && !charge.member;
    match undo {
        Undo::Used(units) if charge.taken && !(0..=charge.spent).contains(&units) => {
            return Err(Error::invalid(format!(
                "{units} units cannot have been spent of {}, which the process took; use 0 to that",
                charge.spent
            )));
        }
        Undo::Used(_) if !charge.taken => {
            return conflict("the transaction took nothing for local decisions");
        }
        Undo::Used(_) => {}
        _ if charge.taken => {
            return conflict(
                "the transaction is what a process took for local decisions; the process gives back what it did not spend",
            );
        }
        Undo::Refund if charge.reserved => {
            return conflict("the transaction is a reservation; settle or cancel it");
        }
        Undo::Refund if slot => return conflict("the transaction holds a slot; release it"),
        Undo::Settle(_) | Undo::Cancel if !charge.reserved => {
            return conflict("the transaction is no reservation; refund or release it");
        }
        Undo::Release if !slot => {
            return conflict("the transaction holds no slot; refund, settle or cancel it");
        }
        _ => {}
    }
    // A take does not end by itself: a process that says nothing has spent it.
    let ended = !charge.taken && charge.ends_us.is_some_and(|ends_us| ends_us <= now_us);
    let (back, extra) = match undo {
        // A reservation that ran out was given back by itself.
        Undo::Settle(cost) if ended => (0, cost),
        Undo::Settle(cost) => ((charge.spent - cost).max(0), (cost - charge.spent).max(0)),
        Undo::Used(units) => (charge.spent - units, 0),
        _ if ended => return conflict("the transaction's time is over; it has ended by itself"),
        _ => (charge.spent, 0),
    };
    let hold =
        Hold { seq: charge.seq, charged_us: charge.at_us, amount: back, ends_us: now_us, member: None };
    Ok(Ended { back, extra, hold: (!ended).then_some(hold) })
}
