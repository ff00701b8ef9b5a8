//! Upkeep: what is removed is not missed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use tallygate::audit::verify::{FaultKind, Verify};
use tallygate::policy::{Algorithm, BanRule, RunningBuckets};
use tallygate::schema::Upkeep;
use tallygate::{Check, Config, Decision, Limiter, Policy};
use uuid::Uuid;

use crate::chain::assert_chained;
use crate::db::{Clocked, Connected, Db, Engine, bucket, connected, log};
use crate::verify::verify;

pub const DAY: Duration = Duration::from_secs(86_400);
const DAY_US: i64 = 86_400_000_000;

fn now_us() -> i64 {
    Utc::now().timestamp_micros()
}

/// The text of a decision, but for which row it is.
fn said(decision: &Decision) -> (bool, String, i64, i64, Option<i64>, Option<i64>, i64) {
    let reason = format!("{:?}", decision.reason);
    let us = decision.decided_at.timestamp_micros();
    let Decision { blocked, limit, remaining, retry_after_us, delay_us, .. } = decision;
    (*blocked, reason, *limit, *remaining, *retry_after_us, *delay_us, us)
}

/// The bucket `gone` loses its row before each step, its twin `kept` never does: they are decided alike.
pub async fn a_bucket_whose_row_was_removed_comes_back_as_it_was(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let keeper = connected(&db.url).await;
    let zones = [
        ("log", log(5, 60)),
        ("level", bucket(1, 7, 5)),
        ("fixed", Policy::fixed_window(5, Duration::from_secs(60)).unwrap()),
        ("counter", Policy::sliding_counter(5, Duration::from_secs(60), 6).unwrap()),
        ("queue", Policy::new(Algorithm::LeakyQueue, 1, Duration::from_secs(7), Some(4)).unwrap()),
        ("bans", log(3, 60).with_ban(Some(BanRule::new(30, Duration::from_secs(60), DAY)))),
    ];
    for (name, policy) in &zones {
        limiter.operator().set_zone(name, policy, None, "test").await.unwrap();
    }
    let mut start_us = now_us() - 100 * DAY_US;
    clocked.set(start_us).await;
    let (mut connection, mut came_back) = (db.connect().await, 0);
    for step in 0..30 {
        start_us += 3_000_001 + step % 3;
        clocked.set(start_us).await;
        came_back += take_the_row_of_gone(&mut connection, &keeper, step > 0).await;
        for (zone, _) in &zones {
            let check = |key: &str| Check::new(*zone, key).cost(1 + step % 2);
            let [kept, gone] = match step % 5 {
                0 => {
                    [limiter.check(check("kept")).await.unwrap(), limiter.check(check("gone")).await.unwrap()]
                }
                1 => {
                    let many =
                        vec![check("gone"), check("kept"), check("gone").cost(0), check("kept").cost(0)];
                    let told = limiter.check_many(many).await.unwrap();
                    assert_eq!(said(&told[3]), said(&told[2]), "a peek behind it in {zone} at step {step}");
                    [told[1].clone(), told[0].clone()]
                }
                2 => {
                    let told =
                        limiter.check_many(vec![check("kept").cost(0), check("gone").cost(0)]).await.unwrap();
                    [told[0].clone(), told[1].clone()]
                }
                3 => [limiter.peek(zone, "kept").await.unwrap(), limiter.peek(zone, "gone").await.unwrap()],
                _ => {
                    let told = limiter.check_all(vec![check("kept"), check("gone")]).await.unwrap().decisions;
                    [told[0].clone(), told[1].clone()]
                }
            };
            assert_eq!(said(&gone), said(&kept), "{zone} at step {step}");
        }
    }
    assert!(came_back > 60, "only {came_back} rows were removed");
    let unlike = "select count(*) - count(distinct t.zone_id) from (
            select distinct b.zone_id, b.seq, b.last_at, b.spent_total, b.strikes, b.level
            from zone_bucket_lock b
            where b.bucket_key in ('kept', 'gone')
        ) t";
    assert_eq!(connection.number(unlike).await, 0, "twins are not alike");
    assert_chained(db.engine, &mut connection).await;

    // The acts of people find it too.
    take_the_row_of_gone(&mut connection, &keeper, true).await;
    let bans = [
        limiter.operator().ban("log", "kept", DAY, "x", "y").await,
        limiter.operator().ban("log", "gone", DAY, "x", "y").await,
    ];
    let bans = bans.map(|ban| ban.unwrap());
    assert_eq!((bans[0].seq, bans[0].remaining), (bans[1].seq, bans[1].remaining));
    let txns = [Uuid::now_v7(), Uuid::now_v7()];
    start_us += 600_000_000;
    clocked.set(start_us).await;
    for (key, txn) in ["kept", "gone"].into_iter().zip(txns) {
        assert!(limiter.check(Check::new("level", key).txn(txn)).await.unwrap().is_allowed());
    }
    take_the_row_of_gone(&mut connection, &keeper, true).await;
    let told = limiter.check(Check::new("level", "gone").txn(txns[1])).await.unwrap();
    assert!(told.replayed, "its transactions are known");
    take_the_row_of_gone(&mut connection, &keeper, true).await;
    for txn in txns {
        assert_eq!(limiter.refund(txn).await.unwrap()[0].remaining, 5);
    }
    take_the_row_of_gone(&mut connection, &keeper, true).await;
    db_check_in(&db, limiter, &clocked).await;
    assert_chained(db.engine, &mut connection).await;
    // The ban, which the ledger's last row does not say, kept its rows.
    assert_eq!(limiter.peek("log", "gone").await.unwrap().remaining, 0);
}

