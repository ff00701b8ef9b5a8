//! An explanation says what the ledger says.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use chrono::DateTime;
use fastrand::Rng;
use tallygate::audit::explain::{Explained, ExplainedRow};
use tallygate::audit::report::ReportOn;
use tallygate::audit::verify::Verify;
use tallygate::decide::{Ask, Override};
use tallygate::ledger::{History, Kind};
use tallygate::policy::{Algorithm, BanRule, CalendarUnit, Durability};
use tallygate::{Charged, Check, Policy};
use uuid::Uuid;

use crate::db::{Clocked, Db, Engine, bucket, log};
use crate::naive::{Naive, Parts};
use crate::rounds;
use crate::verify::verify;

const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01
const MINUTE_US: i64 = 60_000_000;
/// Of a bucket: it is read from its beginning for each of them.
const TRANSACTIONS: usize = 25;

/// 2,500 random transactions on SQLite (50,000 in a soak), 1,000 on each other database, of every algorithm: what an explanation lists and
/// adds up is what a count of all rows finds, which knows the definitions and no formula of the core.
pub async fn what_counted_is_what_a_plain_count_finds(db: Db) {
    let clocked = Clocked::create(&db).await;
    let transactions = if db.engine == Engine::Sqlite { rounds(2_500, 50_000) } else { 1_000 };
    let policies = policies();
    let mut checked = 0;
    for (n, policy) in policies.iter().enumerate() {
        let zone = format!("zone {n}");
        clocked.set(START_US).await;
        let relaxed = if db.engine.is_mysql() { Durability::Durable } else { Durability::Relaxed };
        let policy = &policy.with_durability(relaxed);
        clocked.limiter.operator().set_zone(&zone, policy, None, "test").await.unwrap();
        for bucket in 0..transactions / policies.len() / TRANSACTIONS + 1 {
            let key = format!("key {bucket}");
            let seed = (n * 1_000 + bucket) as u64;
            live(&clocked, &zone, &key, policy, &mut Rng::with_seed(seed)).await;
            checked += assert_explained(&clocked, &zone, &key, policy).await;
        }
    }
    assert!(checked >= transactions, "{checked} transactions");
}

fn policies() -> Vec<Policy> {
    let minute = Duration::from_secs(60);
    let mut policies: Vec<Policy> = Algorithm::ALL[..9]
        .iter()
        .map(|&algorithm| Policy::new(algorithm, 7, minute, None).unwrap())
        .collect();
    policies.push(Policy::sliding_counter(7, minute, 10).unwrap());
    policies.push(Policy::calendar(7, CalendarUnit::Minute, "Asia/Kathmandu".parse().unwrap()).unwrap());
    policies.push(Policy::token_bucket(7, minute, Some(11)).unwrap());
    policies.push(Policy::sliding_log(7, minute).unwrap().with_count_blocked(true));
    let ban = BanRule { factor: 2, longest_us: 8 * MINUTE_US, ..BanRule::new(3, minute, minute) };
    let guarded = |policy: &Policy| policy.with_ban(Some(ban)).with_reserve(2).with_soft_rate(Some(3));
    let more: Vec<Policy> = policies.iter().filter(|policy| policy.limit() > 3).map(guarded).collect();
    policies.extend(more);
    policies
}

/// Some transactions, some of which are given back.
async fn live(clocked: &Clocked, zone: &str, key: &str, policy: &Policy, rng: &mut Rng) {
    let algorithm = policy.algorithm();
    let held = matches!(algorithm, Algorithm::Distinct | Algorithm::Concurrency);
    let mut now_us = START_US + rng.i64(0..MINUTE_US);
    let mut past: Vec<Uuid> = Vec::new();
    for _ in 0..TRANSACTIONS {
        now_us +=
            [0, 1, rng.i64(0..MINUTE_US / 4), MINUTE_US - 1, MINUTE_US][rng.usize(..5).min(rng.usize(..5))];
        clocked.set(now_us).await;
        let txn = Uuid::now_v7();
        let cost = if algorithm == Algorithm::Distinct { 1 } else { [1, 1, 2, 3, 9][rng.usize(..5)] };
        let mut check = Check::new(zone, key).cost(cost).txn(txn);
        if rng.u8(..4) == 0 {
            check = check.critical();
        }
        if algorithm == Algorithm::Distinct {
            check = check.member(format!("member {}", rng.u8(..10)));
        }
        if !held && rng.u8(..4) == 0 {
            check = check.reserved_for(Duration::from_micros(rng.u64(1..2 * MINUTE_US as u64)));
        }
        clocked.limiter.check(check).await.unwrap();
        past.push(txn);
        if rng.u8(..3) == 0 {
            let charged =
                || Charged::by(past[past.len() - 1 - rng_last(past.len(), cost)]).in_bucket(zone, key);
            // Every way to end it is tried; not all can.
            let _ = clocked.limiter.refund(charged()).await.is_ok()
                || clocked.limiter.settle(charged(), cost).await.is_ok()
                || clocked.limiter.release(charged()).await.is_ok();
        }
    }
}

