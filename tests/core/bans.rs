//! Bans: after so many blocked checks within a time, for a time, longer when they follow each other.

use std::time::Duration;

use tallygate::decide::Event;
use tallygate::policy::{BanFrom, BanRule, Mode, Override};
use tallygate::{Policy, Reason};

use crate::book::{Book, ask};

const SECOND_US: i64 = 1_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One check a minute; three blocked within ten seconds lead to a ban of 100 seconds.
fn strict() -> BanRule {
    BanRule::new(3, seconds(10), seconds(100))
}

fn book(rule: BanRule) -> Book {
    let mut book = Book::new(Policy::sliding_log(1, seconds(60)).unwrap().with_ban(Some(rule)));
    book.spend(1, 0);
    book
}

/// Three blocked checks at once, after another that passes. When the ban ends that this brings about.
fn ban(book: &mut Book, now_us: i64) -> i64 {
    book.spend(1, now_us);
    let bans = [(); 3].map(|()| book.spend(1, now_us).banned_until_us);
    assert_eq!(bans[..2], [None, None]);
    bans[2].unwrap()
}

#[test]
fn enough_blocked_checks_within_the_time_ban_the_bucket() {
    let mut book = book(strict());
    for second in [1, 2] {
        assert_eq!(book.spend(1, second * SECOND_US).banned_until_us, None);
    }
    let seq = book.head.seq;
    let third = book.spend(1, 3 * SECOND_US);
    assert_eq!((third.reason, third.banned_until_us), (Reason::OverLimit, Some(103 * SECOND_US)));
    assert_eq!(third.retry_after_us, Some(100 * SECOND_US), "the ban takes longer than the window");
    assert_eq!(book.head.seq, seq + 2, "the ban is a row of its own");
    // The window alone would be free after a minute.
    let banned = book.spend(1, 61 * SECOND_US);
    assert_eq!((banned.reason, banned.remaining, banned.blocked), (Reason::Banned, 0, true));
    assert_eq!(banned.retry_after_us, Some(42 * SECOND_US));
    assert_eq!(book.spend(1, 103 * SECOND_US - 1).reason, Reason::Banned);
    assert_eq!(book.spend(1, 103 * SECOND_US).reason, Reason::WithinLimit);
}

#[test]
fn blocked_checks_that_are_too_far_apart_ban_nobody() {
    let mut far = book(strict());
    for second in [1, 6, 11, 16, 21] {
        // Of any three the first is just ten seconds old.
        assert_eq!(far.spend(1, second * SECOND_US).banned_until_us, None);
    }
    let mut near = book(strict());
    for us in [1, 5, 11].map(|second| second * SECOND_US - second) {
        near.spend(1, us);
    }
    assert!(near.head.banned_until_us.is_some(), "a microsecond less than ten seconds");
}

#[test]
fn checks_during_a_ban_do_not_extend_it_and_do_not_count() {
    let mut book = book(strict());
    let until_us = ban(&mut book, 60 * SECOND_US);
    for second in 61..159 {
        assert_eq!(book.spend(1, second * SECOND_US).reason, Reason::Banned);
        assert_eq!(book.head.banned_until_us, Some(until_us));
    }
    book.spend(1, until_us);
    // Blocked twice after it: the many during the ban are not the third.
    for _ in 0..2 {
        let outcome = book.spend(1, until_us);
        assert_eq!((outcome.reason, outcome.banned_until_us), (Reason::OverLimit, None));
    }
}

#[test]
fn a_ban_can_be_counted_from_when_the_check_could_have_passed() {
    let mut book = book(BanRule { from: BanFrom::Window, ..strict() });
    book.spend(1, SECOND_US);
    book.spend(1, SECOND_US);
    let third = book.spend(1, 2 * SECOND_US);
    assert_eq!(third.banned_until_us, Some(160 * SECOND_US), "a minute after the first check, and the ban");
    assert_eq!(third.retry_after_us, Some(158 * SECOND_US));
}

