//! Queues: what may wait, what is taken next, and what a worker says of what it took.
//!
//! Items wait by their band, the most important first, and within a band by when they were offered. A taken one comes
//! back to its place unless it is done in time; after so many takes it is dead. The items that wait and those that are
//! away are bounded by the backlog; the pace of takes is bounded by the level of a token bucket, of which each take
//! spends the item's cost.

use uuid::Uuid;

use super::bring::Brought;
use super::token_bucket::{self, Units};
use super::{Bucket, Head, Ledger, Need, bring};
use crate::decision::Reason;
use crate::entry::Kind;
use crate::error::{Error, Result};
use crate::names::names;
use crate::zone::{Policy, Queueing};

/// An item that is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The row of its offer.
    pub seq: i64,
    /// The transaction that names it.
    pub txn: Uuid,
    /// Units, 1 to 2^40.
    pub cost: i64,
    /// The importance: 0 is the most.
    pub band: u8,
    /// The time when it was offered.
    pub offered_us: i64,
    /// The time when nobody waits for it any longer.
    pub deadline_us: Option<i64>,
    /// The place where it is.
    pub place: Place,
    /// When something becomes of it by itself: the time of who took it is over, or its deadline. None for never.
    pub due_us: Option<i64>,
    /// The number of times that it was taken.
    pub takes: i32,
    /// It is dead when the time of who took it is over.
    pub last: bool,
    /// The row of the last take, while who took it may say something of it: of what is not away, that it is done.
    pub receipt: Option<i64>,
    /// Something was given with it.
    pub payload: bool,
}

/// The places of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It can be taken.
    Waiting,
    /// It is taken, or was given back for a time.
    Away,
    /// It was taken too often. It counts no more, and is kept to be looked at.
    Dead,
}

names!(Place, "place", Waiting "waiting", Away "away", Dead "dead");

/// The load of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Units that wait.
    pub waiting: i64,
    /// Units that are taken, or were given back for a time.
    pub away: i64,
}

/// The items of a queue, at one time: none of them is [due](Item::due_us) by then.
pub trait Shelf {
    /// The load of the queue.
    fn load(&self) -> Load;

    /// The items that wait, in the order in which they are taken.
    fn front(&self) -> impl Iterator<Item = &Item>;

    /// The items that wait and are less important than a band: the least important first, of these the
    /// newest.
    fn back(&self, band: u8) -> impl Iterator<Item = &Item>;
}

/// An item that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The transaction that names it.
    pub txn: Uuid,
    /// Units, 1 to 2^40.
    pub cost: i64,
    /// The importance: 0 is the most.
    pub band: u8,
    /// The number of microseconds after which nobody waits for it any longer.
    pub deadline_us: Option<i64>,
    /// Something is given with it.
    pub payload: bool,
}

/// The result of an offer, and the head that it leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// [`Reason::WithinLimit`]: it waits; or why it does not.
    pub reason: Reason,
    /// The item; None when it does not wait.
    pub item: Option<Item>,
    /// The backlog.
    pub limit: i64,
    /// The units of the backlog that are left.
    pub remaining: i64,
    /// The least wait after which the pace has made room for the same, if every worker keeps up.
    pub wait_us: Option<i64>,
    /// The time when nobody would wait for it any longer.
    pub deadline_us: Option<i64>,
    /// The items that made room for it, in this order. Each leaves a row behind that of the offer.
    pub evicted: Vec<Item>,
    /// The bucket's head after the offer's row.
    pub head: Head,
}

/// An item that was taken, and the head that it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The item as it is now: its receipt is the row of the take.
    pub item: Item,
    /// The units that can be taken at once.
    pub limit: i64,
    /// The units of these that can be taken still.
    pub remaining: i64,
    /// The bucket's next head.
    pub head: Head,
}

/// The word of a worker about an item that it took, or of a person about one that is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It keeps it for so many microseconds from now.
    Extend(i64),
    /// It has worked it off.
    Done,
    /// It gives it back, to be taken again after so many microseconds.
    Release(i64),
    /// It is dead, and is to be tried again, as if it had never been taken.
    Redrive,
}

