//! A program and a database that do not fit say so, and what to run.

use std::error::Error;
use std::time::Duration;

use tallygate::{Limiter, Migrator};
use tokio::time::timeout;

use crate::db::{Db, Engine};
use crate::server;

pub async fn an_unmigrated_database_says_what_to_run(db: Db) {
    let empty = Db::create_empty(db.engine, "unmigrated").await;
    // An embedded database is given its schema when it is empty, so this one belongs to somebody.
    if db.engine == Engine::Sqlite {
        std::fs::File::create(empty.url.trim_start_matches("sqlite:")).unwrap();
    }
    empty.execute("create table somebody_elses (id int)").await;
    let error = Limiter::connect(&empty.url).await.err().unwrap();
    assert!(error.is_schema(), "{error}");
    assert!(error.to_string().contains("tallygate migrate"), "{error}");
}

pub async fn a_newer_schema_says_that_the_program_is_old(db: Db) {
    let applied = "'2026-01-01T00:00:00Z', '1'";
    db.execute(&format!(
        "insert into tallygate_schema_history (version, name, applied_on, checksum) values (99, 'future', {applied})"
    ))
    .await;
    for error in [
        Limiter::connect(&db.url).await.err().unwrap(),
        Migrator::new(&db.url).unwrap().pending().await.unwrap_err(),
    ] {
        assert!(error.is_schema(), "{error}");
        assert!(
            error.to_string().contains("version 99") && error.to_string().contains("newer tallygate"),
            "{error}"
        );
    }
    let error = Migrator::new(&db.url).unwrap().apply().await.unwrap_err();
    assert!(error.is_schema(), "{error}");
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
