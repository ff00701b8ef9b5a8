//! Real attempts with their own times: 528 logins at an SSH server (see `tests/data/README.md`), by each algorithm. The
//! core and the naive count agree in each decision, and the document of the algorithms says how many passed.

use std::collections::HashMap;
use std::time::Duration;

use tallygate::Policy;
use tallygate::policy::{Algorithm, CalendarUnit};

use crate::book::{Asked, Book, ask};
use crate::naive::Naive;

struct Attempt {
    at_us: i64,
    address: &'static str,
    user: &'static str,
}

fn attempts() -> Vec<Attempt> {
    let lines = include_str!("../data/ssh_logins.csv").lines().skip(1);
    let attempt = |line: &'static str| {
        let mut columns = line.split(',');
        let mut column = || columns.next().unwrap();
        let at = chrono::DateTime::parse_from_rfc3339(column()).unwrap();
        Attempt { at_us: at.timestamp_micros(), address: column(), user: column() }
    };
    lines.map(attempt).collect()
}

/// The policies that are right for a login, as near to five in ten minutes as each algorithm comes.
fn policies() -> [(&'static str, Policy); 11] {
    let ten = Duration::from_secs(600);
    let five = |algorithm| Policy::new(algorithm, 5, ten, None).unwrap();
    let utc = "UTC".parse().unwrap();
    [
        ("in any 10 minutes", five(Algorithm::SlidingLog)),
        ("in each 10 minutes", five(Algorithm::FixedWindow)),
        ("in each hour of the calendar", Policy::calendar(5, CalendarUnit::Hour, utc).unwrap()),
        ("in 10 minutes, 1 slot", five(Algorithm::SlidingCounter)),
        ("in 10 minutes, 10 slots", five(Algorithm::SlidingCounter).with_slots(Some(10))),
        ("and one more every 2 minutes", five(Algorithm::TokenBucket)),
        ("and one drains every 2 minutes", five(Algorithm::LeakyBucket)),
        ("in line, one served every 2 minutes", five(Algorithm::LeakyQueue)),
        ("in 10 minutes: one every 2", five(Algorithm::Uniform)),
        ("in 10 minutes, of the other column", five(Algorithm::Distinct)),
        ("at once, for a minute each", Policy::concurrency(5, Duration::from_secs(60)).unwrap()),
    ]
}

/// The number of the attempts that pass, each key with a bucket of its own.
fn passed(policy: Policy, key: fn(&Attempt) -> &'static str, member: fn(&Attempt) -> &'static str) -> usize {
    let mut buckets = HashMap::new();
    let pass = |attempt: &Attempt| {
        let (book, naive) =
            buckets.entry(key(attempt)).or_insert_with(|| (Book::new(policy), Naive::new(policy)));
        let distinct = policy.algorithm() == Algorithm::Distinct;
        let asked = Asked { member: distinct.then(|| member(attempt)), ..ask(1) };
        let outcome = book.check(&asked, attempt.at_us);
        let told = naive.check(&asked, attempt.at_us, outcome.head.seq);
        assert_eq!((outcome.reason, outcome.remaining), (told.reason, told.remaining), "{policy:?}");
        assert_eq!(outcome.retry_after_us, told.retry_after_us, "{policy:?}");
        !outcome.blocked
    };
    let attempts = attempts();
    assert_eq!(attempts.len(), 528);
    assert!(attempts.is_sorted_by_key(|attempt| attempt.at_us));
    attempts.iter().map(pass).filter(|&passed| passed).count()
}

#[test]
fn the_document_says_how_many_real_logins_each_algorithm_lets_pass() {
    let document = include_str!("../../docs/algorithms.md");
    for (terms, policy) in policies() {
        let by_address = passed(policy, |attempt| attempt.address, |attempt| attempt.user);
        let by_user = passed(policy, |attempt| attempt.user, |attempt| attempt.address);
        let name = policy.algorithm();
        let row = format!(
            "| `{name}` | 5 {terms} | {by_address} | {} | {by_user} | {} |",
            528 - by_address,
            528 - by_user
        );
        assert!(document.contains(&row), "docs/algorithms.md does not say: {row}");
    }
}
