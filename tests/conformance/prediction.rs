//! Costs that are predicted, as a database learns them. The core's own tests tell what an average comes to.

use std::time::Duration;

use fastrand::Rng;
use tallygate::audit::verify::Verify;
use tallygate::backtest::Backtest;
use tallygate::decide::{Ask, SHARED_SHAPE, Shape, learn, predict};
use tallygate::schema::{Role, Upkeep};
use tallygate::{Charged, Check, Limiter, Policy, Predicted, Reason};
use uuid::Uuid;

use crate::db::{Clocked, Db, connected};
use crate::{rounds, rounds_of_long};

const TTL: Duration = Duration::from_secs(30);
const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01

fn budget() -> Policy {
    Policy::sliding_log(1_000_000, Duration::from_secs(60)).unwrap()
}

async fn limiter(db: &Db) -> Limiter {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("llm", &budget(), None, "test").await.unwrap();
    limiter
}

async fn reserve(limiter: &Limiter, key: &str, shape: &str) -> Predicted {
    limiter.reserve_predicted(Check::new("llm", key).cost(1_000), TTL, shape).await.unwrap()
}

/// A request of a shape that comes to so much.
async fn spend(limiter: &Limiter, key: &str, shape: &str, cost: i64) {
    let reserved = reserve(limiter, key, shape).await;
    limiter.settle(Charged::by(reserved.decision.txn_id).in_bucket("llm", key), cost).await.unwrap();
}