/// A joined check of a bucket without a row.
async fn db_check_in(db: &Db, limiter: &Limiter, clocked: &Clocked) {
    if db.engine == Engine::Sqlite {
        let mut connection = db.connect().await;
        connection.begin().await;
        let decision = limiter.check_in(connection.joined(), Check::new("fixed", "gone")).await.unwrap();
        connection.execute("commit").await.unwrap();
        assert!(decision.is_allowed());
        return;
    }
    let seq = "select max(seq) from zone_txn where bucket_key = 'gone' and zone_id = 3";
    let before = db.number(seq).await;
    let call = if db.engine == Engine::Postgres {
        "select id from zone_check('fixed', 'gone')"
    } else {
        "start transaction; call zone_check_in('fixed', 'gone', null, 1, false, null); commit"
    };
    clocked.execute(call).await;
    assert_eq!(db.number(seq).await, before + 1);
}

/// Removes the rows of idle buckets, and puts those of `kept` back.
async fn take_the_row_of_gone(connection: &mut Connected, keeper: &Limiter, made: bool) -> u64 {
    if !made {
        return 0;
    }
    connection
        .execute("create table kept as select * from zone_bucket_lock where bucket_key = 'kept'")
        .await
        .unwrap();
    let hour = Duration::from_secs(3600);
    let done = keeper.owner().maintain(Upkeep { idle: Some(hour), ..Upkeep::default() }).await.unwrap();
    connection.execute("delete from zone_bucket_lock where bucket_key = 'kept'").await.unwrap();
    connection.execute("insert into zone_bucket_lock select * from kept").await.unwrap();
    connection.execute("drop table kept").await.unwrap();
    done.heads_removed
}

/// Zones that count, that have a level, and that ban.
async fn set_zones(limiter: &Limiter) -> [(&'static str, Policy); 3] {
    let ban = BanRule::new(4, DAY, DAY);
    let zones =
        [("log", log(5, 3600)), ("level", bucket(1, 3600, 5)), ("bans", log(1, 60).with_ban(Some(ban)))];
    for (zone, policy) in &zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    zones
}

/// Lets the ledger's partitions begin half a year ago, as if upkeep had run since then.
pub async fn age(db: &Db) {
    let from: DateTime<Utc> = Utc::now() - chrono::TimeDelta::days(200);
    let from = from.format("%Y-%m-01 00:00:00").to_string();
    match db.engine {
        Engine::Postgres => {
            let bounds = [
                ("first", "minvalue", &*format!("'{from}+00'")),
                ("last", &*format!("'{from}+00'"), "maxvalue"),
            ];
            for (name, ..) in bounds {
                db.execute(&format!("alter table zone_txn detach partition zone_txn_{name}")).await;
                db.execute(&format!("drop table zone_txn_{name}")).await;
            }
            for (name, from, to) in bounds {
                db.execute(&format!(
                    "create table zone_txn_{name} partition of zone_txn for values from ({from}) to ({to})"
                ))
                .await;
            }
        }
        Engine::MySql | Engine::MariaDb => {
            db.execute(&format!(
                "alter table zone_txn reorganize partition zone_txn_last into (
                    partition zone_txn_first values less than ('{from}'),
                    partition zone_txn_last values less than (maxvalue)
                )"
            ))
            .await;
        }
        Engine::Sqlite => {}
    }
}

