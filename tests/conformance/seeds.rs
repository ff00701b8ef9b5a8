//! The calls that the project grew from work as they were written, without the faults that they had.

use std::time::Duration;

use futures_util::future::{join, join_all};
use sqlx::{AssertSqlSafe, Row};
use tallygate::audit::verify::Verify;
use tallygate::policy::{BanRule, BlockedRows, CalendarUnit, Mode, OnOutage, RunningBuckets};
use tallygate::schema::Role;
use tallygate::{Check, Config, Isolation, Policy};

use crate::db::{Clocked, Connected, Db, Engine, bucket, connected, log};
use crate::proxy::Proxy;
use crate::{program, rounds};

const NOON_US: i64 = 1_793_534_400_000_000;

pub async fn check_velocity_answers_as_in_the_seed(db: Db) {
    let limiter = db.limiter().await;
    let zone = limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    assert_eq!(zone.id, 1);
    let mut session = db.connect_as(tallygate::schema::Role::App).await;
    let mut blocked = Vec::new();
    for _ in 0..7 {
        blocked.push(
            session
                .number(match db.engine {
                    Engine::Postgres => "select blocked from check_velocity(1, '1_42')",
                    _ => "call check_velocity(1, '1_42')",
                })
                .await,
        );
    }
    assert_eq!(blocked, [0, 0, 0, 0, 0, 1, 1]);
    if db.engine == Engine::Postgres {
        // Each node counts by itself.
        let id = if db.is_spread { "> 0" } else { "= 8" };
        let row = format!(
            "select count(*) from check_velocity(1, '1_42') where blocked = 1 and id {id} and zone_id = 1
                and bucket_key = '1_42' and rate = 5 and window_seconds = 60"
        );
        assert_eq!(session.number(&row).await, 1);
    }
    let error = session.execute(match db.engine {
        Engine::Postgres => "select blocked from check_velocity(99, '1_42')",
        _ => "call check_velocity(99, '1_42')",
    });
    assert!(error.await.unwrap_err().to_string().contains("no zone 99"));
    db.assert_ledger_is_whole().await;
}

/// Each way in which a zone can be more than plain has its reason, which the column, the library and the error tell alike.
pub async fn a_zone_that_is_more_than_plain_is_refused_with_its_reason(db: Db) {
    let limiter = db.limiter().await;
    let second = Duration::from_secs(1);
    let plain = log(5, 60);
    let counter = Policy::sliding_counter(5, second, 5).unwrap();
    let calendar = Policy::calendar(5, CalendarUnit::Day, "UTC".parse().unwrap()).unwrap();
    let policies = [
        (plain, None),
        (Policy::fixed_window(5, second).unwrap(), None),
        (bucket(5, 1, 9), None),
        (Policy::leaky_bucket(5, second, None).unwrap(), None),
        (Policy::uniform(5, second).unwrap(), None),
        (plain.with_mode(Mode::Off).with_on_outage(OnOutage::Open).with_local(Some(second)), None),
        (counter, Some("algorithm")),
        (calendar, Some("calendar")),
        (plain.with_mode(Mode::Shadow), Some("mode")),
        (plain.with_soft_rate(Some(3)), Some("soft limit")),
        (plain.with_reserve(1), Some("reserve")),
        (plain.with_ban(Some(BanRule::new(3, second, second))), Some("ban")),
        (plain.with_count_blocked(true), Some("counted blocks")),
        (plain.with_blocked_rows(BlockedRows::Coalesced), Some("coalesced rows")),
        (log(7, 60).with_running_buckets(RunningBuckets::Proportional), Some("change")),
        (plain, None),
    ];
    let mut caller = db.connect_as(Role::Caller).await;
    let call = match db.engine {
        Engine::Postgres => "select blocked from check_velocity(1, 'key')",
        _ => "call check_velocity(1, 'key')",
    };
    for (policy, beyond) in policies {
        assert_eq!(policy.beyond_sql(), beyond);
        limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
        let told = db.connect().await.texts("select coalesce(beyond_sql, 'plain') from zone_master").await;
        assert_eq!(told, [beyond.unwrap_or("plain")]);
        let Some(beyond) = beyond else {
            // The bucket goes on from there, whoever decides.
            limiter.check(Check::new("login", "key").cost(1)).await.unwrap();
            caller.number(call).await;
            continue;
        };
        let error = caller.execute(call).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("TG012"));
        let told = format!("zone 1 is not plain ({beyond})");
        let ways = ["use the library", "POST /v1/check"];
        let error = error.to_string();
        assert!(error.contains(&told) && ways.iter().all(|way| error.contains(way)), "{error}");
        limiter.check(Check::new("login", "key")).await.unwrap();
    }
    db.assert_ledger_is_whole().await;
}