fn rng_last(len: usize, cost: i64) -> usize {
    (cost as usize).min(len - 1)
}

/// Returns how many transactions were explained.
async fn assert_explained(clocked: &Clocked, zone: &str, key: &str, policy: &Policy) -> usize {
    let history = History {
        zone: Some(zone.to_owned()),
        key: Some(key.to_owned()),
        limit: 10_000,
        ..History::default()
    };
    let mut rows = clocked.limiter.auditor().history(&history).await.unwrap().rows;
    rows.reverse();
    let mut explained: HashMap<Uuid, Explained> = HashMap::new();
    let mut naive = Naive::new(*policy);
    // Of each transaction that was charged: its row.
    let mut charges: HashMap<Uuid, (i64, i64)> = HashMap::new();
    for row in &rows {
        if let Entry::Vacant(place) = explained.entry(row.txn_id) {
            place.insert(clocked.limiter.auditor().explain(row.txn_id, 1_000).await.unwrap());
        }
        let found = explained[&row.txn_id].rows.iter().find(|found| found.row.seq == row.seq).unwrap();
        assert_eq!(found.row, *row);
        assert_eq!(found.reproduced, Some(true), "{found:?}");
        let now_us = row.decided_at.timestamp_micros();
        match row.kind.as_str() {
            "check" | "reserve" => {
                let ask = Ask {
                    cost: row.cost,
                    critical: row.critical,
                    member: row.member.as_deref(),
                    ttl_us: (row.kind == Kind::Reserve)
                        .then(|| row.ends_at.map_or(1, |at| at.timestamp_micros() - now_us)),
                    held_back: false,
                };
                assert_counted(found, policy, &naive, now_us);
                let told = naive.check(&ask, now_us, row.seq);
                assert_eq!(
                    (told.reason, told.spent, told.remaining, told.retry_after_us),
                    (row.reason, row.spent, row.remaining, row.retry_after_us),
                    "{row:?}"
                );
                let passes_us = found.passes_at.map(|at| at.timestamp_micros());
                assert_eq!(passes_us, told.retry_after_us.map(|us| now_us + us));
                charges.insert(row.txn_id, (row.seq, row.spent));
            }
            "refund" | "release" | "cancel" => naive.end(charges[&row.txn_id].0, 0, 0, now_us, row.seq),
            "settle" => {
                let (seq, spent) = charges[&row.txn_id];
                naive.end(seq, row.cost.min(spent), row.spent, now_us, row.seq);
            }
            kind => assert_eq!(kind, "ban"),
        }
    }
    explained.len()
}

fn assert_counted(found: &ExplainedRow, policy: &Policy, naive: &Naive, now_us: i64) {
    let Parts(used, unit) = naive.used(now_us);
    if let Some(level) = found.level_was {
        let parts = i128::from(policy.window_us() / level.per_token);
        let full = i128::from(policy.limit()) * unit;
        assert_eq!(i128::from(level.now) * parts, full - used, "{found:?}");
        assert_eq!(i128::from(level.capacity) * parts, full);
    } else {
        let counted = found.counted.as_ref().unwrap();
        assert_eq!(i128::from(counted.used), used, "{found:?}");
        let from = counted.from;
        let in_full = counted.charges.iter().filter(|charge| from.is_none_or(|from| charge.at >= from));
        let in_full: i64 = in_full.map(|charge| charge.cost - charge.given_back).sum();
        assert_eq!(in_full + counted.fading.map_or(0, |fade| fade.counts), counted.used, "{found:?}");
        assert_eq!(counted.transactions, counted.charges.len() as u64);
    }
    let kept = if found.row.critical { 0 } else { policy.reserve() };
    let left = if found.ban.is_some() { 0 } else { naive.room(policy.limit() - kept, now_us) };
    assert_eq!(found.left_before, Some(left), "{found:?}");
}

