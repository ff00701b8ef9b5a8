//! One bucket's rows, one after the other: is each where it belongs, does it say what it said when it was hashed, and
//! does it follow from those before it?
//!
//! After a row that is wrong it goes on from what that row says of itself, so that the next fault shows and the rest of
//! the bucket is not reported for it.

mod dropped;
mod items;

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

pub(super) use dropped::{beyond, left_by, unlike};

use super::compare::{Difference, Replayed};
use super::fault::{Fault, FaultKind};
use super::hashed::hashed;
use super::replay::Replay;
use crate::chain::{self, Hash, Salt};
use crate::decide::{Exception, Hold, Shape, Version};
use crate::entry::{Kind, LedgerRow};
use crate::store::StoredHead;

/// Faults that are told of one bucket; more are counted.
const TOLD: usize = 100;

/// Transactions that are remembered of one bucket, so that one that comes twice is seen.
const REMEMBERED: usize = 1 << 20;

pub(super) struct Checking<'z> {
    zone: &'z str,
    key: String,
    salt: Option<Salt>,
    replay: Replay,
    overrides: Vec<Exception>,
    /// The rows that set them.
    set: Vec<i64>,
    head: Option<StoredHead>,
    /// The last row, and its hash.
    last: Option<i64>,
    hash: Hash,
    /// The hash before that, and that of a row which stands out of order.
    hash_before: Hash,
    beside: Option<Hash>,
    decided: HashSet<Uuid>,
    ended: HashSet<Uuid>,
    faults: Vec<Fault>,
    more: u64,
    /// The last row that was dropped.
    dropped: Option<StoredHead>,
    /// The row before the next one is not known.
    blind: bool,
    not_derivable: u64,
    /// Of the database, before anything of the bucket was read.
    now_us: i64,
    /// The number of the last row, by the head that was read before the rows.
    head_seq: i64,
    holding: bool,
    /// Another database has the bucket, or what is here is its copy on the way: the head decides nothing.
    moved: bool,
    /// The head, once its row was met and it was compared.
    met_head: Option<StoredHead>,
}

/// A bucket that was verified.
pub(super) struct Ended {
    pub replay: Replay,
    pub faults: Vec<Fault>,
    pub more: u64,
    pub not_derivable: u64,
}