pub async fn what_is_old_is_dropped_and_what_is_left_still_closes(db: Db) {
    age(&db).await;
    let keeper = connected(&db.url).await;
    let made = keeper.owner().maintain(Upkeep::default()).await.unwrap();
    if db.engine != Engine::Sqlite {
        assert!((8..=11).contains(&made.partitions_made.len()), "{made:?}");
        assert!(keeper.owner().maintain(Upkeep::default()).await.unwrap().partitions_made.is_empty());
    }
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let zones = set_zones(limiter).await;
    // `long` has rows of every age, `quiet` only old ones, `young` only new ones.
    let ages = [150, 130, 100, 50, 1];
    for days in ages {
        for n in 0..3 {
            clocked.set(now_us() - days * DAY_US + n).await;
            for (zone, _) in &zones {
                for key in ["long", "quiet", "young"] {
                    if key == "long" || (key == "quiet") == (days >= 100) {
                        limiter.check(Check::new(*zone, key)).await.unwrap();
                    }
                }
            }
        }
    }
    clocked.set(now_us()).await;
    let mut connection = db.connect().await;
    let (rows, _) = assert_chained(db.engine, &mut connection).await;
    assert_eq!(rows, 3 * 3 * (5 + 3 + 2));

    let refused =
        keeper.owner().maintain(Upkeep { keep: Some(Duration::from_secs(60)), ..Upkeep::default() }).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("zone \"bans\""), "{refused}");
    let refused =
        keeper.owner().maintain(Upkeep { idle: Some(Duration::from_secs(60)), ..Upkeep::default() }).await;
    assert!(refused.unwrap_err().is_invalid());
    assert_eq!(db.rows().await, rows as i64);

    let (keep, idle) = (Some(60 * DAY), Some(60 * DAY));
    let plan =
        keeper.owner().maintain(Upkeep { keep, idle, dry_run: true, ..Upkeep::default() }).await.unwrap();
    assert_eq!(db.rows().await, rows as i64, "a dry run");
    // First the rows, so that the buckets that are quiet have nothing but what these left.
    let done = keeper.owner().maintain(Upkeep { keep, ..Upkeep::default() }).await.unwrap();
    assert_eq!((&done.partitions_dropped, done.rows_removed), (&plan.partitions_dropped, plan.rows_removed));
    let (left, _) = assert_chained(db.engine, &mut connection).await;
    assert_eq!(left, 3 * 3 * (2 + 2), "every row older than 60 days is gone, and no other: {done:?}");
    assert_eq!(connection.number("select count(*) from zone_txn_dropped").await, 6);

    let heads = "select count(*) from zone_bucket_lock where bucket_key = 'quiet'";
    assert_eq!(connection.number(heads).await, 3);
    // Once with their rows in zone_bucket_lock, once without.
    for removed in [false, true] {
        if removed {
            let done = keeper.owner().maintain(Upkeep { keep, idle, ..Upkeep::default() }).await.unwrap();
            assert_eq!(done.heads_removed, 0, "they have just been asked for");
            connection.execute("delete from zone_bucket_lock where bucket_key = 'quiet'").await.unwrap();
            note_removed_heads(&db).await;
        }
        for (zone, _) in &zones {
            for key in ["long", "quiet", "young"] {
                limiter.peek(zone, key).await.unwrap();
                limiter.check(Check::new(*zone, key)).await.unwrap();
                limiter.check_many(vec![Check::new(*zone, key), Check::new(*zone, "new")]).await.unwrap();
            }
        }
    }
    // A longer window, and what was used carried over: only what is left counts.
    for running in [RunningBuckets::AsIs, RunningBuckets::Proportional] {
        for (zone, rate) in [("log", 50), ("bans", 40)] {
            let policy = log(rate, 90 * 86_400).with_running_buckets(running);
            limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
            for key in ["long", "quiet", "young"] {
                let decision = limiter.check(Check::new(zone, key)).await.unwrap();
                assert!(decision.is_allowed(), "{decision:?}");
                limiter.check_many(vec![Check::new(zone, key), Check::new(zone, key)]).await.unwrap();
            }
        }
    }
    assert_chained(db.engine, &mut connection).await;
    let first = connection.number("select min(seq) from zone_txn where bucket_key = 'quiet'").await;
    assert_eq!(first, 10, "it goes on after the nine that are gone");
}

