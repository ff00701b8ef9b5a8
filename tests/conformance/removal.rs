//! A zone can be removed as long as nothing names it.

use std::time::Duration;

use tallygate::schema::Role;
use tallygate::{Check, Limiter};
use tokio::task::JoinHandle;

use crate::db::{Connected, Db, Engine, connected, log};

pub async fn a_zone_that_was_never_used_is_removed_and_its_number_is_not_given_again(db: Db) {
    let (limiter, owner) = (db.limiter().await, owner(&db).await);
    limiter.operator().set_zone("kept", &log(5, 60), None, "test").await.unwrap();
    let mistake = limiter.operator().set_zone("lgoin", &log(5, 60), None, "test").await.unwrap();
    limiter.operator().set_zone("lgoin", &calendar(), None, "test").await.unwrap();
    owner.owner().remove_zone("lgoin").await.unwrap();
    assert_eq!(owner.operator().zone("lgoin").await.unwrap(), None);
    for table in ["zone_version", "zone_calendar"] {
        assert_eq!(
            db.number(&format!("select count(*) from {table} where zone_id = {}", mistake.id)).await,
            0
        );
    }
    let again = limiter.operator().set_zone("lgoin", &log(5, 60), None, "test").await.unwrap();
    assert!(again.id > mistake.id && again.version == 1, "{again:?} after {mistake:?}");
    let unknown = owner.owner().remove_zone("nowhere").await.unwrap_err();
    assert!(unknown.is_unknown_zone() && unknown.to_string().contains("\"nowhere\""), "{unknown}");
    db.assert_ledger_is_whole().await;
}

pub async fn a_zone_that_anything_names_stays(db: Db) {
    let (limiter, owner) = (db.limiter().await, owner(&db).await);
    limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    let stays = async |because: &str| {
        let refused = owner.owner().remove_zone("login").await.unwrap_err();
        assert!(refused.is_invalid() && refused.to_string().contains("--mode off"), "{because}: {refused}");
        assert_eq!(owner.operator().zones().await.unwrap().len(), 1);
    };
    limiter.check(Check::new("login", "42")).await.unwrap();
    stays("a row of the ledger and a bucket").await;
    db.execute("create table kept as select * from zone_bucket_lock").await;
    db.execute("delete from zone_bucket_lock").await;
    stays("a row of the ledger").await;
    let dropped =
        "zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash";
    db.execute(&format!("insert into zone_txn_dropped ({dropped}) select {dropped} from zone_txn")).await;
    db.execute("delete from zone_txn").await;
    stays("what is left of a row that was dropped").await;
    db.execute("delete from zone_txn_dropped").await;
    db.execute("insert into zone_bucket_lock select * from kept").await;
    stays("a bucket").await;
    db.execute("delete from zone_bucket_lock").await;
    let at = if db.engine == Engine::Sqlite { "1" } else { "current_timestamp" };
    db.execute(&format!(
        "insert into zone_removal (zone_id, seq, kind, removed_at, bucket_key, buckets, ledger_rows, actor, note, row_hash)
        select v.zone_id, 1, 'erase', {at}, 'erased:1', 1, 1, 'test', 'asked', v.row_hash
        from zone_version v
        where v.zone_id = 1"
    ))
    .await;
    stays("an erasure").await;
    db.execute("delete from zone_removal").await;
    // Upkeep noted that it removed a bucket, which was never used.
    db.execute(&format!("insert into zone_bucket_removed (zone_id, removed_at) values (1, {at})")).await;
    owner.owner().remove_zone("login").await.unwrap();
    assert_eq!(db.number("select count(*) from zone_bucket_removed").await, 0);
}

/// Each process remembers the number of a zone by its name.
pub async fn who_knew_a_zone_that_was_removed_is_told_and_finds_the_new_one(db: Db) {
    let (limiter, owner) = (db.limiter().await, owner(&db).await);
    for name in ["login", "other"] {
        limiter.operator().set_zone(name, &log(5, 60), None, "test").await.unwrap();
    }
    let one = || Check::new("login", "42");
    let two = || vec![Check::new("other", "42"), one()];
    let all = async |expected: &str| {
        let mut caller = db.connect_as(Role::App).await;
        caller.begin().await;
        let joined = limiter.check_in(caller.joined(), one()).await.map(drop);
        caller.execute("rollback").await.unwrap();
        let told = [
            limiter.check(one()).await.map(drop),
            limiter.peek("login", "42").await.map(drop),
            limiter.check_many(two()).await.map(drop),
            limiter.check_all(two()).await.map(drop),
            limiter.operator().ban("login", "42", Duration::from_secs(60), "n", "b").await.map(drop),
            joined,
        ];
        for told in told {
            let error = told.unwrap_err();
            assert!(error.is_unknown_zone() && error.to_string().contains(expected), "{error}");
        }
    };
    for _ in 0..2 {
        assert!(limiter.peek("login", "42").await.unwrap().is_allowed());
        owner.owner().remove_zone("login").await.unwrap();
        all("there is no zone").await;
        limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
    }
    assert_eq!(limiter.check(one()).await.unwrap().remaining, 4);
    assert_eq!(limiter.check_many(two()).await.unwrap()[1].remaining, 3);
    assert_eq!(limiter.check_all(two()).await.unwrap().decisions[1].remaining, 2);

    // Known by a number that is gone, of a name that is there: it is learned by asking again.
    limiter.operator().set_zone("fresh", &log(5, 60), None, "test").await.unwrap();
    limiter.peek("fresh", "42").await.unwrap();
    owner.owner().remove_zone("fresh").await.unwrap();
    limiter.operator().set_zone("fresh", &log(5, 60), None, "test").await.unwrap();
    let stale = limiter.check(Check::new("fresh", "42")).await.unwrap_err();
    assert!(stale.is_transient(), "{stale}");
    assert_eq!(limiter.check(Check::new("fresh", "42")).await.unwrap().remaining, 4);
    db.assert_ledger_is_whole().await;
}

