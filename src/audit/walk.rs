//! Reads the rows of a part of the ledger, bucket by bucket.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Auditor;
use super::bucket::{Checking, Ended, beyond, unlike};
use super::dropped::{self, Dropped};
use super::explain::time;
use super::fault::{Fault, FaultKind};
use super::removals::Removals;
use super::replay::Replay;
use super::verify::{Gone, Part, Says, Told, Verifying, say};
use super::zones::Stored;
use crate::chain;
use crate::decide::{Exception, Head, Version};
use crate::entry::LedgerRow;
use crate::error::Result;
use crate::store::{At, Bucket, Range, StoredHead, beginning};

/// The number of looks at what stands in a queue while something happens to it.
const LOOKS: usize = 5;

/// Rows that are read at a time.
const PAGE: u32 = 5_000;

/// Verifies the buckets of a part.
pub(super) async fn walk(auditor: &Auditor, part: &Part, says: &Says) -> Result<()> {
    let Part { number, zone, range, heads } = part;
    let mut heads: HashMap<&str, &StoredHead> = heads.iter().map(|head| (head.key.as_str(), head)).collect();
    let mut overrides: HashMap<String, Vec<Exception>> = HashMap::new();
    for (key, own) in auditor.read(|store| store.bucket_overrides(range)).await? {
        overrides.entry(key).or_default().push(own);
    }
    let mut walking = Walking {
        auditor,
        zone,
        says,
        replay: Some(Replay::new(Arc::clone(&zone.versions), Vec::new())),
        buckets: 0,
        dropped: Dropped::of(range.clone()),
        overrides,
        heads_removed: false,
        later: zone.removals.behind(),
        gone: Gone::default(),
        erased: HashSet::new(),
        first_seq: 0,
        now_us: auditor.read(|store| store.now()).await?.timestamp_micros(),
    };
    let mut rest = range.clone();
    let mut checking: Option<Checking<'_>> = None;
    loop {
        let page = auditor.read(|store| store.ledger_range(&rest, PAGE)).await?;
        let full = page.len() >= PAGE as usize;
        let rows = page.len() as u64;
        let mut at = None;
        for (key, row) in page {
            if checking.as_ref().is_none_or(|checking| checking.key() != key) {
                walking.end(checking.take()).await?;
                let dropped = walking.dropped_up_to(Some(&key), &mut heads).await?;
                let head = heads.remove(key.as_str()).cloned();
                let own = walking.overrides.remove(&key).unwrap_or_default();
                checking = Some(walking.begin(key, &row, head, dropped, own).await?);
            }
            if let Some(checking) = &mut checking {
                walking.next(checking, &row).await?;
            }
            at = Some((time(row.at_us)?, row.seq));
        }
        walking.read(rows).await?;
        if !full {
            break;
        }
        // The last bucket may go on.
        if let (Some(current), Some(at)) = (&mut checking, at) {
            walking.rest_of_bucket(current, at).await?;
            rest = rest.behind(current.key());
        }
    }
    walking.end(checking.take()).await?;
    walking.dropped_up_to(None, &mut heads).await?;
    // Heads without rows: their rows are gone, unless there never were any.
    for head in heads.into_values() {
        if head.head.seq == 0 {
            walking.left(head).await?;
            continue;
        }
        if let Some(dropped) = walking.dropped_now(&head.key).await? {
            walking.closed(dropped, Some(head)).await?;
            continue;
        }
        let fault = Fault {
            shard: None,
            zone: zone.name.clone(),
            key: Some(head.key.clone()),
            seq: Some(1),
            txn_id: None,
            what: FaultKind::Truncated,
            detail: format!("rows 1 to {} are not there", head.head.seq),
        };
        say(says, Told::Say(Verifying::Fault(fault))).await?;
    }
    for (key, own) in std::mem::take(&mut walking.overrides) {
        let lasts = |own: &Exception| own.until_us.is_none_or(|until_us| until_us > walking.now_us);
        if own.iter().any(lasts) {
            let why = "zone_override has a limit of it, and it has no rows".to_owned();
            walking.fault(&key, None, FaultKind::WrongHead, why).await?;
        }
    }
    for key in auditor.read(|store| store.strays(range, PAGE)).await? {
        let why = "zone_hold, zone_item or zone_queue has rows of it, and it has no head".to_owned();
        walking.fault(&key, None, FaultKind::WrongHead, why).await?;
    }
    walking.erased_and_gone(range).await?;
    walking.read(0).await?;
    say(says, Told::Gone(zone.id, walking.gone)).await?;
    let to = (range.to.len() <= 255).then(|| (zone.name.clone(), range.to.clone()));
    say(says, Told::Done(*number, to)).await
}

