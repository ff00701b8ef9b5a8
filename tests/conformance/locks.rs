//! P8 and the lock protocol: each rule has a test that fails when the rule is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use tallygate::audit::verify::Verify;
use tallygate::policy::Override;
use tallygate::{Check, Config, Isolation, Limiter};
use uuid::Uuid;

use crate::db::{Connected, Db, Engine, bucket, connected, log, told};
use crate::proxy::Proxy;
use crate::rounds;
use crate::verify::verify;

/// Holds the bucket as a paused client would. On SQLite that holds the whole file.
pub async fn hold(db: &Db, key: &str) -> Connected {
    let mut holder = db.connect().await;
    holder.begin().await;
    if db.engine != Engine::Sqlite {
        let sql =
            format!("select seq from zone_bucket_lock where zone_id = 1 and bucket_key = '{key}' for update");
        holder.number(&sql).await;
    }
    holder
}

pub async fn a_held_bucket_delays_no_other_and_its_waiters_end_at_their_deadline(db: Db) {
    held(&db, Isolation::RowLock).await;
}

pub async fn a_held_bucket_delays_no_other_when_serializable(db: Db) {
    held(&db, Isolation::Serializable).await;
}

async fn held(db: &Db, isolation: Isolation) {
    let config = Config { isolation, connections: 4, ..db.config() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("login", &log(100, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "held")).await.unwrap();
    let mut holder = hold(db, "held").await;

    // Many more waiters than connections.
    let txns: Vec<Uuid> = (0..40).map(|_| Uuid::now_v7()).collect();
    // Half of them alone, half in batches with a bucket of their own.
    let waiters: Vec<_> = txns
        .iter()
        .enumerate()
        .map(|(n, &txn)| {
            let limiter = limiter.clone();
            // Longer than the checks of the others take on a slow machine.
            let check = Check::new("login", "held").txn(txn).deadline(Duration::from_secs(20));
            let checks =
                if n % 2 == 0 { vec![check] } else { vec![Check::new("login", format!("own {n}")), check] };
            tokio::spawn(async move { limiter.check_many(checks).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    for n in 0..30 {
        limiter.check(Check::new("login", format!("other {n}"))).await.unwrap();
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "30 others passed while 40 waited");
    for result in join_all(waiters).await {
        let error = result.unwrap().unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(error.to_string().contains("transaction"), "{error}");
    }
    // MySQL waits in whole seconds: give the server the second that it may need, and some more.
    tokio::time::sleep(Duration::from_secs(3)).await;
    holder.execute("rollback").await.unwrap();

    // No lock is left: the row is had at once.
    let mut next = db.connect().await;
    next.begin().await;
    let nowait =
        "select seq from zone_bucket_lock where zone_id = 1 and bucket_key = 'held' for update nowait";
    assert_eq!(next.try_number(nowait).await.unwrap(), 1, "none of the waiters was decided");
    next.execute("rollback").await.unwrap();
    // Asking again decides what had not been, once each.
    for txn in txns {
        let decision = limiter.check(Check::new("login", "held").txn(txn)).await.unwrap();
        assert!(decision.is_allowed() && !decision.replayed);
    }
    assert_eq!(db.rows().await, 1 + 30 + 40);
    db.assert_ledger_is_whole().await;
}

pub async fn a_dropped_call_leaves_no_lock_and_its_txn_tells_what_became_of_it(db: Db) {
    let config = Config { connections: 2, ..db.config() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("login", &log(100_000, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();

    // While it waits for the lock: what the server finishes later is found by the txn.
    let mut holder = hold(&db, "42").await;
    let txn = Uuid::now_v7();
    let call = limiter.check(Check::new("login", "42").txn(txn));
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    holder.execute("rollback").await.unwrap();
    let decision = limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
    assert!(decision.replayed, "the server had finished what the caller had left");

    // At any moment: nothing is stuck, and each txn is in the ledger at most once.
    let mut rng = Rng::with_seed(1);
    let txns: Vec<Uuid> = (0..rounds(200, 2000)).map(|_| Uuid::now_v7()).collect();
    for &txn in &txns {
        let call = limiter.check(Check::new("login", "42").txn(txn));
        tokio::time::timeout(Duration::from_micros(rng.u64(0..3000)), call).await.ok();
    }
    for &txn in &txns {
        limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
    }
    assert_eq!(db.rows().await as usize, 2 + txns.len());
    db.assert_ledger_is_whole().await;
}

/// A decision of the engine is of the time when it was asked: where nobody else was faster, that holds whenever it
/// is appended.
pub async fn the_clock_is_read_after_the_lock_is_held(db: Db) {
    while_held(&db, async |_, mut holder, waiting| {
        let now = match db.engine {
            Engine::Postgres => "select (extract(epoch from clock_timestamp()) * 1000000)::bigint",
            _ => "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
        };
        let released_us = db.number(now).await;
        holder.execute("rollback").await.unwrap();
        for decision in waiting.await {
            let decided_us = decision.decided_at.timestamp_micros();
            assert!(decided_us > released_us - 2_000_000, "decided before the lock was had");
        }
    })
    .await;
}

pub async fn the_policy_is_read_after_the_lock_is_held(db: Db) {
    while_held(&db, async |limiter, mut holder, waiting| {
        limiter.operator().set_zone("login", &log(7, 3600), None, "test").await.unwrap();
        holder.execute("rollback").await.unwrap();
        for decision in waiting.await {
            assert_eq!((decision.zone_version, decision.limit), (2, 7));
        }
    })
    .await;
}

/// An override waits for its row, while the zone gets another policy.
pub async fn an_act_goes_by_one_policy_to_its_end(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(30, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    let (mut holder, mut watcher) = (db.connect().await, db.connect().await);
    holder.execute("start transaction").await.unwrap();
    holder.texts("select 'none' from zone_override where zone_id = 1 for update").await;
    let operator = limiter.operator();
    let exempt = tokio::spawn(async move {
        let own = Override { limit: None, ban_exempt: true, for_us: None };
        operator.set_override("login", "42", own, "why", "who").await
    });
    db.wait_for_a_lock_wait(&mut watcher).await;
    limiter.operator().set_zone("login", &log(20, 3600), None, "test").await.unwrap();
    holder.execute("rollback").await.unwrap();
    exempt.await.unwrap().unwrap();
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!(faults, []);
}

/// A first attempt that lost its caller may still wait for the lock when the second one is decided.
pub async fn a_late_first_attempt_finds_what_the_second_one_decided(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    let txn = Uuid::now_v7();
    let mut second = hold(&db, "42").await;
    let first = match db.engine {
        Engine::Postgres => format!("select zone_check(1, '42', '{txn}')"),
        _ => format!("call zone_check(1, '42', unhex('{}'), 1, false, 10)", txn.simple()),
    };
    let mut session = db.connect().await;
    let first = tokio::spawn(async move { session.execute(&first).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!first.is_finished(), "it waits");
    limiter.check_in(second.joined(), Check::new("login", "42").txn(txn)).await.unwrap();
    second.execute("commit").await.unwrap();
    first.await.unwrap();
    assert_eq!(db.rows().await, 2, "one row for the transaction");
}

/// The last limiter may go when its runtime has gone.
pub async fn a_limiter_may_be_dropped_without_a_runtime(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let url = db.url_as(tallygate::schema::Role::App);
    let dropped = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let limiter = runtime.block_on(async {
            let limiter = connected(&url).await;
            let checks = (0..4).map(|n| limiter.check(Check::new("login", n.to_string())));
            assert!(join_all(checks).await.iter().all(Result::is_ok));
            limiter
        });
        drop(runtime);
        drop(limiter);
    });
    tokio::task::spawn_blocking(|| dropped.join().unwrap()).await.unwrap();
}

/// A cleaner may remove the row that somebody waits for; the waiter must end up with a row that it holds.
pub async fn a_row_that_vanishes_while_one_waits_is_made_again(db: Db) {
    let limiter = db.limiter_with(Config { attempts: 1, ..db.config() }).await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    for (key, batch) in [("one", 1), ("many", 2)] {
        let key_and_other = [key, "other"];
        db.execute(&format!(
            "insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash) values (1, '{key}', '{}', '{}')",
            "s".repeat(16),
            "h".repeat(32)
        ))
        .await;
        let mut holder = hold(&db, key).await;
        let limiter = limiter.clone();
        let checks: Vec<_> = key_and_other[..batch].iter().map(|key| Check::new("login", *key)).collect();
        let waiting = tokio::spawn(async move { limiter.check_many(checks).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(300)).await;
        holder
            .execute(&format!("delete from zone_bucket_lock where zone_id = 1 and bucket_key = '{key}'"))
            .await
            .unwrap();
        holder.execute("commit").await.unwrap();
        assert_eq!(waiting.await.unwrap()[0].seq, Some(1));
    }
    db.assert_ledger_is_whole().await;
}

/// Starts a check alone and one in a batch that both wait for a held bucket, then goes on.
async fn while_held(
    db: &Db,
    then: impl AsyncFnOnce(
        Limiter,
        Connected,
        std::pin::Pin<Box<dyn Future<Output = Vec<tallygate::Decision>> + Send>>,
    ),
) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    for key in ["42", "other"] {
        limiter.check(Check::new("login", key)).await.unwrap();
    }
    let holder = hold(db, "42").await;
    // Another limiter's gate: both wait in the database, and a call of plain SQL beside them.
    let (one, many) = (limiter.clone(), db.limiter().await);
    let mut sql = db.connect_as(tallygate::schema::Role::App).await;
    let velocity = match db.engine {
        Engine::Postgres => "select blocked from check_velocity(1, '42')",
        _ => "call check_velocity(1, '42')",
    };
    let velocity = tokio::spawn(async move { sql.number(velocity).await });
    let one = tokio::spawn(async move { one.check(Check::new("login", "42")).await.unwrap() });
    let batch = ["other", "42"].map(|key| Check::new("login", key)).to_vec();
    let many = tokio::spawn(async move { many.check_many(batch).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!one.is_finished() && !many.is_finished(), "both wait");
    let waiting = async move {
        let mut decisions = many.await.unwrap();
        decisions.push(one.await.unwrap());
        assert_eq!(velocity.await.unwrap(), 0, "plain SQL is answered too");
        decisions
    };
    then(limiter, holder, Box::pin(waiting)).await;
}

pub async fn batches_with_overlapping_buckets_never_deadlock(db: Db) {
    // One attempt: a deadlock would reach the caller.
    let config = Config { connections: 16, attempts: 1, ..db.config() };
    let limiter = db.limiter_with(config).await;
    for zone in ["a", "b"] {
        limiter.operator().set_zone(zone, &log(1_000_000, 3600), None, "test").await.unwrap();
    }
    let calls = (0..16).map(|client| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut rng = Rng::with_seed(client);
            for round in 0..rounds(40, 1000) {
                // Some of the buckets are new, and new to several callers at once.
                let checks = (0..4).map(|_| {
                    let zone = rng.choice(["a", "b"]).unwrap();
                    Check::new(zone, format!("{} {}", round / 4, rng.u8(..6)))
                });
                let checks: Vec<_> = checks.collect();
                limiter.check_many(checks).await.unwrap();
            }
        })
    });
    join_all(calls).await.into_iter().for_each(Result::unwrap);
    assert_eq!(db.rows().await as usize, 16 * 4 * rounds(40, 1000));
    db.assert_ledger_is_whole().await;
}

/// Sessions are ended by their server at any moment, and what it answered is lost on its way: then the commit
/// has happened and nobody was told.
pub async fn a_lost_connection_at_commit_is_decided_once(db: Db) {
    for isolation in [Isolation::RowLock, Isolation::Serializable] {
        let config = Config { isolation, ..db.config() };
        let proxy = Proxy::before(&db.url_of_own_sessions(tallygate::schema::Role::App)).await;
        let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
        let zone = format!("{isolation:?}");
        db.limiter().await.operator().set_zone(&zone, &log(100, 3600), None, "test").await.unwrap();
        let (ending, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let callers = (0..16).map(|caller: usize| {
            let (limiter, zone) = (limiter.clone(), zone.clone());
            let (ending, answered) = (Arc::clone(&ending), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                let mut call = caller;
                while !ending.load(Ordering::Relaxed) {
                    let check = |key: usize| Check::new(&zone, format!("key {}", key % 6));
                    // Under the caller's own id, under one that is made for it, and several at once.
                    let checks = match call % 3 {
                        0 => vec![check(call).txn(Uuid::now_v7())],
                        1 => vec![check(call)],
                        _ => vec![check(call), check(call + 1).txn(Uuid::now_v7())],
                    };
                    let named: Vec<_> = checks.iter().map(|check| check.txn_id().is_some()).collect();
                    let decisions = limiter.check_many(checks).await.unwrap();
                    let lost = decisions.iter().zip(named).any(|(told, named)| told.replayed && !named);
                    assert!(!lost, "an id that was made for this call was decided before: {decisions:?}");
                    answers.extend(decisions.iter().map(told));
                    answered.fetch_add(1, Ordering::Relaxed);
                    call += 1;
                }
                answers
            })
        });
        let callers: Vec<_> = callers.collect();
        proxy.cut_one_of(20);
        let mut killer = db.connect().await;
        let mut killed = 0;
        while killed < rounds(60, 300) {
            // Not faster than sessions are made, or nobody would ever be answered.
            let (enough, since) = (answered.load(Ordering::Relaxed) + 2, Instant::now());
            while answered.load(Ordering::Relaxed) < enough {
                assert!(since.elapsed() < Duration::from_secs(60), "nobody is answered");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            killed += usize::from(db.kill_a_session(&mut killer).await);
        }
        proxy.cut_one_of(0);
        ending.store(true, Ordering::Relaxed);
        let answers = join_all(callers).await.into_iter().map(Result::unwrap).collect::<Vec<_>>().concat();

        assert!(proxy.cuts() > killed / 20, "{} cuts, {killed} sessions ended", proxy.cuts());
        db.assert_ledger_says(&zone, &answers).await;
        let sql = "select count(*) from zone_txn where zone_id = (select max(id) from zone_master)";
        assert_eq!(db.number(sql).await as usize, answers.len(), "{zone}: a row for each check, no other");
    }
    db.assert_first_come(100).await;
    db.assert_ledger_is_whole().await;
}

/// A procedure that fails after it took locks must not leave them with the session.
pub async fn a_failed_call_gives_its_locks_back(db: Db) {
    let limiter = db.limiter_with(Config { isolation: Isolation::RowLock, ..db.config() }).await;
    limiter.operator().set_zone("login", &bucket(1, 3600, 5), None, "test").await.unwrap();
    let txn = Uuid::now_v7();
    limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
    let mut session = db.connect().await;
    let failing = [
        (format!("call zone_check(1, '42', unhex('{}'), 2, 0, 5)", txn.simple()), "was decided with cost 1"),
        (
            format!("call zone_refund(1, '42', unhex('{}'), 5)", Uuid::now_v7().simple()),
            "was not decided in the bucket",
        ),
    ];
    for (sql, because) in failing {
        let wait = session.number("select cast(@@innodb_lock_wait_timeout as signed)").await;
        let error = session.execute(&sql).await.unwrap_err();
        assert!(error.to_string().contains(because), "{error}");
        assert_eq!(
            session.number("select cast(@@innodb_lock_wait_timeout as signed)").await,
            wait,
            "the session's setting is back"
        );
        let mut other = db.connect().await;
        other.begin().await;
        other
            .number(
                "select seq from zone_bucket_lock where zone_id = 1 and bucket_key = '42' for update nowait",
            )
            .await;
    }
}
