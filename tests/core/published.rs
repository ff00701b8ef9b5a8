//! Examples that others published, with their numbers.

use std::time::Duration;

use tallygate::{Policy, Reason};

use crate::book::Book;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;

fn counter(rate: i64, seconds: u64, slots: i32) -> Policy {
    Policy::sliding_counter(rate, Duration::from_secs(seconds), slots).unwrap()
}

/// Cloudflare, "How we built rate limiting capable of scaling to millions of domains": 42 requests in the minute before,
/// 18 in this one, 15 seconds into it: 42 × (60 − 15) / 60 + 18 = 49.5. Here 31.5 is rounded down.
#[test]
fn cloudflare_estimates_49_and_a_half() {
    let mut book = Book::new(counter(50, 60, 1));
    book.spend(42, 0);
    book.spend(18, MINUTE_US + 15 * SECOND_US);
    assert_eq!(book.peek(MINUTE_US + 15 * SECOND_US).remaining, 50 - 49);
    assert_eq!(book.spend(1, MINUTE_US + 15 * SECOND_US).reason, Reason::WithinLimit);
    assert_eq!(book.spend(1, MINUTE_US + 15 * SECOND_US).reason, Reason::OverLimit);
}

/// Seven requests a minute, 5 in the minute before, 3 in this one, 30 % into it: 3 + 5 × 0.7 = 6.5, rounded down 6.
#[test]
fn six_and_a_half_of_seven_leave_room_for_one() {
    let mut book = Book::new(counter(7, 60, 1));
    book.spend(5, 0);
    book.spend(3, MINUTE_US + 18 * SECOND_US);
    assert_eq!(book.peek(MINUTE_US + 18 * SECOND_US).remaining, 1);
    assert_eq!(book.spend(1, MINUTE_US + 18 * SECOND_US).reason, Reason::WithinLimit);
    assert_eq!(book.spend(1, MINUTE_US + 18 * SECOND_US).reason, Reason::OverLimit);
}

/// A hundred an hour in buckets of 20 minutes: 10, 20 and 30 requests in the last three, so the one at 2:50 is let in
/// as the 61st. The ten minutes from 1:50 to 2:00, which that example leaves out, count here.
#[test]
fn three_slots_of_twenty_minutes_let_in_the_sixty_first() {
    let at = |hour: i64, minute: i64| (60 * hour + minute) * MINUTE_US;
    let mut book = Book::new(counter(100, 3_600, 3));
    for (minute, cost) in [(0, 10), (20, 20), (40, 30)] {
        book.spend(cost, at(2, minute));
    }
    let outcome = book.spend(1, at(2, 50));
    assert_eq!((outcome.reason, outcome.remaining), (Reason::WithinLimit, 100 - 61));

    let mut book = Book::new(counter(100, 3_600, 3));
    book.spend(81, at(1, 40));
    book.spend(19, at(2, 21));
    // Half of 81, rounded down, and 19.
    assert_eq!(book.peek(at(2, 50)).remaining, 100 - 59);
    book.spend(41, at(2, 50));
    // One of the 40 is gone when less than 40 / 81 of its slot of 1,200 s is left.
    let blocked = book.spend(1, at(2, 50));
    assert_eq!(blocked.reason, Reason::OverLimit);
    assert_eq!(blocked.retry_after_us, Some(600 * SECOND_US - 592_592_592));
}