/// A bucket that began full with another policy, while a reservation was open, stays full when that ends.
pub async fn a_reservation_that_ends_in_a_full_bucket_leaves_it_full(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    limiter.reserve(Check::new("login", "key").cost(5), Duration::from_millis(300)).await.unwrap();
    let tokens = Policy::token_bucket(3, Duration::from_secs(3600), None).unwrap();
    limiter.operator().set_zone("login", &tokens, None, "test").await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let mut caller = db.connect_as(Role::Caller).await;
    let call = match db.engine {
        Engine::Postgres => "select blocked from check_velocity(1, 'key')",
        _ => "call check_velocity(1, 'key')",
    };
    let mut blocked = Vec::new();
    for _ in 0..4 {
        blocked.push(caller.number(call).await);
    }
    assert_eq!(blocked, [0, 0, 0, 1]);
    db.assert_ledger_is_whole().await;
}

/// By the command, which asks whether callers in SQL use the zone.
pub async fn a_zone_that_sql_callers_use_stays_plain_unless_it_is_said_twice(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["login", "quiet"] {
        limiter.operator().set_zone(zone, &log(5, 60), None, "test").await.unwrap();
        limiter.check(Check::new(zone, "key")).await.unwrap();
    }
    let mut caller = db.connect_as(Role::Caller).await;
    let call = match db.engine {
        Engine::Postgres => "select blocked from check_velocity(1, 'key')",
        _ => "call check_velocity(1, 'key')",
    };
    caller.number(call).await;
    // By the library the row of the bucket is written again, and keeps who called.
    limiter.check(Check::new("login", "key")).await.unwrap();
    let set = async |zone: &str, more: &[&str]| {
        let mut command = program::tallygate(&db.url_as(Role::Operator));
        command.args(["zone", "set", zone, "--rate", "5", "--per", "1m", "--reserve", "1"]).args(more);
        let output = command.output().await.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (done, error) = set("login", &[]).await;
    assert!(!done && error.contains("(reserve)") && error.contains("--not-for-sql"), "{error}");
    assert_eq!(limiter.operator().zone("login").await.unwrap().unwrap().version, 1);
    assert_eq!(set("quiet", &[]).await, (true, String::new()));
    let (done, told) = set("login", &["--not-for-sql"]).await;
    assert!(done && told.contains("refuses callers in SQL"), "{told}");
    assert!(caller.execute(call).await.unwrap_err().to_string().contains("is not plain (reserve)"));
}

/// SQL callers know a zone by its name; those that keep its number may go on doing so.
pub async fn a_zone_is_named_by_its_name_or_its_number(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("log'in", &log(50, 60), None, "test").await.unwrap();
    let mut app = db.connect_as(Role::App).await;
    let txn = uuid::Uuid::now_v7().simple();
    for (way, login) in ["'log''in'", "1", "'1'"].into_iter().enumerate() {
        let before = db.rows().await;
        let calls = if db.engine == Engine::Postgres {
            [
                format!("select check_velocity({login}, '{way}')"),
                format!("select zone_check({login}, '{way}', '{txn}')"),
                format!("select zone_refund({login}, '{way}', '{txn}')"),
            ]
        } else {
            [
                format!("call check_velocity({login}, '{way}')"),
                format!("call zone_check({login}, '{way}', x'{txn}', 1, false, 5)"),
                format!("call zone_refund({login}, '{way}', x'{txn}', 5)"),
            ]
        };
        for call in &calls {
            app.execute(call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
        }
        assert_eq!(db.rows().await - before, 3, "{login}");
    }
    if db.engine != Engine::Postgres {
        app.begin().await;
        for login in ["'log''in'", "1"] {
            for call in [
                format!("check_velocity_in({login}, 'in')"),
                format!("zone_check_in({login}, 'in', x'{txn}', 1, false, 5)"),
                format!("zone_refund_in({login}, 'in', x'{txn}', 5)"),
            ] {
                app.execute(&format!("call {call}")).await.unwrap_or_else(|error| panic!("{call}: {error}"));
            }
        }
        app.execute("commit").await.unwrap();
    }
    for unknown in ["'login'", "'99'", "'-1'", "'99999999999'", "'LOG''IN'"] {
        let call = match db.engine {
            Engine::Postgres => format!("select blocked from check_velocity({unknown}, 'a')"),
            _ => format!("call check_velocity({unknown}, 'a')"),
        };
        let error = app.execute(&call).await.unwrap_err().to_string();
        let says = format!("there is no zone {}", unknown.trim_matches('\'').replace("''", "'"));
        assert!(error.contains(&says), "{error}");
    }
    db.assert_ledger_is_whole().await;
}

/// Tokens left after one call.
async fn request(session: &mut Connected, id: &str) -> i64 {
    session
        .number(&match session {
            Connected::Postgres(_) => format!("select rate_limiting_request('{id}', 1, 10)"),
            _ => format!("call rate_limiting_request('{id}', 1, 10)"),
        })
        .await
}

/// A session whose clock is set by the test.
async fn clocked(db: &Db) -> Connected {
    db.install_test_clock().await;
    db.connect_as(tallygate::schema::Role::App).await
}

pub async fn rate_limiting_request_counts_down_and_refills(db: Db) {
    let mut session = clocked(&db).await;
    let mut left = Vec::new();
    for call in 0..13 {
        session.set_clock(NOON_US + call * 10_000).await;
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1, -1]);
    let mut left = Vec::new();
    for call in 0..5 {
        session.set_clock(NOON_US + 120_000 + 4_000_000 + call * 10_000).await;
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [3, 2, 1, 0, -1], "four seconds of silence are four tokens");
    assert_eq!(request(&mut session, "user2").await, 9, "another id has a bucket of its own");
    assert_eq!(db.number("select count(*) from zone_master").await, 1, "one zone for these parameters");
    assert_eq!(db.rows().await, 19, "every call is in the ledger");
}

pub async fn serializable_by_default_changes_nothing(db: Db) {
    let mut session = db.connect_as(tallygate::schema::Role::App).await;
    session.execute("set default_transaction_isolation = serializable").await.unwrap();
    let mut left = Vec::new();
    for _ in 0..12 {
        left.push(request(&mut session, "user1").await);
    }
    assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1]);
}

