//! The price of a decision without a database: nanoseconds of the pure core, for each algorithm, and of what is looked
//! at before the database is asked. The rows of the ledger are at hand.
//!
//! `cargo bench --bench core`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tallygate::audit::replay::{LedgerRow, Replay, Replayed};
use tallygate::backtest::Backtest;
use tallygate::decide::{Ask, Bucket, Head, Hold, Ledger, Need, Version, decide};
use tallygate::ledger::Kind;
use tallygate::policy::{Algorithm, CalendarUnit};
use tallygate::{Check, Policy, Reason};
use uuid::Uuid;

const NOW_US: i64 = 1_767_225_630_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// A token of 100 in 60,000,000 µs, both divided by 100: 600,000 units of level, one more each microsecond.
const TOKEN: i64 = 600_000;
const SPENT: i64 = 1_000;

/// A ledger in whose window so much was spent.
struct Known {
    in_window: i64,
}

impl Ledger for Known {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        // All of it a second ago.
        Ok(if at_us <= NOW_US - 1_000_000 { SPENT - self.in_window } else { SPENT })
    }

    fn reached(&self, _: i64) -> Result<Option<i64>, Need> {
        Ok(Some(NOW_US - 1_000_000))
    }

    fn strikes_before(&self, _: i64) -> Result<i64, Need> {
        Ok(0)
    }
}

fn windows(criterion: &mut Criterion) {
    let zone = "Europe/Berlin".parse().expect("a time zone");
    let policies = [
        ("sliding-log", Policy::sliding_log(100, MINUTE)),
        ("fixed-window", Policy::fixed_window(100, MINUTE)),
        ("fixed-window by calendar", Policy::calendar(100, CalendarUnit::Day, zone)),
        ("sliding-counter", Policy::sliding_counter(100, MINUTE, 1)),
        ("sliding-counter of 60 slots", Policy::sliding_counter(100, MINUTE, 60)),
    ];
    for (name, policy) in policies {
        let policy = policy.expect("a policy");
        let head = head(None);
        measure(criterion, &format!("{name}/allowed"), policy, &head, &[], 40, false);
        measure(criterion, &format!("{name}/blocked"), policy, &head, &[], 100, true);
    }
}

fn levels(criterion: &mut Criterion) {
    use Algorithm::{LeakyBucket, LeakyQueue, TokenBucket, Uniform};
    for algorithm in [TokenBucket, LeakyBucket, LeakyQueue, Uniform] {
        let policy = Policy::new(algorithm, 100, MINUTE, None).expect("a policy");
        let full = if algorithm == Uniform { TOKEN } else { 40 * TOKEN };
        measure(criterion, &format!("{algorithm}/allowed"), policy, &head(Some(full)), &[], 0, false);
        measure(criterion, &format!("{algorithm}/blocked"), policy, &head(Some(TOKEN / 2)), &[], 0, true);
    }
    // Neighbours in Fibonacci's sequence, for which Euclid needs the most steps.
    let policy = Policy::token_bucket(832_040, Duration::from_micros(1_346_269), None).expect("a policy");
    measure(criterion, "token-bucket/odd rate", policy, &head(Some(40 * 1_346_269)), &[], 0, false);
}

/// 40 members or slots of 100, or all of them.
fn held(criterion: &mut Criterion) {
    for policy in [Policy::distinct(100, MINUTE), Policy::concurrency(100, MINUTE)] {
        let policy = policy.expect("a policy");
        for (held, name) in [(40, "allowed"), (100, "blocked")] {
            let holds: Vec<Hold> = (1..=held).map(|seq| hold(&policy, seq)).collect();
            let name = format!("{}/{name}, {held} held", policy.algorithm());
            measure(criterion, &name, policy, &head(None), &holds, 0, held == 100);
        }
    }
}

/// A charge that was given back stays with a window until the charge leaves.
fn refunds(criterion: &mut Criterion) {
    let policy = Policy::sliding_log(100, MINUTE).expect("a policy");
    let given_back = |seq| Hold { ends_us: NOW_US - 1_000, ..hold(&policy, seq) };
    let holds: Vec<Hold> = (1..=20).map(given_back).collect();
    measure(criterion, "sliding-log/allowed, 20 refunds", policy, &head(None), &holds, 60, false);
}

/// A verifier derives each row again: what that costs, with 60 rows in the window.
fn replay(criterion: &mut Criterion) {
    const ROWS: i64 = 10_000;
    for algorithm in [Algorithm::SlidingLog, Algorithm::TokenBucket] {
        let policy = Policy::new(algorithm, 100, MINUTE, None).expect("a policy");
        let versions: Arc<[Version]> = Arc::new([Version { version: 1, policy, changed_us: 0 }]);
        let level = algorithm == Algorithm::TokenBucket;
        let rows: Vec<LedgerRow> = (1..=ROWS).map(|seq| row(seq, level)).collect();
        let mut replay = Replay::new(Arc::clone(&versions), Vec::new());
        let once = |replay: &mut Replay| {
            replay.restart(Arc::clone(&versions), Vec::new());
            black_box(&rows).iter().all(|row| replay.next(row, None) == Replayed::Same)
        };
        assert!(once(&mut replay), "{algorithm}");
        let mut group = criterion.benchmark_group("replay");
        group.throughput(Throughput::Elements(ROWS as u64));
        group.bench_function(algorithm.as_str(), |bencher| bencher.iter(|| once(&mut replay)));
        group.finish();
    }
}

