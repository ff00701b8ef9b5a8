//! Charges that end: refunds, reservations, settlements, slots.

use std::time::Duration;

use tallygate::decide::{Event, Undo};
use tallygate::{Policy, Reason};

use crate::book::{Asked, Book, ask, charge};

const SECOND_US: i64 = 1_000_000;
const MINUTE: Duration = Duration::from_secs(60);

fn log(rate: i64) -> Book {
    Book::new(Policy::sliding_log(rate, MINUTE).unwrap())
}

fn tokens(rate: i64) -> Book {
    Book::new(Policy::token_bucket(rate, MINUTE, None).unwrap())
}

/// A check, and how to end what it charged.
fn spend(
    book: &mut Book,
    asked: Asked,
    now_us: i64,
) -> impl Fn(&mut Book, Undo, i64) -> tallygate::Result<i64> + use<> {
    let outcome = book.check(&asked, now_us);
    let charge = charge(&asked, &outcome);
    move |book, undo, now_us| book.happen(Event::Undo(undo, charge), now_us).map(|happened| happened.spent)
}

fn reserve(cost: i64, seconds: i64) -> Asked {
    Asked { ttl_us: Some(seconds * SECOND_US), ..ask(cost) }
}

#[test]
fn a_refund_counts_for_as_long_as_its_charge_would_have() {
    // Limit 5 in 60 s, spend 5 at 0 s, at 59 s refund 5 and spend 5: at 60 s 5 are spent, not 0.
    let mut book = log(5);
    let end = spend(&mut book, ask(5), 0);
    end(&mut book, Undo::Refund, 59 * SECOND_US).unwrap();
    assert_eq!(book.spend(5, 59 * SECOND_US).reason, Reason::WithinLimit);
    assert_eq!(book.peek(60 * SECOND_US).remaining, 0);
    assert_eq!(book.peek(119 * SECOND_US).remaining, 5);
}

#[test]
fn a_refund_never_lifts_a_bucket_above_its_limit() {
    let mut book = tokens(10);
    let end = spend(&mut book, ask(10), 0);
    assert_eq!(book.peek(30 * SECOND_US).remaining, 5);
    end(&mut book, Undo::Refund, 30 * SECOND_US).unwrap();
    assert_eq!(book.peek(30 * SECOND_US).remaining, 10);
    assert_eq!(book.spend(10, 30 * SECOND_US).reason, Reason::WithinLimit);
    assert_eq!(book.spend(1, 30 * SECOND_US).reason, Reason::OverLimit);
}

#[test]
fn a_reservation_ends_exactly_at_its_time() {
    for mut book in [log(5), tokens(5)] {
        let outcome = book.check(&reserve(5, 10), 0);
        assert_eq!((outcome.spent, outcome.ends_us), (5, Some(10 * SECOND_US)));
        let blocked = book.spend(5, SECOND_US);
        assert_eq!(blocked.retry_after_us, Some(9 * SECOND_US), "its end is known");
        assert!(book.ask(&ask(5), 10 * SECOND_US - 1).blocked);
        assert!(!book.ask(&ask(5), 10 * SECOND_US).blocked);
    }
}

#[test]
fn a_settlement_gives_back_what_was_reserved_beyond_it() {
    for mut book in [log(5), tokens(5)] {
        let end = spend(&mut book, reserve(5, 10), 0);
        assert_eq!(end(&mut book, Undo::Settle(2), 0).unwrap(), 0);
        assert_eq!(book.peek(0).remaining, 3);
        assert_eq!(book.peek(10 * SECOND_US).remaining, 3, "what was settled does not run out");
    }
}

#[test]
fn what_is_settled_above_the_reservation_is_a_debt() {
    let mut book = tokens(5);
    let end = spend(&mut book, reserve(5, 10), 0);
    assert_eq!(end(&mut book, Undo::Settle(11), 0).unwrap(), 6);
    // Six tokens below nothing, at one in 12 seconds.
    let blocked = book.spend(1, 0);
    assert_eq!((blocked.remaining, blocked.retry_after_us), (0, Some(7 * 12 * SECOND_US)));
    let mut book = log(5);
    let end = spend(&mut book, reserve(5, 10), 0);
    assert_eq!(end(&mut book, Undo::Settle(11), 5 * SECOND_US).unwrap(), 6);
    let blocked = book.spend(1, 5 * SECOND_US);
    assert_eq!((blocked.remaining, blocked.retry_after_us), (0, Some(60 * SECOND_US)));
    assert!(!book.ask(&ask(5), 65 * SECOND_US).blocked);
}