pub async fn a_check_that_came_before_keeps_its_zone(db: Db) {
    let (limiter, owner) = (db.limiter().await, owner(&db).await);
    for (zone, end) in [("kept", "commit"), ("removed", "rollback")] {
        limiter.operator().set_zone(zone, &log(5, 60), None, "test").await.unwrap();
        let mut caller = db.connect_as(Role::App).await;
        caller.begin().await;
        limiter.check_in(caller.joined(), Check::new(zone, "42")).await.unwrap();
        let removal = removal(&owner, zone);
        if db.engine != Engine::Sqlite {
            until_waiting(&db, 1).await;
        }
        caller.execute(end).await.unwrap();
        let removed = removal.await.unwrap();
        assert_eq!(removed.is_ok(), zone == "removed", "{removed:?}");
        assert_eq!(owner.operator().zone(zone).await.unwrap().is_some(), zone == "kept");
    }
    db.assert_ledger_is_whole().await;
}

/// None of them leaves a row of a zone that is not there.
pub async fn a_check_that_comes_meanwhile_finds_no_zone(db: Db) {
    let (limiter, owner) = (db.limiter().await, owner(&db).await);
    limiter.operator().set_zone("other", &log(5, 60), None, "test").await.unwrap();
    limiter.check(Check::new("other", "42")).await.unwrap();
    let old = if db.engine == Engine::Postgres { "repeatable read" } else { "serializable" };
    for how in
        ["alone", "many", "all", "ban", "joined", "joined with a snapshot", "joined with a stricter one"]
    {
        // Over nodes no row of the zone is locked against this: see docs/locks.md.
        if db.is_spread && how.starts_with("joined with") {
            continue;
        }
        let zone = limiter.operator().set_zone("login", &log(5, 60), None, "test").await.unwrap();
        // A process that knew the one before finds this one at the second try.
        while limiter.peek("login", "42").await.is_err() {}
        let mut caller = db.connect_as(Role::App).await;
        match how {
            "joined with a stricter one" if db.engine == Engine::Postgres => {
                caller.execute("begin isolation level serializable").await.unwrap();
            }
            "joined with a snapshot" if db.engine == Engine::Postgres => {
                caller.execute(&format!("begin isolation level {old}")).await.unwrap();
            }
            "joined with a snapshot" => {
                caller.execute("start transaction with consistent snapshot").await.unwrap();
            }
            "joined with a stricter one" => continue,
            _ => caller.begin().await,
        }
        // The snapshot of the caller is from before.
        limiter.check_in(caller.joined(), Check::new("other", "42").cost(0)).await.unwrap();
        // The removal waits for a version that somebody holds, with all its locks.
        let mut holder = db.connect().await;
        holder.begin().await;
        holder
            .number(&format!("select version from zone_version where zone_id = {} for update", zone.id))
            .await;
        let removal = removal(&owner, "login");
        until_waiting(&db, 1).await;
        let (limiter, named) = (limiter.clone(), how);
        let check: JoinHandle<tallygate::Result<()>> = tokio::spawn(async move {
            let one = Check::new("login", "42");
            let two = vec![one.clone(), Check::new("other", "43")];
            match named {
                "alone" => limiter.check(one).await.map(drop),
                "many" => limiter.check_many(two).await.map(drop),
                "all" => limiter.check_all(two).await.map(drop),
                "ban" => {
                    limiter.operator().ban("login", "42", Duration::from_secs(60), "n", "b").await.map(drop)
                }
                _ => {
                    let result = limiter.check_in(caller.joined(), one).await.map(drop);
                    caller.execute("commit").await.ok();
                    result
                }
            }
        });
        until_waiting(&db, 2).await;
        holder.execute("rollback").await.unwrap();
        removal.await.unwrap().unwrap_or_else(|error| panic!("{how}: {error}"));
        let refused = check.await.unwrap().unwrap_err();
        assert!(refused.is_unknown_zone() || how.starts_with("joined"), "{how}: {refused}");
        for table in ["zone_txn", "zone_bucket_lock"] {
            let left = format!("select count(*) from {table} where zone_id = {}", zone.id);
            assert_eq!(db.number(&left).await, 0, "{how} leaves a row in {table}");
        }
    }
    db.assert_ledger_is_whole().await;
}

async fn owner(db: &Db) -> Limiter {
    connected(&db.url).await
}

fn calendar() -> tallygate::Policy {
    tallygate::Policy::calendar(5, tallygate::policy::CalendarUnit::Day, "Europe/Berlin".parse().unwrap())
        .unwrap()
}

fn removal(owner: &Limiter, zone: &'static str) -> JoinHandle<tallygate::Result<()>> {
    let owner = owner.clone();
    tokio::spawn(async move { owner.owner().remove_zone(zone).await })
}

/// Until so many sessions of this database wait for locks.
async fn until_waiting(db: &Db, sessions: i64) {
    let mut observer: Connected = db.connect().await;
    while db.waiting(&mut observer).await < sessions {
        // MySQL looks again only when nobody has asked for a tenth of a second.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}