/// Nothing is said of what upkeep removed; what somebody else changed of it, or removed, is found where it is.
pub async fn what_is_left_is_verified_and_each_change_of_it_is_found(db: Db) {
    age(&db).await;
    let keeper = connected(&db.url).await;
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let zones = set_zones(limiter).await;
    let hash = match db.engine {
        Engine::Postgres => "row_hash = sha256('x')",
        Engine::Sqlite => "row_hash = zeroblob(32)",
        _ => "row_hash = unhex(sha2('x', 256))",
    };
    let changes = [
        (format!("update zone_txn_dropped set {hash} where"), FaultKind::Edited, Some(10)),
        ("update zone_txn_dropped set spent_total = 99 where".to_owned(), FaultKind::Edited, Some(10)),
        ("delete from zone_txn_dropped where".to_owned(), FaultKind::Missing, Some(1)),
        ("delete from zone_txn where seq = 10 and".to_owned(), FaultKind::Missing, Some(10)),
        ("delete from zone_txn where".to_owned(), FaultKind::Truncated, Some(10)),
        ("update zone_bucket_lock set spent_total = 99 where".to_owned(), FaultKind::WrongHead, Some(15)),
    ];
    let keys: Vec<_> = (0..changes.len()).map(|n| format!("key {n}")).collect();
    let long = ["long", "quiet", "head"].map(str::to_owned);
    for days in [150, 130, 100, 50, 1] {
        for n in 0..3 {
            clocked.set(now_us() - days * DAY_US + n).await;
            for (zone, _) in &zones {
                let alive = |key: &&String| days >= 100 || !matches!(key.as_str(), "quiet" | "head");
                let checks = keys.iter().chain(&long).filter(alive).map(|key| Check::new(*zone, key));
                limiter.check_many(checks.collect()).await.unwrap();
                if days == 50 {
                    limiter.check(Check::new(*zone, "whole")).await.unwrap();
                }
            }
        }
    }
    for key in ["banned", "free"] {
        limiter.check(Check::new("log", key)).await.unwrap();
    }
    limiter.operator().ban("log", "banned", DAY, "why", "who").await.unwrap();
    let auditor = db.limiter().await;
    let all = Verify { jobs: 2, ..Verify::default() };
    let (before, faults) = verify(&auditor, &all).await;
    assert_eq!((faults, before.not_derivable), (vec![], 0));

    let (keep, idle) = (Some(60 * DAY), Some(60 * DAY));
    keeper.owner().maintain(Upkeep { keep, ..Upkeep::default() }).await.unwrap();
    let (kept, faults) = verify(&auditor, &all).await;
    assert_eq!((faults, kept.buckets, kept.not_derivable), (vec![], before.buckets, 0));
    assert!(kept.rows < before.rows, "{kept:?}");
    let done = keeper.owner().maintain(Upkeep { keep, idle, ..Upkeep::default() }).await.unwrap();
    assert!(done.heads_removed >= 4, "{done:?}");
    assert_eq!(verify(&auditor, &all).await, (kept, vec![]));

    // A twin without its head says the same, unless it was banned before.
    let mut connection = db.connect().await;
    let back = "insert into zone_bucket_lock select * from gone";
    for (key, found) in
        [("whole", None), ("free", None), ("long", None), ("banned", Some(FaultKind::WrongHead))]
    {
        let of = format!("zone_id = 1 and bucket_key = '{key}'");
        connection
            .execute(&format!("create table gone as select * from zone_bucket_lock where {of}"))
            .await
            .unwrap();
        connection.execute(&format!("delete from zone_bucket_lock where {of}")).await.unwrap();
        let (_, faults) = verify(&auditor, &all).await;
        let faults: Vec<_> = faults.iter().map(|fault| (fault.key.as_deref(), fault.what)).collect();
        assert_eq!(faults, found.map(|what| (Some(key), what)).into_iter().collect::<Vec<_>>(), "{key}");
        connection.execute(back).await.unwrap();
        connection.execute("drop table gone").await.unwrap();
    }
    db.execute("delete from zone_bucket_removed").await;
    let (_, faults) = verify(&auditor, &all).await;
    assert!(faults.iter().all(|fault| fault.what == FaultKind::WrongHead) && faults.len() >= 4, "{faults:?}");
    note_removed_heads(&db).await;

    for (n, (sql, ..)) in changes.iter().enumerate() {
        db.execute(&format!("{sql} zone_id = 1 and bucket_key = 'key {n}'")).await;
    }
    let (_, faults) = verify(&auditor, &all).await;
    let found: Vec<_> =
        faults.iter().map(|fault| (fault.key.clone().unwrap(), fault.what, fault.seq)).collect();
    let told = keys.iter().zip(&changes).map(|(key, (_, what, seq))| (key.clone(), *what, *seq));
    let told: Vec<_> = told.collect();
    for (key, what, seq) in &told {
        let first = found.iter().find(|(found, ..)| found == key);
        assert_eq!(first, Some(&(key.clone(), *what, *seq)), "{faults:#?}");
    }
    assert!(found.iter().all(|(key, ..)| keys.contains(key)), "{faults:#?}");
}

