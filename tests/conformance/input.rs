//! Bad input is refused by one clear error and writes nothing; odd input is plain data.

use std::time::Duration;

use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::{Charged, Check, ErrorKind, Policy};
use uuid::Uuid;

use crate::db::{Db, Engine, log};

pub async fn what_cannot_be_stored_is_refused_and_writes_nothing(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    let long = "k".repeat(256);
    let check = |key: &str| Check::new("login", key);
    for (check, value) in [
        (check(""), "empty"),
        (check(&long), "256 bytes"),
        (check("a\nb"), "control character"),
        (check("a\u{0}"), "control character"),
        (check("a\u{85}"), "control character"),
        (check("42").cost(-1), "-1"),
        (check("42").cost(i64::MAX), &i64::MAX.to_string()),
        (check("42").cost(tallygate::policy::UNITS_MAX + 1), "1099511627777"),
        (check("42").txn(Uuid::nil()), "nil UUID"),
        (Check::new("nobody", "42"), "\"nobody\""),
        (Check::new("", "42"), "zone name"),
    ] {
        // That there is no zone is no fault of who checks.
        let kind = if value == "\"nobody\"" { ErrorKind::UnknownZone } else { ErrorKind::Invalid };
        let error = limiter.check(check.clone()).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(value), "{check:?}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        let error = limiter.check_many(vec![Check::new("login", "good"), check]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    for error in [
        limiter.operator().set_zone("", &log(1, 1), None, "test").await.unwrap_err(),
        limiter.operator().set_zone(" a", &log(1, 1), None, "test").await.unwrap_err(),
        limiter.operator().set_zone(&"z".repeat(101), &log(1, 1), None, "test").await.unwrap_err(),
        limiter.operator().set_zone("a", &log(1, 1), Some(&"d".repeat(1001)), "test").await.unwrap_err(),
        limiter.auditor().history(&History { limit: 0, ..History::default() }).await.unwrap_err(),
        Policy::sliding_log(-1, Duration::from_secs(1)).unwrap_err(),
        Policy::sliding_log(1, Duration::ZERO).unwrap_err(),
        Policy::token_bucket(7, Duration::from_secs(315_000_001), Some(1 << 40)).unwrap_err(),
    ] {
        assert!(error.is_invalid(), "{error}");
    }
    let nobody = History { zone: Some("nobody".into()), ..History::default() };
    assert!(limiter.auditor().history(&nobody).await.unwrap_err().is_unknown_zone());
    assert_eq!(db.rows().await, 0);
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 0);
    assert_eq!(db.number("select count(*) from zone_master").await, 1);
}

pub async fn meta_characters_are_plain_data(db: Db) {
    let limiter = db.limiter().await;
    let odd = [
        "'; drop table zone_txn; --",
        "\\'\"`%_${}()[]",
        "a%b_c",
        "{\"zone_id\":1}",
        "\\u0041",
        "ключ 鍵 🔑",
        "$1 ? :x @y",
        "null",
        "\\",
        "\"",
    ];
    for name in odd {
        let zone = limiter.operator().set_zone(name, &log(1, 3600), Some(name), name).await.unwrap();
        assert_eq!((zone.name.as_str(), zone.description.as_str()), (name, name));
        assert!(limiter.check(Check::new(name, name)).await.unwrap().is_allowed());
        let many = limiter.check_many(odd.map(|key| Check::new(name, key)).to_vec()).await.unwrap();
        assert!(many.iter().all(|d| d.blocked == (d.key == name)), "{name}");
        let history = History { zone: Some(name.into()), key: Some(name.into()), ..History::default() };
        let rows = limiter.auditor().history(&history).await.unwrap().rows;
        assert!(rows.len() == 2 && rows.iter().all(|row| row.key == name && row.zone == name));
    }
    assert_eq!(limiter.operator().zones().await.unwrap().len(), odd.len());
    assert_eq!(db.rows().await as usize, odd.len() * (odd.len() + 1));
}

pub async fn keys_are_compared_byte_by_byte(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let long = "é".repeat(127);
    for key in
        ["a", "A", "a ", " a", "á", "a\u{301}", "ß", "ss", "1", "1.0", "01", &long, &format!("{long}x")]
    {
        assert!(
            limiter.check(Check::new("login", key)).await.unwrap().is_allowed(),
            "{key:?} is a key of its own"
        );
        assert!(limiter.check(Check::new("login", key)).await.unwrap().blocked);
    }
}

