//! An explanation in sentences that a customer can be told.

use chrono::{DateTime, Utc};
use tallygate::audit::explain::{Bar, Counted, Explained, ExplainedRow, Leased, Level, OtherLease, Queued};
use tallygate::ledger::Kind;
use tallygate::policy::Algorithm;
use tallygate::{Policy, Reason};

use super::super::duration::{self, show_micros};
use super::super::output::{by, plain};

/// Why a row says what it says.
pub fn sentences(row: &ExplainedRow, all: &Explained) -> Vec<String> {
    let mut said = Vec::new();
    if row.is_check() {
        said.extend(asked(row));
        said.extend(row.counted.as_ref().map(|counted| counts(row, counted)));
        said.extend(row.level_was.as_ref().map(|level| fills(row, level)));
        said.extend(row.bucket_override.as_ref().map(own_limit));
        said.push(why(row, all));
        said.extend(when(row, all));
    } else if row.row.kind == Kind::Lease {
        said.extend(row.leased.as_ref().map(|leased| shared(row, leased)));
        said.extend(row.bucket_override.as_ref().map(own_limit));
        said.push(granted(row));
    } else if row.row.kind.is_of_queue() {
        said.extend(row.queued.as_ref().map(|queued| waited(row, queued)));
        said.extend(row.bucket_override.as_ref().map(own_limit));
        said.push(worked(row));
    } else {
        said.push(happened(row, all));
        said.extend(row.bucket_override.as_ref().filter(|_| row.row.kind != Kind::Override).map(own_limit));
        said.push(format!("After it, {} could be spent.", row.row.remaining));
    }
    said.push(derived(row));
    said
}

fn policy(row: &ExplainedRow) -> Option<&Policy> {
    row.policy.as_ref().map(|version| &version.policy)
}

fn asked(row: &ExplainedRow) -> Option<String> {
    let told = &row.row;
    let critical = if told.critical { ", as a critical check" } else { "" };
    let member = told.member.as_ref().map(|member| format!(" about {}", plain(member))).unwrap_or_default();
    Some(match told.kind {
        Kind::Coalesced => format!(
            "This row stands for {}, answered blocked from memory without asking the database.",
            many(i64::from(told.checks), "check")
        ),
        Kind::Reserve => format!("It asked to reserve {}{critical}.{}", told.cost, predicted(row)),
        Kind::Unchecked => return None,
        _ => format!("It asked for {}{member}{critical}.", told.cost),
    })
}

/// What the cost was predicted from.
fn predicted(row: &ExplainedRow) -> String {
    let Some(shape) = row.row.member.as_deref().map(plain) else { return String::new() };
    match &row.predicted {
        Some(taught) => {
            let age = row.row.decided_at.signed_duration_since(taught.learned_at).num_microseconds();
            format!(
                " That was predicted from {} of {}, the last of them {} before.",
                many(taught.samples, "settlement"),
                if taught.shared {
                    "shapes that were not kept apart".to_owned()
                } else {
                    format!("the shape {shape}")
                },
                duration::show_wait(age.unwrap_or_default().max(0))
            )
        }
        None => {
            format!(" Of the shape {shape} nothing was known, so that was the cost that the caller gave.")
        }
    }
}

/// Among whom the capacity was shared.
fn shared(row: &ExplainedRow, leased: &Leased) -> String {
    let told = &row.row;
    let sum = |of: fn(&OtherLease) -> i64| leased.others.iter().map(of).sum::<i64>();
    let [had, wanted] = [sum(|lease| lease.has), sum(|lease| lease.wants)];
    let others = many(i64::try_from(leased.others.len()).unwrap_or(i64::MAX), "other client");
    let by = policy(row).and_then(Policy::sharing).map(|sharing| format!(" by the share {}", sharing.share));
    format!(
        "{} asked for {}, with a weight of {} in band {}. {others} had {had} of {} and wanted {wanted}. Its share{} was {}.",
        told.member.as_deref().map(plain).unwrap_or_default(),
        told.cost,
        told.checks,
        told.band.unwrap_or_default(),
        row.limit,
        by.unwrap_or_default(),
        leased.share
    )
}

/// What came of it.
fn granted(row: &ExplainedRow) -> String {
    let told = &row.row;
    let refresh = told.retry_after_us.map(duration::show_wait).unwrap_or_default();
    let until = told.ends_at.map_or_else(
        || "It has nothing any more".to_owned(),
        |at| format!("It was granted {} until {}", told.spent, show_micros(at)),
    );
    let why = match (&row.ban, told.reason) {
        (Some(ban), Reason::Banned) => format!(", since the resource was banned: {}", set(ban)),
        (None, Reason::Banned) => ", since the resource was banned".to_owned(),
        _ if row.leased.as_ref().is_some_and(|leased| told.spent < leased.share) => {
            ", since others had the rest and had not asked again yet".to_owned()
        }
        _ => String::new(),
    };
    format!("{until}{why}; {} were left. It was to ask again after {refresh}.", told.remaining)
}

