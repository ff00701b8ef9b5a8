//! What a decision costs without a database: nanoseconds of the pure core, for each algorithm, and of what is
//! looked at before the database is asked.
//!
//! `cargo bench --bench core`

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tallygate::{Check, Head, Policy, Version, Window, decide};

const NOW_US: i64 = 1_767_225_600_000_000;
const MINUTE: Duration = Duration::from_secs(60);

fn sliding_log(criterion: &mut Criterion) {
    let versions = versions(Policy::sliding_log(100, MINUTE).expect("a policy"));
    let head = head(None);
    let first_us = NOW_US - 30_000_000;
    // 40 of 100 were spent in the window, or all of them.
    let some = Window { base: head.spent_total - 40, reached_us: None };
    let all = Window { base: head.spent_total - 100, reached_us: Some(first_us) };
    measure(criterion, "sliding-log/allowed", &versions, &head, Some(some), false);
    measure(criterion, "sliding-log/blocked", &versions, &head, Some(all), true);
}

fn token_bucket(criterion: &mut Criterion) {
    let policy = Policy::token_bucket(100, MINUTE, None).expect("a policy");
    // 100 in 60,000,000 µs, both divided by 100: a token is 600,000 units of level, one more each microsecond.
    let token = 600_000;
    let versions = versions(policy);
    measure(criterion, "token-bucket/allowed", &versions, &head(Some(40 * token)), None, false);
    measure(criterion, "token-bucket/blocked", &versions, &head(Some(token / 2)), None, true);
    // Neighbours in Fibonacci's sequence, for which Euclid needs the most steps.
    let window = Duration::from_micros(1_346_269);
    let versions = self::versions(Policy::token_bucket(832_040, window, None).expect("a policy"));
    measure(criterion, "token-bucket/odd rate", &versions, &head(Some(40 * 1_346_269)), None, false);
}

fn validate(criterion: &mut Criterion) {
    let checks = (0..128).map(|n| Check::new("login", format!("user:{n}"))).collect::<Vec<_>>();
    let all = || black_box(&checks).iter().try_for_each(Check::validate);
    all().expect("good checks");
    criterion.bench_function("validate/128 checks", |bencher| bencher.iter(all));
}

fn measure(
    criterion: &mut Criterion,
    name: &str,
    versions: &[Version],
    head: &Head,
    window: Option<Window>,
    blocked: bool,
) {
    let once = || decide(black_box(versions), black_box(head), black_box(window), black_box(1), NOW_US);
    assert_eq!(once().expect("a decision").blocked, blocked, "{name}");
    criterion.bench_function(name, |bencher| bencher.iter(once));
}

fn versions(policy: Policy) -> [Version; 1] {
    [Version { version: 1, policy, changed_us: 0 }]
}

/// A bucket that was checked a millisecond ago.
fn head(level: Option<i64>) -> Head {
    Head { seq: 1_000, last_us: NOW_US - 1_000, spent_total: 1_000, level, zone_version: 1 }
}

criterion_group! {
    name = core;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = sliding_log, token_bucket, validate
}
criterion_main!(core);
