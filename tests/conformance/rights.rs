//! The rights of each role: it has what its work needs, and nothing else, whoever asks and however.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use tallygate::audit::verify::Verify;
use tallygate::capacity::Want;
use tallygate::ledger::History;
use tallygate::policy::{Override, TimeZoneName};
use tallygate::queue::Offer;
use tallygate::schema::{Migrator, Role};
use tallygate::{Charged, Check, ErrorKind, Limiter, Policy, Result};
use uuid::Uuid;

use crate::db::{Connected, Db, Engine, connected, log};
use crate::verify::verify;
use crate::{program, server, upgrade};

/// The routines that every role may execute.
const BASIS: [&str; 2] = ["tallygate_schema_version", "zone_find"];

/// Their ends on MySQL, where a routine has another name when it joins a transaction.
const ENDS: [&str; 2] = ["", "_in"];

/// An app executes all that the library needs; a caller in SQL the first five alone.
pub async fn an_app_executes_the_public_routines_and_touches_no_table(db: Db) {
    used(&db).await;
    let mut routines = vec!["check_velocity", "rate_limiting_request"];
    routines.extend(["zone_check", "zone_refund", "zone_charges"]);
    may(&db, Role::Caller, &routines, &[]).await;
    routines.extend(["zone_bucket_place", "zone_engine_check", peculiar(&db)]);
    routines.extend(["zone_engine_hold", "zone_engine_versions", "zone_engine_ask", "zone_engine_charges"]);
    routines.extend(["zone_engine_append", "zone_engine_append_one"]);
    routines.extend(["zone_engine_leases", "zone_engine_shapes"]);
    routines.extend(["zone_engine_queue", "zone_engine_items"]);
    routines.extend(["zone_engine_payloads", "zone_engine_items_set"]);
    may(&db, Role::App, &routines, &[]).await;
}

pub async fn an_auditor_reads_every_view_and_writes_nothing(db: Db) {
    used(&db).await;
    let mut tables = vec!["select zone_hold_view", "select zone_txn_view", "select zone_txn_dropped_view"];
    tables.extend(["select zone_master_view", "select zone_version_view", "select zone_calendar_view"]);
    tables.extend(["select zone_bucket_lock_view", "select zone_override_view"]);
    tables.extend(["select zone_override_by_bucket_view", "select zone_removal_view"]);
    tables.extend(["select zone_queue_view", "select zone_item_view"]);
    tables.extend([
        "select zone_bucket_removed_view",
        "select zone_upkeep_lock_view",
        "select zone_clock_view",
    ]);
    if db.engine.is_mysql() {
        tables.push("select zone_txn_by_bucket_view");
    }
    may(&db, Role::Auditor, &[], &tables).await;
}

pub async fn an_operator_writes_zones_and_marks_and_does_not_see_the_ledger(db: Db) {
    used(&db).await;
    let mut tables = vec!["select zone_master_view", "select zone_version_view", "select zone_calendar_view"];
    tables.extend(["select zone_bucket_lock_view", "select zone_override_view", "select zone_clock_view"]);
    tables.extend(["select zone_master", "select zone_version", "select zone_calendar"]);
    tables.extend(["insert zone_master", "insert zone_version", "insert zone_calendar"]);
    // By the engine, which looks at the bucket.
    let mut routines =
        vec!["zone_operator_append", "zone_engine_hold", "zone_engine_versions", "zone_engine_ask"];
    routines.push(peculiar(&db));
    may(&db, Role::Operator, &routines, &tables).await;
}

/// The routine of the engine that servers of the other kind do not have.
fn peculiar(db: &Db) -> &'static str {
    if db.engine == Engine::Postgres { "zone_engine_past" } else { "zone_engine_hold_one" }
}

/// A column that decides is in the chain of the versions. Where heads were removed is not his to say: buckets would
/// begin anew.
pub async fn an_operator_changes_nothing_of_a_zone_but_what_its_versions_keep(db: Db) {
    used(&db).await;
    let mut owner = db.connect().await;
    let schema = if db.engine == Engine::Postgres { "current_schema()" } else { "database()" };
    let columns = format!(
        "select m.column_name from information_schema.columns m
        where m.table_schema = {schema} and m.table_name = 'zone_master'
            and m.column_name <> 'beyond_sql' -- follows from the others
            and m.column_name not in (
                select v.column_name from information_schema.columns v
                where v.table_schema = {schema} and v.table_name = 'zone_version'
            )"
    );
    let mut session = db.connect_as(Role::Operator).await;
    let mut allowed = BTreeSet::new();
    for column in texts(&mut owner, &columns).await {
        if !is_denied(&mut session, &format!("update zone_master set {column} = {column}")).await {
            allowed.insert(column);
        }
    }
    // MariaDB asks for the right to every column of an upsert.
    let mut expected = BTreeSet::from(["updated_at".to_owned()]);
    if db.engine.is_mysql() {
        expected.extend(["name".to_owned(), "created_at".to_owned()]);
    }
    assert_eq!(allowed, expected);
}