impl Progress {
    /// The row that says it.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Extend(_) => Kind::Extend,
            Self::Done => Kind::Done,
            Self::Release(_) | Self::Redrive => Kind::Requeue,
        }
    }
}

/// The result for an item, and the head that it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progressed {
    /// The item as it is now; None when it has gone.
    pub item: Option<Item>,
    /// The backlog.
    pub limit: i64,
    /// The units of the backlog that are left.
    pub remaining: i64,
    /// Until when it is kept, or when it can be taken again.
    pub ends_us: Option<i64>,
    /// The bucket's next head.
    pub head: Head,
}

impl Item {
    /// The item as time has changed it up to a moment; None when its deadline is over and nobody has it.
    #[must_use]
    pub fn at(self, now_us: i64) -> Option<Self> {
        let mut item = self;
        while item.due_us.is_some_and(|due_us| due_us <= now_us) {
            item = item.next()?;
        }
        Some(item)
    }

    /// The item as it becomes by itself when it is due.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.place {
            // Its last worker may still say that it is done.
            Place::Away if self.last => Some(Self { receipt: self.receipt, ..self.dead() }),
            Place::Away => Some(self.waits()),
            Place::Waiting | Place::Dead => None,
        }
    }

    fn waits(self) -> Self {
        Self { place: Place::Waiting, due_us: self.deadline_us, ..self }
    }

    fn dead(self) -> Self {
        Self { place: Place::Dead, due_us: None, receipt: None, ..self }
    }

    /// It is tried again, as if it had never been taken.
    #[must_use]
    pub fn redriven(self) -> Self {
        Self { takes: 0, last: false, receipt: None, ..self.waits() }
    }
}

impl Load {
    /// With an item more.
    #[must_use]
    pub fn with(self, item: &Item) -> Self {
        self.and(item, item.cost)
    }

    /// With an item less.
    #[must_use]
    pub fn without(self, item: &Item) -> Self {
        self.and(item, -item.cost)
    }

    fn and(mut self, item: &Item, cost: i64) -> Self {
        match item.place {
            Place::Waiting => self.waiting = self.waiting.saturating_add(cost),
            Place::Away => self.away = self.away.saturating_add(cost),
            Place::Dead => {}
        }
        self
    }

    /// The units by which a backlog would be exceeded, with so many units more.
    #[must_use]
    pub fn lacks(self, cost: i64, backlog: i64) -> i64 {
        self.all().saturating_add(cost).saturating_sub(backlog)
    }

    fn all(self) -> i64 {
        self.waiting.saturating_add(self.away)
    }
}

/// Offers an item, which waits if there is room for it, or if less important items that wait can make it: the newest of the
/// least important first, and none of them if all together do not suffice.
///
/// # Errors
/// The [`Need`] that `ledger` answers with; else [`Need::Failed`]. Invalid: no policy was given, or the zone is no queue.
pub fn offer(
    bucket: Bucket<'_>,
    ledger: &impl Ledger,
    shelf: &impl Shelf,
    bid: Bid,
    now_us: i64,
) -> Result<Offered, Need> {
    let Now { now_us, head, policy, queueing, units } = Now::of(&bucket, ledger, now_us)?;
    let Queueing { backlog, .. } = queueing;
    let load = shelf.load();
    let lacking = load.lacks(bid.cost, backlog);
    let banned_us = head.banned_until_us.filter(|&until_us| until_us > now_us);
    let (mut evicted, mut freed) = (Vec::new(), 0_i64);
    let (reason, wait_us) = if bid.cost > backlog || bid.cost > policy.limit() {
        (Reason::ExceedsLimit, None)
    } else if let Some(until_us) = banned_us {
        (Reason::Banned, Some(until_us.saturating_sub(now_us)))
    } else {
        for item in shelf.back(bid.band) {
            if freed >= lacking {
                break;
            }
            freed = freed.saturating_add(item.cost);
            evicted.push(*item);
        }
        if freed >= lacking {
            (Reason::WithinLimit, None)
        } else {
            evicted.clear();
            // Those who have something may be done with it at any moment.
            let goes = goes_first(shelf, lacking.saturating_sub(load.away).saturating_sub(freed));
            let wait_us = time_for(&units, head.level, goes).max(time_for(&units, Some(0), 1));
            (Reason::OverLimit, Some(wait_us))
        }
    };
    let head = head.row(now_us, 0)?;
    let deadline_us = bid.deadline_us.map(|us| now_us.saturating_add(us));
    let item = reason.allows().then_some(Item {
        seq: head.seq,
        txn: bid.txn,
        cost: bid.cost,
        band: bid.band,
        offered_us: now_us,
        deadline_us,
        place: Place::Waiting,
        due_us: deadline_us,
        takes: 0,
        last: false,
        receipt: None,
        payload: bid.payload,
    });
    let left = if item.is_some() { freed.saturating_sub(lacking) } else { bid.cost.saturating_sub(lacking) };
    Ok(Offered { reason, item, limit: backlog, remaining: left.max(0), wait_us, deadline_us, evicted, head })
}

