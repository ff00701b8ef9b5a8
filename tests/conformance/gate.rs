//! A program and a database that do not fit say so, and what to run.

use tallygate::{Limiter, Migrator};

use crate::db::{Db, Engine};

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
