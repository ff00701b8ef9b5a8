//! Mistakes of other limiters are not made here. The numbers are those of the hazards that were found in
//! them; each test begins with the hazard's.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use tallygate::policy::UNITS_MAX;
use tallygate::{Check, Config, Decision, Isolation, Limiter, Policy, Reason};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::db::{Clocked, Db, Engine, bucket, log};
use crate::locks::hold;

const START_US: i64 = 1_800_000_000_000_000;
const TEN_YEARS_S: u64 = 315_576_000;

/// The same limit by both algorithms, with a window so long that nothing comes back while a test runs.
fn both(limit: i64) -> [(&'static str, Policy); 2] {
    [("log", log(limit, TEN_YEARS_S)), ("bucket", bucket(1, TEN_YEARS_S, limit))]
}

async fn set(limiter: &Limiter, zones: impl IntoIterator<Item = (&'static str, Policy)>) {
    for (zone, policy) in zones {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
}

/// Starts a check that must wait, and waits until it surely does.
async fn waiter(limiter: &Limiter, check: Check) -> JoinHandle<tallygate::Result<Decision>> {
    let limiter = limiter.clone();
    let waiter = tokio::spawn(async move { limiter.check(check).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished(), "it waits for the bucket");
    waiter
}

/// Taken before the lock, a waiter's time would be earlier than that of the decision it waited for.
pub async fn h01_a_late_waiter_never_moves_the_anchor_back(db: Db) {
    let limiter = db.limiter().await;
    // A token per millisecond: time earned twice would show.
    set(&limiter, [("bucket", bucket(1000, 1, 1000))]).await;
    limiter.check(Check::new("bucket", "42").cost(1000)).await.unwrap();
    let mut holder = hold(&db, "42").await;
    let late = waiter(&limiter, Check::new("bucket", "42")).await;
    let first = limiter.check_in(holder.joined(), Check::new("bucket", "42").cost(200)).await.unwrap();
    holder.execute("commit").await.unwrap();
    let late = late.await.unwrap().unwrap();
    assert_eq!(late.seq, Some(first.seq.unwrap() + 1));
    assert!(late.decided_at >= first.decided_at, "{late:?} is before {first:?}");
    let between_ms = (late.decided_at - first.decided_at).num_milliseconds();
    assert!(late.remaining <= first.remaining + between_ms, "{late:?} after {first:?}");
    db.assert_ledger_is_whole().await;
}

/// The waiter's statement began before the other's commit; what it decides by must not be as old.
pub async fn h02_a_waiter_sees_what_was_spent_while_it_waited(db: Db) {
    let isolations = match db.engine {
        Engine::Sqlite => &[Isolation::RowLock][..],
        _ => &[Isolation::RowLock, Isolation::Serializable],
    };
    for &isolation in isolations {
        let config = Config { isolation, attempts: 1000, ..db.config() };
        let limiter = db.limiter_with(config).await;
        set(&limiter, both(100)).await;
        for (zone, seen) in [("log", 0), ("log", 1), ("bucket", 0), ("bucket", 1)] {
            let key = format!("{isolation:?}, seen {seen} times");
            for _ in 0..seen {
                limiter.check(Check::new(zone, &key)).await.unwrap();
            }
            let mut caller = db.connect_as(tallygate::schema::Role::App).await;
            caller.begin().await;
            limiter.check_in(caller.joined(), Check::new(zone, &key).cost(60)).await.unwrap();
            let waiter = waiter(&limiter, Check::new(zone, &key).cost(60)).await;
            caller.execute("commit").await.unwrap();
            let decision = waiter.await.unwrap().unwrap();
            assert_eq!((decision.blocked, decision.remaining), (true, 40 - seen), "{zone} {key}");
        }
    }
    db.assert_ledger_is_whole().await;
}

/// A batch may keep its work in a table of its own, and the second batch must not trip over the first's.
pub async fn h03_two_batches_in_one_transaction_both_count(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, [("log", log(3, 3600))]).await;
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    caller.begin().await;
    for cost in [2, 1] {
        let batch = vec![Check::new("log", "a").cost(cost), Check::new("log", "b")];
        assert!(limiter.check_all_in(caller.joined(), batch).await.unwrap().is_allowed());
    }
    caller.execute("commit").await.unwrap();
    assert_eq!(db.rows().await, 4);
    assert_eq!(limiter.peek("log", "a").await.unwrap().remaining, 0);
    assert_eq!(limiter.peek("log", "b").await.unwrap().remaining, 1);
}

/// A thousand blocked checks: no temporary table ever, no new relation, and the bucket's row is updated in
/// place, within its page.
pub async fn h03_blocked_checks_leave_no_bloat_and_nothing_in_the_catalogue(db: Db) {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&db.url_as(tallygate::schema::Role::App))
        .await
        .unwrap();
    let limiter = db.with_staff(Limiter::with_pool(pool.clone(), Config::default()).await.unwrap()).await;
    set(&limiter, [("log", log(1, 3600))]).await;
    let number = async |sql: &'static str| -> i64 { sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap() };
    let relations = "select count(*) from pg_class where relnamespace = current_schema()::regnamespace";
    let before = number(relations).await;
    limiter.check(Check::new("log", "42")).await.unwrap();
    for _ in 0..1000 {
        assert!(limiter.check(Check::new("log", "42")).await.unwrap().blocked);
    }
    assert_eq!(number(relations).await, before);
    assert_eq!(number("select pg_my_temp_schema()::bigint").await, 0, "a temporary table was made");
    assert!(number("select pg_relation_size('zone_bucket_lock')").await <= 4 * 8192);
    sqlx::query("select pg_stat_force_next_flush()").execute(&pool).await.unwrap();
    let statistics = |column: &str| match column {
        "all" => "select n_tup_upd from pg_stat_user_tables where relid = 'zone_bucket_lock'::regclass",
        _ => "select n_tup_hot_upd from pg_stat_user_tables where relid = 'zone_bucket_lock'::regclass",
    };
    let (all, in_place) = (number(statistics("all")).await, number(statistics("hot")).await);
    // By the engine the first check makes the row as it leaves it.
    assert!(all >= 1000 && in_place >= all - 10, "{in_place} of {all} updates were in place");
}

/// One lock per bucket: not per zone, not per key in all zones, not per table.
pub async fn h04_keys_and_zones_do_not_wait_for_each_other(db: Db) {
    let config = Config { attempts: 1, ..db.config() };
    let limiter = db.limiter_with(config).await;
    set(&limiter, both(100)).await;
    // InnoDB locks what a SERIALIZABLE transaction reads, and the gaps beside it: a caller that joins from such
    // a transaction has asked for that.
    let second = if db.engine == Engine::Postgres { "serializable" } else { "repeatable read" };
    for isolation in ["read committed", second] {
        let mut caller = db.connect_as(tallygate::schema::Role::App).await;
        let begin = match db.engine {
            Engine::Postgres => format!("begin isolation level {isolation}"),
            _ => format!("set session transaction isolation level {isolation}; begin"),
        };
        caller.execute(&begin).await.unwrap();
        limiter.check_in(caller.joined(), Check::new("log", "m")).await.unwrap();
        for (zone, key) in [("bucket", "m"), ("log", "a"), ("log", "z"), ("log", "m "), ("log", "M")] {
            for _ in 0..2 {
                let decision = limiter.check(Check::new(zone, key).txn(Uuid::now_v7())).await;
                assert!(decision.unwrap_or_else(|error| panic!("{zone} {key} waits: {error}")).is_allowed());
            }
        }
        caller.execute("commit").await.unwrap();
    }
}

pub async fn h05_contention_never_turns_into_a_denial(db: Db) {
    let patient = db.limiter().await;
    set(&patient, [("log", log(1000, 3600))]).await;
    patient.check(Check::new("log", "42")).await.unwrap();
    let limiter = db.limiter_with(Config { deadline: Duration::from_secs(1), ..Config::default() }).await;
    let mut holder = hold(&db, "42").await;
    for _ in 0..2 {
        let error = limiter.check(Check::new("log", "42")).await.unwrap_err();
        assert!(error.is_transient(), "no answer is an error, not a no: {error}");
    }
    holder.execute("rollback").await.unwrap();
    for _ in 0..10 {
        assert!(patient.check(Check::new("log", "42")).await.unwrap().is_allowed());
    }
    let blocked = if db.engine == Engine::Postgres { "blocked" } else { "blocked = 1" };
    assert_eq!(db.number(&format!("select count(*) from zone_txn where {blocked}")).await, 0);
}

/// All or nothing over several zones is the caller's transaction: a no from one takes back the others' yes.
pub async fn h06_one_zones_rejection_can_take_back_what_the_others_gave(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, [("user", log(5, 3600)), ("address", bucket(1, 3600, 3)), ("card", log(1, 3600))]).await;
    limiter.check(Check::new("card", "9f3c")).await.unwrap();
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    let mut ask = async |zones: [(&str, &str); 3]| {
        caller.begin().await;
        let mut passes = true;
        for (zone, key) in zones {
            let check = Check::new(zone, key);
            passes = passes && limiter.check_in(caller.joined(), check).await.unwrap().is_allowed();
        }
        caller.execute(if passes { "commit" } else { "rollback" }).await.unwrap();
        passes
    };
    assert!(!ask([("user", "u"), ("address", "a"), ("card", "9f3c")]).await);
    assert_eq!(limiter.peek("user", "u").await.unwrap().remaining, 5, "given back");
    assert_eq!(limiter.peek("address", "a").await.unwrap().remaining, 3, "given back");
    assert!(ask([("user", "u"), ("address", "a"), ("card", "77aa")]).await);
    assert_eq!(limiter.peek("user", "u").await.unwrap().remaining, 4);
    assert_eq!(db.rows().await, 4);
}

/// A row that another holds is no missing row: nothing passes a full bucket because it is locked.
pub async fn h07_a_held_row_is_waited_for_never_skipped(db: Db) {
    let limiter = db.limiter_with(db.config()).await;
    set(&limiter, [("log", log(1, 3600))]).await;
    for key in ["42", "43"] {
        limiter.check(Check::new("log", key)).await.unwrap();
    }
    let mut holder = hold(&db, "42").await;
    let alone = waiter(&limiter, Check::new("log", "42")).await;
    let batch = {
        let limiter = limiter.clone();
        let checks = ["43", "42"].map(|key| Check::new("log", key)).to_vec();
        tokio::spawn(async move { limiter.check_many(checks).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!alone.is_finished() && !batch.is_finished(), "both wait");
    holder.execute("rollback").await.unwrap();
    assert!(alone.await.unwrap().unwrap().blocked);
    assert!(batch.await.unwrap().unwrap().iter().all(|decision| decision.blocked));
}

/// No routine begins or ends a transaction that is not its own: not even the caller's savepoints are lost.
pub async fn h08_the_callers_savepoint_outlives_the_check_that_it_takes_back(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, both(5)).await;
    db.execute("create table payment (id int primary key)").await;
    for (n, zone) in ["log", "bucket"].into_iter().enumerate() {
        let mut caller = db.connect().await;
        caller.begin().await;
        caller.execute(&format!("insert into payment values ({})", 10 * n + 1)).await.unwrap();
        caller.execute("savepoint before_check").await.unwrap();
        let check = Check::new(zone, "42").cost(4);
        assert!(limiter.check_in(caller.joined(), check).await.unwrap().is_allowed());
        caller.execute("rollback to savepoint before_check").await.unwrap();
        caller.execute(&format!("insert into payment values ({})", 10 * n + 2)).await.unwrap();
        assert_eq!(caller.number("select count(*) from zone_txn").await, 0);
        caller.execute("rollback to savepoint before_check; rollback").await.unwrap();
        assert_eq!(db.number("select count(*) from payment").await, 0, "the caller's rollback was whole");
        assert_eq!(limiter.peek(zone, "42").await.unwrap().remaining, 5);
    }
    assert_eq!(db.rows().await, 0);
}

pub async fn h09_the_first_call_of_a_bucket_is_held_to_the_limit(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, both(5)).await;
    for zone in ["log", "bucket"] {
        for cost in [6, 7, UNITS_MAX] {
            let key = format!("first asks for {cost}");
            let first = limiter.check(Check::new(zone, &key).cost(cost)).await.unwrap();
            assert_eq!((first.reason, first.remaining), (Reason::ExceedsLimit, 5), "{zone}");
            assert_eq!(first.retry_after_us, None);
            assert!(limiter.check(Check::new(zone, &key).cost(5)).await.unwrap().is_allowed());
            assert!(limiter.check(Check::new(zone, &key)).await.unwrap().blocked);
        }
    }
    assert_eq!(db.number("select min(coalesce(level, 0)) from zone_bucket_lock").await, 0, "no debt");
    db.assert_ledger_is_whole().await;
}

/// New York's clocks skip from 02:00 to 03:00: an hour on them is still an hour.
pub async fn h10_a_session_in_daylight_saving_time_changes_nothing(db: Db) {
    let clocked = Clocked::create(&db).await;
    set(&clocked.limiter, [("log", log(1, 3600)), ("bucket", bucket(1, 3600, 1))]).await;
    let change_us = 1_772_953_200_000_000; // 2026-03-08 07:00 UTC
    // Sessions of MySQL change their offset, as a server in that zone would; few servers know zones by name.
    let (before, after) = match db.engine {
        Engine::Postgres => ("set time zone 'America/New_York'", "set time zone 'America/New_York'"),
        _ => ("set time_zone = '-05:00'", "set time_zone = '-04:00'"),
    };
    for zone in ["log", "bucket"] {
        let half_us = 1_800_000_000;
        let mut decided = Vec::new();
        let steps = [(-half_us, before), (0, after), (half_us - 1, after), (half_us, after)];
        for (offset_us, session) in steps {
            clocked.set(change_us + offset_us).await;
            clocked.execute(session).await;
            let decision = clocked.limiter.check(Check::new(zone, "42")).await.unwrap();
            assert_eq!(decision.decided_at.timestamp_micros(), change_us + offset_us, "told in UTC");
            decided.push((decision.blocked, decision.retry_after_us));
        }
        assert_eq!(decided, [(false, None), (true, Some(half_us)), (true, Some(1)), (false, None)], "{zone}");
    }
    db.assert_ledger_is_whole().await;

    // The same sessions by the server's own clock.
    let limiter = db.limiter().await;
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    caller.execute(after).await.unwrap();
    let utc_us = match db.engine {
        Engine::Postgres => "select (extract(epoch from clock_timestamp()) * 1000000)::bigint",
        _ => "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
    };
    db.remove_test_clock().await;
    let earliest_us = caller.number(utc_us).await;
    caller.begin().await;
    let decision = limiter.check_in(caller.joined(), Check::new("log", "new")).await.unwrap();
    caller.execute("commit").await.unwrap();
    let decided_us = decision.decided_at.timestamp_micros();
    assert!((earliest_us..=caller.number(utc_us).await).contains(&decided_us), "{decided_us}");
}

/// There is no argument by which a client could tell a routine what time it is. The routines inside hand the time on
/// that was read under the lock: on PostgreSQL they have no rights of their own, on MySQL nobody is granted them.
pub async fn h11_no_routine_takes_its_time_from_the_client(db: Db) {
    // The engine's routines, and the operator's, are told the time that zone_engine_hold told the process.
    let for_callers = if db.engine == Engine::Postgres {
        "specific_schema = current_schema() and specific_name in (
            select r.specific_name from information_schema.routines r
            where r.specific_schema = current_schema() and r.security_type = 'DEFINER'
                and left(r.routine_name, 12) <> 'zone_engine_' and r.routine_name <> 'zone_operator_append'
        )"
    } else {
        "specific_schema = database() and specific_name in (
            'check_velocity', 'check_velocity_in', 'rate_limiting_request', 'rate_limiting_request_in', 'zone_find',
            'zone_check', 'zone_check_in', 'zone_refund', 'zone_refund_in', 'zone_charges'
        )"
    };
    let arguments = format!(
        "select count(*) from information_schema.parameters where {for_callers} and parameter_mode in ('IN', 'INOUT')"
    );
    assert!(db.number(&arguments).await > 30, "the routines for callers were not found");
    let times = "data_type like 'timestamp%' or data_type like 'date%' or data_type like 'time%'";
    assert_eq!(db.number(&format!("{arguments} and ({times})")).await, 0);
}

