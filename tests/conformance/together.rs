//! Checks that travel together: none of them notices the others.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::{BatchConfig, Check, Config, Limiter, Result};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use crate::db::{Connected, Db, connected, log};
use crate::locks::hold;

/// One call at a time, so that whatever comes meanwhile gathers.
async fn limiter(db: &Db, limit: i64, config: Config) -> Limiter {
    let batch = config.batch.map(|batch| BatchConfig { lanes: 1, ..batch });
    let limiter = db.limiter_with(Config { batch, ..config }).await;
    limiter.operator().set_zone("login", &log(limit, 3600), None, "test").await.unwrap();
    limiter
}

fn start(limiter: &Limiter, check: Check) -> JoinHandle<Result<tallygate::Decision>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(check).await })
}

/// Waits until so many calls are on their way and so many checks wait for one.
async fn until(limiter: &Limiter, calls: u32, waiting: usize) {
    let is_so = async {
        while (limiter.load().connections_in_use, limiter.load().checks_waiting) != (calls, waiting) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), is_so).await.expect("the calls and checks that were begun");
}

pub async fn callers_of_one_bucket_are_decided_in_the_order_of_their_coming(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = limiter(&db, 30, Config { isolation, ..db.config() }).await;
        let key = format!("{isolation:?}");
        // From then on the zone is known.
        limiter.check(Check::new("login", "first")).await.unwrap();
        // Polled in this order, some of another bucket in between.
        let checks = (0..100).map(|n| {
            limiter.check(Check::new("login", if n % 3 == 0 { format!("{key} {n}") } else { key.clone() }))
        });
        let decisions: Vec<_> = join_all(checks).await.into_iter().map(Result::unwrap).collect();
        let hot: Vec<_> = decisions.iter().filter(|d| d.key == key).collect();
        assert!(hot.iter().zip(1..).all(|(decision, seq)| decision.seq == Some(seq)));
        assert_eq!(hot.iter().take_while(|d| d.is_allowed()).count(), 30);
        assert_eq!(hot.iter().filter(|d| d.is_allowed()).count(), 30);
    }
    db.assert_ledger_is_whole().await;
}

pub async fn a_bad_check_fails_alone(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = limiter(&db, 1000, Config { isolation, ..db.config() }).await;
        let rows = db.rows().await;
        let txn = Uuid::now_v7();
        limiter.check(Check::new("login", "7").txn(txn)).await.unwrap();
        let checks = (0..60).map(|n| match n {
            // Decided before with another cost.
            37 => Check::new("login", "7").txn(txn).cost(2),
            n => Check::new("login", (n % 10).to_string()),
        });
        let results = join_all(checks.map(|check| limiter.check(check))).await;
        for (n, result) in results.into_iter().enumerate() {
            match result {
                Err(error) => assert!(n == 37 && error.is_conflict(), "{n}: {error}"),
                Ok(_) => assert_ne!(n, 37),
            }
        }
        assert_eq!(db.rows().await, rows + 60);
    }
    db.assert_ledger_is_whole().await;
}

pub async fn callers_that_leave_harm_no_other(db: Db) {
    // Many calls, one after the other: of those who leave some have been sent and some have not.
    let batch = Some(BatchConfig { size: 4, ..BatchConfig::default() });
    let limiter = limiter(&db, 1000, Config { batch, ..db.config() }).await;
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for n in 0..200 {
        let check = start(&limiter, Check::new("login", (n % 7).to_string()));
        if n % 2 == 0 {
            kept.push(check)
        } else {
            left.push(check)
        }
        if n % 20 == 0 {
            tokio::task::yield_now().await;
        }
    }
    left.iter().for_each(JoinHandle::abort);
    for result in join_all(kept).await {
        assert!(result.unwrap().unwrap().is_allowed());
    }
    // Nobody holds a bucket any more, and those who left are in the ledger once or not at all.
    for n in 0..7 {
        limiter.check(Check::new("login", n.to_string())).await.unwrap();
    }
    assert!((107..=207).contains(&db.rows().await));
    db.assert_ledger_is_whole().await;
}

pub async fn a_held_bucket_delays_none_that_travel_with_it(db: Db) {
    for &isolation in db.engine.isolations() {
        let config = Config { isolation, ..db.config() };
        let limiter = limiter(&db, 1000, config).await;
        let key = format!("held {isolation:?}");
        limiter.check(Check::new("login", &key)).await.unwrap();
        let mut holder: Connected = hold(&db, &key).await;
        let mut held = Vec::new();
        for round in 0..3 {
            let others = (0..60).filter_map(|n| {
                if n % 6 == 5 {
                    held.push(start(&limiter, Check::new("login", &key)));
                    return None;
                }
                Some(start(&limiter, Check::new("login", format!("{isolation:?} {round} {}", n % 9))))
            });
            let others: Vec<_> = others.collect();
            for result in timeout(Duration::from_secs(30), join_all(others)).await.unwrap() {
                assert!(result.unwrap().unwrap().is_allowed());
            }
            assert!(held.iter().all(|check| !check.is_finished()));
        }
        holder.execute("rollback").await.unwrap();
        for result in join_all(held).await {
            assert!(result.unwrap().unwrap().is_allowed());
        }
    }
    db.assert_ledger_is_whole().await;
}