#[test]
fn a_settlement_that_comes_too_late_charges_all_of_it() {
    for mut book in [log(5), tokens(5)] {
        let end = spend(&mut book, reserve(5, 10), 0);
        assert_eq!(end(&mut book, Undo::Settle(3), 10 * SECOND_US).unwrap(), 3);
        assert_eq!(book.peek(10 * SECOND_US).remaining, 2);
    }
}

#[test]
fn a_cancelled_reservation_is_free_at_once() {
    for mut book in [log(5), tokens(5)] {
        let end = spend(&mut book, reserve(5, 10), 0);
        end(&mut book, Undo::Cancel, SECOND_US).unwrap();
        assert_eq!(book.peek(SECOND_US).remaining, 5);
        assert_eq!(book.spend(5, SECOND_US).reason, Reason::WithinLimit);
        assert_eq!(book.peek(10 * SECOND_US - 1).reason, Reason::WithinLimit);
        // It does not end once more.
        let left = book.peek(10 * SECOND_US).remaining;
        assert!(left == 0, "{left} came from nowhere");
    }
}

#[test]
fn a_slot_is_free_when_it_is_released_or_its_time_is_over() {
    let mut book = Book::new(Policy::concurrency(2, MINUTE).unwrap());
    let end = spend(&mut book, ask(1), 0);
    book.spend(1, 10 * SECOND_US);
    assert_eq!(book.ask(&ask(1), 20 * SECOND_US).retry_after_us, Some(40 * SECOND_US));
    end(&mut book, Undo::Release, 20 * SECOND_US).unwrap();
    assert_eq!(book.spend(1, 20 * SECOND_US).reason, Reason::WithinLimit);
    assert_eq!(book.ask(&ask(1), 20 * SECOND_US).retry_after_us, Some(50 * SECOND_US));
    assert!(!book.ask(&ask(1), 70 * SECOND_US).blocked);
}

#[test]
fn a_member_counts_from_its_first_check_and_is_not_renewed() {
    let mut book = Book::new(Policy::distinct(2, MINUTE).unwrap());
    let member = |name| Asked { member: Some(name), ..ask(1) };
    for (name, second, spent) in [("ada", 0, 1), ("bob", 30, 1), ("ada", 59, 0)] {
        let outcome = book.check(&member(name), second * SECOND_US);
        assert_eq!((outcome.blocked, outcome.spent), (false, spent));
    }
    assert_eq!(book.check(&member("cleo"), 59 * SECOND_US).retry_after_us, Some(SECOND_US));
    assert!(!book.check(&member("cleo"), 60 * SECOND_US).blocked);
    assert!(book.check(&member("ada"), 60 * SECOND_US).blocked, "its place is taken");
}

#[test]
fn each_kind_of_charge_is_ended_in_its_own_way() {
    let check = |book: &mut Book| spend(book, ask(1), 0);
    let reservation = |book: &mut Book| spend(book, reserve(1, 10), 0);
    for undo in [Undo::Settle(1), Undo::Cancel, Undo::Release] {
        let mut book = log(5);
        assert!(check(&mut book)(&mut book, undo, 0).unwrap_err().is_conflict(), "{undo:?} of a check");
    }
    for undo in [Undo::Refund, Undo::Release] {
        let mut book = log(5);
        assert!(
            reservation(&mut book)(&mut book, undo, 0).unwrap_err().is_conflict(),
            "{undo:?} of a reservation"
        );
    }
    for undo in [Undo::Refund, Undo::Settle(1), Undo::Cancel] {
        let mut book = Book::new(Policy::concurrency(2, MINUTE).unwrap());
        assert!(check(&mut book)(&mut book, undo, 0).unwrap_err().is_conflict(), "{undo:?} of a slot");
    }
    let mut book = Book::new(Policy::concurrency(2, MINUTE).unwrap());
    let end = check(&mut book);
    assert!(end(&mut book, Undo::Release, 60 * SECOND_US).unwrap_err().is_conflict(), "its time is over");
    // A blocked check, and one that spent nothing.
    let mut book = log(1);
    book.spend(1, 0);
    assert!(check(&mut book)(&mut book, Undo::Refund, 0).unwrap_err().is_conflict());
    assert!(spend(&mut book, ask(0), 0)(&mut book, Undo::Refund, 0).unwrap_err().is_conflict());
}
