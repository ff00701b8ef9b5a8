//! Derives a bucket's rows again, one after the other: would the core, given the rows before and the version that a row
//! names, record exactly that row?
//!
//! Memory is bounded by what the longest window of the zone holds, however long the ledger is.

mod derive;
mod items;
mod queue;

use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use super::book::{Book, Found};
use super::compare::{compare, derived};
use crate::chain::Row;
use crate::decide::{Bucket, Exception, Head, Hold, SHAPE_AGE_US, Shape, Standing, Version, learn};
use crate::entry::Kind;
use crate::zone::Family;
use queue::Evicted;

pub(super) use items::Items;

pub use super::compare::{Difference, Replayed};
pub use crate::entry::LedgerRow;

/// A bucket on its way through its rows.
#[derive(Clone, Debug)]
pub struct Replay {
    versions: Arc<[Version]>,
    overrides: Vec<Exception>,
    /// The time before a row as far back as anything may be asked about.
    horizon_us: i64,
    state: State,
    book: Book,
    /// The place where the last row did not say what was derived.
    other: Option<Box<Other>>,
    /// The time until which what was not derived may be felt.
    doubt_until_us: Option<i64>,
    /// Was every row derived?
    whole: bool,
    /// The rows that were dropped before the first.
    dropped: Option<Dropped>,
    set: Set,
    prune_at: usize,
}

/// The last ban and the last override, as rows set or ended them, whatever else could be derived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Set {
    pub banned_until_us: Option<i64>,
    /// `strikes` at that row; None where there is no such row.
    pub ban_strikes: Option<i64>,
    pub own: Option<Exception>,
}

#[derive(Clone, Debug, Default)]
struct State {
    head: Head,
    holds: Vec<Hold>,
    /// The leases of capacity among them, with what was asked for.
    leases: Vec<Standing>,
    /// The shapes that settlements taught.
    shapes: Vec<Shape>,
    /// The ban that the last row brought about, which is the next row.
    ban: Option<Ban>,
    /// The items of a queue.
    items: Items,
    /// The items that the last offer evicted: the next rows.
    evicted: VecDeque<Evicted>,
}

#[derive(Clone, Copy, Debug)]
struct Ban {
    txn: Uuid,
    limit: i64,
    until_us: i64,
}

/// The bucket as it would stand had a row said what was derived, or a dropped row set a limit.
#[derive(Clone, Debug)]
struct Other {
    state: State,
    /// The last row as it was derived, and as it is recorded.
    last: Option<(LedgerRow, LedgerRow)>,
}

/// The facts that are not known of rows that were dropped.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    seq: i64,
    last_us: i64,
    /// The time until which they may be in a window.
    until_us: i64,
    /// The time when they were dropped: what was in force then has its row among those that are left.
    run_us: i64,
    /// A ban, an override or a reservation of theirs may be in force.
    unsettled: bool,
    /// No row from before they were dropped can show that there is none.
    stays: bool,
    /// It is not known how many bans followed each other.
    escalated: bool,
}

/// The text that a row should have, and the head that it leaves behind.
struct Derived {
    row: LedgerRow,
    head: Head,
    hold: Option<Hold>,
    ban: Option<Ban>,
    evicted: VecDeque<Evicted>,
}

impl Derived {
    /// A row that leaves nothing but the head, and what it says itself.
    fn of(row: &LedgerRow, made: &Row<'_>, head: Head) -> Self {
        Self { row: derived(row, made), head, hold: None, ban: None, evicted: VecDeque::new() }
    }
}

impl Replay {
    /// A bucket without rows, in a zone with these versions, in order, and with all overrides that it ever had.
    pub fn new(versions: Arc<[Version]>, overrides: Vec<Exception>) -> Self {
        let mut replay = Self {
            versions,
            overrides: Vec::new(),
            horizon_us: 0,
            state: State::default(),
            book: Book::default(),
            other: None,
            doubt_until_us: None,
            whole: true,
            dropped: None,
            set: Set::default(),
            prune_at: 0,
        };
        replay.restart(Arc::clone(&replay.versions), overrides);
        replay
    }

    /// The same for another bucket; what memory it has is used again.
    pub fn restart(&mut self, versions: Arc<[Version]>, overrides: Vec<Exception>) {
        self.know(versions, overrides);
        self.state.holds.clear();
        self.state = State { holds: std::mem::take(&mut self.state.holds), ..State::default() };
        self.book.clear((0, 0), false);
        self.other = None;
        (self.doubt_until_us, self.whole, self.dropped, self.set) = (None, true, None, Set::default());
        self.prune_at = 64;
    }