/// With the salt and the hash that stands in the place of an erased key, the key is found by trying. Of a bucket that they can name they
/// are told it, for the hash of a ban, while it is not erased.
pub async fn an_operator_reads_all_of_a_bucket_but_its_salt(db: Db) {
    used(&db).await;
    for (role, may) in [(Role::Operator, false), (Role::Auditor, true)] {
        let mut session = db.connect_as(role).await;
        let rows = "select count(seq) from zone_bucket_lock_view where banned_until is null and row_hash is not null";
        assert_eq!(session.number(rows).await, 1, "{role}");
        for sql in ["select salt from zone_bucket_lock_view", "select * from zone_bucket_lock_view"] {
            assert_eq!(!is_denied(&mut session, sql).await, may, "{role}: {sql}");
        }
    }
}

/// A row in every table.
async fn used(db: &Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(5, 3600), None, "test").await.unwrap();
    let zone: TimeZoneName = "Europe/Berlin".parse().unwrap();
    let month = Policy::calendar(5, tallygate::policy::CalendarUnit::Month, zone).unwrap();
    limiter.operator().set_zone("month", &month, None, "test").await.unwrap();
    limiter.reserve(Check::new("login", "42"), Duration::from_secs(60)).await.unwrap();
    let over = Override { limit: None, ban_exempt: true, for_us: None };
    limiter.operator().set_override("login", "42", over, "why", "who").await.unwrap();
    assert_eq!(limiter.operator().overrides("login").await.unwrap().len(), 1);
}

/// That a role may execute these routines and do this to these tables, and that all else is denied: every routine, every
/// table and view, and what changes the schema or its rights.
async fn may(db: &Db, role: Role, routines: &[&str], tables: &[&str]) {
    let mut owner = db.connect().await;
    let mut session = db.connect_as(role).await;

    let mut expected: BTreeSet<String> = BASIS.iter().map(|name| (*name).to_owned()).collect();
    expected.extend(routines.iter().flat_map(|name| ENDS.map(|end| format!("{name}{end}"))));
    let calls = texts(&mut owner, calls(db.engine)).await;
    let every: BTreeSet<String> = calls.iter().map(|call| name_in(call)).collect();
    expected.retain(|name| every.contains(name));
    assert!(every.len() > 40 && expected.len() >= 2 + routines.len(), "{every:?}");
    let mut allowed = BTreeSet::new();
    for call in &calls {
        if !is_denied(&mut session, call).await {
            allowed.insert(name_in(call));
        }
    }
    assert_eq!(allowed, expected, "what {role} may execute");

    let mut allowed = BTreeSet::new();
    let relations = texts(&mut owner, relations(db.engine)).await;
    assert!(relations.len() > 7 + 7, "{relations:?}");
    for relation in relations {
        let (table, column) = relation.split_once(' ').unwrap();
        let row = match db.engine {
            Engine::Postgres => "default values".to_owned(),
            _ => format!("({column}) values (default)"),
        };
        for (verb, sql) in [
            ("select", format!("select 1 from {table}")),
            ("insert", format!("insert into {table} {row}")),
            ("update", format!("update {table} set {column} = {column}")),
            ("delete", format!("delete from {table}")),
            ("truncate", format!("truncate table {table}")),
        ] {
            if !is_denied(&mut session, &sql).await {
                allowed.insert(format!("{verb} {table}"));
            }
        }
    }
    let mut expected: BTreeSet<String> = tables.iter().map(|table| (*table).to_owned()).collect();
    if db.is_spread {
        // It has views of its own, refuses to write by a view before it asks who may, and opens those that are read.
        let is_of_citus =
            |what: &str| what.contains(" citus_") || (what.starts_with("insert") && what.ends_with("_view"));
        allowed.retain(|what| !is_of_citus(what));
        let is_of_table =
            |view: &&&str| !view.ends_with("by_bucket_view") && !view.ends_with("zone_clock_view");
        expected
            .extend(tables.iter().filter(is_of_table).map(|view| view.trim_end_matches("_view").to_owned()));
    }
    assert_eq!(allowed, expected, "what {role} may touch");

    let mut changes = vec![
        "create table other (id int)",
        "create view other as select 1",
        "create index other on zone_txn (cost)",
        "alter table zone_txn add column other int",
        "alter table zone_txn drop column note",
        "drop table zone_txn",
        "drop view zone_txn_view",
        "grant select on zone_txn to tallygate_app",
    ];
    changes.extend(match db.engine {
        Engine::Postgres => [
            "create function other() returns int language sql as 'select 1'",
            "create or replace function zone_find(p_name text) returns int language sql as 'select 1'",
            "drop function zone_find",
            "alter function zone_find security invoker",
            "create trigger other before insert on zone_txn execute function tallygate_schema_version()",
            "alter table zone_txn disable trigger all",
            "select nextval('zone_txn_id_seq')",
            "create role other",
        ],
        _ => [
            "create procedure other() select 1",
            "drop procedure zone_find",
            "alter procedure zone_find sql security invoker",
            "create trigger other before insert on zone_txn for each row set @other = 1",
            "create temporary table other (id int)",
            "lock tables zone_txn write",
            "create user other",
            "grant execute on procedure zone_find to tallygate_app",
        ],
    });
    if db.is_spread {
        // A user who has a right on a table, and may not give it to others, is only warned.
        changes.retain(|sql| !sql.starts_with("grant select"));
    }
    for sql in changes {
        assert!(is_denied(&mut session, sql).await, "{role} may: {sql}");
    }
}

