//! P4: wait exactly what was promised and it passes; one microsecond less and it does not.

use std::time::Duration;

use fastrand::Rng;
use tallygate::{Check, Policy};

use crate::db::{Clocked, Db};
use crate::rounds;

pub async fn the_promised_wait_is_the_least_that_passes(db: Db) {
    let mut waited = 0;
    let mut both = Vec::new();
    for isolation in db.engine.isolations() {
        both.push(Clocked::create_with(&db, *isolation).await);
    }
    for seed in 0..rounds(150, 3000) as u64 {
        let mut rng = Rng::with_seed(seed);
        let clocked = &both[seed as usize % both.len()];
        let limiter = &clocked.limiter;
        let window = Duration::from_micros(rng.u64(1..200_000_000));
        let rate = rng.i64(1..50);
        let policy = if rng.bool() {
            Policy::sliding_log(rate, window).unwrap()
        } else {
            Policy::token_bucket(rate, window, Some(rng.i64(1..50))).unwrap()
        };
        let zone = format!("zone {seed}");
        limiter.operator().set_zone(&zone, &policy, None, "test").await.unwrap();
        let check = |cost| limiter.check(Check::new(&zone, "key").cost(cost));
        let mut now_us = 1_800_000_000_000_000;
        for _ in 0..30 {
            now_us += rng.i64(0..policy.window_us() / 20 + 2);
            clocked.set(now_us).await;
            let cost = rng.i64(1..=policy.limit());
            let Some(wait_us) = check(cost).await.unwrap().retry_after_us else { continue };
            assert!(wait_us > 0);
            clocked.set(now_us + wait_us - 1).await;
            let early = check(cost).await.unwrap();
            assert!(early.blocked, "{policy:?} {cost}: passed before {wait_us} µs");
            assert_eq!(early.retry_after_us, Some(1));
            clocked.set(now_us + wait_us).await;
            assert!(check(cost).await.unwrap().is_allowed(), "{policy:?} {cost}: blocked after {wait_us} µs");
            waited += 1;
            break;
        }
    }
    assert!(waited > rounds(75, 1500), "{waited} waits");
}
