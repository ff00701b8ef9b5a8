//! Zones whose blocked rows are coalesced: what a flood of blocked checks leaves behind.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::ledger::{History, Kind};
use tallygate::policy::BlockedRows;
use tallygate::{Check, Decision, Limiter, Policy, Result};
use uuid::Uuid;

use crate::db::{Db, log};

async fn limiter(db: &Db, policy: Policy) -> Limiter {
    let limiter = db.limiter_with(db.config()).await;
    set(&limiter, policy).await;
    limiter
}

async fn set(limiter: &Limiter, policy: Policy) {
    let policy = policy.with_blocked_rows(BlockedRows::Coalesced);
    limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
}

async fn flood(limiter: &Limiter, checks: usize) -> Vec<Decision> {
    let decisions = join_all((0..checks).map(|_| limiter.check(Check::new("login", "42")))).await;
    decisions.into_iter().collect::<Result<_>>().unwrap()
}

pub async fn a_flood_of_blocked_checks_is_counted_in_a_few_rows(db: Db) {
    let limiter = limiter(&db, log(5, 3600)).await;
    let first = flood(&limiter, 10).await;
    assert_eq!(first.iter().filter(|d| d.is_allowed()).count(), 5);
    let rows = db.rows().await;
    // Remembered for a second from here on.
    flood(&limiter, 1).await;
    let decisions = flood(&limiter, 1_000).await;
    assert!(decisions.iter().all(|d| d.blocked && d.limit == 5 && d.remaining == 0));
    assert!(decisions.iter().all(|d| d.retry_after().is_some_and(|wait| wait <= Duration::from_secs(3600))));
    limiter.flush().await.unwrap();
    let told = History { zone: Some("login".into()), limit: 1_000, ..History::default() };
    let ledger = limiter.auditor().history(&told).await.unwrap().rows;
    assert_eq!(ledger.iter().filter(|row| row.blocked).map(|row| row.checks).sum::<i32>(), 1_006);
    assert!(ledger.iter().all(|row| (row.kind == Kind::Coalesced)
        == (row.checks > 1 || row.retry_after_us.is_none() && row.blocked)));
    // One for what was counted and one for the check that began it, again for each second that this took.
    assert!(db.rows().await <= rows + 20, "{} rows for 1,000 blocked checks", db.rows().await - rows);
    limiter.flush().await.unwrap();
    assert_eq!(db.rows().await as usize, ledger.len());
    db.assert_ledger_is_whole().await;
}

pub async fn what_is_counted_is_recorded_by_itself_and_what_is_told_is_enough(db: Db) {
    let limiter = limiter(&db, Policy::sliding_log(1, Duration::from_secs(2)).unwrap()).await;
    // The first are decided by the database, the others are told by the memory of that.
    let mut decisions = flood(&limiter, 3).await;
    for _ in 0..60 {
        decisions.extend(flood(&limiter, 50).await);
        // On a slow machine the memory may be over before.
        if decisions.iter().any(|decision| decision.seq.is_none()) {
            break;
        }
    }
    assert!(decisions.iter().any(|decision| decision.seq.is_none()));
    // A caller that waits as long as told passes.
    let wait = decisions.iter().filter_map(Decision::retry_after).max().unwrap();
    tokio::time::sleep(wait).await;
    assert!(limiter.check(Check::new("login", "42")).await.unwrap().is_allowed());
    decisions.extend(flood(&limiter, 3).await);
    decisions.extend(flood(&limiter, 30).await);
    let blocked = decisions.iter().filter(|decision| decision.blocked).count();
    for _ in 0..200 {
        let told = History { blocked: Some(true), limit: 1_000, ..History::default() };
        let sum: i32 =
            limiter.auditor().history(&told).await.unwrap().rows.iter().map(|row| row.checks).sum();
        if sum as usize == blocked {
            return db.assert_ledger_is_whole().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not everything was recorded by itself");
}

/// The bucket has room again as soon as the caller's transaction is committed; what was counted has its row all the same.
pub async fn a_joined_refund_ends_what_was_remembered(db: Db) {
    let limiter = limiter(&db, log(1, 3600)).await;
    let spent = flood(&limiter, 1).await;
    let blocked = flood(&limiter, 2).await.into_iter().chain(flood(&limiter, 3).await).count();
    let mut caller = db.connect_as(tallygate::schema::Role::App).await;
    caller.begin().await;
    limiter.refund_in(caller.joined(), spent[0].txn_id).await.unwrap();
    caller.execute("commit").await.unwrap();
    let decision = limiter.check(Check::new("login", "42")).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    limiter.flush().await.unwrap();
    let told = History { zone: Some("login".into()), blocked: Some(true), ..History::default() };
    let rows = limiter.auditor().history(&told).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.checks).sum::<i32>() as usize, blocked);
    db.assert_ledger_is_whole().await;
}

pub async fn a_txn_of_the_callers_own_always_has_its_row(db: Db) {
    let limiter = limiter(&db, log(2, 3600)).await;
    let passed = Uuid::now_v7();
    limiter.check(Check::new("login", "42").txn(passed)).await.unwrap();
    flood(&limiter, 20).await;
    // Decided before the flood: not what the flood is told.
    let again = limiter.check(Check::new("login", "42").txn(passed)).await.unwrap();
    assert!(again.is_allowed() && again.replayed);
    let blocked = Uuid::now_v7();
    assert!(limiter.check(Check::new("login", "42").txn(blocked)).await.unwrap().blocked);
    let told = History { txn: Some(blocked), ..History::default() };
    assert_eq!(limiter.auditor().history(&told).await.unwrap().rows.len(), 1);
}

pub async fn a_change_of_policy_ends_what_was_remembered(db: Db) {
    let limiter = limiter(&db, log(5, 3600)).await;
    flood(&limiter, 50).await;
    set(&limiter, log(1_000_000, 3600)).await;
    for _ in 0..600 {
        if limiter.check(Check::new("login", "42")).await.unwrap().is_allowed() {
            limiter.flush().await.unwrap();
            return db.assert_ledger_is_whole().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("blocked for ever by a policy that is no more");
}

pub async fn a_zone_may_choose_it_while_it_is_in_use(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("login", &log(1, 3600), None, "test").await.unwrap();
    assert!(flood(&limiter, 10).await.iter().all(|decision| decision.seq.is_some()));
    set(&limiter, log(1, 3600)).await;
    for _ in 0..600 {
        if limiter.check(Check::new("login", "42")).await.unwrap().seq.is_none() {
            limiter.flush().await.unwrap();
            return db.assert_ledger_is_whole().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the choice was not noticed");
}
