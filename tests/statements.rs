//! The price of a batch to the embedded engine: as many statements for many checks as for a few. They are counted
//! where sqlx tells of each one that it ran. It does so in a thread of its own, so the count is the whole
//! program's, and this program has one test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tallygate::{Check, Config, Limiter, Policy};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use uuid::Uuid;

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

/// Counts the events of sqlx.
struct Count;

impl Subscriber for Count {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &Event<'_>) {
        STATEMENTS.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_batch_is_a_constant_number_of_statements() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    let config = Config { connections: 1, ..Config::default() };
    let limiter = Limiter::connect_with(&url, config).await.unwrap();
    let minute = Duration::from_secs(60);
    for zone in ["a", "b"] {
        limiter
            .operator()
            .set_zone(zone, &Policy::sliding_log(4, minute).unwrap(), None, "test")
            .await
            .unwrap();
    }
    limiter
        .operator()
        .set_zone("c", &Policy::token_bucket(4, minute, None).unwrap(), None, "test")
        .await
        .unwrap();
    // The zones' numbers are looked up once.
    for zone in ["a", "b", "c"] {
        limiter.peek(zone, "key").await.unwrap();
    }
    tracing::subscriber::set_global_default(Count).unwrap();

    // Every kind of check that there is: new and known buckets, hot ones, blocked ones, peeks, ids of the caller's
    // own, those decided before and those that come twice.
    let known = Uuid::now_v7();
    let batch = |count: usize| {
        let check = move |n: usize| {
            let check = Check::new(["a", "b", "c"][n / 7 % 3], format!("key {}", n % 11 * (n / 100)));
            match n % 7 {
                0 => check.txn(known),
                1 => check.txn(Uuid::now_v7()),
                2 => check.cost(0),
                3 => check.cost(5),
                _ => check,
            }
        };
        (0..count).map(check).collect::<Vec<_>>()
    };
    let mut counts = Vec::new();
    for count in [21, 21, 210, 2_100] {
        let before = STATEMENTS.load(Ordering::SeqCst);
        let decisions = limiter.check_many(batch(count)).await.unwrap();
        counts.push(STATEMENTS.load(Ordering::SeqCst) - before);
        assert_eq!(decisions.iter().any(|d| d.replayed), counts.len() > 1);
        assert!(decisions.iter().any(|d| d.blocked));
    }
    // Heads, versions, window starts and rows; from the second batch on also what was decided before, and waits.
    // The beginning and the end of the transaction are not told.
    assert_eq!(counts, [3, 6, 6, 6]);

    // The number of reservations that are open, and end one after the other before a check can pass, counts by its
    // binary digits: heads, what they say besides, versions, holds and rows, and what the core asks of the ledger.
    limiter
        .operator()
        .set_zone("d", &Policy::sliding_log(1_000, 60 * minute).unwrap(), None, "test")
        .await
        .unwrap();
    for open in [5_u32, 50, 500] {
        let check = || Check::new("d", format!("{open} open"));
        for n in 0..open {
            // However slow the machine is, none has ended yet.
            let ttl = 30 * minute + Duration::from_millis(u64::from(n) * 50);
            limiter.reserve(check(), ttl).await.unwrap();
        }
        limiter.check(check().cost(1_000 - i64::from(open))).await.unwrap();
        for checks in [1, 100] {
            let batch = (0..checks).map(|n| check().cost(1_000 - 9 * n)).collect();
            let before = STATEMENTS.load(Ordering::SeqCst);
            assert!(limiter.check_many(batch).await.unwrap().iter().all(|decision| decision.blocked));
            let count = STATEMENTS.load(Ordering::SeqCst) - before;
            let digits = open.ilog2() as usize + 1;
            assert!(count <= 9 + digits, "{count} statements for {checks} checks, {open} open");
        }
    }
}
