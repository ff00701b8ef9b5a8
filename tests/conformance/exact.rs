//! P1: never more than the limit, whoever asks.

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use tallygate::{Check, Config, Decision, Isolation, Policy};
use uuid::Uuid;

use crate::child::{Calls, Child, Work};
use crate::db::{Db, Told, bucket, log};
use crate::rounds;
use crate::server::PATIENCE;

pub async fn sixty_four_clients_on_one_key_get_exactly_the_limit(db: Db) {
    hot_key(&db, config(Isolation::RowLock, 16), log(100, 3600)).await;
}

pub async fn sixty_four_clients_on_one_token_bucket_get_exactly_the_burst(db: Db) {
    // One token in ten years: nothing flows in while the test runs.
    hot_key(&db, config(Isolation::RowLock, 16), bucket(1, 315_576_000, 100)).await;
}

pub async fn sixty_four_clients_that_travel_together_get_exactly_the_limit(db: Db) {
    for &isolation in db.engine.isolations() {
        let batch = Config::default().batch;
        let zone = format!("{isolation:?}");
        clients(&db, Config { batch, ..config(isolation, 16) }, &zone, log(100, 3600)).await;
    }
}

pub async fn sixty_four_serializable_clients_on_one_key_get_exactly_the_limit(db: Db) {
    hot_key(&db, config(Isolation::Serializable, 16), log(100, 3600)).await;
}

/// 64 clients, each with a limiter of its own or sharing a few, 200 checks in all, limit 100.
async fn hot_key(db: &Db, config: Config, policy: Policy) {
    clients(db, config, "hot", policy).await;
    assert_eq!(db.rows().await, 200);
}

async fn clients(db: &Db, config: Config, zone: &str, policy: Policy) {
    let limiters = join_all((0..4).map(|_| db.limiter_with(config))).await;
    limiters[0].operator().set_zone(zone, &policy, None, "test").await.unwrap();
    let calls = (0..64).map(|client| {
        let (limiter, zone) = (limiters[client % limiters.len()].clone(), zone.to_owned());
        async move {
            let calls = if client < 8 { 4 } else { 3 };
            let mut decisions = Vec::new();
            for _ in 0..calls {
                decisions.push(limiter.check(Check::new(&zone, "key")).await.unwrap());
            }
            decisions
        }
    });
    let decisions: Vec<Decision> =
        join_all(calls.map(tokio::spawn)).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(decisions.len(), 200);
    assert_eq!(decisions.iter().filter(|d| d.is_allowed()).count(), 100);
    db.assert_ledger_is_whole().await;
}

pub async fn batches_from_many_clients_get_exactly_the_limit(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = db.limiter_with(config(isolation, 16)).await;
        let zone = format!("{isolation:?}");
        limiter.operator().set_zone(&zone, &log(100, 3600), None, "test").await.unwrap();
        let calls = (0..16).map(|client: usize| {
            let (limiter, zone) = (limiter.clone(), zone.clone());
            async move {
                let mut allowed = [0; 3];
                for round in 0..5 {
                    // Each client names the keys in another order.
                    let key = |n: usize| format!("key {}", (n + client + round) % 3);
                    let checks = (0..6).map(|n| Check::new(&zone, key(n))).collect();
                    for decision in limiter.check_many(checks).await.unwrap() {
                        let n: usize = decision.key[4..].parse().unwrap();
                        allowed[n] += usize::from(decision.is_allowed());
                    }
                }
                allowed
            }
        });
        let sums = join_all(calls.map(tokio::spawn)).await.into_iter().map(Result::unwrap);
        let total = sums.fold([0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
        assert_eq!(total, [100, 100, 100], "{isolation:?}: 160 checks a key");
    }
    assert_eq!(db.rows().await as usize, db.engine.isolations().len() * 16 * 5 * 6);
    db.assert_ledger_is_whole().await;
}

/// 16 processes with 4 clients each, that know nothing of each other.
pub async fn sixteen_processes_on_one_key_get_exactly_the_limit(db: Db) {
    let limiter = db.limiter().await;
    let mut rows = 0;
    let ways = [
        (Isolation::RowLock, vec!["hot", "mild", "hot"]),
        (Isolation::Serializable, vec!["hot"]),
        (Isolation::RowLock, vec!["hot"]),
        (Isolation::Serializable, vec!["hot", "mild", "hot"]),
    ];
    for (isolation, keys) in ways.into_iter().take(rounds(2, 4)) {
        let zone = format!("{isolation:?} {}", keys.len());
        limiter.operator().set_zone(&zone, &log(100, 3600), None, "test").await.unwrap();
        let serializable = isolation == Isolation::Serializable;
        let keys: Vec<_> = keys.into_iter().map(str::to_owned).collect();
        let work = Work::Calls(Calls {
            url: db.url_as(tallygate::schema::Role::App),
            zone: zone.clone(),
            keys: keys.clone(),
            serializable,
            clients: 4,
            calls: 5,
        });
        let mut children = join_all((0..16).map(|_| Child::start(&work))).await;
        for child in &mut children {
            child.go().await;
        }
        let answers: Vec<Told> = join_all(children.iter_mut().map(Child::answers)).await.concat();

        assert_eq!(answers.len(), 16 * 4 * 5 * keys.len());
        let hot = answers.iter().filter(|answer| answer["key"] == "hot");
        assert_eq!(hot.filter(|answer| answer["blocked"] == false).count(), 100, "{zone}");
        db.assert_ledger_says(&zone, &answers).await;
        rows += answers.len();
    }
    assert_eq!(db.rows().await as usize, rows);
    db.assert_first_come(100).await;
    db.assert_ledger_is_whole().await;
}

/// A batch is as deep as a bucket has checks in it, and one call however long it takes.
pub async fn a_batch_of_thousands_on_one_key_gets_exactly_the_limit(db: Db) {
    let limiter = db.limiter_with(db.config()).await;
    limiter.operator().set_zone("login", &log(1_700, 3600), None, "test").await.unwrap();
    let decisions = limiter.check_many(vec![Check::new("login", "42"); 2_000]).await.unwrap();
    assert!(decisions.iter().enumerate().all(|(n, decision)| decision.blocked == (n >= 1_700)));
    db.assert_first_come(1_700).await;
    db.assert_ledger_is_whole().await;
}

pub async fn a_thousand_callers_with_new_keys_all_get_an_answer(db: Db) {
    // One attempt: with row locks there is no deadlock to be retried.
    new_keys(&db, Config { attempts: 1, ..config(Isolation::RowLock, 64) }).await;
}

pub async fn a_thousand_serializable_callers_with_new_keys_all_get_an_answer(db: Db) {
    new_keys(&db, config(Isolation::Serializable, 64)).await;
}

/// 1,000 callers at once over a pool of 64, each with a key that was never seen: alone, then in batches.
async fn new_keys(db: &Db, config: Config) {
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("new", &log(5, 3600), None, "test").await.unwrap();
    for round in 0..rounds(3, 30) {
        let call = |caller: usize| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.check(Check::new("new", format!("{round} {caller}"))).await.unwrap().is_allowed()
            })
        };
        assert!(join_all((0..1000).map(call)).await.into_iter().all(Result::unwrap));
        let batch = |caller: usize| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut checks: Vec<_> =
                    (0..5).map(|n| Check::new("new", format!("{round} {n} many {caller}"))).collect();
                Rng::with_seed(caller as u64).shuffle(&mut checks);
                limiter.check_many(checks).await.unwrap().iter().all(Decision::is_allowed)
            })
        };
        assert!(join_all((0..200).map(batch)).await.into_iter().all(Result::unwrap));
    }
    assert_eq!(db.rows().await as usize, 2000 * rounds(3, 30));
    db.assert_ledger_is_whole().await;
}