/// Every row is derived again, and all that stands is as the rows left it.
async fn verify(limiter: &Limiter) {
    let (_, faults) = crate::verify::verify(limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

async fn is_found(limiter: &Limiter) -> bool {
    !crate::verify::verify(limiter, &Verify::default()).await.1.is_empty()
}

/// Reservations of 40 shapes in windows and levels, settled by the database with whatever they came to, at once, late or never,
/// under a clock that is set forth and back: each costs what the core predicts from the settlements before it.
pub async fn what_is_predicted_is_what_the_core_learned(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let level = Policy::token_bucket(900_000, Duration::from_secs(60), None).unwrap();
    for (zone, policy) in [("window", budget()), ("level", level)] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let mut rng = Rng::with_seed(5);
    let mut learned: [Vec<Shape>; 2] = Default::default();
    let (mut now_us, mut last_us) = (START_US, [0; 2]);
    let mut open: Vec<(usize, String, Uuid)> = Vec::new();
    let (mut predicted, mut shared) = (0, 0);
    for _ in 0..rounds(400, 40_000) {
        now_us += match rng.u8(..60) {
            0 => rng.i64(0..1_200_000_000),
            1 => -rng.i64(0..60_000_000),
            _ => rng.i64(0..5_000_000),
        };
        clocked.set(now_us).await;
        let of = rng.usize(..2);
        let (zone, shapes) = (["window", "level"][of], &mut learned[of]);
        // Names that JSON must escape, and that a careless comparison takes for the same.
        let shape = match rng.u8(..48) {
            0 => "a \"quoted\\ name".to_owned(),
            1 => "größe".to_owned(),
            2 => "größe ".to_owned(),
            n => format!("/route/{}", n % 40),
        };
        let otherwise = rng.i64(1..200);
        let check = Check::new(zone, "tenant").cost(otherwise);
        let at_us = now_us.max(last_us[of]);
        let known = predict(shapes, &shape, at_us);
        shared += usize::from(known.is_some_and(|known| known.name == SHARED_SHAPE));
        let known = known.map(Shape::cost);
        predicted += usize::from(known.is_some());
        let told = limiter.predict(zone, "tenant", &shape).await.unwrap();
        assert_eq!(told.cost, known, "{shape}");
        let reserved = limiter.reserve_predicted(check, TTL, &shape).await.unwrap();
        assert_eq!(reserved.cost, known.unwrap_or(otherwise), "{shape}");
        last_us[of] = reserved.decision.decided_at.timestamp_micros();
        if reserved.decision.is_allowed() {
            open.push((of, shape, reserved.decision.txn_id));
        }
        for _ in 0..rng.usize(..3).min(open.len()) {
            let (of, shape, txn) = open.swap_remove(rng.usize(..open.len()));
            let charged = Charged::by(txn).in_bucket(["window", "level"][of], "tenant");
            if rng.u8(..20) == 0 {
                // A cancelled reservation, if it was not too late, teaches nothing.
                if let Ok(recorded) = limiter.cancel(charged).await {
                    last_us[of] = recorded[0].recorded_at.timestamp_micros();
                }
                continue;
            }
            let cost = if rng.u8(..9) == 0 { rng.i64(0..20_000) } else { rng.i64(0..300) };
            let recorded = limiter.settle(charged.clone(), cost).await.unwrap();
            last_us[of] = recorded[0].recorded_at.timestamp_micros();
            learn(&mut learned[of], &shape, cost, last_us[of]);
            // Once.
            assert!(limiter.settle(charged, cost).await.unwrap()[0].replayed);
        }
    }
    assert!(
        predicted > 100 && shared > 5,
        "{predicted} were predicted, {shared} of them from what is shared"
    );
    verify(limiter).await;
}

/// Many at once in one bucket: each is settled once, and what they taught is what their rows lead to.
pub async fn requests_at_once_teach_one_after_the_other(db: Db) {
    let limiter = limiter(&db).await;
    let spend = |n: i64| {
        let limiter = limiter.clone();
        tokio::spawn(async move { spend(&limiter, "tenant", &format!("shape {}", n % 3), 100 + n).await })
    };
    let spending: Vec<_> = (0..24).map(spend).collect();
    for spent in spending {
        spent.await.unwrap();
    }
    let samples = async |shape| limiter.predict("llm", "tenant", shape).await.unwrap().samples;
    assert_eq!([samples("shape 0").await, samples("shape 1").await, samples("shape 2").await], [8, 8, 8]);
    verify(&limiter).await;
    // The same transaction is told its own cost, whatever is predicted by then; and is no other request's.
    let txn = Uuid::now_v7();
    let check = || Check::new("llm", "tenant").cost(1_000).txn(txn);
    let first = limiter.reserve_predicted(check(), TTL, "shape 0").await.unwrap();
    super::prediction::spend(&limiter, "tenant", "shape 0", 5).await;
    let again = limiter.reserve_predicted(check(), TTL, "shape 0").await.unwrap();
    assert_eq!(
        (again.cost, again.decision.seq, again.decision.replayed),
        (first.cost, first.decision.seq, true)
    );
    for other in [
        limiter.reserve_predicted(check(), TTL, "shape 1").await.unwrap_err(),
        limiter.reserve(check().cost(first.cost), TTL).await.unwrap_err(),
    ] {
        assert!(other.is_conflict(), "{other}");
    }
    // A request that would cost more than all there is can never pass.
    super::prediction::spend(&limiter, "giant", "all", 2_000_000).await;
    assert_eq!(reserve(&limiter, "giant", "all").await.decision.reason, Reason::ExceedsLimit);
    verify(&limiter).await;
}

/// A change that somebody makes is found, and what their owner removes is accounted for.
pub async fn predictions_are_proven_erased_and_dropped(db: Db) {
    let limiter = limiter(&db).await;
    for cost in [100, 300, 200] {
        spend(&limiter, "tenant", "secret-route", cost).await;
    }
    let last = reserve(&limiter, "tenant", "secret-route").await;
    // 100; of 300 as much as 200; and 200, from 150 up to 166 ⅔.
    assert_eq!(last.cost, 167);
    verify(&limiter).await;
    let shapes =
        db.connect().await.texts("select shapes from zone_bucket_lock where seq = 7").await.remove(0);
    for (was, is) in [("secret-route", "other-route"), (",3,", ",4,"), (", 3, ", ", 4, ")] {
        let changed = shapes.replace(was, is);
        if changed != shapes {
            db.execute(&format!("update zone_bucket_lock set shapes = '{changed}'")).await;
            assert!(is_found(&limiter).await, "{was}");
        }
    }
    db.execute("update zone_bucket_lock set shapes = null").await;
    assert!(is_found(&limiter).await, "forgotten");
    db.execute(&format!("update zone_bucket_lock set shapes = '{shapes}'")).await;
    verify(&limiter).await;
    for (set, back) in [
        ("member = 'x' where seq = 1", "member = 'secret-route' where seq = 1"),
        ("member = null where seq = 2", "member = 'secret-route' where seq = 2"),
        ("cost = 301 where seq = 4", "cost = 300 where seq = 4"),
    ] {
        db.execute(&format!("update zone_txn set {set}")).await;
        assert!(is_found(&limiter).await, "{set}");
        db.execute(&format!("update zone_txn set {back}")).await;
        verify(&limiter).await;
    }
    let explained = limiter.auditor().explain(last.decision.txn_id, 10).await.unwrap();
    let taught = explained.rows[0].predicted.clone().unwrap();
    assert_eq!((taught.cost, taught.samples, taught.shared), (last.cost, 3, false));
    assert_eq!(explained.rows[0].reproduced, Some(true));

    let owner = connected(&db.url).await.owner();
    owner.erase("llm", "tenant", "asked for", "test").await.unwrap();
    let left = "select (select count(*) from zone_txn where member = 'secret-route')
        + (select count(*) from zone_bucket_lock where shapes is not null)";
    assert_eq!(db.number(left).await, 0);
    verify(&limiter).await;
    assert_eq!(reserve(&limiter, "tenant", "secret-route").await.cost, 1_000, "it begins anew");
    owner.maintain(Upkeep::default()).await.unwrap();
    verify(&limiter).await;
}

/// Each is refused with what to do, and leaves no row.
pub async fn what_cannot_be_predicted_is_refused(db: Db) {
    let limiter = limiter(&db).await;
    let slots = Policy::concurrency(5, Duration::from_secs(60)).unwrap();
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    let check = || Check::new("llm", "tenant").cost(10);
    for (check, ttl, shape, says) in [
        (check(), TTL, "", "has 0 bytes; a shape is 1 to 64 bytes"),
        (check(), TTL, "*", "stands for all that are not kept apart"),
        (check(), TTL, "a\nb", "control character"),
        (check(), TTL, &*"a".repeat(65), "has 65 bytes; a shape is 1 to 64 bytes"),
        (check().member("card"), TTL, "chat", "leave the member out"),
        (check().cost(0), TTL, "chat", "reserves nothing"),
        (check().cost(-1), TTL, "chat", "cost -1 is out of range"),
        (check(), Duration::ZERO, "chat", "use 1 µs to 10 years"),
        (Check::new("slots", "tenant"), TTL, "chat", "nothing can be reserved in a zone of concurrency"),
    ] {
        let error = limiter.reserve_predicted(check, ttl, shape).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(says), "{error}");
    }
    let nowhere = limiter.reserve_predicted(Check::new("nowhere", "tenant"), TTL, "chat").await.unwrap_err();
    assert!(nowhere.is_unknown_zone(), "{nowhere}");
    assert!(limiter.predict("llm", "tenant", "*").await.unwrap_err().is_invalid());
    assert_eq!(limiter.predict("llm", "tenant", "chat").await.unwrap().cost, None);
    assert_eq!(db.rows().await, 0);
}

/// Where a bucket goes, what is known of its requests goes with it, to a database of another kind.
pub async fn a_prediction_is_moved_with_its_bucket(db: Db) {
    let policy = budget();
    let two = crate::moving::Two::of(db, &[("llm", policy)]).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    for cost in [120, 180] {
        spend(&here, "tenant", "größe \"9\"", cost).await;
    }
    two.move_there("llm", "tenant").await.unwrap();
    assert_eq!(reserve(&there, "tenant", "größe \"9\"").await.cost, 150);
    spend(&there, "tenant", "größe \"9\"", 150).await;
    verify(&there).await;
}

/// A back-test says of reservations that are settled at once what a database decides of them.
pub async fn a_backtest_predicts_as_the_database_does(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let window = Policy::sliding_log(2_000, Duration::from_secs(60)).unwrap();
    let level = Policy::token_bucket(2_000, Duration::from_secs(60), Some(3_000)).unwrap();
    let mut rng = Rng::with_seed(9);
    let (mut now_us, mut blocked) = (START_US, 0);
    for (zone, policy) in [("window", window), ("level", level)] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        let mut test = Backtest::new(policy).unwrap();
        for n in 0..rounds_of_long(150, 20_000) {
            now_us += if n % 70 == 69 { 1_000_000_000 } else { rng.i64(0..6_000_000) };
            clocked.set(now_us).await;
            let (shape, cost) =
                (["small", "large"][n % 2], rng.i64(0..150) + if n % 2 == 1 { 300 } else { 0 });
            let reserved =
                limiter.reserve_predicted(Check::new(zone, "tenant").cost(400), TTL, shape).await.unwrap();
            let decision = reserved.decision;
            if decision.is_allowed() {
                let charged = Charged::by(decision.txn_id).in_bucket(zone, "tenant");
                limiter.settle(charged, cost).await.unwrap();
            }
            let ask = Ask { cost, ..Ask::default() };
            let told = test.reserve("tenant", &ask, 400, Some(shape), now_us).unwrap();
            let expected = (decision.blocked, decision.remaining, decision.retry_after_us);
            assert_eq!(
                (told.blocked, told.remaining, told.retry_after_us),
                expected,
                "{zone} {n} {}",
                reserved.cost
            );
            blocked += usize::from(decision.blocked);
        }
    }
    assert!(blocked > rounds_of_long(40, 5_000), "{blocked}");
}

/// A settlement in a caller's own transaction is learned when that is committed, and forgotten when it is rolled back.
pub async fn a_settlement_that_joins_teaches_when_it_is_committed(db: Db) {
    let limiter = limiter(&db).await;
    spend(&limiter, "tenant", "chat", 100).await;
    let [first, second] =
        [reserve(&limiter, "tenant", "chat").await, reserve(&limiter, "tenant", "chat").await];
    let known = async || {
        let known = limiter.predict("llm", "tenant", "chat").await.unwrap();
        (known.cost, known.samples)
    };
    let mut caller = db.connect_as(Role::App).await;
    for (reserved, end, expected) in [(first, "rollback", (Some(100), 1)), (second, "commit", (Some(150), 2))]
    {
        let charged = Charged::by(reserved.decision.txn_id).in_bucket("llm", "tenant");
        caller.begin().await;
        limiter.settle_in(caller.joined(), charged, 200).await.unwrap();
        caller.execute(end).await.unwrap();
        assert_eq!(known().await, expected, "{end}");
    }
    verify(&limiter).await;
}
