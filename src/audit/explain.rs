//! Why a transaction was decided as it was.
//!
//! Each bucket that it touched is replayed from its first row, in pages of keyset reads: so what is said holds, bans and
//! overrides included, and costs a few microseconds for each row before it. Memory holds what the longest window does.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Auditor;
use super::book::Book;
use super::compare::Replayed;
use super::replay::Replay;
use crate::decide::{self, Ask, Claim, Exception, Load, Need, SHARED_SHAPE, Seen, Shelf, Version, decide};
use crate::decision::Reason;
use crate::entry::{Entry, Kind, LedgerRow};
use crate::error::{Error, Result};
use crate::store::{At, Bucket, Range, StoredHead, beginning};
use crate::zone::{Family, ZoneVersion};

pub use super::explained::{
    Bar, Binding, Carry, Counted, CountedCharge, Explained, ExplainedRow, Fade, Leased, Level, OtherLease,
    Queued, Taught,
};

/// Rows that are read at a time.
const PAGE: u32 = 2_000;

/// In every database that knows the transaction.
pub(crate) async fn explain_all(auditor: &Auditor, txn: Uuid, charges: usize) -> Result<Explained> {
    let mut known: Option<Explained> = None;
    let mut unknown = None;
    for one in auditor.each() {
        match (explain(one, txn, charges).await, &mut known) {
            // A bucket that was moved has its rows in both databases.
            (Ok(mut more), Some(known)) => {
                let place = |row: &ExplainedRow| (row.row.zone.clone(), row.row.key.clone(), row.row.seq);
                more.rows.retain(|row| known.rows.iter().all(|known| place(known) != place(row)));
                known.rows.extend(more.rows);
            }
            (Ok(first), known) => *known = Some(first),
            (Err(error), _) if error.is_invalid() => unknown = Some(error),
            (Err(error), _) => return Err(error),
        }
    }
    let missing = || unknown.unwrap_or_else(|| Error::database("there is no database to ask"));
    let known = known.ok_or_else(missing)?;
    Ok(Explained { binding: binding(&known.rows), ..known })
}

async fn explain(auditor: &Auditor, txn: Uuid, charges: usize) -> Result<Explained> {
    let mut wanted = auditor.read(|store| store.ledger_txn(txn)).await?.into_iter().peekable();
    if wanted.peek().is_none() {
        return Err(Error::invalid(format!(
            "transaction {txn} is not in the ledger; look for it with: tallygate history --zone ZONE --key KEY"
        )));
    }
    let mut rows = Vec::new();
    while let Some((bucket, first)) = wanted.next() {
        let mut of_bucket = vec![first];
        while let Some((_, row)) = wanted.next_if(|(other, _)| *other == bucket) {
            of_bucket.push(row);
        }
        rows.extend(Explaining::new(auditor, bucket, charges).await?.explain(of_bucket).await?);
    }
    Ok(Explained { txn_id: txn, binding: binding(&rows), rows })
}

/// The limit with the longest wait; one that can never pass waits the longest.
fn binding(rows: &[ExplainedRow]) -> Option<Binding> {
    let blocking = rows.iter().filter(|row| row.row.blocked && row.row.reason != Reason::HeldBack);
    let longest = blocking.max_by_key(|row| row.row.retry_after_us.unwrap_or(i64::MAX))?;
    Some(Binding { zone: longest.row.zone.clone(), key: longest.row.key.clone() })
}

/// A bucket on its way to the rows that are explained.
struct Explaining<'s> {
    auditor: &'s Auditor,
    bucket: Bucket,
    zone: String,
    versions: Vec<ZoneVersion>,
    overrides: Vec<Exception>,
    replay: Replay,
    /// The last row that was dropped.
    dropped: Option<StoredHead>,
    /// How many charges to list.
    charges: usize,
    /// The last ban, and the last override.
    ban: Option<LedgerRow>,
    own: Option<LedgerRow>,
}

