use sqlx::{Connection, SqliteConnection};

use super::program::Program;

#[test]
fn migrate_applies_once_and_check_says_whether_it_must() {
    let program = Program::new();
    let unapplied = program.run(&["migrate", "--check"]);
    assert_eq!((unapplied.code, unapplied.err.as_str()), (4, ""));
    assert!(unapplied.out.contains("unapplied  V1 zone"), "{}", unapplied.out);
    assert!(unapplied.out.contains("run: tallygate migrate"), "{}", unapplied.out);
    assert!(!program.path("tallygate.db").exists(), "--check made the database");

    let applied = program.ok(&["migrate"]);
    assert_eq!(applied.lines().count(), unapplied.out.lines().count());
    assert!(applied.starts_with("applied  V1 zone\n"), "{applied}");
    assert!(applied.lines().last().unwrap().starts_with("time zones are set by tzdata 20"), "{applied}");
    assert!(program.ok(&["migrate"]).starts_with("nothing to do"));
    assert!(program.ok(&["migrate", "--check"]).contains("up to date"));
}

#[test]
fn printing_connects_to_nothing_and_prints_every_migration() {
    let program = Program::new();
    for (url, sign) in [
        ("sqlite:a.db", "create table"),
        ("postgres://nobody@127.0.0.1:1/none", "create or replace function"),
        ("mysql://nobody@127.0.0.1:1/none", "delimiter $$"),
    ] {
        let sql = program.ok(&["migrate", "--print", "--database", url]);
        for part in ["-- V1 zone", "-- V2 bucket", "-- V3 ledger", "-- V4 routines", sign] {
            assert!(sql.to_lowercase().contains(&part.to_lowercase()), "{url} lacks {part}");
        }
    }
    assert!(!program.path("a.db").exists());
    let sql =
        program.ok(&["migrate", "--print", "--test-clock", "--database", "mysql://nobody@127.0.0.1:1/none"]);
    assert!(sql.contains("create table if not exists tallygate_test_clock"), "{sql}");
}

#[test]
fn the_embedded_engine_has_its_clock_from_elsewhere() {
    let program = Program::new();
    program.run(&["migrate", "--test-clock"]).assert_refused("give that a testing::Clock");
    program.run(&["migrate", "--test-clock", "--check"]).assert_refused("--check");
    assert!(!program.path("tallygate.db").exists());
}

#[test]
fn rights_are_refused_where_there_are_none_to_give() {
    let program = Program::new();
    program.run(&["grant", "app", "web"]).assert_refused("SQLite has no rights");
    program
        .run(&["grant", "root", "web"])
        .assert_refused("[possible values: app, caller, auditor, operator, owner]");
    program
        .run(&["grant", "app", "web; drop table zone_txn"])
        .assert_refused("is no name of a user or a role");
    program.run(&["grant", "app"]).assert_refused("<NAME>");
    assert!(!program.path("tallygate.db").exists());
}

#[test]
fn what_has_no_citus_is_not_distributed_and_nothing_is_made() {
    let program = Program::new();
    for arguments in
        [&["migrate", "--distribute", "citus"][..], &["migrate", "--check", "--distribute", "citus"]]
    {
        program.run(arguments).assert_refused("only PostgreSQL has the extension citus");
    }
    assert!(!program.path("tallygate.db").exists());
}

#[test]
fn print_and_check_exclude_each_other() {
    Program::new().run(&["migrate", "--print", "--check"]).assert_refused("--check");
}

#[tokio::test]
async fn a_program_works_on_a_newer_schema_and_says_so_until_a_migration_is_breaking() {
    let program = Program::with_login().env("RUST_LOG", "tallygate=warn");
    let url = format!("sqlite:{}", program.path("tallygate.db").display());
    let apply = async |version: i32, name: &str| {
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("insert into tallygate_schema_history values (?, ?, '2026-01-01T00:00:00Z', '1')")
            .bind(version)
            .bind(name)
            .execute(&mut database)
            .await
            .unwrap();
        database.close().await.unwrap();
    };
    apply(90, "future").await;
    let checked = program.run(&["check", "login", "42"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    assert!(checked.err.contains("newer than this program") && checked.err.contains("90"), "{}", checked.err);
    assert!(program.ok(&["migrate", "--check"]).contains("up to date"));
    assert!(program.ok(&["migrate"]).starts_with("nothing to do"));

    apply(91, "breaking_future").await;
    for arguments in [&["check", "login", "42"][..], &["migrate", "--check"], &["migrate"]] {
        program.run(arguments).assert_ends(4, "since version 91");
    }
}