/// Tried in a transaction that is taken back.
async fn is_denied(session: &mut Connected, sql: &str) -> bool {
    session.begin().await;
    let result = session.execute(sql).await;
    session.execute("rollback").await.unwrap();
    let Err(sqlx::Error::Database(error)) = result else { return false };
    match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        Some(error) => [1044, 1142, 1143, 1227, 1370, 1419].contains(&error.number()),
        // The last two: a view that nobody can write to.
        None => ["42501", "42809", "55000"].contains(&error.code().as_deref().unwrap_or_default()),
    }
}

/// A call of every routine, with null for all that it takes.
fn calls(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => {
            "select format('select %I(%s)', p.proname, (
                select string_agg(
                    case when p.provariadic <> 0 and a.place = p.pronargs then 'variadic ' else '' end
                        || 'null::' || format_type(a.type, null),
                    ', ' order by a.place
                )
                from unnest(p.proargtypes) with ordinality a (type, place)
            ))
            from pg_proc p where p.pronamespace = current_schema()::regnamespace"
        }
        _ => {
            "select cast(concat('call ', r.routine_name, '(', coalesce((
                select group_concat('@tallygate_null') from information_schema.parameters p
                where p.specific_schema = database() and p.specific_name = r.routine_name
            ), ''), ')') as char)
            from information_schema.routines r where r.routine_schema = database()"
        }
    }
}

fn name_in(call: &str) -> String {
    call.split(['(', ' ']).nth(1).unwrap().to_owned()
}

/// Every table and view, with its first column.
fn relations(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => {
            "select format('%I %I', c.relname, a.attname) from pg_class c join pg_attribute a on a.attrelid = c.oid
            where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum = 1"
        }
        _ => {
            "select cast(concat(c.table_name, ' ', c.column_name) as char) from information_schema.columns c
            where c.table_schema = database() and c.ordinal_position = 1"
        }
    }
}

/// The first column of every row.
async fn texts(session: &mut Connected, sql: &str) -> Vec<String> {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    match session {
        Connected::Postgres(c) => sql.fetch_all(c).await.unwrap().iter().map(|row| row.get(0)).collect(),
        Connected::MySql(c) => sql.fetch_all(c).await.unwrap().iter().map(|row| row.get(0)).collect(),
        Connected::Sqlite(c) => sql.fetch_all(c).await.unwrap().iter().map(|row| row.get(0)).collect(),
    }
}

/// By the library.
pub async fn a_refusal_names_the_role_that_is_lacking(db: Db) {
    let as_role = async |role| connected(&db.url_as(role)).await;
    let (app, operator) = (as_role(Role::App).await, as_role(Role::Operator).await);
    operator.operator().set_zone("login", &log(9, 3600), None, "test").await.unwrap();
    let hour = Duration::from_secs(3600);
    for (error, role) in [
        (operator.check(Check::new("login", "42")).await.unwrap_err(), "app"),
        (app.operator().set_zone("new", &log(1, 1), None, "test").await.unwrap_err(), "operator"),
        (app.operator().ban("login", "42", hour, "why", "who").await.unwrap_err(), "operator"),
        (app.auditor().history(&History::default()).await.unwrap_err(), "auditor"),
    ] {
        let says = error.to_string();
        assert!(says.ends_with(&format!("; let an owner run: tallygate grant {role} USER")), "{says}");
    }
    let output = program::tallygate(&db.url_as(Role::App)).arg("migrate").output().await.unwrap();
    let says = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{says}");
    assert!(says.matches("denied").count() == 1 && says.contains("owner run: tallygate grant "), "{says}");
}