/// A client that keeps asking is let in as soon as one that waits.
pub async fn h12_blocked_checks_consume_nothing(db: Db) {
    let clocked = Clocked::create(&db).await;
    set(&clocked.limiter, [("log", log(4, 60)), ("bucket", bucket(4, 60, 4))]).await;
    for zone in ["log", "bucket"] {
        let check = async |at_us: i64, cost: i64| {
            clocked.set(START_US + at_us).await;
            clocked.limiter.check(Check::new(zone, "42").cost(cost)).await.unwrap()
        };
        check(0, 3).await;
        let promised_us = check(0, 2).await.retry_after_us.unwrap();
        for poll in 1..50 {
            let at_us = promised_us * poll / 50;
            let decision = check(at_us, 2).await;
            assert_eq!(decision.retry_after_us, Some(promised_us - at_us), "{zone}: the promise is kept");
            assert_eq!(check(at_us, 5).await.reason, Reason::ExceedsLimit);
        }
        assert!(check(promised_us, 2).await.is_allowed(), "{zone}");
    }
    assert_eq!(db.number("select max(spent_total) from zone_bucket_lock").await, 5);
    db.assert_ledger_is_whole().await;
}

pub async fn h13_a_long_idle_gives_no_extra_token(db: Db) {
    let clocked = Clocked::create(&db).await;
    let large = Policy::token_bucket(UNITS_MAX, Duration::from_secs(1), None).unwrap();
    let zones =
        [("log", log(5, 60)), ("bucket", bucket(5, 60, 5)), ("burst", bucket(1, 1, 5)), ("large", large)];
    set(&clocked.limiter, zones).await;
    for (zone, policy) in zones {
        let share = policy.limit() / 5;
        let mut now_us = START_US;
        for idle_us in
            [0, policy.window_us() * 5, policy.window_us() * 1000 + 1, 300 * TEN_YEARS_S as i64 * 100_000]
        {
            now_us += idle_us;
            clocked.set(now_us).await;
            let mut allowed = 0;
            for _ in 0..7 {
                let check = Check::new(zone, "42").cost(share);
                allowed += i64::from(clocked.limiter.check(check).await.unwrap().is_allowed());
            }
            let left = clocked.limiter.peek(zone, "42").await.unwrap().remaining;
            assert_eq!((allowed, left), (5, policy.limit() - 5 * share), "{zone} after {idle_us} µs");
        }
    }
}
