//! A release after this one: its migrations, its routines, and programs of both beside each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::policy::{BanRule, Override};
use tallygate::schema::{Migrator, Role};
use tallygate::{Charged, Check, Config, Decision, Limiter, Policy, Reason};
use tokio::sync::watch;

use crate::child::{Calls, Child, Work};
use crate::db::{Db, Engine, Told, bucket, log, told};
use crate::verify::verify;

/// The mark of the next release in its routines.
const MARK: &str = "-- the next release\n";

/// The migrator of the next release: a column more, and other texts of routines that programs call and of their parts.
pub fn next(engine: Engine, url: &str) -> Migrator {
    let routines =
        &["zone_decide", "zone_check", "zone_engine_append_one", "zone_find", "zone_operator_append"][..];
    let (database, head, routines) = match engine {
        Engine::Postgres => ("postgres", "as $$\n", routines),
        Engine::Sqlite => ("sqlite", "", &[][..]),
        _ => ("mysql", "sql security definer\nbegin\n", routines),
    };
    let migrator = Migrator::new(url).unwrap();
    let number = migrator.migrations().len() + 1;
    let column = "alter table zone_master add column region text";
    let mut migration = if engine.is_mysql() {
        // A column that is there already, since the run before was cut off behind it, is an error there.
        format!(
            "set @add = (
                select if(count(*) = 0, '{column}', 'do 0') from information_schema.columns
                where table_schema = database() and table_name = 'zone_master' and column_name = 'region'
            );
            prepare add_column from @add;
            execute add_column;
            deallocate prepare add_column;\n"
        )
    } else {
        format!("{column};\n")
    };
    let mut texts = Vec::new();
    for routine in routines {
        let path = format!("sql/{database}/{routine}.sql");
        let text = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(text.contains(head), "{path}");
        migration += &format!("-- install {path}\n");
        texts.push((path, text.replacen(head, &format!("{head}{MARK}"), 1)));
    }
    migrator.with_release((format!("migrations/{database}/V{number}__next.sql"), migration), texts)
}

/// The number of routines that are those of the next release.
pub async fn routines_of_next(db: &Db) -> i64 {
    let mark = MARK.trim_end();
    match db.engine {
        Engine::Postgres => {
            db.number(&format!(
                "select count(*) from pg_proc
                where pronamespace = current_schema()::regnamespace and prosrc like '%{mark}%'"
            ))
            .await
        }
        Engine::Sqlite => 0,
        _ => {
            db.number(&format!(
                "select count(*) from information_schema.routines
                where routine_schema = database() and routine_definition like '%{mark}%'"
            ))
            .await
        }
    }
}

pub async fn a_database_with_data_is_upgraded_and_keeps_its_data_and_its_rights(db: Db) {
    let limiter = db.limiter().await;
    let hour = Duration::from_secs(3600);
    let tries = log(2, 3600).with_ban(Some(BanRule::new(3, hour, hour)));
    limiter.operator().set_zone("login", &tries, Some("logins"), "test").await.unwrap();
    limiter.operator().set_zone("api", &bucket(1, 315_576_000, 10), None, "test").await.unwrap();
    limiter.operator().set_zone("cards", &Policy::distinct(2, hour).unwrap(), None, "test").await.unwrap();
    for _ in 0..6 {
        limiter.check(Check::new("login", "42")).await.unwrap();
    }
    let spent = limiter.check(Check::new("api", "a").cost(7)).await.unwrap();
    limiter.reserve(Check::new("api", "b").cost(3), hour).await.unwrap();
    limiter.refund(Charged::by(spent.txn_id)).await.unwrap();
    limiter
        .check_many(["x", "y", "z"].map(|card| Check::new("cards", "ip").member(card)).to_vec())
        .await
        .unwrap();
    limiter.operator().ban("api", "c", hour, "why", "who").await.unwrap();
    let over = Override { limit: None, ban_exempt: true, for_us: None };
    limiter.operator().set_override("login", "9", over, "why", "who").await.unwrap();
    limiter.operator().set_zone("login", &log(3, 3600), None, "test").await.unwrap();
    let rows = async || {
        limiter.auditor().history(&History { limit: 1000, ..History::default() }).await.unwrap().rows
    };
    let before = rows().await;
    assert!(before.len() > 12, "{}", before.len());

    let applied = next(db.engine, &db.url).apply().await.unwrap();
    assert_eq!(applied.len(), 1);
    let expected = if db.engine == Engine::Sqlite { 0 } else { 5 };
    assert_eq!(routines_of_next(&db).await, expected);
    assert!(next(db.engine, &db.url).apply().await.unwrap().is_empty());
    assert_eq!(db.number("select count(*) from zone_master where region is null").await, 3);

    // Programs of this release that run, and those that start now, as the users that were given their roles before.
    assert_eq!(rows().await, before);
    let started = db.limiter().await;
    for limiter in [&limiter, &started] {
        assert_eq!(limiter.check(Check::new("login", "42")).await.unwrap().reason, Reason::Banned);
        let again = limiter.check(Check::new("api", "a").cost(7).txn(spent.txn_id)).await.unwrap();
        assert!(again.replayed && again.seq == spent.seq, "{again:?}");
        assert!(limiter.check(Check::new("api", "b").cost(8)).await.unwrap().blocked, "3 of 10 are reserved");
        assert!(limiter.check(Check::new("cards", "ip").member("z")).await.unwrap().blocked);
        limiter.check_many(vec![Check::new("login", "1"), Check::new("api", "1")]).await.unwrap();
        limiter.operator().unban("api", "c", "why", "who").await.unwrap();
        limiter.operator().ban("api", "c", hour, "why", "who").await.unwrap();
        limiter.operator().set_zone("new", &log(1, 60), None, "test").await.unwrap();
    }
    db.assert_ledger_is_whole().await;
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{verified:?} {faults:?}");
}

