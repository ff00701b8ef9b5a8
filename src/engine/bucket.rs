//! A bucket on its way through what a call does to it.

use std::sync::Arc;

use super::known::{Known, Lack};
use super::{Loaded, Moved, Name};
use crate::chain::End;
use crate::decide::{
    self, Ask, Claim, Event, Granted, Happened, Head, Hold, Need, Outcome, Standing, UnitsTaken, Version,
    decide, happen, lease, take_units,
};
use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::Family;

/// A bucket as it was loaded, and as the call has made it.
pub(super) struct Bucket<'b> {
    pub name: Name<'b>,
    pub known: Known,
    /// Of the chain, as it was loaded.
    end: End,
    /// Never before the last row.
    now_us: i64,
    /// For so long it is not `now_us` yet, where the clock went backwards.
    ahead_us: i64,
    /// Those of the zone, from the oldest that decided the last row of one of its buckets.
    versions: Arc<[Version]>,
    holds: Vec<Hold>,
    loaded: State,
    state: State,
    /// The database must be asked before it can go on.
    stopped: bool,
    /// The database has no row of it.
    is_new: bool,
    /// Its row was removed from the database.
    removed: bool,
}

#[derive(Clone, Copy)]
struct State {
    /// The first of the versions that matter.
    from: usize,
    head: Head,
    /// The holds that there are by now: further ones follow.
    holds: usize,
    /// The database has holds of the bucket, or had.
    holding: bool,
}

/// A check that was decided, and from what.
pub(super) struct Turn {
    pub outcome: Outcome,
    before: State,
    exact: bool,
}

/// An event besides a check, and the head that it left.
pub(super) struct Mark {
    pub happened: Happened,
    /// The time of the row before it.
    pub before_us: Option<i64>,
    pub limit: i64,
    pub remaining: i64,
}

impl<'b> Bucket<'b> {
    pub fn new(
        name: Name<'b>,
        loaded: Loaded,
        versions: Arc<[Version]>,
        holds: Vec<Hold>,
        clock_us: i64,
    ) -> Self {
        let Loaded { head, end, holding, removed } = loaded;
        let (now_us, from) = if head.seq > 0 {
            let from = versions.partition_point(|version| version.version < head.zone_version);
            (clock_us.max(head.last_us), from)
        } else {
            (clock_us, versions.len().saturating_sub(1))
        };
        let state = State { from, head, holds: holds.len(), holding };
        Self {
            name,
            known: Known::new(head, now_us),
            is_new: end.is_none(),
            end: end.unwrap_or_else(|| End::new(name.0, name.1)),
            now_us,
            ahead_us: now_us.saturating_sub(clock_us),
            versions,
            holds,
            loaded: state,
            state,
            stopped: false,
            removed,
        }
    }

    /// Is so much refused whatever else is there?
    pub fn refuses(&self, cost: i64) -> Result<bool> {
        let Head { banned_until_us, exception, .. } = self.state.head;
        let is_banned = banned_until_us.is_some_and(|until_us| until_us > self.now_us);
        Ok(is_banned || exception.is_none() && cost > self.current()?.policy.limit())
    }