/// The units that are taken before so many have gone.
fn goes_first(shelf: &impl Shelf, units: i64) -> i64 {
    let mut goes = 0_i64;
    let mut front = shelf.front();
    while let Some(item) = front.next().filter(|_| goes < units) {
        goes = goes.saturating_add(item.cost);
    }
    goes
}

/// After how many microseconds so many units can have been taken, rounded up; they may be more than fit at once.
fn time_for(units: &Units, level: Option<i64>, goes: i64) -> i64 {
    let Units { per_us, per_token, capacity } = *units;
    let missing = i128::from(goes) * i128::from(per_token) - i128::from(level.unwrap_or(capacity));
    let per_us = i128::from(per_us.max(1));
    i64::try_from((missing.max(0) + per_us - 1) / per_us).unwrap_or(i64::MAX)
}

/// Takes what is next, for so many microseconds, if the pace lets it; else tells after how long it will, if anything
/// waits. An item that is dearer than what can be taken at once, because that was lowered, is taken when all of that is
/// there.
///
/// # Errors
/// Those of [`offer`], and the bucket's running total would leave 63 bits.
pub fn take(
    bucket: Bucket<'_>,
    ledger: &impl Ledger,
    shelf: &impl Shelf,
    visible_us: i64,
    now_us: i64,
) -> Result<Result<Taken, Option<i64>>, Need> {
    let Now { now_us, head, policy, queueing, units } = Now::of(&bucket, ledger, now_us)?;
    let Some(item) = shelf.front().next().copied() else { return Ok(Err(None)) };
    let wait_us = time_for(&units, head.level, item.cost.min(policy.limit()));
    if wait_us > 0 {
        return Ok(Err(Some(wait_us)));
    }
    let level = token_bucket::take(&policy, head.level, item.cost);
    let head = Head { level: Some(level), ..head.row(now_us, item.cost)? };
    let takes = item.takes.saturating_add(1);
    let item = Item {
        place: Place::Away,
        due_us: Some(now_us.saturating_add(visible_us)),
        takes,
        last: takes >= queueing.max_takes,
        receipt: Some(head.seq),
        ..item
    };
    let remaining = (level / units.per_token).max(0);
    Ok(Ok(Taken { item, limit: policy.limit(), remaining, head }))
}

