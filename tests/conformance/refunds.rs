//! Giving back and settling: once, and only what was spent.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::ledger::Kind;
use tallygate::policy::{Limit, Override};
use tallygate::{Charged, Check, Policy, Recorded};
use uuid::Uuid;

use crate::db::{Clocked, Db, bucket, log};

pub async fn the_same_refund_from_sixteen_callers_happens_once(db: Db) {
    let limiter = db.limiter().await;
    for (zone, policy) in [("log", log(5, 3600)), ("bucket", bucket(1, 315_576_000, 5))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        let txn = Uuid::now_v7();
        limiter.check(Check::new(zone, "42").cost(3).txn(txn)).await.unwrap();
        let refunds = (0..16).map(|_| limiter.refund(txn));
        let told: Vec<Recorded> =
            join_all(refunds).await.into_iter().flat_map(|refund| refund.unwrap()).collect();
        assert_eq!(told.len(), 16);
        assert_eq!(told.iter().filter(|row| !row.replayed).count(), 1, "{zone}");
        assert!(
            told.iter()
                .all(|row| row.kind == Kind::Refund && row.cost == 3 && row.remaining == 5 && row.seq == 2)
        );
        assert_eq!(limiter.peek(zone, "42").await.unwrap().remaining, 5, "{zone}");
    }
    assert_eq!(db.rows().await, 4);
    db.assert_ledger_is_whole().await;
}

pub async fn what_cannot_be_given_back_is_refused_and_writes_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("other", &log(1, 3600), None, "test").await.unwrap();
    let slots = Policy::concurrency(2, Duration::from_secs(3600)).unwrap();
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    let txn = || Uuid::now_v7();
    let (spent, blocked, reserved, slot) = (txn(), txn(), txn(), txn());
    assert!(limiter.check(Check::new("login", "42").txn(spent)).await.unwrap().is_allowed());
    assert!(limiter.check(Check::new("login", "42").txn(blocked)).await.unwrap().blocked);
    let reservation = Check::new("other", "42").txn(reserved);
    assert!(limiter.reserve(reservation, Duration::from_secs(3600)).await.unwrap().is_allowed());
    assert!(limiter.check(Check::new("slots", "42").txn(slot)).await.unwrap().is_allowed());
    let rows = db.rows().await;

    let refused = async |charged: Charged, because: &str| {
        let error = limiter.refund(charged).await.unwrap_err();
        assert!(error.is_conflict() || error.is_invalid(), "{error}");
        assert!(error.to_string().contains(because), "{error} does not say {because:?}");
    };
    refused(Charged::by(txn()), "there is no transaction").await;
    refused(Charged::by(blocked), "was blocked").await;
    refused(Charged::by(spent).in_bucket("login", "43"), "was not decided in").await;
    refused(Charged::by(spent).in_bucket("other", "42"), "was not decided in").await;
    refused(Charged::by(reserved), "settle or cancel").await;
    refused(Charged::by(slot), "release").await;
    for (error, because) in [
        (limiter.settle(spent, 1).await.unwrap_err(), "is no reservation"),
        (limiter.cancel(spent).await.unwrap_err(), "is no reservation"),
        (limiter.release(spent).await.unwrap_err(), "holds no slot"),
        (limiter.settle(reserved, -1).await.unwrap_err(), "cost -1"),
    ] {
        assert!(error.to_string().contains(because), "{error} does not say {because:?}");
    }
    assert_eq!(db.rows().await, rows);
    limiter.settle(reserved, 1).await.unwrap();
    assert!(limiter.settle(reserved, 1).await.unwrap()[0].replayed);
    for error in [limiter.settle(reserved, 2).await, limiter.cancel(reserved).await] {
        assert!(error.unwrap_err().is_conflict());
    }
    assert_eq!(db.rows().await, rows + 1);
    db.assert_ledger_is_whole().await;
}