    /// Goes on with row `seq` + 1, of a bucket that the last of its dropped rows left like this, by a run of upkeep of this
    /// time.
    pub(super) fn begin_behind(&mut self, seq: i64, left: &Head, run_us: i64) {
        let hides = |version: &Version| {
            let family = version.policy.algorithm().family();
            matches!(family, Family::Level | Family::Held) || version.policy.ban().is_some()
        };
        self.state.holds.clear();
        (self.state.items, self.state.evicted) = Default::default();
        (self.state.head, self.state.ban, self.other) = (Head { seq, ..*left }, None, None);
        self.state.shapes.clear();
        self.set = Set::default();
        self.book.clear((left.spent_total, left.strikes), true);
        let mut before = self.overrides.iter().filter(|own| own.seq <= left.seq);
        self.dropped = Some(Dropped {
            seq,
            last_us: left.last_us,
            until_us: left.last_us.saturating_add(self.horizon_us),
            run_us,
            unsettled: true,
            stays: self.versions.iter().any(hides) || before.clone().next().is_some(),
            escalated: true,
        });
        // The last of them may be in force: then only with it the next row can be derived.
        self.other = before.next_back().map(|own| {
            let mut state = self.state.clone();
            state.head.exception = Some(*own);
            Box::new(Other { state, last: None })
        });
    }

    /// For how long upkeep keeps what has ended, at least: it goes by the version of its time.
    pub(super) fn needed_us(&self) -> i64 {
        let windows = self.versions.iter().map(|version| version.policy.window_us());
        windows.min().unwrap_or(0).saturating_mul(2)
    }

    /// True when a row may depend on what was dropped: then it need not be derivable.
    pub(super) fn lacks_dropped(&self, row: &LedgerRow) -> bool {
        self.dropped.is_some_and(|dropped| {
            let of_theirs = row.target_us.is_some_and(|us| us <= dropped.last_us);
            let taught = row.is_predicted() && row.at_us.saturating_sub(dropped.last_us) < SHAPE_AGE_US;
            let before = row.at_us <= dropped.until_us || (of_theirs && row.at_us <= dropped.run_us);
            let unsettled = dropped.unsettled && row.at_us <= dropped.run_us;
            unsettled || before || taught || (dropped.escalated && row.kind == Kind::Ban)
        })
    }

    /// True when the row names what came into the database after the versions and overrides that are known here.
    pub(super) fn is_behind(&self, row: &LedgerRow) -> bool {
        self.versions.last().is_none_or(|last| last.version < row.zone_version)
            || (row.kind == Kind::Override && !self.overrides.iter().any(|own| own.seq == row.seq))
    }

    /// Goes on with these, which are those that were known and later ones.
    pub(super) fn catch_up(&mut self, versions: Arc<[Version]>, overrides: Vec<Exception>) {
        let horizon_us = self.horizon_us;
        self.know(versions, overrides);
        if self.horizon_us > horizon_us {
            // Rows of a longer window may be forgotten already.
            self.doubt(self.state.head.last_us);
        }
    }

    fn know(&mut self, versions: Arc<[Version]>, overrides: Vec<Exception>) {
        let own = overrides.iter().filter_map(|over| over.limit).map(|limit| limit.window_us).max();
        let back = |version: &Version| {
            let policy = &version.policy;
            // Of a sliding counter's window, the slot before it is asked about too, which is no longer.
            let window_us = policy.window_us().max(own.unwrap_or(0)).saturating_mul(2);
            let window_us = if policy.algorithm().family() == Family::Level { 0 } else { window_us };
            window_us.max(policy.ban().map_or(0, |ban| ban.within_us))
        };
        self.horizon_us = versions.iter().map(back).max().unwrap_or(0);
        (self.versions, self.overrides) = (versions, overrides);
    }

    /// `seq` of the last row; 0 before the first.
    pub fn seq(&self) -> i64 {
        self.state.head.seq
    }

    /// True when the charge that the row ends is older than what is kept here: it must be given to
    /// [`next`](Self::next) with the row.
    pub fn lacks(&self, row: &LedgerRow) -> bool {
        row.kind.is_undo()
            && row.target_us.is_some_and(|us| matches!(self.book.charge(row.txn_id, us), Found::Forgotten))
    }