/// What was in the queue.
fn waited(row: &ExplainedRow, queued: &Queued) -> String {
    let told = &row.row;
    let Queued { waiting, away, .. } = *queued;
    let band = told.band.unwrap_or_default();
    let backlog = policy(row).and_then(Policy::queueing).map_or(0, |queueing| queueing.backlog);
    format!(
        "It was about an item of {} in band {band}. {waiting} waited and {away} were taken, of a backlog of {backlog}.",
        many(told.cost, "unit")
    )
}

/// What became of the item.
fn worked(row: &ExplainedRow) -> String {
    let told = &row.row;
    let at = |at: Option<DateTime<Utc>>| at.map(show_micros).unwrap_or_default();
    let left = format!("{} of the backlog were left.", told.remaining);
    let by = told.member.as_deref().map(|by| format!(" by {}", plain(by))).unwrap_or_default();
    match (told.kind, told.reason) {
        (Kind::Offer, Reason::WithinLimit) => {
            let until = told.ends_at.map(|_| format!(" until {}", at(told.ends_at))).unwrap_or_default();
            format!("It was offered, and waited{until}; {left}")
        }
        (Kind::Offer, Reason::ExceedsLimit) => {
            "It was offered, and is dearer than all that can wait or be taken at once: it never will wait."
                .to_owned()
        }
        (Kind::Offer, reason) => {
            let why =
                if reason == Reason::Banned { "the queue was banned" } else { "there was no room for it" };
            let wait = told.retry_after_us.map(duration::show_wait).unwrap_or_default();
            format!("It was offered, and {why}; {left} There could be room after {wait} at the earliest.")
        }
        (Kind::Take, _) => format!(
            "It was next, and was taken{by} for time {} until {}. The pace left {} of {} to be taken.",
            told.checks,
            at(told.ends_at),
            told.remaining,
            row.limit
        ),
        (Kind::Extend, _) => format!("Who had taken it keeps it until {}; {left}", at(told.ends_at)),
        (Kind::Done, _) => format!("It was worked off; {left}"),
        (Kind::Requeue, _) if told.member.is_some() => {
            format!("It was dead after take {}, and is tried again{by}; {left}", told.checks)
        }
        (Kind::Requeue, _) if told.ends_at.is_none() => {
            format!("It was given back after take {}, which was the last: it is dead. {left}", told.checks)
        }
        (Kind::Requeue, _) => {
            format!("It was given back, to be taken again from {} on; {left}", at(told.ends_at))
        }
        _ => format!(
            "It had to make room for what transaction {} offered; {left}",
            told.member.as_deref().map(plain).unwrap_or_default()
        ),
    }
}

/// What was in the window, or held.
fn counts(row: &ExplainedRow, counted: &Counted) -> String {
    let Counted { used, transactions, .. } = *counted;
    let limit = row.limit;
    let charges = many(i64::try_from(transactions).unwrap_or(i64::MAX), "charge");
    let mut said = match (counted.from, policy(row).map(Policy::algorithm)) {
        (Some(from), Some(Algorithm::FixedWindow)) => {
            format!(
                "In its window, which began at {}, {used} of {limit} counted, from {charges}.",
                show_micros(from)
            )
        }
        (Some(from), _) => {
            format!("From {} on, {used} of {limit} counted, from {charges}.", show_micros(from))
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
            show_micros(fade.from),
            fade.counts,
            duration::show_wait(fade.part_us),
            duration::show_wait(fade.of_us),
        );
    }
    if let Some(carried) = counted.carried {
        said += &format!(
            " {} of that stands for all that was spent before the policy changed at {}.",
            carried.amount,
            show_micros(carried.at)
        );
    }
    said
}

/// The level and its arithmetic.
fn fills(row: &ExplainedRow, level: &Level) -> String {
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
                show_micros(at),
                tokens(before),
                tokens(level.flowed_in),
                tokens(level.now)
            )
        }
        (_, Some(at)) => format!(
            "There were {} of {capacity}, by what flowed in, was given back or changed since {}.",
            tokens(level.now),
            show_micros(at)
        ),
        _ => format!("It began full, with {} of {capacity}.", tokens(level.now)),
    };
    if let (Some(after), true) = (level.after, row.row.spent > 0) {
        said += &format!(" After it: {}.", tokens(after));
    }
    said
}

