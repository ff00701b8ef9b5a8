//! P6: the same transaction again gives the recorded decision and spends nothing.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::schema::Role;
use tallygate::{Check, Config, Isolation, Policy};
use uuid::Uuid;

use crate::db::{Db, Engine, log};
use crate::model::Expected;

pub async fn sixteen_clients_with_one_txn_are_charged_once(db: Db) {
    let isolations = match db.engine {
        Engine::Sqlite => vec![Isolation::RowLock],
        _ => vec![Isolation::RowLock, Isolation::Serializable],
    };
    let ids = [random_id(), Uuid::now_v7()];
    for (isolation, txn) in isolations.into_iter().flat_map(|isolation| ids.map(|txn| (isolation, txn))) {
        let config = Config { isolation, attempts: 1000, ..db.config() };
        let limiter = db.limiter_with(config).await;
        let zone = format!("{isolation:?} {}", txn.get_version_num());
        limiter.operator().set_zone(&zone, &log(1000, 3600), None, "test").await.unwrap();
        let calls = (0..16).map(|client| {
            let (limiter, zone) = (limiter.clone(), zone.clone());
            tokio::spawn(async move {
                let calls = if client < 4 { 7 } else { 6 };
                let mut decisions = Vec::new();
                for _ in 0..calls {
                    decisions.push(limiter.check(Check::new(&zone, "key").cost(7).txn(txn)).await.unwrap());
                }
                decisions
            })
        });
        let decisions: Vec<_> = join_all(calls).await.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(decisions.len(), 100);
        assert_eq!(decisions.iter().filter(|d| !d.replayed).count(), 1, "one charge");
        let answer = |d| Expected { replayed: true, ..Expected::from(d) };
        assert!(
            decisions.iter().all(|d| answer(d) == answer(&decisions[0])),
            "99 replays with the same answer"
        );
        assert_eq!(limiter.peek(&zone, "key").await.unwrap().remaining, 993);
    }
    db.assert_ledger_is_whole().await;
}

/// A random id: callers may choose other versions than 7.
fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(std::array::from_fn(|_| fastrand::u8(..))).into_uuid()
}

/// As if the checks of the batch came one after the other.
pub async fn a_txn_twice_in_one_batch_is_charged_once(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = db.limiter_with(Config { isolation, ..db.config() }).await;
        let zone = format!("{isolation:?}");
        limiter.operator().set_zone(&zone, &log(10, 3600), None, "test").await.unwrap();
        let txn = Uuid::now_v7();
        let check = |key: &str, cost| Check::new(&zone, key).cost(cost).txn(txn);
        let batch = vec![check("42", 3), Check::new(&zone, "42").cost(5), check("43", 3), check("42", 3)];
        let decisions = limiter.check_many(batch).await.unwrap();
        let replayed: Vec<_> = decisions.iter().map(|decision| decision.replayed).collect();
        assert_eq!(replayed, [false, false, false, true]);
        let first = Expected::from(&decisions[0]);
        assert_eq!(Expected { replayed: true, ..first }, Expected::from(&decisions[3]));
        assert_eq!(limiter.peek(&zone, "42").await.unwrap().remaining, 2);
        // A peek is no decision of its transaction.
        let txn = Uuid::now_v7();
        let check = |cost| Check::new(&zone, "44").cost(cost).txn(txn);
        let decisions = limiter.check_many(vec![check(0), check(1)]).await.unwrap();
        assert!(!decisions[1].replayed);
        let txn = Uuid::now_v7();
        let check = |cost| Check::new(&zone, "45").cost(cost).txn(txn);
        let error = limiter.check_many(vec![check(1), check(2)]).await.unwrap_err();
        assert!(error.is_conflict() && error.to_string().contains(&txn.to_string()), "{error}");
        assert_eq!(limiter.peek(&zone, "45").await.unwrap().remaining, 10);
    }
    db.assert_ledger_is_whole().await;
}

pub async fn another_cost_is_a_conflict_and_writes_nothing(db: Db) {
    for &isolation in db.engine.isolations() {
        another_cost(&db, isolation).await;
    }
}

