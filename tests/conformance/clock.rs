//! P5: the database's clock decides, and nobody else's.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tallygate::audit::report::ReportOn;
use tallygate::audit::verify::{Verify, Verifying};
use tallygate::policy::{Algorithm, CalendarUnit, Override};
use tallygate::schema::{Migrator, Role, Upkeep};
use tallygate::{Check, Config, ErrorKind, Policy};
use uuid::{NoContext, Timestamp, Uuid};

use crate::db::{Clocked, Connected, Db, Engine, bucket, connected, log};
use crate::verify::verify;
use crate::{program, upgrade};

const NOON_US: i64 = 1_793_534_400_000_000; // 2026-11-01 12:00 UTC
const DAY_US: i64 = 86_400_000_000;

pub async fn a_clock_that_goes_backwards_never_moves_a_bucket_back(db: Db) {
    let clocked = Clocked::create(&db).await;
    clocked.limiter.operator().set_zone("log", &log(2, 60), None, "test").await.unwrap();
    clocked.limiter.operator().set_zone("bucket", &bucket(60, 60, 2), None, "test").await.unwrap();
    for zone in ["log", "bucket"] {
        let check = async |us: i64| {
            clocked.set(us).await;
            clocked.limiter.check(Check::new(zone, "42")).await.unwrap()
        };
        let first = check(NOON_US).await;
        let second = check(NOON_US - 3_600_000_000).await;
        assert_eq!(second.decided_at, first.decided_at, "{zone}: the anchor stays");
        let third = check(NOON_US - 1).await;
        assert!(third.blocked, "{zone}: no time was earned twice");
        let there_us = NOON_US - 1 + third.retry_after_us.unwrap();
        assert!(check(there_us - 1).await.blocked);
        assert!(check(there_us).await.is_allowed());
    }
}

/// A day ahead for a moment, as after a failover to a slower host: whoever is blocked is told a wait that counts from now, by every
/// way of asking, and it is the least that passes.
pub async fn a_wait_counts_from_now_where_a_clock_was_ahead(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let soft = log(2, 60).with_soft_rate(Some(1));
    for (zone, policy) in [("log", log(2, 60)), ("bucket", bucket(2, 60, 2)), ("soft", soft)] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        clocked.set(NOON_US + DAY_US).await;
        while limiter.check(Check::new(zone, "42")).await.unwrap().is_allowed() {}
        clocked.set(NOON_US).await;
        let alone = limiter.check(Check::new(zone, "42")).await.unwrap();
        let many = limiter.check_many(vec![Check::new(zone, "42"), Check::new(zone, "43")]).await.unwrap();
        let all = limiter.check_all(vec![Check::new(zone, "42"), Check::new(zone, "44")]).await.unwrap();
        let wait_us = alone.retry_after_us.unwrap();
        let same = [many[0].retry_after_us, all.retry_after_us, all.decisions[0].retry_after_us];
        assert_eq!(same, [Some(wait_us); 3], "{zone}");
        if db.engine == Engine::Sqlite {
            let seen = limiter.auditor().bucket(zone, "42").await.unwrap().unwrap();
            assert_eq!(seen.retry_after_us, Some(wait_us), "{zone}");
        }
        let mut joined = db.connect_as(Role::App).await;
        if db.engine != Engine::Sqlite {
            joined.set_clock(NOON_US).await;
            joined.begin().await;
            let told = limiter.check_in(joined.joined(), Check::new(zone, "42")).await.unwrap();
            assert_eq!(told.retry_after_us, Some(wait_us), "{zone}");
            joined.execute("commit").await.unwrap();
        }
        clocked.set(NOON_US + wait_us - 1).await;
        assert!(limiter.check(Check::new(zone, "42")).await.unwrap().blocked, "{zone}");
        clocked.set(NOON_US + wait_us).await;
        assert!(limiter.check(Check::new(zone, "42")).await.unwrap().is_allowed(), "{zone}");
    }
    // So does the wait for a turn.
    let queue = Policy::new(Algorithm::LeakyQueue, 1, Duration::from_secs(60), Some(3)).unwrap();
    limiter.operator().set_zone("queue", &queue, None, "test").await.unwrap();
    clocked.set(NOON_US + DAY_US).await;
    limiter.check(Check::new("queue", "42")).await.unwrap();
    clocked.set(NOON_US).await;
    let second = limiter.check(Check::new("queue", "42")).await.unwrap();
    assert_eq!(second.delay_us, Some(DAY_US + 60_000_000));
    db.assert_ledger_is_whole().await;
}