pub async fn each_role_does_its_work_and_is_refused_that_of_the_others(db: Db) {
    let as_role = async |role| connected(&db.url_as(role)).await;
    let (app, caller) = (as_role(Role::App).await, as_role(Role::Caller).await);
    let (auditor, operator) = (as_role(Role::Auditor).await, as_role(Role::Operator).await);
    let (key, hour) = (|| Check::new("login", "42"), Duration::from_secs(3600));

    let zone = operator.operator().set_zone("login", &log(9, 3600), Some("d"), "test").await.unwrap();
    operator.operator().set_zone("login", &log(10, 3600), None, "test").await.unwrap();
    assert_eq!(operator.operator().zones().await.unwrap().len(), 1);
    assert_eq!(operator.operator().zone_versions(&zone).await.unwrap().len(), 2);
    operator.operator().ban("login", "other", hour, "n", "b").await.unwrap();
    operator.operator().unban("login", "other", "n", "b").await.unwrap();
    let over = Override { limit: None, ban_exempt: true, for_us: None };
    operator.operator().set_override("login", "other", over, "n", "b").await.unwrap();
    assert_eq!(operator.operator().overrides("login").await.unwrap().len(), 1);
    operator.operator().remove_override("login", "other", "n", "b").await.unwrap();

    let spent = app.check(key()).await.unwrap();
    app.check_many(vec![key(), Check::new("login", "43")]).await.unwrap();
    app.check_all(vec![key(), Check::new("login", "43")]).await.unwrap();
    app.peek("login", "42").await.unwrap();
    assert_eq!(app.refund(spent.txn_id).await.unwrap().len(), 1);
    let reserved = app.reserve(key(), hour).await.unwrap();
    app.settle(reserved.txn_id, 2).await.unwrap();
    let reserved = app.reserve(key(), hour).await.unwrap();
    app.cancel(Charged::by(reserved.txn_id).in_bucket("login", "42")).await.unwrap();
    let open = app.reserve(key(), hour).await.unwrap();
    assert!(!caller.check_velocity(zone.id, "44").await.unwrap().blocked);

    let rows = auditor.auditor().history(&History::default()).await.unwrap().rows;
    assert_eq!(rows.len() as i64, db.rows().await);
    assert_eq!(auditor.operator().zone("login").await.unwrap().unwrap().version, 2);
    assert_eq!(auditor.operator().zone_versions(&zone).await.unwrap().len(), 2);
    assert!(auditor.operator().overrides("login").await.unwrap().is_empty());

    let refused = |result: Result<()>, what| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("let an owner run: tallygate grant"), "{what}: {error}");
    };
    for limiter in [&app, &caller, &auditor] {
        refused(limiter.operator().set_zone("x", &log(1, 1), None, "test").await.map(drop), "set_zone");
        refused(limiter.operator().ban("login", "42", hour, "n", "b").await.map(drop), "ban");
        refused(limiter.operator().unban("login", "42", "n", "b").await.map(drop), "unban");
        refused(
            limiter.operator().set_override("login", "42", over, "n", "b").await.map(drop),
            "set_override",
        );
    }
    for limiter in [&app, &caller, &operator] {
        refused(
            limiter
                .auditor()
                .history(&History { zone: Some("login".into()), ..History::default() })
                .await
                .map(drop),
            "history",
        );
    }
    for limiter in [&caller, &auditor, &operator] {
        refused(limiter.check(key()).await.map(drop), "check");
        refused(limiter.check_many(vec![key(), key()]).await.map(drop), "check_many");
        refused(limiter.check_all(vec![key()]).await.map(drop), "check_all");
        refused(limiter.refund(spent.txn_id).await.map(drop), "refund");
        refused(limiter.cancel(Charged::by(open.txn_id).in_bucket("login", "42")).await.map(drop), "cancel");
    }
    // An operator looks at the bucket before a ban.
    for limiter in [&caller, &auditor] {
        refused(limiter.peek("login", "42").await.map(drop), "peek");
    }
    operator.operator().set_zone("mistake", &log(1, 1), None, "test").await.unwrap();
    for limiter in [&app, &caller, &auditor, &operator] {
        refused(limiter.owner().remove_zone("mistake").await, "remove_zone");
    }
    refused(app.operator().zones().await.map(drop), "zones");
    refused(app.operator().zone_versions(&zone).await.map(drop), "zone_versions");
    refused(app.operator().overrides("login").await.map(drop), "overrides");
    assert_eq!(db.rows().await, rows.len() as i64, "what is refused leaves no row");
    assert_eq!(db.number("select count(*) from zone_master").await, 2);
}

/// The database writes down as whom people are logged in, whoever they say they are.
pub async fn who_is_logged_in_is_recorded_beside_who_is_said_to_act(db: Db) {
    let (limiter, owner) = (db.limiter().await, connected(&db.url).await);
    let hour = Duration::from_secs(3600);
    limiter.operator().set_zone("login", &log(9, 3600), None, "somebody else").await.unwrap();
    let zone = limiter.operator().set_zone("login", &log(8, 3600), None, "somebody else").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    limiter.operator().ban("login", "42", hour, "n", "somebody else").await.unwrap();
    limiter.operator().unban("login", "42", "n", "somebody else").await.unwrap();
    let over = Override { limit: None, ban_exempt: true, for_us: None };
    limiter.operator().set_override("login", "42", over, "n", "somebody else").await.unwrap();
    assert_is(
        &db,
        limiter.operator().overrides("login").await.unwrap()[0].login.as_deref(),
        Some(Role::Operator),
    );
    limiter.operator().remove_override("login", "42", "n", "somebody else").await.unwrap();

    for version in limiter.operator().zone_versions(&zone).await.unwrap() {
        assert_is(&db, version.login.as_deref(), Some(Role::Operator));
        assert_eq!(version.changed_by, "somebody else");
    }
    let rows = limiter
        .auditor()
        .history(&History { zone: Some("login".into()), ..History::default() })
        .await
        .unwrap()
        .rows;
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert_is(&db, row.login.as_deref(), row.actor.as_ref().map(|_| Role::Operator));
    }
    assert_is(
        &db,
        owner.owner().erase("login", "42", "n", "b").await.unwrap().login.as_deref(),
        Some(Role::Owner),
    );
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!(faults, []);
    if db.engine == Engine::Sqlite {
        return;
    }
    // A version says no other login than that of who writes it.
    let version = |login: &str| {
        let (column, value) =
            if login.is_empty() { ("", String::new()) } else { (", login", format!(", '{login}'")) };
        format!(
            "insert into zone_version (zone_id, version, description, algorithm, rate, window_us, rate_gcd, reserve, mode,
                count_blocked, on_outage, running_buckets, durability, blocked_rows, changed_at, changed_by, row_hash{column})
            select zone_id, 3, description, algorithm, rate, window_us, rate_gcd, reserve, mode, count_blocked, on_outage,
                running_buckets, durability, blocked_rows, changed_at, changed_by, row_hash{value}
            from zone_version where version = 2"
        )
    };
    let mut operator = db.connect_as(Role::Operator).await;
    assert!(is_denied(&mut operator, &version("somebody else")).await);
    assert!(!is_denied(&mut operator, &version("")).await);
}

