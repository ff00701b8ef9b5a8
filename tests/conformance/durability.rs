//! The wait of an answer for the disk is each zone's own.

use tallygate::policy::{BlockedRows, Durability};
use tallygate::{Check, Config, Isolation};

use crate::db::{Db, Engine, log};

pub async fn a_zone_keeps_its_choices_in_every_version(db: Db) {
    let limiter = db.limiter().await;
    let coalesced = log(5, 60).with_blocked_rows(BlockedRows::Coalesced);
    let relaxed = coalesced.with_durability(Durability::Relaxed);
    let policies = if db.engine.is_mysql() {
        let refused = limiter.operator().set_zone("login", &relaxed, None, "test").await.unwrap_err();
        assert!(refused.is_invalid() && refused.to_string().contains("innodb_flush_log_at_trx_commit"));
        assert_eq!(limiter.operator().zones().await.unwrap(), []);
        vec![coalesced, log(5, 60)]
    } else {
        vec![coalesced, relaxed, log(5, 60)]
    };
    for (n, policy) in policies.iter().enumerate() {
        let zone = limiter.operator().set_zone("login", policy, None, "test").await.unwrap();
        assert_eq!((zone.policy, zone.version as usize), (*policy, n + 1), "each choice makes a version");
        assert_eq!(
            limiter.operator().set_zone("login", policy, None, "test").await.unwrap(),
            zone,
            "and no second one"
        );
        assert_eq!(limiter.operator().zone("login").await.unwrap(), Some(zone.clone()));
        let versions = limiter.operator().zone_versions(&zone).await.unwrap();
        let seen: Vec<_> = versions.into_iter().map(|version| version.policy).collect();
        assert_eq!(seen, policies[..=n]);
    }
}

/// At each commit the database is asked whether it waits.
pub async fn a_commit_waits_unless_all_that_it_records_is_relaxed_and_it_is_our_own(db: Db) {
    db.execute(
        "create table waited (key text not null, waits text not null);
         create function note() returns trigger language plpgsql security definer as $$
         begin
             insert into waited values (new.bucket_key, current_setting('synchronous_commit'));
             return null;
         end $$;
         create constraint trigger note after insert on zone_txn
         deferrable initially deferred for each row execute function note()",
    )
    .await;
    let relaxed = log(5, 60).with_durability(Durability::Relaxed);
    let waits = async |key: &str| {
        let of = |setting: &str| {
            format!("select count(*) from waited where key = '{key}' and waits {setting} 'off'")
        };
        let (on, off) = (db.number(&of("<>")).await, db.number(&of("=")).await);
        assert!(on + off > 0 && (on == 0 || off == 0), "{key}: {on} and {off}");
        on > 0
    };
    for isolation in Engine::Postgres.isolations() {
        let limiter = db.limiter_with(Config { isolation: *isolation, ..db.config() }).await;
        for (zone, policy) in [("relaxed", relaxed), ("durable", log(5, 60))] {
            limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        }
        let own = *isolation == Isolation::RowLock;
        let key = |name: &str| format!("{name} {own}");
        let of = |zone: &str, name: &str| Check::new(zone, key(name));
        limiter.check(of("relaxed", "alone")).await.unwrap();
        assert!(!waits(&key("alone")).await);
        limiter.check(of("durable", "durable")).await.unwrap();
        assert!(waits(&key("durable")).await);
        limiter.check_many(vec![of("relaxed", "a"), of("relaxed", "b")]).await.unwrap();
        assert!(!waits(&key("a")).await && !waits(&key("b")).await);
        limiter.check_many(vec![of("relaxed", "c"), of("durable", "d")]).await.unwrap();
        assert!(waits(&key("c")).await && waits(&key("d")).await);
        // A check that only looks at a durable zone records nothing of it.
        limiter.check_many(vec![of("relaxed", "e"), of("durable", "f").cost(0)]).await.unwrap();
        assert!(!waits(&key("e")).await);

        let mut session = db.connect().await;
        session.begin().await;
        limiter.check_in(session.joined(), of("relaxed", "joined")).await.unwrap();
        let by_sql = |key: &str, own: bool| format!("select zone_check('relaxed', '{key}', p_own => {own})");
        session.execute(&by_sql(&key("joined by sql"), false)).await.unwrap();
        session.execute("commit").await.unwrap();
        assert!(waits(&key("joined")).await && waits(&key("joined by sql")).await);
        session.execute(&by_sql(&key("own by sql"), true)).await.unwrap();
        assert!(!waits(&key("own by sql")).await);

        limiter.operator().set_zone("relaxed", &log(5, 60), None, "test").await.unwrap();
        limiter.check(of("relaxed", "changed")).await.unwrap();
        assert!(waits(&key("changed")).await);
    }
    let limiter = db.limiter().await;
    let relaxed = relaxed.with_blocked_rows(BlockedRows::Coalesced);
    let zone = limiter.operator().set_zone("relaxed", &relaxed, None, "test").await.unwrap();
    for _ in 0..6 {
        limiter.check(Check::new("relaxed", "coalesced")).await.unwrap();
    }
    limiter.record_blocked(zone.id, "coalesced", uuid::Uuid::now_v7(), 1, 3).await.unwrap();
    assert!(!waits("coalesced").await);
}
