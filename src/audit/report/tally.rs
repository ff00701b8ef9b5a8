//! The sums of the rows of one zone. Reads each row once, oldest first, in memory that does not grow with their number.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};

use super::near::{Near, Nearest};
use super::sketch::Sketch;
use super::timeline::Slices;
use super::values::{
    Act, Acts, BlockedBucket, Counts, Grain, NearBucket, Report, Sum, Top, Volume, ZoneReport,
};
use crate::decision::Reason;
use crate::entry::Kind;
use crate::store::Line;

/// Blocked buckets of a zone that are counted each by itself: some 10 MB.
const COUNTED: usize = 65_536;

/// Near buckets of a zone that are remembered, so that enough of them were never blocked.
const REMEMBERED: usize = 8_192;

/// Acts that are shown one by one: the newest.
const ACTS: usize = 1_000;

pub(super) struct Tally<'z> {
    zone: &'z str,
    grain: Grain,
    top: usize,
    rows: u64,
    /// The time at which the first of them was decided.
    first_at: Option<DateTime<Utc>>,
    counts: Counts,
    reasons: BTreeMap<&'static str, u64>,
    volumes: BTreeMap<DateTime<Utc>, Counts>,
    slices: Slices,
    undone: BTreeMap<Kind, Sum>,
    handed_out: BTreeMap<Kind, Sum>,
    bans: Newest,
    actions: Newest,
    blocked: Sketch,
    shadowed: Sketch,
    near: Nearest,
}

/// The newest of many, and how many there were.
#[derive(Default)]
struct Newest {
    total: u64,
    acts: VecDeque<Act>,
}

impl<'z> Tally<'z> {
    pub fn new(zone: &'z str, grain: Grain, top: usize) -> Self {
        Self {
            zone,
            grain,
            top,
            rows: 0,
            first_at: None,
            counts: Counts::default(),
            reasons: BTreeMap::new(),
            volumes: BTreeMap::new(),
            slices: Slices::default(),
            undone: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            bans: Newest::default(),
            actions: Newest::default(),
            blocked: Sketch::new(COUNTED),
            shadowed: Sketch::new(COUNTED),
            near: Nearest::new(REMEMBERED),
        }
    }

    pub fn add(&mut self, line: Line) {
        self.rows += 1;
        self.first_at = Some(self.first_at.map_or(line.decided_at, |first_at| first_at.min(line.decided_at)));
        if !line.kind.is_check() && line.kind != Kind::Offer {
            return self.record(line);
        }
        let checks = u64::from(line.checks.unsigned_abs());
        let mut counts = Counts::default();
        counts.add(&line, checks);
        self.counts = self.counts + counts;
        let volume = self.volumes.entry(self.grain.of(line.decided_at)).or_default();
        *volume = *volume + counts;
        self.slices.add(line.decided_at, counts);
        *self.reasons.entry(line.reason.as_str()).or_default() += checks;
        if !line.reason.allows() {
            let most = if line.blocked { &mut self.blocked } else { &mut self.shadowed };
            most.add(&line.key, checks, line.decided_at, line.txn_id);
        } else if line.kind != Kind::Unchecked && line.reason != Reason::Off {
            let Line { remaining, limit, decided_at: at, txn_id: txn, .. } = line;
            self.near.add(&line.key, Near { remaining, limit, at, txn, checks });
        }
    }

    /// Notes a row that is no check.
    fn record(&mut self, line: Line) {
        let newest = match line.kind {
            kind if kind.is_undo() => return self.undone.entry(kind).or_default().add(line.cost),
            kind @ (Kind::Lease | Kind::Local) => {
                return self.handed_out.entry(kind).or_default().add(line.spent);
            }
            kind if kind.is_of_queue() => return self.handed_out.entry(kind).or_default().add(line.cost),
            Kind::Ban if line.actor.is_none() && line.note.is_none() => &mut self.bans,
            _ => &mut self.actions,
        };
        newest.total += 1;
        let limit = matches!(line.kind, Kind::Override | Kind::OverrideEnd).then_some(line.limit);
        let (zone, Line { decided_at, txn_id, key, kind, ends_at, note, actor, login, .. }) =
            (self.zone.to_owned(), line);
        // Of several databases one comes after the other.
        let place = newest.acts.partition_point(|act| act.recorded_at <= decided_at);
        newest.acts.insert(
            place,
            Act { recorded_at: decided_at, txn_id, zone, key, kind, ends_at, limit, actor, login, note },
        );
        if newest.acts.len() > ACTS {
            newest.acts.pop_front();
        }
    }