/// On SQLite there are no users.
fn assert_is(db: &Db, login: Option<&str>, role: Option<Role>) {
    let role = role.filter(|_| db.engine != Engine::Sqlite);
    let is = login.map(|login| login.split('@').next().unwrap());
    // The owner is whom the server came with.
    let owner = || db.url.split(['/', ':']).nth(3).unwrap().to_owned();
    let user = role.map(|role| if role == Role::Owner { owner() } else { server::user(role) });
    assert_eq!(is, user.as_deref());
    assert_eq!(login.is_some_and(|login| login.contains('@')), role.is_some() && db.engine.is_mysql());
}

pub async fn granting_twice_changes_nothing(db: Db) {
    let migrator = Migrator::new(&db.url).unwrap();
    let rights = match db.engine {
        Engine::Postgres => {
            "select a.acl from (
                select 'function ' || p.proname || p.proacl::text as acl from pg_proc p
                where p.pronamespace = current_schema()::regnamespace
                union all
                select 'table ' || c.relname || c.relacl::text from pg_class c
                where c.relnamespace = current_schema()::regnamespace
                union all
                select 'column ' || a.attname || a.attacl::text from pg_attribute a join pg_class c on c.oid = a.attrelid
                where c.relnamespace = current_schema()::regnamespace
                union all
                select 'schema ' || n.nspacl::text from pg_namespace n where n.nspname = current_schema()
            ) a
            where a.acl is not null
            order by a.acl"
        }
        _ => {
            "select cast(a.acl as char) as acl from (
                select concat(p.user, '@', p.host, ' ', p.routine_name, ' ', p.proc_priv) as acl
                from mysql.procs_priv p where p.db = database()
                union all
                select concat(t.grantee, ' ', t.table_name, ' ', t.privilege_type)
                from information_schema.table_privileges t where t.table_schema = database()
                union all
                select concat(c.grantee, ' ', c.table_name, ' ', c.column_name, ' ', c.privilege_type)
                from information_schema.column_privileges c where c.table_schema = database()
            ) a
            order by acl"
        }
    };
    let mut owner = db.connect().await;
    let once = texts(&mut owner, rights).await;
    assert!(once.iter().filter(|right| right.contains("tallygate_app")).count() > 7, "{once:#?}");
    for role in [Role::App, Role::Caller, Role::Auditor, Role::Operator] {
        let shown = migrator.grant_statements(role, &server::user(role)).await.unwrap();
        assert!(
            shown.iter().all(|sql| sql.starts_with("grant ") && sql.contains(&server::user(role))),
            "{shown:?}"
        );
        assert_eq!(migrator.grant(role, &server::user(role)).await.unwrap(), shown);
    }
    assert_eq!(texts(&mut owner, rights).await, once);
    // A statement that is only shown is not carried out.
    migrator.grant_statements(Role::App, &server::user(Role::Owner)).await.unwrap();
    assert_eq!(texts(&mut owner, rights).await, once);
}

pub async fn a_grantee_that_cannot_be_is_one_clear_error(db: Db) {
    let migrator = Migrator::new(&db.url).unwrap();
    for name in [
        "",
        "public",
        "a b",
        "x; drop table zone_txn",
        "x\"y",
        "x`y",
        "x' or '1",
        "x--",
        "nobody_of_this_name",
    ] {
        for role in Role::ALL {
            let error = migrator.grant(*role, name).await.unwrap_err();
            assert!(error.is_invalid(), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            if db.engine != Engine::Sqlite {
                assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
            }
        }
    }
    if db.engine != Engine::Sqlite {
        let empty = db.create_empty_beside("ungranted").await;
        let error = Migrator::new(&empty.url).unwrap().grant(Role::App, "tallygate_app").await.unwrap_err();
        assert!(error.is_schema() && error.to_string().contains("tallygate migrate"), "{error}");
    }
}

/// This owner is no administrator.
pub async fn an_owner_migrates_an_empty_database_and_gives_the_other_roles(db: Db) {
    let empty = db.create_empty_beside("owned").await;
    let owner = server::user(Role::Owner);
    for _ in 0..2 {
        Migrator::new(&empty.url).unwrap().grant(Role::Owner, &owner).await.unwrap();
    }
    let migrator = Migrator::new(&empty.url_as(Role::Owner)).unwrap();
    migrator.apply().await.unwrap();
    for role in [Role::App, Role::Auditor, Role::Operator] {
        migrator.grant(role, &server::user(role)).await.unwrap();
    }
    let limiter = empty.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    limiter.check_many(["a", "b", "a"].map(|key| Check::new("login", key)).to_vec()).await.unwrap();
    assert!(limiter.check(Check::new("login", "a")).await.unwrap().blocked);
    limiter.operator().ban("login", "a", Duration::from_secs(1), "n", "b").await.unwrap();
    assert_eq!(limiter.auditor().history(&History::default()).await.unwrap().rows.len(), 5);
    let definers = match db.engine {
        Engine::Postgres => format!(
            "select count(*) from pg_proc where proowner <> '{owner}'::regrole and pronamespace = current_schema()::regnamespace"
        ),
        _ => format!(
            "select count(*) from information_schema.routines where definer not like '{owner}@%' and routine_schema = database()"
        ),
    };
    assert_eq!(empty.number(&definers).await, 0, "routines with the rights of somebody else");
    // The tables have one owner on PostgreSQL; who is to be it must be known before they are made.
    if db.engine == Engine::Postgres {
        Migrator::new(&empty.url).unwrap().grant(Role::Owner, &owner).await.unwrap();
        let error = Migrator::new(&empty.url).unwrap().grant(Role::Owner, "tallygate_app").await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(&owner), "{error}");

        let others = db.create_empty_beside("others").await;
        let grant = "execute format('grant usage, create on schema %I to tallygate_owner', current_schema())";
        others.execute(&format!("do $$ begin {grant}; end $$")).await;
        let migrator = Migrator::new(&others.url_as(Role::Owner)).unwrap();
        migrator.apply().await.unwrap();
        let error = migrator.grant(Role::App, "tallygate_app").await.unwrap_err();
        assert!(error.to_string().contains("the schema's owner"), "{error}");
    }
}

