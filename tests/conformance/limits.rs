//! Several limits of one transaction: all pass, or none is spent from.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use tallygate::audit::verify::Verify;
use tallygate::policy::Mode;
use tallygate::{Check, Combined, Policy, Reason};
use uuid::Uuid;

use crate::db::{Db, bucket, log};
use crate::verify::verify;
use crate::{retries, rounds};

/// 200 callers, three zones each, 50 keys, in random order: no error, no limit exceeded, and nothing spent by a request
/// that was held back; and the ledger that they leave verifies clean.
pub async fn two_hundred_callers_of_three_limits_each_never_fail_and_never_exceed_one(db: Db) {
    let config = db.config();
    let retries = retries::so_far();
    let limiters = join_all((0..4).map(|_| db.limiter_with(config))).await;
    let policies = [
        ("by address", log(40, 36_000)),
        ("by user", bucket(1, 315_576_000, 60)),
        ("by card", Policy::fixed_window(50, Duration::from_secs(315_576_000)).unwrap()),
    ];
    for (zone, policy) in &policies {
        limiters[0].operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    let checks = rounds(2_000, 200_000);
    let left = Arc::new(AtomicUsize::new(checks));
    let callers = (0..200).map(|caller| {
        let (limiter, left) = (limiters[caller % limiters.len()].clone(), Arc::clone(&left));
        tokio::spawn(async move {
            let mut rng = Rng::with_seed(caller as u64);
            let one_less = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                let mut zones = ["by address", "by user", "by card"];
                rng.shuffle(&mut zones);
                let check = |zone| Check::new(zone, format!("key {}", rng.u8(..50))).cost(rng.i64(1..4));
                let checks: Vec<Check> = zones.map(check).into();
                let combined = limiter.check_all(checks).await.unwrap();
                assert_eq!(combined.decisions.len(), 3);
                assert_eq!(combined.blocked, combined.decisions.iter().all(|decision| decision.blocked));
                assert_eq!(combined.blocked, combined.binding.is_some());
            }
        })
    });
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    // Those of tests that ran beside it are among them.
    println!("{}: tried again at most {} times", db.engine, retries::so_far() - retries);
    for (zone, policy) in &policies {
        let above = format!(
            "select count(*) from zone_bucket_lock b join zone_master z on z.id = b.zone_id
             where z.name = '{zone}' and b.spent_total > {}",
            policy.limit()
        );
        assert_eq!(db.number(&above).await, 0, "{zone}");
    }
    // A transaction spent in all of its buckets or in none.
    let torn = "select count(*) from (
            select t.txn_id from zone_txn t group by t.txn_id
            having count(*) <> 3 or (sum(t.spent) > 0 and min(t.spent) = 0)
        ) torn";
    assert_eq!(db.number(torn).await, 0);
    let rows = 3 * checks;
    assert_eq!(db.rows().await as usize, rows);
    db.assert_ledger_is_whole().await;
    let (verified, faults) = verify(&limiters[0], &Verify::default()).await;
    assert_eq!((verified.rows, faults), (rows as u64, vec![]));
}

pub async fn the_binding_limit_is_named_and_what_it_holds_back_spends_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("minute", &log(2, 60), None, "test").await.unwrap();
    limiter.operator().set_zone("hour", &log(3, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("shadow", &log(1, 3600).with_mode(Mode::Shadow), None, "test").await.unwrap();
    let ask = async |cost| {
        let checks = vec![
            Check::new("minute", "42").cost(cost),
            Check::new("shadow", "42"),
            Check::new("hour", "42").cost(cost),
        ];
        limiter.check_all(checks).await.unwrap()
    };
    let reasons = |combined: &Combined| combined.decisions.iter().map(|d| d.reason).collect::<Vec<_>>();
    let first = ask(1).await;
    assert!(first.is_allowed() && first.binding.is_none() && first.retry_after_us.is_none());
    let second = ask(1).await;
    assert!(second.is_allowed(), "a shadowed zone holds nothing back");
    assert_eq!(reasons(&second), [Reason::WithinLimit, Reason::OverLimit, Reason::WithinLimit]);
    assert!(!second.decisions[1].blocked && second.decisions[1].is_shadowed());
    let third = ask(1).await;
    assert_eq!(third.binding.as_deref(), Some("minute"));
    assert_eq!(reasons(&third), [Reason::OverLimit, Reason::OverLimit, Reason::HeldBack]);
    assert_eq!(third.retry_after_us, third.decisions[0].retry_after_us);
    assert_eq!((third.decisions[2].remaining, third.decisions[2].retry_after_us), (1, None));
    // Both block: the longer wait binds.
    let both = ask(2).await;
    assert_eq!(both.binding.as_deref(), Some("hour"));
    // A check that never passes binds before one that does.
    let never = limiter.check_all(vec![Check::new("hour", "42").cost(2), Check::new("minute", "42").cost(3)]);
    let never = never.await.unwrap();
    assert_eq!((never.binding.as_deref(), never.retry_after_us), (Some("minute"), None));
    assert!(never.never_passes() && !both.never_passes() && !first.never_passes());
    let spent = "select count(*) from (select sum(spent) as spent from zone_txn) t where t.spent = 5";
    assert_eq!(db.number(spent).await, 1, "2 of the minute, 2 of the hour, 1 of what only shadows");
    db.assert_ledger_is_whole().await;
}

pub async fn a_request_of_several_limits_is_decided_once(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["a", "b", "c"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
    }
    let txn = Uuid::now_v7();
    let checks = |zones: &[&str], cost| -> Vec<Check> {
        zones.iter().map(|zone| Check::new(*zone, "42").cost(cost).txn(txn)).collect()
    };
    let same = (0..8).map(|_| limiter.check_all(checks(&["a", "b"], 2)));
    let answers: Vec<Combined> = join_all(same).await.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(Combined::is_allowed));
    assert_eq!(answers.iter().filter(|answer| !answer.decisions[0].replayed).count(), 1);
    assert_eq!(db.rows().await, 2);
    for (zones, cost) in [(&["a", "b"][..], 3), (&["a", "b", "c"], 2), (&["c", "a"], 2)] {
        let error = limiter.check_all(checks(zones, cost)).await.unwrap_err();
        assert!(error.is_conflict(), "{error}");
    }
    assert_eq!(db.rows().await, 2);
    let twice = vec![Check::new("a", "42"), Check::new("a", "42")];
    let error = limiter.check_all(twice).await.unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("named twice"), "{error}");
    let two = vec![Check::new("a", "1").txn(txn), Check::new("b", "1").txn(Uuid::now_v7())];
    assert!(limiter.check_all(two).await.unwrap_err().is_invalid());
    assert!(limiter.check_all(vec![Check::new("a", "1"), Check::new("nowhere", "1")]).await.is_err());
    assert_eq!(db.rows().await, 2);
}
