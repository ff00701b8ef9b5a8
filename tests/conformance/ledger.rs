//! Decisions can be looked up.

use std::collections::HashSet;
use std::time::Duration;

use chrono::Utc;
use tallygate::ledger::{Cursor, History};
use tallygate::policy::{BanRule, CalendarUnit};
use tallygate::{Check, Policy};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::db::{Db, bucket, log};

pub async fn history_pages_through_every_row_once(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["a", "b"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
        for n in 0..23 {
            limiter.check(Check::new(zone, format!("key {}", n % 2))).await.unwrap();
        }
    }
    let of = |zone: Option<&str>, key: Option<&str>| History {
        zone: zone.map(str::to_owned),
        key: key.map(str::to_owned),
        limit: 5,
        ..History::default()
    };
    for (history, count) in
        [(of(None, None), 46), (of(Some("a"), None), 23), (of(Some("b"), Some("key 1")), 11)]
    {
        let mut before: Option<Cursor> = None;
        let mut rows = Vec::new();
        loop {
            let page = limiter.auditor().history(&History { before, ..history.clone() }).await.unwrap();
            rows.extend(page.rows);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(rows.len(), count, "{history:?}");
        assert_eq!(rows.iter().map(|row| row.id).collect::<HashSet<_>>().len(), count);
        assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse((row.decided_at, row.id))), "newest first");
    }
}