impl<'s> Explaining<'s> {
    async fn new(auditor: &'s Auditor, bucket: Bucket, charges: usize) -> Result<Self> {
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
        })
    }

    async fn explain(mut self, wanted: Vec<LedgerRow>) -> Result<Vec<ExplainedRow>> {
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
                    self.replay.begin_behind(dropped.head.seq, &dropped.head);
                }
                let charging = self.charging(row).await?;
                self.replay.settle(row);
                let facts = wanted.iter().any(|wanted| wanted.id == row.id).then(|| self.facts(row));
                let doubt = if self.replay.lacks_dropped(row) {
                    Some("it may depend on rows that were dropped")
                } else {
                    let doubt = self.replay.doubts(row);
                    doubt.then_some("a row before it, on which it depends, is missing or was changed")
                };
                let replayed = self.replay.next(row, charging.as_ref());
                if let Some(facts) = facts {
                    explained.push(facts?.replayed(replayed, doubt));
                }
                match row.kind {
                    Kind::Ban => self.ban = Some(row.clone()),
                    Kind::Override => self.own = Some(row.clone()),
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

    /// What the row was decided from.
    fn facts(&self, row: &LedgerRow) -> Result<ExplainedRow> {
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
            passes_at: row.retry_after_us.map(|us| time(row.at_us.saturating_add(us))).transpose()?,
            reproduced: None,
            differences: Vec::new(),
            missing: None,
        };
        if row.seq != self.replay.seq() + 1 {
            return Ok(explained);
        }
        let Ok((bucket, book)) = self.replay.before(row) else { return Ok(explained) };
        let seen = decide::see(bucket, book, row.at_us).map_err(failed)?;
        let ask = Ask { critical: row.critical, ..Ask::default() };
        explained.left_before = Some(decide(bucket, book, &ask, row.at_us).map_err(failed)?.remaining);
        if seen.head.banned_until_us.is_some_and(|until_us| until_us > row.at_us) {
            explained.ban = self.ban.as_ref().map(|ban| self.bar(ban)).transpose()?;
        }
        if seen.head.exception.is_some() {
            explained.bucket_override = self.own.as_ref().map(|own| self.bar(own)).transpose()?;
        }
        explained.counted = self.counted(row, bucket, book, &seen)?;
        explained.level_was = level(row, bucket, &seen)?;
        explained.leased = self.leased(row, bucket, book)?;
        explained.predicted = self.predicted(row)?;
        explained.queued = row.kind.is_of_queue().then(|| {
            let Load { waiting, away } = self.replay.items().load();
            Queued { waiting, away }
        });
        Ok(explained)
    }

    /// What a lease was a share of.
    fn leased(&self, row: &LedgerRow, bucket: decide::Bucket<'_>, book: &Book) -> Result<Option<Leased>> {
        let (Kind::Lease, Some(client), Some(band)) = (row.kind, row.member.as_deref(), row.band) else {
            return Ok(None);
        };
        let claim = Claim { client, wants: row.cost, weight: row.checks, band };
        let leases = self.replay.leases();
        let granted = decide::lease(bucket, leases, book, claim, row.at_us).map_err(failed)?;
        let others = leases.iter().filter(|lease| lease.client != client && lease.ends_us > row.at_us);
        let others = others.map(|lease| {
            Ok(OtherLease {
                seq: lease.seq,
                client: lease.client.clone(),
                wants: lease.wants,
                weight: lease.weight,
                band: lease.band,
                has: lease.has,
                ends_at: time(lease.ends_us)?,
            })
        });
        let others = others.collect::<Result<_>>()?;
        Ok(Some(Leased { share: granted.share, since: time(granted.since_us)?, others }))
    }

    /// What the cost of a reservation was predicted from.
    fn predicted(&self, row: &LedgerRow) -> Result<Option<Taught>> {
        let shape = row.member.as_deref().filter(|_| row.is_predicted());
        let known = shape.and_then(|shape| decide::predict(self.replay.shapes(), shape, row.at_us));
        let taught = known.map(|known| {
            Ok(Taught {
                cost: known.cost(),
                samples: known.samples,
                learned_at: time(known.learned_us)?,
                shared: known.name == SHARED_SHAPE,
            })
        });
        taught.transpose()
    }

    /// Which charges counted.
    fn counted(
        &self,
        row: &LedgerRow,
        bucket: decide::Bucket<'_>,
        book: &Book,
        seen: &Seen,
    ) -> Result<Option<Counted>> {
        let forgot = |seq: i64| seen.head.carried.is_some_and(|carried| seq <= carried.seq);
        let mut found: Vec<CountedCharge> = Vec::new();
        if seen.policy.algorithm().family() == Family::Held {
            let live = bucket.holds.iter().filter(|hold| hold.ends_us > row.at_us && !forgot(hold.seq));
            for hold in live {
                found.push(CountedCharge {
                    txn_id: book.by_seq(hold.seq).map(|step| step.txn),
                    seq: hold.seq,
                    at: time(hold.charged_us)?,
                    cost: hold.amount,
                    given_back: 0,
                    ends_at: Some(time(hold.ends_us)?),
                    member: hold.member.clone(),
                });
            }
            found.sort_by_key(|charge| charge.seq);
            let used = found.iter().map(|charge| charge.cost).sum();
            return Ok(Some(self.list(found, Counted { used, ..nothing(None) })));
        }
        let Some(from_us) = seen.from_us else { return Ok(None) };
        let ended = |seq: i64| {
            let holds = bucket.holds.iter().filter(|hold| hold.seq == seq && hold.ends_us <= row.at_us);
            holds.map(|hold| hold.amount).sum::<i64>()
        };
        let first_us = seen.fade.map_or(from_us, |fade| fade.from_us);
        let (mut full, mut fading) = (0, 0);
        let mut add = |at_us: i64, net: i64| if at_us >= from_us { full += net } else { fading += net };
        for step in book.charges(first_us).filter(|step| !forgot(step.seq)) {
            let given_back = ended(step.seq);
            add(step.at_us, step.spent - given_back);
            let own = bucket.holds.iter().find(|hold| hold.seq == step.seq && hold.ends_us > row.at_us);
            found.push(CountedCharge {
                txn_id: Some(step.txn),
                seq: step.seq,
                at: time(step.at_us)?,
                cost: step.spent,
                given_back,
                ends_at: own.map(|hold| time(hold.ends_us)).transpose()?,
                member: None,
            });
        }
        let carried = seen.head.carried.filter(|carried| carried.at_us >= first_us && carried.amount > 0);
        carried.iter().for_each(|carried| add(carried.at_us, carried.amount));
        let carried =
            carried.map(|carried| Ok::<_, Error>(Carry { at: time(carried.at_us)?, amount: carried.amount }));
        let fade = seen.fade.map(|fade| {
            let (from, counts) = (time(fade.from_us)?, fade.share(fading));
            Ok::<_, Error>(Fade { from, spent: fading, part_us: fade.part, of_us: fade.of, counts })
        });
        let fade = fade.transpose()?;
        let used = full + fade.map_or(0, |fade| fade.counts);
        let counted =
            Counted { used, fading: fade, carried: carried.transpose()?, ..nothing(Some(time(from_us)?)) };
        Ok(Some(self.list(found, counted)))
    }

    /// The newest of the charges.
    fn list(&self, mut charges: Vec<CountedCharge>, counted: Counted) -> Counted {
        let transactions = charges.len() as u64;
        charges.drain(..charges.len().saturating_sub(self.charges));
        Counted { transactions, charges, ..counted }
    }

    fn bar(&self, row: &LedgerRow) -> Result<Bar> {
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
        })
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

