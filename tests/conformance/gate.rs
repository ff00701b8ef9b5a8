//! A program and a database that do not fit say so, and what to run.

use std::error::Error;
use std::time::Duration;

use tallygate::Limiter;
use tallygate::schema::{Migrator, Role};
use tokio::time::timeout;

use crate::db::{Db, Engine};
use crate::server;

pub async fn an_unmigrated_database_says_what_to_run(db: Db) {
    let empty = db.create_empty_beside("unmigrated").await;
    // An embedded database is given its schema when it is empty, so this one belongs to somebody.
    if db.engine == Engine::Sqlite {
        std::fs::File::create(empty.url.trim_start_matches("sqlite:")).unwrap();
    }
    empty.execute("create table somebody_elses (id int)").await;
    let error = Limiter::connect(&empty.url).await.err().unwrap();
    assert!(error.is_schema(), "{error}");
    assert!(error.to_string().contains("tallygate migrate"), "{error}");
}

pub async fn a_newer_schema_is_worked_with_unless_one_of_its_migrations_is_breaking(db: Db) {
    let apply = async |version: i32, name: &str| {
        db.execute(&format!(
            "insert into tallygate_schema_history (version, name, applied_on, checksum)
            values ({version}, '{name}', '2026-01-01T00:00:00Z', '1')"
        ))
        .await;
    };
    let migrator = Migrator::new(&db.url).unwrap();
    apply(97, "future").await;
    Limiter::connect(&db.url).await.unwrap();
    assert!(migrator.pending().await.unwrap().is_empty());
    assert!(migrator.apply().await.unwrap().is_empty());
    apply(98, "breaking_future").await;
    apply(99, "far_future").await;
    for error in [
        Limiter::connect(&db.url).await.err().unwrap(),
        migrator.pending().await.unwrap_err(),
        migrator.apply().await.unwrap_err(),
    ] {
        assert!(error.is_schema(), "{error}");
        let says = error.to_string();
        assert!(
            says.contains("version 99") && says.contains("version 98") && says.contains("newer tallygate"),
            "{says}"
        );
    }
}

pub async fn whoever_has_a_role_may_ask_what_is_unapplied(db: Db) {
    let last = db.number("select max(version) from tallygate_schema_history").await;
    let pending = async |role| Migrator::new(&db.url_as(role)).unwrap().pending().await.unwrap().len();
    for expected in [0, 1] {
        for role in [Role::App, Role::Auditor, Role::Operator] {
            assert_eq!(pending(role).await, expected, "{role}");
        }
        db.execute(&format!("delete from tallygate_schema_history where version = {last}")).await;
    }
}

pub async fn an_older_schema_says_what_to_run(db: Db) {
    let last = db.number("select max(version) from tallygate_schema_history").await;
    db.execute(&format!("delete from tallygate_schema_history where version = {last}")).await;
    let error = Limiter::connect(&db.url).await.err().unwrap();
    assert!(error.is_schema() && error.to_string().contains("tallygate migrate"), "{error}");
    assert_eq!(Migrator::new(&db.url).unwrap().pending().await.unwrap().len(), 1);
}

pub async fn a_wrong_password_or_a_server_that_is_down_is_one_clear_line(db: Db) {
    const WRONG: &str = "s3cret";
    let (scheme, rest) = db.url.split_once("://").unwrap();
    let (account, place) = rest.rsplit_once('@').unwrap();
    let (user, password) = account.split_once(':').unwrap();
    let (host, path) = place.split_once('/').unwrap();
    let down = format!("127.0.0.1:{}", server::free_port());
    for (url, place, says, is_transient) in [
        (format!("{scheme}://{user}:{WRONG}@{place}"), host, user, false),
        (format!("{scheme}://{account}@{host}/not_there"), host, "not_there", false),
        (format!("{scheme}://{account}@{down}/{path}"), &down, "refused", true),
        (format!("{scheme}://{user}:{WRONG}@{down}/{path}"), &down, "refused", true),
    ] {
        let migrator = Migrator::new(&url).unwrap();
        let soon = Duration::from_secs(5);
        for error in [
            timeout(soon, Limiter::connect(&url)).await.unwrap().err().unwrap(),
            timeout(soon, migrator.pending()).await.unwrap().unwrap_err(),
            timeout(soon, migrator.apply()).await.unwrap().unwrap_err(),
        ] {
            let line = error.to_string();
            assert!(!line.contains('\n'), "{line}");
            assert!(line.contains(place) && line.contains(says), "{line}");
            assert_eq!(error.is_transient(), is_transient, "{line}");
            assert!(!error.is_schema() && !error.is_invalid(), "{line}");
            let mut link: Option<&dyn Error> = Some(&error);
            while let Some(error) = link {
                let shown = format!("{error} {error:?}");
                for secret in [WRONG, password, &password.replace("%27", "'")] {
                    assert!(!shown.contains(secret), "a password in {shown}");
                }
                link = error.source();
            }
        }
    }
}
