//! The tables of a report, for the terminal and for the page.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::{Act, Acts, BlockedBucket, Counts, FieldChange, NearBucket, Report, Sum, Top, ZoneReport};
use crate::entry::Kind;
use crate::page::Column::{self, Number, Text, Word};
use crate::page::{Cell, Figure, by, count, plain, second};
use crate::zone::show_duration;

/// A table of a report, with what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// Its heading.
    pub heading: &'static str,
    /// The meaning of the numbers; empty where that is plain.
    pub about: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Of each row a cell for each column. Their texts are fit for a terminal and for a page; where they lead to, and what stands
    /// beside them, is for a page.
    pub rows: Vec<Vec<Cell>>,
    /// The text where there are no rows.
    pub none: &'static str,
}

impl Report {
    /// The report as tables: for a page, a terminal or a letter.
    pub fn sections(&self) -> Vec<Section> {
        let mut keys = Keys::default();
        vec![
            zones(self),
            reasons(self),
            blocked(
                "Blocked most",
                "The buckets of which most checks were blocked.",
                "no bucket was blocked",
                &self.blocked_most,
                &mut keys,
            ),
            blocked(
                "Shadowed most",
                "The buckets of which most checks would have been blocked by a zone that enforces.",
                "no check was shadowed",
                &self.shadowed_most,
                &mut keys,
            ),
            near(self, &mut keys),
            bans(&self.bans, &mut keys),
            actions(&self.actions, &mut keys),
            changes(self),
            undone(self),
            handed_out(self),
        ]
    }

    /// The transactions that it names: of each bucket that was blocked most its last one, of each that was banned the one that
    /// brought about the last ban, and so on, each once.
    pub fn transactions(&self) -> Vec<Uuid> {
        let last =
            |top: &Top<BlockedBucket>| top.buckets.iter().map(|bucket| bucket.last_txn).collect::<Vec<_>>();
        let mut named = last(&self.blocked_most);
        named.extend(banned(&self.bans).into_iter().map(|banned| banned.last.txn_id));
        named.extend(last(&self.shadowed_most));
        named.extend(self.near_limit.buckets.iter().map(|bucket| bucket.txn_id));
        named.extend(self.actions.newest.iter().map(|act| act.txn_id));
        let mut seen = std::collections::HashSet::new();
        named.retain(|txn| seen.insert(*txn));
        named
    }
}

/// The buckets that have a row. Where one comes again, it leads to its first.
#[derive(Default)]
struct Keys<'r>(BTreeMap<(&'r str, &'r str), String>);

impl<'r> Keys<'r> {
    fn cell(&mut self, zone: &'r str, key: &'r str) -> Cell {
        let text = plain(key);
        if let Some(to) = self.0.get(&(zone, key)) {
            return Cell { text, to: to.clone(), ..Cell::default() };
        }
        let id = format!("key-{}", self.0.len() + 1);
        self.0.insert((zone, key), id.clone());
        Cell { text, id, ..Cell::default() }
    }
}

/// A time, with the transaction of it, to whose explanation it leads.
fn of_txn(at: DateTime<Utc>, txn: Uuid) -> Cell {
    Cell { text: second(at), to: explanation(txn), beside: txn.to_string(), ..Cell::default() }
}

/// The id of an explanation in a page.
pub(super) fn explanation(txn: Uuid) -> String {
    format!("txn-{txn}")
}

fn cells<const N: usize>(texts: [String; N]) -> Vec<Cell> {
    texts.map(Cell::from).into()
}