/// A part on its way.
struct Walking<'w> {
    auditor: &'w Auditor,
    zone: &'w Stored,
    says: &'w Says,
    /// At hand between two buckets.
    replay: Option<Replay>,
    buckets: u64,
    /// The buckets of the part of which rows were dropped.
    dropped: Dropped,
    /// The overrides of buckets that were not met yet.
    overrides: HashMap<String, Vec<Exception>>,
    /// Is it known that upkeep removed heads of the zone?
    heads_removed: bool,
    /// The removals by owners since the verification began.
    later: Removals,
    gone: Gone,
    /// The erased buckets that were met.
    erased: HashSet<String>,
    /// The first row of the bucket that is read.
    first_seq: i64,
    now_us: i64,
}

impl<'w> Walking<'w> {
    async fn begin(
        &mut self,
        key: String,
        first: &LedgerRow,
        head: Option<StoredHead>,
        mut dropped: Option<StoredHead>,
        overrides: Vec<Exception>,
    ) -> Result<Checking<'w>> {
        // Rows may have gone since it was read.
        if first.seq > 1 && dropped.as_ref().is_none_or(|dropped| dropped.head.seq != first.seq - 1) {
            dropped = self.dropped_now(&key).await?;
        }
        self.first_seq = first.seq;
        match &dropped {
            Some(dropped) if first.seq > 1 => {
                self.explain(&key, dropped, dropped.head.seq.min(first.seq - 1)).await?;
            }
            _ => self.gone.missing += first.seq.saturating_sub(1).unsigned_abs(),
        }
        let versions = Arc::clone(&self.zone.versions);
        let replay = match self.replay.take() {
            Some(mut replay) => {
                replay.restart(versions, overrides.clone());
                replay
            }
            None => Replay::new(versions, overrides.clone()),
        };
        let zone = (self.zone.id, self.zone.name.as_str());
        let run_us = dropped.as_ref().map_or(i64::MAX, |dropped| self.dropped_at_us(dropped));
        Ok(Checking::new(zone, key, first, (head, dropped, run_us), overrides, replay, self.now_us))
    }

    /// The time when a run of upkeep dropped it.
    fn dropped_at_us(&self, dropped: &StoredHead) -> i64 {
        let us = dropped.head.last_us;
        let run_us = self.zone.removals.dropped_at_us(us).or_else(|| self.later.dropped_at_us(us));
        run_us.unwrap_or(i64::MAX)
    }

    async fn dropped_now(&self, key: &str) -> Result<Option<StoredHead>> {
        let bucket = (self.zone.id, key.to_owned());
        let only = Range::only(&bucket);
        Ok(self.auditor.read(|store| store.dropped(&only, 1)).await?.into_iter().next())
    }

    /// The rows that were dropped of a bucket. Those before it that have none have no rows left.
    async fn dropped_up_to(
        &mut self,
        key: Option<&str>,
        heads: &mut HashMap<&str, &StoredHead>,
    ) -> Result<Option<StoredHead>> {
        let auditor = self.auditor;
        let read = async |range: &Range| auditor.read(|store| store.dropped(range, dropped::PAGE)).await;
        while let Some(dropped) = self.dropped.next_up_to(key, read).await? {
            if key == Some(dropped.key.as_str()) {
                return Ok(Some(dropped));
            }
            let head = heads.remove(dropped.key.as_str());
            self.closed(dropped, head).await?;
        }
        Ok(None)
    }

    /// A bucket of which no row is left ends with the last one that was dropped.
    async fn closed(&mut self, dropped: StoredHead, head: Option<&StoredHead>) -> Result<()> {
        self.buckets += 1;
        let own = self.overrides.remove(&dropped.key).unwrap_or_default();
        let mut dropped = dropped;
        self.meet_erased(&dropped.key.clone()).await?;
        self.explain(&dropped.key, &dropped, dropped.head.seq).await?;
        if head.is_some_and(|head| head.head.seq > dropped.head.seq) {
            dropped = self.dropped_now(&dropped.key).await?.unwrap_or(dropped);
        }
        let left = &dropped.head;
        let (what, seq, detail) = match head {
            None if self.may_lack_heads().await? => return Ok(()),
            None => {
                let why = "the bucket has a row in zone_txn_dropped but no head in zone_bucket_lock";
                (FaultKind::WrongHead, None, why.to_owned())
            }
            Some(head) if head.head.seq > left.seq => {
                let from = left.seq + 1;
                let why = format!("rows {from} to {} are not there", head.head.seq);
                (FaultKind::Truncated, Some(from), why)
            }
            Some(head) if head.head.seq < left.seq => {
                let why = format!("the head is at {}, zone_txn_dropped at {}", head.head.seq, left.seq);
                (FaultKind::WrongHead, Some(left.seq), why)
            }
            Some(head) => {
                let mut wrong = unlike(head, left, &dropped.row_hash);
                wrong.extend((head.salt != dropped.salt).then_some("salt"));
                wrong.extend(beyond(&head.head, &Head::default(), left));
                wrong.extend(self.in_force(head, &own).await?);
                wrong.extend(head.override_seq.filter(|seq| *seq > left.seq).map(|_| "override_seq"));
                if wrong.is_empty() {
                    return Ok(());
                }
                let why = format!("the head says otherwise than zone_txn_dropped: {}", wrong.join(", "));
                (FaultKind::WrongHead, Some(left.seq), why)
            }
        };
        self.fault(&dropped.key, seq, what, detail).await
    }

    /// The columns by which something is in force in a bucket without rows, or that name an override which is not there. There is
    /// nothing in force that has no row.
    async fn in_force(&self, head: &StoredHead, own: &[Exception]) -> Result<Vec<&'static str>> {
        let (bucket, at_us) = ((self.zone.id, head.key.clone()), self.now_us.max(head.head.last_us));
        let lasts = |us: i64| us > at_us;
        let mut wrong = Vec::new();
        if head.moved_to.is_some() {
            return Ok(wrong);
        }
        wrong.extend(head.head.banned_until_us.is_some_and(lasts).then_some("banned_until"));
        let ended = |seq| own.iter().any(|own| own.seq == seq && own.until_us.is_some_and(|us| !lasts(us)));
        wrong.extend(head.override_seq.is_some_and(|seq| !ended(seq)).then_some("override_seq"));
        if head.holding {
            let (_, holds) = self.auditor.read(|store| store.bucket_holds(&bucket)).await?;
            wrong.extend(holds.iter().any(|hold| lasts(hold.ends_us)).then_some("holding"));
        }
        Ok(wrong)
    }

    /// A bucket without rows says nothing but to which database it was left.
    async fn left(&self, head: &StoredHead) -> Result<()> {
        let mut wrong =
            unlike(head, &Head::default(), &chain::bucket(head.salt.as_ref(), self.zone.id, &head.key));
        wrong.extend((head.head != Head::default() || head.override_seq.is_some()).then_some("the state"));
        if wrong.is_empty() {
            return Ok(());
        }
        let why = format!("the head of a bucket without rows is not that of a new one: {}", wrong.join(", "));
        self.fault(&head.key, None, FaultKind::WrongHead, why).await
    }

    /// Rows up to this one were dropped: by a run of upkeep that was recorded?
    async fn explain(&mut self, key: &str, dropped: &StoredHead, seq: i64) -> Result<()> {
        let us = dropped.head.last_us;
        if us >= self.zone.removals.cut_us.max(self.later.cut_us) {
            self.look_again().await?;
        }
        let rows = seq.unsigned_abs();
        if us < self.zone.removals.cut_us.max(self.later.cut_us) {
            self.gone.dropped += rows;
            return Ok(());
        }
        self.gone.missing += rows;
        let why = format!(
            "rows 1 to {seq} are not there; zone_txn_dropped says that they were dropped, but no run of upkeep removed \
             rows of {}",
            time(us)?.to_rfc3339()
        );
        self.fault(key, Some(1), FaultKind::Missing, why).await
    }

    /// The number of rows of the bucket when it was erased; None when that is not recorded.
    async fn erased_rows(&mut self, key: &str) -> Result<Option<i64>> {
        let known = |walking: &Self| {
            let (before, later) = (&walking.zone.removals.erased, &walking.later.erased);
            before.get(key).or_else(|| later.get(key)).copied()
        };
        if known(self).is_none() {
            self.look_again().await?;
        }
        Ok(known(self))
    }

    async fn look_again(&mut self) -> Result<()> {
        while {
            let page = self.auditor.read(|store| store.removals(self.zone.id, self.later.seq)).await?;
            self.later.go_on(page, |_, _| ())
        } {}
        Ok(())
    }

    /// An erased bucket has its erasure; what of its rows is left is told.
    async fn meet_erased(&mut self, key: &str) -> Result<Option<i64>> {
        if !chain::is_erased(key) {
            return Ok(None);
        }
        let rows = self.erased_rows(key).await?;
        if rows.is_none() {
            let why = "the bucket is erased, and no erasure of it is recorded".to_owned();
            self.fault(key, None, FaultKind::WrongRemoval, why).await?;
        }
        self.erased.insert(key.to_owned());
        Ok(rows)
    }

    /// Erased buckets of which nothing is left.
    async fn erased_and_gone(&mut self, range: &Range) -> Result<()> {
        if range.from > range.to {
            return Ok(());
        }
        let within = self.zone.removals.erased.range(range.from.clone()..=range.to.clone());
        for (key, rows) in within.filter(|(_, rows)| **rows > 0) {
            // Of one whose rows were all dropped the last is remembered.
            if !self.erased.contains(key) {
                let why = format!("rows 1 to {rows} of a bucket that was erased are not there");
                self.fault(key, Some(1), FaultKind::Truncated, why).await?;
            }
        }
        Ok(())
    }

    async fn fault(&self, key: &str, seq: Option<i64>, what: FaultKind, detail: String) -> Result<()> {
        let fault = Fault { key: Some(key.to_owned()), seq, ..Fault::of_zone(&self.zone.name, what, detail) };
        say(self.says, Told::Say(Verifying::Fault(fault))).await
    }

    async fn may_lack_heads(&mut self) -> Result<bool> {
        if !self.heads_removed {
            self.heads_removed = self.auditor.read(|store| store.heads_removed(self.zone.id)).await?;
        }
        Ok(self.heads_removed)
    }

    /// Behind a gap: rows may have been dropped since those before it were read.
    async fn dropped_meanwhile(&self, checking: &mut Checking<'_>, row: &LedgerRow) -> Result<()> {
        let bucket = (self.zone.id, checking.key().to_owned());
        let first = self.auditor.read(|store| store.ledger_bucket(&bucket, beginning(), 1)).await?;
        if first.first().is_none_or(|first| first.seq > checking.seq())
            && let Some(dropped) = self.dropped_now(checking.key()).await?
            && dropped.head.seq + 1 >= row.seq
        {
            checking.begin_behind(row, &dropped, self.dropped_at_us(&dropped));
        }
        Ok(())
    }

    async fn next(&mut self, checking: &mut Checking<'_>, row: &LedgerRow) -> Result<()> {
        self.gone.old += u64::from(row.at_us < self.zone.removals.cut_us);
        let mut charging = None;
        if checking.is_behind(row) {
            let bucket = (self.zone.id, checking.key().to_owned());
            let versions = self.auditor.read(|store| store.zone_versions(self.zone.id)).await?;
            let only = Range::only(&bucket);
            let overrides = self.auditor.read(|store| store.bucket_overrides(&only)).await?;
            let overrides = overrides.into_iter().map(|(_, own)| own).collect();
            checking.catch_up(versions.iter().map(Version::from).collect(), overrides);
        }
        if checking.lacks(row) {
            let bucket = (self.zone.id, checking.key().to_owned());
            let rows = self.auditor.read(|store| store.ledger_txn(row.txn_id)).await?;
            let mut rows = rows.into_iter().filter(|(other, row)| *other == bucket && row.kind.is_charge());
            charging = rows.next().map(|(_, row)| row);
        }
        if row.seq > checking.seq() + 1 && checking.seq() > 0 {
            self.dropped_meanwhile(checking, row).await?;
        }
        checking.next(row, charging.as_ref());
        Ok(())
    }

    /// The rows of a bucket behind a place; where that is.
    async fn rest_of_bucket(&mut self, checking: &mut Checking<'_>, mut at: At) -> Result<At> {
        let bucket = (self.zone.id, checking.key().to_owned());
        loop {
            let page = self.auditor.read(|store| store.ledger_bucket(&bucket, at, PAGE)).await?;
            for row in &page {
                self.next(checking, row).await?;
                at = (time(row.at_us)?, row.seq);
            }
            self.read_rows(page.len() as u64, 0).await?;
            if page.len() < PAGE as usize {
                return Ok(at);
            }
        }
    }

    /// Where anything happened since, or happens meanwhile, nothing is said of what stands in a queue.
    async fn compare_items(&self, checking: &mut Checking<'_>, bucket: &Bucket) -> Result<()> {
        for _ in 0..LOOKS {
            let (seq, kept) = self.auditor.read(|store| store.bucket_load(bucket)).await?;
            if seq != checking.seq() {
                return Ok(());
            }
            let (mut items, mut after) = (Vec::new(), 0);
            loop {
                let page = self.auditor.read(|store| store.bucket_items(bucket, after)).await?;
                let Some(last) = page.last() else { break };
                after = last.item.seq;
                items.extend(page.iter().map(|stored| (stored.item, stored.is_genuine())));
            }
            if self.auditor.read(|store| store.bucket_load(bucket)).await? == (seq, kept) {
                let now_us = self.auditor.read(|store| store.now()).await?.timestamp_micros();
                let now_us = kept.settled_us.map_or(now_us, |settled_us| settled_us.max(now_us));
                checking.compare_items(kept.load, &items, now_us);
                return Ok(());
            }
        }
        Ok(())
    }

    async fn end(&mut self, checking: Option<Checking<'_>>) -> Result<()> {
        let Some(mut checking) = checking else { return Ok(()) };
        let erased = self.meet_erased(checking.key()).await?;
        if let Some(rows) = erased.filter(|rows| self.first_seq == 1 && checking.seq() < *rows) {
            let from = checking.seq() + 1;
            let why = format!("rows {from} to {rows}, which it had when it was erased, are not there");
            self.fault(checking.key(), Some(from), FaultKind::Truncated, why).await?;
        }
        let bucket: Bucket = (self.zone.id, checking.key().to_owned());
        if checking.holds() {
            // Where checks came since, nothing is said of what is held.
            let (seq, holds) = self.auditor.read(|store| store.bucket_holds(&bucket)).await?;
            if seq == checking.seq() {
                checking.compare_holds(&holds);
            }
        }
        if checking.is_queue() {
            self.compare_items(&mut checking, &bucket).await?;
        }
        let mut now = None;
        if checking.lacks_head() {
            let only = Range::only(&bucket);
            now = self.auditor.read(|store| store.heads(&only, 1)).await?.into_iter().next();
        }
        let heads_removed = checking.lacks_head() && now.is_none() && self.may_lack_heads().await?;
        let Ended { replay, faults, more, not_derivable } = checking.end(now.as_ref(), heads_removed);
        self.replay = Some(replay);
        self.buckets += 1;
        for fault in faults {
            say(self.says, Told::Say(Verifying::Fault(fault))).await?;
        }
        if not_derivable > 0 {
            say(self.says, Told::Say(Verifying::NotDerivable(not_derivable))).await?;
        }
        if more > 0 {
            say(self.says, Told::Say(Verifying::More(more))).await?;
        }
        Ok(())
    }

    async fn read(&mut self, rows: u64) -> Result<()> {
        let buckets = std::mem::take(&mut self.buckets);
        self.read_rows(rows, buckets).await
    }

    async fn read_rows(&self, rows: u64, buckets: u64) -> Result<()> {
        say(self.says, Told::Say(Verifying::Read { buckets, rows })).await
    }
}