/// Somebody changes a row: it is not what the rows before it lead to, and the explanation says what differs.
/// A token in ten years: what asks for all of them may pass after the last year that a calendar knows.
pub async fn a_wait_beyond_the_calendar_is_told(db: Db) {
    let limiter = db.limiter().await;
    let rare = bucket(1, 315_576_000, 29_000);
    limiter.operator().set_zone("rare", &rare, None, "test").await.unwrap();
    let all = || Check::new("rare", "42").cost(29_000);
    assert!(limiter.check(all()).await.unwrap().is_allowed());
    let blocked = limiter.check(all()).await.unwrap();
    let years = blocked.retry_after().unwrap().as_secs() / 31_557_600;
    assert!(blocked.blocked && (289_990..=290_000).contains(&years), "{years}");
    let auditor = limiter.auditor();
    let explained = auditor.explain(blocked.txn_id, 10).await.unwrap();
    assert_eq!((explained.rows[0].passes_at, explained.rows[0].reproduced), (None, Some(true)));
    auditor.bucket("rare", "42").await.unwrap();
    auditor.history(&History::default()).await.unwrap();
    auditor.report(&ReportOn::default(), |_| ()).await.unwrap();
    assert_eq!(verify(&limiter, &Verify::default()).await.1, []);
}

pub async fn a_row_that_was_changed_is_not_reproduced(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(2, 3600), None, "test").await.unwrap();
    let mut txns = Vec::new();
    for _ in 0..3 {
        txns.push(limiter.check(Check::new("login", "a")).await.unwrap().txn_id);
    }
    let explained = limiter.auditor().explain(txns[2], 1).await.unwrap();
    let counted = explained.rows[0].counted.as_ref().unwrap();
    assert_eq!((counted.used, counted.transactions, counted.charges.len()), (2, 2, 1));
    assert_eq!(counted.charges[0].txn_id, Some(txns[1]));
    db.execute("update zone_txn set remaining = 2 where seq = 2").await;
    let changed = limiter.auditor().explain(txns[1], 1).await.unwrap();
    assert_eq!(changed.rows[0].reproduced, Some(false));
    assert_eq!(changed.rows[0].differences.len(), 1);
    let difference = &changed.rows[0].differences[0];
    assert_eq!(
        (difference.column, difference.recorded.as_str(), difference.derived.as_str()),
        ("remaining", "2", "0")
    );
    // The row after it is still what it should be.
    assert_eq!(limiter.auditor().explain(txns[2], 1).await.unwrap().rows[0].reproduced, Some(true));
    db.execute("delete from zone_txn where seq = 1").await;
    let orphan = limiter.auditor().explain(txns[2], 1).await.unwrap();
    assert_eq!((orphan.rows[0].reproduced, orphan.rows[0].left_before), (None, None));
    assert!(orphan.rows[0].missing.as_ref().unwrap().contains("missing"));
    assert!(limiter.auditor().explain(Uuid::now_v7(), 1).await.unwrap_err().is_invalid());
}

/// People who ask know a key, and mostly when.
pub async fn a_decision_is_found_by_its_key_and_a_time(db: Db) {
    let clocked = Clocked::create(&db).await;
    let (limiter, at) = (&clocked.limiter, |seconds: i64| START_US + seconds * 1_000_000);
    let time = |us: i64| DateTime::from_timestamp_micros(us).unwrap();
    clocked.set(START_US).await;
    for zone in ["login", "card", "empty"] {
        limiter.operator().set_zone(zone, &log(2, 60), None, "test").await.unwrap();
    }
    let mut txns = Vec::new();
    for seconds in [1, 2, 3, 100] {
        clocked.set(at(seconds)).await;
        txns.push(limiter.check(Check::new("login", "a")).await.unwrap().txn_id);
    }
    clocked.set(at(101)).await;
    limiter.refund(txns[3]).await.unwrap();
    let elsewhere = limiter.check(Check::new("card", "a").cost(3)).await.unwrap().txn_id;
    let auditor = limiter.auditor();
    let block = async |zone, key| {
        let found = auditor.last_block(zone, key).await.unwrap();
        found.map(|row| (row.zone, row.txn_id))
    };
    // A block is found behind what was allowed and recorded since, and in whichever zone it was.
    assert_eq!(block(Some("login"), "a").await, Some(("login".to_owned(), txns[2])));
    assert_eq!(block(None, "a").await, Some(("card".to_owned(), elsewhere)));
    assert_eq!(block(Some("empty"), "a").await, None);
    assert_eq!(block(None, "nobody").await, None);
    let decision = async |zone, at_us| {
        let found = auditor.last_decision(zone, "a", time(at_us)).await.unwrap();
        found.map(|row| row.txn_id)
    };
    for (at_us, found) in [
        (at(1) - 1, None),
        (at(1), Some(txns[0])),
        (at(3) - 1, Some(txns[1])),
        (at(3), Some(txns[2])),
        (at(99), Some(txns[2])),
        // A refund is no decision.
        (at(500), Some(txns[3])),
    ] {
        assert_eq!(decision(Some("login"), at_us).await, found, "{}", at_us - START_US);
    }
    assert_eq!(decision(None, at(500)).await, Some(elsewhere));
    assert_eq!(decision(None, at(100)).await, Some(txns[3]));
    // More of what is no decision than is read at once.
    for second in 200..230 {
        clocked.set(at(second)).await;
        limiter.operator().ban("login", "a", Duration::from_secs(1), "", "test").await.unwrap();
    }
    assert_eq!(decision(Some("login"), at(500)).await, Some(txns[3]));
    let ban = auditor.last_block(Some("login"), "a").await.unwrap().unwrap();
    assert_eq!((ban.kind, ban.decided_at), (Kind::Ban, time(at(229))));
    limiter.operator().unban("login", "a", "", "test").await.unwrap();
    assert_eq!(block(Some("login"), "a").await, Some(("login".to_owned(), txns[2])));
    assert!(auditor.last_block(Some("nowhere"), "a").await.unwrap_err().is_unknown_zone());
    assert!(auditor.last_block(None, "").await.unwrap_err().is_invalid());
}