/// As upkeep does before it removes the first.
pub async fn note_removed_heads(db: &Db) {
    let now = match db.engine {
        Engine::Postgres => "now()",
        Engine::Sqlite => "0",
        _ => "utc_timestamp(6)",
    };
    let note = "insert into zone_bucket_removed (zone_id, removed_at)";
    let zones = "from zone_master z where z.id not in (select r.zone_id from zone_bucket_removed r)";
    db.execute(&format!("{note} select z.id, {now} {zones}")).await;
}

pub async fn checks_go_on_while_it_is_maintained(db: Db) {
    age(&db).await;
    let keeper = connected(&db.url).await;
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    let clocked = Clocked::create(&db).await;
    clocked.limiter.operator().set_zone("log", &log(1_000_000, 1), None, "test").await.unwrap();
    let mut aged = 0;
    for days in [190, 150, 120, 90] {
        clocked.set(now_us() - days * DAY_US).await;
        let checks = (0..100).map(|n| Check::new("log", format!("key {}", n + days % 7 * 10)));
        aged += clocked.limiter.check_many(checks.collect()).await.unwrap().len();
    }
    drop(clocked);
    db.remove_test_clock().await;
    let config = Config { connections: 8, ..db.config() };
    let limiter = db.limiter_with(config).await;
    let work = (0..32).map(|client| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            for n in 0..60 {
                let asked = std::time::Instant::now();
                let check = Check::new("log", format!("key {}", (client * 7 + n * 3) % 150));
                if n % 4 == 0 {
                    let more = check.clone();
                    limiter.check_many(vec![check, more.cost(2)]).await.unwrap();
                } else {
                    limiter.check(check).await.unwrap();
                }
                slowest = slowest.max(asked.elapsed());
            }
            slowest
        })
    });
    let work = tokio::spawn(join_all(work.collect::<Vec<_>>()));
    let (mut dropped, mut heads, mut runs) = (0, 0, 0);
    let upkeep = Upkeep { keep: Some(60 * DAY), idle: Some(Duration::from_secs(2)), ..Upkeep::default() };
    while !work.is_finished() || runs < 3 {
        let done = keeper.owner().maintain(upkeep).await.unwrap();
        dropped += done.partitions_dropped.len() + done.rows_removed as usize;
        heads += done.heads_removed;
        runs += 1;
    }
    let slowest = work.await.unwrap().into_iter().map(|slowest| slowest.unwrap()).max();
    eprintln!("{}: {runs} runs, {dropped} dropped, {heads} heads, slowest check {slowest:?}", db.engine);
    assert!(dropped > 0 && heads > 0, "{dropped} dropped, {heads} heads removed");
    let mut connection = db.connect().await;
    let (rows, _) = assert_chained(db.engine, &mut connection).await;
    assert_eq!(rows, 32 * (45 + 2 * 15), "of {aged} old rows none is left, and no new one is missing");
}