/// Of a zone with such rows, verifications and reports tell, and what is in order is found to be.
pub async fn rows_for_which_it_is_not_time_yet_are_reported(db: Db) {
    let clocked = Clocked::create(&db).await;
    let year = TimeDelta::days(365);
    let (ahead_at, now) = (Utc::now() + year, Utc::now());
    for zone in ["login", "other"] {
        clocked.limiter.operator().set_zone(zone, &log(2, 60), None, "test").await.unwrap();
        clocked.set(now.timestamp_micros()).await;
        clocked.limiter.check(Check::new(zone, "41")).await.unwrap();
    }
    // By the bucket's last row it has ended, and so it is in force no more, though by the clock it would be.
    let over = Override { limit: None, ban_exempt: true, for_us: Some(DAY_US) };
    clocked.limiter.operator().set_override("login", "42", over, "n", "b").await.unwrap();
    clocked.limiter.operator().ban("login", "42", Duration::from_secs(86_400), "n", "b").await.unwrap();
    clocked.set(ahead_at.timestamp_micros()).await;
    let last_at = clocked.limiter.check(Check::new("login", "42")).await.unwrap().decided_at;
    clocked.set(now.timestamp_micros()).await;
    let (auditor, everything, mut told) = (clocked.limiter.auditor(), Verify::default(), Vec::new());
    let verified = auditor.verify(&everything, |said| {
        if let Verifying::Ahead(zone, at) = said {
            told.push((zone, at));
        }
    });
    let verified = verified.await.unwrap();
    assert_eq!((verified.faults, verified.ahead), (0, 1));
    assert_eq!(told, [("login".to_owned(), last_at)]);
    let report = auditor.report(&ReportOn::default(), |_| ()).await.unwrap();
    assert_eq!(report.ahead.into_iter().collect::<Vec<_>>(), [("login".to_owned(), last_at)]);
}

/// The only thing of the client's clock that reaches the database is inside the transaction ids it makes.
pub async fn a_skewed_client_changes_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(3, 3600), None, "test").await.unwrap();
    let before = server_now(&db).await;
    let mut blocked = Vec::new();
    for skew_s in [-300, 300, 0, -86_400 * 365, 86_400 * 365] {
        let at = (Utc::now() + TimeDelta::seconds(skew_s)).timestamp() as u64;
        let txn = Uuid::new_v7(Timestamp::from_unix(NoContext, at, fastrand::u32(..1_000_000_000)));
        let decision = limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
        assert!((before..=server_now(&db).await).contains(&decision.decided_at.timestamp_micros()));
        blocked.push(decision.blocked);
    }
    assert_eq!(blocked, [false, false, false, true, true]);
}

/// A window of an hour over the hour that a clock in New York shows twice.
pub async fn the_sessions_time_zone_changes_nothing(db: Db) {
    let clocked = Clocked::create(&db).await;
    clocked.limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let first_us = NOON_US - 23_400_000_000; // 05:30 UTC, 01:30 in New York, half an hour before the change
    let mut session = db.connect().await;
    let mut check = async |us: i64, zone: &str| {
        let zone = match db.engine {
            Engine::Postgres => format!("set time zone '{zone}'"),
            _ => {
                format!("set time_zone = '{}'", if zone == "America/New_York" { "-05:00" } else { "+05:30" })
            }
        };
        session.execute(&zone).await.unwrap();
        session.set_clock(us).await;
        blocked(&mut session, "login").await
    };
    assert!(!check(first_us, "America/New_York").await);
    assert!(check(first_us + 1_800_000_000, "Asia/Kolkata").await);
    assert!(check(first_us + 3_599_999_999, "America/New_York").await);
    assert!(!check(first_us + 3_600_000_000, "Asia/Kolkata").await);
    let page = clocked.limiter.auditor().history(&tallygate::ledger::History::default()).await.unwrap();
    assert_eq!(page.rows.last().unwrap().decided_at.timestamp_micros(), first_us, "stored in UTC");
}