/// PostgreSQL finds functions and operators by their types: what a stranger puts beside the tables may be the better match, and
/// would run with their owner's rights.
pub async fn nobody_but_the_owner_may_put_anything_into_the_schema(db: Db) {
    let app = server::user(Role::App);
    let fresh = db.create_empty_beside("open").await;
    let refused = async |of: &Db, why: &str| {
        let migrator = Migrator::new(&of.url).unwrap();
        let told = [
            migrator.apply().await.err(),
            migrator.grant(Role::App, &app).await.err(),
            migrator.pending().await.err(),
            Migrator::new(&of.url_as(Role::App)).unwrap().pending().await.err(),
        ];
        for error in told {
            let error = error.unwrap_or_else(|| panic!("{why}: it is not refused"));
            assert!(error.is_schema() && error.to_string().contains(why), "{why}: {error}");
        }
    };
    let schema = fresh.schema().to_owned();
    fresh.execute(&format!("grant create on schema {schema} to public")).await;
    let error = Migrator::new(&fresh.url).unwrap().apply().await.unwrap_err();
    let remedy = format!("run: revoke create on schema {schema} from public");
    assert!(error.is_schema() && error.to_string().contains(&remedy), "{error}");
    fresh.execute(&format!("revoke create on schema {schema} from public")).await;
    Migrator::new(&fresh.url).unwrap().apply().await.unwrap();

    let schema = db.schema().to_owned();
    db.execute(&format!("grant create on schema {schema} to {app}")).await;
    refused(&db, &format!("run: revoke create on schema {schema} from {app}")).await;
    // Things that were put there stay when the right is taken back.
    let mut stranger = db.connect_as(Role::App).await;
    for sql in [
        "create function never(zone_amount, bigint) returns boolean language sql as 'select false'",
        "create operator > (leftarg = zone_amount, rightarg = bigint, function = never)",
    ] {
        stranger.execute(sql).await.unwrap();
    }
    db.execute(&format!("revoke create on schema {schema} from {app}")).await;
    refused(&db, &format!("is of {app}; run: drop operator >(zone_amount,bigint)")).await;
    db.execute("drop operator > (zone_amount, bigint)").await;
    refused(&db, &format!("is of {app}; run: drop routine never(zone_amount,bigint)")).await;
    db.execute("drop routine never(zone_amount, bigint)").await;
    assert!(Migrator::new(&db.url).unwrap().pending().await.unwrap().is_empty());
    Migrator::new(&db.url).unwrap().grant(Role::App, &app).await.unwrap();
}

/// A role of the database, and a user with it.
pub async fn a_role_gives_its_rights_to_its_members(db: Db) {
    let id = Uuid::now_v7().simple().to_string();
    let (role, user) = (format!("r_{}", &id[20..]), format!("u_{}", &id[20..]));
    let mut owner = db.connect().await;
    owner.execute(&format!("create role {role}")).await.unwrap();
    let password = server::PASSWORD.replace('\'', "''");
    let make: &[String] = &match db.engine {
        Engine::Postgres => [
            format!("create role {user} login password '{password}'"),
            format!("grant {role} to {user}"),
            "select 1".to_owned(),
        ],
        Engine::MySql => [
            format!("create user {user} identified by '{password}'"),
            format!("grant {role} to {user}"),
            format!("set default role {role} to {user}"),
        ],
        _ => [
            format!("create user {user} identified by '{password}'"),
            format!("grant {role} to {user}"),
            format!("set default role {role} for {user}"),
        ],
    };
    for sql in make {
        owner.execute(sql).await.unwrap();
    }
    Migrator::new(&db.url).unwrap().grant(Role::App, &role).await.unwrap();
    db.limiter().await.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let url = db.url_as(Role::App).replace("tallygate_app", &user);
    let limiter = connected(&url).await;
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
    assert!(limiter.operator().zones().await.is_err());
    drop(limiter);
    if db.engine == Engine::Postgres {
        owner.execute(&format!("drop owned by {role}")).await.unwrap();
    }
    owner.execute(&format!("drop role {role}")).await.unwrap();
    owner
        .execute(&format!("drop {} {user}", if db.engine == Engine::Postgres { "role" } else { "user" }))
        .await
        .unwrap();
}