pub async fn what_has_ended_is_removed_and_the_bucket_is_as_quick_as_before(db: Db) {
    age(&db).await;
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let keeper = connected(&db.url).await;
    let zones = [("log", log(5, 60)), ("level", bucket(1, 7, 5))];
    for (zone, policy) in &zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    let mut at_us = now_us() - 100 * DAY_US;
    for (zone, _) in &zones {
        for key in ["kept", "gone"] {
            clocked.set(at_us).await;
            let txn = Uuid::now_v7();
            limiter.check(Check::new(*zone, key).cost(2).txn(txn)).await.unwrap();
            limiter.refund(txn).await.unwrap();
            limiter.reserve(Check::new(*zone, key).cost(3), Duration::from_secs(90)).await.unwrap();
            clocked.set(at_us + 200_000_000).await;
            limiter.check(Check::new(*zone, key)).await.unwrap();
        }
    }
    at_us += 200_000_000;
    let mut connection = db.connect().await;
    connection
        .execute("create table kept as select * from zone_hold where bucket_key = 'kept'")
        .await
        .unwrap();
    let done = keeper.owner().maintain(Upkeep::default()).await.unwrap();
    assert_eq!(done.holds_removed, 8);
    let yes = if db.engine == Engine::Postgres { "" } else { "= 1" };
    assert_eq!(
        connection.number(&format!("select count(*) from zone_bucket_lock where holding {yes}")).await,
        0
    );
    // The twins have everything back.
    connection.execute("insert into zone_hold select * from kept").await.unwrap();
    let set = if db.engine == Engine::Postgres { "true" } else { "1" };
    let back = format!("update zone_bucket_lock set holding = {set} where bucket_key = 'kept'");
    connection.execute(&back).await.unwrap();
    for step in 0..12 {
        at_us += 5_000_003;
        clocked.set(at_us).await;
        for (zone, _) in &zones {
            let [kept, gone] =
                ["kept", "gone"].map(|key| limiter.check(Check::new(*zone, key).cost(1 + step % 2)));
            let (kept, gone) = (kept.await.unwrap(), gone.await.unwrap());
            assert_eq!(said(&gone), said(&kept), "{zone} at step {step}");
        }
    }
    // A hold that still runs stays.
    clocked.set(now_us()).await;
    limiter.reserve(Check::new("log", "open").cost(3), DAY).await.unwrap();
    let txn = Uuid::now_v7();
    limiter.check(Check::new("level", "open").txn(txn)).await.unwrap();
    limiter.refund(txn).await.unwrap();
    assert_eq!(
        keeper.owner().maintain(Upkeep::default()).await.unwrap().holds_removed,
        4,
        "those of the twins"
    );
    assert_eq!(connection.number("select count(*) from zone_hold").await, 2);
    assert_chained(db.engine, &mut connection).await;
}