pub async fn history_filters_by_zone_key_txn_outcome_and_time(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("a", &log(2, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("b", &log(2, 3600), None, "test").await.unwrap();
    let txn = Uuid::now_v7();
    for (zone, key) in [("a", "x"), ("a", "y"), ("b", "x")] {
        for _ in 0..3 {
            limiter.check(Check::new(zone, key)).await.unwrap();
        }
        limiter.check(Check::new(zone, key).txn(txn)).await.unwrap();
    }
    let all = limiter.auditor().history(&History::default()).await.unwrap().rows;
    assert_eq!(all.len(), 12);
    let count = async |history: History| limiter.auditor().history(&history).await.unwrap().rows.len();
    let (zone, key) = (Some("a".to_owned()), Some("x".to_owned()));
    assert_eq!(count(History { zone: zone.clone(), ..Default::default() }).await, 8);
    assert_eq!(count(History { zone: zone.clone(), key: key.clone(), ..Default::default() }).await, 4);
    assert_eq!(count(History { key: key.clone(), ..Default::default() }).await, 8);
    assert_eq!(count(History { key: key.clone(), blocked: Some(true), ..Default::default() }).await, 4);
    assert_eq!(count(History { txn: Some(txn), ..Default::default() }).await, 3);
    assert_eq!(count(History { txn: Some(txn), zone: zone.clone(), ..Default::default() }).await, 2);
    assert_eq!(count(History { txn: Some(txn), key: key.clone(), ..Default::default() }).await, 2);
    assert_eq!(count(History { blocked: Some(true), ..Default::default() }).await, 6);
    assert_eq!(count(History { blocked: Some(false), zone, ..Default::default() }).await, 4);
    let at = all[4].decided_at;
    let since = all.iter().filter(|row| row.decided_at >= at).count();
    assert_eq!(count(History { since: Some(at), ..Default::default() }).await, since);
    assert_eq!(count(History { until: Some(at), ..Default::default() }).await, 12 - since);
    assert_eq!(
        count(History { since: Some(Utc::now() + chrono::TimeDelta::hours(1)), ..Default::default() }).await,
        0
    );

    for key in ["xä%_", "xä%_1", "xäb"] {
        limiter.check(Check::new("b", key)).await.unwrap();
    }
    let keys = async |prefix: &str| {
        let history = History::default().zone("b").key_prefix(prefix);
        let rows = limiter.auditor().history(&history).await.unwrap().rows;
        rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("xä%").await, ["xä%_1", "xä%_"], "the newest first, and no pattern");
    assert_eq!(keys("x").await.len(), 4 + 3);
    assert_eq!(keys("X").await, [""; 0]);
    let near = limiter.auditor().near(Some("b"), "Ä%").await.unwrap();
    assert_eq!(near, ["xä%_", "xä%_1"].map(|key| ("b".to_owned(), key.to_owned())));

    let row = all.iter().find(|row| row.zone == "b" && row.seq == 3).unwrap();
    assert!(row.blocked && row.cost == 1 && row.spent == 0 && row.spent_total == 2 && row.remaining == 0);
    assert!(row.retry_after_us.is_some_and(|us| us > 0));
    assert_eq!((row.key.as_str(), row.kind.as_str(), row.reason.as_str()), ("x", "check", "over_limit"));
}

pub async fn a_peek_leaves_no_row_unless_asked(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("log", &log(3, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("bucket", &bucket(1, 315_576_000, 3), None, "test").await.unwrap();
    for zone in ["log", "bucket"] {
        let peek = limiter.peek(zone, "42").await.unwrap();
        assert_eq!((peek.remaining, peek.blocked, peek.seq), (3, false, None));
        limiter.check(Check::new(zone, "42").cost(2)).await.unwrap();
        assert_eq!(limiter.peek(zone, "42").await.unwrap().remaining, 1);
        let recorded = limiter.check(Check::new(zone, "42").cost(0).recorded()).await.unwrap();
        assert_eq!((recorded.remaining, recorded.seq), (1, Some(2)));
    }
    assert_eq!(db.rows().await, 4);
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 2);
}

pub async fn a_zone_keeps_every_version_and_no_empty_one(db: Db) {
    let limiter = db.limiter().await;
    let first = limiter.operator().set_zone("login", &log(5, 60), Some("logins"), "alice").await.unwrap();
    assert_eq!(
        limiter.operator().set_zone("login", &log(5, 60), None, "bob").await.unwrap(),
        first,
        "nothing changed"
    );
    limiter.check(Check::new("login", "42").cost(5)).await.unwrap();
    let second = limiter.operator().set_zone("login", &log(6, 60), None, "carol").await.unwrap();
    assert_eq!((second.id, second.version, second.description.as_str()), (first.id, 2, "logins"));
    let decision = limiter.check(Check::new("login", "42")).await.unwrap();
    assert!(decision.is_allowed(), "the history is judged by the new policy");
    assert_eq!((decision.zone_version, decision.limit), (2, 6));
    let third =
        limiter.operator().set_zone("login", &bucket(1, 60, 9), Some("now a bucket"), "dave").await.unwrap();
    let versions = limiter.operator().zone_versions(&third).await.unwrap();
    let seen: Vec<_> =
        versions.iter().map(|v| (v.version, v.changed_by.as_str(), v.description.as_str())).collect();
    assert_eq!(seen, [(1, "alice", "logins"), (2, "carol", "logins"), (3, "dave", "now a bucket")]);
    assert!(versions.is_sorted_by_key(|v| v.changed_at));
    assert_eq!(versions[2].policy, bucket(1, 60, 9));
    assert_eq!(limiter.operator().zones().await.unwrap(), std::slice::from_ref(&third));
    assert_eq!(limiter.operator().zone("login").await.unwrap(), Some(third));
    assert_eq!(limiter.operator().zone("logins").await.unwrap(), None);
}

/// A program asks for a policy once, and again when it has met a later one, whichever way it checked.
pub async fn the_policy_in_force_is_known_and_renewed(db: Db) {
    let limiter = db.limiter().await;
    let other = db.limiter().await;
    let ban = Some(BanRule::new(3, Duration::from_secs(60), Duration::from_secs(600)));
    let full = Policy::sliding_counter(60, Duration::from_secs(60), 6).unwrap();
    let mut policy = full.with_ban(ban).with_soft_rate(Some(50)).with_reserve(5);
    limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
    assert_eq!(limiter.policy("login").await.unwrap(), (1, policy));
    let month = Policy::calendar(7, CalendarUnit::Month, "Europe/Paris".parse().unwrap()).unwrap();
    limiter.operator().set_zone("month", &month, None, "test").await.unwrap();
    assert_eq!(limiter.policy("month").await.unwrap(), (1, month));
    assert!(limiter.policy("nothing").await.unwrap_err().is_unknown_zone());
    for way in 0..4 {
        let known = limiter.policy("login").await.unwrap();
        policy = log(10 + way, 60);
        other.operator().set_zone("login", &policy, None, "test").await.unwrap();
        assert_eq!(limiter.policy("login").await.unwrap(), known, "remembered");
        let checks = vec![Check::new("login", "42"), Check::new("month", "42")];
        match way {
            0 => drop(limiter.check_many(checks).await.unwrap()),
            1 => drop(limiter.check_all(checks).await.unwrap()),
            2 => drop(limiter.peek("login", "42").await.unwrap()),
            _ => drop(limiter.check(Check::new("login", "42")).await.unwrap()),
        }
        let renewed = Instant::now() + Duration::from_secs(10);
        while limiter.policy("login").await.unwrap() != (2 + way as i32, policy) {
            assert!(Instant::now() < renewed, "{:?}", limiter.policy("login").await);
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A caller that decides beside the write lock cannot write what was decided.
pub async fn a_row_that_does_not_follow_its_buckets_head_is_refused(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    limiter.check_many(vec![Check::new("login", "42"); 2]).await.unwrap();
    let mut connection = db.connect().await;
    for (key, seq) in [("42", 1), ("42", 2), ("42", 4), ("43", 0), ("43", 2)] {
        let row = format!(
            "insert into zone_txn (
                txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total,
                remaining, zone_limit, created_at, row_hash
            )
            select randomblob(16), zone_id, zone_version, '{key}', {seq}, kind, blocked, reason, cost, spent,
                spent_total, remaining, zone_limit, created_at + 1, row_hash
            from zone_txn
            where seq = 2"
        );
        assert!(connection.execute(&row).await.is_err(), "row {seq} of {key}");
    }
    assert_eq!(db.rows().await, 2);
    assert_eq!(limiter.check(Check::new("login", "42")).await.unwrap().seq, Some(3));
}