/// Two roles of the database that were given one of ours: one is dropped, and of the other one the rights are taken away.
pub async fn who_is_no_more_is_forgotten_and_the_others_keep_their_rights(db: Db) {
    let id = Uuid::now_v7().simple().to_string();
    let (gone, revoked) = (format!("r_{}", &id[20..]), format!("v_{}", &id[20..]));
    let mut owner = db.connect().await;
    let migrator = Migrator::new(&db.url).unwrap();
    let before = owner.number("select count(*) from tallygate_grant").await;
    for role in [&gone, &revoked] {
        owner.execute(&format!("create role {role}")).await.unwrap();
        migrator.grant(Role::App, role).await.unwrap();
    }
    assert_eq!(owner.number("select count(*) from tallygate_grant").await, before + 2);
    if db.engine == Engine::Postgres {
        owner.execute(&format!("drop owned by {gone}, {revoked}")).await.unwrap();
    }
    owner.execute(&format!("drop role {gone}")).await.unwrap();

    upgrade::next(db.engine, &db.url).apply().await.unwrap();
    // Only PostgreSQL lets an owner see what rights others have.
    let remembered = if db.engine == Engine::Postgres { before } else { before + 1 };
    assert_eq!(owner.number("select count(*) from tallygate_grant").await, remembered);
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
    assert_eq!(limiter.auditor().history(&History::default()).await.unwrap().rows.len(), 1);
    owner.execute(&format!("drop role {revoked}")).await.ok();
}

/// A missing right is told at once: only while a migration is at work it is waited for.
pub async fn a_routine_that_one_may_not_call_is_no_reason_to_wait(db: Db) {
    db.limiter().await.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let auditor = connected(&db.url_as(Role::Auditor)).await;
    let error = auditor.check(Check::new("login", "42")).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("refused"), "{error}");
    // A part of the schema that is not there.
    let part = match db.engine {
        Engine::Postgres if db.is_spread => "function zone_engine_check",
        Engine::Postgres => "function zone_engine_hold",
        _ => "procedure zone_engine_hold_one",
    };
    let app = connected(&db.url_as(Role::App)).await;
    db.execute(&format!("drop {part}")).await;
    let error = app.check(Check::new("login", "42")).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
}

/// By the command line, to a user who has nothing yet.
pub async fn the_command_shows_what_it_would_do_and_does_it(db: Db) {
    let user = server::user(Role::Owner);
    let tallygate = async |arguments: &[&str]| {
        let mut command = program::tallygate(&db.url);
        command.args(["grant", "app", &user]).args(arguments);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    db.limiter().await.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    let shown = tallygate(&["--dry-run"]).await;
    assert!(shown.lines().all(|line| line.starts_with("grant ") && line.ends_with(';')), "{shown}");
    assert!(Limiter::connect(&db.url_as(Role::Owner)).await.is_err(), "it was only shown");
    let told: serde_json::Value = serde_json::from_str(&tallygate(&["--format", "json"]).await).unwrap();
    assert_eq!(
        (&told["role"], &told["name"], &told["dry_run"]),
        (&"app".into(), &user.as_str().into(), &false.into())
    );
    let statements = told["statements"].as_array().unwrap();
    let statements: String = statements.iter().map(|sql| format!("{};\n", sql.as_str().unwrap())).collect();
    assert_eq!(statements, shown);
    let limiter = connected(&db.url_as(Role::Owner)).await;
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
    assert!(limiter.operator().zones().await.is_err(), "it is an app and nothing else");
}

pub async fn every_view_shows_every_column_of_its_table(db: Db) {
    let schema = if db.engine == Engine::Postgres { "current_schema()" } else { "database()" };
    let columns = format!(
        "select count(*) from information_schema.columns c
        where c.table_schema = {schema} and c.table_name in (
            'zone_master', 'zone_version', 'zone_calendar', 'zone_bucket_lock', 'zone_hold', 'zone_override', 'zone_txn',
            'zone_removal', 'zone_txn_dropped', 'zone_bucket_removed', 'zone_upkeep_lock'
        )"
    );
    assert!(db.number(&columns).await > 100);
    let missing = format!(
        "{columns} and not exists (
            select 1 from information_schema.columns v
            where v.table_schema = c.table_schema and v.table_name = concat(c.table_name, '_view')
                and v.column_name = c.column_name
        )"
    );
    assert_eq!(db.number(&missing).await, 0);
}

pub async fn no_routine_is_everybodys_and_each_has_a_fixed_search_path(db: Db) {
    let routines = "select count(*) from pg_proc p where p.pronamespace = current_schema()::regnamespace";
    let everybodys = "p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0)";
    assert!(db.number(routines).await > 50);
    assert_eq!(db.number(&format!("{routines} and ({everybodys})")).await, 0);
    let pinned = "exists (
        select from unnest(p.proconfig) c where c = 'search_path=' || quote_ident(current_schema()) || ', pg_temp'
    )";
    assert!(db.number(&format!("{routines} and p.prosecdef and {pinned}")).await > 8);
    assert_eq!(db.number(&format!("{routines} and p.prosecdef and not {pinned}")).await, 0);
}

