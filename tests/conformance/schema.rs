//! Migrating: once, however many start at once.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::Check;
use tallygate::schema::{Migrator, Role};
use tokio::time::{sleep, timeout};

use crate::db::{Db, Engine, connected, log};
use crate::rounds;

pub async fn twenty_migrators_at_once_all_succeed(db: Db) {
    for _ in 0..rounds(2, 10) {
        let empty = db.create_empty_beside("migrators").await;
        let migrate = (0..20).map(|_| {
            let migrator = Migrator::new(&empty.url).unwrap();
            tokio::spawn(async move { migrator.apply().await.unwrap().len() })
        });
        let applied: Vec<usize> = join_all(migrate).await.into_iter().map(Result::unwrap).collect();
        let all = Migrator::new(&empty.url).unwrap().migrations().len();
        assert_eq!(applied.iter().sum::<usize>(), all, "each migration ran once");
        assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "one worked, the others waited");
        assert!(Migrator::new(&empty.url).unwrap().pending().await.unwrap().is_empty());
        connected(&empty.url).await;
    }
}

pub async fn a_database_that_is_not_in_utf8_is_refused_in_one_sentence(db: Db) {
    let name = db.name();
    for (encoding, text) in [("SQL_ASCII", "sql_ascii"), ("LATIN1", "latin1")] {
        let other = format!("{name}_{text}");
        db.execute(&format!("create database {other} encoding '{encoding}' locale 'C' template template0"))
            .await;
        let (server, _) = db.url.rsplit_once('/').unwrap();
        let refused = Migrator::new(&format!("{server}/{other}")).unwrap().apply().await.unwrap_err();
        assert!(refused.is_schema() && refused.to_string().contains(encoding), "{refused}");
        assert!(refused.to_string().contains("encoding 'UTF8'"), "{refused}");
        db.execute(&format!("drop database {other} with (force)")).await;
    }
}

pub async fn the_database_tells_what_each_routine_is_for(db: Db) {
    let (mute, velocity) = match db.engine {
        Engine::Postgres => (
            "select count(*) from pg_proc p
            where p.pronamespace = current_schema()::regnamespace and obj_description(p.oid, 'pg_proc') is null",
            "select regexp_replace(
                obj_description('check_velocity(int, text)'::regprocedure, 'pg_proc'), ' \\([0-9a-f]{16}\\)$', ''
            )",
        ),
        _ => (
            "select count(*) from information_schema.routines
            where routine_schema = database() and routine_comment = ''",
            "select regexp_replace(cast(routine_comment as char), ' [(][0-9a-f]{16}[)]$', '') from information_schema.routines
            where routine_schema = database() and routine_name = 'check_velocity'",
        ),
    };
    assert_eq!(db.number(mute).await, 0, "routines without a comment");
    let mut connection = db.connect().await;
    assert_eq!(connection.texts(velocity).await, ["may one more transaction of this bucket pass?"]);
    // But for what a row of the ledger says of an override.
    let mute = match db.engine {
        Engine::Postgres => "select c.relname || '.' || a.attname
            from pg_class c
            join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
            where c.relnamespace = current_schema()::regnamespace and c.relkind = 'v'
                and col_description(c.oid, a.attnum) is null and c.relname not like 'citus%'
                and (c.relname, a.attname) not in (
                    ('zone_override_view', 'created_at'), ('zone_override_view', 'note'), ('zone_override_view', 'actor'),
                    ('zone_override_view', 'login')
                )",
        _ => "select concat(table_name, '.', column_name)
            from information_schema.columns
            where table_schema = database() and table_name like '%_view' and column_comment = ''
                -- Of no table, from which these servers take it.
                and table_name <> 'zone_clock_view'",
    };
    assert_eq!(connection.texts(mute).await, [""; 0], "columns of views without a comment");
}

pub async fn migrating_again_changes_nothing(db: Db) {
    assert!(Migrator::new(&db.url).unwrap().apply().await.unwrap().is_empty());
    assert!(Migrator::new(&db.url).unwrap().pending().await.unwrap().is_empty());
}

/// A node has its own `get_lock`, so the row of another one's migrator is waited for: until it goes, or gives no sign. That of a
/// migrator of this server, which has lost the server's lock, is nobody's.
pub async fn a_migrator_waits_for_one_at_another_node(db: Db) {
    let migrator = || Migrator::new(&db.url).unwrap();
    let lock = async |server: &str, age_s: u32| {
        db.execute(&format!(
            "insert into tallygate_schema_lock (id, holder, server, alive_at)
             values (1, random_bytes(16), {server}, utc_timestamp(6) - interval {age_s} second)"
        ))
        .await;
    };
    let soon = Duration::from_secs(20);
    for (server, age_s) in [("concat(@@hostname, ':', @@port)", 0), ("'elsewhere:3306'", 31)] {
        lock(server, age_s).await;
        assert_eq!(timeout(soon, migrator().apply()).await.unwrap().unwrap(), []);
        assert_eq!(db.number("select count(*) from tallygate_schema_lock where id = 1").await, 0);
    }
    lock("'elsewhere:3306'", 0).await;
    let late = migrator();
    let waiting = tokio::spawn(async move { late.apply().await });
    sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "it works beside another one");
    db.execute("delete from tallygate_schema_lock where id = 1").await;
    assert_eq!(timeout(soon, waiting).await.unwrap().unwrap().unwrap(), []);
}

