//! Waiting in the caller, and passing unchecked while the database does not answer.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use tallygate::policy::OnOutage;
use tallygate::{Check, Config, Decision, Journal, Limiter, Policy, Reason};
use uuid::Uuid;

use crate::db::{Db, bucket, log};
use crate::locks::hold;
use crate::proxy::Proxy;

/// Ten who wait for tokens that come every 100 ms: all get theirs, in the order of their coming, and nobody asks while
/// another one of them waits.
pub async fn those_who_wait_pass_in_the_order_of_their_coming(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("api", &bucket(10, 1, 1), None, "test").await.unwrap();
    let wait = |_| Box::pin(limiter.check_until(Check::new("api", "42"), Duration::from_secs(60)));
    let mut waiters: Vec<_> = (0..10).map(wait).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter.as_mut()).is_pending());
    }
    let passed: Vec<_> = join_all(waiters).await.into_iter().map(Result::unwrap).collect();
    assert!(passed.iter().all(Decision::is_allowed));
    assert!(passed.is_sorted_by_key(|decision| decision.seq), "{passed:?}");
    let blocked = db.number("select count(*) from zone_txn where blocked").await;
    assert!(blocked <= 20, "{blocked} attempts for 10 who waited");
}

pub async fn who_waits_too_short_is_told_so_and_what_is_given_back_is_noticed(db: Db) {
    let config = Config { waiters: 2, ..Config::default() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let txn = Uuid::now_v7();
    limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
    let begun = Instant::now();
    let short = limiter.check_until(Check::new("login", "42"), Duration::from_millis(300)).await.unwrap();
    assert!(short.blocked && begun.elapsed() >= Duration::from_millis(300));
    let reservation = Check::new("login", "42").reserved_for(Duration::from_secs(60));
    let reserved = limiter.check_until(reservation, Duration::from_millis(1_200)).await.unwrap();
    assert!(reserved.blocked, "a look in between is no reservation");
    let named = Check::new("login", "42").txn(txn);
    assert!(limiter.check_until(named, Duration::from_secs(1)).await.unwrap_err().is_invalid());

    let mut patient = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let limiter = limiter.clone();
        let check = Check::new("login", "42");
        patient.spawn(async move { limiter.check_until(check, Duration::from_secs(60)).await });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let third = limiter.check_until(Check::new("login", "43"), Duration::from_secs(1)).await.unwrap_err();
    assert!(third.is_transient() && third.to_string().contains("2 checks wait already"), "{third}");
    let mut given_back = txn;
    while !patient.is_empty() {
        limiter.refund(given_back).await.unwrap();
        let passed = patient.join_next().await.unwrap().unwrap().unwrap();
        assert!(passed.is_allowed());
        given_back = passed.txn_id;
    }
}

/// The network loses every answer for a while.
pub async fn what_passes_unchecked_is_in_the_ledger_afterwards_once(db: Db) {
    let proxy = Proxy::before(&db.url_as(tallygate::schema::Role::App)).await;
    let (journal, limiter, _folder) = with_journal(&db, &proxy.url).await;
    let (txn, mut passed, mut refused) = (Uuid::now_v7(), 0, 0);
    proxy.cut_one_of(1);
    for n in 0..10 {
        let check = Check::new("open", "42").cost(2).deadline(SHORT);
        match limiter.check(if n == 0 { check.txn(txn) } else { check }).await {
            Ok(decision) => {
                assert!(
                    decision.is_allowed() && decision.reason == Reason::Unchecked && decision.seq.is_none()
                );
                passed += 1;
            }
            Err(error) => {
                assert!(
                    error.is_transient() && error.to_string().contains("the journal takes no more"),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert!(passed >= 5 && refused >= 1, "{passed} passed, {refused} were refused");
    assert!(limiter.check(Check::new("closed", "42").deadline(SHORT)).await.unwrap_err().is_transient());
    assert!(limiter.peek("open", "42").await.unwrap_err().is_transient(), "a look is nothing that passes");
    assert!(!journal.is_empty());
    proxy.cut_one_of(0);
    // The next answer brings them in; here by hand as well, to know when it is done.
    limiter.check(Check::new("closed", "43")).await.unwrap();
    while limiter.reconcile().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(journal.is_empty());
    assert_eq!(limiter.reconcile().await.unwrap(), 0);
    // Some were decided, and only the answer was lost.
    let recorded = db.number("select count(*) from zone_txn where kind = 'unchecked'").await;
    let decided = db.number("select count(*) from zone_txn where kind = 'check' and cost = 2").await;
    assert!(recorded <= passed && recorded + decided >= passed, "{recorded} and {decided} of {passed}");
    assert_eq!(db.number("select count(*) from zone_txn where kind = 'unchecked' and spent > 0").await, 0);
    assert!(limiter.check(Check::new("open", "42").cost(2).txn(txn)).await.unwrap().replayed);
    db.assert_ledger_is_whole().await;
}

/// A client that can make a bucket slow must not be able to open it.
pub async fn a_held_bucket_and_a_short_deadline_are_no_outage(db: Db) {
    let (journal, limiter, _folder) = with_journal(&db, &db.url_as(tallygate::schema::Role::App)).await;
    let mut holder = hold(&db, "42").await;
    let held = Check::new("open", "42").deadline(SHORT);
    assert!(limiter.check(held).await.unwrap_err().is_transient());
    holder.execute("rollback").await.unwrap();
    let hasty = Check::new("open", "42").deadline(Duration::ZERO);
    assert!(limiter.check(hasty).await.unwrap_err().is_transient());
    assert!(journal.is_empty());
}

/// Of a zone that this database does not have, or in which nothing passes unchecked: what is behind it gets through.
pub async fn what_the_ledger_refuses_for_good_is_kept_aside(db: Db) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let line = |zone: &str, key: &str| {
        let txn = Uuid::now_v7();
        format!(r#"{{"zone":"{zone}","key":"{key}","txn":"{txn}","cost":3,"at":"2026-01-01T00:00:00Z"}}"#)
            + "\n"
    };
    std::fs::write(&path, line("gone", "1") + &line("closed", "1") + &line("open", "2")).unwrap();
    let limiter = db.limiter().await;
    limiter.operator().set_zone("closed", &log(1, 3600), None, "test").await.unwrap();
    // A check that passed while it was open may come when it is open no more.
    limiter
        .operator()
        .set_zone("open", &log(1, 3600).with_on_outage(OnOutage::Open), None, "test")
        .await
        .unwrap();
    limiter.operator().set_zone("open", &log(1, 3600), None, "test").await.unwrap();
    let limiter = Limiter::clone(&limiter).with_journal(Journal::open(&path, 10_000).unwrap());
    assert_eq!(limiter.reconcile().await.unwrap(), 1);
    let refused = std::fs::read_to_string(folder.path().join("journal.refused")).unwrap();
    assert!(refused.contains(r#""zone":"gone""#) && refused.contains(r#""zone":"closed""#), "{refused}");
    assert_eq!(refused.lines().count(), 2, "{refused}");
    let noted =
        db.number("select count(*) from zone_txn where kind = 'unchecked' and cost = 3 and spent = 0").await;
    assert_eq!((db.rows().await, noted), (1, 1));
}

const SHORT: Duration = Duration::from_millis(300);

/// A limiter whose zone `open` is open on an outage and whose zone `closed` is not, and which knows both.
async fn with_journal(db: &Db, url: &str) -> (Journal, Limiter, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("journal"), 900).unwrap();
    let limiter = Limiter::connect(url).await.unwrap().with_journal(journal.clone());
    let (policy, operator) = (log(5, 3600), db.limiter().await);
    operator.operator().set_zone("open", &policy.with_on_outage(OnOutage::Open), None, "test").await.unwrap();
    operator.operator().set_zone("closed", &policy, None, "test").await.unwrap();
    for zone in ["open", "closed"] {
        limiter.check(Check::new(zone, "42")).await.unwrap();
    }
    (journal, limiter, folder)
}

/// A policy that nothing else of this file uses.
pub async fn a_leaky_queue_tells_each_caller_when_its_turn_is(db: Db) {
    let limiter = db.limiter().await;
    let policy =
        Policy::new(tallygate::policy::Algorithm::LeakyQueue, 1, Duration::from_secs(3600), Some(3)).unwrap();
    limiter.operator().set_zone("jobs", &policy, None, "test").await.unwrap();
    let mut turns = Vec::new();
    for _ in 0..3 {
        let decision = limiter.check(Check::new("jobs", "42")).await.unwrap();
        turns.push(decision.decided_at.timestamp_micros() + decision.delay_us.unwrap());
    }
    assert_eq!(turns[1] - turns[0], 3_600_000_000);
    assert_eq!(turns[2] - turns[1], 3_600_000_000);
    let full = limiter.check(Check::new("jobs", "42")).await.unwrap();
    assert!(full.blocked && full.delay_us.is_none() && full.retry_after_us.is_some());
}
