//! The tables of a report, for the terminal and for the page.

use serde_json::Value;

use super::{Act, Acts, BlockedBucket, FieldChange, Report, Top, ZoneReport};
use crate::page::Column::{self, Number, Text, Word};
use crate::page::{by, count, plain, second};

/// A table of a report, with what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// What it is called.
    pub heading: &'static str,
    /// What the numbers mean; empty where that is plain.
    pub about: String,
    /// Its columns.
    pub columns: &'static [Column],
    /// Of each row a text for each column, fit for a terminal and for a page.
    pub rows: Vec<Vec<String>>,
    /// What is said where there are no rows.
    pub none: &'static str,
}

impl Report {
    /// What it says, as tables: for a page, a terminal or a letter.
    pub fn sections(&self) -> Vec<Section> {
        vec![
            zones(self),
            reasons(self),
            blocked(
                "Blocked most",
                "The buckets of which most checks were blocked.",
                "no bucket was blocked",
                &self.blocked_most,
            ),
            blocked(
                "Shadowed most",
                "The buckets of which most checks would have been blocked by a zone that enforces.",
                "no check was shadowed",
                &self.shadowed_most,
            ),
            near(self),
            bans(&self.bans),
            actions(&self.actions),
            changes(self),
            undone(self),
        ]
    }
}

fn zones(report: &Report) -> Section {
    let row = |zone: &ZoneReport| {
        let counts = &zone.counts;
        let mut row =
            vec![plain(&zone.zone), count(counts.checks), count(counts.allowed), count(counts.blocked)];
        row.push(percent(zone.blocked_share));
        row.extend([counts.soft, counts.shadowed, counts.coalesced, counts.unchecked].map(count));
        row.extend([zone.bans, zone.actions].map(count));
        row
    };
    Section {
        heading: "Zones",
        about: "Every check was allowed or blocked. Of those allowed, soft ones passed with a warning, shadowed ones would \
                have been blocked by a zone that enforces, unchecked ones passed while the database did not answer. \
                Coalesced ones were answered from memory."
            .to_owned(),
        columns: &[
            Text("zone"),
            Number("checks"),
            Number("allowed"),
            Number("blocked"),
            Number("share"),
            Number("soft"),
            Number("shadowed"),
            Number("coalesced"),
            Number("unchecked"),
            Number("bans"),
            Number("actions"),
        ],
        rows: report.zones.iter().map(row).collect(),
        none: "there are no zones",
    }
}

fn reasons(report: &Report) -> Section {
    let rows = report.zones.iter().flat_map(|zone| {
        zone.reasons.iter().map(|(reason, &checks)| {
            let share = checks as f64 / zone.counts.checks.max(1) as f64;
            vec![plain(&zone.zone), (*reason).to_owned(), count(checks), percent(share)]
        })
    });
    Section {
        heading: "Reasons",
        about: String::new(),
        columns: &[Text("zone"), Word("reason"), Number("checks"), Number("share")],
        rows: rows.collect(),
        none: "nothing was decided",
    }
}

fn blocked(heading: &'static str, about: &str, none: &'static str, top: &Top<BlockedBucket>) -> Section {
    let row = |bucket: &BlockedBucket| {
        let mut row = vec![plain(&bucket.zone), plain(&bucket.key), count(bucket.blocked)];
        if !top.exact {
            row.push(count(bucket.blocked.saturating_sub(bucket.error)));
        }
        row.extend([bucket.first_at, bucket.last_at].map(second));
        row
    };
    let estimated = " There were more buckets than are counted one by one, so these are estimates: between at least and at \
                     most so many. The first time is of what was counted one by one.";
    Section {
        heading,
        about: about.to_owned() + if top.exact { "" } else { estimated },
        columns: if top.exact {
            &[Text("zone"), Text("key"), Number("checks"), Word("first"), Word("last")]
        } else {
            &[Text("zone"), Text("key"), Number("at most"), Number("at least"), Word("first"), Word("last")]
        },
        rows: top.buckets.iter().map(row).collect(),
        none,
    }
}

fn near(report: &Report) -> Section {
    let top = &report.near_limit;
    let estimated = " There were more buckets than are remembered, so some of these may have been blocked, and others may \
                     be missing.";
    let rows = top.buckets.iter().map(|bucket| {
        let left =
            format!("{} of {}", count(bucket.remaining.unsigned_abs()), count(bucket.limit.unsigned_abs()));
        vec![plain(&bucket.zone), plain(&bucket.key), left, second(bucket.decided_at)]
    });
    Section {
        heading: "Near the limit",
        about: "Never blocked or shadowed, but with the least of the limit left.".to_owned()
            + if top.exact { "" } else { estimated },
        columns: &[Text("zone"), Text("key"), Number("left"), Word("last so")],
        rows: rows.collect(),
        none: "no bucket was checked and never blocked",
    }
}

fn bans(acts: &Acts) -> Section {
    let row = |act: &Act| {
        let until = act.ends_at.map(second).unwrap_or_default();
        vec![second(act.recorded_at), plain(&act.zone), plain(&act.key), until]
    };
    Section {
        heading: "Bans",
        about: format!("Bans that blocked checks led to.{}", newest(acts)),
        columns: &[Word("at"), Text("zone"), Text("key"), Word("until")],
        rows: acts.newest.iter().map(row).collect(),
        none: "no bucket was banned",
    }
}

fn actions(acts: &Acts) -> Section {
    let text = |text: &Option<String>| text.as_deref().map(plain).unwrap_or_default();
    let row = |act: &Act| {
        vec![
            second(act.recorded_at),
            act.kind.as_str().replace('_', " "),
            plain(&act.zone),
            plain(&act.key),
            act.limit.map(|limit| limit.to_string()).unwrap_or_default(),
            act.ends_at.map(second).unwrap_or_default(),
            act.actor.as_ref().map(|actor| by(actor, act.login.as_deref())).unwrap_or_default(),
            text(&act.note),
        ]
    };
    Section {
        heading: "Actions",
        about: format!(
            "What people did to buckets: bans, the lifting of bans, overrides and their ends.{}",
            newest(acts)
        ),
        columns: &[
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

/// What is said of a list that is cut.
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
        vec![
            second(change.changed_at),
            plain(&change.zone),
            change.version.to_string(),
            by(&change.changed_by, change.login.as_deref()),
            plain(&what),
        ]
    });
    Section {
        heading: "Changes of policy",
        about: String::new(),
        columns: &[Word("at"), Text("zone"), Number("version"), Text("who"), Text("what")],
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
    let rows = report.zones.iter().flat_map(|zone| {
        zone.undone.iter().map(|(kind, undone)| {
            vec![plain(&zone.zone), kind.to_string(), count(undone.rows), count(undone.cost.unsigned_abs())]
        })
    });
    Section {
        heading: "Refunds, settlements, cancellations, releases",
        about: "Units are what was given back; of settlements, what they came to.".to_owned(),
        columns: &[Text("zone"), Word("what"), Number("times"), Number("units")],
        rows: rows.collect(),
        none: "nothing was given back or settled",
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