/// The seed's first call could fail with 23505: half of 16 clients died.
pub async fn the_first_calls_of_a_new_id_never_fail(db: Db) {
    let mut sessions = Vec::new();
    for _ in 0..16 {
        sessions.push(db.connect_as(tallygate::schema::Role::App).await);
    }
    for round in 0..rounds(20, 500) {
        // A zone that is new and an id that is new, then an id that is new in a zone that is there.
        for (id, refill) in [("new".to_owned(), round + 2), (format!("new {round}"), 1)] {
            let calls = sessions.iter_mut().map(async |session| {
                session
                    .number(&match session {
                        Connected::Postgres(_) => {
                            format!("select rate_limiting_request('{id}', {refill}, 100)")
                        }
                        _ => format!("call rate_limiting_request('{id}', {refill}, 100)"),
                    })
                    .await
            });
            let left = join_all(calls).await;
            let full = refill as i64 * 100;
            // Units that flow in while they race can show a number twice; never more than was there.
            assert!(left.iter().all(|left| (full - 16..full).contains(left)), "{left:?}");
        }
    }
    assert_eq!(db.rows().await as usize, 2 * 16 * rounds(20, 500));
    db.assert_ledger_is_whole().await;
}

/// The seed rounded each refill, so calls that came often earned nothing.
pub async fn half_tokens_are_not_lost(db: Db) {
    let mut session = clocked(&db).await;
    session.set_clock(NOON_US).await;
    for _ in 0..10 {
        request(&mut session, "user1").await;
    }
    let mut passed = 0;
    for call in 1..=100 {
        session.set_clock(NOON_US + call * 400_000).await;
        passed += i64::from(request(&mut session, "user1").await >= 0);
    }
    assert_eq!(passed, 40, "40 seconds are 40 tokens, however often one asks");
}