/// From PostgreSQL 18 on an abbreviation of the session's own time zone goes before all others.
pub async fn a_time_zone_that_calls_itself_utc_changes_nothing(db: Db) {
    let clocked = Clocked::create(&db).await;
    let month = Policy::calendar(1, CalendarUnit::Month, "UTC".parse().unwrap()).unwrap();
    clocked.limiter.operator().set_zone("export", &month, None, "test").await.unwrap();
    let day_us = 86_400_000_000;
    let december_us = NOON_US + 30 * day_us - day_us / 2;
    for (zone, key) in [("UTC+167", "west"), ("UTC-167", "east")] {
        clocked.execute(&format!("set timezone = '{zone}'")).await;
        clocked.set(NOON_US).await;
        assert!(clocked.limiter.check(Check::new("export", key)).await.unwrap().is_allowed());
        for at_us in [NOON_US + 10 * day_us, december_us - 1] {
            clocked.set(at_us).await;
            let told = clocked.limiter.check(Check::new("export", key)).await.unwrap();
            assert_eq!((told.blocked, told.retry_after_us), (true, Some(december_us - at_us)), "{zone}");
        }
        clocked.set(december_us).await;
        assert!(clocked.limiter.check(Check::new("export", key)).await.unwrap().is_allowed(), "{zone}");
    }

    let empty = db.create_empty_beside("partitions").await;
    let mut session = empty.connect().await;
    session.execute("set timezone = 'UTC+3'").await.unwrap();
    // The program's own record of what is applied.
    session
        .execute(&format!(
            "create table tallygate_schema_history as table {}.tallygate_schema_history",
            db.schema()
        ))
        .await
        .unwrap();
    for migration in Migrator::new(&empty.url).unwrap().migrations() {
        session.execute(&migration.sql).await.unwrap();
    }
    let ahead = std::time::Duration::from_secs(200 * 86_400);
    let owner = connected(&format!("{}&options[timezone]=UTC%2B3", empty.url)).await;
    let done = owner.owner().maintain(Upkeep { ahead, ..Upkeep::default() }).await.unwrap();
    assert!(done.partitions_made.len() >= 4, "{done:?}");
    let bounds = "select pg_get_expr(c.relpartbound, c.oid) from pg_class c
        where c.relispartition and c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace";
    let bounds = empty.connect().await.texts(bounds).await.join("\n");
    assert_eq!(bounds.matches("-01 00:00:00+00'").count(), 2 * (done.partitions_made.len() + 1), "{bounds}");
}

