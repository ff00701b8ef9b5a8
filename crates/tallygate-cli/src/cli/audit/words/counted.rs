//! Charges that counted, in sentences.

use tallygate::Policy;
use tallygate::audit::explain::{Counted, ExplainedRow, Level};
use tallygate::policy::Algorithm;

use super::{Words, policy, span};
use crate::cli::output::many;

impl Words<'_> {
    /// The use of the window, or of slots and members.
    pub(super) fn counts(&self, row: &ExplainedRow, counted: &Counted) -> String {
        let Counted { used, transactions, .. } = *counted;
        let limit = row.limit;
        let charges = many(transactions, "charge");
        let mut said = match (counted.from, policy(row).map(Policy::algorithm)) {
            (Some(from), Some(Algorithm::FixedWindow)) => {
                format!(
                    "In its window, which began at {}, {used} of {limit} counted, from {charges}.",
                    self.clock.show(from)
                )
            }
            (Some(from), _) => {
                format!("From {} on, {used} of {limit} counted, from {charges}.", self.clock.show(from))
            }
            (None, Some(Algorithm::Distinct)) => {
                format!("{} counted, of at most {limit}.", many(used, "different member"))
            }
            (None, _) => format!("{used} of {limit} were taken, by {}.", charges.replace("charge", "check")),
        };
        if let Some(fade) = counted.fading.filter(|fade| fade.spent > 0) {
            said += &format!(
                " Of the {} spent in the slot before, from {} on, {} counted: the share of it that was still in the window \
                 ({} of {}).",
                fade.spent,
                self.clock.show(fade.from),
                fade.counts,
                span(fade.part_us),
                span(fade.of_us),
            );
        }
        if let Some(carried) = counted.carried {
            said += &format!(
                " {} of that stands for all that was spent before the policy changed at {}.",
                carried.amount,
                self.clock.show(carried.at)
            );
        }
        said
    }

    /// The level and its arithmetic.
    pub(super) fn fills(&self, row: &ExplainedRow, level: &Level) -> String {
        let tokens = |level_units: i64| tokens(level_units, level.per_token);
        let capacity = tokens(level.capacity);
        let mut said = match (level.before, level.before_at) {
            (Some(before), Some(at)) if !level.changed => {
                let full = if before.saturating_add(level.flowed_in) > level.capacity {
                    format!(", of which it had room for {}", tokens(level.now.saturating_sub(before)))
                } else {
                    String::new()
                };
                format!(
                    "At {} there were {} of {capacity}; {} flowed in since{full}; so there were {}.",
                    self.clock.show(at),
                    tokens(before),
                    tokens(level.flowed_in),
                    tokens(level.now)
                )
            }
            (_, Some(at)) => format!(
                "There were {} of {capacity}, by what flowed in, was given back or changed since {}.",
                tokens(level.now),
                self.clock.show(at)
            ),
            _ => format!("It began full, with {} of {capacity}.", tokens(level.now)),
        };
        if let (Some(after), true) = (level.after, row.row.spent > 0) {
            said += &format!(" After it: {}.", tokens(after));
        }
        said
    }
}

/// Units of a level as tokens, to six places, rounded down.
fn tokens(units: i64, per_token: i64) -> String {
    let (units, per_token) = (i128::from(units), i128::from(per_token.max(1)));
    let sign = if units < 0 { "-" } else { "" };
    let millionths = units.abs() * 1_000_000 / per_token;
    let text = format!("{sign}{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