    /// The zone on the whole, and when its first row was decided.
    pub fn zone(&self) -> (ZoneReport, Option<DateTime<Utc>>) {
        let Self { zone, counts, reasons, undone, handed_out, .. } = self;
        let zone = ZoneReport {
            zone: (*zone).to_owned(),
            counts: *counts,
            blocked_share: counts.blocked as f64 / counts.checks.max(1) as f64,
            reasons: reasons.clone(),
            undone: undone.clone(),
            handed_out: handed_out.clone(),
            bans: self.bans.total,
            actions: self.actions.total,
        };
        (zone, self.first_at)
    }

    /// Adds what the zone's rows came to; of its checks over time, the slices are given back.
    pub fn join(self, report: &mut Report) -> Slices {
        report.rows += self.rows;
        report.zones.push(self.zone().0);
        let Self { zone, top, blocked, shadowed, near, .. } = self;
        let volumes = self.volumes.into_iter();
        let volumes = volumes.map(|(starts_at, counts)| Volume { starts_at, zone: zone.to_owned(), counts });
        report.volumes.extend(volumes);
        self.bans.join(&mut report.bans);
        self.actions.join(&mut report.actions);

        let exact = blocked.is_exact() && shadowed.is_exact();
        let (near, complete) = near.most(top, |key| !blocked.has(key) && !shadowed.has(key));
        let near = near.into_iter().map(|(key, near)| NearBucket {
            zone: zone.to_owned(),
            key,
            remaining: near.remaining,
            limit: near.limit,
            decided_at: near.at,
            txn_id: near.txn,
            checks: near.checks,
        });
        report.near_limit.join(near, exact && complete, top, |a, b| a.near().order(&b.near()));
        for (sketch, most) in [(blocked, &mut report.blocked_most), (shadowed, &mut report.shadowed_most)] {
            let exact = sketch.is_exact();
            let buckets = sketch.most(top).into_iter().map(|counter| BlockedBucket {
                zone: zone.to_owned(),
                key: counter.key.to_string(),
                blocked: counter.count,
                error: counter.error,
                first_at: counter.first_at,
                last_at: counter.last_at,
                last_txn: counter.last_txn,
            });
            most.join(buckets, exact, top, |a, b| b.blocked.cmp(&a.blocked));
        }
        self.slices
    }
}

impl Newest {
    fn join(self, acts: &mut Acts) {
        acts.total += self.total;
        acts.newest.extend(self.acts.into_iter().rev());
        acts.newest.sort_by_key(|act| Reverse(act.recorded_at));
        acts.newest.truncate(ACTS);
    }
}

impl<T> Top<T> {
    fn join(
        &mut self,
        more: impl Iterator<Item = T>,
        exact: bool,
        top: usize,
        order: impl Fn(&T, &T) -> Ordering,
    ) {
        self.exact &= exact;
        self.buckets.extend(more);
        self.buckets.sort_by(order);
        self.buckets.truncate(top);
    }
}

impl NearBucket {
    fn near(&self) -> Near {
        let Self { remaining, limit, decided_at: at, txn_id: txn, checks, .. } = *self;
        Near { remaining, limit, at, txn, checks }
    }
}

impl Sum {
    fn add(&mut self, cost: i64) {
        self.rows += 1;
        self.cost = self.cost.saturating_add(cost);
    }
}

impl Counts {
    fn add(&mut self, line: &Line, checks: u64) {
        let count = |is: bool, of: &mut u64| *of += if is { checks } else { 0 };
        count(true, &mut self.checks);
        count(!line.blocked, &mut self.allowed);
        count(line.blocked, &mut self.blocked);
        count(line.reason == Reason::Soft, &mut self.soft);
        count(!line.blocked && !line.reason.allows(), &mut self.shadowed);
        count(line.kind == Kind::Coalesced, &mut self.coalesced);
        count(line.kind == Kind::Unchecked, &mut self.unchecked);
    }
}
