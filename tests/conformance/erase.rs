//! Erasure: nothing of a person is left, and everything that was decided is still proven.

use std::time::Duration;

use tallygate::audit::verify::Verify;
use tallygate::policy::Override;
use tallygate::schema::Upkeep;
use tallygate::{Check, Policy};

use crate::chain::assert_chained;
use crate::db::{Connected, Db, Engine, connected, log};
use crate::verify::verify;

const HOUR: Duration = Duration::from_secs(3600);

/// Every column of every table as hexadecimals, where it has texts or bytes.
async fn everything(db: &Db, connection: &mut Connected) -> Vec<String> {
    let columns = match db.engine {
        Engine::Postgres => {
            "select format('select encode(convert_to(%1$I::text, ''UTF8''), ''hex'') from %2$I where %1$I is not null',
                a.attname, c.relname)
            from pg_class c join pg_attribute a on a.attrelid = c.oid
            where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r' and a.attnum > 0"
        }
        Engine::Sqlite => {
            "select 'select hex(' || c.name || ') from ' || t.name || ' where ' || c.name || ' is not null'
            from sqlite_schema t join pragma_table_info(t.name) c where t.type = 'table'"
        }
        _ => {
            "select cast(concat('select hex(`', c.column_name, '`) from `', c.table_name, '` where `', c.column_name,
                '` is not null') as char)
            from information_schema.columns c join information_schema.tables t
                on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE'
            where c.table_schema = database() and c.data_type regexp 'char|text|binary|blob|json'"
        }
    };
    let mut all = Vec::new();
    for column in connection.texts(columns).await {
        all.extend(connection.texts(&column).await.into_iter().map(|cell| cell.to_lowercase()));
    }
    all
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A bucket with all that knows its key: charges, refunds, open reservations, members, a ban, an override, notes, authors.
pub async fn nothing_of_the_person_is_left_and_every_row_is_still_proven(db: Db) {
    const KEY: &str = "secret-key ä%_";
    const TEXTS: [&str; 5] = [KEY, "secret-member", "secret-note ö", "secret-actor", "secret-note 2"];
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(9, 3600), None, "test").await.unwrap();
    limiter.operator().set_zone("cards", &Policy::distinct(3, HOUR).unwrap(), None, "test").await.unwrap();
    let mut txns = Vec::new();
    for key in [KEY, "other"] {
        let first = limiter.check(Check::new("login", key)).await.unwrap().txn_id;
        limiter.refund(first).await.unwrap();
        limiter.reserve(Check::new("login", key).cost(2), HOUR).await.unwrap();
        limiter.operator().ban("login", key, HOUR, "secret-note ö", "secret-actor").await.unwrap();
        limiter.operator().unban("login", key, "secret-note 2", "secret-actor").await.unwrap();
        let over = Override { limit: None, ban_exempt: true, for_us: None };
        limiter.operator().set_override("login", key, over, "secret-note ö", "secret-actor").await.unwrap();
        for member in ["secret-member", "another", "secret-member"] {
            let check = Check::new("cards", key).member(member);
            txns.push(limiter.check(check).await.unwrap().txn_id);
        }
        txns.push(limiter.check(Check::new("login", key)).await.unwrap().txn_id);
    }
    let mut connection = db.connect().await;
    for text in TEXTS {
        let cells = everything(&db, &mut connection).await;
        assert!(cells.iter().any(|cell| cell.contains(&hex(text))), "{text} is not even there");
    }
    // As they are found among the cells, where PostgreSQL shows bytes as a text.
    let salts = connection
        .texts(match db.engine {
            Engine::Postgres => {
                "select encode(convert_to(salt::text, 'UTF8'), 'hex') from zone_txn where salt is not null"
            }
            _ => "select lower(hex(salt)) from zone_txn where salt is not null",
        })
        .await;
    assert!(salts.len() == 4 && everything(&db, &mut connection).await.contains(&salts[0]));
    let (rows, _) = assert_chained(db.engine, &mut connection).await;

    let checkpoint = limiter.auditor().checkpoint(Duration::ZERO, None, |_| ()).await.unwrap();
    assert_eq!(checkpoint.rows, rows as u64);

    let owner = connected(&db.url).await;
    let mut erased = Vec::new();
    for zone in ["login", "cards"] {
        erased.push(owner.owner().erase(zone, KEY, "request 117", "privacy").await.unwrap());
        assert_eq!(limiter.peek(zone, KEY).await.unwrap().remaining, if zone == "login" { 9 } else { 3 });
    }
    assert_eq!([erased[0].rows, erased[1].rows], [7, 3]);
    let cells = everything(&db, &mut connection).await;
    assert!(!cells.iter().any(|cell| cell.contains(&hex(KEY))), "the key is left");
    assert!(cells.iter().any(|cell| cell.contains(&hex("secret-actor"))), "another bucket was touched");
    assert_eq!(connection.number("select count(*) from zone_txn where bucket_key = 'other'").await, 10);
    erased.extend(owner.owner().erase_everywhere("other", "request 118", "privacy").await.unwrap());
    let none = owner.owner().erase_everywhere("other", "request 118", "privacy").await.unwrap_err();
    assert!(none.is_invalid() && none.to_string().contains("no bucket \"other\" in any zone"), "{none}");
    let cells = everything(&db, &mut connection).await;
    for text in TEXTS {
        assert!(!cells.iter().any(|cell| cell.contains(&hex(text))), "{text} is left");
    }
    for salt in salts {
        assert!(!cells.contains(&salt), "a salt is left");
    }
    for table in ["zone_bucket_lock", "zone_hold"] {
        assert_eq!(connection.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }

    assert_eq!(assert_chained(db.engine, &mut connection).await.0, rows);
    assert_eq!(limiter.auditor().compare(&checkpoint, None, |_| ()).await.unwrap().differences, []);
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!((faults, verified.rows), (Vec::new(), rows as u64));
    for txn in txns {
        let explained = limiter.auditor().explain(txn, 10).await.unwrap();
        for row in &explained.rows {
            assert!(row.row.key.starts_with("erased:"));
            assert_eq!(row.reproduced, Some(true));
        }
    }
    let kept = "select count(*) from zone_removal where actor = 'privacy' and note like 'request 11%'";
    assert_eq!(connection.number(kept).await, 4);
}