/// The answers to each client, while the schema is upgraded under all of them.
pub async fn old_and_new_programs_check_side_by_side_while_it_is_upgraded(db: Db) {
    const LIMIT: i64 = 300;
    const BESIDE: usize = 40;
    let config = Config { attempts: 1_000, connections: 8, ..db.config() };
    let old = db.limiter_with(config).await;
    old.operator().set_zone("hot", &log(LIMIT, 3600), None, "test").await.unwrap();
    let work = Work::Calls(Calls {
        url: db.url_as(Role::App),
        zone: "hot".to_owned(),
        keys: vec!["hot".to_owned()],
        serializable: false,
        clients: 4,
        calls: 50,
    });
    let mut process = Child::start(&work).await;
    let upgraded = Arc::new(AtomicBool::new(false));
    let (counter, mut count) = watch::channel(0);
    let client = |limiter: Limiter, n: usize| {
        let (upgraded, counter) = (Arc::clone(&upgraded), counter.clone());
        tokio::spawn(async move {
            let mut answers: Vec<Decision> = Vec::new();
            let mut left = BESIDE;
            while left > 0 {
                // Once it is upgraded, so many more.
                left -= usize::from(upgraded.load(Ordering::SeqCst));
                let wide = || Check::new("hot", format!("wide:{n}")).cost(1);
                answers.push(limiter.check(Check::new("hot", "hot")).await.unwrap());
                answers.extend(limiter.check_many(vec![wide(), wide()]).await.unwrap());
                counter.send_modify(|count| *count += 1);
            }
            answers
        })
    };
    let mut clients: Vec<_> = (0..8).map(|n| client(Limiter::clone(&old), n)).collect();
    process.go().await;
    count.wait_for(|&count| count >= 16).await.unwrap();
    let seen = *count.borrow();
    next(db.engine, &db.url).apply().await.unwrap();
    // This release's program, started anew, and one of the next release: they differ in nothing that matters here.
    let new = db.limiter_with(config).await;
    clients.extend((8..16).map(|n| client(Limiter::clone(&new), n)));
    upgraded.store(true, Ordering::SeqCst);
    let mut answers: Vec<Told> = Vec::new();
    for client in join_all(clients).await {
        answers.extend(client.unwrap().iter().map(told));
    }
    assert!(*count.borrow() > seen + 16 * BESIDE / 2, "they checked before, meanwhile and afterwards");
    answers.extend(process.answers().await);
    let allowed = answers.iter().filter(|told| told["key"] == "hot" && told["blocked"] == false).count();
    assert_eq!(allowed as i64, LIMIT);
    assert_eq!(db.rows().await as usize, answers.len(), "a row for each answer, and none besides");
    db.assert_ledger_says("hot", &answers).await;
    db.assert_first_come(LIMIT).await;
    db.assert_ledger_is_whole().await;
}

/// A program of this release that migrates, beside one of the next that has.
pub async fn an_older_migrator_leaves_a_newer_schema_as_it_is(db: Db) {
    next(db.engine, &db.url).apply().await.unwrap();
    let (routines, older) = (routines_of_next(&db).await, Migrator::new(&db.url).unwrap());
    assert!(older.pending().await.unwrap().is_empty());
    assert!(older.apply().await.unwrap().is_empty());
    assert_eq!(routines_of_next(&db).await, routines);
}
