//! The one sentence that a customer may be told, which gives nothing away that an answer over HTTP would not.
//!
//! It names no limit, no count, no zone, no key, no note and nobody who set anything. The time from which it can be
//! tried again is that of `Retry-After`, in whole minutes; where that is not told, no time is. Nothing is told of zones in
//! shadow mode and of soft limits.

use chrono::TimeDelta;
use tallygate::Reason;
use tallygate::audit::explain::{Explained, ExplainedRow};
use tallygate::ledger::Kind;
use tallygate::policy::Algorithm;

use crate::cli::clock::Clock;

/// Added to a time, it rounds up to the next whole minute.
const UP: TimeDelta = TimeDelta::microseconds(59_999_999);

/// The sentence about the whole transaction.
pub fn sentence(explained: &Explained, clock: Clock) -> String {
    let Some(row) = told(explained) else { return set_by_people(explained, clock) };
    let made = format!("Your request of {}", clock.show_minute(row.row.decided_at));
    if !row.row.blocked {
        let last = explained.rows.last().map(|last| last.row.kind);
        return match last.filter(|_| row.row.kind == Kind::Offer) {
            None => format!("{made} was accepted."),
            Some(Kind::Done) => format!("{made} was accepted, and has been worked off."),
            Some(Kind::Evict) => {
                format!(
                    "{made} was accepted at first, and had to make room for others; it can be made again."
                )
            }
            Some(_) => format!("{made} was accepted, to be worked off in its turn."),
        };
    }
    let again = row.passes_at.map(|at| clock.show_minute(at.checked_add_signed(UP).unwrap_or(at)));
    let again =
        again.map(|at| format!("; it can be made again from {at} on, at the earliest")).unwrap_or_default();
    let algorithm = row.policy.as_ref().map(|version| version.policy.algorithm());
    match row.row.reason {
        Reason::Banned => {
            format!("{made} was declined, since requests like it are not accepted for the time being{again}.")
        }
        Reason::ExceedsLimit if row.limit == 0 => {
            format!("{made} was declined, since requests like it are not accepted.")
        }
        Reason::ExceedsLimit => {
            format!("{made} was declined, since it asks for more than can be accepted at once.")
        }
        // A slot is free as soon as its holder ends, and no time tells when.
        _ if algorithm == Some(Algorithm::Concurrency) => format!(
            "{made} was declined, since too much was being worked on at that moment; it can be made again at any time."
        ),
        _ if row.row.kind == Kind::Offer => {
            format!("{made} could not be taken on, since too much is waiting already{again}.")
        }
        _ => format!("{made} was declined, since it was more than is accepted within a certain time{again}."),
    }
}

/// The row that decided about the customer: of several limits the one that blocked the longest.
fn told(explained: &Explained) -> Option<&ExplainedRow> {
    let is_theirs = |row: &&ExplainedRow| row.is_check() || row.row.kind == Kind::Offer;
    let mut rows = explained.rows.iter().filter(is_theirs);
    match &explained.binding {
        Some(limit) => {
            rows.find(|row| row.row.blocked && row.row.zone == limit.zone && row.row.key == limit.key)
        }
        None => rows.next(),
    }
}

fn set_by_people(explained: &Explained, clock: Clock) -> String {
    let ban = explained.rows.iter().find(|row| row.row.kind == Kind::Ban).and_then(|row| row.row.ends_at);
    match ban.map(|at| clock.show_minute(at.checked_add_signed(UP).unwrap_or(at))) {
        Some(end) => format!("Requests like yours are not accepted before {end}."),
        None => "There is nothing in this that concerns a request of yours.".to_owned(),
    }
}
