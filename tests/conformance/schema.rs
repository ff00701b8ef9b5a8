//! Migrating: once, however many start at once.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::Limiter;
use tallygate::schema::Migrator;
use tokio::time::{sleep, timeout};

use crate::db::{Db, Engine};
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
        Limiter::connect(&empty.url).await.unwrap();
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
            "select obj_description('check_velocity(int, text)'::regprocedure, 'pg_proc')",
        ),
        _ => (
            "select count(*) from information_schema.routines
            where routine_schema = database() and routine_comment = ''",
            "select cast(routine_comment as char) from information_schema.routines
            where routine_schema = database() and routine_name = 'check_velocity'",
        ),
    };
    assert_eq!(db.number(mute).await, 0, "routines without a comment");
    let mut connection = db.connect().await;
    assert_eq!(connection.texts(velocity).await, ["may one more transaction of this bucket pass?"]);
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
        assert_eq!(db.number("select count(*) from tallygate_schema_lock").await, 0);
    }
    lock("'elsewhere:3306'", 0).await;
    let late = migrator();
    let waiting = tokio::spawn(async move { late.apply().await });
    sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "it works beside another one");
    db.execute("delete from tallygate_schema_lock").await;
    assert_eq!(timeout(soon, waiting).await.unwrap().unwrap().unwrap(), []);
}

pub async fn what_cannot_be_distributed_says_what_it_lacks(db: Db) {
    let migrator = Migrator::new(&db.url).unwrap();
    for refused in [migrator.undistributed().await.unwrap_err(), migrator.distribute().await.unwrap_err()] {
        assert!(refused.is_invalid() && refused.to_string().contains("create extension citus"), "{refused}");
    }
}
