//! Checks that were answered blocked from memory: one row stands for many, and nothing is decided by it.

use std::time::Duration;

use tallygate::ledger::{History, Kind};
use tallygate::policy::{BlockedRows, Mode};
use tallygate::{Check, Decision, Policy, Reason};
use uuid::Uuid;

use crate::db::{Clocked, Db, bucket, log};

const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01

fn coalesced(policy: Policy) -> Policy {
    policy.with_blocked_rows(BlockedRows::Coalesced)
}

pub async fn a_coalesced_row_stands_for_many_checks_and_spends_nothing(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    for (zone, policy) in [("log", log(5, 60)), ("bucket", bucket(1, 1, 5))] {
        clocked.set(START_US).await;
        let id = limiter.operator().set_zone(zone, &coalesced(policy), None, "test").await.unwrap().id;
        limiter.check(Check::new(zone, "42").cost(4)).await.unwrap();
        assert!(limiter.check(Check::new(zone, "42").cost(2)).await.unwrap().blocked);
        clocked.set(START_US + 700_000).await;
        let txn = Uuid::now_v7();
        for _ in 0..2 {
            limiter.record_blocked(id, "42", txn, 2, 17).await.unwrap();
        }
        let other = limiter.record_blocked(id, "42", txn, 3, 17).await.unwrap_err();
        assert!(other.is_conflict(), "{other}");

        let history = History { zone: Some(zone.into()), ..History::default() };
        let rows = limiter.auditor().history(&history).await.unwrap().rows;
        assert_eq!(rows.len(), 3, "once for each transaction");
        let row = &rows[0];
        assert_eq!((row.kind.as_str(), row.checks, row.txn_id, row.seq), ("coalesced", 17, txn, 3));
        assert_eq!((row.blocked, row.reason, row.retry_after_us), (true, Reason::OverLimit, None));
        assert_eq!((row.cost, row.spent, row.spent_total, row.remaining), (2, 0, 4, 1));
        assert_eq!(row.decided_at.timestamp_micros(), START_US + 700_000);
        // One token, and 0.7 of the next; a token is a second's 1,000,000 parts.
        assert_eq!(row.level, (zone == "bucket").then_some(1_700_000));
        assert!(rows[1..].iter().all(|row| row.kind == Kind::Check && row.checks == 1));
        let again = Check::new(zone, "42").cost(2).txn(txn);
        let told = limiter.check(again.clone()).await.unwrap();
        assert!(told.replayed && told.blocked && told.seq == Some(3), "{told:?}");
        assert_eq!(limiter.check_many(vec![again; 2]).await.unwrap(), [told.clone(), told]);
    }
    // Even where more was spent than the limit now is, it promises no wait; and a cost of 0 is a row like any other.
    let id = limiter.operator().set_zone("log", &coalesced(log(1, 60)), None, "test").await.unwrap().id;
    limiter.record_blocked(id, "42", Uuid::now_v7(), 0, 1).await.unwrap();
    let history = History { zone: Some("log".into()), ..History::default() };
    let row = limiter.auditor().history(&history).await.unwrap().rows.remove(0);
    assert_eq!((row.kind.as_str(), row.checks, row.cost, row.seq), ("coalesced", 1, 0, 4));
    assert_eq!((row.remaining, row.retry_after_us), (0, None));
    db.assert_ledger_is_whole().await;
}

/// Beside a bucket with such a row stands one with a peek that was recorded at the same time: as it goes on, so
/// does the other.
pub async fn what_comes_after_a_coalesced_row_is_decided_as_without_it(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    for (zone, policy) in [("log", log(5, 60)), ("bucket", bucket(7, 60, 5))] {
        clocked.set(START_US).await;
        let id = limiter.operator().set_zone(zone, &coalesced(policy), None, "test").await.unwrap().id;
        // Ids of the caller's own, so that memory answers none.
        let check = |key: &str, cost| limiter.check(Check::new(zone, key).cost(cost).txn(Uuid::now_v7()));
        for at_us in [0, 999_983, 3_000_001, 59_999_999, 60_000_000, 61_000_000, 200_000_000] {
            clocked.set(START_US + at_us).await;
            for key in ["flooded", "quiet"] {
                check(key, 5).await.unwrap();
                assert!(check(key, 5).await.unwrap().blocked, "{zone} {at_us}");
            }
            limiter.record_blocked(id, "flooded", Uuid::now_v7(), 2, 5).await.unwrap();
            limiter.check(Check::new(zone, "quiet").cost(0).recorded()).await.unwrap();
            for cost in [2, 1, 3] {
                let told = async |key: &str| {
                    let told = check(key, cost).await.unwrap();
                    Decision { key: String::new(), txn_id: Uuid::nil(), ..told }
                };
                assert_eq!(told("flooded").await, told("quiet").await, "{zone} {at_us} {cost}");
            }
        }
    }
    db.assert_ledger_is_whole().await;
}

/// Nobody can make a bucket look attacked: memory answers only behind a check that was blocked, where a zone chose it.
pub async fn a_row_for_many_follows_a_blocked_check_of_a_zone_that_chose_it(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    clocked.set(START_US).await;
    let shadow = coalesced(log(5, 60)).with_mode(Mode::Shadow);
    for (zone, policy, costs) in [
        ("each", log(5, 60), &[5, 1][..]),
        ("free", coalesced(log(5, 60)), &[]),
        ("never", coalesced(log(5, 60)), &[6]),
        ("shadow", shadow, &[5, 1]),
    ] {
        let id = limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap().id;
        for &cost in costs {
            limiter.check(Check::new(zone, "42").cost(cost)).await.unwrap();
        }
        let before = db.rows().await;
        let refused = limiter.record_blocked(id, "42", Uuid::now_v7(), 1, 2_147_483_647).await.unwrap_err();
        assert!(
            refused.is_invalid() && refused.to_string().contains("2147483647 checks"),
            "{zone}: {refused}"
        );
        assert_eq!(db.rows().await, before, "{zone}");
    }
    let id = limiter.operator().set_zone("chosen", &coalesced(log(5, 7200)), None, "test").await.unwrap().id;
    for cost in [5, 1] {
        limiter.check(Check::new("chosen", "42").cost(cost)).await.unwrap();
    }
    // A check that memory answered before a change of policy was answered.
    limiter.operator().set_zone("chosen", &log(5, 7200), None, "test").await.unwrap();
    let minute_us = Duration::from_secs(60).as_micros() as i64;
    for (at_us, late) in [(0, false), (minute_us, false), (minute_us + 1, true)] {
        clocked.set(START_US + at_us).await;
        let recorded = limiter.record_blocked(id, "42", Uuid::now_v7(), 1, 9).await;
        assert_eq!(recorded.is_err_and(|error| error.is_invalid()), late, "{at_us}");
    }
    db.assert_ledger_is_whole().await;
}

pub async fn a_row_that_stands_for_no_check_is_refused(db: Db) {
    let clocked = Clocked::create(&db).await;
    let zone = clocked.limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    for checks in [0, u32::MAX] {
        let refused = clocked.limiter.record_blocked(zone.id, "42", Uuid::now_v7(), 1, checks).await;
        let refused = refused.unwrap_err();
        assert!(refused.is_invalid() && refused.to_string().contains(&checks.to_string()), "{refused}");
    }
    assert_eq!(db.rows().await, 0);
}