pub async fn a_refund_gives_back_in_every_bucket_that_was_charged_or_in_one(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["a", "b"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
    }
    let both = |txn| ["a", "b"].map(|zone| Check::new(zone, "42").txn(txn)).to_vec();
    let (everywhere, there) = (Uuid::now_v7(), Uuid::now_v7());
    limiter.check_all(both(everywhere)).await.unwrap();
    limiter.check_all(both(there)).await.unwrap();
    assert_eq!(limiter.refund(everywhere).await.unwrap().len(), 2);
    assert_eq!(limiter.refund(Charged::by(there).in_bucket("b", "42")).await.unwrap().len(), 1);
    assert_eq!(limiter.peek("a", "42").await.unwrap().remaining, 4);
    assert_eq!(limiter.peek("b", "42").await.unwrap().remaining, 5);
    // Of a slot and a charge, each ends in its own way.
    let slots = Policy::concurrency(2, Duration::from_secs(3600)).unwrap();
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    let mixed = Uuid::now_v7();
    let checks = ["slots", "a"].map(|zone| Check::new(zone, "43").txn(mixed)).to_vec();
    limiter.check_all(checks).await.unwrap();
    let released = limiter.release(mixed).await.unwrap();
    assert_eq!((released.len(), released[0].zone.as_str(), released[0].remaining), (1, "slots", 2));
    let refunded = limiter.refund(mixed).await.unwrap();
    assert_eq!((refunded.len(), refunded[0].zone.as_str(), refunded[0].remaining), (1, "a", 5));
    db.assert_ledger_is_whole().await;
}

/// By itself and exactly at its time: nobody does anything in between.
pub async fn a_reservation_ends_exactly_at_its_time_and_a_late_settlement_is_a_debt(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let start_us = 1_800_000_000_000_000;
    for (zone, policy) in [("log", log(10, 3600)), ("bucket", bucket(1, 315_576_000, 10))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        clocked.set(start_us).await;
        let txn = Uuid::now_v7();
        let reserved =
            limiter.reserve(Check::new(zone, "42").cost(7).txn(txn), Duration::from_secs(60)).await;
        let reserved = reserved.unwrap();
        assert_eq!(reserved.ends_at.unwrap().timestamp_micros(), start_us + 60_000_000);
        let blocked = limiter.check(Check::new(zone, "42").cost(5)).await.unwrap();
        assert_eq!(blocked.retry_after_us, Some(60_000_000), "{zone}");
        clocked.set(start_us + 59_999_999).await;
        assert_eq!(limiter.peek(zone, "42").await.unwrap().remaining, 3, "{zone}");
        clocked.set(start_us + 60_000_000).await;
        assert_eq!(limiter.peek(zone, "42").await.unwrap().remaining, 10, "{zone}");
        assert!(limiter.cancel(txn).await.unwrap_err().is_conflict());
        // All of it, since nothing is reserved any more; then more than was reserved.
        let settled = &limiter.settle(txn, 4).await.unwrap()[0];
        assert_eq!((settled.cost, settled.spent, settled.remaining), (4, 4, 6), "{zone}");
        let second = Uuid::now_v7();
        limiter.reserve(Check::new(zone, "42").cost(6).txn(second), Duration::from_secs(60)).await.unwrap();
        let settled = &limiter.settle(second, 9).await.unwrap()[0];
        assert_eq!((settled.cost, settled.spent, settled.remaining), (9, 3, 0), "{zone}");
        let blocked = limiter.check(Check::new(zone, "42")).await.unwrap();
        assert!(blocked.blocked && blocked.retry_after_us.is_some(), "{zone}: the debt is felt");
    }
    db.assert_ledger_is_whole().await;
}

pub async fn an_override_with_a_longer_window_knows_what_was_given_back(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    limiter.operator().set_zone("login", &log(5, 1), None, "test").await.unwrap();
    let (start_us, txn) = (1_800_000_000_000_000, Uuid::now_v7());
    clocked.set(start_us).await;
    limiter.check(Check::new("login", "42").cost(3).txn(txn)).await.unwrap();
    limiter.refund(txn).await.unwrap();
    clocked.set(start_us + 10_000_000).await;
    limiter.check(Check::new("login", "42")).await.unwrap();
    let limit = Limit::new(5, Duration::from_secs(60), None).unwrap();
    let over = Override { limit: Some(limit), ban_exempt: false, for_us: None };
    let recorded = limiter.operator().set_override("login", "42", over, "why", "who").await.unwrap();
    assert_eq!(recorded.remaining, 4);
    assert_eq!(limiter.peek("login", "42").await.unwrap().remaining, 4);
}