pub async fn an_auditor_sees_when_it_was_done_and_how_far_partitions_reach(db: Db) {
    let (keeper, limiter) = (connected(&db.url).await, db.limiter().await);
    assert_eq!(limiter.auditor().maintenance().await.unwrap().finished_at, None);
    let before = Utc::now();
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    let seen = limiter.auditor().maintenance().await.unwrap();
    let finished = seen.finished_at.unwrap();
    assert!((finished - before).num_seconds().abs() < 3_600, "{finished} {before}");
    // Months, as far as 62 days reach.
    let ahead = |until: Option<DateTime<Utc>>| {
        let days = (until.unwrap() - before).num_days();
        assert!((60..=94).contains(&days), "{until:?}");
    };
    match db.engine {
        Engine::Sqlite => return assert_eq!(seen.partitions_until, None),
        Engine::Postgres => ahead(seen.partitions_until),
        // These show them only to whom the table is open.
        _ => {
            assert_eq!(seen.partitions_until, None);
            ahead(keeper.auditor().maintenance().await.unwrap().partitions_until);
        }
    }
    let app = connected(&db.url_as(tallygate::schema::Role::App)).await;
    let refused = app.auditor().maintenance().await.unwrap_err();
    assert_eq!(refused.kind(), tallygate::ErrorKind::Refused, "{refused}");
}

/// The locks that any session may take say nothing about upkeep; its own is the owner's.
pub async fn nobody_but_the_owner_can_hold_upkeep_up(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("log", &log(5, 60), None, "test").await.unwrap();
    limiter.check(Check::new("log", "42")).await.unwrap();
    let mut sessions = Vec::new();
    for role in
        [tallygate::schema::Role::App, tallygate::schema::Role::Operator, tallygate::schema::Role::Auditor]
    {
        let mut session = db.connect_as(role).await;
        session.begin().await;
        let taken: &[&str] = match db.engine {
            Engine::Postgres => &[
                "select pg_try_advisory_lock(
                    hashtextextended('tallygate maintain', to_regclass('zone_txn')::oid::bigint))",
                "lock table zone_upkeep_lock in access share mode",
                "lock table zone_upkeep_lock in share update exclusive mode",
                "lock table zone_upkeep_lock_view in share update exclusive mode",
                "select id from zone_upkeep_lock_view for share",
            ],
            _ => &[
                "select get_lock(concat('tallygate:', left(sha2(database(), 256), 40)), 0)",
                "select id from zone_upkeep_lock for update",
                "select id from zone_upkeep_lock lock in share mode",
                "select id from zone_upkeep_lock_view for update",
                "select id from zone_upkeep_lock_view lock in share mode",
            ],
        };
        for lock in taken {
            // A refused run takes no lock; PostgreSQL's transaction goes on behind a savepoint.
            if db.engine == Engine::Postgres {
                session.execute("savepoint before").await.unwrap();
            }
            if session.execute(lock).await.is_err() && db.engine == Engine::Postgres {
                session.execute("rollback to savepoint before").await.unwrap();
            }
        }
        sessions.push(session);
    }
    let keeper = connected(&db.url).await;
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    keeper.owner().erase("log", "42", "n", "b").await.unwrap();
    for mut session in sessions {
        session.execute("rollback").await.unwrap();
    }
}