/// Everywhere where text comes from outside: it is recorded as it was written, and does nothing.
pub async fn hostile_text_is_only_text(db: Db) {
    const HOSTILE: [&str; 9] = [
        "'; drop table zone_txn; --",
        "\"; drop table zone_txn; --",
        "`; drop table zone_txn; --",
        "\\'; delete from zone_txn; #",
        "x') on conflict do nothing; truncate zone_txn; --",
        "$$; drop table zone_txn; $$",
        "${jndi:x} %s %I {0} ?1 :p @@version $1",
        "\",\"cost\":0,\"x\":\"",
        "/*!50000 drop table zone_txn */ ||(select 1)||",
    ];
    let limiter = db.limiter().await;
    let objects = match db.engine {
        Engine::Postgres => {
            "select c.relname::text from pg_class c where c.relnamespace = current_schema()::regnamespace
            union all select p.proname::text from pg_proc p where p.pronamespace = current_schema()::regnamespace order by 1"
        }
        Engine::Sqlite => "select name from sqlite_schema order by name",
        _ => {
            "select cast(t.name as char) as name from (
                select table_name as name from information_schema.tables where table_schema = database()
                union all select routine_name from information_schema.routines where routine_schema = database()
            ) t order by name"
        }
    };
    let mut owner = db.connect().await;
    let before = texts(&mut owner, objects).await;
    let distinct = Policy::distinct(100, Duration::from_secs(3600)).unwrap();
    let mut rows = 0;
    for text in HOSTILE {
        let zone = limiter.operator().set_zone(text, &distinct, Some(text), text).await.unwrap();
        let check = || Check::new(text, text).member(text);
        assert!(limiter.check(check()).await.unwrap().is_allowed(), "{text}");
        limiter.check_many(vec![check(), check()]).await.unwrap();
        limiter.check_all(vec![check()]).await.unwrap();
        limiter.operator().ban(text, text, Duration::from_secs(3600), text, text).await.unwrap();
        limiter.operator().unban(text, text, text, text).await.unwrap();
        let over = Override { limit: None, ban_exempt: true, for_us: None };
        limiter.operator().set_override(text, text, over, text, text).await.unwrap();
        assert_eq!(limiter.operator().overrides(text).await.unwrap()[0].note.as_deref(), Some(text));
        // The routines decide plain zones only.
        let plain = format!("{text} plain");
        limiter.operator().set_zone(&plain, &log(100, 3600), Some(text), text).await.unwrap();
        rows += 7 + by_sql(&db, &plain, text).await;

        let history =
            History { zone: Some(text.to_owned()), key: Some(text.to_owned()), ..History::default() };
        let told = limiter.auditor().history(&history).await.unwrap().rows;
        assert!(told.iter().all(|row| row.zone == text && row.key == text), "{told:?}");
        assert!(told.iter().all(|row| row.member.as_deref().is_none_or(|member| member == text)), "{told:?}");
        assert_eq!(told.iter().filter(|row| row.member.is_some()).count(), 4, "{told:?}");
        assert_eq!(told.iter().filter(|row| row.note.as_deref() == Some(text)).count(), 3);
        let versions = limiter.operator().zone_versions(&zone).await.unwrap();
        assert_eq!((versions[0].description.as_str(), versions[0].changed_by.as_str()), (text, text));
        let nobody = limiter.check(Check::new(format!("{text}?"), text)).await.unwrap_err();
        assert!(nobody.is_unknown_zone() && nobody.to_string().lines().count() == 1, "{nobody}");
        assert_eq!(db.rows().await, rows, "{text}");
    }
    assert_eq!(texts(&mut owner, objects).await, before);
    assert_eq!(db.number("select count(*) from zone_master").await, 2 * HOSTILE.len() as i64);
    assert_eq!(db.number("select count(*) from zone_version").await, 2 * HOSTILE.len() as i64);
    db.assert_ledger_is_whole().await;
}

/// The same text as arguments of the routines, by a client of its own: one row of the ledger.
async fn by_sql(db: &Db, zone: &str, key: &str) -> i64 {
    let txn = Uuid::now_v7();
    match db.connect_as(Role::Caller).await {
        Connected::Postgres(mut c) => {
            let found = sqlx::query("select z.id from zone_find($1) z").bind(zone);
            assert_eq!(found.fetch_all(&mut c).await.unwrap().len(), 1);
            let call = "select zone_check($1, $2, $3, p_record => true)";
            sqlx::query(call).bind(zone).bind(key).bind(txn).fetch_all(&mut c).await.unwrap();
        }
        Connected::MySql(mut c) => {
            let found = sqlx::query("call zone_find(?)").bind(zone);
            assert_eq!(found.fetch_all(&mut c).await.unwrap().len(), 1);
            let call = "call zone_check(?, ?, ?, 1, true, null)";
            sqlx::query(call).bind(zone).bind(key).bind(txn).fetch_all(&mut c).await.unwrap();
        }
        Connected::Sqlite(_) => return 0,
    }
    1
}

/// Leases, queues and predictions are the library's: who has another role is told so, and nothing is written.
pub async fn a_lease_takes_the_role_of_an_app(db: Db) {
    let limiter = db.limiter().await;
    let capacity = Policy::capacity(100, Duration::from_secs(60)).unwrap();
    limiter.operator().set_zone("gpu", &capacity, None, "test").await.unwrap();
    let mails = Policy::queue(10, Duration::from_secs(1), 100).unwrap();
    limiter.operator().set_zone("mail", &mails, None, "test").await.unwrap();
    for role in [Role::Caller, Role::Operator, Role::Auditor] {
        let limiter = connected(&db.url_as(role)).await;
        let check = Check::new("gpu", "resource");
        for refused in [
            limiter.leases().get(Want::new("gpu", "resource", "a", 1)).await.map(drop),
            limiter.queues().offer(Offer::new("mail", "out")).await.map(drop),
            limiter.reserve_predicted(check, Duration::from_secs(9), "chat").await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{role}: {error}");
            assert!(error.to_string().contains("tallygate grant app USER"), "{role}: {error}");
        }
    }
    assert_eq!(db.rows().await, 0);
}