/// The seed took a token for a refusal too, so a client that polled never recovered.
pub async fn a_refused_call_costs_nothing(db: Db) {
    let mut session = clocked(&db).await;
    session.set_clock(NOON_US).await;
    for _ in 0..10 {
        request(&mut session, "user1").await;
    }
    for poll in 1..100 {
        session.set_clock(NOON_US + poll * 10_000).await;
        assert_eq!(request(&mut session, "user1").await, -1);
    }
    session.set_clock(NOON_US + 1_000_000).await;
    assert_eq!(request(&mut session, "user1").await, 0, "the token is there when its second is over");
}

/// The seed took the transaction's start for the time of its decision, so a late one earned time twice.
pub async fn the_wait_for_the_lock_earns_nothing_twice(db: Db) {
    let limiter = db.limiter().await;
    // 100 tokens a second, and room for 100.
    limiter.operator().set_zone("z", &bucket(100, 1, 100), None, "test").await.unwrap();
    limiter.check(Check::new("z", "42").cost(100)).await.unwrap();
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    match db.engine {
        Engine::Postgres => caller.execute("begin; select 1").await.unwrap(),
        _ => caller
            .execute("set transaction isolation level read committed; start transaction; select 1")
            .await
            .unwrap(),
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    let later = limiter.check(Check::new("z", "42").cost(1)).await.unwrap();
    let late = limiter.check_in(caller.joined(), Check::new("z", "42").cost(1)).await.unwrap();
    caller.execute("commit").await.unwrap();
    assert!(late.decided_at >= later.decided_at, "the transaction began earlier and is decided later");
    let between_us = (late.decided_at - later.decided_at).num_microseconds().unwrap();
    let earned = between_us / 10_000 + 1;
    assert!(
        late.remaining < later.remaining + earned,
        "{} after {} and {between_us} µs",
        late.remaining,
        later.remaining
    );
}

/// The row of `check_velocity` in plain SQL: blocked, id, zone, bucket, rate, seconds.
async fn plain_velocity(
    session: &mut Connected,
    zone_id: i32,
    key: &str,
) -> (bool, i64, i32, String, i64, i64) {
    match session {
        Connected::Postgres(c) => {
            let row = "blocked = 1, id, zone_id, bucket_key, rate, window_seconds";
            let sql = format!("select {row} from check_velocity({zone_id}, '{key}')");
            sqlx::query_as(AssertSqlSafe(sql)).fetch_one(c).await.unwrap()
        }
        _ => {
            let rows = session.rows(&format!("call check_velocity({zone_id}, '{key}')")).await;
            let row = &rows[0];
            (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
        }
    }
}

pub async fn the_typed_calls_answer_as_the_routines_do(db: Db) {
    for &isolation in db.engine.isolations() {
        let clocked = Clocked::create_with(&db, isolation).await;
        let limiter = &clocked.limiter;
        clocked.set(NOON_US).await;
        let zone = limiter.operator().set_zone("login", &log(2, 60), None, "test").await.unwrap();
        let mut session = match db.engine {
            Engine::Sqlite => None,
            _ => Some(db.connect_as(Role::App).await),
        };
        if let Some(session) = &mut session {
            session.set_clock(NOON_US).await;
        }
        let (typed, plain) = (format!("typed {isolation:?}"), format!("plain {isolation:?}"));
        for seq in 1..=3 {
            let velocity = limiter.check_velocity(zone.id, &typed).await.unwrap();
            let id = async |key: &str| {
                db.number(&format!("select id from zone_txn where bucket_key = '{key}' and seq = {seq}"))
                    .await
            };
            let row = (velocity.blocked, velocity.id, velocity.zone_id, velocity.key, velocity.rate);
            assert_eq!(row, (seq > 2, id(&typed).await, zone.id, typed.clone(), 2));
            assert_eq!(velocity.window_seconds, 60);
            if let Some(session) = &mut session {
                let row = plain_velocity(session, zone.id, &plain).await;
                assert_eq!(row, (seq > 2, id(&plain).await, zone.id, plain.clone(), 2, 60));
            }
        }
        let mut left = Vec::new();
        for call in 0..20 {
            // Twelve at once, and four seconds later the others.
            let us = NOON_US + if call < 12 { 0 } else { 4_000_000 };
            clocked.set(us).await;
            left.push(limiter.rate_limiting_request(&typed, 1, 10).await.unwrap());
            if let Some(session) = &mut session {
                session.set_clock(us).await;
                assert_eq!(request(session, &plain).await, left[call], "{call}");
            }
        }
        assert_eq!(left, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1, 3, 2, 1, 0, -1, -1, -1, -1]);
        assert_eq!(db.number("select count(*) from zone_master").await, 2, "both find the same zone");
    }
    let limiter = db.limiter().await;
    let rows = db.rows().await;
    for (error, because) in [
        (limiter.check_velocity(99, "42").await.map(drop), "no zone 99"),
        (limiter.check_velocity(1, "").await.map(drop), "is empty"),
        (limiter.rate_limiting_request("42", 0, 10).await.map(drop), "0 tokens a second"),
        (limiter.rate_limiting_request("42", 65_536, 32_768).await.map(drop), "2147483647 tokens in all"),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.is_unknown_zone(), because == "no zone 99", "{error}");
        assert!(error.is_unknown_zone() || error.is_invalid(), "{error}");
        assert!(error.to_string().contains(because), "{error}");
    }
    assert_eq!(db.rows().await, rows);
    db.assert_ledger_is_whole().await;
    let verified = limiter.auditor().verify(&Verify::default(), |_| ()).await.unwrap();
    assert_eq!(verified.faults, 0);
}