pub async fn one_works_at_a_time_and_what_a_killed_run_left_the_next_one_finishes(db: Db) {
    age(&db).await;
    let keeper = connected(&db.url_of_own_sessions(tallygate::schema::Role::Owner)).await;
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    let clocked = Clocked::create(&db).await;
    clocked.limiter.operator().set_zone("log", &log(5, 60), None, "test").await.unwrap();
    for days in [150, 120, 1] {
        clocked.set(now_us() - days * DAY_US).await;
        clocked.limiter.check(Check::new("log", "42")).await.unwrap();
    }
    // MySQL's sessions are not told apart: none but those of upkeep and the reader's own may be there.
    drop(clocked);
    // Somebody reads the ledger and does not end, so that no partition can go.
    let mut reader = db.connect().await;
    reader.begin().await;
    reader.number("select count(*) from zone_txn").await;
    let upkeep = Upkeep { keep: Some(60 * DAY), ..Upkeep::default() };
    let stuck = keeper.clone();
    let stuck = tokio::spawn(async move { stuck.owner().maintain(upkeep).await });
    let begun = match db.engine {
        Engine::Postgres => {
            "select count(*) from pg_inherits where inhparent = 'zone_txn'::regclass and inhdetachpending"
        }
        _ => "select count(*) from zone_txn_dropped",
    };
    while db.number(begun).await == 0 {
        assert!(!stuck.is_finished(), "it did not wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let other = connected(&db.url).await;
    let finished = match db.engine {
        Engine::Postgres => {
            "select to_char(finished_at, 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') from zone_upkeep_lock"
        }
        _ => "select date_format(finished_at, '%Y-%m-%dT%H:%i:%sZ') from zone_upkeep_lock",
    };
    let finished = db.connect().await.texts(finished).await.remove(0);
    for second in [
        other.owner().maintain(upkeep).await.map(drop),
        other.owner().erase("log", "42", "n", "b").await.map(drop),
    ] {
        let second = second.unwrap_err();
        assert!(second.is_transient() && second.to_string().contains(&finished), "{second}");
    }
    while !stuck.is_finished() {
        db.kill_a_session(&mut reader).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stuck.await.unwrap().unwrap_err();
    reader.execute("rollback").await.unwrap();

    db.remove_test_clock().await;
    db.limiter().await.check(Check::new("log", "42")).await.unwrap();
    let third = connected(&db.url).await.owner().maintain(upkeep).await.unwrap();
    assert!(third.partitions_dropped.len() >= 3, "{third:?}");
    let left = match db.engine {
        Engine::Postgres => {
            "select count(*) from pg_class where relnamespace = current_schema()::regnamespace
            and relkind = 'r' and relname like 'zone_txn_2%' and not relispartition"
        }
        _ => "select count(*) from zone_txn t join zone_txn_dropped d on t.seq <= d.seq",
    };
    assert_eq!(db.number(left).await, 0);
    assert_eq!(assert_chained(db.engine, &mut reader).await.0, 2);
    assert_eq!(verify(&db.limiter().await, &Verify::default()).await.1, []);
}

/// A read under the lock would stop every check for as long as it takes.
pub async fn rows_of_the_last_partition_are_read_before_it_is_locked(db: Db) {
    age(&db).await;
    db.limiter().await.operator().set_zone("log", &log(5, 60), None, "test").await.unwrap();
    // By no check, which reads rows of its own.
    let mut connection = db.connect().await;
    connection
        .execute(
            "insert into zone_txn (
                seq, cost, spent, spent_total, remaining, zone_limit, created_at, txn_id, zone_id, zone_version, blocked,
                kind, reason, bucket_key, row_hash
            )
            values (1, 1, 1, 1, 4, 5, now(), gen_random_uuid(), 1, 1, false, 'check', 'ok', '42', sha256('x'))",
        )
        .await
        .unwrap();
    let id = connection.number("select 'zone_txn_last'::regclass::oid::bigint").await;
    connected(&db.url).await.owner().maintain(Upkeep::default()).await.unwrap();
    // The session tells them when it ends. Each index read the table when it was made.
    let reads = format!(
        "select s.seq_scan - (select count(*) from pg_index i where i.indrelid = s.relid)
        from pg_stat_user_tables s where s.relid = {id}"
    );
    while connection.number(&reads).await < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(connection.number(&reads).await, 2, "for the newest, and for the proof");
}

pub async fn what_is_old_goes_where_no_partition_can_be_made(db: Db) {
    age(&db).await;
    let keeper = connected(&db.url).await;
    keeper.owner().maintain(Upkeep::default()).await.unwrap();
    let clocked = Clocked::create(&db).await;
    clocked.limiter.operator().set_zone("log", &log(5, 60), None, "test").await.unwrap();
    for days in [150, 1] {
        clocked.set(now_us() - days * DAY_US).await;
        clocked.limiter.check(Check::new("log", "42")).await.unwrap();
    }
    let verb = if db.engine == Engine::Postgres { "detach" } else { "drop" };
    db.execute(&format!("alter table zone_txn {verb} partition zone_txn_last")).await;
    let failed = keeper.owner().maintain(Upkeep { keep: Some(60 * DAY), ..Upkeep::default() }).await;
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("no partition without an end"), "{failed}");
    assert_eq!(db.rows().await, 1);
}