/// Lets a worker say something of an item, if it is the one who took it last: while it has it, and, of one that is done, for
/// as long as nobody else has taken it. That a dead one is to be tried again anybody may say, without a receipt, if there is room.
///
/// # Errors
/// Those of [`offer`]. Conflict: the receipt is not that of the item's last take, or its time is over; the item that is to be
/// tried again is not dead, its deadline is over, or there is no room for it.
pub fn progress(
    bucket: Bucket<'_>,
    ledger: &impl Ledger,
    load: Load,
    item: Item,
    receipt: Option<i64>,
    progress: Progress,
    now_us: i64,
) -> Result<Progressed, Need> {
    let Now { now_us, head, queueing, .. } = Now::of(&bucket, ledger, now_us)?;
    if progress == Progress::Redrive {
        may_redrive(&item, load.lacks(item.cost, queueing.backlog), now_us)?;
    } else {
        may_say(&item, receipt, progress, now_us)?;
    }
    let (after, ends_us) = match progress {
        Progress::Extend(for_us) => {
            let until_us = Some(now_us.saturating_add(for_us));
            (Some(Item { due_us: until_us, ..item }), until_us)
        }
        Progress::Done => (None, None),
        Progress::Release(_) if item.last => (Some(item.dead()), None),
        Progress::Release(delay_us) => {
            let until_us = Some(now_us.saturating_add(delay_us));
            (Item { due_us: until_us, receipt: None, ..item }.at(now_us), until_us)
        }
        Progress::Redrive => (Some(item.redriven()), Some(now_us)),
    };
    let load = after.iter().fold(load.without(&item), |load, item| load.with(item));
    let head = head.row(now_us, 0)?;
    let remaining = queueing.backlog.saturating_sub(load.all()).max(0);
    Ok(Progressed { item: after, limit: queueing.backlog, remaining, ends_us, head })
}

/// The bounds of a queue, where the policy is that of one.
pub(crate) fn queueing(policy: &Policy) -> Result<Queueing> {
    policy.queueing().ok_or_else(|| {
        Error::invalid(format!(
            "a zone of {} has no items; {}, or use a zone of the algorithm queue",
            policy.algorithm(),
            policy.algorithm().is_asked_by()
        ))
    })
}

/// Is it the worker who took it last, and has it still?
fn may_say(item: &Item, receipt: Option<i64>, progress: Progress, now_us: i64) -> Result<()> {
    let has_it = receipt.is_some() && item.receipt == receipt;
    let why = match item.place {
        Place::Away if has_it => return Ok(()),
        Place::Dead if item.deadline_us.is_some_and(|deadline_us| deadline_us <= now_us) => {
            "the item is dead, and its deadline is over"
        }
        _ if has_it && progress == Progress::Done => return Ok(()),
        Place::Dead => "the item is dead; to try it again, redrive it",
        _ if has_it => "its time is over, and the item waits again",
        _ if item.receipt.is_some() => "its time was over, and the item was taken again",
        _ => "the item was given back, or tried again",
    };
    let seq = receipt.unwrap_or_default();
    Err(Error::conflict(format!("the receipt of row {seq} is lost: {why}")))
}

/// Is it dead, is it waited for, and is there room? `lacking` is the number of units that there is no room
/// for.
fn may_redrive(item: &Item, lacking: i64, now_us: i64) -> Result<()> {
    let Item { txn, place, cost, deadline_us, .. } = *item;
    let why = if place != Place::Dead {
        format!("it is {place}, and not dead")
    } else if deadline_us.is_some_and(|deadline_us| deadline_us <= now_us) {
        "its deadline is over; offer it anew".to_owned()
    } else if lacking > 0 {
        format!("its {cost} units are {lacking} more than there is room for; wait until something is done")
    } else {
        return Ok(());
    };
    Err(Error::conflict(format!("item {txn} cannot be tried again: {why}")))
}

/// A queue at a time that is not before its last row.
struct Now {
    now_us: i64,
    head: Head,
    policy: Policy,
    queueing: Queueing,
    units: Units,
}

impl Now {
    fn of(bucket: &Bucket<'_>, ledger: &impl Ledger, now_us: i64) -> Result<Self, Need> {
        let now_us = bucket.head.clamp(now_us);
        let current =
            bucket.versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
        let Brought { head, level, policy } = bring::to(bucket, ledger, now_us)?;
        let queueing = queueing(&policy)?;
        let head = Head { level, zone_version: current.version, ..*head };
        Ok(Self { now_us, head, queueing, units: Units::of(&policy), policy: *policy })
    }
}

impl Head {
    /// The head after a row that spends so much.
    fn row(&self, now_us: i64, spent: i64) -> Result<Self> {
        let spent_total = self.spent_total.checked_add(spent).ok_or_else(|| {
            Error::invalid(format!(
                "the bucket has spent {} in all and cannot count {spent} more",
                self.spent_total
            ))
        })?;
        Ok(Self { seq: self.seq + 1, last_us: now_us, spent_total, ..*self })
    }
}