/// By its blocked checks and by those before it, and an override by its last check.
pub async fn a_ban_is_explained_by_the_checks_that_brought_it_about(db: Db) {
    let clocked = Clocked::create(&db).await;
    let (limiter, at) = (&clocked.limiter, |seconds: i64| START_US + seconds * 1_000_000);
    let time = |us: i64| DateTime::from_timestamp_micros(us).unwrap();
    let minute = Duration::from_secs(60);
    let rule = BanRule { factor: 2, longest_us: 3 * MINUTE_US, ..BanRule::new(3, minute, minute) };
    clocked.set(START_US).await;
    let policy = log(1, 3600).with_ban(Some(rule));
    limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
    let mut checked = Vec::new();
    // Allowed; blocked too early to count; three that count; a ban; three more and a ban, twice.
    for seconds in [0, 1, 100, 101, 102, 103, 170, 171, 172, 173, 300, 301, 302, 303] {
        clocked.set(at(seconds)).await;
        checked.push((seconds, limiter.check(Check::new("login", "a")).await.unwrap()));
    }
    let txn = |wanted: i64| checked.iter().find(|(seconds, _)| *seconds == wanted).unwrap().1.txn_id;
    let ban = async |seconds: i64, listed: usize| {
        let mut explained = limiter.auditor().explain(txn(seconds), listed).await.unwrap();
        explained.rows.pop().unwrap().ban.unwrap()
    };
    for (led, under, number, length_us, ended) in [
        ([100, 101, 102], 103, 1, MINUTE_US, None),
        ([170, 171, 172], 173, 2, 2 * MINUTE_US, Some(162)),
        ([300, 301, 302], 303, 3, 3 * MINUTE_US, Some(292)),
    ] {
        // The same of its own row and of a check under it.
        for seconds in [led[2], under] {
            let ban = ban(seconds, 20).await;
            let cause = ban.cause.clone().unwrap();
            let found: Vec<_> = cause.checks.iter().map(|check| (check.txn_id, check.at)).collect();
            assert_eq!(found, led.map(|seconds| (txn(seconds), time(at(seconds)))), "{cause:?}");
            assert_eq!((cause.rule, cause.blocked), (rule, 3));
            assert_eq!((cause.number, cause.length_us), (number, length_us));
            assert_eq!(cause.last_ended_at, ended.map(|seconds| time(at(seconds))));
            assert_eq!(cause.counts_from, time(at(led[2])));
            assert_eq!(ban.ends_at, Some(time(at(led[2]) + length_us)));
        }
        let short = ban(under, 1).await.cause.unwrap();
        assert_eq!((short.blocked, short.checks.len(), short.checks[0].txn_id), (3, 1, txn(led[2])));
    }

    clocked.set(at(1000)).await;
    let own = Override { limit: None, ban_exempt: true, for_us: Some(MINUTE_US) };
    limiter.operator().set_override("login", "a", own, "known", "ops").await.unwrap();
    let row = limiter.auditor().history(&History::default().zone("login").key("a").limit(1)).await.unwrap();
    let used = async || {
        let explained = limiter.auditor().explain(row.rows[0].txn_id, 20).await.unwrap();
        let own = explained.rows[0].bucket_override.clone().unwrap();
        assert_eq!((own.actor.as_deref(), own.note.as_deref()), (Some("ops"), Some("known")));
        assert!(own.ban_exempt);
        own.last_used_at
    };
    assert_eq!(used().await, None);
    for seconds in [1001, 1059, 1060, 1100] {
        clocked.set(at(seconds)).await;
        limiter.check(Check::new("login", "a")).await.unwrap();
    }
    assert_eq!(used().await, Some(time(at(1059))));
}
