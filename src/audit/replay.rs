//! Derives a bucket's rows again, one after the other: would the core, given the rows before and the version that a row
//! names, record exactly that row?
//!
//! Memory is bounded by what the longest window of the zone holds, however long the ledger is.

mod derive;

use std::sync::Arc;

use uuid::Uuid;

use super::book::{Book, Found};
use super::compare::compare;
use crate::decide::{Bucket, Exception, Head, Hold, Version};
use crate::entry::Kind;
use crate::zone::Family;

pub use super::compare::{Difference, Replayed};
pub use crate::entry::LedgerRow;

/// A bucket on its way through its rows.
#[derive(Clone, Debug)]
pub struct Replay {
    versions: Arc<[Version]>,
    overrides: Vec<Exception>,
    /// How long before a row anything may be asked about.
    horizon_us: i64,
    state: State,
    book: Book,
    /// Where the last row did not say what was derived.
    other: Option<Box<Other>>,
    /// Until when what was not derived may be felt.
    doubt_until_us: Option<i64>,
    /// Was every row derived?
    whole: bool,
    /// Where rows before the first were dropped.
    dropped: Option<Dropped>,
    prune_at: usize,
}

#[derive(Clone, Debug, Default)]
struct State {
    head: Head,
    holds: Vec<Hold>,
    /// The ban that the last row brought about, which is the next row.
    ban: Option<Ban>,
}

#[derive(Clone, Copy, Debug)]
struct Ban {
    txn: Uuid,
    limit: i64,
    until_us: i64,
}

/// The bucket as it would stand had a row said what was derived.
#[derive(Clone, Debug)]
struct Other {
    state: State,
    derived: LedgerRow,
    recorded: LedgerRow,
}

/// What is not known of rows that were dropped.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    last_us: i64,
    /// Until when they may be in a window.
    until_us: i64,
    /// A ban, an override or a reservation of theirs may be in force.
    unsettled: bool,
    /// No row can show that there is none.
    stays: bool,
}

/// What a row should say, and what it leaves behind.
struct Derived {
    row: LedgerRow,
    head: Head,
    hold: Option<Hold>,
    ban: Option<Ban>,
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
        (self.doubt_until_us, self.whole, self.dropped) = (None, true, None);
        self.prune_at = 64;
    }

    /// Goes on with row `seq` + 1, of a bucket that the last of its dropped rows left like this.
    pub(super) fn begin_behind(&mut self, seq: i64, left: &Head) {
        let hides = |version: &Version| {
            let family = version.policy.algorithm().family();
            matches!(family, Family::Level | Family::Held) || version.policy.ban().is_some()
        };
        self.state.holds.clear();
        (self.state.head, self.state.ban, self.other) = (Head { seq, ..*left }, None, None);
        self.book.clear((left.spent_total, left.strikes), true);
        self.whole = false;
        self.dropped = Some(Dropped {
            last_us: left.last_us,
            until_us: left.last_us.saturating_add(self.horizon_us),
            unsettled: true,
            stays: self.versions.iter().any(hides) || self.overrides.iter().any(|own| own.seq <= left.seq),
        });
    }

    /// For how long upkeep keeps what has ended, at least: it goes by the version of its time.
    pub(super) fn needed_us(&self) -> i64 {
        let windows = self.versions.iter().map(|version| version.policy.window_us());
        windows.min().unwrap_or(0).saturating_mul(2)
    }

    /// True where rows before the first were dropped.
    pub(super) fn is_behind_dropped(&self) -> bool {
        self.dropped.is_some()
    }

    /// True when a row may depend on what was dropped: then it need not be derivable.
    pub(super) fn lacks_dropped(&self, row: &LedgerRow) -> bool {
        self.dropped.is_some_and(|dropped| {
            let of_theirs = row.target_us.is_some_and(|us| us <= dropped.last_us);
            dropped.unsettled || row.at_us <= dropped.until_us || of_theirs
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
        let mut derived = self.derive(row, charging);
        let mut replayed = judge(row, &derived);
        if let Some(mut other) = self.other.take().filter(|_| replayed != Replayed::Same) {
            std::mem::swap(&mut self.state, &mut other.state);
            self.book.correct_last(&other.derived);
            let again = self.derive(row, charging);
            if judge(row, &again) == Replayed::Same {
                (derived, replayed) = (again, Replayed::Same);
            } else {
                std::mem::swap(&mut self.state, &mut other.state);
                self.book.correct_last(&other.recorded);
            }
        }
        self.go_on(row, derived, &replayed);
        replayed
    }

    /// True while a row that could not be derived, or is missing, is in the window of those that come now: then it may
    /// be why they cannot be derived either.
    pub fn is_in_doubt(&self, at_us: i64) -> bool {
        self.doubt_until_us.is_some_and(|until_us| at_us <= until_us)
    }

    /// The bucket before a row of its ledger, with the versions that the row is decided by.
    pub(super) fn before(&self, row: &LedgerRow) -> Result<(Bucket<'_>, &Book), String> {
        Ok((self.seen(self.versions_to(row)?), &self.book))
    }

    /// What the last row left behind.
    pub(super) fn head(&self) -> &Head {
        &self.state.head
    }

    /// What is held, and what has ended of charges that may still be asked about.
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
        }
        if *replayed != Replayed::Same {
            // What a fault leads to does not prolong the doubt that it casts.
            if !self.is_in_doubt(row.at_us) {
                self.doubt(row.at_us);
            }
            self.whole = false;
            if row.seq != self.state.head.seq + 1 && self.state.head.seq == 0 {
                self.book.clear((row.spent_total.saturating_sub(row.spent), row.strikes), true);
            }
        }
        match derived {
            Ok(Derived { row: said, head, hold, ban }) => {
                if let Some(hold) = hold {
                    let held = |v: &Version| {
                        v.version == head.zone_version && v.policy.algorithm().family() == Family::Held
                    };
                    if !row.kind.is_undo() && self.versions.iter().any(held) {
                        self.state.holds.retain(|held| held.ends_us > head.last_us);
                    }
                    put(&mut self.state.holds, hold);
                }
                (self.state.head, self.state.ban) = (head, ban);
                if *replayed != Replayed::Same {
                    let state = self.state.clone();
                    self.other = Some(Box::new(Other { state, derived: said, recorded: row.clone() }));
                    self.adopt(row);
                }
            }
            Err(_) => self.adopt(row),
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
