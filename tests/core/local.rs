//! Two tiers: what processes take at one time and spend until another one never comes to more than the zone's limit, as it was
//! asked for, in any window.
//!
//! The oracle knows nothing of takes. It looks at what was spent, and when, and at the policy that was asked for.

use std::time::Duration;

use proptest::prelude::*;
use tallygate::decide::{Charge, Event, Undo, UnitsTaken, take_units};
use tallygate::policy::Algorithm;
use tallygate::{ErrorKind, Policy};

use crate::book::{Book, ask, charge};

const SECOND_US: i64 = 1_000_000;

/// A deed of a process after it waited: a lease of so many units, or a check.
#[derive(Clone, Copy, Debug)]
struct Deed {
    waits_us: i64,
    units: i64,
    takes: bool,
    /// The part of a lease that it spends, in hundredths.
    spends: i64,
    /// The time after it took them when it says so; it crashes otherwise, and has spent all.
    settles_us: Option<i64>,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let waits_us = prop_oneof![Just(0), Just(1), 1..100_i64, 1..5_000_i64];
    let settles_us = proptest::option::of(prop_oneof![0..100_i64, 0..8_000_i64]);
    let deed = (waits_us, 1..200_i64, prop::bool::weighted(0.7), 0..=100_i64, settles_us);
    let deed = deed.prop_map(|(waits_us, units, takes, spends, settles_us)| Deed {
        waits_us,
        units,
        takes,
        spends,
        settles_us,
    });
    prop::collection::vec(deed, 1..60)
}

/// A policy as it is asked for, and for how long processes may decide.
fn asked() -> impl Strategy<Value = (Policy, i64)> {
    let algorithm = prop_oneof![
        Just(Algorithm::SlidingLog),
        Just(Algorithm::FixedWindow),
        Just(Algorithm::TokenBucket),
        Just(Algorithm::LeakyBucket)
    ];
    let asked = (algorithm, 1..300_i64, 2..4_000_u64, proptest::option::of(1..300_i64), 1..4_000_i64);
    asked.prop_filter_map("goes together", |(algorithm, rate, window_us, burst, local_us)| {
        let is_level = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let window = Duration::from_micros(window_us);
        let policy = Policy::new(algorithm, rate, window, burst.filter(|_| is_level)).ok()?;
        let local = Duration::from_micros(local_us.unsigned_abs());
        policy.with_local(Some(local)).validate().ok().map(|()| (policy, local_us))
    })
}

/// The time when a process says what it spent.
struct Settlement {
    at_us: i64,
    used: i64,
    charge: Charge,
}

proptest! {
    #![proptest_config(crate::cases(1_500))]

    #[test]
    fn no_window_has_more_than_was_asked_for(
        (asked, local_us) in asked(), deeds in deeds(), start_us in 0..10_000_i64
    ) {
        let local = Duration::from_micros(local_us.unsigned_abs());
        let policy = asked.with_local(Some(local));
        prop_assert_eq!(policy.asked().limit(), asked.limit());
        let mut book = Book::new(policy);
        let mut spent: Vec<(i64, i64)> = Vec::new();
        let mut due: Vec<Settlement> = Vec::new();
        let mut now_us = start_us;
        for deed in deeds {
            now_us += deed.waits_us;
            settle(&mut book, &mut due, now_us);
            if !deed.takes {
                let outcome = book.spend(deed.units, now_us);
                spent.push((now_us, outcome.spent));
                continue;
            }
            let Some((taken, charge)) = taken(&mut book, deed.units, now_us) else { continue };
            prop_assert!(taken.units >= 2 && taken.units <= deed.units && taken.ends_us <= now_us + local_us);
            // As late as it can be: just before it ends, or before it is settled.
            let last_us = (taken.ends_us - 1).max(now_us);
            match deed.settles_us {
                Some(after_us) => {
                    let (at_us, used) = (now_us + after_us, taken.units * deed.spends / 100);
                    spent.push((at_us.min(last_us), used));
                    due.push(Settlement { at_us, used, charge });
                }
                None => spent.push((last_us, taken.units)),
            }
        }
        spent.sort_unstable();
        within(&asked, &spent)?;
    }
}

