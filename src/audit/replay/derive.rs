//! The derivation of a row: the core's calls, as an engine makes them.

use super::{Ban, Derived, Replay, State, put};
use crate::audit::book::Found;
use crate::chain::Row;
use crate::decide::{
    Ask, Bucket, Charge, Claim, Event, Exception, Head, Need, Override, Shape, Undo, Version, decide, happen,
    lease, predict, take_units,
};
use crate::decision::Reason;
use crate::entry::{Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::record;

impl Replay {
    pub(super) fn derive(&self, row: &LedgerRow, charging: Option<&LedgerRow>) -> Result<Derived, String> {
        let State { head, ban, .. } = &self.state;
        if row.seq != head.seq + 1 {
            return Err(format!("the rows before it are missing, from {} on", head.seq + 1));
        }
        let prev_us = (head.seq > 0).then_some(head.last_us);
        if let Some(ban) = ban {
            let made = record::ban(ban.txn, ban.until_us, head, ban.limit);
            let mut derived = Derived::of(row, &made, Head { seq: head.seq + 1, ..*head });
            derived.row.prev_us = prev_us;
            return Ok(derived);
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
        let made = Row {
            checks: row.checks,
            critical: row.critical,
            cost: if coalesced { row.cost } else { cost },
            member: row.member.as_deref(),
            ..record::check(row.kind, row.txn_id, &outcome)
        };
        let ban = |until_us| Ban { txn: row.txn_id, limit: outcome.limit, until_us };
        Ok(Derived {
            hold: outcome.hold(ask.member),
            ban: outcome.banned_until_us.map(ban),
            ..Derived::of(row, &made, Head { seq: row.seq, ..outcome.head })
        })
    }

    fn leased(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let client =
            row.member.as_deref().ok_or_else(|| Error::invalid("it does not say whose lease it is"))?;
        let band = row.band.ok_or_else(|| Error::invalid("it does not say how important the lease is"))?;
        let claim = Claim { client, wants: row.cost, weight: row.checks, band };
        let granted = lease(self.seen(versions), &self.state.leases, &self.book, claim, row.at_us)?;
        let made = record::lease(row.txn_id, client, row.cost, &granted);
        Ok(Derived::of(row, &Row { checks: row.checks, band: Some(band), ..made }, granted.head))
    }

    fn units_taken(&self, versions: &[Version], row: &LedgerRow) -> Result<Derived, Need> {
        let taken = take_units(self.seen(versions), &self.book, row.cost, row.at_us)?
            .ok_or_else(|| Error::invalid("nothing could be taken for local decisions"))?;
        Ok(Derived::of(row, &record::units(row.txn_id, row.cost, &taken), taken.head))
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
        let happened = happen(self.seen(versions), &self.book, event, row.at_us)?;
        let mut holds = self.state.holds.clone();
        happened.hold.iter().for_each(|hold| put(&mut holds, hold.clone()));
        let current = versions.last().map(std::slice::from_ref).unwrap_or_default();
        let seen = Bucket { versions: current, head: &happened.head, holds: &holds };
        // The row itself is not in the book; it is of this very time, and no total before it changes.
        let peek = decide(seen, &self.book, &Ask::default(), happened.at_us)?;
        let made = record::event(row.kind, row.txn_id, &happened, peek.limit, peek.remaining);
        let derived = Derived::of(row, &Row { member: member.as_deref(), ..made }, happened.head);
        Ok(Derived { hold: happened.hold, ..derived })
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
