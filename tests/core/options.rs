//! The options around the algorithms: soft limit, reserve, mode, blocked checks that count, several limits at once.

use std::time::Duration;

use tallygate::policy::Mode;
use tallygate::{Policy, Reason};

use crate::book::{Asked, Book, ask};

const SECOND_US: i64 = 1_000_000;

fn five_a_minute() -> Policy {
    Policy::sliding_log(5, Duration::from_secs(60)).unwrap()
}

fn five_tokens_a_minute() -> Policy {
    Policy::token_bucket(5, Duration::from_secs(60), None).unwrap()
}

fn five_at_once() -> Policy {
    Policy::concurrency(5, Duration::from_secs(60)).unwrap()
}

#[test]
fn beyond_the_soft_limit_checks_pass_with_a_warning() {
    for policy in [five_a_minute(), five_tokens_a_minute(), five_at_once()] {
        let mut book = Book::new(policy.with_soft_rate(Some(3)));
        let reasons = [(); 6].map(|()| book.spend(1, 0).reason);
        let [calm, soft] = [Reason::WithinLimit, Reason::Soft];
        assert_eq!(reasons, [calm, calm, calm, soft, soft, Reason::OverLimit], "{policy:?}");
        assert_eq!(book.peek(0).reason, calm, "a peek warns of nothing");
    }
}

#[test]
fn the_reserve_is_for_critical_checks() {
    for policy in [five_a_minute(), five_tokens_a_minute(), five_at_once()] {
        let mut book = Book::new(policy.with_reserve(2));
        let ordinary = [(); 4].map(|()| book.spend(1, 0));
        assert_eq!(ordinary.map(|outcome| outcome.blocked), [false, false, false, true]);
        assert_eq!(ordinary.map(|outcome| outcome.remaining), [2, 1, 0, 0]);
        let critical = Asked { critical: true, ..ask(1) };
        let critical = [(); 3].map(|()| book.check(&critical, 0));
        assert_eq!(critical.map(|outcome| outcome.blocked), [false, false, true]);
        assert_eq!(critical.map(|outcome| (outcome.limit, outcome.remaining)), [(5, 1), (5, 0), (5, 0)]);
        // A cost that fits the whole limit but not what ordinary checks may take of it never passes as one of
        // them.
        assert_eq!(book.spend(4, 0).reason, Reason::ExceedsLimit);
    }
}

#[test]
fn in_shadow_mode_everything_passes_and_says_what_would_have_been() {
    let mut book = Book::new(five_a_minute().with_mode(Mode::Shadow));
    for n in 0..8 {
        let outcome = book.spend(1, 0);
        assert!(!outcome.blocked);
        assert_eq!(outcome.reason, if n < 5 { Reason::WithinLimit } else { Reason::OverLimit });
        assert_eq!(outcome.spent, i64::from(n < 5), "what would have been blocked spends nothing");
        assert_eq!(outcome.retry_after_us, (n >= 5).then_some(60 * SECOND_US));
    }
}

#[test]
fn a_zone_that_is_off_decides_nothing() {
    for policy in [five_a_minute(), five_tokens_a_minute(), five_at_once()] {
        let mut book = Book::new(policy.with_mode(Mode::Off));
        for _ in 0..8 {
            let outcome = book.spend(7, 0);
            assert_eq!((outcome.blocked, outcome.reason, outcome.spent), (false, Reason::Off, 0));
            assert_eq!((outcome.remaining, outcome.hold(None)), (5, None));
        }
        book.set(policy, 0);
        assert_eq!(book.spend(5, 0).reason, Reason::WithinLimit, "nothing was spent");
    }
}

#[test]
fn blocked_checks_that_count_keep_the_window_full() {
    let patient = Policy::sliding_log(2, Duration::from_secs(10)).unwrap();
    let mut book = Book::new(patient.with_count_blocked(true));
    book.spend(1, 0);
    book.spend(1, 0);
    // Asked each second it never passes again.
    for second in 1..60 {
        let outcome = book.spend(1, second * SECOND_US);
        assert_eq!((outcome.reason, outcome.spent), (Reason::OverLimit, 1));
    }
    // All that came before must leave, and it itself stays.
    let outcome = book.ask(&ask(1), 60 * SECOND_US);
    assert_eq!(outcome.retry_after_us, Some(9 * SECOND_US));
    // Those that are held back by another limit do not count: nobody spent anything.
    let held_back = Asked { held_back: true, ..ask(1) };
    assert_eq!(book.ask(&held_back, 60 * SECOND_US).spent, 0);
}

#[test]
fn a_check_that_another_limit_holds_back_spends_nothing() {
    for policy in [five_a_minute(), five_tokens_a_minute(), five_at_once()] {
        let mut book = Book::new(policy);
        let outcome = book.check(&Asked { held_back: true, ..ask(4) }, 0);
        assert!(outcome.blocked);
        assert_eq!((outcome.reason, outcome.spent, outcome.remaining), (Reason::HeldBack, 0, 5));
        assert_eq!((outcome.retry_after_us, outcome.hold(None)), (None, None));
        assert_eq!(book.spend(5, 0).reason, Reason::WithinLimit);
        // A check that is blocked by itself says so.
        let outcome = book.check(&Asked { held_back: true, ..ask(1) }, 0);
        assert_eq!(outcome.reason, Reason::OverLimit);
        assert!(outcome.retry_after_us.is_some());
    }
}

#[test]
fn members_are_named_where_they_are_counted_and_nowhere_else() {
    let distinct = Policy::distinct(2, Duration::from_secs(60)).unwrap();
    let member = |cost, member| Asked { member, ..ask(cost) };
    let decide = |policy, asked: Asked| {
        let book = Book::new(policy);
        let [version] = book.versions[..] else { panic!("one version") };
        let bucket = tallygate::decide::Bucket { versions: &[version], head: &book.head, holds: &[] };
        tallygate::decide::decide(bucket, &book, &asked, 0)
    };
    assert!(decide(distinct, member(1, Some("ada"))).is_ok());
    assert!(decide(distinct, member(0, None)).is_ok(), "a peek counts nobody");
    assert!(decide(distinct, member(1, None)).is_err());
    assert!(decide(distinct, member(2, Some("ada"))).is_err());
    assert!(decide(five_a_minute(), member(1, Some("ada"))).is_err());
    for policy in [five_at_once(), distinct] {
        let member = (policy == distinct).then_some("ada");
        let reserve = Asked { ttl_us: Some(1), member, ..ask(1) };
        assert!(decide(policy, reserve).is_err(), "what is held ends by itself anyway");
    }
}
