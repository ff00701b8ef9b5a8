//! The back-test decides what the core decides over a whole ledger, however much of it was forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tallygate::backtest::{Backtest, Difference};
use tallygate::decide::{Ask, Version};
use tallygate::policy::{BanRule, Mode};
use tallygate::{Policy, Reason};

use crate::book::{Asked, Book, ask};
use crate::changes::changing;
use crate::input::{Step, long_checks};
use crate::naive::Naive;

const SECOND_US: i64 = 1_000_000;

macro_rules! decides_as_the_core {
    ($kind:expr) => {
        use proptest::prelude::*;

        use crate::input::{bare, dressed, long_checks};

        proptest! {
            #![proptest_config(crate::cases(100))]

            #[test]
            fn a_backtest_decides_as_defined(
                policy in prop_oneof![bare($kind), dressed($kind)], steps in long_checks(),
                start_us in 1_774_500_000_000_000..1_794_000_000_000_000i64
            ) {
                super::agree(policy, &steps, start_us)?;
            }
        }
    };
}
crate::each_kind!(decides_as_the_core);

/// Two keys take turns; the back-test, a whole ledger and the naive count are told the same.
fn agree(policy: Policy, steps: &[Step], start_us: i64) -> Result<(), TestCaseError> {
    let mut test = Backtest::new(policy).unwrap();
    let mut whole = [0, 1].map(|_| (Book::new(policy), Naive::new(policy), None));
    let mut now_us = start_us;
    let mut counts = BTreeMap::new();
    for (n, step) in steps.iter().enumerate() {
        let (key, (book, naive, promised_us)) = match n % 3 {
            0 => ("a", &mut whole[0]),
            _ => ("b", &mut whole[1]),
        };
        now_us += step.elapsed_us(policy.window_us(), *promised_us);
        let asked = Asked { critical: step.deed % 4 == 0, ..step.ask(&policy) };
        // The years after 9999 are of no interest to anybody.
        let Ok(outcome) = test.check(key, &asked, now_us) else {
            prop_assert!(now_us > 253_402_300_799_000_000);
            return Ok(());
        };
        // A peek leaves no row.
        let expected = if asked.cost > 0 { book.check(&asked, now_us) } else { book.ask(&asked, now_us) };
        prop_assert_eq!(&outcome, &expected, "{:?} at {}", asked, now_us);
        let told = naive.check(&asked, now_us, n as i64);
        prop_assert_eq!(outcome.reason, told.reason);
        prop_assert_eq!((outcome.remaining, outcome.retry_after_us), (told.remaining, told.retry_after_us));
        *promised_us = outcome.retry_after_us.or(*promised_us);
        *counts.entry(outcome.reason.as_str()).or_insert(0) += 1;
    }
    let report = test.report(0);
    prop_assert_eq!(report.events, steps.len() as u64);
    prop_assert_eq!(report.timeline.iter().map(|slice| slice.allowed).sum::<u64>(), report.allowed);
    prop_assert_eq!(report.timeline.iter().map(|slice| slice.blocked).sum::<u64>(), report.blocked);
    prop_assert_eq!(report.reasons, counts);
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(500))]

    /// Each change comes between two checks, as it does in a ledger.
    #[test]
    fn a_backtest_of_versions_decides_as_a_bucket_whose_policy_changed(
        policies in proptest::collection::vec(changing(), 2..5), steps in long_checks(),
        start_us in 1_774_500_000_000_000..1_794_000_000_000_000i64
    ) {
        let mut book = Book::new(policies[0]);
        let mut now_us = start_us;
        let mut promised_us = None;
        let mut decided = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            if n % 7 == 6 {
                now_us += 1;
                book.set(policies[n % policies.len()], now_us);
            }
            let policy = book.policy();
            now_us += step.elapsed_us(policy.window_us(), promised_us);
            let asked = step.ask(&policy);
            // A peek leaves no row.
            let outcome = if asked.cost > 0 { book.check(&asked, now_us) } else { book.ask(&asked, now_us) };
            promised_us = outcome.retry_after_us.or(promised_us);
            decided.push((asked, now_us, outcome));
        }
        let mut test = Backtest::of_versions(book.versions).unwrap();
        for (asked, at_us, expected) in decided {
            let Ok(outcome) = test.check("a", &asked, at_us) else {
                prop_assert!(at_us > 253_402_300_799_000_000);
                return Ok(());
            };
            prop_assert_eq!(outcome, expected, "{:?} at {}", asked, at_us);
        }
    }
}