pub async fn the_typed_calls_join_the_callers_transaction(db: Db) {
    let limiter = db.limiter().await;
    let zone = limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let mut caller = db.connect_as(Role::App).await;
    for (end, rows) in [("rollback", 0), ("commit", 4), ("rollback", 4)] {
        caller.begin().await;
        let mut blocked = Vec::new();
        for _ in 0..2 {
            blocked.push(limiter.check_velocity_in(caller.joined(), zone.id, "42").await.unwrap().blocked);
        }
        assert_eq!(blocked, [rows > 0 && end == "rollback"; 2], "{end}");
        // 100 tokens at first; what flows in meanwhile fills at most what was taken.
        for _ in 0..2 {
            let left = limiter.rate_limiting_request_in(caller.joined(), "42", 1, 100).await.unwrap();
            assert!((96..100).contains(&left), "{left}");
        }
        caller.execute(end).await.unwrap();
        assert_eq!(db.rows().await, rows, "{end}");
        let zones = 1 + i64::from(rows > 0);
        assert_eq!(db.number("select count(*) from zone_master").await, zones, "a zone is made with its row");
    }
    assert!((97..100).contains(&limiter.rate_limiting_request("42", 1, 100).await.unwrap()));
    db.assert_ledger_is_whole().await;
}

/// Limiters of eight processes, under SERIALIZABLE: conflicts are asked again until each has its answer.
pub async fn serializable_typed_calls_are_tried_again_until_they_are_decided(db: Db) {
    let config = Config { isolation: Isolation::Serializable, connections: 2, ..db.config() };
    let zone = db.limiter().await.operator().set_zone("login", &log(10, 3600), None, "test").await.unwrap();
    let limiters = join_all((0..8).map(|_| db.limiter_with(config))).await;
    let calls = limiters.iter().map(async |limiter| {
        let mut allowed = 0;
        for _ in 0..rounds(8, 80) {
            allowed += usize::from(!limiter.check_velocity(zone.id, "42").await.unwrap().blocked);
            limiter.rate_limiting_request("42", 1, 1_000).await.unwrap();
        }
        allowed
    });
    assert_eq!(join_all(calls).await.into_iter().sum::<usize>(), 10);
    assert_eq!(db.rows().await as usize, 2 * 8 * rounds(8, 80));
    db.assert_ledger_is_whole().await;
}

/// There is no transaction id by which it could be asked whether the lost answer was a decision.
pub async fn a_typed_call_whose_answer_is_lost_is_not_made_again(db: Db) {
    let zone = db.limiter().await.operator().set_zone("login", &log(10, 3600), None, "test").await.unwrap();
    let proxy = Proxy::before(&db.url_as(Role::App)).await;
    let limiter = connected(&proxy.url).await;
    for cuts in 1..=3 {
        limiter.check_velocity(zone.id, "42").await.unwrap();
        proxy.cut_one_of(1);
        let lost = async {
            while proxy.cuts() < cuts {
                tokio::task::yield_now().await;
            }
            proxy.cut_one_of(0);
        };
        let (answer, ()) = join(limiter.check_velocity(zone.id, "42"), lost).await;
        assert!(answer.unwrap_err().is_transient());
        assert_eq!(db.rows().await as usize, 2 * cuts);
    }
}