fn zones(report: &Report) -> Section {
    type Column = (&'static str, fn(&ZoneReport) -> u64);
    let rare: [Column; 6] = [
        ("soft", |zone| zone.counts.soft),
        ("shadowed", |zone| zone.counts.shadowed),
        ("coalesced", |zone| zone.counts.coalesced),
        ("unchecked", |zone| zone.counts.unchecked),
        ("bans", |zone| zone.bans),
        ("actions", |zone| zone.actions),
    ];
    let rare: Vec<_> =
        rare.into_iter().filter(|(_, of)| report.zones.iter().any(|zone| of(zone) > 0)).collect();
    let is_used = |zone: &&ZoneReport| {
        let sums = zone.undone.len() + zone.handed_out.len();
        zone.counts.checks > 0 || zone.bans + zone.actions > 0 || sums > 0
    };
    let row = |zone: &ZoneReport| {
        let counts = &zone.counts;
        let before = report.before_of(&zone.zone);
        let beside = |beside: Option<String>| beside.unwrap_or_default();
        let checks = Cell {
            text: count(counts.checks),
            beside: beside(before.map(|before| change(counts.checks, before.counts.checks))),
            ..Cell::default()
        };
        let share = Cell {
            text: percent(zone.blocked_share),
            beside: beside(before.map(|before| format!("from {}", percent(before.blocked_share)))),
            ..Cell::default()
        };
        let mut row = vec![plain(&zone.zone).into(), checks];
        row.extend(cells([counts.allowed, counts.blocked].map(count)));
        row.push(share);
        row.extend(rare.iter().map(|(_, of)| count(of(zone)).into()));
        row
    };
    let mut columns =
        vec![Text("zone"), Number("checks"), Number("allowed"), Number("blocked"), Number("share")];
    columns.extend(rare.iter().map(|(name, _)| Number(name)));
    let meanings = [
        ("soft", "soft ones passed with a warning"),
        ("shadowed", "shadowed ones would have been blocked by a zone that enforces"),
        ("unchecked", "unchecked ones passed while the database did not answer"),
    ];
    let is_there = |name: &str| rare.iter().any(|(rare, _)| *rare == name);
    let meanings: Vec<_> =
        meanings.into_iter().filter(|(name, _)| is_there(name)).map(|(_, meaning)| meaning).collect();
    let mut about = "Every check was allowed or blocked.".to_owned();
    if !meanings.is_empty() {
        about += &format!(" Of those allowed, {}.", meanings.join(", "));
    }
    if is_there("coalesced") {
        about += " Coalesced ones were answered from memory.";
    }
    let unused: Vec<_> =
        report.zones.iter().filter(|zone| !is_used(zone)).map(|zone| plain(&zone.zone)).collect();
    if !unused.is_empty() {
        about += &format!(" Nothing was decided in {}.", unused.join(", "));
    }
    for (zone, &at) in &report.ahead {
        about += &format!(
            " {} has rows up to {} UTC, for which it is not time yet: a clock was ahead.",
            plain(zone),
            second(at)
        );
    }
    Section {
        heading: "Zones",
        about,
        columns,
        rows: report.zones.iter().filter(is_used).map(row).collect(),
        none: if report.zones.is_empty() { "there are no zones" } else { "no zone was used" },
    }
}

fn reasons(report: &Report) -> Section {
    let rows = report.zones.iter().flat_map(|zone| {
        zone.reasons.iter().map(|(reason, &checks)| {
            let share = checks as f64 / zone.counts.checks.max(1) as f64;
            cells([plain(&zone.zone), (*reason).to_owned(), count(checks), percent(share)])
        })
    });
    Section {
        heading: "Reasons",
        about: String::new(),
        columns: vec![Text("zone"), Word("reason"), Number("checks"), Number("share")],
        rows: rows.collect(),
        none: "nothing was decided",
    }
}

fn blocked<'r>(
    heading: &'static str,
    about: &str,
    none: &'static str,
    top: &'r Top<BlockedBucket>,
    keys: &mut Keys<'r>,
) -> Section {
    let row = |bucket: &'r BlockedBucket| {
        let mut row = vec![
            plain(&bucket.zone).into(),
            keys.cell(&bucket.zone, &bucket.key),
            count(bucket.blocked).into(),
        ];
        if !top.exact {
            row.push(count(bucket.blocked.saturating_sub(bucket.error)).into());
        }
        row.extend([second(bucket.first_at).into(), of_txn(bucket.last_at, bucket.last_txn)]);
        row
    };
    let estimated = " There were more buckets than are counted one by one, so these are estimates: between at least and at \
                     most so many. The first time is of what was counted one by one.";
    Section {
        heading,
        about: about.to_owned() + if top.exact { "" } else { estimated },
        columns: if top.exact {
            vec![Text("zone"), Text("key"), Number("checks"), Word("first"), Word("last")]
        } else {
            vec![
                Text("zone"),
                Text("key"),
                Number("at most"),
                Number("at least"),
                Word("first"),
                Word("last"),
            ]
        },
        rows: top.buckets.iter().map(row).collect(),
        none,
    }
}

fn near<'r>(report: &'r Report, keys: &mut Keys<'r>) -> Section {
    let top = &report.near_limit;
    let estimated = " There were more buckets than are remembered, so some of these may have been blocked, others may be \
                     missing, and checks may be more.";
    let used = |bucket: &NearBucket| 1.0 - bucket.remaining as f64 / bucket.limit.max(1) as f64;
    let mut buckets: Vec<_> = top.buckets.iter().collect();
    // By use, and where that is the same by how often it came to that.
    buckets.sort_by(|a, b| {
        let amount = |of: &NearBucket| of.limit.saturating_sub(of.remaining);
        let often = b.checks.cmp(&a.checks).then(amount(b).cmp(&amount(a)));
        used(b).total_cmp(&used(a)).then(often).then(b.decided_at.cmp(&a.decided_at))
    });
    let rows = buckets.into_iter().map(|bucket| {
        let left =
            format!("{} of {}", count(bucket.remaining.unsigned_abs()), count(bucket.limit.unsigned_abs()));
        vec![
            plain(&bucket.zone).into(),
            keys.cell(&bucket.zone, &bucket.key),
            left.into(),
            percent(used(bucket)).into(),
            count(bucket.checks).into(),
            of_txn(bucket.decided_at, bucket.txn_id),
        ]
    });
    Section {
        heading: "Near the limit",
        about: "Never blocked or shadowed, but with the least of the limit left; and how many checks left no more than that."
            .to_owned()
            + if top.exact { "" } else { estimated },
        columns: vec![
            Text("zone"),
            Text("key"),
            Number("left"),
            Number("used"),
            Number("checks"),
            Word("last so"),
        ],
        rows: rows.collect(),
        none: "no bucket was checked and never blocked",
    }
}

