//! `migrate` makes again what the server's own tools leave out of a backup, and the server's own client applies what
//! `migrate --print` prints.

use std::process::Output;

use tallygate::audit::verify::Verify;
use tallygate::schema::{Migration, Migrator, Role};
use tallygate::{Check, Limiter};

use crate::db::{Db, Engine, log};
use crate::documented::{in_container, output};
use crate::program;
use crate::verify::verify;

fn names(migrations: Vec<Migration>) -> Vec<String> {
    migrations.into_iter().map(|migration| migration.name).collect()
}

async fn pending(db: &Db) -> Vec<String> {
    names(Migrator::new(&db.url).unwrap().pending().await.unwrap())
}

async fn apply(db: &Db) -> Vec<String> {
    names(Migrator::new(&db.url).unwrap().apply().await.unwrap())
}

async fn migrate(db: &Db, argument: &str) -> Output {
    program::tallygate(&db.url).args(["migrate", argument]).output().await.unwrap()
}

/// A zone of three, of which one is spent.
async fn spend(db: &Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(3, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
}

/// The next checks are decided by the users of before, as if nothing had happened.
async fn assert_goes_on(db: &Db) {
    assert_eq!(pending(db).await, [""; 0]);
    assert!(migrate(db, "--check").await.status.success());
    let limiter = db.limiter().await;
    for (seq, blocked) in [(2, false), (3, false), (4, true)] {
        let decision = limiter.check(Check::new("login", "42")).await.unwrap();
        assert_eq!((decision.seq, decision.blocked), (Some(seq), blocked));
    }
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

/// A copy of the database, by the tool that people use, with what it does by itself.
async fn restore(db: &Db) -> Db {
    let (name, to) = (db.name(), format!("{}_restored", db.name().trim_end_matches(".db")));
    if db.engine == Engine::Sqlite {
        let to = db.url.trim_start_matches("sqlite:").replace(name, &to);
        db.execute(&format!("vacuum into '{to}'")).await;
        return db.elsewhere(format!("sqlite:{to}"));
    }
    db.execute(&format!("create database {to}")).await;
    let copy = match db.engine {
        Engine::Postgres => {
            let place = "--host=127.0.0.1 --username=postgres";
            format!("pg_dump {place} {name} | psql {place} --quiet --set=ON_ERROR_STOP=1 {to}")
        }
        engine => {
            // A dump with its own ids of transactions is refused by the server that it is of.
            let [dump, client] = match engine {
                Engine::MySql => ["mysqldump --set-gtid-purged=OFF", "mysql"],
                _ => ["mariadb-dump", "mariadb"],
            };
            let place = "--host=127.0.0.1 --user=root";
            format!("{dump} {place} {name} | {client} {place} {to}")
        }
    };
    output(in_container(db).await.args(["bash", "-o", "pipefail", "-c", &copy]), "").await;
    db.elsewhere(db.url.replacen(name, &to, 1))
}

pub async fn a_restored_dump_goes_on_where_it_was(db: Db) {
    spend(&db).await;
    let restored = restore(&db).await;
    let lost = pending(&restored).await;
    if db.engine.is_mysql() {
        assert_eq!(lost, ["routines"]);
        let error = Limiter::connect(&restored.url).await.err().unwrap();
        assert!(error.is_schema() && error.to_string().contains("tallygate migrate"), "{error}");
        let check = migrate(&restored, "--check").await;
        let says = String::from_utf8(check.stdout).unwrap();
        assert!(check.status.code() == Some(4) && says.contains("V4 routines"), "{says}");
    } else {
        assert_eq!(lost, [""; 0]);
    }
    assert_eq!(apply(&restored).await, lost);
    assert_goes_on(&restored).await;
    if db.engine == Engine::Postgres {
        db.execute(&format!("drop database {} with (force)", restored.name())).await;
    }
}

pub async fn a_schema_with_another_name_goes_on(db: Db) {
    spend(&db).await;
    db.execute(&format!("alter schema {} rename to moved", db.schema())).await;
    let moved = db.elsewhere(db.url.replace(&format!("={}", db.schema()), "=moved"));
    assert_eq!(pending(&moved).await, ["routines"]);
    assert_eq!(apply(&moved).await, ["routines"]);
    assert_goes_on(&moved).await;
}

pub async fn what_is_gone_or_another_is_named_and_made_again(db: Db) {
    spend(&db).await;
    let (routine, other) = match db.engine {
        Engine::Postgres => ("function", "comment on function zone_find is 'another'"),
        _ => ("procedure", "alter procedure zone_find comment 'another'"),
    };
    let gone = [format!("drop {routine} zone_charges"), "drop view zone_bucket_lock_view".to_owned()];
    for (change, named) in [(&*gone[0], "routines"), (other, "routines"), (&*gone[1], "views")] {
        db.execute(change).await;
        assert_eq!(pending(&db).await, [named], "{change}");
        let check = migrate(&db, "--check").await;
        let says = String::from_utf8(check.stdout).unwrap();
        assert!(check.status.code() == Some(4) && says.contains(named), "{change}: {says}");
        assert_eq!(apply(&db).await, [named], "{change}");
    }
    assert_goes_on(&db).await;
    let mut app = db.connect_as(Role::App).await;
    let call =
        if db.engine == Engine::Postgres { "select zone_charges(null)" } else { "call zone_charges(null)" };
    app.execute(call).await.unwrap();

    let all = if db.engine == Engine::Postgres { " cascade" } else { "" };
    db.execute(&format!("drop table zone_removal{all}")).await;
    let migrator = Migrator::new(&db.url).unwrap();
    for error in [migrator.pending().await.unwrap_err(), migrator.apply().await.unwrap_err()] {
        assert!(error.is_schema() && error.to_string().contains("the table zone_removal is gone"), "{error}");
    }
}

pub async fn the_printed_sql_is_applied_by_the_servers_own_client(db: Db) {
    let empty = db.create_empty_beside("printed").await;
    let printed = String::from_utf8(migrate(&empty, "--print").await.stdout).unwrap();
    if db.engine == Engine::Sqlite {
        std::fs::File::create(empty.url.trim_start_matches("sqlite:")).unwrap();
        empty.execute(printed.strip_prefix(".bail on\n").unwrap()).await;
    } else {
        let (name, schema) = (empty.name(), empty.schema());
        let client = match db.engine {
            Engine::Postgres => {
                let place =
                    format!("host=127.0.0.1 user=postgres dbname={name} options=-csearch_path={schema}");
                vec!["psql".to_owned(), place, "--file=-".to_owned()]
            }
            engine => {
                let client = if engine == Engine::MySql { "mysql" } else { "mariadb" };
                [client, "--host=127.0.0.1", "--user=root", name].map(str::to_owned).to_vec()
            }
        };
        output(in_container(&db).await.args(&client), &printed).await;
    }
    assert_eq!(pending(&empty).await, [""; 0]);
    assert!(migrate(&empty, "--check").await.status.success());
    empty.migrate().await;
    spend(&empty).await;
    assert_goes_on(&empty).await;
}
