//! P5: the database's clock decides, and nobody else's.

use chrono::{TimeDelta, Utc};
use tallygate::policy::CalendarUnit;
use tallygate::schema::{Migrator, Upkeep};
use tallygate::{Check, Limiter, Policy};
use uuid::{NoContext, Timestamp, Uuid};

use crate::db::{Clocked, Connected, Db, Engine, bucket, log};

const NOON_US: i64 = 1_793_534_400_000_000; // 2026-11-01 12:00 UTC

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
        let wait_us = third.retry_after_us.unwrap();
        assert!(check(NOON_US + wait_us - 1).await.blocked);
        assert!(check(NOON_US + wait_us).await.is_allowed());
    }
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
    let owner = Limiter::connect(&format!("{}&options[timezone]=UTC%2B3", empty.url)).await.unwrap();
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
        let joined = "start transaction; call zone_check((select max(id) from zone_master), 'joined', null, 1, 0, null, null, 0, null, null); commit";
        session.execute(joined).await.unwrap();
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
        "select blocked::int
         from {schema}.zone_check_many(array[1], array['c'], array[null::uuid], array[1], array[false])",
    ] {
        let call = call.replace("{schema}", schema);
        assert_eq!([session.number(&call).await, session.number(&call).await], [0, 1], "{call}");
    }
    drop(session);
    assert_eq!(db.number("select count(*) from zone_txn where created_at > '2033-01-01'").await, 0);
    assert_eq!(db.rows().await, 6);
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