/// Settles what is due by then, in its order.
fn settle(book: &mut Book, due: &mut Vec<Settlement>, now_us: i64) {
    due.sort_by_key(|settlement| settlement.at_us);
    let later = due.partition_point(|settlement| settlement.at_us <= now_us);
    for Settlement { at_us, used, charge } in due.drain(..later) {
        book.happen(Event::Undo(Undo::Used(used), charge), at_us).unwrap();
    }
}

fn taken(book: &mut Book, wants: i64, now_us: i64) -> Option<(UnitsTaken, Charge)> {
    let taken = take_units(book.view(), book, wants, now_us).unwrap()?;
    book.took(&taken);
    let UnitsTaken { units: spent, ends_us, decided_us: at_us, head, .. } = taken;
    let charge = Charge {
        seq: head.seq,
        at_us,
        spent,
        blocked: false,
        reserved: false,
        taken: true,
        member: false,
        ends_us: Some(ends_us),
    };
    Some((taken, charge))
}

/// By definition.
fn within(asked: &Policy, spent: &[(i64, i64)]) -> Result<(), TestCaseError> {
    let (limit, window_us) = (asked.limit(), asked.window_us());
    match asked.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            // In parts of a unit of which the window has one in a microsecond, for a rate of one.
            let full = i128::from(limit) * i128::from(window_us);
            let (mut level, mut last_us) = (full, 0);
            for &(at_us, units) in spent {
                level = full.min(level + i128::from(at_us - last_us) * i128::from(asked.rate()));
                level -= i128::from(units) * i128::from(window_us);
                last_us = at_us;
                prop_assert!(level >= 0, "{asked} is overdrawn at {at_us}: {spent:?}");
            }
        }
        algorithm => {
            for &(end_us, _) in spent {
                let counts = |at_us: i64| match algorithm {
                    Algorithm::FixedWindow => at_us / window_us == end_us / window_us,
                    _ => at_us > end_us - window_us && at_us <= end_us,
                };
                let units: i64 =
                    spent.iter().filter(|(at_us, _)| counts(*at_us)).map(|(_, units)| units).sum();
                prop_assert!(units <= limit, "{units} in the window of {end_us} by {asked}: {spent:?}");
            }
        }
    }
    Ok(())
}

fn log(local_us: u64) -> Policy {
    Policy::sliding_log(100, Duration::from_secs(10))
        .unwrap()
        .with_local(Some(Duration::from_micros(local_us)))
}

#[test]
fn one_process_takes_a_quarter_of_what_is_left_and_leaves_the_rest_to_exact_checks() {
    let mut book = Book::new(log(500_000));
    let takes: Vec<_> =
        std::iter::from_fn(|| taken(&mut book, 1_000, 0)).map(|(taken, _)| taken.units).collect();
    assert_eq!(takes, [25, 18, 14, 10, 8, 6, 4, 3, 3, 2]);
    assert_eq!(book.peek(0).remaining, 7);
    assert!(!book.spend(7, 0).blocked);
    assert!(taken(&mut book, 1_000, 0).is_none());
}

#[test]
fn what_was_taken_from_a_fixed_window_ends_with_it() {
    let policy = Policy::fixed_window(100, Duration::from_secs(10)).unwrap();
    let mut book = Book::new(policy.with_local(Some(Duration::from_secs(2))));
    let (first, _) = taken(&mut book, 10, 0).unwrap();
    let (last, _) = taken(&mut book, 10, 9 * SECOND_US).unwrap();
    assert_eq!((first.ends_us, last.ends_us), (2 * SECOND_US, 10 * SECOND_US));
}