    /// Goes on to the bucket's next row and says whether it can be derived. `charging` is the row that made the charge
    /// which this one ends, where it is [lacking](Self::lacks).
    ///
    /// After a row that cannot be derived it goes on from what that row says; or, if only so the next row can be derived,
    /// from what the row should have said.
    pub fn next(&mut self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Replayed {
        self.settle(row);
        let mut derived = self.derive(row, charging);
        let mut replayed = judge(row, &derived);
        if let Some(mut other) = self.other.take().filter(|_| replayed != Replayed::Same) {
            std::mem::swap(&mut self.state, &mut other.state);
            self.state.items.settle(row.at_us);
            if let Some((derived, _)) = &other.last {
                self.book.correct_last(derived);
            }
            let again = self.derive(row, charging);
            if judge(row, &again) == Replayed::Same {
                (derived, replayed) = (again, Replayed::Same);
            } else {
                std::mem::swap(&mut self.state, &mut other.state);
                if let Some((_, recorded)) = &other.last {
                    self.book.correct_last(recorded);
                }
            }
        }
        self.go_on(row, derived, &replayed);
        replayed
    }

    /// Lets become of items what became of them by itself before a row of their queue.
    pub(super) fn settle(&mut self, row: &LedgerRow) {
        if row.kind.is_of_queue() {
            self.state.items.settle(row.at_us);
        }
    }

    /// True while a row that could not be derived, or is missing, is in the window of those that come now: then it may
    /// be why they cannot be derived either.
    pub fn is_in_doubt(&self, at_us: i64) -> bool {
        self.doubt_until_us.is_some_and(|until_us| at_us <= until_us)
    }

    /// The same of a row; a prediction depends on rows of its own window.
    pub(super) fn doubts(&self, row: &LedgerRow) -> bool {
        let back_us = if row.is_predicted() { SHAPE_AGE_US } else { 0 };
        self.is_in_doubt(row.at_us.saturating_sub(back_us))
    }

    /// The bucket before a row of its ledger, with the versions that the row is decided by.
    pub(super) fn before(&self, row: &LedgerRow) -> Result<(Bucket<'_>, &Book), String> {
        Ok((self.seen(self.versions_to(row)?), &self.book))
    }

    /// The head that the last row left behind.
    pub(super) fn head(&self) -> &Head {
        &self.state.head
    }

    /// The leases of capacity, some of which may have ended.
    pub(super) fn leases(&self) -> &[Standing] {
        &self.state.leases
    }

    /// The shapes that settlements taught; some of them may be too old.
    pub(super) fn shapes(&self) -> &[Shape] {
        &self.state.shapes
    }

    /// Is it a queue?
    pub(super) fn is_queue(&self) -> bool {
        self.versions.last().is_some_and(|version| version.policy.queueing().is_some())
    }

    /// The items of a queue, as of its last row.
    pub(super) fn items(&self) -> &Items {
        &self.state.items
    }

    /// The holds, and what has ended of charges that may still be asked about.
    pub(super) fn holds(&self) -> &[Hold] {
        &self.state.holds
    }

    /// May what ends, or has ended, still be asked about?
    pub(super) fn keeps(&self, hold: &Hold) -> bool {
        let last_us = self.state.head.last_us;
        hold.ends_us > last_us || hold.charged_us >= last_us.saturating_sub(self.horizon_us)
    }

    /// The last row has another number than it says.
    pub(super) fn renumber(&mut self, seq: i64) {
        self.state.head.seq = seq;
    }

    /// The ban and the override that rows have set.
    pub(super) fn set(&self) -> Set {
        self.set
    }

    /// The last row that was dropped of those before the first.
    pub(super) fn dropped_seq(&self) -> Option<i64> {
        self.dropped.map(|dropped| dropped.seq)
    }

    /// False when a row could not be derived: then what is not in rows is not known for certain.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// A row of this time is not what it was, though it can be derived.
    pub(super) fn doubt(&mut self, at_us: i64) {
        self.doubt_until_us = Some(at_us.saturating_add(self.horizon_us));
    }

    fn seen<'s>(&'s self, versions: &'s [Version]) -> Bucket<'s> {
        Bucket { versions, head: &self.state.head, holds: &self.state.holds }
    }

    fn go_on(&mut self, row: &LedgerRow, derived: Result<Derived, String>, replayed: &Replayed) {
        if let Some(dropped) = &mut self.dropped {
            let shows = *replayed == Replayed::Same && row.kind.is_check() && row.at_us > dropped.until_us;
            dropped.unsettled &= dropped.stays || !shows;
            dropped.escalated &= row.kind != Kind::Unban;
        }
        if *replayed != Replayed::Same {
            // A row that a fault leads to does not prolong the doubt that it casts.
            if !self.is_in_doubt(row.at_us) {
                self.doubt(row.at_us);
            }
            self.whole = false;
            if row.seq != self.state.head.seq + 1 && self.state.head.seq == 0 {
                self.book.clear((row.spent_total.saturating_sub(row.spent), row.strikes), true);
            }
        }
        match derived {
            Ok(Derived { row: said, head, hold, ban, evicted }) => {
                if let Some(hold) = hold {
                    let held = |v: &Version| {
                        v.version == head.zone_version && v.policy.algorithm().family() == Family::Held
                    };
                    if !row.kind.is_undo() && self.versions.iter().any(held) {
                        self.state.holds.retain(|held| held.ends_us > head.last_us);
                    }
                    put(&mut self.state.holds, hold);
                }
                self.state.lease(&said);
                self.record(&said);
                if said.kind == Kind::Evict {
                    self.state.evicted.pop_front();
                } else {
                    self.state.evicted = evicted;
                }
                (self.state.head, self.state.ban) = (head, ban);
                let shapes = (*replayed != Replayed::Same).then(|| self.state.shapes.clone());
                self.state.learn(&said);
                if let Some(shapes) = shapes {
                    let state = self.state.clone();
                    self.other = Some(Box::new(Other { state, last: Some((said, row.clone())) }));
                    self.state.shapes = shapes;
                    self.adopt(row);
                }
            }
            Err(_) => self.adopt(row),
        }
        match row.kind {
            Kind::Ban | Kind::Unban => {
                (self.set.banned_until_us, self.set.ban_strikes) = (row.ends_us, Some(row.strikes));
            }
            Kind::Override | Kind::OverrideEnd => {
                self.set.own = self.overrides.iter().find(|own| own.seq == row.seq).copied();
            }
            _ => {}
        }
        self.book.push(row);
        let before_us = self.state.head.last_us.saturating_sub(self.horizon_us);
        self.book.forget(before_us);
        if self.state.holds.len() >= self.prune_at {
            let mut holds = std::mem::take(&mut self.state.holds);
            holds.retain(|hold| self.keeps(hold));
            self.prune_at = (holds.len() * 2).max(64);
            self.state.holds = holds;
        }
    }

    /// Takes what the row says for the truth.
    fn adopt(&mut self, row: &LedgerRow) {
        let LedgerRow { seq, at_us, spent_total, level, zone_version, strikes, .. } = *row;
        let head = &mut self.state.head;
        *head = Head { seq, last_us: at_us, spent_total, level, zone_version, strikes, ..*head };
        if row.kind == Kind::Ban {
            (head.banned_until_us, head.ban_strikes) = (row.ends_us, strikes);
        }
        self.state.ban = None;
        self.state.lease(row);
        self.state.learn(row);
        self.record(row);
    }

    /// Takes down what a row says of its item, if it is of a queue.
    fn record(&mut self, row: &LedgerRow) {
        if row.kind.is_of_queue() {
            let version = self.versions.iter().find(|version| version.version == row.zone_version);
            let queueing = version.and_then(|version| version.policy.queueing());
            self.state.items.record(row, queueing.map_or(i32::MAX, |queueing| queueing.max_takes));
        }
    }
}

impl State {
    /// A settlement teaches what requests of its shape come to.
    fn learn(&mut self, row: &LedgerRow) {
        if let (Kind::Settle, Some(shape)) = (row.kind, &row.member) {
            learn(&mut self.shapes, shape, row.cost, row.at_us);
        }
    }