/// A check of cost 1 each second: a token bucket is full again by then.
fn row(seq: i64, level: bool) -> LedgerRow {
    let at_us = NOW_US + seq * 1_000_000;
    LedgerRow {
        id: seq,
        txn_id: Uuid::from_u128(seq as u128),
        zone_version: 1,
        seq,
        kind: Kind::Check,
        checks: 1,
        blocked: false,
        reason: Reason::WithinLimit,
        critical: false,
        band: None,
        cost: 1,
        spent: 1,
        spent_total: seq,
        remaining: if level { 99 } else { 100 - seq.min(60) },
        zone_limit: 100,
        retry_after_us: None,
        delay_us: None,
        level: level.then_some(99 * TOKEN),
        strikes: 0,
        target_us: None,
        at_us,
        prev_us: (seq > 1).then_some(at_us - 1_000_000),
        ends_us: None,
        member: None,
        note: None,
        actor: None,
        login: None,
        salt: None,
        row_hash: [0; 32],
    }
}

fn validate(criterion: &mut Criterion) {
    let checks = (0..128).map(|n| Check::new("login", format!("user:{n}"))).collect::<Vec<_>>();
    let all = || black_box(&checks).iter().try_for_each(Check::validate);
    all().expect("good checks");
    criterion.bench_function("validate/128 checks", |bencher| bencher.iter(all));
}

/// A million events of a thousand keys, one each 20 ms: three a minute of each key.
fn backtest(criterion: &mut Criterion) {
    let keys: Vec<String> = (0..1_000).map(|n| format!("203.0.{}.{}", n / 256, n % 256)).collect();
    let events: Vec<(&str, i64)> = (0..1_000_000_i64)
        .map(|n| (keys[(n * 7_919 % 1_000) as usize].as_str(), NOW_US + n * 20_000))
        .collect();
    let zone = "Europe/Berlin".parse().expect("a time zone");
    let policies = [
        ("sliding-log", Policy::sliding_log(100, HOUR)),
        ("fixed-window", Policy::fixed_window(100, HOUR)),
        ("fixed-window by calendar", Policy::calendar(100, CalendarUnit::Hour, zone)),
        ("sliding-counter of 60 slots", Policy::sliding_counter(100, HOUR, 60)),
        ("token-bucket", Policy::token_bucket(100, HOUR, None)),
        ("concurrency", Policy::concurrency(5, MINUTE)),
    ];
    let mut group = criterion.benchmark_group("backtest");
    group.sample_size(10).throughput(Throughput::Elements(events.len() as u64));
    for (name, policy) in policies {
        let policy = policy.expect("a policy");
        let once = || {
            let mut test = Backtest::new(policy).expect("a good policy");
            let ask = Ask { cost: 1, ..Ask::default() };
            for (key, at_us) in black_box(&events) {
                test.check(key, &ask, *at_us).expect("a decision");
            }
            test.report(10).blocked
        };
        group.bench_function(name, |bencher| bencher.iter(once));
    }
}

fn measure(
    criterion: &mut Criterion,
    name: &str,
    policy: Policy,
    head: &Head,
    holds: &[Hold],
    in_window: i64,
    blocked: bool,
) {
    let versions = [Version { version: 1, policy, changed_us: 0 }];
    let ledger = Known { in_window };
    let member = (policy.algorithm() == Algorithm::Distinct).then_some("card:new");
    let ask = Ask { cost: 1, member, ..Ask::default() };
    let once = || {
        let bucket =
            Bucket { versions: black_box(&versions), head: black_box(head), holds: black_box(holds) };
        let outcome = decide(bucket, black_box(&ledger), black_box(&ask), NOW_US).expect("a decision");
        black_box(&outcome).blocked
    };
    assert_eq!(once(), blocked, "{name}");
    criterion.bench_function(name, |bencher| bencher.iter(once));
}

/// A bucket that was checked a millisecond ago.
fn head(level: Option<i64>) -> Head {
    let level = level.map(|level| level - 1_000);
    Head {
        seq: 1_000,
        last_us: NOW_US - 1_000,
        spent_total: SPENT,
        level,
        zone_version: 1,
        ..Head::default()
    }
}

fn hold(policy: &Policy, seq: i64) -> Hold {
    let member = (policy.algorithm() == Algorithm::Distinct).then(|| format!("card:{seq}"));
    Hold { seq, charged_us: NOW_US - 1_000_000, amount: 1, ends_us: NOW_US + 30_000_000 + seq, member }
}

criterion_group! {
    name = core;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = windows, levels, held, refunds, replay, validate, backtest
}
criterion_main!(core);