impl ExplainedRow {
    /// `doubt` is what may be why it cannot be derived.
    fn replayed(mut self, replayed: Replayed, doubt: Option<&str>) -> Self {
        let replayed = match (replayed, doubt) {
            (Replayed::Differs(_), Some(why)) => Replayed::Impossible(why.to_owned()),
            (replayed, _) => replayed,
        };
        if matches!(replayed, Replayed::Impossible(_)) {
            (self.left_before, self.counted, self.level_was) = (None, None, None);
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

fn level(row: &LedgerRow, bucket: decide::Bucket<'_>, seen: &Seen) -> Result<Option<Level>> {
    let Some(units) = seen.units else { return Ok(None) };
    let head = bucket.head;
    let before = head.level.filter(|_| head.seq > 0);
    let elapsed_us = if head.seq > 0 { row.at_us.saturating_sub(head.last_us) } else { 0 };
    let flowed_in = elapsed_us.saturating_mul(units.per_us);
    let now = seen.head.level.unwrap_or(units.capacity);
    let by_time =
        before.map_or(units.capacity, |before| before.saturating_add(flowed_in).min(units.capacity));
    Ok(Some(Level {
        before,
        before_at: (head.seq > 0).then(|| time(head.last_us)).transpose()?,
        flowed_in,
        now,
        after: row.level,
        capacity: units.capacity,
        per_us: units.per_us,
        per_token: units.per_token,
        changed: by_time != now,
    }))
}

fn nothing(from: Option<DateTime<Utc>>) -> Counted {
    Counted { used: 0, from, fading: None, carried: None, transactions: 0, charges: Vec::new() }
}

fn failed(need: Need) -> Error {
    match need {
        Need::Failed(error) => error,
        _ => Error::database("the ledger lacks rows of the window; it was changed from outside"),
    }
}

pub(super) fn time(us: i64) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(us)
        .ok_or_else(|| Error::database(format!("{us} µs is no time that the calendar knows")))
}