    /// A lease takes the place of the one that its client had.
    fn lease(&mut self, row: &LedgerRow) {
        let (Kind::Lease, Some(client)) = (row.kind, &row.member) else { return };
        self.holds.retain(|hold| hold.member.as_ref() != Some(client));
        self.leases.retain(|lease| lease.client != *client && lease.ends_us > row.at_us);
        let Some(ends_us) = row.ends_us else { return };
        self.holds.retain(|hold| hold.ends_us > row.at_us);
        self.holds.push(Hold {
            seq: row.seq,
            charged_us: row.at_us,
            amount: row.spent,
            ends_us,
            member: Some(client.clone()),
        });
        self.leases.push(Standing {
            seq: row.seq,
            since_us: row.target_us.unwrap_or(row.at_us),
            client: client.clone(),
            wants: row.cost,
            weight: row.checks,
            band: row.band.unwrap_or_default(),
            has: row.spent,
            ends_us,
        });
    }
}

/// In place of what was to end of the same charge.
fn put(holds: &mut Vec<Hold>, hold: Hold) {
    match holds.iter_mut().find(|held| held.seq == hold.seq) {
        Some(held) => *held = Hold { member: held.member.take(), ..hold },
        None => holds.push(hold),
    }
}

fn judge(row: &LedgerRow, derived: &Result<Derived, String>) -> Replayed {
    match derived {
        Ok(derived) => compare(row, &derived.row),
        Err(why) => Replayed::Impossible(why.clone()),
    }
}