/// Units of a level as tokens, to six places, rounded down.
fn tokens(units: i64, per_token: i64) -> String {
    let (units, per_token) = (i128::from(units), i128::from(per_token.max(1)));
    let sign = if units < 0 { "-" } else { "" };
    let millionths = units.abs() * 1_000_000 / per_token;
    let text = format!("{sign}{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn own_limit(own: &Bar) -> String {
    let limit = own.limit.map_or_else(
        || "the zone's limit, but no bans".to_owned(),
        |limit| {
            let burst = limit.burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
            let exempt = if own.ban_exempt { ", and no bans" } else { "" };
            format!("{} per {}{burst}{exempt}", limit.rate, duration::show(limit.window_us))
        },
    );
    format!("The bucket had a limit of its own: {limit}; {}.", set(own))
}

/// Who set it, when, until when and why.
fn set(bar: &Bar) -> String {
    let who = bar.actor.as_ref().map_or_else(
        || format!("brought about by transaction {}", bar.txn_id),
        |actor| format!("set by {}", by(actor, bar.login.as_deref())),
    );
    let until = bar.ends_at.map_or_else(|| "for good".to_owned(), |at| format!("until {}", show_micros(at)));
    let note = bar.note.as_ref().filter(|note| !note.is_empty());
    let note = note.map(|note| format!(" ({})", plain(note))).unwrap_or_default();
    format!("{who} at {}, {until}{note}", show_micros(bar.set_at))
}

fn why(row: &ExplainedRow, all: &Explained) -> String {
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
        Reason::ExceedsLimit => format!(
            "It was blocked, since {} is more than the whole limit of {}: it can never pass.",
            told.cost, row.limit
        ),
        Reason::Banned => match &row.ban {
            Some(ban) => format!("It was blocked, since the bucket was banned: {}.", set(ban)),
            None => "It was blocked, since the bucket was banned.".to_owned(),
        },
        Reason::HeldBack => match &all.binding {
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

fn counted_anyway(row: &ExplainedRow) -> &'static str {
    if row.row.spent > 0 { " It was charged all the same: the zone counts blocked checks." } else { "" }
}

/// When it would have passed, or how long it was to wait.
fn when(row: &ExplainedRow, all: &Explained) -> Vec<String> {
    let told = &row.row;
    let mut said = Vec::new();
    if let (Some(at), Some(wait_us)) = (row.passes_at, told.retry_after_us) {
        said.push(format!(
            "The same would have passed at {}, {} later, had nothing else arrived.",
            show_micros(at),
            duration::show_wait(wait_us)
        ));
    }
    let here = all.binding.as_ref().is_some_and(|b| b.zone == told.zone && b.key == told.key);
    if here && all.rows.iter().filter(|other| other.is_check()).count() > 1 {
        said.push("Of the limits that were asked together, this one was to blame.".to_owned());
    }
    if let Some(delay_us) = told.delay_us {
        said.push(format!("It was told to wait {} for its turn.", duration::show_wait(delay_us)));
    }
    if let Some(ends_at) = told.ends_at {
        said.push(format!("What it took was to end by itself at {}.", show_micros(ends_at)));
    }
    said
}

/// What was recorded besides checks.
fn happened(row: &ExplainedRow, all: &Explained) -> String {
    let told = &row.row;
    let at = |at: Option<DateTime<Utc>>| at.map(show_micros).unwrap_or_default();
    let charge = at(told.target_at);
    let by = told.actor.as_ref().map(|actor| format!(" by {}", by(actor, told.login.as_deref())));
    let by = by.unwrap_or_default();
    let note = told.note.as_ref().filter(|note| !note.is_empty());
    let note = note.map(|note| format!(": {}", plain(note))).unwrap_or_default();
    match told.kind {
        Kind::Refund => format!("The charge made at {charge} was refunded: {} given back.", told.cost),
        Kind::Cancel => format!("The reservation made at {charge} was cancelled: {} given back.", told.cost),
        Kind::Release => format!("The slot taken at {charge} was released: {} given back.", told.cost),
        Kind::Local => format!(
            "A process took {} of {} that it wanted, to decide checks by itself until {}. They have no rows of their own.",
            told.spent,
            told.cost,
            at(told.ends_at)
        ),
        Kind::Settle if all.rows.iter().any(|other| other.row.kind == Kind::Local) => format!(
            "Of what the process took at {charge} it had spent {}, and gave the rest back.",
            told.cost
        ),
        Kind::Settle if told.spent > 0 => format!(
            "The reservation made at {charge} was settled for {}, {} of it charged beyond what was reserved.",
            told.cost, told.spent
        ),
        Kind::Settle => format!("The reservation made at {charge} was settled for {}.", told.cost),
        Kind::Ban if told.actor.is_none() => {
            format!("Blocked checks brought about a ban, until {}.", at(told.ends_at))
        }
        Kind::Ban => format!("The bucket was banned{by} until {}{note}.", at(told.ends_at)),
        Kind::Unban => format!("The ban was lifted{by}{note}."),
        Kind::Override => format!("The bucket got a limit of its own{by}{note}."),
        _ => format!("The bucket's own limit ended{by}{note}."),
    }
}

fn derived(row: &ExplainedRow) -> String {
    match (row.reproduced, &row.missing) {
        (Some(true), _) => "Derived again from the rows before it: the same.".to_owned(),
        (Some(false), _) => {
            let differs = row.differences.iter().map(|difference| {
                format!("{} is {}, not {}", difference.column, difference.derived, difference.recorded)
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

fn many(number: i64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