impl<'z> Checking<'z> {
    pub fn new(
        (zone_id, zone): (i32, &'z str),
        key: String,
        first: &LedgerRow,
        (head, dropped, run_us): (Option<StoredHead>, Option<StoredHead>, i64),
        overrides: Vec<Exception>,
        replay: Replay,
        now_us: i64,
    ) -> Self {
        let own = head.as_ref().and_then(|head| head.salt);
        let left = dropped.as_ref().map_or(own, |dropped| dropped.salt);
        let salt = if first.seq == 1 { first.salt } else { left };
        let hash = chain::bucket(salt.as_ref(), zone_id, &key);
        let mut checking = Self {
            zone,
            key,
            salt,
            replay,
            overrides,
            set: Vec::new(),
            last: None,
            hash,
            hash_before: hash,
            beside: None,
            decided: HashSet::new(),
            ended: HashSet::new(),
            faults: Vec::new(),
            more: 0,
            dropped,
            blind: false,
            not_derivable: 0,
            now_us,
            head_seq: head.as_ref().map_or(0, |head| head.head.seq),
            holding: head.as_ref().is_some_and(|head| head.holding),
            moved: head.as_ref().is_some_and(|head| head.moved_to.is_some()),
            head,
            met_head: None,
        };
        if checking.head.is_some() && own != salt {
            let why = "the head has another salt than the first row".to_owned();
            checking.fault(FaultKind::WrongHead, None, None, why);
        }
        checking.begin(first, run_us);
        checking
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn lacks(&self, row: &LedgerRow) -> bool {
        self.replay.lacks(row)
    }

    pub fn is_behind(&self, row: &LedgerRow) -> bool {
        self.replay.is_behind(row)
    }

    pub fn catch_up(&mut self, versions: Arc<[Version]>, overrides: Vec<Exception>) {
        self.replay.catch_up(versions, overrides.clone());
        self.overrides = overrides;
    }

    /// The row that was read last.
    pub fn seq(&self) -> i64 {
        self.last.unwrap_or(0)
    }

    pub fn next(&mut self, row: &LedgerRow, charging: Option<&LedgerRow>) {
        if row.seq <= self.seq() && !self.follows(row) {
            return self.out_of_order(row);
        }
        let expected = self.seq() + 1;
        let gap = row.seq > expected;
        if gap {
            let rows = if row.seq == expected + 1 {
                format!("row {expected} is not there")
            } else {
                format!("rows {expected} to {} are not there", row.seq - 1)
            };
            self.fault(FaultKind::Missing, None, Some(expected), rows);
        }
        let gap = std::mem::take(&mut self.blind) || gap;
        let edited = self.chain(row, gap);
        self.meet_dropped(row);
        self.once(row);
        let doubt = self.replay.doubts(row) || self.replay.lacks_dropped(row);
        let replayed = self.replay.next(row, charging);
        if edited {
            self.replay.doubt(row.at_us);
        }
        match (replayed, edited) {
            (Replayed::Same, false) => {}
            (Replayed::Differs(differences), true) => {
                self.fault(FaultKind::Edited, Some(row), None, show(&differences));
            }
            (Replayed::Impossible(why), true) if !gap => self.fault(FaultKind::Edited, Some(row), None, why),
            (_, true) => {
                let what = "it, or the hash of the row before it, is not what was hashed";
                self.fault(FaultKind::Edited, Some(row), None, what.to_owned());
            }
            // The consequences of a missing or a changed row are no other fault.
            (_, false) if gap || doubt => {
                self.not_derivable += u64::from(self.replay.dropped_seq().is_some());
            }
            (Replayed::Differs(differences), false) => {
                // The one column that is in no hash and decides nothing.
                let edited = differences.iter().all(|difference| difference.column == "prev_at");
                let what = if edited { FaultKind::Edited } else { FaultKind::NotReproducible };
                self.fault(what, Some(row), None, show(&differences));
            }
            (Replayed::Impossible(why), false) => {
                self.fault(FaultKind::NotReproducible, Some(row), None, why)
            }
        }
        self.last = Some(row.seq);
        self.meet_head(row);
    }

    /// A row with a lower number that was hashed behind the last one: it is that one's number which was changed.
    fn follows(&mut self, row: &LedgerRow) -> bool {
        let Some(last) = &mut self.last else { return false };
        if hashed(row, None).hash(&self.hash, self.salt.as_ref()) != row.row_hash {
            return false;
        }
        let wrong = std::mem::replace(last, row.seq - 1);
        self.replay.renumber(row.seq - 1);
        self.faults.pop_if(|fault| fault.what == FaultKind::Missing);
        self.fault(FaultKind::Edited, None, Some(wrong), format!("its seq was {}", row.seq - 1));
        true
    }

    /// Did a row change since it was hashed behind the one before it? Nothing is said of one behind a gap.
    fn chain(&mut self, row: &LedgerRow, gap: bool) -> bool {
        let own = self.overrides.iter().find(|own| own.seq == row.seq && row.kind == Kind::Override);
        let row_of = hashed(row, own.copied());
        let closes = |before: &Hash| row_of.hash(before, self.salt.as_ref()) == row.row_hash;
        // The hash of the first row begins with its salt; any other salt is in no hash.
        let salted = row.seq > 1 && row.salt.is_some();
        let edited = salted || !gap && !closes(&self.hash) && !self.beside.as_ref().is_some_and(closes);
        self.set.extend(own.map(|own| own.seq));
        // When it ends is in the row, and not with the limit in its hash.
        if let Some(own) = own.filter(|own| !edited && own.until_us != row.ends_us) {
            let end = |us: Option<i64>| us.map_or("never".to_owned(), |us| format!("at {us} µs"));
            let why = format!("zone_override ends {}, its row {}", end(own.until_us), end(row.ends_us));
            self.fault(FaultKind::WrongHead, Some(row), None, why);
        }
        (self.hash_before, self.hash, self.beside) = (self.hash, row.row_hash, None);
        edited
    }

    /// A row that stands behind one with the same or a higher number.
    fn out_of_order(&mut self, row: &LedgerRow) {
        self.beside = Some(row.row_hash);
        let closes = hashed(row, None).hash(&self.hash_before, self.salt.as_ref()) == row.row_hash;
        let closes = closes && self.seq() == row.seq;
        let edited = |fault: &&mut Fault| fault.what == FaultKind::Edited && fault.seq == Some(row.seq);
        if let Some(twin) = self.faults.iter_mut().find(edited).filter(|_| closes) {
            twin.what = FaultKind::Inserted;
            twin.detail = "seq is that of another row, which is the one that was hashed".to_owned();
            return;
        }
        let missing = self.faults.iter().position(|fault| {
            fault.what == FaultKind::Missing && fault.seq.is_some_and(|seq| seq == row.seq)
        });
        match missing {
            // It is there after all, but at another time.
            Some(place) => {
                self.faults.remove(place);
                let why = "its time is later than that of a row with a higher seq".to_owned();
                self.fault(FaultKind::Reordered, Some(row), None, why);
            }
            None => {
                let why = format!("seq {} is that of another row too, or of none before it", row.seq);
                self.fault(FaultKind::Inserted, Some(row), None, why);
            }
        }
    }

    /// A transaction is decided once in a bucket, and ended once.
    fn once(&mut self, row: &LedgerRow) {
        let seen = match row.kind {
            kind if kind.is_charge() => &mut self.decided,
            kind if kind.is_undo() => &mut self.ended,
            _ => return,
        };
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        if !seen.insert(row.txn_id) {
            let why = format!("its transaction has a {} in this bucket already", row.kind);
            self.fault(FaultKind::Repeated, Some(row), None, why);
        }
    }

    /// The head as it was read says what the row of its seq left behind. Later rows came since.
    fn meet_head(&mut self, row: &LedgerRow) {
        let Some(stored) = self.head.take_if(|stored| stored.head.seq == row.seq) else { return };
        let head = &stored.head;
        let mut wrong = unlike(&stored, &left_by(row), &row.row_hash);
        let mut same = |column: &'static str, same: bool| wrong.extend((!same).then_some(column));
        if self.replay.is_whole() && !self.moved {
            let derived = self.replay.head();
            if self.replay.dropped_seq().is_none() {
                // The row of a ban comes with the check that brought it about.
                same("banned_until", head.banned_until_us == derived.banned_until_us);
                same("bans", head.bans == derived.bans);
                same("ban_strikes", head.ban_strikes == derived.ban_strikes);
                same("carried", head.carried == derived.carried);
                same("shapes", self.known(&stored.shapes) == self.known(self.replay.shapes()));
                same("override_seq", stored.override_seq == derived.exception.map(|own| own.seq));
            }
            same("holding", stored.holding || !self.replay.holds().iter().any(|hold| self.stays(hold)));
        }
        if !wrong.is_empty() {
            let why = format!("the head says otherwise than its last row: {}", wrong.join(", "));
            self.fault(FaultKind::WrongHead, Some(row), None, why);
        }
        self.met_head = Some(stored);
    }

    /// The shapes that are known still, whatever they were written down in order of.
    fn known(&self, shapes: &[Shape]) -> Vec<Shape> {
        let at_us = self.now_us.max(self.replay.head().last_us);
        let mut known: Vec<_> = shapes.iter().filter(|shape| shape.is_known(at_us)).cloned().collect();
        known.sort_unstable();
        known
    }

    /// The holds as they are stored, at the moment when the head was that of the last row.
    pub fn compare_holds(&mut self, stored: &[Hold]) {
        // Nothing that ended when it began counts anywhere: a statement that was killed may have left it.
        let counts = |hold: &&Hold| hold.amount > 0 || hold.ends_us > hold.charged_us;
        let asked_about = |holds: &[Hold]| {
            let kept = holds.iter().filter(|hold| self.replay.keeps(hold));
            // Of those of rows that were dropped, what has ended may be there still.
            let gone = |hold: &&Hold| self.is_dropped(hold.seq) && hold.ends_us <= self.now_us;
            let mut holds: Vec<_> = kept.filter(counts).filter(|hold| !gone(hold)).cloned().collect();
            holds.sort_by_key(|hold| hold.seq);
            holds
        };
        let (mut stored, mut derived) = (asked_about(stored), asked_about(self.replay.holds()));
        if !self.replay.is_whole() {
            // Whether or not rows were derived, a hold has its row.
            stored.retain(|hold| self.is_dropped(hold.seq));
            derived.clear();
        }
        derived.retain(|hold| self.stays(hold) || stored.contains(hold));
        if stored != derived {
            let odd = stored.iter().find(|hold| !derived.contains(hold));
            let odd = odd.or_else(|| derived.iter().find(|hold| !stored.contains(hold)));
            let seq = odd.map(|hold| hold.seq);
            let why = "zone_hold does not hold what the rows lead to".to_owned();
            self.fault(FaultKind::WrongHead, None, seq, why);
        }
    }

    /// True when the head knows of holds, or should.
    pub fn holds(&self) -> bool {
        !self.moved && (self.holding || !self.replay.holds().is_empty())
    }

    /// True when the head must be read once more: it is missing, or not that of the last row.
    pub fn lacks_head(&self) -> bool {
        self.met_head.is_none() || self.seq() > self.head_seq
    }

    /// Ends the bucket, with its head as it is now, and tells what was found.
    pub fn end(mut self, now: Option<&StoredHead>, heads_removed: bool) -> Ended {
        if self.lacks_head() {
            let last = self.seq();
            match now {
                // Nothing happens in an erased bucket any more.
                None if chain::is_erased(&self.key) => {}
                None if heads_removed && self.may_lack_head() => {}
                None => {
                    let why = "the bucket has rows but no head in zone_bucket_lock".to_owned();
                    self.fault(FaultKind::WrongHead, None, None, why);
                }
                Some(head) if head.head.seq > last && self.head_seq > last => {
                    let why = format!("rows {} to {} are not there", last + 1, head.head.seq);
                    self.fault(FaultKind::Truncated, None, Some(last + 1), why);
                }
                Some(head) if head.head.seq < last => {
                    let why = format!("the head is at {}, the ledger at {last}", head.head.seq);
                    self.fault(FaultKind::WrongHead, None, Some(last), why);
                }
                Some(_) => {}
            }
        }
        let head = now.or(self.met_head.as_ref()).filter(|head| head.head.seq == self.seq());
        if let Some(unlike) = head.map(|head| self.unlike_in_force(head)).filter(|unlike| !unlike.is_empty())
        {
            let why = format!("what the head says to be in force has no row: {}", unlike.join(", "));
            self.fault(FaultKind::WrongHead, None, Some(self.seq()), why);
        }
        for own in std::mem::take(&mut self.overrides) {
            // One that has ended is in force nowhere: a statement that was killed may have left it.
            let ended = own.until_us.is_some_and(|until| until <= self.now_us);
            let is_set = self.set.contains(&own.seq) || self.is_dropped(own.seq);
            let is_later = own.seq > self.seq() && now.is_some_and(|head| own.seq <= head.head.seq);
            if !is_set && !is_later && !ended {
                let why = format!("zone_override has a limit that row {} did not set", own.seq);
                self.fault(FaultKind::WrongHead, None, Some(own.seq), why);
            }
        }
        let Self { replay, faults, more, not_derivable, .. } = self;
        Ended { replay, faults, more, not_derivable }
    }

    fn fault(&mut self, what: FaultKind, row: Option<&LedgerRow>, seq: Option<i64>, detail: String) {
        if self.faults.len() >= TOLD {
            self.more += 1;
            return;
        }
        self.faults.push(Fault {
            shard: None,
            zone: self.zone.to_owned(),
            key: Some(self.key.clone()),
            seq: row.map(|row| row.seq).or(seq),
            txn_id: row.map(|row| row.txn_id),
            what,
            detail,
        });
    }
}

fn show(differences: &[Difference]) -> String {
    let all = differences.iter().map(|difference| {
        let Difference { column, recorded, derived } = difference;
        format!("{column} is {recorded}, the rows before it lead to {derived}")
    });
    all.collect::<Vec<_>>().join("; ")
}
