//! Never above: what each algorithm lets through in a stretch of time, counted from outside.

use proptest::prelude::*;
use tallygate::Policy;
use tallygate::policy::Algorithm;

use crate::cases;
use crate::input::{Done, Kind, Play, Step, bare, checks, deeds, dressed, start, start_of};

/// A check that passed: when, how much, and when its turn came.
struct Passed {
    at_us: i64,
    cost: i128,
    turn_us: i128,
    member: Option<&'static str>,
}

/// Runs the steps, and returns what passed of them.
fn run(policy: Policy, steps: &[Step], start_us: i64) -> Vec<Passed> {
    let mut play = Play::new(policy, start_us);
    let mut passed = Vec::new();
    for &step in steps {
        if let Done::Checked(ask, outcome) = play.step(step)
            && !outcome.blocked
            && ask.cost > 0
        {
            let at_us = outcome.decided_us;
            passed.push(Passed {
                at_us,
                cost: i128::from(outcome.spent),
                turn_us: i128::from(at_us) + i128::from(outcome.delay_us.unwrap_or(0)),
                member: ask.member,
            });
        }
    }
    passed
}

/// Each stretch that begins and ends with a charge: the charges in it, and its length.
fn stretches(passed: &[Passed]) -> impl Iterator<Item = (&[Passed], i128)> {
    let length = |run: &[Passed]| i128::from(run[run.len() - 1].at_us) - i128::from(run[0].at_us);
    (0..passed.len())
        .flat_map(move |first| (first..passed.len()).map(move |last| &passed[first..=last]))
        .map(move |run| (run, length(run)))
}

fn sum(run: &[Passed]) -> i128 {
    run.iter().map(|passed| passed.cost).sum()
}

/// The rate, the window and the limit.
fn terms(policy: &Policy) -> [i128; 3] {
    [policy.rate(), policy.window_us(), policy.limit()].map(i128::from)
}

