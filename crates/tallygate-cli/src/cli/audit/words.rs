//! An explanation in sentences, for a person who has to answer for a decision.

mod bars;
mod counted;
mod shares;

use tallygate::audit::explain::{Explained, ExplainedRow};
use tallygate::ledger::Kind;
use tallygate::{Policy, Reason};

use crate::cli::clock::Clock;
use crate::cli::duration;
use crate::cli::output::{by, many, plain};

/// An explanation on its way into words.
#[derive(Clone, Copy)]
pub struct Words<'e> {
    pub all: &'e Explained,
    /// The clock by which times are told.
    pub clock: Clock,
}

impl Words<'_> {
    /// The sentences about a row.
    pub fn sentences(&self, row: &ExplainedRow) -> Vec<String> {
        let mut said = Vec::new();
        let told = &row.row;
        let own = row.bucket_override.as_ref().filter(|_| told.kind != Kind::Override);
        let own = own.map(|own| self.own_limit(own));
        if row.is_check() {
            said.extend(self.asked(row));
            // A ban blocks, whatever counted.
            let counted = row.counted.as_ref().filter(|_| told.reason != Reason::Banned);
            said.extend(counted.map(|counted| self.counts(row, counted)));
            let level = row.level_was.as_ref().filter(|_| told.reason != Reason::Banned);
            said.extend(level.map(|level| self.fills(row, level)));
            said.extend(own);
            said.push(self.why(row));
            said.extend(self.ban(row));
            said.extend(self.when(row));
        } else if told.kind == Kind::Lease {
            let leased = row.leased.as_ref().filter(|_| told.ends_at.is_some());
            said.extend(leased.map(|leased| self.shared(row, leased)));
            said.extend(own);
            said.push(self.granted(row));
            said.extend(self.ban(row));
        } else if told.kind.is_of_queue() {
            said.extend(row.queued.as_ref().map(|queued| self.waited(row, queued)));
            said.extend(own);
            said.push(self.worked(row));
            said.extend(self.ban(row));
        } else {
            said.push(self.happened(row));
            match told.kind {
                Kind::Override => said.extend(self.began(row)),
                Kind::Ban => said.extend(self.ban(row)),
                _ => said.extend(own),
            }
            said.push(format!("After it, {} could be spent.", told.remaining));
        }
        said.push(derived(row));
        said
    }

    fn asked(&self, row: &ExplainedRow) -> Option<String> {
        let told = &row.row;
        let critical = if told.critical { ", as a critical check" } else { "" };
        let member =
            told.member.as_ref().map(|member| format!(" about {}", plain(member))).unwrap_or_default();
        Some(match told.kind {
            Kind::Coalesced => format!(
                "This row stands for {}, answered blocked from memory without asking the database.",
                many(told.checks, "check")
            ),
            Kind::Reserve => format!("It asked to reserve {}{critical}.{}", told.cost, self.predicted(row)),
            Kind::Unchecked => return None,
            _ => format!("It asked for {}{member}{critical}.", told.cost),
        })
    }

    fn why(&self, row: &ExplainedRow) -> String {
        let told = &row.row;
        let left = match row.left_before {
            Some(0) => "nothing was left".to_owned(),
            Some(1) => "1 was left".to_owned(),
            Some(left) => format!("{left} were left"),
            None => "it is not known how much was left".to_owned(),
        };
        let only = if row.left_before.is_some_and(|left| left > 0) { "only " } else { "" };
        let shadow = if !told.blocked && !told.reason.allows() {
            " It passed all the same: the zone only watches (mode shadow)."
        } else {
            ""
        };
        let said = match told.reason {
            Reason::WithinLimit => format!("It passed: {left}, and after it {}.", told.remaining),
            Reason::Soft => format!(
                "It passed with a warning, since it went beyond the soft limit of {}; {left}, and after it {}.",
                policy(row).and_then(Policy::soft_rate).unwrap_or_default(),
                told.remaining
            ),
            Reason::Off => "It passed, since the zone was switched off.".to_owned(),
            Reason::Unchecked => format!(
                "It passed unchecked, for {}: the database did not answer, and the zone lets checks pass then. It was not \
                 charged.",
                told.cost
            ),
            Reason::OverLimit if told.kind == Kind::Coalesced => "The limit was reached.".to_owned(),
            Reason::OverLimit => format!("It was blocked, since {only}{left}.{}", counted_anyway(row)),
            Reason::ExceedsLimit if row.limit == 0 => {
                "It was blocked, since the limit is 0: nothing passes.".to_owned()
            }
            Reason::ExceedsLimit => format!(
                "It was blocked, since {} is more than the whole limit of {}: it can never pass.",
                told.cost, row.limit
            ),
            Reason::Banned => match &row.ban {
                Some(ban) => format!("It was blocked, since the bucket was banned: {}.", self.set(ban)),
                None => "It was blocked, since the bucket was banned.".to_owned(),
            },
            Reason::HeldBack => match &self.all.binding {
                Some(binding) => format!(
                    "By this limit it would have passed ({left}); it was held back by that of {} / {}, and \
                     spent nothing here.",
                    plain(&binding.zone),
                    plain(&binding.key)
                ),
                None => format!(
                    "By this limit it would have passed ({left}); another limit of the same request held it back."
                ),
            },
            _ => String::new(),
        };
        format!("{said}{shadow}")
    }

    /// The time when it would have passed, or the time that it was to wait.
    fn when(&self, row: &ExplainedRow) -> Vec<String> {
        let told = &row.row;
        let mut said = Vec::new();
        if let (Some(at), Some(wait_us)) = (row.passes_at, told.retry_after_us) {
            said.push(format!(
                "The same would have passed at {}, {} later, had nothing else arrived.",
                self.clock.show_end(at),
                duration::show_wait(wait_us)
            ));
        }
        let here = self.all.binding.as_ref().is_some_and(|b| b.zone == told.zone && b.key == told.key);
        if here && self.all.rows.iter().filter(|other| other.is_check()).count() > 1 {
            said.push("Of the limits that were asked together, this one was to blame.".to_owned());
        }
        if let Some(delay_us) = told.delay_us {
            said.push(format!("It was told to wait {} for its turn.", duration::show_wait(delay_us)));
        }
        if let Some(ends_at) = told.ends_at {
            said.push(format!("Its charge was to end by itself at {}.", self.clock.show_end(ends_at)));
        }
        said
    }

    /// The event of a row that is no check.
    fn happened(&self, row: &ExplainedRow) -> String {
        let told = &row.row;
        let charge = told.target_at.map(|at| self.clock.show(at)).unwrap_or_default();
        let until = told.ends_at.map(|at| self.clock.show_end(at)).unwrap_or_default();
        let by = told.actor.as_ref().map(|actor| format!(" by {}", by(actor, told.login.as_deref())));
        let by = by.unwrap_or_default();
        let note = told.note.as_ref().filter(|note| !note.is_empty());
        let note = note.map(|note| format!(": {}", plain(note))).unwrap_or_default();
        match told.kind {
            Kind::Refund => format!("The charge made at {charge} was refunded: {} given back.", told.cost),
            Kind::Cancel => {
                format!("The reservation made at {charge} was cancelled: {} given back.", told.cost)
            }
            Kind::Release => format!("The slot taken at {charge} was released: {} given back.", told.cost),
            Kind::Local => format!(
                "This row stands for all checks that a process decided by itself with the {} that it took, of {} that it \
                 wanted, until {until}; they have no rows of their own.",
                told.spent, told.cost,
            ),
            Kind::Settle if self.all.rows.iter().any(|other| other.row.kind == Kind::Local) => format!(
                "Of what the process took at {charge} it had spent {}, and gave the rest back.",
                told.cost
            ),
            Kind::Settle if told.spent > 0 => format!(
                "The reservation made at {charge} was settled for {}, {} of it charged beyond what was reserved.",
                told.cost, told.spent
            ),
            Kind::Settle => format!("The reservation made at {charge} was settled for {}.", told.cost),
            Kind::Ban if told.actor.is_none() => {
                format!("Blocked checks brought about a ban, until {until}.")
            }
            Kind::Ban => {
                let length = told.ends_at.map(|at| at.signed_duration_since(told.decided_at));
                let length = length.and_then(|length| length.num_microseconds()).map(span);
                format!("The bucket was banned{by} for {}, until {until}{note}.", length.unwrap_or_default())
            }
            Kind::Unban => format!("The ban was lifted{by}{note}."),
            Kind::Override => format!("The bucket got a limit of its own{by}{note}."),
            _ => format!("The bucket's own limit ended{by}{note}."),
        }
    }
}