/// An argument that a caller of plain SQL leaves out, or writes in another way, is the same transaction.
pub async fn a_txn_in_plain_sql_is_charged_once_however_it_is_written(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let txn = Uuid::now_v7();
    limiter.check(Check::new("login", "42").txn(txn)).await.unwrap();
    let mut session = db.connect().await;
    if db.engine == Engine::Postgres {
        for call in [
            format!("select zone_check(1, '42', '{txn}', 1, null)"),
            format!("select zone_check('login', '42', '{}')", txn.simple()),
        ] {
            session.execute(&call).await.unwrap();
        }
    } else {
        let hex = txn.simple();
        for call in [
            format!("call zone_check(1, '42', unhex('{hex}'), 1, null, null)"),
            format!("call zone_check('login', '42', x'{hex}', '1', 0, '5')"),
        ] {
            session.execute(&call).await.unwrap();
        }
        for bad in ["42", "zzzz", "0190a5c0-7c1e-7f3a-8a51-0f6d3d1b2c4e00"] {
            let call = format!("call zone_check(1, '42', '{bad}', 1, null, null)");
            assert!(session.execute(&call).await.unwrap_err().to_string().contains("UUID"), "{bad}");
        }
        session
            .execute("set autocommit = 0; call check_velocity(1, 'twice'); call check_velocity(1, 'twice')")
            .await
            .unwrap();
        assert_eq!(db.number("select count(*) from zone_txn where bucket_key = 'twice'").await, 2);
        db.execute("delete from zone_txn where bucket_key = 'twice'").await;
    }
    assert_eq!(db.rows().await, 1);
}

/// The same rules stand in the tables: what the library refuses, SQL cannot store either.
pub async fn the_tables_refuse_what_the_library_refuses(db: Db) {
    let mut connection = db.connect().await;
    let now = match db.engine {
        Engine::Postgres => "now()",
        Engine::Sqlite => "1",
        _ => "utc_timestamp(6)",
    };
    let mut zone = async |name: &str, algorithm: &str, rate: &str, window: &str, burst: &str, gcd: &str| {
        let sql = format!(
            "insert into zone_master (name, description, algorithm, rate, window_us, burst, rate_gcd, version, created_at, updated_at)
             values ('{name}', '', '{algorithm}', {rate}, {window}, {burst}, {gcd}, 1, {now}, {now})"
        );
        connection.execute(&sql).await.is_ok()
    };
    assert!(zone("good", "sliding-log", "5", "60000000", "null", "5").await);
    assert!(zone("best", "token-bucket", "5", "60000000", "7", "5").await);
    assert!(!zone("", "sliding-log", "5", "60000000", "null", "5").await, "empty name");
    assert!(!zone(" a", "sliding-log", "5", "60000000", "null", "5").await, "space");
    assert!(!zone("a\tb", "sliding-log", "5", "60000000", "null", "5").await, "control character");
    assert!(!zone("good", "sliding-log", "5", "60000000", "null", "5").await, "twice");
    assert!(!zone("a", "leaky", "5", "60000000", "null", "5").await, "algorithm");
    assert!(zone("none", "sliding-log", "0", "60000000", "null", "60000000").await, "rate 0");
    assert!(!zone("a", "token-bucket", "0", "60000000", "null", "60000000").await, "rate 0 of a level");
    assert!(!zone("a", "concurrency", "0", "60000000", "null", "60000000").await, "rate 0 of slots");
    assert!(!zone("a", "sliding-log", "-1", "60000000", "null", "1").await, "rate -1");
    assert!(!zone("a", "sliding-log", "1099511627777", "60000000", "null", "1").await, "rate over 2^40");
    assert!(!zone("a", "sliding-log", "5", "0", "null", "5").await, "window 0");
    assert!(!zone("a", "sliding-log", "5", "60000000", "7", "5").await, "burst of a sliding log");
    assert!(!zone("a", "token-bucket", "5", "60000000", "0", "5").await, "burst 0");
    assert!(!zone("a", "token-bucket", "5", "60000000", "7", "7").await, "no divisor");
    assert!(!zone("a", "token-bucket", "7", "315000001000000", "1099511627776", "7").await, "overflow");
    let mut choose = async |column: &str, value: &str| {
        let sql = format!("update zone_master set {column} = '{value}' where name = 'good'");
        connection.execute(&sql).await.is_ok()
    };
    assert!(choose("durability", "durable").await && !choose("durability", "lazy").await);
    assert_eq!(choose("durability", "relaxed").await, !db.engine.is_mysql());
    assert!(choose("blocked_rows", "coalesced").await && !choose("blocked_rows", "none").await);
    for (column, good, bad) in [
        ("mode", "shadow", "maybe"),
        ("on_outage", "open", "ajar"),
        ("running_buckets", "reset", "gone"),
        ("soft_rate", "4", "5"),
        ("reserve", "4", "5"),
        ("reserve", "0", "-1"),
    ] {
        assert!(choose(column, good).await && !choose(column, bad).await, "{column}");
    }
    let mut set = async |terms: &str| {
        connection.execute(&format!("update zone_master set {terms} where name = 'good'")).await.is_ok()
    };
    assert!(!set("count_blocked = true").await, "blocked rows are coalesced");
    assert!(set("blocked_rows = 'each', count_blocked = true").await);
    assert!(!set("algorithm = 'distinct'").await, "it counts blocked checks");
    assert!(set("count_blocked = false").await);
    assert!(!set("slots = 3").await, "slots of a sliding log");
    assert!(!set("algorithm = 'sliding-counter'").await, "no slots");
    assert!(!set("algorithm = 'sliding-counter', slots = 7").await, "slots that are no whole microseconds");
    assert!(set("algorithm = 'sliding-counter', slots = 6").await);
    assert!(!set("calendar = 'day', time_zone = 'UTC', clock = '2026c 0'").await, "calendar of a counter");
    assert!(!set("algorithm = 'fixed-window', slots = null, calendar = 'day'").await, "no time zone");
    let day = "algorithm = 'fixed-window', slots = null, calendar = 'day', time_zone = 'UTC'";
    assert!(!set(day).await, "no clock");
    assert!(set(&format!("{day}, clock = '2026c 0'")).await);
    let ban = "ban_after = 1, ban_within_us = 1, ban_for_us = 5, ban_factor = 1, ban_from = 'block'";
    assert!(!set(ban).await, "half a ban");
    assert!(!set(&format!("{ban}, ban_max_us = 4")).await, "the longest is shorter");
    assert!(set(&format!("{ban}, ban_max_us = 5")).await);
    let key = async |key: &str| {
        let sqlite = db.engine == Engine::Sqlite;
        let head = if sqlite { ", seq, last_at, spent_total, zone_version, strikes" } else { "" };
        let values = if sqlite { "x'', x'', 1, 1, 1, 1, 0" } else { "'', ''" };
        let sql = format!(
            "insert into zone_bucket_lock (zone_id, bucket_key, salt, row_hash{head}) values (1, {key}, {values})"
        );
        db.connect().await.execute(&sql).await.is_ok()
    };
    assert!(key("'good'").await);
    // On PostgreSQL a rule of this table would cost each decision; there the routines that make a row hold it.
    if db.engine != Engine::Postgres {
        assert!(!key("''").await, "empty key");
        assert!(!key(&format!("'{}'", "k".repeat(256))).await, "256 bytes");
    }
}