/// Upkeep and the next erasure need not wait for the server to notice that a connection is gone.
pub async fn who_comes_next_may_begin_at_once(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let owner = connected(&db.url).await;
    let mut session = db.connect().await;
    let free = match db.engine {
        Engine::Postgres => {
            "select count(*) from (select u.id from zone_upkeep_lock u for update skip locked) u"
        }
        _ => "select count(*) from zone_upkeep_lock u for update skip locked",
    };
    for n in 0..30 {
        let key = format!("user:{n}");
        limiter.check(Check::new("login", &key)).await.unwrap();
        owner.owner().erase("login", &key, "request 117", "privacy").await.unwrap();
        assert_eq!(session.number(free).await, 1, "after {n} others");
    }
}

pub async fn an_erased_bucket_is_closed_and_its_key_begins_anew(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let owner = connected(&db.url).await;
    let error = owner.owner().erase("login", "42", "n", "b").await.unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("no bucket \"42\""), "{error}");
    let spent = limiter.check(Check::new("login", "42").cost(2)).await.unwrap().txn_id;
    let erased = owner.owner().erase("login", "42", "n", "b").await.unwrap();
    let error = owner.owner().erase("login", "42", "n", "b").await.unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("no bucket \"42\""), "{error}");

    let refused = [
        limiter.check(Check::new("login", &erased.key)).await.map(drop).unwrap_err(),
        limiter.refund(spent).await.map(drop).unwrap_err(),
        limiter.operator().ban("login", &erased.key, HOUR, "n", "b").await.map(drop).unwrap_err(),
        owner.owner().erase("login", &erased.key, "n", "b").await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert!(
            error.is_invalid() && error.to_string().contains("stands for keys that were erased"),
            "{error}"
        );
    }
    let key = &erased.key;
    let mut caller = db.connect_as(tallygate::schema::Role::Caller).await;
    let calls = match db.engine {
        Engine::Postgres => {
            vec![format!("select zone_check(1, '{key}')"), format!("select check_velocity(1, '{key}')")]
        }
        Engine::Sqlite => vec![],
        _ => vec![
            format!("call zone_check(1, '{key}', null, 1, 0, null)"),
            format!("call check_velocity(1, '{key}')"),
        ],
    };
    for call in calls {
        let error = caller.execute(&call).await.unwrap_err().to_string();
        assert!(error.contains("stands for keys that were erased"), "{call}: {error}");
    }
    let mut connection = db.connect().await;
    assert_eq!(connection.number("select count(*) from zone_txn").await, 1, "something was written");

    let anew = limiter.check(Check::new("login", "42")).await.unwrap();
    assert_eq!((anew.seq, anew.remaining), (Some(1), 1));
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert_eq!(faults, []);
    // Each time it has another salt, so one cannot see that it is the same.
    let again = owner.owner().erase("login", "42", "n", "b").await.unwrap();
    assert_ne!(again.key, erased.key);
    assert_chained(db.engine, &mut connection).await;
}

/// A bucket whose row was removed, and one of whose rows only the last is remembered.
pub async fn what_maintain_left_of_a_bucket_is_erased_with_it(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(9, 1), None, "test").await.unwrap();
    for _ in 0..3 {
        limiter.check(Check::new("login", "secret")).await.unwrap();
    }
    let mut connection = db.connect().await;
    // As a run leaves it that was cut off between what it notes and what it removes.
    connection
        .execute(
            "insert into zone_txn_dropped (zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version,
                salt, row_hash)
            select t.zone_id, t.bucket_key, t.seq, t.spent_total, t.level, t.strikes, t.created_at, t.zone_version, f.salt,
                t.row_hash
            from zone_txn t join zone_txn f on f.bucket_key = t.bucket_key and f.seq = 1 where t.seq = 2",
        )
        .await
        .unwrap();
    connection.execute("delete from zone_bucket_lock").await.unwrap();
    crate::maintain::note_removed_heads(&db).await;
    connection.execute("delete from zone_txn where seq <= 2").await.unwrap();
    let owner = connected(&db.url).await;
    let erased = owner.owner().erase("login", "secret", "n", "b").await.unwrap();
    assert_eq!(erased.rows, 1);
    let cells = everything(&db, &mut connection).await;
    assert!(!cells.iter().any(|cell| cell.contains(&hex("secret"))));
    assert_eq!(connection.number("select count(*) from zone_txn_dropped where salt is null").await, 1);
    assert_chained(db.engine, &mut connection).await;
    // And upkeep goes on with what is left.
    owner
        .owner()
        .maintain(Upkeep { keep: Some(24 * HOUR), idle: Some(HOUR), ..Upkeep::default() })
        .await
        .unwrap();
    assert_chained(db.engine, &mut connection).await;
}
