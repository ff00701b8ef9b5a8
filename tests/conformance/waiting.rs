//! P4: wait exactly what was promised and it passes; one microsecond less and it does not.

use std::time::Duration;

use fastrand::Rng;
use tallygate::{Check, Policy};

use crate::db::{Clocked, Db, Engine};
use crate::{rounds, rounds_of_long};

pub async fn the_promised_wait_is_the_least_that_passes(db: Db) {
    let mut waited = 0;
    let mut both = Vec::new();
    for isolation in db.engine.isolations() {
        both.push(Clocked::create_with(&db, *isolation).await);
    }
    for seed in 0..rounds_of_long(150, 3000) as u64 {
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
    assert!(waited > rounds_of_long(75, 1500), "{waited} waits");
}

/// The routines search in the totals by time, and find what a scan of the rows finds, also where rows share a microsecond.
pub async fn a_total_is_found_where_a_scan_finds_it(db: Db) {
    let mut owner = db.connect().await;
    let (txn_id, time) = match db.engine {
        Engine::Postgres => ("gen_random_uuid()", "zone_time({us})"),
        _ => (
            "unhex(replace(uuid(), '-', ''))",
            "date_add(timestamp'1970-01-01 00:00:00', interval {us} microsecond)",
        ),
    };
    let mut rng = Rng::with_seed(7);
    for bucket in 0..rounds(4, 40) {
        // A bucket whose charges are spread over its time, or come in bursts with hours between.
        let bursts = bucket % 2 == 0;
        let (mut us, mut total) = (1_800_000_000_000_000, rng.i64(0..9));
        let (before, first_us) = (total, us);
        let mut rows = Vec::new();
        for seq in 1..300_i64 {
            us += match rng.u8(..8) {
                0..3 => 0,
                3 if bursts => rng.i64(0..7_200_000_000),
                _ => rng.i64(1..5_000),
            };
            // Every second check is blocked.
            let spent = rng.i64(1..9) * i64::from(rng.bool());
            total += spent;
            rows.push((seq, us, spent, total));
        }
        let values: Vec<_> = rows
            .iter()
            .map(|(seq, us, spent, total)| {
                let time = time.replace("{us}", &us.to_string());
                format!(
                    "({txn_id}, 9, 1, '{bucket}', {seq}, 'check', {}, 'x', 9, {spent}, {total}, 0, 9, {time}, '')",
                    *spent == 0
                )
            })
            .collect();
        let insert = "insert into zone_txn (txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost,
            spent, spent_total, remaining, zone_limit, created_at, row_hash) values";
        owner.execute(&format!("{insert} {}", values.join(", "))).await.unwrap();
        for wanted in before + 1..=total + 1 {
            let scanned = rows.iter().find(|(.., total)| *total >= wanted).map_or(-1, |(_, us, ..)| *us);
            // From near by, or from far.
            let after_us = if rng.bool() { 0 } else { first_us - 1 };
            let asked = format!("zone_total_reached(9, '{bucket}', {wanted}, {after_us}, {us}");
            let found = match db.engine {
                Engine::Postgres => format!("select coalesce({asked}), -1)"),
                _ => {
                    owner.execute(&format!("call {asked}, @reached)")).await.unwrap();
                    "select coalesce(@reached, -1)".to_owned()
                }
            };
            assert_eq!(owner.number(&found).await, scanned, "{wanted} of {total}, after {after_us}");
        }
    }
}
