//! What the rows of one zone come to. Reads each row once, oldest first, in memory that does not grow with their number.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};

use super::near::{Near, Nearest};
use super::sketch::Sketch;
use super::values::{
    Act, Acts, BlockedBucket, Counts, Grain, NearBucket, Report, Top, Undone, Volume, ZoneReport,
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
    counts: Counts,
    reasons: BTreeMap<&'static str, u64>,
    volumes: BTreeMap<DateTime<Utc>, Counts>,
    undone: BTreeMap<Kind, Undone>,
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
            counts: Counts::default(),
            reasons: BTreeMap::new(),
            volumes: BTreeMap::new(),
            undone: BTreeMap::new(),
            bans: Newest::default(),
            actions: Newest::default(),
            blocked: Sketch::new(COUNTED),
            shadowed: Sketch::new(COUNTED),
            near: Nearest::new(REMEMBERED),
        }
    }

    pub fn add(&mut self, line: Line) {
        self.rows += 1;
        if line.reason == Reason::Recorded {
            return self.record(line);
        }
        let checks = u64::from(line.checks.unsigned_abs());
        self.counts.add(&line, checks);
        self.volumes.entry(self.grain.of(line.decided_at)).or_default().add(&line, checks);
        *self.reasons.entry(line.reason.as_str()).or_default() += checks;
        if !line.reason.allows() {
            let most = if line.blocked { &mut self.blocked } else { &mut self.shadowed };
            most.add(&line.key, checks, line.decided_at);
        } else if line.kind != Kind::Unchecked && line.reason != Reason::Off {
            let Line { remaining, limit, decided_at, .. } = line;
            self.near.add(&line.key, Near { remaining, limit, at: decided_at });
        }
    }

    /// What is no decision.
    fn record(&mut self, line: Line) {
        let newest = match line.kind {
            kind if kind.is_undo() => {
                let undone = self.undone.entry(line.kind).or_default();
                undone.rows += 1;
                undone.cost = undone.cost.saturating_add(line.cost);
                return;
            }
            Kind::Ban if line.actor.is_none() && line.note.is_none() => &mut self.bans,
            _ => &mut self.actions,
        };
        newest.total += 1;
        let limit = matches!(line.kind, Kind::Override | Kind::OverrideEnd).then_some(line.limit);
        let (zone, Line { decided_at, key, kind, ends_at, note, actor, login, .. }) =
            (self.zone.to_owned(), line);
        // Of several databases one comes after the other.
        let place = newest.acts.partition_point(|act| act.recorded_at <= decided_at);
        newest.acts.insert(
            place,
            Act { recorded_at: decided_at, zone, key, kind, ends_at, limit, actor, login, note },
        );
        if newest.acts.len() > ACTS {
            newest.acts.pop_front();
        }
    }

    /// Adds what the zone's rows came to.
    pub fn join(self, report: &mut Report) {
        let Self { zone, top, counts, blocked, shadowed, near, .. } = self;
        report.rows += self.rows;
        report.zones.push(ZoneReport {
            zone: zone.to_owned(),
            counts,
            blocked_share: counts.blocked as f64 / counts.checks.max(1) as f64,
            reasons: self.reasons,
            undone: self.undone,
            bans: self.bans.total,
            actions: self.actions.total,
        });
        let volumes = self.volumes.into_iter();
        let volumes = volumes.map(|(starts_at, counts)| Volume { starts_at, zone: zone.to_owned(), counts });
        report.volumes.extend(volumes);
        self.bans.join(&mut report.bans);
        self.actions.join(&mut report.actions);

        let exact = blocked.is_exact() && shadowed.is_exact();
        let (near, complete) = near.most(top, |key| !blocked.has(key) && !shadowed.has(key));
        let near = near.into_iter().map(|(key, Near { remaining, limit, at })| NearBucket {
            zone: zone.to_owned(),
            key,
            remaining,
            limit,
            decided_at: at,
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
            });
            most.join(buckets, exact, top, |a, b| b.blocked.cmp(&a.blocked));
        }
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
        Near { remaining: self.remaining, limit: self.limit, at: self.decided_at }
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
