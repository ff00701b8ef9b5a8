//! What owners removed from the ledger of a zone: is its chain whole, and does it explain what is not there?

use std::collections::BTreeMap;

use chrono::TimeDelta;

use crate::chain::{self, Hash};
use crate::store::{Chained, Facts, Needed, REMOVALS, Removal};
use crate::zone::ZoneVersion;

/// Upkeep looks at a zone's policy when it begins, and may record later what it removes: within this time.
const WITHIN: TimeDelta = TimeDelta::days(1);

/// All removals of a zone, up to the one that was read last.
#[derive(Clone, Debug)]
pub(super) struct Removals {
    /// Of the last one; 0 and the beginning of the chain before the first.
    pub seq: i64,
    pub hash: Hash,
    /// Rows decided before this time went.
    pub cut_us: i64,
    /// The runs that took them, each with the time before which it took rows, and when it did.
    runs: Vec<(i64, i64)>,
    /// The number of rows that upkeep dropped.
    pub dropped: u64,
    /// The number of rows of each erased bucket.
    pub erased: BTreeMap<String, i64>,
}

impl Removals {
    pub fn of(zone_id: i32) -> Self {
        let hash = chain::removals(zone_id);
        Self { seq: 0, hash, cut_us: i64::MIN, runs: Vec::new(), dropped: 0, erased: BTreeMap::new() }
    }

    /// None yet of those that come behind these.
    pub fn behind(&self) -> Self {
        Self { cut_us: i64::MIN, runs: Vec::new(), dropped: 0, erased: BTreeMap::new(), ..*self }
    }

    /// The time when a row of this time was dropped.
    pub fn dropped_at_us(&self, us: i64) -> Option<i64> {
        self.runs.iter().find(|(cut_us, _)| us < *cut_us).map(|(_, at_us)| *at_us)
    }

    /// Goes on by a page of those behind the last one; `each` is called with what was there before and the next one. False when
    /// that was the last page.
    pub fn go_on(&mut self, page: Vec<Removal>, mut each: impl FnMut(&Self, &Removal)) -> bool {
        let is_full = page.len() >= REMOVALS;
        for removal in page {
            each(self, &removal);
            self.add(removal);
        }
        is_full
    }

    fn add(&mut self, removal: Removal) {
        let Removal { seq, row_hash, removed_at, cut_at, bucket_key, ledger_rows, .. } = removal;
        (self.seq, self.hash) = (seq, row_hash);
        if let Some(cut_at) = cut_at {
            self.cut_us = self.cut_us.max(cut_at.timestamp_micros());
            self.runs.push((cut_at.timestamp_micros(), removed_at.timestamp_micros()));
            self.dropped = self.dropped.saturating_add(ledger_rows.unsigned_abs());
        }
        if let Some(key) = bucket_key {
            self.erased.insert(key, ledger_rows);
        }
    }

    /// The fault of the next one.
    pub fn wrong(&self, next: &Removal, versions: &[Chained]) -> Option<String> {
        let seq = next.seq;
        if seq != self.seq + 1 {
            return Some(format!("removal {} is not there", self.seq + 1));
        }
        if next.hash(&self.hash) != next.row_hash {
            return Some(format!("removal {seq}, or the hash of the one before it, was edited"));
        }
        let cut_at = next.cut_at?;
        (!may_drop(next, versions)).then(|| {
            format!("removal {seq} dropped rows up to {}, which the zone still needed", cut_at.to_rfc3339())
        })
    }
}

/// May upkeep have dropped these rows, by some version of the zone that was in force when it began?
fn may_drop(removal: &Removal, versions: &[Chained]) -> bool {
    let (Some(cut_at), at) = (removal.cut_at, removal.removed_at) else { return true };
    let known = versions.iter().map(|version| version.version.clone());
    let known: Vec<ZoneVersion> = known.take_while(|version| version.changed_at <= at).collect();
    let was_last = |number: &usize| {
        known.get(*number).is_none_or(|next| next.changed_at.signed_duration_since(at) > -WITHIN)
    };
    let facts = Facts { zone_id: 0, override_us: None, open: None, offered: None };
    known.is_empty()
        || (1..=known.len())
            .filter(was_last)
            .any(|number| cut_at <= Needed::of("", &known[..number], &facts, at).since)
}