fn counted_anyway(row: &ExplainedRow) -> &'static str {
    if row.row.spent > 0 { " It was charged all the same: the zone counts blocked checks." } else { "" }
}

fn policy(row: &ExplainedRow) -> Option<&Policy> {
    row.policy.as_ref().map(|version| &version.policy)
}

fn derived(row: &ExplainedRow) -> String {
    match (row.reproduced, &row.missing) {
        (Some(true), _) => "Derived again from the rows before it: the same.".to_owned(),
        (Some(false), _) => {
            let differs = row.differences.iter().map(|difference| {
                let [derived, recorded] = [&difference.derived, &difference.recorded].map(|text| plain(text));
                format!("{} is {derived}, not {recorded}", difference.column)
            });
            format!(
                "NOT the same when derived again from the rows before it: {}. The ledger was changed; run: tallygate \
                 audit verify",
                differs.collect::<Vec<_>>().join(", ")
            )
        }
        (None, why) => {
            format!("It cannot be derived again: {}.", why.as_deref().unwrap_or("rows before it are missing"))
        }
    }
}

/// A length of time, to the second from a minute on; finer parts are cut off.
fn span(us: i64) -> String {
    let us = us.max(0);
    let grain = match us {
        ..1_000 => 1,
        1_000..1_000_000 => 1_000,
        1_000_000..60_000_000 => 100_000,
        _ => 1_000_000,
    };
    match us {
        1_000_000..60_000_000 if us / grain % 10 > 0 => format!("{}.{}s", us / 1_000_000, us / grain % 10),
        _ => duration::show(us - us % grain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_never_told_longer_than_it_is() {
        for (us, told) in [
            (0, "0s"),
            (999, "999us"),
            (1_999, "1ms"),
            (1_000_000, "1s"),
            (41_190_000, "41.1s"),
            (59_999_999, "59.9s"),
            (60_000_000, "60s"),
            (899_999_999, "14m 59s"),
            (86_399_886_334, "23h 59m 59s"),
            (86_400_000_000, "24h"),
        ] {
            assert_eq!(span(us), told);
        }
    }
}