#[test]
fn what_was_taken_is_settled_in_its_own_way_and_no_more_than_it_was() {
    for policy in [log(500_000), Policy::token_bucket(100, Duration::from_secs(10), None).unwrap()] {
        let mut book = Book::new(policy.with_local(Some(Duration::from_millis(500))));
        let (_, took) = taken(&mut book, 20, 0).unwrap();
        let mut refused = |undo, charge| {
            let before = book.head;
            let error = book.happen(Event::Undo(undo, charge), 0).unwrap_err();
            assert_eq!(book.head, before, "{error}");
            error
        };
        for undo in [Undo::Refund, Undo::Cancel, Undo::Release, Undo::Settle(3)] {
            assert_eq!(refused(undo, took).kind(), ErrorKind::Conflict);
        }
        for units in [-1, 21, i64::MAX, i64::MIN] {
            let error = refused(Undo::Used(units), took);
            assert!(error.is_invalid() && error.to_string().contains("of 20"), "{error}");
        }
        let outcome = book.spend(5, 0);
        let checked = charge(&ask(5), &outcome);
        let error = book.happen(Event::Undo(Undo::Used(1), checked), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let left = book.peek(0).remaining;
        book.happen(Event::Undo(Undo::Used(15), took), 0).unwrap();
        assert_eq!(book.peek(0).remaining, left + 5);
    }
}

#[test]
fn nothing_of_a_level_comes_back_that_has_flowed_in_since() {
    let policy = Policy::token_bucket(100, Duration::from_secs(10), None).unwrap();
    let mut book = Book::new(policy.with_local(Some(Duration::from_secs(1))));
    assert_eq!(book.peek(0).remaining, 90);
    let (_, took) = taken(&mut book, 20, 0).unwrap();
    let happened = book.happen(Event::Undo(Undo::Used(0), took), SECOND_US).unwrap();
    assert_eq!(happened.hold.map(|hold| hold.amount), Some(10));
    assert_eq!(book.peek(SECOND_US).remaining, 90);
}

#[test]
fn what_cannot_be_decided_locally_is_refused_with_the_remedy() {
    let minute = Duration::from_secs(60);
    let refused = |policy: Policy, local: Duration, says: &str| {
        let error = policy.with_local(Some(local)).validate().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(says), "{error}");
    };
    for algorithm in [
        Algorithm::SlidingCounter,
        Algorithm::LeakyQueue,
        Algorithm::Uniform,
        Algorithm::Distinct,
        Algorithm::Concurrency,
        Algorithm::Capacity,
    ] {
        refused(Policy::new(algorithm, 5, minute, None).unwrap(), Duration::from_secs(1), "leave local out");
    }
    let log = Policy::sliding_log(5, minute).unwrap();
    refused(log, Duration::ZERO, "use 1 µs to less than the window, 60s");
    refused(log, minute, "use 1 µs to less than the window, 60s");
    refused(log, Duration::MAX, "use 1 µs to less than the window, 60s");
    let tokens = Policy::token_bucket(100, Duration::from_secs(1), Some(10)).unwrap();
    refused(tokens, Duration::from_millis(100), "10 units, which leave nothing of a burst of 10");
    let long = Policy::sliding_log(5, Duration::from_secs(315_576_000)).unwrap();
    refused(long, Duration::from_secs(1), "more than 10 years");
}

#[test]
fn people_see_what_was_asked_for_and_json_does_not_make_up_for_it_twice() {
    let asked = Policy::token_bucket(100, Duration::from_secs(1), None).unwrap();
    for asked in [asked, Policy::sliding_log(5, Duration::from_secs(60)).unwrap()] {
        let policy = asked.with_local(Some(Duration::from_millis(250)));
        assert_eq!(policy.with_local(Some(Duration::from_millis(250))), policy);
        assert_eq!(policy.with_local(None).limit(), asked.limit());
        let json = serde_json::to_value(policy).unwrap();
        assert_eq!(json["window_us"], asked.window_us());
        assert_eq!(json["local_us"], 250_000);
        assert_eq!(serde_json::from_value::<Policy>(json).unwrap(), policy);
        assert!(policy.to_string().ends_with(", local 250ms"), "{policy}");
    }
}