pub async fn what_cannot_be_distributed_says_what_it_lacks(db: Db) {
    let migrator = Migrator::new(&db.url).unwrap();
    for refused in [migrator.undistributed().await.unwrap_err(), migrator.distribute().await.unwrap_err()] {
        assert!(refused.is_invalid() && refused.to_string().contains("create extension citus"), "{refused}");
    }
}

/// Every session may take an advisory lock, or a `get_lock`, for as long as it likes.
pub async fn nobody_but_the_owner_can_hold_a_migrator_up(db: Db) {
    let mut app = db.connect_as(Role::App).await;
    let (take, locks): (_, &[&str]) = match db.engine {
        Engine::Postgres => (
            "select pg_advisory_lock(x'74616c6c79'::bigint)",
            &[
                "lock table tallygate_schema_history in access share mode",
                "select 1 from tallygate_schema_history for share",
            ],
        ),
        _ => (
            "select get_lock(concat('tallygate.', left(sha2(database(), 256), 32)), 0)",
            &["select id from tallygate_schema_lock for update", "lock tables tallygate_schema_lock read"],
        ),
    };
    app.execute(take).await.unwrap();
    assert!(Migrator::new(&db.url).unwrap().apply().await.unwrap().is_empty());
    for lock in locks {
        app.begin().await;
        assert!(app.execute(lock).await.unwrap_err().to_string().contains("denied"), "{lock}");
        app.execute("rollback").await.unwrap();
    }
}

/// PostgreSQL may be set to read a backslash as the beginning of another character.
pub async fn patterns_are_made_as_they_are_written(db: Db) {
    let constraints = "select string_agg(pg_get_constraintdef(c.oid), ' ' order by c.conname)
        from pg_constraint c
        where c.connamespace = current_schema()::regnamespace";
    let as_usual = db.connect().await.texts(constraints).await;
    db.execute(&format!("alter database {} set standard_conforming_strings = off", db.name())).await;
    let other = db.create_empty_beside("patterns").await;
    other.migrate().await;
    let mut reader = other.connect().await;
    // By it they are shown, too.
    reader.execute("set standard_conforming_strings = on").await.unwrap();
    assert_eq!(reader.texts(constraints).await, as_usual);
}

/// Settings of a server for all sessions, by which a statement makes something else, or shows less.
pub async fn what_is_made_does_not_depend_on_the_servers_settings(db: Db) {
    let settings = [
        ("sql_mode", "'ansi,no_backslash_escapes'"),
        ("default_storage_engine", "MyISAM"),
        ("group_concat_max_len", "4"),
        ("sql_select_limit", "1"),
        ("sql_safe_updates", "1"),
        ("completion_type", "1"),
        ("autocommit", "0"),
    ];
    db.execute("create database made").await;
    for (name, value) in settings {
        db.execute(&format!("set global {name} = {value}")).await;
    }
    let made = db.elsewhere(db.url.replace("/apart", "/made"));
    made.migrate().await;
    assert!(Migrator::new(&made.url).unwrap().pending().await.unwrap().is_empty());
    assert!(Migrator::new(&made.url).unwrap().apply().await.unwrap().is_empty());
    for (name, _) in settings {
        db.execute(&format!("set global {name} = default")).await;
    }
    let mut owner = db.connect().await;
    for what in [
        "concat(routine_name, sql_mode, routine_definition) from information_schema.routines where routine_schema",
        "concat(table_name, engine) from information_schema.tables where engine is not null and table_schema",
        "concat(constraint_name, check_clause) from information_schema.check_constraints where constraint_schema",
    ] {
        let all = async |owner: &mut crate::db::Connected, of: &str| {
            let mut all = owner.texts(&format!("select {what} = '{of}'")).await;
            all.sort();
            all
        };
        let apart = all(&mut owner, "apart").await;
        assert!(apart.len() > 10, "{what}");
        assert_eq!(all(&mut owner, "made").await, apart, "{what}");
    }
    let limiter = made.limiter().await;
    limiter.operator().set_zone("login", &log(1, 60), None, "test").await.unwrap();
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
}

/// Under it the server refuses every check.
pub async fn a_binary_log_of_statements_is_refused_with_the_remedy(db: Db) {
    db.execute("set global binlog_format = 'STATEMENT'").await;
    let migrator = Migrator::new(&db.url).unwrap();
    if db.number("select @@global.log_bin").await == 0 {
        assert!(migrator.pending().await.unwrap().is_empty());
        return;
    }
    for error in [migrator.pending().await.unwrap_err(), migrator.apply().await.unwrap_err()] {
        assert!(error.is_schema() && error.to_string().contains("binlog_format = ROW"), "{error}");
    }
}