/// The bans of a bucket.
struct Banned<'r> {
    bans: u64,
    /// The shortest and the longest, in microseconds; None for one without an end.
    lasted_us: Option<(i64, i64)>,
    first: &'r Act,
    last: &'r Act,
}

/// Bans by bucket: those first that were banned most often.
fn banned(acts: &Acts) -> Vec<Banned<'_>> {
    let mut buckets = BTreeMap::<(&str, &str), Banned<'_>>::new();
    // The newest is first.
    for act in &acts.newest {
        let lasted_us = act.ends_at.and_then(|ends_at| (ends_at - act.recorded_at).num_microseconds());
        let lasted_us = lasted_us.map(|us| (us, us));
        buckets
            .entry((&act.zone, &act.key))
            .and_modify(|of| {
                of.bans += 1;
                of.first = act;
                of.lasted_us = of.lasted_us.zip(lasted_us).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
            })
            .or_insert(Banned { bans: 1, lasted_us, first: act, last: act });
    }
    let mut buckets: Vec<_> = buckets.into_values().collect();
    buckets.sort_by_key(|of| (Reverse(of.bans), Reverse(of.last.recorded_at)));
    buckets
}

fn bans<'r>(acts: &'r Acts, keys: &mut Keys<'r>) -> Section {
    let row = |of: Banned<'r>| {
        // To the second: a ban from the window on is a hair shorter than it is called.
        let show = |us: i64| show_duration(us.saturating_add(500_000) / 1_000_000 * 1_000_000);
        let lasted = of.lasted_us.map(|(shortest, longest)| (show(shortest), show(longest)));
        let lasted = match lasted {
            Some((shortest, longest)) if shortest == longest => shortest,
            Some((shortest, longest)) => format!("{shortest} to {longest}"),
            None => "for good".to_owned(),
        };
        vec![
            plain(&of.last.zone).into(),
            keys.cell(&of.last.zone, &of.last.key),
            count(of.bans).into(),
            lasted.into(),
            second(of.first.recorded_at).into(),
            of_txn(of.last.recorded_at, of.last.txn_id),
            of.last.ends_at.map(second).unwrap_or_default().into(),
        ]
    };
    Section {
        heading: "Bans",
        about: format!("Bans that blocked checks led to, by bucket.{}", newest(acts)),
        columns: vec![
            Text("zone"),
            Text("key"),
            Number("bans"),
            Word("each for"),
            Word("first"),
            Word("last"),
            Word("until"),
        ],
        rows: banned(acts).into_iter().map(row).collect(),
        none: "no bucket was banned",
    }
}

fn actions<'r>(acts: &'r Acts, keys: &mut Keys<'r>) -> Section {
    let text = |text: &Option<String>| text.as_deref().map(plain).unwrap_or_default();
    let row = |act: &'r Act| {
        vec![
            Cell { to: explanation(act.txn_id), ..second(act.recorded_at).into() },
            act.kind.as_str().replace('_', " ").into(),
            plain(&act.zone).into(),
            keys.cell(&act.zone, &act.key),
            act.limit.map(|limit| count(limit.unsigned_abs())).unwrap_or_default().into(),
            act.ends_at.map(second).unwrap_or_default().into(),
            act.actor.as_ref().map(|actor| by(actor, act.login.as_deref())).unwrap_or_default().into(),
            text(&act.note).into(),
        ]
    };
    Section {
        heading: "Actions",
        about: format!(
            "What people did to buckets: bans, the lifting of bans, overrides and their ends.{}",
            newest(acts)
        ),
        columns: vec![
            Word("at"),
            Word("what"),
            Text("zone"),
            Text("key"),
            Number("limit"),
            Word("until"),
            Text("who"),
            Text("why"),
        ],
        rows: acts.newest.iter().map(row).collect(),
        none: "nobody did anything to a bucket",
    }
}