/// Begins some windows after the start of time, so that no slot is cut off there.
fn counted_start() -> impl Strategy<Value = i64> {
    start().prop_filter("a date", |us| us.abs() < i64::MAX / 2)
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_sliding_log_admits_its_rate_in_any_window(
        policy in bare(Kind::SlidingLog), steps in checks(), start_us in start()
    ) {
        let [rate, window, _] = terms(&policy);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!(length >= window || sum(run) <= rate);
        }
    }

    #[test]
    fn a_fixed_window_admits_its_rate_in_each_window_and_twice_that_in_any(
        policy in bare(Kind::FixedWindow), steps in checks(), start_us in counted_start()
    ) {
        let [rate, window, _] = terms(&policy);
        let index = |passed: &Passed| passed.at_us.div_euclid(policy.window_us());
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!(index(&run[0]) != index(&run[run.len() - 1]) || sum(run) <= rate);
            prop_assert!(length >= window || sum(run) <= 2 * rate);
        }
    }

    #[test]
    fn a_calendar_admits_its_rate_in_each_period(
        policy in bare(Kind::Calendar), steps in checks(), start_us in start_of(Kind::Calendar)
    ) {
        use chrono::{DateTime, Datelike, Timelike};
        use tallygate::policy::CalendarUnit::{Day, Hour, Minute, Month};
        let calendar = policy.by_calendar().unwrap();
        // Periods are longer than what the clock shows where it is set back; there twice as much may not pass either.
        let shown = |us| {
            let time = calendar.time_zone.shows(DateTime::from_timestamp_micros(us).unwrap());
            let (year, month) = (time.year(), time.month());
            match calendar.unit {
                Month => (year, month, 0, 0, 0),
                Day => (year, month, time.day(), 0, 0),
                Hour => (year, month, time.day(), time.hour(), 0),
                Minute => (year, month, time.day(), time.hour(), time.minute()),
            }
        };
        let [rate, ..] = terms(&policy);
        for (run, _) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!(shown(run[0].at_us) != shown(run[run.len() - 1].at_us) || sum(run) <= rate);
        }
    }

    #[test]
    fn a_sliding_counter_admits_its_rate_in_all_slots_but_one_and_twice_that_in_any_window(
        policy in bare(Kind::SlidingCounter(None)), steps in checks(), start_us in counted_start()
    ) {
        let [rate, window, _] = terms(&policy);
        let slots = i128::from(policy.slots().unwrap());
        let slot_us = policy.window_us() / i64::from(policy.slots().unwrap());
        let slot = |passed: &Passed| passed.at_us.div_euclid(slot_us);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            let exact = length < window - i128::from(slot_us) || slot(&run[0]) == slot(&run[run.len() - 1]);
            prop_assert!(!exact || sum(run) <= rate);
            prop_assert!(length >= window || sum(run) <= 2 * rate);
            // Slot by slot, as many as the window has.
            let touched = slot(&run[run.len() - 1]) - slot(&run[0]) + 1;
            prop_assert!(i128::from(touched) > slots || sum(run) <= rate);
        }
    }

    #[test]
    fn a_bucket_admits_its_burst_and_what_flows_in_meanwhile(
        policy in prop_oneof![bare(Kind::TokenBucket), bare(Kind::LeakyBucket), bare(Kind::LeakyQueue)],
        steps in checks(),
        start_us in start()
    ) {
        let [rate, window, burst] = terms(&policy);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!(sum(run) * window <= burst * window + rate * length);
        }
    }

    #[test]
    fn a_leaky_queue_serves_at_even_distances_and_holds_its_burst(
        policy in bare(Kind::LeakyQueue), steps in checks(), start_us in start()
    ) {
        let [rate, window, burst] = terms(&policy);
        let passed = run(policy, &steps, start_us);
        for (run, _) in stretches(&passed) {
            let last = &run[run.len() - 1];
            let apart = last.turn_us - run[0].turn_us;
            // Each is served for its cost before the next one's turn; a turn is told rounded up.
            prop_assert!((sum(run) - last.cost) * window < rate * (apart + 1));
        }
        for one in &passed {
            // The checks that wait before it and it itself fit into the queue; the turn is the first microsecond
            // that is free.
            let before = one.turn_us - i128::from(one.at_us);
            prop_assert!((before - 1).max(0) * rate + one.cost * window <= burst * window);
        }
    }

    #[test]
    fn uniform_keeps_its_distance(policy in bare(Kind::Uniform), steps in checks(), start_us in start()) {
        let [rate, window, _] = terms(&policy);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!((run.len() as i128 - 1) * window <= rate * length);
        }
    }

    #[test]
    fn distinct_counts_its_limit_of_new_members_in_any_window_and_sees_twice_that(
        policy in bare(Kind::Distinct), steps in checks(), start_us in start()
    ) {
        let [_, window, limit] = terms(&policy);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            let seen: std::collections::BTreeSet<_> = run.iter().map(|passed| passed.member).collect();
            prop_assert!(length >= window || sum(run) <= limit);
            prop_assert!(length >= window || seen.len() as i128 <= 2 * limit);
        }
    }

    #[test]
    fn concurrency_holds_its_limit_at_any_time(
        policy in bare(Kind::Concurrency), steps in checks(), start_us in start()
    ) {
        let [_, window, limit] = terms(&policy);
        for (run, length) in stretches(&run(policy, &steps, start_us)) {
            prop_assert!(length >= window || sum(run) <= limit);
        }
    }

    /// The units that are held at once fit, whatever is refunded, cancelled, released or settled within its
    /// reservation.
    #[test]
    fn what_is_given_back_is_never_more_than_was_taken(
        policy in crate::input::any_kind().prop_flat_map(dressed), steps in deeds(), start_us in start()
    ) {
        let mut play = Play::new(policy, start_us);
        for step in steps {
            play.step(step);
            let outcome = play.book.ask(&crate::book::Asked { critical: true, ..crate::book::ask(0) }, play.now_us);
            prop_assert!((0..=policy.limit()).contains(&outcome.remaining));
            let per_token = policy.window_us() / crate::input::gcd(policy.rate(), policy.window_us());
            prop_assert!(outcome.head.level.is_none_or(|level| level <= policy.limit() * per_token));
            prop_assert!(outcome.head.level.is_none() || crate::input::is_level(&policy));
        }
    }

    #[test]
    fn what_is_in_reserve_is_left_for_critical_checks(
        policy in crate::input::any_kind().prop_flat_map(dressed), steps in checks(), start_us in start()
    ) {
        let policy = policy.with_ban(None).with_count_blocked(false);
        let mut play = Play::new(policy, start_us);
        for step in steps {
            play.step(step);
            // All steps were ordinary ones.
            let left = play.book.ask(&crate::book::Asked { critical: true, ..crate::book::ask(0) }, play.now_us);
            prop_assert!(left.remaining >= policy.reserve());
            prop_assert_eq!(left.limit, policy.limit());
            prop_assert_eq!(play.book.peek(play.now_us).limit, policy.limit() - policy.reserve());
        }
        prop_assert!(policy.algorithm() != Algorithm::Uniform || policy.reserve() == 0);
    }
}