/// As a database that a later release has left, or somebody by hand.
pub async fn an_algorithm_that_nobody_knows_is_an_error_everywhere(db: Db) {
    let limiter = db.limiter().await;
    let zone = limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let spent = limiter.check(Check::new("login", "42")).await.unwrap();
    let mut owner = db.connect().await;
    match db.engine {
        Engine::Sqlite => owner.execute("pragma ignore_check_constraints = on").await.unwrap(),
        _ => owner.execute("alter table zone_master drop constraint zone_master_algorithm_ck").await.unwrap(),
    }
    for table in ["zone_master", "zone_version"] {
        owner.execute(&format!("update {table} set algorithm = 'guesswork'")).await.unwrap();
    }
    // A caller that knows the version goes on to decide by it: a version never changes.
    let limiter = db.limiter().await;
    let rows = db.rows().await;
    let check = |key: &str| Check::new("login", key);
    let mut errors = vec![
        limiter.check(check("42")).await.unwrap_err(),
        limiter.check(check("new")).await.unwrap_err(),
        limiter.peek("login", "42").await.unwrap_err(),
        limiter.check_many(vec![check("42"), check("new"), check("newer")]).await.unwrap_err(),
        limiter.check_all(vec![check("42")]).await.unwrap_err(),
        limiter.refund(Charged::by(spent.txn_id)).await.unwrap_err(),
        limiter.operator().ban("login", "42", Duration::from_secs(60), "why", "who").await.unwrap_err(),
        limiter.operator().zones().await.unwrap_err(),
        limiter.operator().zone_versions(&zone).await.unwrap_err(),
    ];
    errors.extend(limiter.auditor().verify(&Verify::default(), |_| {}).await.err());
    assert_eq!(errors.len(), 10);
    for (n, error) in errors.iter().enumerate() {
        assert!(error.to_string().contains("guesswork") && !error.is_transient(), "{n}: {error}");
    }
    let call = match db.engine {
        Engine::Postgres => "select blocked::int from check_velocity",
        Engine::Sqlite => return,
        _ => "call check_velocity",
    };
    let error = owner.execute(&format!("{call}({}, '42')", zone.id)).await.unwrap_err();
    assert!(error.to_string().contains("is not plain (algorithm)"), "{error}");
    assert_eq!(db.rows().await, rows);
}