pub async fn each_caller_has_its_own_deadline(db: Db) {
    let limiter = limiter(&db, 1000, Config::default()).await;
    limiter.check(Check::new("login", "held")).await.unwrap();
    let mut holder = hold(&db, "held").await;
    let check = |ms| Check::new("login", "held").deadline(Duration::from_millis(ms));
    let patient = start(&limiter, check(30_000));
    // The others wait behind it.
    until(&limiter, 1, 0).await;
    let results = join_all((0..10).map(|_| limiter.check(check(300)))).await;
    for result in results {
        let error = result.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("300ms"), "{error}");
    }
    assert!(!patient.is_finished());
    holder.execute("rollback").await.unwrap();
    assert!(patient.await.unwrap().unwrap().is_allowed());
    // Those who had left before they were sent were not decided.
    limiter.check(Check::new("login", "held")).await.unwrap();
    assert_eq!(db.rows().await, 3);
    db.assert_ledger_is_whole().await;
}

pub async fn what_waits_is_bounded(db: Db) {
    let batch = Some(BatchConfig { queue: 40, ..BatchConfig::default() });
    let config = Config { batch, ..db.config() };
    let limiter = limiter(&db, 1000, config).await;
    limiter.check(Check::new("login", "held")).await.unwrap();
    let mut holder = hold(&db, "held").await;
    let first = start(&limiter, Check::new("login", "held"));
    // The others wait behind it.
    until(&limiter, 1, 0).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(start(&limiter, Check::new("login", "held")));
    }
    until(&limiter, 1, 10).await;
    let error = limiter.check(Check::new("login", "held")).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().starts_with("10 checks of this bucket wait"),
        "{error}"
    );
    // Others have their place.
    limiter.check(Check::new("login", "other")).await.unwrap();
    holder.execute("rollback").await.unwrap();
    waiting.push(first);
    for result in join_all(waiting).await {
        result.unwrap().unwrap();
    }
    assert_eq!(db.rows().await, 13);
}

pub async fn an_uncommitted_new_bucket_delays_none_that_travel_with_it(db: Db) {
    let limiter = limiter(&db, 1000, Config::default()).await;
    limiter.check(Check::new("login", "0")).await.unwrap();
    let mut payment = db.connect().await;
    payment.begin().await;
    limiter.check_in(payment.joined(), Check::new("login", "new")).await.unwrap();
    let key = |n: usize| if n == 50 { "new".to_owned() } else { n.to_string() };
    let checks: Vec<_> = (0..120).map(|n| start(&limiter, Check::new("login", key(n)))).collect();
    for (n, result) in join_all(checks).await.into_iter().enumerate() {
        // The one that is held waits for the payment, until its deadline.
        assert_eq!(result.unwrap().is_ok(), n != 50, "{n}");
    }
    payment.execute("commit").await.unwrap();
    limiter.check(Check::new("login", "new")).await.unwrap();
    db.assert_ledger_is_whole().await;
}

pub async fn a_bucket_keeps_its_order_when_its_call_is_split(db: Db) {
    let config = db.config();
    let limiter = limiter(&db, 1000, config).await;
    let txn = Uuid::now_v7();
    limiter.check(Check::new("login", "other").txn(txn)).await.unwrap();
    limiter.check(Check::new("login", "held")).await.unwrap();
    let mut holder = hold(&db, "held").await;
    let checks = (0..13).map(|n| match n {
        // Keeps the only lane while the others gather.
        0 => Check::new("login", "first"),
        // Decided before with another cost.
        12 => Check::new("login", "other").txn(txn).cost(2),
        _ => Check::new("login", "held"),
    });
    let release = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        holder.execute("rollback").await.unwrap();
    };
    let decided = join_all(checks.map(|check| limiter.check(check)));
    let (results, ()) = futures_util::future::join(decided, release).await;
    let seqs: Vec<_> = results[1..12].iter().map(|result| result.as_ref().unwrap().seq).collect();
    assert_eq!(seqs, (2..13).map(Some).collect::<Vec<_>>());
    assert!(results[12].as_ref().unwrap_err().is_conflict());
}

pub async fn many_who_leave_before_their_turn_are_passed_over(db: Db) {
    let limiter = limiter(&db, 1000, Config::default()).await;
    limiter.check(Check::new("login", "held")).await.unwrap();
    let mut holder = hold(&db, "held").await;
    let check = |ms| vec![Check::new("login", "held").deadline(Duration::from_millis(ms))];
    let own = |ms| {
        let (limiter, checks) = (limiter.clone(), check(ms));
        tokio::spawn(async move { limiter.check_many(checks).await })
    };
    let first = own(30_000);
    let others: Vec<_> = (0..20_000).map(|_| own(500)).collect();
    assert!(join_all(others).await.into_iter().all(|result| result.unwrap().is_err()));
    holder.execute("rollback").await.unwrap();
    first.await.unwrap().unwrap();
    limiter.check(Check::new("login", "held")).await.unwrap();
}

pub async fn a_runtime_may_end_while_checks_wait(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(1000, 3600), None, "test").await.unwrap();
    let url = db.url_as(tallygate::schema::Role::App);
    let ended = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let limiter = runtime.block_on(async {
            let limiter = connected(&url).await;
            for n in 0..2_000 {
                start(&limiter, Check::new("login", n.to_string()));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            limiter
        });
        drop(runtime);
        drop(limiter);
    });
    tokio::task::spawn_blocking(move || ended.join().unwrap()).await.unwrap();
    db.assert_ledger_is_whole().await;
}
