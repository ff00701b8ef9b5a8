//! The things that a session has set, has left behind or has made beforehand reach no decision.

use std::time::Duration;

use tallygate::audit::verify::Verify;
use tallygate::schema::Role;
use tallygate::{Charged, Check, Limiter};

use crate::db::{Connected, Db, Engine, bucket, log};
use crate::rounds;
use crate::verify::verify;

/// A call of each routine that decides, and whether it joins a transaction.
fn calls() -> [(String, bool); 4] {
    let one = "1, 'key', null, 1, false, 5";
    [
        ("call check_velocity(1, 'key')".to_owned(), false),
        ("call rate_limiting_request('key', 10, 10)".to_owned(), false),
        (format!("call zone_check({one})"), false),
        (format!("call zone_check_in({one})"), true),
    ]
}

async fn call(session: &mut Connected, (sql, joins): &(String, bool)) -> Result<(), sqlx::Error> {
    if *joins {
        session.begin().await;
    }
    let called = session.execute(sql).await;
    if *joins {
        session.execute("commit").await.unwrap();
    }
    called
}

/// The largest number in one row, and no row of anybody could be numbered after it.
pub async fn a_number_that_the_session_sets_is_no_rows(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("plain", &log(1000, 3600), None, "test").await.unwrap();
    for number in ["1", "0", "9223372036854775807"] {
        for sql in &calls() {
            let mut app = db.connect_as(Role::App).await;
            app.execute(&format!("set insert_id = {number}")).await.unwrap();
            match call(&mut app, sql).await {
                Ok(()) => assert!(number == "0" && db.engine == Engine::MariaDb, "{}", sql.0),
                Err(error) => assert!(error.to_string().contains("insert_id to "), "{}: {error}", sql.0),
            }
        }
        // Refused for MySQL's application; where it may, numbers are left out and that is all.
        let mut app = db.connect_as(Role::App).await;
        app.execute("set auto_increment_increment = 1000, auto_increment_offset = 7").await.ok();
        for sql in &calls() {
            call(&mut app, sql).await.unwrap_or_else(|error| panic!("{}: {error}", sql.0));
        }
    }
    assert_eq!(db.number("select count(*) from zone_txn_view where id not between 1 and 1000000").await, 0);
    assert_eq!(db.number("select count(*) from zone_master where id not between 1 and 100000").await, 0);
    assert!(limiter.check(Check::new("plain", "another")).await.unwrap().is_allowed());
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

/// A zone that is taken back leaves its number, which nobody gets again: one, whatever step the session has set.
pub async fn a_session_uses_up_no_numbers_of_zones(db: Db) {
    let mut app = db.connect_as(Role::App).await;
    app.execute("set auto_increment_increment = 65535, auto_increment_offset = 65535").await.unwrap();
    for seconds in 1..=3 {
        app.begin().await;
        app.execute(&format!("call rate_limiting_request_in('a', 7, {seconds})")).await.unwrap();
        app.execute("rollback").await.unwrap();
    }
    let zone = db.limiter().await.operator().set_zone("next", &log(1, 60), None, "test").await.unwrap();
    assert!(zone.id < 100, "{}", zone.id);
}

/// Those that made calls fail, or left the session in a transaction or ended it.
pub async fn settings_of_the_session_fail_no_call(db: Db) {
    db.limiter().await.operator().set_zone("plain", &log(1000, 3600), None, "test").await.unwrap();
    let more: &[&str] = if db.engine == Engine::MariaDb { &["sql_if_exists = 1"] } else { &[] };
    let settings = ["sql_safe_updates = 1", "completion_type = 1", "completion_type = 2"];
    for setting in settings.iter().chain(more) {
        let mut app = db.connect_as(Role::App).await;
        app.execute(&format!("set {setting}")).await.unwrap();
        // A caller's own `commit` would do what the setting says.
        for sql in calls().iter().filter(|(_, joins)| !joins) {
            for _ in 0..2 {
                call(&mut app, sql).await.unwrap_or_else(|error| panic!("{setting}: {}: {error}", sql.0));
            }
        }
        let (name, value) = setting.split_once(" = ").unwrap();
        let is = app.texts(&format!("select cast(@@{name} + 0 as char)")).await;
        let words = app.texts(&format!("select cast(@@{name} as char)")).await;
        let named = ["NO_CHAIN", "CHAIN", "RELEASE"][value.parse::<usize>().unwrap()];
        assert!(is[0] == *value || words[0] == named, "{setting} is {is:?}, {words:?}");
    }
    db.assert_ledger_is_whole().await;
}

/// A server may leave each statement of a session in a transaction, or begin one where another ends. All the same, each
/// answer is there for all to see, and each reading is as new as can be.
pub async fn settings_of_the_server_leave_no_transaction_open(db: Db) {
    let mut limit = 0;
    for setting in ["completion_type = 1", "autocommit = 0"] {
        db.execute(&format!("set global {setting}")).await;
        let limiters = [db.limiter().await, db.limiter().await];
        for limiter in limiters.iter().chain(&limiters) {
            limit += 1;
            limiter.operator().set_zone("log", &log(limit, 3600), None, "test").await.unwrap();
            limiter.check(Check::new("log", format!("{limit}"))).await.unwrap();
            for other in &limiters {
                let zone = other.operator().zone("log").await.unwrap().unwrap();
                assert_eq!(zone.policy, log(limit, 3600), "{setting}");
                let (verified, faults) = verify(other, &Verify::default()).await;
                assert_eq!((verified.rows, faults), (limit as u64, vec![]), "{setting}");
            }
        }
    }
}

/// A public routine that records, with good arguments for a check of its own: `{key}` is its bucket, `{txn}` its transaction, which has
/// spent a unit there where the last word says so.
type Routine = (&'static str, &'static [&'static str], Before);

/// The arguments that are alike on all of them: a wait for a lock is of milliseconds on PostgreSQL, of seconds elsewhere.
const REFUND: &[&str] = &["'plain'", "'{key}'", "{txn}", "1000"];

/// Those of PostgreSQL.
const FUNCTIONS: [Routine; 4] = {
    use Before::{Charged, Nothing};
    const CHECK: &[&str] = &["'plain'", "'{key}'", "{txn}", "1", "false", "5000", "false"];
    [
        ("check_velocity", &["'plain'", "'{key}'"], Nothing),
        ("rate_limiting_request", &["'{key}'", "10", "10"], Nothing),
        ("zone_check", CHECK, Nothing),
        ("zone_refund", REFUND, Charged),
    ]
};

/// Those of MySQL and MariaDB.
const PROCEDURES: [Routine; 9] = {
    use Before::{Charged, Nothing};
    const CHECK: &[&str] = &["'plain'", "'{key}'", "{txn}", "1", "false", "5"];
    [
        ("check_velocity", &["'plain'", "'{key}'"], Nothing),
        ("check_velocity_in", &["'plain'", "'{key}'"], Nothing),
        ("rate_limiting_request", &["'{key}'", "10", "10"], Nothing),
        ("rate_limiting_request_in", &["'{key}'", "10", "10"], Nothing),
        ("zone_check", CHECK, Nothing),
        ("zone_check_in", CHECK, Nothing),
        ("zone_refund", REFUND, Charged),
        ("zone_refund_in", REFUND, Charged),
        ("zone_bucket_place", &["'plain'", "'{key}'"], Nothing),
    ]
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Charged,
}

/// In place of an argument: each is too long for what it stands for, of another type, or no text at all, or good for some.
const HOSTILE: [&str; 20] = [
    "null",
    "''",
    "'order-2026-11-27-0001'",
    "'3abc'",
    "' 1'",
    "'true'",
    "'plain '",
    "-1",
    "300",
    "1.4",
    "1e30",
    "9223372036854775808",
    "date '2026-01-01'",
    "x'61ff'",
    "x'00'",
    "'é😀'",
    "repeat('1', 120)",
    "repeat('z', 101)",
    "repeat('😀', 250)",
    "repeat('é', 5000)",
];

/// Calls a routine with one argument put in place of another, and tells what the ledger says of it then: none where it was refused.
/// In either case no transaction is left open.
async fn called_with(
    session: &mut Connected,
    ledger: &mut Connected,
    (name, arguments, before): Routine,
    hostile: Option<(usize, &str)>,
    schema: Option<&str>,
) -> Option<Vec<String>> {
    let (key, txn) = (format!("key:{}", uuid::Uuid::now_v7()), uuid::Uuid::now_v7().simple().to_string());
    let txn = if schema.is_some() { format!("'{txn}'::uuid") } else { format!("x'{txn}'") };
    let fill = |text: &str| text.replace("{key}", &key).replace("{txn}", &txn);
    if before == Before::Charged {
        let charge = match schema {
            Some(_) => "select blocked from zone_check('plain', '{key}', {txn})",
            None => "call zone_check('plain', '{key}', {txn}, 1, false, 5)",
        };
        ledger.execute(&fill(charge)).await.unwrap();
    }
    let mut arguments: Vec<String> = arguments.iter().map(|argument| fill(argument)).collect();
    if let Some((place, hostile)) = hostile {
        arguments[place] = hostile.to_owned();
    }
    let last = "select concat_ws('|', coalesce(max(id), 0)) from zone_txn";
    let row = ledger.texts(last).await.remove(0);
    let arguments = arguments.join(", ");
    let (call, joins) = match schema {
        // A function has no transaction of its own.
        Some(schema) => (format!("select count(*) from {schema}.{name}({arguments})"), false),
        None => (format!("call {name}({arguments})"), name.ends_with("_in")),
    };
    let done = self::call(session, &(call.clone(), joins)).await;
    session
        .execute("set transaction isolation level read committed")
        .await
        .unwrap_or_else(|error| panic!("{call} left a transaction open: {error}; it ended with {done:?}"));
    let hex = if schema.is_some() { "md5" } else { "hex" };
    let said = format!(
        "select concat_ws('|', t.zone_id, case when t.bucket_key = '{key}' then 'its own' else {hex}(t.bucket_key) end,
            t.kind, t.blocked, t.cost, t.spent, case when t.txn_id = {txn} then 'its own' else 'another' end)
        from zone_txn t
        where t.id > {row}"
    );
    let said = ledger.texts(&said).await;
    match done {
        Ok(()) => Some(said),
        Err(_) => {
            assert!(said.is_empty(), "{call} was refused, and recorded {said:?}");
            None
        }
    }
}

/// Sessions of PostgreSQL that read an argument, or name a thing, in another way than the owner meant.
fn modes(schema: &str) -> [String; 4] {
    let own = format!(
        "create schema own_{schema};
        create function own_{schema}.never(text, text) returns boolean language sql as $$ select false $$;
        create function own_{schema}.never(bigint, bigint) returns boolean language sql as $$ select false $$;
        create operator own_{schema}.= (leftarg = text, rightarg = text, function = own_{schema}.never);
        create operator own_{schema}.= (leftarg = bigint, rightarg = bigint, function = own_{schema}.never);
        create operator own_{schema}.< (leftarg = bigint, rightarg = bigint, function = own_{schema}.never);
        create function own_{schema}.clock_timestamp() returns timestamptz language sql
            as $$ select timestamptz '2033-01-01' $$;
        create function own_{schema}.octet_length(text) returns int language sql as $$ select 1 $$;
        create function own_{schema}.zone_number(text) returns int language sql as $$ select 2 $$;
        set search_path = own_{schema}, pg_catalog"
    );
    let made = ["zone_master", "zone_version", "zone_bucket_lock", "zone_hold", "zone_txn"]
        .map(|table| format!("create temp table {table} as select * from {schema}.{table} with no data"));
    [
        "select 1".to_owned(),
        "set standard_conforming_strings = off;
        set backslash_quote = on;
        set bytea_output = 'escape';
        set transform_null_equals = on;
        set array_nulls = off"
            .to_owned(),
        own,
        format!("{};\nset search_path = pg_temp, pg_catalog", made.join(";\n")),
    ]
}

/// A session decides by its modes how much of an argument comes to a routine, and what a name stands for there. Yet each is refused, or
/// decided as in a session of the strictest mode: each in one of the others by turns, and in a soak in all.
pub async fn no_argument_is_cut_before_it_is_looked_at(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("plain", &log(1_000_000, 3600), None, "test").await.unwrap();
    // Zone 2, to which the `zone_number` of one of the sessions leads.
    limiter.operator().set_zone("another", &log(5, 3600), None, "test").await.unwrap();
    let mut ledger = db.connect().await;
    let schema = (db.engine == Engine::Postgres).then(|| db.schema());
    let all_modes = match schema {
        Some(schema) => modes(schema).to_vec(),
        None => [
            "sql_mode = 'traditional'",
            "sql_mode = ''",
            "sql_mode = 'ansi,no_backslash_escapes,pad_char_to_full_length'",
            "names latin1, sql_mode = ''",
            "names utf8mb3, sql_mode = ''",
            "autocommit = 0, sql_mode = '', max_error_count = 0",
        ]
        .map(|modes| format!("set {modes}"))
        .to_vec(),
    };
    let mut sessions = Vec::new();
    for modes in all_modes {
        let mut session = db.connect().await;
        for sql in modes.split(";\n") {
            session.execute(sql).await.unwrap();
        }
        sessions.push((modes, session));
    }
    let mut decided = 0;
    let routines = if schema.is_some() { FUNCTIONS.as_slice() } else { PROCEDURES.as_slice() };
    for &routine in routines {
        let (name, arguments, _) = routine;
        let places = (0..arguments.len()).flat_map(|place| HOSTILE.map(|hostile| Some((place, hostile))));
        // Every second one, from another one on in each run.
        let passed_over = fastrand::usize(..2);
        for (n, hostile) in std::iter::once(None).chain(places).enumerate() {
            if n > 0 && n % 2 == passed_over && rounds(0, 1) == 0 {
                continue;
            }
            let (mut strict, others) = (None, sessions.len() - 1);
            let is_its_turn = |of: usize| of == 0 || of == 1 + n % others || rounds(0, 1) == 1;
            for (_, (modes, session)) in
                sessions.iter_mut().enumerate().filter(|(of, _)| hostile.is_none() || is_its_turn(*of))
            {
                let told = called_with(session, &mut ledger, routine, hostile, schema).await;
                assert!(hostile.is_some() || told.is_some(), "{modes}: {name} refuses what is good");
                let strict = strict.get_or_insert_with(|| told.clone());
                assert!(
                    told.is_none() || told == *strict,
                    "{modes}: {name} {hostile:?}: {told:?}, not {strict:?}"
                );
                decided += usize::from(told.is_some());
            }
        }
    }
    assert!(decided > routines.len() * sessions.len(), "{decided}: of what is hostile nothing is decided");
}

/// The error path is one more place where a value may not fit.
pub async fn an_error_names_any_value_and_leaves_no_transaction_open(db: Db) {
    let mut session = db.connect().await;
    let values = (1..=300).map(|length| format!("repeat('z', {length})"));
    let bytes = (0..=255).map(|byte| format!("x'7a{byte:02x}'"));
    for name in values.chain(bytes).chain(["repeat('é', 2000)".to_owned()]) {
        for call in [
            format!("call check_velocity({name}, 'k')"),
            format!("call zone_check({name}, 'k', null, 1, false, 5)"),
            format!("call zone_bucket_place({name}, 'k')"),
        ] {
            let error = session.execute(&call).await.unwrap_err().to_string();
            assert!(
                error.contains("there is no zone") || error.contains("Incorrect string"),
                "{call}: {error}"
            );
            let begun = session.execute("set transaction isolation level read committed").await;
            begun.unwrap_or_else(|after| panic!("{call}: {error}: {after}"));
        }
    }
}

/// The settings that a pool of the caller's may have: those that change what a statement means, how it is planned, and
/// what a transaction is.
fn settings(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Postgres => &[
            "bytea_output = 'escape'",
            "check_function_bodies = off",
            "client_min_messages = 'debug5'",
            "constraint_exclusion = off",
            "datestyle = 'German'",
            "default_transaction_isolation = 'repeatable read'",
            "default_transaction_isolation = 'serializable'",
            "enable_indexscan = off",
            "enable_nestloop = off",
            "escape_string_warning = on",
            "idle_in_transaction_session_timeout = 60000",
            "intervalstyle = 'sql_standard'",
            "jit_above_cost = 0",
            "lock_timeout = 1",
            "plan_cache_mode = 'force_custom_plan'",
            "quote_all_identifiers = on",
            "row_security = off",
            "standard_conforming_strings = off",
            "synchronous_commit = off",
            "timezone = 'Pacific/Kiritimati'",
            "transform_null_equals = on",
            "work_mem = '64kB'",
        ],
        _ => &[
            "character_set_connection = latin1, collation_connection = latin1_german2_ci",
            "character_set_results = null",
            "completion_type = 1",
            "div_precision_increment = 0",
            "foreign_key_checks = 0",
            "group_concat_max_len = 4",
            "innodb_lock_wait_timeout = 1",
            "last_insert_id = 7",
            "lc_messages = 'de_DE', lc_time_names = 'de_DE'",
            "max_sort_length = 64",
            "optimizer_switch = 'derived_merge=off,semijoin=off,materialization=off'",
            "sort_buffer_size = 32768",
            "sql_auto_is_null = 1",
            "sql_buffer_result = 1",
            "sql_mode = ''",
            "sql_mode = 'ansi,pipes_as_concat,no_backslash_escapes,pad_char_to_full_length'",
            "sql_mode = 'traditional,no_unsigned_subtraction,no_auto_value_on_zero'",
            "sql_quote_show_create = 0",
            "sql_safe_updates = 1",
            "sql_select_limit = 1",
            "time_zone = '+13:00'",
            "timestamp = 86400",
            "session transaction isolation level read uncommitted",
            "session transaction isolation level serializable",
            "tmp_table_size = 1024, max_heap_table_size = 16384",
            "unique_checks = 0",
        ],
    }
}

/// A limiter on a pool of the caller's, of one connection that begins with a setting.
async fn pooled(db: &Db, setting: &str) -> Limiter {
    let set = if setting.is_empty() { "select 1".to_owned() } else { format!("set {setting}") };
    let config = db.config();
    macro_rules! pooled {
        ($pool:ty) => {{
            let options = sqlx::pool::PoolOptions::new();
            let options = options.max_connections(1).after_connect(move |connection, _| {
                let set = sqlx::raw_sql(sqlx::AssertSqlSafe(set.clone()));
                Box::pin(async move { set.execute(connection).await.map(drop) })
            });
            let pool: $pool = options.connect(&db.url_as(Role::App)).await.expect(setting);
            Limiter::with_pool(pool, config).await.expect(setting)
        }};
    }
    match db.engine {
        Engine::Postgres => pooled!(sqlx::PgPool),
        _ => pooled!(sqlx::MySqlPool),
    }
}

/// Where a session may not write, the error says so and nothing is recorded. Where each statement of it is left in a
/// transaction, what is told is recorded for all to see, or refused.
pub async fn a_pool_that_cannot_decide_says_why(db: Db) {
    db.limiter().await.operator().set_zone("log", &log(4, 3600), None, "test").await.unwrap();
    let checks = || [1, 2].map(|checks| (0..checks).map(|n| Check::new("log", format!("{n}"))).collect());
    let (read_only, why) = match db.engine {
        Engine::Postgres => ("default_transaction_read_only = on", "read-only transaction"),
        _ => ("session transaction read only", "READ ONLY transaction"),
    };
    let limiter = pooled(&db, read_only).await;
    for checks in checks() {
        let error = limiter.check_many(checks).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(db.rows().await, 0);
    }
    if db.engine.is_mysql() {
        let limiter = pooled(&db, "autocommit = 0").await;
        for checks in checks() {
            let before = db.rows().await;
            let told = match limiter.check_many(checks).await {
                Ok(decisions) => decisions.len() as i64,
                Err(error) => {
                    assert!(error.to_string().contains("while a transaction is in progress"), "{error}");
                    0
                }
            };
            assert_eq!(db.rows().await - before, told);
        }
    }
}

/// The decisions of a pool with settings of its own, and what is recorded, are as those of any.
pub async fn settings_of_a_pool_change_no_decision(db: Db) {
    let staff = db.limiter().await;
    staff.operator().set_zone("log", &log(4, 3600), None, "test").await.unwrap();
    staff.operator().set_zone("bucket", &bucket(4, 3600, 4), None, "test").await.unwrap();
    let mut expected = None;
    for setting in [""].iter().chain(settings(db.engine)) {
        // Citus hands times and bytes from node to node as the session writes them, and another one reads them otherwise.
        if db.is_spread
            && ["datestyle", "standard_conforming_strings"].iter().any(|how| setting.starts_with(how))
        {
            continue;
        }
        let limiter = pooled(&db, setting).await;
        let told = async {
            let mut told = Vec::new();
            for zone in ["log", "bucket"] {
                let key = format!("{zone} {setting}");
                let check = |cost| Check::new(zone, &key).cost(cost);
                let first = limiter.check(check(2)).await?;
                limiter.refund(Charged::by(first.txn_id)).await?;
                let reserved = limiter.reserve(check(1), Duration::from_secs(60)).await?;
                limiter.settle(Charged::by(reserved.txn_id), 2).await?;
                told.extend([first, reserved]);
                told.extend(limiter.check_many(vec![check(1), check(3), check(1), check(1)]).await?);
                let all = ["one", "two"].map(|other| Check::new(zone, format!("{key} {other}")));
                told.extend(limiter.check_all(all.to_vec()).await?.decisions);
            }
            Ok::<_, tallygate::Error>(
                told.iter()
                    .map(|decision| (decision.blocked, decision.remaining, decision.seq))
                    .collect::<Vec<_>>(),
            )
        };
        let told = told.await.unwrap_or_else(|error| panic!("{setting}: {error}"));
        assert_eq!(&told, expected.get_or_insert_with(|| told.clone()), "{setting}");
    }
    let (verified, faults) = verify(&staff, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
    assert!(verified.rows > 100, "{}", verified.rows);
}