#[test]
fn versions_out_of_order_are_refused() {
    let version = |version, changed_us| Version { version, policy: five_a_minute(), changed_us };
    for (versions, because) in [
        (vec![], "no policy was given"),
        (vec![version(2, 0), version(1, 1)], "not in their order"),
        (vec![version(1, 1), version(2, 0)], "not in their order"),
    ] {
        let error = Backtest::of_versions(versions).err().unwrap();
        assert!(error.is_invalid() && error.to_string().contains(because), "{error}");
    }
}

#[test]
fn what_was_played_before_counting_began_is_looked_back_on_and_told_nowhere() {
    let mut test = Backtest::new(five_a_minute()).unwrap();
    for second in 0..7 {
        test.check("a", &ask(1), second * SECOND_US).unwrap();
        test.check("b", &ask(1), second * SECOND_US).unwrap();
    }
    test.count_from_here();
    assert_eq!((test.report(9).events, test.report(9).keys, test.blocked("a")), (0, 0, 0));
    assert!(test.check("a", &ask(-1), 10 * SECOND_US).is_err());
    assert_eq!(test.report(9).keys, 0, "what is refused is not counted");
    for second in [10, 59, 60] {
        test.check("a", &ask(1), second * SECOND_US).unwrap();
    }
    let report = test.report(9);
    assert_eq!((report.allowed, report.blocked, report.keys, report.blocked_keys), (1, 2, 1, 1));
    assert_eq!((report.first_at.unwrap().timestamp(), test.blocked("a")), (10, 2));
}

#[test]
fn a_difference_names_each_key_with_what_both_block_of_it() {
    let minute = Duration::from_secs(60);
    let mut tests = [2, 4].map(|rate| Backtest::new(Policy::sliding_log(rate, minute).unwrap()).unwrap());
    let mut difference = Difference::default();
    for (key, times) in [("calm", 2), ("loud", 4), ("also loud", 4), ("louder", 9)] {
        for second in 0..times {
            let [baseline, laxer] = tests
                .each_mut()
                .map(|test| !test.check(key, &ask(1), second * SECOND_US).unwrap().reason.allows());
            difference.add(key, baseline, laxer);
        }
    }
    let [baseline, laxer] = &tests;
    let freed = difference.freed(baseline, laxer, 2);
    let top =
        freed.top.iter().map(|key| (key.key.as_str(), key.checks, key.blocked_by_baseline, key.blocked));
    assert_eq!((freed.checks, freed.keys), (6, 3));
    assert_eq!(top.collect::<Vec<_>>(), [("also loud", 2, 2, 0), ("loud", 2, 2, 0)]);
    assert_eq!(difference.newly_blocked(baseline, laxer, 2).checks, 0);
}

fn five_a_minute() -> Policy {
    Policy::sliding_log(5, Duration::from_secs(60)).unwrap()
}

#[test]
fn the_report_says_who_was_blocked_and_when() {
    let mut test = Backtest::new(five_a_minute()).unwrap();
    for (key, times) in [("calm", 5), ("loud", 9), ("also loud", 9), ("louder", 12)] {
        for second in 0..times {
            test.check(key, &ask(1), second * SECOND_US).unwrap();
        }
    }
    let report = test.report(2);
    assert_eq!((report.events, report.allowed, report.blocked), (35, 20, 15));
    assert_eq!((report.keys, report.blocked_keys, report.late), (4, 3, 0));
    let top = report.top_blocked.iter().map(|top| {
        let at = |time: Option<chrono::DateTime<chrono::Utc>>| time.unwrap().timestamp();
        (top.key.as_str(), top.blocked, at(top.first_at), at(top.last_at))
    });
    assert_eq!(top.collect::<Vec<_>>(), [("louder", 7, 5, 11), ("also loud", 4, 5, 8)]);
    assert_eq!(report.last_at.unwrap().timestamp(), 11);
    assert_eq!(report.reasons, BTreeMap::from([("over_limit", 15), ("within_limit", 20)]));
}

