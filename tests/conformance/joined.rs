//! A check inside the caller's transaction shares its fate.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::policy::BanRule;
use tallygate::{Charged, Check, Config, Policy};
use uuid::Uuid;

use crate::db::{Clocked, Connected, Db, Engine, bucket, connected, log};
use crate::rounds;

pub async fn a_rollback_takes_the_decision_away_and_a_commit_keeps_it(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("payments", &log(100, 3600), None, "test").await.unwrap();
    db.create_payment().await;
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    for (id, end, left) in [(1, "rollback", 100), (2, "commit", 60), (3, "rollback", 60), (4, "commit", 20)] {
        caller.begin().await;
        caller.execute(&format!("insert into payment values ({id})")).await.unwrap();
        let decision =
            limiter.check_in(caller.joined(), Check::new("payments", "card").cost(40)).await.unwrap();
        assert!(decision.is_allowed());
        caller.execute(end).await.unwrap();
        assert_eq!(limiter.peek("payments", "card").await.unwrap().remaining, left);
    }
    caller.begin().await;
    let decision = limiter.check_in(caller.joined(), Check::new("payments", "card").cost(40)).await.unwrap();
    assert!(decision.blocked, "blocked is an answer, not an error: the transaction goes on");
    caller.execute("insert into payment values (5)").await.unwrap();
    caller.execute("commit").await.unwrap();
    assert_eq!(db.number("select count(*) from payment").await, 3);
    assert_eq!(db.rows().await, 3);
    db.assert_ledger_is_whole().await;
}

