//! The back-test of what a database recorded.

use std::time::Duration;

use tallygate::backtest::Backtest;
use tallygate::decide::Ask;
use tallygate::ledger::History;
use tallygate::policy::Algorithm;
use tallygate::{Check, Policy};

use crate::db::{Db, log};
use crate::program;

pub async fn the_policy_that_decided_finds_in_the_ledger_what_it_decided(db: Db) {
    let limiter = db.limiter().await;
    for algorithm in [Algorithm::SlidingLog, Algorithm::TokenBucket, Algorithm::SlidingCounter] {
        let policy = Policy::new(algorithm, 20, Duration::from_millis(300), None).unwrap();
        let zone = algorithm.as_str();
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        for n in 0..30 {
            let check = |k: i64| Check::new(zone, format!("key {}", k % 3)).cost(1 + k % 2);
            limiter.check_many((n..n + 8).map(check).collect()).await.unwrap();
        }
        let mut test = Backtest::new(policy).unwrap();
        let oldest_first =
            History { zone: Some(zone.to_owned()), oldest_first: true, limit: 7, ..History::default() };
        let mut history = oldest_first.clone();
        let mut rows = Vec::new();
        loop {
            let page = limiter.auditor().history(&history).await.unwrap();
            rows.extend(page.rows);
            match page.next {
                Some(next) => history.before = Some(next),
                None => break,
            }
        }
        assert_eq!(rows.len(), 240);
        assert!(rows.is_sorted_by_key(|row| (row.decided_at, row.id)), "oldest first");
        for row in &rows {
            let ask = Ask { cost: row.cost, ..Ask::default() };
            let outcome = test.check(&row.key, &ask, row.decided_at.timestamp_micros()).unwrap();
            assert_eq!((outcome.reason, outcome.remaining), (row.reason, row.remaining), "{row:?}");
            assert_eq!(outcome.retry_after_us, row.retry_after_us, "{row:?}");
        }
        let blocked = rows.iter().filter(|row| row.blocked).count() as u64;
        assert_eq!((test.report(0).blocked, test.report(0).late), (blocked, 0));

        let key = History { key: Some("key 1".into()), ..oldest_first.clone() };
        for refused in [key, History { zone: None, ..oldest_first }] {
            let error = limiter.auditor().history(&refused).await.unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains("name a zone"), "{error}");
        }
    }
}

pub async fn the_command_tests_another_policy_on_recorded_checks(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["login", "other"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
    }
    // More than a page, refunds among them.
    let mut recorded_blocked = 0;
    for _ in 0..12 {
        let checks = (0..100).map(|n| Check::new("login", format!("user {}", n % 100))).collect();
        let decisions = limiter.check_many(checks).await.unwrap();
        recorded_blocked += decisions.iter().filter(|decision| decision.blocked).count();
        if decisions[0].is_allowed() {
            limiter.refund(decisions[0].txn_id).await.unwrap();
        }
        limiter.check(Check::new("other", "user 0")).await.unwrap();
    }
    for (rate, allowed, blocked_keys) in [("5", 500, 100), ("11", 1_100, 100), ("12", 1_200, 0)] {
        let mut command = program::tallygate(&db.url);
        command.args([
            "backtest",
            "--from-ledger",
            "login",
            "--per",
            "1h",
            "--format",
            "json",
            "--rate",
            rate,
        ]);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let [in_force, report] = [&reports[0], &reports[1]];
        // Its refunds are not played.
        assert_eq!((&in_force["name"], &in_force["allowed"]), (&"in force".into(), &500.into()));
        assert_eq!(in_force["recorded_blocked"], recorded_blocked);
        assert_eq!(report["freed"]["checks"], allowed - 500);
        assert_eq!((&report["allowed"], &report["blocked"]), (&allowed.into(), &(1_200 - allowed).into()));
        assert_eq!((&report["keys"], &report["blocked_keys"]), (&100.into(), &blocked_keys.into()));
    }
    db.assert_ledger_is_whole().await;
}
