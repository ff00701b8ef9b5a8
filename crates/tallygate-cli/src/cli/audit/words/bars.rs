//! Bans and overrides in sentences.

use tallygate::Reason;
use tallygate::audit::explain::{Bar, Cause, ExplainedRow};
use tallygate::ledger::Kind;

use super::Words;
use crate::cli::duration;
use crate::cli::output::{by, many, plain};

impl Words<'_> {
    pub(super) fn own_limit(&self, own: &Bar) -> String {
        format!("The bucket had a limit of its own: {}; {}.", limit(own), self.set(own))
    }

    /// The limit that an override is, and its last use.
    pub(super) fn began(&self, row: &ExplainedRow) -> Vec<String> {
        let Some(own) = &row.bucket_override else { return Vec::new() };
        let until = own
            .ends_at
            .map_or_else(|| "for good".to_owned(), |at| format!("until {}", self.clock.show_end(at)));
        let used = own.last_used_at.map_or_else(
            || "No check has been decided by it.".to_owned(),
            |at| format!("The last check that was decided by it was at {}.", self.clock.show(at)),
        );
        vec![format!("It is {}, {until}.", limit(own)), used]
    }

    /// The person who set it, its beginning, its end and the reason.
    pub(super) fn set(&self, bar: &Bar) -> String {
        let who = bar.actor.as_ref().map_or_else(
            || format!("brought about by transaction {}", bar.txn_id),
            |actor| format!("set by {}", by(actor, bar.login.as_deref())),
        );
        let until = bar
            .ends_at
            .map_or_else(|| "for good".to_owned(), |at| format!("until {}", self.clock.show_end(at)));
        let note = bar.note.as_ref().filter(|note| !note.is_empty());
        let note = note.map(|note| format!(" ({})", plain(note))).unwrap_or_default();
        format!("{who} at {}, {until}{note}", self.clock.show(bar.set_at))
    }

    /// The cause of the ban that a row is about, and why the ban lasts as long as it does.
    pub(super) fn ban(&self, row: &ExplainedRow) -> Vec<String> {
        let told = &row.row;
        if told.kind != Kind::Ban && told.reason != Reason::Banned {
            let led = self.all.rows.iter().any(|next| {
                let (next, here) = (&next.row, (&told.zone, &told.key, told.seq + 1));
                next.kind == Kind::Ban && next.actor.is_none() && (&next.zone, &next.key, next.seq) == here
            });
            let last = "It was the last of the blocked checks that brought about a ban, the next row.";
            return if led { vec![last.to_owned()] } else { Vec::new() };
        }
        match row.ban.as_ref().and_then(|ban| ban.cause.as_ref()) {
            Some(cause) => vec![brought(cause), self.length(cause)],
            None => Vec::new(),
        }
    }

    fn length(&self, cause: &Cause) -> String {
        let rule = cause.rule;
        let [length, first, longest] = [cause.length_us, rule.for_us, rule.longest_us].map(duration::show);
        let said = match cause.last_ended_at {
            None => format!("It lasts {length}, as a first ban of this zone does."),
            Some(_) if rule.factor == 1 => format!("It lasts {length}, as each ban of this zone does."),
            Some(ended) => {
                let factor = rule.factor;
                let times = cause.number - 1;
                let product = match times {
                    ..=4 => {
                        format!("{first}{}", format!(" x {factor}").repeat(times.unsigned_abs() as usize))
                    }
                    _ => format!("{first} x {factor}^{times}"),
                };
                let whole = i64::from(factor).checked_pow(times.unsigned_abs());
                let whole = whole.and_then(|times| times.checked_mul(rule.for_us));
                let sum = if whole != Some(cause.length_us) {
                    format!("{product} is more than {longest}, which is the longest")
                } else {
                    format!("{product} = {length}")
                };
                format!(
                    "It lasts {length}, since it is the {} ban in a row: the one before it ended at {}, no more than \
                     {longest} before it began, and each takes {factor} times as long as the one before: {sum}.",
                    nth(cause.number),
                    self.clock.show(ended)
                )
            }
        };
        let block = cause.checks.last().map(|check| check.at);
        if block.is_none_or(|at| at == cause.counts_from) {
            return said;
        }
        let from = self.clock.show(cause.counts_from);
        format!("{said} That is counted from {from}, when the last check would have passed without a ban.")
    }
}

fn brought(cause: &Cause) -> String {
    let blocked = many(cause.blocked, "blocked check");
    let within = duration::show(cause.rule.within_us);
    format!("{blocked} within {within} brought it about: the zone bans after {}.", cause.rule.after)
}

fn limit(own: &Bar) -> String {
    own.limit.map_or_else(
        || "the zone's limit, but no bans".to_owned(),
        |limit| {
            let burst = limit.burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
            let exempt = if own.ban_exempt { ", and no bans" } else { "" };
            format!("{} per {}{burst}{exempt}", limit.rate, duration::show(limit.window_us))
        },
    )
}

fn nth(number: i32) -> String {
    match number {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        4 => "fourth".to_owned(),
        5 => "fifth".to_owned(),
        number => {
            let ending = match (number % 100, number % 10) {
                (11..=13, _) => "th",
                (_, 1) => "st",
                (_, 2) => "nd",
                (_, 3) => "rd",
                _ => "th",
            };
            format!("{number}{ending}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bans_are_said_as_people_say_them() {
        for (number, said) in [(2, "second"), (5, "fifth"), (11, "11th"), (21, "21st"), (112, "112th")] {
            assert_eq!(nth(number), said);
        }
    }
}