async fn another_cost(db: &Db, isolation: Isolation) {
    let limiter = db.limiter_with(Config { isolation, ..db.config() }).await;
    let before = db.rows().await;
    limiter.operator().set_zone("login", &log(10, 3600), None, "test").await.unwrap();
    let txn = Uuid::now_v7();
    let first = limiter.check(Check::new("login", "42").cost(2).txn(txn)).await.unwrap();
    let error = limiter.check(Check::new("login", "42").cost(3).txn(txn)).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(error.to_string().contains(&txn.to_string()), "{error}");
    let batch = vec![Check::new("login", "other"), Check::new("login", "42").cost(3).txn(txn)];
    assert!(limiter.check_many(batch).await.unwrap_err().is_conflict());
    assert_eq!(db.rows().await - before, 1, "nothing written, the batch's other check included");
    if db.engine != Engine::Sqlite {
        let mut other = db.connect().await;
        other.begin().await;
        other
            .number(
                "select seq from zone_bucket_lock where zone_id = 1 and bucket_key = '42' for update nowait",
            )
            .await;
    }
    let again = limiter.check(Check::new("login", "42").cost(2).txn(txn)).await.unwrap();
    assert_eq!(Expected { replayed: false, ..Expected::from(&again) }, Expected::from(&first));
    assert!(again.replayed);
}

/// A caller that repeats an id with somebody else in it would be told of a member that was never counted.
pub async fn another_member_is_a_conflict_and_writes_nothing(db: Db) {
    for &isolation in db.engine.isolations() {
        let limiter = db.limiter_with(Config { isolation, ..db.config() }).await;
        let zone = format!("{isolation:?}");
        let cards = Policy::distinct(1, Duration::from_secs(3600)).unwrap();
        limiter.operator().set_zone(&zone, &cards, None, "test").await.unwrap();
        let check = |member: &str, txn| Check::new(&zone, "ip").member(member).txn(txn);
        let txn = Uuid::now_v7();
        let first = limiter.check(check("card:A", txn)).await.unwrap();
        assert!(first.is_allowed());
        assert!(limiter.check(check("card:B", Uuid::now_v7())).await.unwrap().blocked);
        let before = db.rows().await;
        let again = || vec![check("card:A", Uuid::now_v7()), check("card:B", txn)];
        let new = Uuid::now_v7();
        let refused = [
            limiter.check(check("card:B", txn)).await.unwrap_err(),
            limiter.check(Check::new(&zone, "ip").txn(txn)).await.unwrap_err(),
            limiter.check_many(again()).await.unwrap_err(),
            limiter.check_many(vec![check("card:A", new), check("card:B", new)]).await.unwrap_err(),
            limiter.check_all(vec![check("card:B", txn)]).await.unwrap_err(),
        ];
        for refused in refused {
            assert!(refused.is_conflict() && refused.to_string().contains("another member"), "{refused}");
        }
        assert_eq!(db.rows().await, before, "nothing was written, the batches' other checks included");
        for again in [
            limiter.check(check("card:A", txn)).await.unwrap(),
            limiter.check_many(vec![check("card:A", txn); 2]).await.unwrap().remove(1),
            limiter.check_all(vec![check("card:A", txn)]).await.unwrap().decisions.remove(0),
        ] {
            assert!(again.replayed && again.seq == first.seq, "{again:?}");
        }
    }
    db.assert_ledger_is_whole().await;
}

/// No argument of a caller's says that an id is new: only the ledger does.
pub async fn no_caller_can_have_an_id_decided_twice(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let mut caller = db.connect_as(Role::Caller).await;
    let txn = Uuid::now_v7();
    let hex = txn.simple();
    let calls = match db.engine {
        Engine::Postgres => [
            format!("select zone_check(1, '42', '{txn}')"),
            format!("select zone_check('login', '42', '{hex}')"),
        ],
        _ => [
            format!("call zone_check(1, '42', x'{hex}', 1, false, 5)"),
            format!("start transaction; call zone_check_in('login', '42', x'{hex}', 1, false, 5); commit"),
        ],
    };
    for call in calls.iter().chain(&calls) {
        caller.execute(call).await.unwrap();
    }
    assert_eq!(db.rows().await, 1);
    // The routines that believe the library of an id that it has made are not for callers, who see only their own.
    let named = "select count(*) from information_schema.parameters where parameter_name = 'p_named'";
    assert_eq!(caller.number(named).await, 0);
    db.assert_ledger_is_whole().await;
}

pub async fn a_txn_is_its_own_in_each_bucket(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["user", "address"] {
        limiter.operator().set_zone(zone, &log(5, 3600), None, "test").await.unwrap();
    }
    let txn = Uuid::now_v7();
    for (zone, key) in [("user", "a"), ("address", "a"), ("user", "b")] {
        assert!(!limiter.check(Check::new(zone, key).txn(txn)).await.unwrap().replayed);
        assert!(limiter.check(Check::new(zone, key).txn(txn)).await.unwrap().replayed);
    }
    assert_eq!(db.rows().await, 3);
}
