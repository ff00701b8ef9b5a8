//! A bucket, from its first row to the rows that are explained.

use chrono::{DateTime, Utc};

use super::counted::level;
use super::{Bar, ExplainedRow, Explaining, PAGE, Queued, failed, time};
use crate::audit::Auditor;
use crate::audit::compare::Replayed;
use crate::audit::replay::Replay;
use crate::decide::{self, Ask, Head, Load, Shelf, Version, decide};
use crate::entry::{Entry, Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::store::{At, Bucket, Range, beginning};

impl<'s> Explaining<'s> {
    pub async fn new(auditor: &'s Auditor, bucket: Bucket, charges: usize) -> Result<Self> {
        let zone = auditor.read(|store| store.zones()).await?.into_iter().find(|zone| zone.id == bucket.0);
        let versions = auditor.read(|store| store.zone_versions(bucket.0)).await?;
        let only = Range::only(&bucket);
        let overrides = auditor.read(|store| store.bucket_overrides(&only)).await?;
        let overrides: Vec<_> = overrides.into_iter().map(|(_, own)| own).collect();
        let dropped = auditor.read(|store| store.dropped(&only, 1)).await?.into_iter().next();
        let replay = Replay::new(versions.iter().map(Version::from).collect(), overrides.clone());
        let zone = zone.map_or_else(|| format!("number {}", bucket.0), |zone| zone.name);
        Ok(Self {
            auditor,
            bucket,
            zone,
            versions,
            overrides,
            replay,
            dropped,
            charges,
            ban: None,
            own: None,
            head_before: Head::default(),
        })
    }

    pub async fn explain(mut self, wanted: Vec<LedgerRow>) -> Result<Vec<ExplainedRow>> {
        let mut explained = Vec::with_capacity(wanted.len());
        let mut after: At = beginning();
        while explained.len() < wanted.len() {
            let page = self.auditor.read(|store| store.ledger_bucket(&self.bucket, after, PAGE)).await?;
            let Some(last) = page.last() else {
                return Err(Error::database("rows of the transaction went while they were read; try again"));
            };
            after = (time(last.at_us)?, last.seq);
            for row in &page {
                if self.replay.seq() == 0
                    && let Some(dropped) = self.dropped.take_if(|dropped| dropped.head.seq + 1 == row.seq)
                {
                    self.replay.begin_behind(dropped.head.seq, &dropped.head, i64::MAX);
                }
                let charging = self.charging(row).await?;
                self.replay.settle(row);
                let begun = self.begun(row)?;
                let is_wanted = wanted.iter().any(|wanted| wanted.id == row.id);
                let facts = if is_wanted { Some(self.facts(row, begun.as_ref()).await?) } else { None };
                let doubt = if self.replay.lacks_dropped(row) {
                    Some("it may depend on rows that were dropped")
                } else {
                    let doubt = self.replay.doubts(row);
                    doubt.then_some("a row before it, on which it depends, is missing or was changed")
                };
                let head_before = *self.replay.head();
                let replayed = self.replay.next(row, charging.as_ref());
                let is_known = replayed == Replayed::Same;
                if let Some(facts) = facts {
                    explained.push(facts.replayed(replayed, doubt));
                }
                self.head_before = head_before;
                match row.kind {
                    Kind::Ban => {
                        self.ban = begun.map(|ban| Bar { cause: ban.cause.filter(|_| is_known), ..ban });
                    }
                    Kind::Override => self.own = begun,
                    _ => {}
                }
            }
        }
        Ok(explained)
    }

    /// The row that made the charge which this row ends, where it is long ago.
    async fn charging(&self, row: &LedgerRow) -> Result<Option<LedgerRow>> {
        if !self.replay.lacks(row) {
            return Ok(None);
        }
        let rows = self.auditor.read(|store| store.ledger_txn(row.txn_id)).await?;
        let mut rows =
            rows.into_iter().filter(|(bucket, row)| *bucket == self.bucket && row.kind.is_charge());
        Ok(rows.next().map(|(_, row)| row))
    }

    /// The ban or the override that a row begins.
    fn begun(&self, row: &LedgerRow) -> Result<Option<Bar>> {
        if !matches!(row.kind, Kind::Ban | Kind::Override) {
            return Ok(None);
        }
        let cause = match self.replay.before(row) {
            Ok((_, book)) if row.kind == Kind::Ban => self.cause(row, book)?,
            _ => None,
        };
        Ok(Some(Bar { cause, ..self.bar(row)? }))
    }

    /// The facts that the row was decided from.
    async fn facts(&self, row: &LedgerRow, begun: Option<&Bar>) -> Result<ExplainedRow> {
        let policy = self.versions.iter().find(|version| version.version == row.zone_version);
        let mut explained = ExplainedRow {
            row: self.entry(row)?,
            limit: row.zone_limit,
            policy: policy.cloned(),
            bucket_override: None,
            ban: None,
            counted: None,
            level_was: None,
            leased: None,
            predicted: None,
            queued: None,
            left_before: None,
            passes_at: passes_at(row),
            reproduced: None,
            differences: Vec::new(),
            missing: None,
        };
        if row.kind == Kind::Override {
            let last_used_at = self.last_used(row).await?.map(time).transpose()?;
            explained.bucket_override = begun.map(|own| Bar { last_used_at, ..own.clone() });
        }
        if row.kind == Kind::Ban {
            explained.ban = begun.cloned();
        }
        if row.seq != self.replay.seq() + 1 {
            return Ok(explained);
        }
        let Ok((bucket, book)) = self.replay.before(row) else { return Ok(explained) };
        let seen = decide::see(bucket, book, row.at_us).map_err(failed)?;
        let ask = Ask { critical: row.critical, ..Ask::default() };
        explained.left_before = Some(decide(bucket, book, &ask, row.at_us).map_err(failed)?.remaining);
        let is_banned = seen.head.banned_until_us.is_some_and(|until_us| until_us > row.at_us);
        explained.ban = explained.ban.or_else(|| self.ban.clone().filter(|_| is_banned));
        let is_own = seen.head.exception.is_some();
        explained.bucket_override = explained.bucket_override.or_else(|| self.own.clone().filter(|_| is_own));
        // A lease has its shares instead.
        if row.kind != Kind::Lease {
            explained.counted = self.counted(row, bucket, book, &seen)?;
        }
        explained.level_was = level(row, bucket, &seen)?;
        explained.leased = self.leased(row, bucket, book)?;
        explained.predicted = self.predicted(row)?;
        explained.queued = row.kind.is_of_queue().then(|| {
            let Load { waiting, away } = self.replay.items().load();
            Queued { waiting, away }
        });
        Ok(explained)
    }

    fn entry(&self, row: &LedgerRow) -> Result<Entry> {
        Ok(Entry {
            id: row.id,
            decided_at: time(row.at_us)?,
            zone: self.zone.clone(),
            key: self.bucket.1.clone(),
            seq: row.seq,
            txn_id: row.txn_id,
            kind: row.kind,
            checks: row.checks,
            blocked: row.blocked,
            reason: row.reason,
            critical: row.critical,
            band: row.band,
            member: row.member.clone(),
            cost: row.cost,
            spent: row.spent,
            spent_total: row.spent_total,
            remaining: row.remaining,
            retry_after_us: row.retry_after_us,
            delay_us: row.delay_us,
            level: row.level,
            target_at: row.target_us.map(time).transpose()?,
            ends_at: row.ends_us.map(time).transpose()?,
            note: row.note.clone(),
            actor: row.actor.clone(),
            login: row.login.clone(),
            zone_version: row.zone_version,
        })
    }
}

/// The time when the same would have passed; none after the last year of the calendar, 262142. A client asks for its lease again
/// whether it got all of it or not.
fn passes_at(row: &LedgerRow) -> Option<DateTime<Utc>> {
    let wait_us = row.retry_after_us.filter(|_| row.kind != Kind::Lease)?;
    DateTime::from_timestamp_micros(row.at_us.saturating_add(wait_us))
}

impl ExplainedRow {
    /// `doubt` is a reason why it might not be derivable.
    fn replayed(mut self, replayed: Replayed, doubt: Option<&str>) -> Self {
        let replayed = match (replayed, doubt) {
            (Replayed::Differs(_), Some(why)) => Replayed::Impossible(why.to_owned()),
            (replayed, _) => replayed,
        };
        if matches!(replayed, Replayed::Impossible(_)) {
            (self.left_before, self.counted, self.level_was) = (None, None, None);
        }
        if let (Kind::Ban, Some(ban)) = (self.row.kind, &mut self.ban)
            && replayed != Replayed::Same
        {
            ban.cause = None;
        }
        self.reproduced = match replayed {
            Replayed::Same => Some(true),
            Replayed::Differs(differences) => {
                self.differences = differences;
                Some(false)
            }
            Replayed::Impossible(why) => {
                self.missing = Some(why);
                None
            }
        };
        self
    }
}