/// Ids that follow one another must not meet where they are looked for, or callers of unlike buckets fail each other.
pub async fn serializable_callers_with_ids_of_their_own_rarely_meet(db: Db) {
    let limiter = db.limiter_with(config(Isolation::Serializable, 16)).await;
    limiter.operator().set_zone("pay", &log(100, 3600), None, "test").await.unwrap();
    let keys: Vec<_> = (0..2_000).map(|_| Uuid::new_v4().to_string()).collect();
    for _ in 0..10 {
        limiter.check_many(keys.iter().map(|key| Check::new("pay", key)).collect()).await.unwrap();
    }
    let limiter = db.limiter_with(Config { attempts: 1, ..config(Isolation::Serializable, 16) }).await;
    let calls = keys.chunks(100).take(16).map(|keys| {
        let (limiter, keys) = (limiter.clone(), keys.to_vec());
        tokio::spawn(async move {
            let mut failed = 0;
            for key in keys {
                match limiter.check(Check::new("pay", key).txn(Uuid::now_v7())).await {
                    Ok(decision) => assert!(decision.is_allowed()),
                    Err(error) => failed += usize::from(error.is_transient()),
                }
            }
            failed
        })
    });
    let failed: usize = join_all(calls).await.into_iter().map(Result::unwrap).sum();
    assert!(failed < 160, "{failed} of 1,600 would have to be repeated");
}

/// Short windows, random costs and real time: then the ledger is counted naively.
pub async fn no_window_of_a_random_load_holds_more_than_the_limit(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = db.limiter_with(config(isolation, 16)).await;
        let window_us = 200_000;
        let policy = Policy::sliding_log(20, Duration::from_micros(window_us)).unwrap();
        let zone =
            limiter.operator().set_zone(&format!("{isolation:?}"), &policy, None, "test").await.unwrap();
        let calls = (0..16).map(|client| {
            let (limiter, name) = (limiter.clone(), zone.name.clone());
            async move {
                let mut rng = Rng::with_seed(client);
                for _ in 0..40 {
                    let key = format!("key {}", rng.u8(..2));
                    limiter.check(Check::new(&name, key).cost(rng.i64(1..=9))).await.unwrap();
                }
            }
        });
        join_all(calls.map(tokio::spawn)).await.into_iter().for_each(Result::unwrap);
        let fullest = db.fullest_window(zone.id, window_us as i64).await;
        assert!((12..=20).contains(&fullest), "the fullest window holds {fullest}");
    }
    db.assert_ledger_is_whole().await;
}

fn config(isolation: Isolation, connections: u32) -> Config {
    Config { isolation, connections, attempts: 1000, batch: None, deadline: PATIENCE, ..Config::default() }
}