/// A caller's transaction may last. Meanwhile the zone of a new bucket, by its name or its number, and of a refund may be changed.
pub async fn an_open_check_keeps_nobody_from_changing_its_zone(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("payments", &log(100, 3600), None, "test").await.unwrap();
    let spent = limiter.check(Check::new("payments", "card")).await.unwrap();
    let refund = match db.engine {
        Engine::Postgres => format!("select zone_refund('payments', 'card', '{}')", spent.txn_id),
        _ => format!("call zone_refund_in('payments', 'card', x'{}', 5)", spent.txn_id.simple()),
    };
    let check = |zone: &str, key: &str| match db.engine {
        Engine::Postgres => format!("select check_velocity({zone}, '{key}')"),
        _ => format!("call check_velocity_in({zone}, '{key}')"),
    };
    for (rate, call) in [(99, check("'payments'", "new")), (98, check("1", "newer")), (97, refund)] {
        let mut caller = db.connect_as(tallygate::schema::Role::App).await;
        caller.begin().await;
        if db.engine == Engine::Postgres {
            caller.execute("set transaction isolation level serializable").await.unwrap();
        }
        caller.execute(&call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
        let set = limiter.operator().set_zone("payments", &log(rate, 3600), None, "test").await;
        set.unwrap_or_else(|error| panic!("{call}: {error}"));
        caller.execute("commit").await.unwrap();
    }
    assert_eq!(limiter.operator().zone("payments").await.unwrap().unwrap().version, 4);
    db.assert_ledger_is_whole().await;
}

/// From the first removal in a zone on, a new bucket of it may have old rows. A look for them locks no neighbour, and a snapshot that
/// may hide them is refused.
pub async fn a_new_key_after_a_removal_lets_its_neighbours_in(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    for key in ["a", "m", "z"] {
        limiter.check(Check::new("login", key)).await.unwrap();
    }
    let owner = connected(&db.url).await.owner();
    owner.erase("login", "z", "a request", "test").await.unwrap();
    let mut old = Vec::new();
    for key in ["k", "n"] {
        let mut session = db.connect_as(tallygate::schema::Role::App).await;
        session.execute("start transaction with consistent snapshot").await.unwrap();
        old.push((key, session));
    }
    owner.erase("login", "a", "a request", "test").await.unwrap();
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    caller.begin().await;
    caller.execute("call zone_check_in('login', 'k', null, 1, false, 5)").await.unwrap();
    for key in ["a", "b", "j", "l", "y"] {
        let call = format!("call zone_check('login', '{key}', null, 1, false, 1)");
        db.connect().await.execute(&call).await.unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    caller.execute("commit").await.unwrap();
    for (key, mut session) in old {
        let call = format!("call check_velocity_in('login', '{key}')");
        let refused = session.execute(&call).await.unwrap_err().to_string();
        assert!(refused.contains("run it again") || refused.contains("1020"), "{key}: {refused}");
        session.execute("rollback").await.unwrap();
    }
    let (_, faults) = crate::verify::verify(&limiter, &tallygate::audit::verify::Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

pub async fn two_checks_in_one_transaction_both_count(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    for level in ["read committed", "repeatable read", "serializable"] {
        let mut caller = db.connect_as(tallygate::schema::Role::App).await;
        caller.execute(&format!("begin isolation level {level}")).await.unwrap();
        let mut blocked = Vec::new();
        for _ in 0..2 {
            blocked
                .push(limiter.check_in(caller.joined(), Check::new("login", level)).await.unwrap().blocked);
        }
        caller.execute("commit").await.unwrap();
        assert_eq!(blocked, [false, true], "{level}");
    }
}

/// By card and by merchant: both are spent from, or neither.
pub async fn a_payment_with_two_limits_commits_or_rolls_back_both_together(db: Db) {
    let limiter = db.limiter().await;
    for (zone, rate) in [("cards", 100), ("merchants", 90)] {
        limiter.operator().set_zone(zone, &log(rate, 3600), None, "test").await.unwrap();
    }
    db.create_payment().await;
    let left = async || both(async |zone| limiter.peek(zone, "42").await.unwrap().remaining).await;
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    for (id, end, remaining) in
        [(1, "rollback", [100, 90]), (2, "commit", [60, 50]), (3, "rollback", [60, 50])]
    {
        caller.begin().await;
        caller.execute(&format!("insert into payment values ({id})")).await.unwrap();
        let combined = limiter.check_all_in(caller.joined(), limits(Uuid::now_v7(), 40)).await.unwrap();
        assert!(combined.is_allowed());
        caller.execute(end).await.unwrap();
        assert_eq!(left().await, remaining, "{end}");
    }
    // The card has room and the merchant has not.
    caller.begin().await;
    let combined = limiter.check_all_in(caller.joined(), limits(Uuid::now_v7(), 55)).await.unwrap();
    assert_eq!(combined.binding.as_deref(), Some("merchants"));
    caller.execute("commit").await.unwrap();
    assert_eq!(left().await, [60, 50]);
    assert_eq!(db.number("select count(*) from payment").await, 1);
    assert_eq!(db.rows().await, 4, "what was refused is in the ledger too");
    db.assert_ledger_is_whole().await;
}

pub async fn a_reversal_in_its_own_transaction_gives_both_back_or_neither(db: Db) {
    let limiter = db.limiter().await;
    for zone in ZONES {
        limiter.operator().set_zone(zone, &log(100, 3600), None, "test").await.unwrap();
    }
    db.create_payment().await;
    let txn = Uuid::now_v7();
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    caller.begin().await;
    limiter.check_all_in(caller.joined(), limits(txn, 40)).await.unwrap();
    caller.execute("commit").await.unwrap();
    for (end, remaining) in [("rollback", 60), ("commit", 100)] {
        caller.begin().await;
        caller.execute("insert into payment values (1)").await.unwrap();
        let refunded = limiter.refund_in(caller.joined(), txn).await.unwrap();
        assert_eq!(refunded.len(), 2);
        assert!(refunded.iter().all(|row| row.cost == 40 && row.remaining == 100 && !row.replayed));
        caller.execute(end).await.unwrap();
        let left = both(async |zone| limiter.peek(zone, "42").await.unwrap().remaining).await;
        assert_eq!(left, [remaining; 2], "{end}");
    }
    assert!(limiter.refund(txn).await.unwrap().iter().all(|row| row.replayed), "it happens once");
    assert_eq!(db.rows().await, 4);
    assert_eq!(db.number("select count(*) from payment").await, 1);
    db.assert_ledger_is_whole().await;
}

/// No other connection could see that charge, nor get at its buckets.
pub async fn a_refund_sees_the_charge_of_its_own_transaction(db: Db) {
    let limiter = db.limiter().await;
    for zone in ZONES {
        limiter.operator().set_zone(zone, &log(100, 3600), None, "test").await.unwrap();
    }
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    let txn = Uuid::now_v7();
    caller.begin().await;
    limiter.check_all_in(caller.joined(), limits(txn, 40)).await.unwrap();
    let there = Charged::by(txn).in_bucket("cards", "42");
    assert_eq!(limiter.refund_in(caller.joined(), there).await.unwrap()[0].remaining, 100);
    let everywhere = limiter.refund_in(caller.joined(), txn).await.unwrap();
    let replayed = everywhere.iter().map(|row| (row.zone.as_str(), row.replayed));
    assert_eq!(replayed.collect::<Vec<_>>(), [("cards", true), ("merchants", false)]);
    let error = limiter.refund_in(caller.joined(), Uuid::now_v7()).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    caller.execute("commit").await.unwrap();
    assert_eq!(both(async |zone| limiter.peek(zone, "42").await.unwrap().remaining).await, [100; 2]);
    assert_eq!(db.rows().await, 4);
    db.assert_ledger_is_whole().await;
}

pub async fn a_reservation_and_its_end_join_the_callers_transaction(db: Db) {
    let limiter = db.limiter().await;
    let slots = Policy::concurrency(100, Duration::from_secs(3600)).unwrap();
    for (zone, policy) in [("holds", log(100, 3600)), ("slots", slots)] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    for (key, zone, taken, ended) in
        [("settle", "holds", 60, 70), ("cancel", "holds", 60, 100), ("release", "slots", 99, 100)]
    {
        let txn = Uuid::now_v7();
        for (end, remaining) in [("rollback", 100), ("commit", taken)] {
            let check = Check::new(zone, key).txn(txn);
            caller.begin().await;
            let decision = match zone {
                "slots" => limiter.check_in(caller.joined(), check).await,
                _ => limiter.reserve_in(caller.joined(), check.cost(40), Duration::from_secs(600)).await,
            };
            assert!(decision.unwrap().is_allowed());
            caller.execute(end).await.unwrap();
            assert_eq!(limiter.peek(zone, key).await.unwrap().remaining, remaining, "{key} {end}");
        }
        for (end, remaining) in [("rollback", taken), ("commit", ended)] {
            caller.begin().await;
            let recorded = match key {
                "settle" => limiter.settle_in(caller.joined(), txn, 30).await,
                "cancel" => limiter.cancel_in(caller.joined(), txn).await,
                _ => limiter.release_in(caller.joined(), txn).await,
            };
            assert_eq!(recorded.unwrap()[0].kind.as_str(), key);
            caller.execute(end).await.unwrap();
            assert_eq!(limiter.peek(zone, key).await.unwrap().remaining, remaining, "{key} {end}");
        }
    }
    let error = limiter.settle_in(caller.joined(), Uuid::now_v7(), -1).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    db.assert_ledger_is_whole().await;
}

/// Callers name the same buckets in opposite orders, charge them and give them back.
pub async fn joined_calls_with_overlapping_buckets_never_deadlock(db: Db) {
    let limiter = db.limiter().await;
    for zone in ZONES {
        limiter.operator().set_zone(zone, &log(1_000_000, 3600), None, "test").await.unwrap();
    }
    let begins: &[&str] = match db.engine {
        Engine::Sqlite => &["begin immediate"],
        Engine::Postgres => &["begin"],
        // As these servers begin by themselves, with snapshots that may be old and then say to run it again.
        _ => &["set transaction isolation level read committed; start transaction", "start transaction"],
    };
    for begin in begins {
        let callers = (0..4).map(async |n| {
            let mut caller = db.connect_as(tallygate::schema::Role::App).await;
            for _ in 0..rounds(40, 400) {
                let txn = Uuid::now_v7();
                for refunds in [false, true] {
                    loop {
                        begin_patiently(&mut caller, begin).await;
                        let mut checks = limits(txn, 1);
                        if n % 2 == 1 {
                            checks.reverse();
                        }
                        let done = match refunds {
                            false => limiter.check_all_in(caller.joined(), checks).await.map(drop),
                            true => limiter.refund_in(caller.joined(), txn).await.map(drop),
                        };
                        let Err(error) = done else { break };
                        assert!(error.is_transient() && *begin == "start transaction", "{error}");
                        assert!(!error.to_string().contains("eadlock"), "{error}");
                        caller.execute("rollback").await.unwrap();
                    }
                    caller.execute("commit").await.unwrap();
                }
            }
        });
        join_all(callers).await;
    }
    assert_eq!(db.rows().await as usize, begins.len() * 4 * 4 * rounds(40, 400));
    db.assert_ledger_is_whole().await;
}

/// SQLite's queue of writers is that of its busy timeout.
async fn begin_patiently(caller: &mut Connected, begin: &str) {
    while let Err(error) = caller.execute(begin).await {
        assert!(error.to_string().contains("locked"), "{error}");
    }
}

const ZONES: [&str; 2] = ["cards", "merchants"];

/// The limits that one payment is held to.
fn limits(txn: Uuid, cost: i64) -> Vec<Check> {
    ZONES.map(|zone| Check::new(zone, "42").cost(cost).txn(txn)).to_vec()
}

async fn both(of: impl AsyncFn(&'static str) -> i64) -> [i64; 2] {
    [of(ZONES[0]).await, of(ZONES[1]).await]
}

/// A service at start-up: every connection is in a transaction, and no zone was named yet.
pub async fn a_pool_of_one_connection_is_enough(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    macro_rules! check {
        ($pool:ty, $begin:literal) => {{
            let pool = sqlx::pool::PoolOptions::new()
                .max_connections(1)
                .connect(&db.url_as(tallygate::schema::Role::App))
                .await
                .unwrap();
            let pool: $pool = pool;
            let limiter = tallygate::Limiter::with_pool(pool.clone(), Config::default()).await.unwrap();
            let mut tx = pool.begin_with($begin).await.unwrap();
            let checks = vec![Check::new("login", "42"), Check::new("login", "43")];
            let combined = limiter.check_all_in(&mut tx, checks).await.unwrap();
            tx.commit().await.unwrap();
            // Another limiter knows no zone either.
            let limiter = tallygate::Limiter::with_pool(pool.clone(), Config::default()).await.unwrap();
            let mut tx = pool.begin_with($begin).await.unwrap();
            let refunded = limiter.refund_in(&mut tx, combined.decisions[0].txn_id).await.unwrap();
            tx.commit().await.unwrap();
            refunded
        }};
    }
    let refunded = match db.engine {
        Engine::Postgres => check!(sqlx::PgPool, "begin"),
        Engine::Sqlite => check!(sqlx::SqlitePool, "begin immediate"),
        _ => check!(sqlx::MySqlPool, "start transaction"),
    };
    assert_eq!(refunded.len(), 2);
    assert_eq!(db.rows().await, 4);
}

/// The caller's snapshot is older than what others decided since: the answer is exact, or says to retry.
pub async fn an_old_snapshot_is_decided_exactly_or_must_be_retried(db: Db) {
    let clocked = Clocked::create(&db).await;
    let noon_us = 1_793_534_400_000_000;
    let limiter = &clocked.limiter;
    limiter.operator().set_zone("log", &log(5, 60), None, "test").await.unwrap();
    limiter.operator().set_zone("bucket", &bucket(60, 60, 5), None, "test").await.unwrap();
    for (zone, key, before) in [("log", "old", true), ("log", "new", false), ("bucket", "old", true)] {
        clocked.set(noon_us).await;
        if before {
            limiter.check(Check::new(zone, key)).await.unwrap();
        }
        let mut caller = db.connect().await;
        match db.engine {
            Engine::Postgres => caller.execute("begin isolation level repeatable read").await.unwrap(),
            _ => caller
                .execute("set transaction isolation level repeatable read; start transaction with consistent snapshot")
                .await
                .unwrap(),
        }
        caller.number("select count(*) from zone_txn").await;
        // Others decide what the snapshot will not show: one early in the window, the others later.
        let seen = Uuid::now_v7();
        clocked.set(noon_us + 10_000_000).await;
        let missed = if before { 2 } else { 3 };
        for _ in 0..missed {
            limiter.check(Check::new(zone, key)).await.unwrap();
        }
        clocked.set(noon_us + 20_000_000).await;
        limiter.check(Check::new(zone, key).txn(seen)).await.unwrap();
        caller.set_clock(noon_us + 20_500_000).await;

        let ask = [
            Check::new(zone, key).txn(seen),
            Check::new(zone, key),
            Check::new(zone, key),
            Check::new(zone, key).cost(2),
        ];
        let mut answers = Vec::new();
        for check in ask {
            match limiter.check_in(caller.joined(), check).await {
                Ok(decision) => answers.push((decision.replayed, decision.blocked, decision.retry_after_us)),
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    assert_ne!(db.engine, Engine::MySql, "MySQL decides: {error}");
                    break;
                }
            }
        }
        // Four of five were spent; the replay spends nothing, one more passes, and the next must wait for the
        // first of them to leave the window (or for half a token and more to flow in).
        let first_us = if before { noon_us } else { noon_us + 10_000_000 };
        let leaves = |nth_us: i64| Some(nth_us + 60_000_000 - (noon_us + 20_500_000));
        let exact = match zone {
            "log" => [
                (true, false, None),
                (false, false, None),
                (false, true, leaves(first_us)),
                (false, true, leaves(noon_us + 10_000_000)),
            ],
            // A token a second: at 20.5 s the level is 4.5 after the replay, 3.5, 2.5 and 0.5.
            _ => [(true, false, None), (false, false, None), (false, false, None), (false, false, None)],
        };
        assert_eq!(answers, exact[..answers.len()], "{zone} {key}");
        match db.engine {
            Engine::MySql => assert_eq!(answers.len(), 4),
            Engine::Postgres => assert!(answers.is_empty(), "PostgreSQL says to retry: {answers:?}"),
            _ => {}
        }
        caller.execute("rollback").await.ok();
    }
    db.assert_ledger_is_whole().await;
}

/// Joined checks under REPEATABLE READ lock their own bucket and nothing beside it.
pub async fn an_old_snapshot_locks_no_unrelated_bucket(db: Db) {
    let config = Config { attempts: 1, ..db.config() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("login", &log(3, 3600), None, "test").await.unwrap();
    for key in ["k3", "k5", "k7"] {
        for _ in 0..2 {
            limiter.check(Check::new("login", key)).await.unwrap();
        }
    }
    let mut caller = db.connect().await;
    caller.begin().await;
    caller.number("select count(*) from zone_txn").await;
    // Allowed, blocked and new, each with an id that must be looked for.
    for key in ["k5", "k5", "k5", "k6"] {
        let txn = Uuid::now_v7();
        limiter.check_in(caller.joined(), Check::new("login", key).txn(txn)).await.unwrap();
        // The routine, in a bucket beside it.
        let call = format!("call zone_check_in(1, '{key}s', x'{}', 2, false, 5)", txn.simple());
        caller.execute(&call).await.unwrap();
    }
    for key in ["k0", "k3", "k4", "k55", "k5 ", "k59", "k60", "k61", "k7", "k9"] {
        for _ in 0..3 {
            let check = Check::new("login", key).txn(Uuid::now_v7());
            limiter
                .check(check)
                .await
                .unwrap_or_else(|error| panic!("{key} waits for a bucket that is not its own: {error}"));
        }
    }
    caller.execute("commit").await.unwrap();
    db.assert_ledger_is_whole().await;
}

/// The holds of a bucket are read without locks, so an old snapshot would not show all of them: never wrong in
/// silence.
pub async fn an_old_snapshot_of_what_is_held_must_be_retried(db: Db) {
    let limiter = db.limiter().await;
    let slots = Policy::concurrency(2, Duration::from_secs(3600)).unwrap();
    for (zone, policy) in [("slots", slots), ("log", log(2, 3600)), ("bucket", bucket(2, 3600, 2))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        let check = || match zone {
            "slots" => Check::new(zone, "42"),
            _ => Check::new(zone, "42").reserved_for(Duration::from_secs(60)),
        };
        limiter.check(check()).await.unwrap();
        for key in ["42", "other"] {
            let mut caller = db.connect_as(tallygate::schema::Role::App).await;
            caller
                .execute("set transaction isolation level repeatable read; start transaction with consistent snapshot")
                .await
                .unwrap();
            if key == "42" {
                assert!(
                    limiter.check(check()).await.unwrap().is_allowed(),
                    "what the snapshot does not show"
                );
            }
            // With a snapshot that is as new as the bucket it is decided, again and again.
            let joined = limiter.check_in(caller.joined(), Check::new(zone, key)).await;
            if key == "42" {
                let error = joined.unwrap_err();
                assert!(error.is_transient(), "{error}");
            } else {
                assert!(joined.unwrap().is_allowed());
                assert!(limiter.check_in(caller.joined(), Check::new(zone, key)).await.unwrap().is_allowed());
                assert!(limiter.check_in(caller.joined(), Check::new(zone, key)).await.unwrap().blocked);
            }
            caller.execute("rollback").await.unwrap();
        }
        let mut caller = db.connect_as(tallygate::schema::Role::App).await;
        caller.begin().await;
        let again = limiter.check_in(caller.joined(), Check::new(zone, "42")).await.unwrap();
        assert!(again.blocked, "run again, it sees both");
        caller.execute("rollback").await.unwrap();
    }
    db.assert_ledger_is_whole().await;
}

/// As for logs: what is held, given back and cleared away locks nothing beside its bucket.
pub async fn what_is_held_locks_no_unrelated_bucket(db: Db) {
    let config = Config { attempts: 1, ..db.config() };
    let limiter = db.limiter_with(config).await;
    let slots = Policy::concurrency(3, Duration::from_micros(1)).unwrap();
    let bans = BanRule::new(1, Duration::from_secs(60), Duration::from_secs(60));
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    limiter.operator().set_zone("login", &log(3, 3600).with_ban(Some(bans)), None, "test").await.unwrap();
    let reserve = |key: &str| Check::new("login", key).reserved_for(Duration::from_millis(1));
    for key in ["k3", "k5", "k7"] {
        for _ in 0..2 {
            limiter.check(Check::new("slots", key)).await.unwrap();
            limiter.check(reserve(key)).await.unwrap();
        }
    }
    let mut caller = db.connect().await;
    caller.begin().await;
    caller.number("select count(*) from zone_txn").await;
    for key in ["k5", "k5", "k5", "k5", "k6"] {
        limiter.check_in(caller.joined(), Check::new("slots", key)).await.unwrap();
        limiter.check_in(caller.joined(), reserve(key)).await.unwrap();
        limiter.check_in(caller.joined(), Check::new("login", key).cost(2)).await.unwrap();
    }
    for key in ["k0", "k3", "k4", "k55", "k5 ", "k59", "k60", "k61", "k7", "k9"] {
        for check in [Check::new("slots", key), reserve(key), Check::new("login", key).cost(4)] {
            limiter
                .check(check)
                .await
                .unwrap_or_else(|error| panic!("{key} waits for a bucket that is not its own: {error}"));
        }
    }
    caller.execute("commit").await.unwrap();
    db.assert_ledger_is_whole().await;
}

/// The charge would be committed by itself, whatever becomes of the caller's payment.
pub async fn what_joins_is_refused_where_no_transaction_is_open(db: Db) {
    let limiter = db.limiter().await;
    let slots = Policy::concurrency(5, Duration::from_secs(3600)).unwrap();
    let zone_id = limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap().id;
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    let check = |zone: &str| Check::new(zone, "42");
    let charged = limiter.check(check("login")).await.unwrap().txn_id;
    let reserved = limiter.reserve(check("login"), Duration::from_secs(600)).await.unwrap().txn_id;
    let held = limiter.check(check("slots")).await.unwrap().txn_id;
    let rows = db.rows().await;
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    let refused = [
        limiter.check_in(caller.joined(), check("login")).await.map(drop),
        limiter.check_in(caller.joined(), check("login").cost(0)).await.map(drop),
        limiter.check_all_in(caller.joined(), vec![check("login"), check("slots")]).await.map(drop),
        limiter.reserve_in(caller.joined(), check("login"), Duration::from_secs(600)).await.map(drop),
        limiter.refund_in(caller.joined(), charged).await.map(drop),
        limiter.settle_in(caller.joined(), reserved, 1).await.map(drop),
        limiter.cancel_in(caller.joined(), reserved).await.map(drop),
        limiter.release_in(caller.joined(), held).await.map(drop),
        limiter.check_velocity_in(caller.joined(), zone_id, "42").await.map(drop),
        limiter.rate_limiting_request_in(caller.joined(), "42", 1, 10).await.map(drop),
    ];
    for (form, refused) in refused.into_iter().enumerate() {
        let Err(error) = refused else { panic!("the form {form} is committed by itself") };
        assert!(error.is_invalid() && error.to_string().contains("begin one"), "{form}: {error}");
    }
    assert_eq!(db.rows().await, rows);
    // One that a statement began is known to the database alone.
    caller.begin().await;
    assert!(limiter.check_in(caller.joined(), check("login")).await.unwrap().is_allowed());
    caller.execute("rollback").await.unwrap();
    assert_eq!(db.rows().await, rows);
}

pub async fn a_routine_that_owns_its_transaction_refuses_to_run_in_one(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    db.create_payment().await;
    let own = [
        "call check_velocity(1, '42')",
        "call rate_limiting_request('42', 1, 10)",
        "call zone_check(1, '42', null, 1, 0, null)",
        "call zone_refund(1, '42', null, null)",
    ];
    for (id, sql) in own.iter().enumerate() {
        let mut caller = db.connect_as(tallygate::schema::Role::App).await;
        caller.execute(&format!("start transaction; insert into payment values ({id})")).await.unwrap();
        let error = caller.execute(sql).await.unwrap_err();
        assert!(error.to_string().contains("1568"), "{sql}: {error}");
        caller.execute("rollback").await.unwrap();
        assert_eq!(
            db.number("select count(*) from payment").await,
            0,
            "{sql} left the transaction as it was"
        );
    }
    assert_eq!(db.rows().await, 0);
}

pub async fn a_routine_that_joins_refuses_to_run_without_one(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    let mut caller = db.connect().await;
    for sql in [
        "call zone_check_in(1, '42', null, 1, 0, null)",
        "call zone_refund_in(1, '42', null, null)",
        "call check_velocity_in(1, '42')",
        "call rate_limiting_request_in('42', 1, 10)",
    ] {
        let error = caller.execute(sql).await.unwrap_err();
        assert!(error.to_string().contains("begin one, or call the routine without _in"), "{error}");
        // The next transaction has the session's own isolation level: its snapshot stands still.
        caller.execute("start transaction").await.unwrap();
        let before = caller.number("select count(*) from zone_master").await;
        db.limiter().await.operator().set_zone(&format!("z {sql}"), &log(5, 60), None, "test").await.unwrap();
        assert_eq!(caller.number("select count(*) from zone_master").await, before);
        caller.execute("commit").await.unwrap();
    }
    caller
        .execute("set autocommit = 0; call zone_check_in(1, '42', null, 1, 0, null); rollback")
        .await
        .unwrap();
    assert_eq!(db.rows().await, 0);
}