pub async fn set_timestamp_changes_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("log", &log(1, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("bucket", &bucket(1, 3600, 1), None, "test").await.unwrap();
    let before = server_now(&db).await;
    let mut session = db.connect().await;
    for zone in ["log", "bucket"] {
        assert!(!blocked(&mut session, zone).await);
        session.execute("set timestamp = 2000000000").await.unwrap();
        assert!(blocked(&mut session, zone).await, "the session's time is not ours");
        session.execute("set timestamp = 2000000000").await.unwrap();
        let joined = "call zone_check_in((select max(id) from zone_master), 'joined', null, 1, 0, null)";
        session.execute(&format!("start transaction; {joined}; commit")).await.unwrap();
        session.execute("set timestamp = 2000000000").await.unwrap();
        session.execute("call rate_limiting_request('u', 1, 10)").await.unwrap();
    }
    let late = "select count(*) from zone_txn where created_at > '2033-01-01'";
    assert_eq!(db.number(late).await, 0);
    assert_eq!(db.number("select count(*) from zone_version where changed_at > '2033-01-01'").await, 0);
    assert!(server_now(&db).await >= before);
}

pub async fn a_hostile_search_path_changes_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let mut session = db.connect().await;
    let schema = db.schema();
    let evil = format!(
        "create schema evil_{schema};
             create function evil_{schema}.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2033-01-01' $$;
             create function evil_{schema}.greatest_of() returns int language sql as $$ select 1 $$;
             create table evil_{schema}.zone_master as select * from {schema}.zone_master with no data;
             create temp table zone_master as select * from {schema}.zone_master with no data;
             create temp table zone_txn as select * from {schema}.zone_txn with no data;
             set search_path = pg_temp, evil_{schema}, pg_catalog"
    );
    for sql in evil.split(";\n") {
        session.execute(sql).await.unwrap();
    }
    for call in [
        "select blocked from {schema}.check_velocity(1, 'a')",
        "select blocked::int from {schema}.zone_check(1, 'b')",
    ] {
        let call = call.replace("{schema}", schema);
        assert_eq!([session.number(&call).await, session.number(&call).await], [0, 1], "{call}");
    }
    drop(session);
    assert_eq!(db.number("select count(*) from zone_txn where created_at > '2033-01-01'").await, 0);
    assert_eq!(db.rows().await, 4);
}

/// All that is decided, recorded and audited in it goes by that clock, on every way: to the microsecond, without a wait, and far from
/// the server's time.
pub async fn a_database_of_tests_goes_by_the_clock_that_its_owner_sets(db: Db) {
    let tests = of_tests(&db).await;
    let owner = connected(&tests.url).await.owner();
    let (hour, step) = (Duration::from_secs(3600), Duration::from_millis(500));
    let mut now = at(NOON_US) + TimeDelta::days(5000);
    for &isolation in db.engine.isolations() {
        let limiter = tests.limiter_with(Config { isolation, ..tests.config() }).await;
        for (zone, policy) in [("log", log(2, 3600)), ("bucket", bucket(2, 3600, 2))] {
            let zone = &*format!("{zone} {isolation:?}");
            let key = || Check::new(zone, "42");
            owner.set_clock(now).await.unwrap();
            limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
            // So close to each other that a process could take what it remembers for the time.
            for _ in 0..2 {
                let decision = limiter.check(key()).await.unwrap();
                assert_eq!((decision.blocked, decision.decided_at), (false, now), "{zone}");
                owner.advance_clock(step).await.unwrap();
                now += step;
            }
            let blocked = limiter.check(key()).await.unwrap();
            assert_eq!((blocked.blocked, blocked.decided_at), (true, now), "{zone}");
            let wait = blocked.retry_after().unwrap();
            now += wait;
            owner.advance_clock(wait - Duration::from_micros(1)).await.unwrap();
            assert!(limiter.check(key()).await.unwrap().blocked, "{zone}");
            owner.advance_clock(Duration::from_micros(1)).await.unwrap();
            let standing = limiter.auditor().bucket(zone, "42").await.unwrap().unwrap();
            assert_eq!((standing.at, standing.remaining), (now, 1), "{zone}");
            assert!(limiter.check(key()).await.unwrap().is_allowed(), "{zone}");
        }
    }

    // By the routines of SQL callers, and in a transaction of theirs.
    let limiter = tests.limiter().await;
    for left in [0, -1] {
        assert_eq!(limiter.rate_limiting_request("42", 1, 1).await.unwrap(), left);
    }
    owner.advance_clock(Duration::from_secs(1)).await.unwrap();
    now += Duration::from_secs(1);
    assert_eq!(limiter.rate_limiting_request("42", 1, 1).await.unwrap(), 0);
    let mut caller = tests.connect_as(Role::App).await;
    caller.begin().await;
    let joined = limiter.check_in(caller.joined(), Check::new("log RowLock", "43")).await.unwrap();
    assert_eq!(joined.decided_at, now);
    caller.execute("commit").await.unwrap();

    // The acts of an operator, and what an auditor is told.
    owner.advance_clock(hour).await.unwrap();
    now += hour;
    let over = Override { limit: None, ban_exempt: true, for_us: Some(1_000_000) };
    limiter.operator().set_override("log RowLock", "43", over, "n", "b").await.unwrap();
    assert_eq!(limiter.operator().overrides("log RowLock").await.unwrap().len(), 1);
    let zone = limiter.operator().set_zone("log RowLock", &log(3, 3600), None, "test").await.unwrap();
    let versions = limiter.operator().zone_versions(&zone).await.unwrap();
    assert_eq!(versions.iter().map(|version| version.changed_at).max(), Some(now));
    owner.advance_clock(hour).await.unwrap();
    assert_eq!(limiter.operator().overrides("log RowLock").await.unwrap().len(), 0);
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty() && verified.test_clock && verified.ahead == 0, "{verified:?} {faults:?}");

    // The statements that are documented for any language.
    let page = include_str!("../../docs/testing.md");
    let engine = if db.engine == Engine::Postgres { "postgres" } else { "mysql" };
    let (_, statements) = page.split_once(&format!("```sql {engine}\n")).unwrap();
    tests.execute(statements.split("```").next().unwrap()).await;
    let decision = limiter.check(Check::new("bucket RowLock", "44")).await.unwrap();
    assert_eq!(decision.decided_at.to_rfc3339(), "2026-03-29T01:59:59+00:00");
    // One that is not set is the server's.
    tests.execute("update tallygate_test_clock set now_at = null").await;
    let before = server_now(&db).await;
    let decision = limiter.check(Check::new("bucket RowLock", "45")).await.unwrap();
    assert!((before..=server_now(&db).await).contains(&decision.decided_at.timestamp_micros()));
}