/// The note on a list that is cut.
fn newest(acts: &Acts) -> String {
    let shown = acts.newest.len() as u64;
    if acts.total > shown { format!(" The newest {shown} of {}.", count(acts.total)) } else { String::new() }
}

fn changes(report: &Report) -> Section {
    let rows = report.changes.iter().map(|change| {
        let fields: Vec<_> = change.fields.iter().map(field).collect();
        let what = match change.version {
            1 => format!("made: {}, {}", change.policy.algorithm(), change.policy),
            _ => fields.join(", "),
        };
        cells([
            second(change.changed_at),
            plain(&change.zone),
            change.version.to_string(),
            by(&change.changed_by, change.login.as_deref()),
            plain(&what),
        ])
    });
    Section {
        heading: "Changes of policy",
        about: String::new(),
        columns: vec![Word("at"), Text("zone"), Number("version"), Text("who"), Text("what")],
        rows: rows.collect(),
        none: "no policy was changed",
    }
}

/// `rate 5 → 10`.
fn field(FieldChange { field, from, to, .. }: &FieldChange) -> String {
    let show = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("{field} {} → {}", show(from), show(to))
}

fn undone(report: &Report) -> Section {
    Section {
        heading: "Refunds, settlements, cancellations, releases",
        about: "Units are what was given back; of settlements, what they came to.".to_owned(),
        none: "nothing was given back or settled",
        ..sums(report, |zone| &zone.undone)
    }
}

fn handed_out(report: &Report) -> Section {
    Section {
        heading: "Leases, takes and items",
        about: "Of a lease and of what a process took for local decisions, units are what it had; of an item of a queue, its cost. \
                The offers of items are checks, above."
            .to_owned(),
        none: "nothing was leased or taken",
        ..sums(report, |zone| &zone.handed_out)
    }
}

fn sums(report: &Report, of: fn(&ZoneReport) -> &BTreeMap<Kind, Sum>) -> Section {
    let rows = report.zones.iter().flat_map(|zone| {
        of(zone).iter().map(|(kind, sum)| {
            cells([plain(&zone.zone), kind.to_string(), count(sum.rows), count(sum.cost.unsigned_abs())])
        })
    });
    Section {
        heading: "",
        about: String::new(),
        columns: vec![Text("zone"), Word("what"), Number("times"), Number("units")],
        rows: rows.collect(),
        none: "",
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The change of a number: `+12 %`.
pub(super) fn change(now: u64, before: u64) -> String {
    match (now, before) {
        _ if now == before => "as before".to_owned(),
        (_, 0) => "none before".to_owned(),
        _ => {
            let change = (now as f64 / before as f64 - 1.0) * 100.0;
            // More than tenfold says less in percent.
            if change >= 1_000.0 {
                format!("× {:.0}", now as f64 / before as f64)
            } else {
                format!("{change:+.0} %")
            }
        }
    }
}

/// The zones together.
pub(super) fn total(zones: &[ZoneReport]) -> Counts {
    zones.iter().fold(Counts::default(), |total, zone| total + zone.counts)
}

impl Report {
    /// A zone in the time before, if there were rows in that time.
    fn before_of(&self, zone: &str) -> Option<&ZoneReport> {
        let before = self.before.as_ref().filter(|before| before.first_at.is_some())?;
        before.zones.iter().find(|before| before.zone == zone)
    }

    /// The figures of the whole, beside those of the time before.
    pub fn figures(&self) -> Vec<Figure<'static>> {
        let before = self.before.as_ref().filter(|before| before.first_at.is_some());
        let (now, was) = (total(&self.zones), before.map(|before| total(&before.zones)));
        let number = |label: &'static str, now: u64, was: Option<u64>| {
            let before = was.map(|was| match change(now, was) {
                same if now == was || was == 0 => same,
                change => format!("{change} from {}", count(was)),
            });
            Figure { number: count(now), label, before: before.unwrap_or_default() }
        };
        let share = |counts: &Counts| percent(counts.blocked as f64 / counts.checks.max(1) as f64);
        let sum = |zones: &[ZoneReport], of: fn(&ZoneReport) -> u64| zones.iter().map(of).sum();
        let was_sum = |of: fn(&ZoneReport) -> u64| before.map(|before| sum(&before.zones, of));
        vec![
            number("checks", now.checks, was.map(|was| was.checks)),
            number("allowed", now.allowed, was.map(|was| was.allowed)),
            number("blocked", now.blocked, was.map(|was| was.blocked)),
            Figure {
                number: share(&now),
                label: "of them blocked",
                before: was
                    .filter(|was| was.checks > 0)
                    .map(|was| format!("from {}", share(&was)))
                    .unwrap_or_default(),
            },
            number("bans", self.bans.total, was_sum(|zone| zone.bans)),
            number("actions by people", self.actions.total, was_sum(|zone| zone.actions)),
        ]
    }
}
