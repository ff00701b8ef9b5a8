//! Leases of capacity, as a database grants and keeps them. The core's own tests tell what they are shares of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use fastrand::Rng;
use futures_util::future::join_all;
use tallygate::audit::verify::Verify;
use tallygate::capacity::{Lease, Leases, Region, Want};
use tallygate::ledger::{Entry, History, Kind};
use tallygate::policy::{Limit, Override, Share, Sharing};
use tallygate::schema::Upkeep;
use tallygate::testing::Clock;
use tallygate::{Config, ErrorKind, Limiter, Policy, Reason};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::db::{Clocked, Db, Engine, connected};
use crate::moving::Two;
use crate::rounds;
use crate::server::PATIENCE;

const LENGTH: Duration = Duration::from_secs(60);
const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01

fn capacity(capacity: i64, share: Share) -> Policy {
    let sharing = Sharing::every(share, Duration::from_secs(16));
    Policy::capacity(capacity, LENGTH).unwrap().with_sharing(Some(sharing))
}

async fn limiter(db: &Db, zones: &[(&str, Policy)]) -> Limiter {
    // Tens of clients of one resource stand behind each other, on a machine that has other things to do.
    let limiter = db.limiter_with(db.config()).await;
    for (zone, policy) in zones {
        limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
    }
    limiter
}