#[test]
fn a_late_event_is_decided_at_the_time_of_the_one_before_it_and_counted() {
    let mut test = Backtest::new(five_a_minute()).unwrap();
    for second in [100, 39, 100, 100, 100] {
        assert!(!test.check("a", &ask(1), second * SECOND_US).unwrap().blocked);
    }
    // By its own time it would be alone in its window.
    let late = test.check("a", &ask(1), 0).unwrap();
    assert_eq!((late.blocked, late.decided_us), (true, 100 * SECOND_US));
    assert!(!test.check("b", &ask(1), 0).unwrap().blocked, "another key has its own time");
    assert_eq!(test.report(0).late, 2);
    assert_eq!(test.report(0).first_at.unwrap().timestamp(), 0);
}

#[test]
fn a_shadow_counts_what_it_would_have_blocked_and_a_peek_leaves_nothing() {
    let mut test = Backtest::new(five_a_minute().with_mode(Mode::Shadow)).unwrap();
    for cost in [0, 1, 0, 1, 1, 1, 1, 0, 1] {
        test.check("a", &ask(cost), 0).unwrap();
    }
    assert_eq!((test.report(0).allowed, test.report(0).blocked), (8, 1));
}

#[test]
fn bans_are_counted() {
    let rule = BanRule::new(2, Duration::from_secs(60), Duration::from_secs(600));
    let mut test = Backtest::new(five_a_minute().with_ban(Some(rule))).unwrap();
    for second in 0..100 {
        test.check("a", &ask(1), second * SECOND_US).unwrap();
    }
    let report = test.report(0);
    assert_eq!((report.bans, report.reasons["banned"], report.reasons["over_limit"]), (1, 93, 2));
}

#[test]
fn what_cannot_be_decided_is_refused_and_not_counted() {
    let mut test = Backtest::new(five_a_minute()).unwrap();
    let long = "k".repeat(256);
    for (key, asked, at_us, because) in [
        ("", ask(1), 0, "bucket key is empty"),
        (long.as_str(), ask(1), 0, "256 bytes"),
        ("a\n", ask(1), 0, "control character"),
        ("a", ask(-1), 0, "cost -1"),
        ("a", ask((1 << 40) + 1), 0, "out of range"),
        ("a", Ask { ttl_us: Some(1), ..ask(1) }, 0, "reservation"),
        ("a", ask(1), i64::MAX, "the years 1000 to 9999"),
    ] {
        let error = test.check(key, &asked, at_us).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(because), "{error}");
    }
    let mut distinct = Backtest::new(Policy::distinct(5, Duration::from_secs(60)).unwrap()).unwrap();
    let nobody = Asked { member: Some(""), ..ask(1) };
    for (asked, because) in [(ask(1), "name the one"), (ask(2), "takes 0 or 1"), (nobody, "member is empty")]
    {
        let error = distinct.check("a", &asked, 0).unwrap_err().to_string();
        assert!(error.contains(because), "{error}");
    }
    assert_eq!((test.report(9).events, test.report(9).keys), (0, 0));
    assert_eq!((distinct.report(9).events, distinct.report(9).keys), (0, 0));
    let odd = Policy::sliding_log(5, Duration::from_secs(60)).unwrap().with_reserve(5);
    assert!(Backtest::new(odd).err().is_some_and(|error| error.to_string().contains("reserve 5")));
    // A member that nobody counts is left aside.
    assert_eq!(
        test.check("a", &Asked { member: Some("m"), ..ask(1) }, 0).unwrap().reason,
        Reason::WithinLimit
    );
}
