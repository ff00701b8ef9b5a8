//! Bans and overrides: the people who set them or the checks that brought them about, and their effect.

use super::{Bar, BlockedCheck, Cause, Explaining, PAGE, time};
use crate::audit::book::Book;
use crate::entry::{Kind, LedgerRow};
use crate::error::Result;

impl Explaining<'_> {
    pub(super) fn bar(&self, row: &LedgerRow) -> Result<Bar> {
        let own = self.overrides.iter().find(|over| over.seq == row.seq && row.kind == Kind::Override);
        Ok(Bar {
            seq: row.seq,
            set_at: time(row.at_us)?,
            ends_at: row.ends_us.map(time).transpose()?,
            note: row.note.clone(),
            actor: row.actor.clone(),
            login: row.login.clone(),
            txn_id: row.txn_id,
            limit: own.and_then(|over| over.limit),
            ban_exempt: own.is_some_and(|over| over.ban_exempt),
            cause: None,
            last_used_at: None,
        })
    }

    /// Of a ban that comes now: the blocked checks that brought it about, if it was they.
    pub(super) fn cause(&self, row: &LedgerRow, book: &Book) -> Result<Option<Cause>> {
        let version = self.versions.iter().find(|version| version.version == row.zone_version);
        let rule = version.and_then(|version| version.policy.ban()).filter(|_| row.actor.is_none());
        let (Some(rule), Some(ends_us)) = (rule, row.ends_us) else { return Ok(None) };
        let from_us = row.at_us.saturating_sub(rule.within_us).saturating_add(1);
        // The ban is in the head already, since the check before this row.
        let (before, number) = (&self.head_before, self.replay.head().bans);
        let mut checks = Vec::new();
        for step in book.strikes(from_us, before.ban_strikes) {
            checks.push(BlockedCheck { txn_id: step.txn, seq: step.seq, at: time(step.at_us)? });
        }
        let blocked = checks.len() as u64;
        checks.drain(..checks.len().saturating_sub(self.charges));
        let length_us = rule.length_us(number);
        Ok(Some(Cause {
            rule,
            blocked,
            checks,
            number,
            last_ended_at: before.banned_until_us.filter(|_| number > 1).map(time).transpose()?,
            counts_from: time(ends_us.saturating_sub(length_us))?,
            length_us,
        }))
    }

    /// The time when a check was last decided by an override. The bucket's rows are read until the override ends.
    pub(super) async fn last_used(&self, own: &LedgerRow) -> Result<Option<i64>> {
        let (mut last_us, mut after) = (None, (time(own.at_us)?, own.seq));
        loop {
            let page = self.auditor.read(|store| store.ledger_bucket(&self.bucket, after, PAGE)).await?;
            for row in &page {
                let is_over = own.ends_us.is_some_and(|ends_us| row.at_us >= ends_us);
                if is_over || matches!(row.kind, Kind::Override | Kind::OverrideEnd) {
                    return Ok(last_us);
                }
                if row.kind.is_check() {
                    last_us = Some(row.at_us);
                }
            }
            match page.last() {
                Some(last) => after = (time(last.at_us)?, last.seq),
                None => return Ok(last_us),
            }
        }
    }
}
