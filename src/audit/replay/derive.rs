//! The derivation of a row: the core's calls, as an engine makes them.

use std::collections::VecDeque;

use super::{Ban, Derived, Replay, State, put};
use crate::audit::book::Found;
use crate::audit::compare::event_row;
use crate::decide::{
    Ask, Bucket, Charge, Claim, Event, Exception, Happened, Head, Need, Outcome, Override, Shape, Undo,
    Version, decide, happen, lease, predict, take_units,
};
use crate::decision::Reason;
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};

impl Replay {
    pub(super) fn derive(&self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Result<Derived, String> {
        let State { head, ban, .. } = &self.state;
        if row.seq != head.seq + 1 {
            return Err(format!("the rows before it are missing, from {} on", head.seq + 1));
        }
        let prev_us = (head.seq > 0).then_some(head.last_us);
        if let Some(ban) = ban {
            let row = LedgerRow {
                txn_id: ban.txn,
                kind: Kind::Ban,
                zone_limit: ban.limit,
                remaining: 0,
                ends_us: Some(ban.until_us),
                at_us: head.last_us,
                prev_us,
                ..event_row(row, head)
            };
            return Ok(Derived::of(row, Head { seq: head.seq + 1, ..*head }));
        }
        if let Some(evicted) = self.state.evicted.front() {
            return Ok(self.evicted(evicted, row));
        }
        let versions = self.versions_to(row)?;
        let told = match row.kind {
            Kind::Check | Kind::Reserve | Kind::Coalesced => self.decided(versions, row),
            Kind::Lease => self.leased(versions, row),
            Kind::Local => self.units_taken(versions, row),
            kind if kind.is_of_queue() => self.queued(versions, row),
            _ => self.happened(versions, row, charging),
        };
        let mut derived = told.map_err(|need| match need {
            Need::Failed(error) => error.to_string(),
            _ => "the rows of its window are missing".to_owned(),
        })?;
        derived.row.prev_us = prev_us;
        Ok(derived)
    }

    /// The zone's versions from the one that decided the row before to the one that decided this one.
    pub(super) fn versions_to(&self, row: &LedgerRow) -> Result<&[Version], String> {
        let Head { seq, zone_version, .. } = self.state.head;
        let from = if seq == 0 { row.zone_version } else { zone_version };
        if from > row.zone_version {
            return Err(format!("version {} decided it after version {from} had", row.zone_version));
        }
        let place = |wanted: i32| {
            let place = self.versions.partition_point(|version| version.version < wanted);
            let there = self.versions.get(place).is_some_and(|version| version.version == wanted);
            if there { Ok(place) } else { Err(format!("version {wanted} of the zone is missing")) }
        };
        Ok(&self.versions[place(from)?..=place(row.zone_version)?])
    }

    fn decided(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let coalesced = row.kind == Kind::Coalesced;
        let (member, shape) =
            if row.is_predicted() { (None, &row.member) } else { (row.member.as_deref(), &None) };
        let known = shape.as_deref().and_then(|shape| predict(&self.state.shapes, shape, row.at_us));
        let cost = known.map_or(row.cost, Shape::cost);
        let ask = if coalesced {
            Ask::default()
        } else {
            Ask {
                cost,
                critical: row.critical,
                member,
                ttl_us: (row.kind == Kind::Reserve)
                    .then(|| row.ends_us.map_or(0, |ends_us| ends_us.saturating_sub(row.at_us))),
                held_back: row.reason == Reason::HeldBack,
            }
        };
        let mut outcome = decide(self.seen(versions), &self.book, &ask, row.at_us)?;
        if coalesced {
            let banned = outcome.head.banned_until_us.is_some_and(|until_us| until_us > outcome.decided_us);
            outcome.reason = if banned { Reason::Banned } else { Reason::OverLimit };
            (outcome.blocked, outcome.delay_us) = (true, None);
        }
        let Outcome { blocked, reason, spent, limit, remaining, retry_after_us, delay_us, .. } = outcome;
        Ok(Derived {
            row: LedgerRow {
                blocked,
                reason,
                cost: if coalesced { row.cost } else { cost },
                spent,
                spent_total: outcome.head.spent_total,
                remaining,
                zone_limit: limit,
                retry_after_us,
                delay_us,
                level: outcome.head.level,
                strikes: outcome.head.strikes,
                target_us: None,
                at_us: outcome.decided_us,
                ends_us: outcome.ends_us,
                ..row.clone()
            },
            head: Head { seq: row.seq, ..outcome.head },
            hold: outcome.hold(ask.member),
            ban: outcome.banned_until_us.map(|until_us| Ban { txn: row.txn_id, limit, until_us }),
            evicted: VecDeque::new(),
        })
    }

    fn leased(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let client =
            row.member.as_deref().ok_or_else(|| Error::invalid("it does not say whose lease it is"))?;
        let band = row.band.ok_or_else(|| Error::invalid("it does not say how important the lease is"))?;
        let claim = Claim { client, wants: row.cost, weight: row.checks, band };
        let granted = lease(self.seen(versions), &self.state.leases, &self.book, claim, row.at_us)?;
        let row = LedgerRow {
            blocked: granted.blocked(row.cost),
            critical: false,
            spent: granted.has,
            remaining: granted.remaining,
            zone_limit: granted.limit,
            retry_after_us: Some(granted.refresh_us),
            reason: granted.reason,
            at_us: granted.decided_us,
            ends_us: granted.hold(client).map(|hold| hold.ends_us),
            target_us: Some(granted.since_us),
            checks: row.checks,
            cost: row.cost,
            member: row.member.clone(),
            ..event_row(row, &granted.head)
        };
        Ok(Derived::of(row, granted.head))
    }

    fn units_taken(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let taken = take_units(self.seen(versions), &self.book, row.cost, row.at_us)?
            .ok_or_else(|| Error::invalid("nothing could be taken for local decisions"))?;
        let row = LedgerRow {
            reason: taken.reason,
            cost: row.cost,
            spent: taken.units,
            remaining: taken.remaining,
            zone_limit: taken.limit,
            at_us: taken.decided_us,
            ends_us: Some(taken.ends_us),
            ..event_row(row, &taken.head)
        };
        Ok(Derived::of(row, taken.head))
    }

    fn happened(
        &self,
        versions: &[Version],
        row: &LedgerRow,
        charging: Option<&LedgerRow>,
    ) -> Result<Derived, Need> {
        let event = self.event(row, charging)?;
        // A settlement teaches the shape that was reserved for.
        let member = (row.kind == Kind::Settle).then(|| self.shape(row, charging)).flatten();
        let Happened { at_us, cost, spent, ends_us, target_us, hold, head } =
            happen(self.seen(versions), &self.book, event, row.at_us)?;
        let mut holds = self.state.holds.clone();
        hold.iter().for_each(|hold| put(&mut holds, hold.clone()));
        let current = versions.last().map(std::slice::from_ref).unwrap_or_default();
        let seen = Bucket { versions: current, head: &head, holds: &holds };
        // The row itself is not in the book; it is of this very time, and no total before it changes.
        let peek = decide(seen, &self.book, &Ask::default(), at_us)?;
        let row = LedgerRow {
            reason: if row.kind == Kind::Unchecked { Reason::Unchecked } else { Reason::Recorded },
            cost,
            spent,
            remaining: peek.remaining,
            zone_limit: peek.limit,
            target_us,
            at_us,
            ends_us,
            member,
            ..event_row(row, &head)
        };
        Ok(Derived { hold, ..Derived::of(row, head) })
    }

    fn event(&self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Result<Event> {
        let for_us = row.ends_us.map(|ends_us| ends_us.saturating_sub(row.at_us));
        Ok(match row.kind {
            Kind::Refund => Event::Undo(Undo::Refund, self.charge(row, charging)?),
            Kind::Settle => {
                let charge = self.charge(row, charging)?;
                let undo = if charge.taken { Undo::Used(row.cost) } else { Undo::Settle(row.cost) };
                Event::Undo(undo, charge)
            }
            Kind::Cancel => Event::Undo(Undo::Cancel, self.charge(row, charging)?),
            Kind::Release => Event::Undo(Undo::Release, self.charge(row, charging)?),
            Kind::Ban => Event::Ban(for_us.unwrap_or(0)),
            Kind::Unban => Event::Unban,
            Kind::OverrideEnd => Event::Override(None),
            Kind::Override => {
                let set = self.overrides.iter().find(|over| over.seq == row.seq);
                let Exception { limit, ban_exempt, .. } = *set
                    .ok_or_else(|| Error::invalid("the limit that it set is missing from zone_override"))?;
                Event::Override(Some(Override { limit, ban_exempt, for_us }))
            }
            _ => Event::Unchecked(row.cost),
        })
    }

    /// The shape by which the reservation was predicted that a row settles.
    fn shape(&self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Option<String> {
        match charging {
            Some(charging) => charging.member.clone(),
            None => row.target_us.and_then(|us| self.book.shape(row.txn_id, us)).map(str::to_owned),
        }
    }

    /// The charge that a row ends.
    fn charge(&self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Result<Charge> {
        if let Some(charging) = charging {
            return Ok(charging.into());
        }
        match row.target_us.map_or(Found::Nothing, |us| self.book.charge(row.txn_id, us)) {
            Found::Charge(charge) => Ok(charge),
            _ => Err(Error::invalid("the charge that it ends is not in the bucket's ledger")),
        }
    }
}