/// Through migrations again, of a later release, and of what a dump had left out; and for every role its clock is out of reach.
pub async fn a_database_of_tests_stays_one(db: Db) {
    let tests = of_tests(&db).await;
    for role in [Role::App, Role::Operator, Role::Auditor] {
        let mut session = tests.connect_as(role).await;
        for sql in [
            "update tallygate_test_clock set now_at = null",
            "insert into tallygate_test_clock (one) values (true)",
            "delete from tallygate_test_clock",
            "drop table tallygate_test_clock",
            "select now_at from tallygate_test_clock",
        ] {
            let refused = session.execute(sql).await.unwrap_err().to_string();
            assert!(
                ["denied", "must be owner"].iter().any(|word| refused.contains(word)),
                "{role}: {refused}"
            );
        }
        let refused = connected(&tests.url_as(role)).await.owner().set_clock(at(NOON_US)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{role}: {refused}");
    }
    let migrator = || Migrator::new(&tests.url).unwrap();
    assert!(migrator().with_test_clock().unwrap().apply().await.unwrap().is_empty());
    assert_eq!(upgrade::next(tests.engine, &tests.url).apply().await.unwrap().len(), 1);
    let routines = match db.engine {
        Engine::Postgres => "drop function zone_txn_id_make",
        _ => "drop procedure tallygate_schema_version; drop procedure zone_clock",
    };
    tests.execute(&format!("drop view zone_clock_view; {routines}")).await;
    assert_eq!(upgrade::next(tests.engine, &tests.url).apply().await.unwrap().len(), 2, "routines and views");
    assert!(Migrator::new(&tests.url_as(Role::App)).unwrap().has_test_clock().await.unwrap());
    let refused = migrator().distribute().await.unwrap_err();
    let reason = if db.engine == Engine::Postgres { "its clock is one row" } else { "only PostgreSQL" };
    assert!(refused.is_invalid() && refused.to_string().contains(reason), "{refused}");

    let owner = connected(&tests.url).await.owner();
    let limiter = tests.limiter().await;
    owner.set_clock(at(NOON_US)).await.unwrap();
    limiter.operator().set_zone("login", &log(1, 60), None, "test").await.unwrap();
    assert_eq!(limiter.check(Check::new("login", "42")).await.unwrap().decided_at, at(NOON_US));
    for (arguments, says) in [
        (&["migrate"][..], "nothing to do"),
        (&["migrate", "--test-clock"], "nothing to do"),
        (&["migrate", "--check"], "up to date"),
        (&["audit", "verify"], "verified"),
    ] {
        let output = program::tallygate(&tests.url).args(arguments).output().await.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && told.contains(says) && told.contains("a database of tests"),
            "{told}"
        );
    }
}

