//! Waiting in the caller, and passing unchecked while the database does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use tallygate::ledger::{History, Kind};
use tallygate::policy::OnOutage;
use tallygate::{Check, Config, Decision, Journal, Limiter, Policy, Reason};
use uuid::Uuid;

use crate::db::{Db, bucket, log};
use crate::locks::hold;
use crate::proxy::Proxy;
use crate::server::PATIENCE;

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
    let config = Config { waiters: 2, ..db.config() };
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
    decides_again(&limiter).await;
    // Some were decided, and only the answer was lost.
    let recorded = db.number("select count(*) from zone_txn where kind = 'unchecked' and cost = 2").await;
    let decided = db.number("select count(*) from zone_txn where kind = 'check' and cost = 2").await;
    assert!(recorded <= passed && recorded + decided >= passed, "{recorded} and {decided} of {passed}");
    assert_eq!(db.number("select count(*) from zone_txn where kind = 'unchecked' and spent > 0").await, 0);
    assert!(limiter.check(Check::new("open", "42").cost(2).txn(txn)).await.unwrap().replayed);
    db.assert_ledger_is_whole().await;
}

/// A connection that is refused, and a server that says nothing: nobody waits for a deadline, and after the first check nobody waits
/// for an answer.
pub async fn an_outage_is_known_to_the_next_check(db: Db) {
    let url = db.url_as(tallygate::schema::Role::App);
    for is_silent in [false, true] {
        let proxy = Proxy::before(&url).await;
        let address = proxy.address();
        let (journal, limiter, _folder) = with_room(&db, &proxy.url, 1 << 20).await;
        let proxy = if is_silent {
            proxy.hold_after(0);
            Some(proxy)
        } else {
            proxy.end().await;
            None
        };
        let check = |zone: &str, key: &str| Check::new(zone, key).deadline(Duration::from_secs(3_600));
        let mut passed = BTreeSet::new();
        let asked = async {
            for n in 0..200 {
                let decision = limiter.check(check("open", &n.to_string())).await.unwrap();
                let both = limiter.check_all(vec![check("open", "a"), check("open", "b")]).await.unwrap();
                assert!(
                    both.decisions.iter().chain([&decision]).all(|told| told.reason == Reason::Unchecked)
                );
                passed.extend([decision.txn_id, both.txn_id]);
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("nobody waits");
        // Of several limits all pass, or none.
        let mixed = ["open", "closed"].map(|zone| Check::new(zone, "a").deadline(SHORT));
        assert!(limiter.check_all(mixed.into()).await.unwrap_err().is_transient());
        let proxy = match proxy {
            Some(proxy) => {
                proxy.let_pass();
                proxy
            }
            None => Proxy::at(&address, &url).await,
        };
        decides_again(&limiter).await;
        while limiter.reconcile().await.is_err() || !journal.is_empty() {}
        let rows = rows_of(&db, &passed).await;
        assert_eq!(rows.len(), 600, "a row in each bucket, once");
        proxy.end().await;
    }
    db.assert_ledger_is_whole().await;
}

/// A server that is silent for longer than a check may take, and not for longer than it may take to say that it is there.
pub async fn a_check_is_tried_again_where_its_database_comes_back(db: Db) {
    let proxy = Proxy::before(&db.url_as(tallygate::schema::Role::App)).await;
    let (_, limiter, _folder) = with_room(&db, &proxy.url, 1 << 20).await;
    proxy.hold_after(0);
    let back = async {
        tokio::time::sleep(2 * SHORT).await;
        proxy.let_pass();
    };
    // It has failed before the database is asked for a sign: else its answer comes with that sign.
    let hasty = Check::new("open", "43").deadline(Duration::from_millis(50));
    let (asked, ()) = tokio::join!(limiter.check(hasty), back);
    assert!(asked.unwrap().is_allowed());
}

/// The database is gone for a while, and comes back: each check has its row, once, whatever its caller was told.
pub async fn each_check_has_its_row_once_whenever_the_database_goes(db: Db) {
    let url = db.url_as(tallygate::schema::Role::App);
    let proxy = Proxy::before(&url).await;
    let address = proxy.address();
    let (journal, limiter, _folder) = with_room(&db, &proxy.url, 1 << 30).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let callers = (0..16).map(|caller| {
        let (limiter, is_over) = (limiter.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut told = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let (txn, begun) = (Uuid::now_v7(), Instant::now());
                let check = |key: String| Check::new("open", key).txn(txn);
                let both = [caller, 16 + fastrand::u32(..4)].map(|key| check(key.to_string()));
                let decisions = match fastrand::bool() {
                    true => limiter.check_all(both.into()).await.map(|all| all.decisions),
                    false => limiter.check(check("all".to_owned())).await.map(|decision| vec![decision]),
                };
                told.push((txn, decisions, begun.elapsed()));
                // No more than are soon in the ledger.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            told
        })
    });
    let callers: Vec<_> = callers.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.end().await;
    tokio::time::sleep(Duration::from_secs(crate::rounds(3, 30) as u64)).await;
    let _proxy = Proxy::at(&address, &url).await;
    decides_again(&limiter).await;
    is_over.store(true, Ordering::Relaxed);
    let mut told = Vec::new();
    for caller in callers {
        told.extend(caller.await.unwrap());
    }
    while limiter.reconcile().await.is_err() || !journal.is_empty() {}

    let txns = told.iter().map(|(txn, ..)| *txn).collect();
    let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (txn, key, kind) in rows_of(&db, &txns).await {
        rows.entry((txn, key)).or_default().push(kind);
    }
    let (mut unchecked, mut times) = (0, Vec::new());
    for (txn, decisions, took) in told {
        // Without an answer it has a row or none.
        for decision in decisions.into_iter().flatten() {
            let kinds = rows.remove(&(txn, decision.key)).unwrap_or_default();
            assert_eq!(kinds.len(), 1, "{txn}: {kinds:?}");
            if decision.reason == Reason::Unchecked {
                unchecked += 1;
                times.push(took);
            } else {
                assert_eq!(kinds, [Kind::Check]);
            }
        }
    }
    assert!(unchecked > 0);
    assert!(rows.values().all(|kinds| kinds.len() == 1), "{rows:?}");
    times.sort();
    println!("{unchecked} passed unchecked; of 100, 99 took up to {:?}", times[times.len() * 99 / 100]);
    db.assert_ledger_is_whole().await;
}

/// Waits until the limiter knows that its database is there.
async fn decides_again(limiter: &Limiter) {
    let decided = async {
        let is_decided = |told: Decision| told.reason != Reason::Unchecked;
        while !limiter.check(Check::new("open", "back")).await.is_ok_and(is_decided) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, decided).await.expect("the database is found again");
}

/// The rows of these transactions.
async fn rows_of(db: &Db, txns: &BTreeSet<Uuid>) -> Vec<(Uuid, String, Kind)> {
    let (auditor, mut rows) = (db.limiter().await.auditor(), Vec::new());
    let mut history = History { zone: Some("open".to_owned()), limit: 1_000, ..History::default() };
    loop {
        let page = auditor.history(&history).await.unwrap();
        rows.extend(page.rows.into_iter().map(|row| (row.txn_id, row.key, row.kind)));
        history.before = page.next;
        if history.before.is_none() {
            rows.retain(|(txn, ..)| txns.contains(txn));
            return rows;
        }
    }
}

pub async fn no_deadline_is_too_long(db: Db) {
    let limiter = db.limiter_with(Config { deadline: Duration::MAX, ..Config::default() }).await;
    limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    for deadline in [None, Some(Duration::MAX)] {
        let check = Check::new("login", "42");
        let check = deadline.into_iter().fold(check, Check::deadline);
        assert!(limiter.check(check).await.unwrap().is_allowed());
    }
    assert!(limiter.check_until(Check::new("login", "7"), Duration::MAX).await.unwrap().is_allowed());
    assert_eq!(limiter.peek("login", "42").await.unwrap().remaining, 0);
    let txn = limiter.auditor().history(&History::default()).await.unwrap().rows[0].txn_id;
    limiter.auditor().explain(txn, 10).await.unwrap();
    limiter.refund(txn).await.unwrap();
}

/// A client that can make a bucket slow must not be able to open it.
pub async fn a_held_bucket_and_a_short_deadline_are_no_outage(db: Db) {
    let (journal, limiter, _folder) = with_journal(&db, &db.url_as(tallygate::schema::Role::App)).await;
    let mut holder = hold(&db, "42").await;
    let held = Check::new("open", "42").deadline(SHORT);
    assert!(limiter.check(held).await.unwrap_err().is_transient());
    holder.execute("rollback").await.unwrap();
    let hasty = Check::new("open", "42").deadline(Duration::ZERO);
    // Whether it was decided all the same or not.
    let unchecked = limiter.check(hasty).await.map(|decision| decision.reason == Reason::Unchecked);
    assert!(!unchecked.unwrap_or_else(|error| !error.is_transient()));
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
    with_room(db, url, 900).await
}

/// As [`with_journal`], with room for so many bytes in the journal.
async fn with_room(db: &Db, url: &str, most_bytes: u64) -> (Journal, Limiter, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("journal"), most_bytes).unwrap();
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