    /// The bucket as the call has made it; None where it only looked.
    pub fn moved(&self, place: usize) -> Option<Moved<'b>> {
        let (State { head, holding, .. }, loaded) = (self.state, self.loaded);
        let Head { seq, last_us, spent_total, level, zone_version, strikes, .. } = head;
        let by_row = Head { seq, last_us, spent_total, level, zone_version, strikes, ..loaded.head };
        (seq > loaded.head.seq).then_some(Moved {
            name: self.name,
            place,
            is_new: self.is_new,
            removed: self.removed,
            before: loaded.head,
            before_hash: self.end.hash,
            head,
            holding,
            by_row: by_row == head && holding == loaded.holding,
            end: self.end,
            ended: false,
            shapes: None,
        })
    }

    pub fn now_us(&self) -> i64 {
        self.now_us
    }

    /// A wait of a row's, which counts from the row's time: as it counts from now.
    pub fn wait_us(&self, of_row: Option<i64>) -> Option<i64> {
        of_row.map(|us| us.saturating_add(self.ahead_us))
    }

    /// Nothing happens in it before this time. Nothing was asked of it yet.
    pub fn not_before(&mut self, us: i64) {
        let later_us = us.saturating_sub(self.now_us).max(0);
        self.now_us += later_us;
        self.ahead_us += later_us;
        self.known = Known::new(self.loaded.head, self.now_us);
    }

    /// True when it has new holds, and those that have ended need not be kept.
    pub fn forgets_holds(&self) -> bool {
        let version = self.versions.last();
        let is_held = version.is_some_and(|version| version.policy.algorithm().family() == Family::Held);
        is_held && self.state.holds > self.loaded.holds
    }

    /// Lets the core ask for the sums of all its windows at once, before it decides anything.
    pub fn look_ahead(&self) -> Result<()> {
        if self.state.head.seq > 0 && !self.versions.is_empty() {
            self.tell(&self.state, &Ask::default())?;
        }
        Ok(())
    }

    /// Decides a check; None when the database must be asked first. The wait may be known later than the rest.
    pub fn decide(&mut self, ask: &Ask<'_>, leaves_row: bool) -> Result<Option<Turn>> {
        self.current()?;
        if self.stopped {
            return Ok(None);
        }
        let before = self.state;
        let (outcome, lack) = self.tell(&before, ask)?;
        // A ban may begin with the end of the wait.
        let outcome = outcome.filter(|outcome| lack == Lack::Nothing || outcome.banned_until_us.is_none());
        let Some(outcome) = outcome else {
            self.stopped = true;
            return Ok(None);
        };
        if leaves_row {
            self.holds.extend(outcome.hold(ask.member));
            self.state = self.after(outcome.head, outcome.ends_us.is_some());
        }
        Ok(Some(Turn { outcome, before, exact: lack == Lack::Nothing }))
    }

    /// Decides a check once more, when its wait is not known yet.
    pub fn decide_again(&self, turn: &mut Turn, ask: &Ask<'_>) -> Result<()> {
        if !turn.exact
            && let (Some(outcome), lack) = self.tell(&turn.before, ask)?
        {
            turn.outcome = outcome;
            turn.exact = lack == Lack::Nothing;
        }
        Ok(())
    }

    /// Takes the only check of the bucket back, and blocks it because of another limit.
    pub fn hold_back(&mut self, turn: &mut Turn, ask: &Ask<'_>, leaves_row: bool) -> Result<()> {
        self.holds.truncate(turn.before.holds);
        self.state = turn.before;
        let again = self.decide(&Ask { held_back: true, ..*ask }, leaves_row)?;
        *turn = again.ok_or_else(|| Error::database("a check that was decided could not be held back"))?;
        Ok(())
    }

    /// A row for checks that were blocked without asking: it brings the state to now and spends nothing.
    pub fn stay_blocked(&mut self) -> Result<Option<Turn>> {
        let Some(mut turn) = self.decide(&Ask::default(), true)? else { return Ok(None) };
        let banned = turn.outcome.head.banned_until_us.is_some_and(|until_us| until_us > self.now_us);
        turn.outcome.blocked = true;
        turn.outcome.reason = if banned { Reason::Banned } else { Reason::OverLimit };
        turn.outcome.delay_us = None;
        Ok(Some(turn))
    }

    /// Lets something happen; None when the database must be asked first.
    pub fn happen(&mut self, event: Event) -> Result<Option<Mark>> {
        self.current()?;
        if self.stopped {
            return Ok(None);
        }
        let before = self.state;
        let (happened, _) = self.known.tell(|known| happen(self.seen(&before), known, event, self.now_us))?;
        let Some(happened) = happened else {
            self.stopped = true;
            return Ok(None);
        };
        let mut holds = self.holds.clone();
        if let Some(hold) = &happened.hold {
            match holds.iter_mut().find(|held| held.seq == hold.seq) {
                Some(held) => *held = Hold { member: held.member.take(), ..hold.clone() },
                None => holds.push(hold.clone()),
            }
        }
        let holds = std::mem::replace(&mut self.holds, holds);
        let after = self.after(happened.head, happened.hold.is_some());
        let (peek, _) = self.tell(&after, &Ask::default())?;
        let Some(peek) = peek else {
            self.holds = holds;
            self.stopped = true;
            return Ok(None);
        };
        self.state = after;
        Ok(Some(Mark {
            before_us: last_us(&before.head),
            limit: peek.limit,
            remaining: peek.remaining,
            happened,
        }))
    }

    /// Grants a lease, and says when the row before it was decided; None when the database must be asked first.
    pub fn lease(
        &mut self,
        standing: &[Standing],
        claim: Claim<'_>,
    ) -> Result<Option<(Granted, Option<i64>)>> {
        self.current()?;
        let before = self.state;
        let now_us = self.now_us;
        let tell = |known: &Known| lease(self.seen(&before), standing, known, claim, now_us);
        let (granted, _) = self.known.tell(tell)?;
        let Some(granted) = granted else {
            self.stopped = true;
            return Ok(None);
        };
        self.state = self.after(granted.head, true);
        Ok(Some((granted, last_us(&before.head))))
    }

    /// Takes units for local decisions, and says when the row before it was decided; None when the database must be asked first.
    pub fn take_units(&mut self, wants: i64) -> Result<Option<(Option<UnitsTaken>, Option<i64>)>> {
        self.current()?;
        let before = self.state;
        let (taken, _) =
            self.known.tell(|known| take_units(self.seen(&before), known, wants, self.now_us))?;
        let Some(taken) = taken else {
            self.stopped = true;
            return Ok(None);
        };
        if let Some(taken) = &taken {
            self.state = self.after(taken.head, false);
        }
        Ok(Some((taken, last_us(&before.head))))
    }

    /// Lets the core do something of which the bucket's rows have no say; with `further` rows behind that of the head that it
    /// leaves, if it leaves one. Says when the row before was decided.
    pub fn act<T>(
        &mut self,
        core: impl Fn(decide::Bucket<'_>, &Known, i64) -> Result<T, Need>,
        further: impl Fn(&T) -> usize,
        head: impl Fn(&T) -> Option<Head>,
    ) -> Result<(T, Option<i64>)> {
        self.current()?;
        let before = self.state;
        let now_us = self.now_us;
        let (told, _) = self.known.tell(|known| core(self.seen(&before), known, now_us))?;
        let told = told.ok_or_else(|| Error::database("a queue asked for rows of its ledger"))?;
        if let Some(head) = head(&told) {
            let seq = i64::try_from(further(&told)).map_or(i64::MAX, |more| head.seq.saturating_add(more));
            self.state = self.after(Head { seq, ..head }, false);
        }
        Ok((told, last_us(&before.head)))
    }

    /// The database was asked.
    pub fn go_on(&mut self) {
        self.stopped = false;
    }

    /// The policy of its zone.
    pub fn current(&self) -> Result<&Version> {
        self.versions.last().ok_or_else(|| {
            Error::unknown_zone(format!(
                "there is no zone {}; list them with: tallygate zone list",
                self.name.0
            ))
        })
    }

    /// The versions before the current one were for what the row before had left.
    fn after(&self, head: Head, holds_more: bool) -> State {
        let holding = self.state.holding || holds_more;
        State { from: self.versions.len().saturating_sub(1), head, holds: self.holds.len(), holding }
    }

    fn tell(&self, state: &State, ask: &Ask<'_>) -> Result<(Option<Outcome>, Lack)> {
        self.known.tell(|known| decide(self.seen(state), known, ask, self.now_us))
    }

    fn seen<'s>(&'s self, state: &'s State) -> decide::Bucket<'s> {
        decide::Bucket {
            versions: self.versions.get(state.from..).unwrap_or_default(),
            head: &state.head,
            holds: self.holds.get(..state.holds).unwrap_or_default(),
        }
    }
}

impl Turn {
    /// The time of the row before it.
    pub fn before_us(&self) -> Option<i64> {
        last_us(&self.before.head)
    }
}

fn last_us(head: &Head) -> Option<i64> {
    (head.seq > 0).then_some(head.last_us)
}