/// Every row is derived again, and all that stands is as the rows left it.
async fn verify(limiter: &Limiter) {
    let (_, faults) = crate::verify::verify(limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

/// Something is found.
async fn is_found(limiter: &Limiter) -> bool {
    !crate::verify::verify(limiter, &Verify::default()).await.1.is_empty()
}

/// The name of a cast to a whole number.
fn bigint(db: &Db) -> &'static str {
    if db.engine.is_mysql() { "signed" } else { "bigint" }
}

async fn get(leases: &Leases, zone: &str, client: &str, wants: i64) -> Lease {
    leases.get(Want::new(zone, "resource", client, wants)).await.unwrap()
}

/// Leases go with their resource to a database of another kind, count there, and come back.
pub async fn a_resource_moves_with_its_leases(db: Db) {
    let two = Two::of(db, &[("gpu", capacity(120, Share::Fair))]).await;
    let (here, there) = (two.here.limiter().await.leases(), two.there.limiter().await.leases());
    for (client, wants, has) in [("a", 100, 100), ("b", 60, 20)] {
        assert_eq!(get(&here, "gpu", client, wants).await.has, has);
    }
    two.move_there("gpu", "resource").await.unwrap();
    two.assert_clean().await;
    let refused = here.get(Want::new("gpu", "resource", "a", 100)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    for (client, wants, has) in [("c", 100, 0), ("b", 60, 20), ("a", 100, 40), ("b", 60, 40), ("c", 100, 40)]
    {
        assert_eq!(get(&there, "gpu", client, wants).await.has, has, "{client}");
    }
    there.release(get(&there, "gpu", "a", 100).await).await.unwrap();
    two.move_back("gpu", "resource").await.unwrap();
    for (client, wants, has) in [("c", 100, 60), ("b", 60, 60)] {
        assert_eq!(get(&here, "gpu", client, wants).await.has, has, "{client}");
    }
    two.assert_clean().await;
}

/// Each kind of share, as clients arrive; the published figures of that are in the core's tests.
pub async fn clients_get_their_shares(db: Db) {
    let zones = [
        ("fair", capacity(120, Share::Fair)),
        ("proportional", capacity(120, Share::Proportional)),
        ("static", capacity(100, Share::Static)),
        ("none", capacity(1, Share::None)),
        ("bands", capacity(120, Share::Bands)),
    ];
    let limiter = limiter(&db, &zones).await;
    let leases = limiter.leases();
    let run = async |zone: &str, asked: &[(&str, i64, i32, u8)]| {
        let mut told = Vec::new();
        for &(client, wants, weight, band) in asked {
            let want = Want::new(zone, "resource", client, wants).weight(weight).band(band);
            told.push(leases.get(want).await.unwrap().has);
        }
        told
    };
    let order = [("c0", 1000, 1, 0), ("c1", 1000, 1, 0), ("c0", 1000, 1, 0), ("c1", 1000, 1, 0)];
    assert_eq!(run("fair", &order).await, [120, 0, 60, 60]);
    let three = [("a", 65, 3, 0), ("b", 45, 2, 0), ("c", 20, 1, 0)];
    assert_eq!(run("proportional", &[three, three].concat()).await, [65, 45, 10, 60, 40, 20]);
    assert_eq!(run("static", &[("a", 100, 1, 0), ("b", 10, 1, 0), ("c", 120, 1, 0)]).await, [100, 10, 100]);
    assert_eq!(run("none", &[("a", 10, 1, 0), ("b", 100, 1, 0)]).await, [10, 100]);
    let bands = [("d", 10, 1, 1), ("b", 100, 1, 1), ("c", 100, 1, 1), ("a", 80, 1, 0)];
    assert_eq!(run("bands", &bands).await, [10, 100, 10, 0], "nobody is made to give back what it has");
    let again = [bands[1], bands[2], bands[3], bands[0]];
    assert_eq!(run("bands", &again).await, [15, 15, 80, 10]);

    // A client that wants nothing any more holds nothing; its row says so.
    let last = leases.release(get(&leases, "fair", "c0", 1000).await).await.unwrap();
    assert_eq!((last.wants, last.has, last.remaining, last.length_us), (0, 0, 60, 0));
    let bucket = limiter.auditor().bucket("fair", "resource").await.unwrap().unwrap();
    assert_eq!((bucket.remaining, bucket.limit), (60, 120));
    verify(&limiter).await;
}

/// 64 clients at once, of one resource: whatever is granted, the leases that stand never come to more than there is.
pub async fn clients_at_once_never_hold_more_than_there_is(db: Db) {
    let limiter = limiter(&db, &[("gpu", capacity(100, Share::Fair))]).await;
    let ask = |client: usize| {
        let leases = limiter.leases();
        tokio::spawn(async move {
            for wants in [30, 5, 0, 60] {
                let lease = get(&leases, "gpu", &format!("client {}", client % 16), wants).await;
                assert!(lease.has <= wants && lease.remaining >= 0);
            }
        })
    };
    let asked: Vec<_> = (0..64).map(ask).collect();
    for ask in asked {
        ask.await.unwrap();
    }
    let bigint = bigint(&db);
    let held = format!("select cast(coalesce(sum(amount), 0) as {bigint}) from zone_hold");
    assert!(db.number(&held).await <= 100);
    // After every row that was written, as they are in the ledger. A client of four may have nothing left to give back.
    let rows = ledger(&limiter).await;
    assert_eq!(rows.iter().filter(|row| row.cost > 0).count(), 192);
    let mut held: HashMap<String, i64> = HashMap::new();
    for row in rows {
        held.insert(row.member.unwrap(), row.spent);
        assert!(held.values().sum::<i64>() <= 100, "{held:?}");
    }
    verify(&limiter).await;
    db.assert_ledger_is_whole().await;
}

/// The rows of the resource, oldest first.
async fn ledger(limiter: &Limiter) -> Vec<Entry> {
    let mut rows = Vec::new();
    let mut next = None;
    loop {
        let page = History { before: next, ..History::default().zone("gpu").key("resource").limit(10_000) };
        let page = limiter.auditor().history(&page).await.unwrap();
        rows.extend(page.rows);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    rows.reverse();
    assert!(rows.iter().all(|row| row.kind == Kind::Lease && row.band.is_some()));
    rows
}

/// Long lives under clocks that are set forth and back, with clients that crash, leases that end, a capacity that changes, bans
/// and limits of the resource's own: what has not ended is never more than there is, but for what was granted before there was
/// less; and every row is derived again.
pub async fn a_long_life_never_hands_out_more_than_there_is(db: Db) {
    // A server has several at once, each with a clock and a resource of its own.
    let lives = if db.engine == Engine::Sqlite { 1 } else { 4 };
    let steps = rounds(400, 1_000_000) / lives;
    let mut clocks = Vec::new();
    for _ in 0..lives {
        clocks.push(Clocked::create(&db).await);
    }
    let short =
        join_all(clocks.iter().enumerate().map(|(number, clocked)| live(clocked, number, steps))).await;
    let short: usize = short.into_iter().sum();
    assert!(short > 20, "{short} were short");
    verify(&clocks[0].limiter).await;
}

/// One life, and how often somebody got less than it wanted.
async fn live(clocked: &Clocked, number: usize, steps: usize) -> usize {
    let zone = format!("gpu {number}");
    let operator = clocked.limiter.operator();
    operator.set_zone(&zone, &capacity(100, Share::Fair), None, "test").await.unwrap();
    let (leases, mut rng) = (clocked.limiter.leases(), Rng::with_seed(16 + number as u64));
    let mut now_us = START_US;
    // The units that each client holds until when.
    let mut held: HashMap<u8, (i64, i64)> = HashMap::new();
    let mut short = 0;
    for _ in 0..steps {
        now_us += match rng.u8(..20) {
            0 => rng.i64(0..120_000_000),
            1 => -rng.i64(0..60_000_000),
            _ => rng.i64(0..1_000_000),
        };
        clocked.set(now_us).await;
        match rng.u8(..40) {
            0 => {
                let share = *rng.choice(&[Share::Fair, Share::Proportional, Share::Bands]).unwrap();
                let policy = capacity(rng.i64(10..300), share);
                operator.set_zone(&zone, &policy, None, "test").await.unwrap();
            }
            1 => {
                let limit = Limit::new(rng.i64(1..200), LENGTH, None).unwrap();
                let own =
                    Override { limit: Some(limit), ban_exempt: false, for_us: Some(rng.i64(1..60_000_000)) };
                operator.set_override(&zone, "resource", own, "", "test").await.unwrap();
            }
            2 => {
                let length = Duration::from_secs(rng.u64(1..20));
                operator.ban(&zone, "resource", length, "", "test").await.unwrap();
            }
            _ => {}
        }
        let client = rng.u8(..9);
        let wants = *rng.choice(&[0, 1, 7, 40, 1_000]).unwrap();
        let want = Want::new(&zone, "resource", format!("client {client}"), wants);
        let lease = leases.get(want.weight(rng.i32(1..4)).band(rng.u8(..3))).await.unwrap();
        let at_us = lease.granted_at.timestamp_micros();
        held.retain(|_, (_, ends_us)| *ends_us > at_us);
        let sum = |held: &HashMap<u8, (i64, i64)>| held.values().map(|(has, _)| has).sum::<i64>();
        let before = sum(&held);
        held.insert(client, (lease.has, at_us + lease.length_us));
        assert!(sum(&held) <= lease.capacity.max(before), "{held:?} of {}", lease.capacity);
        assert!(lease.reason != Reason::Banned || lease.has == 0);
        short += usize::from(lease.has < wants);
    }
    short
}

/// A server that is killed, again and again, under clients that ask until they are answered: each grant is there once, and what
/// was granted before still counts afterwards.
pub async fn leases_outlive_a_server_that_is_killed(mut db: Db) {
    let config = Config { deadline: Duration::from_secs(1), ..Config::default() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("gpu", &capacity(100, Share::Fair), None, "test").await.unwrap();
    let (over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let clients = (0..8).map(|client| {
        let (leases, over, answered) = (limiter.leases(), Arc::clone(&over), Arc::clone(&answered));
        tokio::spawn(async move {
            let mut granted = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let wants = *fastrand::choice(&[0, 5, 30, 1_000]).unwrap();
                let want =
                    Want::new("gpu", "resource", format!("client {client}"), wants).txn(Uuid::now_v7());
                let began = Instant::now();
                granted.push(loop {
                    match leases.get(want.clone()).await {
                        Ok(lease) => break lease,
                        Err(error) => assert!(error.is_transient() && began.elapsed() < PATIENCE, "{error}"),
                    }
                });
                answered.fetch_add(1, Ordering::Relaxed);
            }
            granted
        })
    });
    let clients: Vec<_> = clients.collect();
    let engine = db.engine;
    let some_more = async |more: usize| {
        let (enough, began) = (answered.load(Ordering::Relaxed) + more, Instant::now());
        while answered.load(Ordering::Relaxed) < enough {
            assert!(began.elapsed() < PATIENCE, "the clients are not answered");
            sleep(Duration::from_millis(5)).await;
        }
    };
    for _ in 0..rounds(2, 20) {
        some_more(40).await;
        db.server().kill().await;
        db.server().restart(engine).await;
    }
    some_more(40).await;
    over.store(true, Ordering::Relaxed);
    let granted = join_all(clients).await;

    let mut rows = HashMap::new();
    let mut held: HashMap<String, (i64, DateTime<Utc>)> = HashMap::new();
    for row in ledger(&limiter).await {
        held.retain(|_, (_, ends_at)| *ends_at > row.decided_at);
        held.insert(row.member.clone().unwrap(), (row.spent, row.ends_at.unwrap_or(row.decided_at)));
        let sum: i64 = held.values().map(|(has, _)| has).sum();
        assert!(sum <= 100, "{held:?} at row {}", row.seq);
        assert!(rows.insert(row.txn_id, (row.seq, row.spent)).is_none(), "{} is there twice", row.txn_id);
    }
    for lease in granted.into_iter().flat_map(Result::unwrap) {
        let row = rows.remove(&lease.txn_id);
        let is_nothing = lease.replayed && lease.wants == 0 && row.is_none();
        assert!(is_nothing || row == Some((lease.seq, lease.has)), "{lease:?} has {row:?}");
    }
    assert!(rows.is_empty(), "nobody was told of {rows:?}");
    verify(&limiter).await;
}

/// A client that asks again under the same transaction gets the recorded answer; one that asks for something else under
/// it, or refreshes a lease that another process was granted since, is told so.
pub async fn a_lease_is_granted_once_and_followed_by_its_own(db: Db) {
    let limiter = limiter(&db, &[("gpu", capacity(100, Share::Fair))]).await;
    let leases = limiter.leases();
    let want = |wants: i64| Want::new("gpu", "resource", "a", wants);
    let txn = Uuid::now_v7();
    let first = leases.get(want(40).txn(txn)).await.unwrap();
    let again = leases.get(want(40).txn(txn)).await.unwrap();
    // It lasts as long as the first, and no longer.
    assert!(again.length_us > 0 && again.length_us <= first.length_us, "{again:?}");
    assert_eq!(again, Lease { replayed: true, length_us: again.length_us, ..first.clone() });
    let other = leases.get(want(41).txn(txn)).await.unwrap_err();
    assert!(other.is_conflict() && other.to_string().contains("asked for 40 units"), "{other}");
    assert_eq!(db.rows().await, 1);

    let second = leases.get(want(50).after(&first)).await.unwrap();
    assert_eq!(leases.get(want(40).txn(txn)).await.unwrap().length_us, 0, "another stands in its place");
    let stale = leases.get(want(60).after(&first)).await.unwrap_err();
    assert!(stale.is_conflict() && stale.to_string().contains("has another lease"), "{stale}");
    let stale = leases.release(first.clone()).await.unwrap_err();
    assert!(stale.is_conflict(), "{stale}");
    // Somebody else's is not released by a lease that says it is.
    let theirs = get(&leases, "gpu", "b", 10).await;
    let forged = Lease { client: "b".to_owned(), ..second.clone() };
    assert!(leases.release(forged).await.unwrap_err().is_conflict());
    leases.release(second.clone()).await.unwrap();
    assert_eq!(leases.release(theirs).await.unwrap().remaining, 100);
    // One that holds nothing any more may be given back again.
    assert_eq!(leases.release(second).await.unwrap().has, 0);
    verify(&limiter).await;
}

/// Each is refused with what to do, and leaves no row.
pub async fn what_cannot_be_leased_is_refused(db: Db) {
    let log = Policy::sliding_log(5, LENGTH).unwrap();
    let limiter = limiter(&db, &[("gpu", capacity(100, Share::Fair)), ("login", log)]).await;
    let leases = limiter.leases();
    let want = || Want::new("gpu", "resource", "a", 10);
    let told = async |want: Want| leases.get(want).await.unwrap_err();
    for (want, says) in [
        (Want::new("gpu", "resource", "a", -1), "wants -1 is out of range; use 0 to 1099511627776"),
        (Want::new("gpu", "resource", "a", i64::MAX), "wants 9223372036854775807 is out of range"),
        (want().weight(0), "weight 0 is out of range; use 1 to 1000000"),
        (Want::new("gpu", "resource", "", 1), "client is empty"),
        (Want::new("gpu", "resource", "a\n", 1), "control character"),
        (Want::new("gpu", "", "a", 1), "bucket key is empty"),
        (Want::new("gpu", "resource", "a".repeat(256), 1), "256 bytes"),
        (want().txn(Uuid::nil()), "nil UUID"),
        (Want::new("login", "user:1", "a", 1), "a zone of sliding-log hands out no capacity"),
    ] {
        let error = told(want).await;
        assert!(error.is_invalid() && error.to_string().contains(says), "{error}");
    }
    assert!(told(Want::new("nowhere", "resource", "a", 1)).await.is_unknown_zone());
    // A check there is refused by whoever decides it.
    let check = limiter.check(tallygate::Check::new("gpu", "resource")).await.unwrap_err();
    assert!(check.is_invalid() && check.to_string().contains("take a lease of it"), "{check}");
    let peek = limiter.peek("gpu", "resource").await.unwrap_err();
    assert!(peek.is_invalid() && peek.to_string().contains("take a lease of it"), "{peek}");
    assert_eq!(db.rows().await, 0);
    // A zone does not change into another kind.
    let operator = limiter.operator();
    for (zone, policy) in [("gpu", log), ("login", capacity(1, Share::Fair))] {
        let error = operator.set_zone(zone, &policy, None, "test").await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("another zone"), "{error}");
    }
}

/// A change that somebody makes in the rows of leases is found, and what their owner removes is accounted
/// for.
pub async fn leases_are_proven_erased_and_dropped(db: Db) {
    let limiter = limiter(&db, &[("gpu", capacity(100, Share::Fair))]).await;
    let leases = limiter.leases();
    for client in ["a", "b", "secret-client", "a"] {
        get(&leases, "gpu", client, 60).await;
    }
    let bigint = bigint(&db);
    for (column, value) in
        [("spent", "1"), ("checks", "7"), ("band", "9"), ("cost", "61"), ("remaining", "3")]
    {
        let of = format!("select cast({column} as {bigint}) from zone_txn where seq = 2");
        let before = db.number(&of).await;
        db.execute(&format!("update zone_txn set {column} = {value} where seq = 2")).await;
        assert!(is_found(&limiter).await, "{column}");
        db.execute(&format!("update zone_txn set {column} = {before} where seq = 2")).await;
        verify(&limiter).await;
    }
    // A lease that stands otherwise than its rows say.
    db.execute("update zone_hold set amount = amount + 1 where seq = 4").await;
    assert!(is_found(&limiter).await);
    db.execute("update zone_hold set amount = amount - 1 where seq = 4").await;

    let owner = connected(&db.url).await.owner();
    owner.erase("gpu", "resource", "asked for", "test").await.unwrap();
    let left = "select count(*) from zone_txn where member = 'secret-client'";
    assert_eq!(db.number(left).await, 0);
    verify(&limiter).await;
    assert_eq!(get(&leases, "gpu", "a", 60).await.has, 60, "the resource begins anew");
    owner.maintain(Upkeep::default()).await.unwrap();
    verify(&limiter).await;
}

/// Three levels in three databases: what the root has comes to the clients of the leaf, and when it has less, they have so
/// much less within one lease. None of theirs lasts as long as what was lent for it, and without contact they have what is safe.
pub async fn a_tree_has_what_its_root_has_within_one_lease(db: Db) {
    let root = Clocked::create(&db).await;
    let operator = root.limiter.operator();
    operator.set_zone("gpu", &capacity(100, Share::Fair), None, "test").await.unwrap();
    let clock = Clock::at(DateTime::UNIX_EPOCH);
    let below = async |safe| {
        let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
        limiter.operator().set_zone("gpu", &capacity(safe, Share::Fair), None, "test").await.unwrap();
        limiter
    };
    let (middle, leaf) = (below(6).await, below(3).await);
    let mut now_us = START_US;
    let mut later = async |s: i64| {
        now_us += s * 1_000_000;
        clock.set(DateTime::from_timestamp_micros(now_us).unwrap());
        root.set(now_us).await;
    };
    let of = |limiter: &Limiter, server| limiter.leases().for_server("gpu", "resource", server);
    let mut upper = Region::new(&middle, "gpu", "resource", of(&root.limiter, "middle"));
    let mut lower = Region::new(&leaf, "gpu", "resource", of(&middle, "leaf"));
    let leases = leaf.leases();
    let ask = async || [get(&leases, "gpu", "a", 80).await, get(&leases, "gpu", "b", 80).await];
    let has = |leases: &[Lease; 2]| [leases[0].has, leases[1].has];

    later(0).await;
    assert_eq!(has(&ask().await), [3, 0], "nobody was asked yet");
    lower.refresh().await.unwrap();
    assert_eq!(has(&ask().await), [3, 3], "of what is safe above");
    upper.refresh().await.unwrap();
    assert_eq!(lower.refresh().await.unwrap().has, 100);
    ask().await;
    let full = ask().await;
    assert_eq!(has(&full), [50, 50]);
    assert!(full.iter().all(|lease| lease.length() < LENGTH && lease.capacity == 100));

    operator.set_zone("gpu", &capacity(40, Share::Fair), None, "test").await.unwrap();
    let mut last = full.clone();
    for _ in 0..5 {
        later(15).await;
        lower.refresh().await.unwrap();
        upper.refresh().await.unwrap();
        last = ask().await;
    }
    assert!(last[0].granted_at > full[0].granted_at + LENGTH);
    assert_eq!(has(&last), [20, 20]);

    // Nobody wants anything any more: it goes back, up to the root, and nothing is lent meanwhile.
    for lease in last {
        leases.release(lease).await.unwrap();
    }
    assert_eq!((lower.refresh().await.unwrap().has, upper.refresh().await.unwrap().has), (0, 0));
    assert_eq!(root.limiter.leases().wanted("gpu", "resource").await.unwrap(), []);
    let banned = get(&leases, "gpu", "a", 80).await;
    assert_eq!((banned.has, banned.reason), (0, Reason::Banned));
    later(1).await;
    for _ in 0..2 {
        lower.refresh().await.unwrap();
        upper.refresh().await.unwrap();
    }
    lower.refresh().await.unwrap();
    assert_eq!(get(&leases, "gpu", "a", 80).await.has, 40);
    later(60).await;
    assert_eq!(get(&leases, "gpu", "a", 80).await.has, 3, "what was lent has ended");
    for limiter in [&root.limiter, &middle, &leaf] {
        verify(limiter).await;
    }
}

/// Two regions that lend on what a root lends them. Until the leases have ended that their clients had of what was taken from one
/// and lent to the other, all together hold so much more than the root has, and never more than that.
pub async fn a_tree_holds_more_than_its_root_by_what_was_lent_anew_at_most(db: Db) {
    const SAFE: i64 = 1;
    let root = Clocked::create(&db).await;
    root.limiter.operator().set_zone("gpu", &capacity(100, Share::Fair), None, "test").await.unwrap();
    let (clock, mut rng, mut now_us) = (Clock::at(DateTime::UNIX_EPOCH), Rng::with_seed(11), START_US);
    let mut regions = Vec::new();
    for name in ["europe", "asia"] {
        let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
        limiter.operator().set_zone("gpu", &capacity(SAFE, Share::Fair), None, "test").await.unwrap();
        let above = root.limiter.leases().for_server("gpu", "resource", name);
        regions.push((Region::new(&limiter, "gpu", "resource", above), limiter.leases(), Vec::new()));
    }
    let length_us = i64::try_from(LENGTH.as_micros()).unwrap();
    // Europe is lent all, and then a half of that is lent to Asia.
    let want = Some((0, 100));
    let first = [(0, want), (0, None), (0, want), (1, want), (1, None), (0, None), (1, None), (1, want)];
    let (mut held, mut most) = (HashMap::new(), 0);
    for n in 0..rounds(200, 5_000) {
        let (place, asks) = first.get(n).copied().unwrap_or_else(|| {
            now_us += rng.i64(0..9) * 1_000_000;
            (rng.usize(..2), (rng.u8(..3) > 0).then(|| (rng.u8(..3), rng.i64(0..150))))
        });
        clock.set(DateTime::from_timestamp_micros(now_us).unwrap());
        root.set(now_us).await;
        let (region, leases, lent) = &mut regions[place];
        match asks {
            None => lent.push((now_us, region.refresh().await.unwrap().has)),
            Some((client, wants)) => {
                let lease = get(leases, "gpu", &client.to_string(), wants).await;
                held.insert((place, client), (lease.has, now_us + lease.length_us));
            }
        }
        held.retain(|_, (_, ends_us)| *ends_us > now_us);
        let all: i64 = held.values().map(|(has, _)| has).sum();
        let mut anew = 0;
        for (_, _, lent) in &regions {
            let lasts = |(at_us, has): &(i64, i64)| (*at_us > now_us - length_us).then_some(*has);
            let now = lent.last().and_then(lasts).unwrap_or(0);
            anew += lent.iter().filter_map(lasts).max().unwrap_or(0) - now;
        }
        assert!(all <= 100 + 2 * SAFE + anew, "{all} are held, and {anew} were lent anew");
        most = most.max(all);
    }
    assert!(most >= 150, "{most}");
}

/// A client that gives back a lease which it has not, or has given back before, leaves no row, and no resource that never was.
pub async fn what_is_given_back_twice_is_written_once(db: Db) {
    let limiter = limiter(&db, &[("gpu", capacity(100, Share::Fair))]).await;
    let leases = limiter.leases();
    let nothing = get(&leases, "gpu", "nobody", 0).await;
    assert_eq!((nothing.has, nothing.replayed, nothing.seq), (0, true, 0));
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 0);
    let lease = get(&leases, "gpu", "a", 60).await;
    let other = get(&leases, "gpu", "b", 60).await;
    let back = leases.release(lease.clone()).await.unwrap();
    assert_eq!((back.has, back.replayed, back.remaining), (0, false, 60));
    for _ in 0..2 {
        let again = leases.release(lease.clone()).await.unwrap();
        assert_eq!((again.has, again.replayed, again.remaining), (0, true, 60));
    }
    assert_eq!(db.rows().await, 3);
    leases.release(other).await.unwrap();
    assert_eq!(db.rows().await, 4);
    verify(&limiter).await;
}