#[test]
fn bans_that_follow_each_other_grow_to_the_longest_and_a_quiet_time_forgets_them() {
    let rule = BanRule { factor: 4, longest_us: 1_000 * SECOND_US, ..strict() };
    let mut book = book(rule);
    let mut now_us = 60 * SECOND_US;
    for length in [100, 400, 1_000, 1_000] {
        let until_us = ban(&mut book, now_us);
        assert_eq!(until_us - now_us, length * SECOND_US);
        // As late as it is still seen as a repetition.
        now_us = until_us + rule.longest_us;
    }
    let until_us = ban(&mut book, now_us);
    assert_eq!((until_us - now_us, book.head.bans), (1_000 * SECOND_US, 5));
    now_us = until_us + rule.longest_us + 1;
    assert_eq!(
        (ban(&mut book, now_us) - now_us, book.head.bans),
        (100 * SECOND_US, 1),
        "quiet for long enough"
    );
}

#[test]
fn people_ban_and_lift_bans() {
    let mut book = book(strict());
    assert!(book.happen(Event::Unban, 0).unwrap_err().is_conflict());
    book.happen(Event::Ban(SECOND_US), 60 * SECOND_US).unwrap();
    assert_eq!(book.spend(1, 60 * SECOND_US).retry_after_us, Some(SECOND_US));
    // In place of the ban that it has, be it shorter.
    book.happen(Event::Ban(SECOND_US / 2), 60 * SECOND_US).unwrap();
    assert_eq!(book.spend(1, 60 * SECOND_US).retry_after_us, Some(SECOND_US / 2));
    book.happen(Event::Unban, 60 * SECOND_US).unwrap();
    assert_eq!(book.spend(1, 60 * SECOND_US).reason, Reason::WithinLimit);
    // Those before it are forgotten, and so are the blocked checks that led to it.
    let rule = BanRule { factor: 2, longest_us: 1_000 * SECOND_US, ..strict() };
    let mut book = self::book(rule);
    ban(&mut book, 60 * SECOND_US);
    book.happen(Event::Unban, 61 * SECOND_US).unwrap();
    assert_eq!(ban(&mut book, 200 * SECOND_US), 300 * SECOND_US);
}

#[test]
fn what_can_never_pass_counts_and_is_told_so_during_a_ban() {
    let mut book = book(strict());
    let third = [(); 3].map(|()| book.spend(2, SECOND_US)).into_iter().next_back().unwrap();
    assert_eq!((third.reason, third.retry_after_us), (Reason::ExceedsLimit, None));
    assert_eq!(third.banned_until_us, Some(101 * SECOND_US));
    let banned = book.spend(2, 2 * SECOND_US);
    assert_eq!((banned.reason, banned.retry_after_us), (Reason::ExceedsLimit, None));
}

#[test]
fn an_exempt_bucket_is_never_banned() {
    let mut book = book(strict());
    let exempt = Override { limit: None, ban_exempt: true, for_us: Some(50 * SECOND_US) };
    book.happen(Event::Override(Some(exempt)), SECOND_US).unwrap();
    for _ in 0..10 {
        assert_eq!(book.spend(1, 51 * SECOND_US - 1).banned_until_us, None);
    }
    let after = [(); 3].map(|()| book.spend(1, 51 * SECOND_US)).into_iter().next_back().unwrap();
    assert!(after.banned_until_us.is_some(), "the exemption is over");
}

#[test]
fn a_peek_at_a_banned_bucket_finds_nothing_left() {
    let mut book = book(strict());
    ban(&mut book, 60 * SECOND_US);
    let peek = book.ask(&ask(0), 150 * SECOND_US);
    assert_eq!((peek.blocked, peek.remaining, peek.reason), (false, 0, Reason::WithinLimit));
}

#[test]
fn in_shadow_mode_bans_are_recorded_and_hold_nobody() {
    let mut book = book(strict());
    book.set(book.policy().with_mode(Mode::Shadow), SECOND_US);
    let third = [(); 3].map(|()| book.spend(1, 2 * SECOND_US)).into_iter().next_back().unwrap();
    assert!(third.banned_until_us.is_some() && !third.blocked);
    let banned = book.spend(1, 70 * SECOND_US);
    assert_eq!((banned.blocked, banned.reason, banned.spent), (false, Reason::Banned, 0));
    // Off, the ban is not looked at.
    book.set(book.policy().with_mode(Mode::Off), 71 * SECOND_US);
    assert_eq!(book.spend(1, 72 * SECOND_US).reason, Reason::Off);
}