/// An attacker who may make tables, an owner who mistakes one database for another, a dump without its routines.
pub async fn no_other_database_becomes_one_of_tests(db: Db) {
    let migrator = || Migrator::new(&db.url).unwrap();
    let limiter = connected(&db.url).await;
    let is_refused = async || {
        for refused in [
            migrator().with_test_clock().unwrap().apply().await.unwrap_err(),
            migrator().with_test_clock().unwrap().pending().await.unwrap_err(),
            limiter.owner().set_clock(at(NOON_US)).await.unwrap_err(),
            limiter.owner().advance_clock(Duration::from_secs(1)).await.unwrap_err(),
        ] {
            assert!(refused.is_invalid(), "{refused}");
        }
        let output = program::tallygate(&db.url).args(["migrate", "--test-clock"]).output().await.unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && says.contains("only an empty one"), "{says}");
        assert!(!migrator().has_test_clock().await.unwrap());
        let (before, decision) =
            (server_now(&db).await, limiter.check(Check::new("login", "42")).await.unwrap());
        // It may be dated by a round trip earlier.
        let around = before - 1_000_000..=server_now(&db).await;
        assert!(around.contains(&decision.decided_at.timestamp_micros()), "{decision:?}");
    };
    limiter.operator().set_zone("login", &log(1, 60), None, "test").await.unwrap();
    is_refused().await;
    assert!(!verify(&limiter, &Verify::default()).await.0.test_clock);

    db.execute(
        "create table tallygate_test_clock as select true as one, timestamp '2033-01-01 00:00:00' as now_at",
    )
    .await;
    assert!(migrator().apply().await.unwrap().is_empty());
    is_refused().await;

    let kind = if db.engine == Engine::Postgres { "function" } else { "procedure" };
    db.execute(&format!("drop {kind} tallygate_schema_version")).await;
    let refused = migrator().apply().await.unwrap_err();
    assert!(refused.is_schema() && refused.to_string().contains("V1"), "{refused}");
    db.execute("drop table tallygate_test_clock").await;
    migrator().apply().await.unwrap();
    is_refused().await;

    // Nor does one whose history is lost.
    db.execute("delete from tallygate_schema_history").await;
    assert!(migrator().with_test_clock().unwrap().apply().await.unwrap_err().is_invalid());
}

/// A database of tests beside this one, with the same roles.
async fn of_tests(db: &Db) -> Db {
    let tests = db.create_empty_beside("tests").await;
    let migrator = Migrator::new(&tests.url).unwrap().with_test_clock().unwrap();
    assert_eq!(migrator.apply().await.unwrap().len(), migrator.migrations().len());
    tests.migrate().await;
    tests
}

fn at(us: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(us).unwrap()
}

/// One check by plain SQL; the zone by its name.
async fn blocked(session: &mut Connected, zone: &str) -> bool {
    let id = session.number(&format!("select id from zone_master where name = '{zone}'")).await;
    let sql = match session {
        Connected::Postgres(_) => format!("select blocked from check_velocity({id}, '42')"),
        _ => format!("call check_velocity({id}, '42')"),
    };
    session.number(&sql).await == 1
}

async fn server_now(db: &Db) -> i64 {
    db.number(match db.engine {
        Engine::Postgres => "select (extract(epoch from clock_timestamp()) * 1000000)::bigint",
        _ => "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
    })
    .await
}
