//! Queues, as a database keeps them. The core's own tests tell which item is next, which makes room, and what a
//! wait is.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::json;
use tallygate::audit::verify::Verify;
use tallygate::ledger::{History, Kind};
use tallygate::policy::{Limit, Override, Queueing};
use tallygate::queue::{Item, Offer, Queues, Receipt, State, Take, Work};
use tallygate::schema::{Role, Upkeep};
use tallygate::{Config, Limiter, Policy, Reason};
use uuid::Uuid;

use crate::child::{self, Child};
use crate::db::{Clocked, Db, Engine, connected};
use crate::moving::Two;
use crate::proxy::Proxy;
use crate::rounds;

const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A queue of this pace, this burst, this backlog, in which an item is dead after so many takes.
fn queue(rate: i64, burst: i64, backlog: i64, max_takes: i32) -> Policy {
    Policy::new(tallygate::policy::Algorithm::Queue, rate, SECOND, Some(burst))
        .unwrap()
        .with_queueing(Some(Queueing { backlog, max_takes }))
}

async fn verify(limiter: &Limiter) {
    let (_, faults) = crate::verify::verify(limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

async fn is_found(limiter: &Limiter) -> bool {
    !crate::verify::verify(limiter, &Verify::default()).await.1.is_empty()
}

async fn set(limiter: &Limiter, zone: &str, policy: Policy) {
    limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
}

fn offer(cost: i64, band: u8) -> Offer {
    Offer::new("mail", "out").cost(cost).band(band)
}

async fn offered(queues: &Queues, cost: i64, band: u8) -> Uuid {
    let offered = queues.offer(offer(cost, band)).await.unwrap();
    assert!(!offered.blocked, "{offered:?}");
    offered.txn_id
}

async fn take(queues: &Queues, most: u32, visible: Duration) -> Vec<Work> {
    queues.take(Take::new("mail", "out", visible).most(most)).await.unwrap().items
}

async fn item(queues: &Queues, txn: Uuid) -> Item {
    queues.item("mail", "out", txn).await.unwrap().unwrap()
}

fn txns(works: &[Work]) -> Vec<Uuid> {
    works.iter().map(|work| work.txn_id).collect()
}

/// Bands first, then age; no faster than the zone says, and nothing overtakes what is next and too dear.
pub async fn items_are_taken_in_order_at_the_pace(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    set(limiter, "mail", queue(2, 4, 100, 5)).await;
    let queues = limiter.queues();
    clocked.set(START_US).await;
    let [a, b, c, d] = [
        offered(&queues, 1, 1).await,
        offered(&queues, 3, 0).await,
        offered(&queues, 2, 1).await,
        offered(&queues, 1, 1).await,
    ];
    assert_eq!(txns(&take(&queues, 100, MINUTE).await), [b, a], "4 at once, by band and age");
    let none = queues.take(Take::new("mail", "out", MINUTE)).await.unwrap();
    assert_eq!((none.items, none.retry_after_us), (Vec::new(), Some(1_000_000)), "2 units of 2 a second");
    let size = queues.size("mail", "out").await.unwrap();
    assert_eq!((size.waiting, size.away, size.backlog), (3, 4, 100));
    clocked.set(START_US + 999_999).await;
    assert_eq!(take(&queues, 100, MINUTE).await, [], "d fits, but is not next");
    clocked.set(START_US + 1_000_000).await;
    assert_eq!(txns(&take(&queues, 100, MINUTE).await), [c]);
    clocked.set(START_US + 1_500_000).await;
    let last = queues.take(Take::new("mail", "out", MINUTE).worker("worker 1")).await.unwrap().items;
    assert_eq!(txns(&last), [d]);
    assert_eq!((last[0].takes, last[0].cost, last[0].band), (1, 1, 1));
    let nothing = queues.take(Take::new("mail", "out", MINUTE)).await.unwrap();
    assert_eq!((nothing.items, nothing.retry_after_us), (Vec::new(), None));
    verify(limiter).await;
    let all = History::default().zone("mail").key("out");
    let rows = limiter.auditor().history(&all).await.unwrap().rows;
    assert_eq!(rows.len(), 8, "a take that takes nothing leaves no row");
    assert!(rows.iter().any(|row| row.kind == Kind::Take && row.member.as_deref() == Some("worker 1")));
}

/// An offer is made once. A full queue refuses with a wait, or the least important of what waits makes room.
pub async fn a_full_queue_evicts_the_least_important_or_refuses(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    set(limiter, "mail", queue(2, 10, 10, 5)).await;
    let queues = limiter.queues();
    clocked.set(START_US).await;
    let txn = Uuid::now_v7();
    let payload = json!({ "to": "a\u{0}\"b\\", "n": [1, null, 1.5] });
    let made = || offer(4, 2).txn(txn).payload(&payload).deadline(MINUTE);
    let first = queues.offer(made()).await.unwrap();
    let again = queues.offer(made()).await.unwrap();
    assert_eq!((first.replayed, again.replayed, again.seq), (false, true, first.seq));
    for other in [made().cost(5), made().band(1), made().deadline(SECOND), made().payload(&json!(1))] {
        let error = queues.offer(other).await.unwrap_err();
        assert!(error.is_conflict() && error.to_string().contains("offered something else"), "{error}");
    }
    let b = offered(&queues, 3, 2).await;
    let c = offered(&queues, 3, 3).await;
    assert_eq!(db.rows().await, 3);

    // 10 of 10. Nothing less important waits: the wait is for 4 units, of which 10 can be taken at once; one unit's time at least.
    let full = queues.offer(offer(4, 3)).await.unwrap();
    assert_eq!((full.blocked, full.reason, full.remaining), (true, Reason::OverLimit, 0));
    assert_eq!(full.retry_after_us, Some(500_000));
    assert_eq!(item(&queues, full.txn_id).await.state, State::Refused);
    let never = queues.offer(offer(11, 0)).await.unwrap();
    assert_eq!((never.reason, never.retry_after_us), (Reason::ExceedsLimit, None));
    // The newest of the least important first: 3, then 3 of band 2, and its older one stays.
    let important = queues.offer(offer(5, 1)).await.unwrap();
    assert_eq!((important.evicted, important.remaining), (vec![c, b], 1));
    let gone = item(&queues, b).await;
    assert_eq!((gone.state, gone.evicted_by), (State::Evicted, Some(important.txn_id)));
    // All or none: 4 waits, and 9 are needed.
    let none = queues.offer(offer(10, 1)).await.unwrap();
    assert_eq!((none.blocked, none.evicted), (true, Vec::new()));
    // A taken item is never evicted.
    let works = take(&queues, 100, MINUTE).await;
    assert_eq!(txns(&works), [important.txn_id, txn]);
    assert_eq!(works[1].payload, Some(payload.clone()));
    let held = queues.offer(offer(5, 0)).await.unwrap();
    assert!(held.blocked);
    // Its deadline is over, but a worker has it. Then it is given back.
    clocked.set(START_US + 60_000_000 - 1).await;
    queues.extend("mail", "out", works[1].receipt, MINUTE).await.unwrap();
    clocked.set(START_US + 61_000_000).await;
    assert_eq!(item(&queues, txn).await.state, State::Taken);
    let back = queues.release("mail", "out", works[1].receipt, Duration::ZERO).await.unwrap();
    assert_eq!((back.state, item(&queues, txn).await.state), (State::Expired, State::Expired));
    assert_eq!(queues.size("mail", "out").await.unwrap().waiting, 5, "that of band 1 waits again");
    verify(limiter).await;
}

/// A worker that was overtaken is told so, whatever it says; the one that has the item says what becomes of
/// it, once.
pub async fn receipts_of_the_overtaken_are_refused(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    set(limiter, "mail", queue(100, 100, 10, 3)).await;
    let queues = limiter.queues();
    clocked.set(START_US).await;
    let txn = offered(&queues, 1, 0).await;
    let first = take(&queues, 1, SECOND).await.remove(0).receipt;
    let lost = async |receipt: Receipt| {
        for error in [
            queues.done("mail", "out", receipt).await.unwrap_err(),
            queues.extend("mail", "out", receipt, SECOND).await.unwrap_err(),
            queues.release("mail", "out", receipt, SECOND).await.unwrap_err(),
        ] {
            assert!(error.is_conflict(), "{error}");
        }
    };
    // Its time is over, and nobody has taken it: it may be done still, but neither kept nor given back.
    clocked.set(START_US + 1_000_000).await;
    assert!(queues.extend("mail", "out", first, SECOND).await.unwrap_err().is_conflict());
    assert!(queues.release("mail", "out", first, SECOND).await.unwrap_err().is_conflict());
    assert_eq!(item(&queues, txn).await.state, State::Waiting);
    let second = Take::new("mail", "out", SECOND).worker("one/w");
    let second = queues.take(second).await.unwrap().items.remove(0);
    assert_eq!((second.txn_id, second.takes), (txn, 2));
    lost(first).await;
    // Nor may a receipt that was made up, of another item or another queue.
    lost(Receipt { seq: first.seq, ..second.receipt }).await;
    lost(Receipt { seq: 4_711, ..second.receipt }).await;
    lost(Receipt { txn_id: Uuid::now_v7(), ..second.receipt }).await;
    queues.offer(Offer::new("mail", "other")).await.unwrap();
    let other = queues.take(Take::new("mail", "other", MINUTE)).await.unwrap().items.remove(0);
    lost(other.receipt).await;
    // Where owners are told apart, a receipt is believed from the owner of its worker alone.
    for stranger in ["two", "on", "w", "one/w/x"] {
        let told = queues.of(stranger).extend("mail", "out", second.receipt, MINUTE).await;
        assert!(told.unwrap_err().is_conflict(), "{stranger}");
    }

    let kept = queues.of("one").extend("mail", "out", second.receipt, MINUTE).await.unwrap();
    assert_eq!(kept.until.unwrap().timestamp_micros(), START_US + 61_000_000);
    clocked.set(START_US + 30_000_000).await;
    let back = queues.release("mail", "out", second.receipt, SECOND).await.unwrap();
    assert_eq!(back.state, State::Delayed);
    let again = queues.release("mail", "out", second.receipt, SECOND).await.unwrap();
    assert_eq!((again.replayed, again.seq), (true, back.seq));
    assert_eq!(take(&queues, 1, SECOND).await, []);
    clocked.set(START_US + 31_000_000).await;
    let third = take(&queues, 1, SECOND).await.remove(0);
    assert_eq!(third.takes, 3);
    lost(second.receipt).await;
    let done = queues.done("mail", "out", third.receipt).await.unwrap();
    let again = queues.done("mail", "out", third.receipt).await.unwrap();
    assert_eq!((done.replayed, again.replayed, again.seq), (false, true, done.seq));
    assert_eq!((done.remaining, again.remaining), (10, 10), "its cost is freed once");
    assert!(queues.release("mail", "out", third.receipt, SECOND).await.unwrap_err().is_conflict());
    assert_eq!(item(&queues, txn).await.state, State::Done);

    // After the third take it is dead: by its time, or when it is given back.
    let dead = offered(&queues, 4, 1).await;
    let (buried, payload) = (Uuid::now_v7(), json!("why"));
    queues.offer(offer(5, 0).txn(buried).payload(&payload)).await.unwrap();
    for n in 1..=3 {
        let works = take(&queues, 2, SECOND).await;
        assert_eq!(txns(&works), [buried, dead]);
        if n == 3 {
            let last = queues.release("mail", "out", works[0].receipt, SECOND).await.unwrap();
            assert_eq!((last.state, last.until, last.remaining), (State::Dead, None, 6));
        }
        clocked.set(START_US + 40_000_000 + n * 1_000_000).await;
        if n == 3 {
            let receipt = works[1].receipt;
            assert!(queues.extend("mail", "out", receipt, SECOND).await.unwrap_err().is_conflict());
            assert!(queues.release("mail", "out", receipt, SECOND).await.unwrap_err().is_conflict());
        }
    }
    assert_eq!(take(&queues, 2, SECOND).await, []);
    let all = queues.dead("mail", "out", None, 10).await.unwrap();
    assert_eq!(all.iter().map(|item| item.txn_id).collect::<Vec<_>>(), [buried, dead]);
    assert_eq!((all[0].payload.as_ref(), all[0].takes, all[0].state), (Some(&payload), 3, State::Dead));
    assert_eq!(queues.dead("mail", "out", Some(buried), 10).await.unwrap(), all[1..]);
    assert_eq!(queues.size("mail", "out").await.unwrap().waiting, 0, "what is dead counts no more");
    verify(limiter).await;

    // Tried again it is as new, at its old place, if there is room.
    let redrive = async |txn| queues.redrive("mail", "out", txn, "ann").await;
    let refused = async |txn, why: &str| {
        let error = redrive(txn).await.unwrap_err();
        assert!(error.is_conflict() && error.to_string().contains(why), "{why}: {error}");
    };
    refused(Uuid::now_v7(), "offered nothing to the queue").await;
    let again = redrive(buried).await.unwrap();
    assert_eq!((again.state, again.remaining, again.replayed), (State::Waiting, 5, false));
    let same = redrive(buried).await.unwrap();
    assert_eq!((same.replayed, same.seq), (true, again.seq));
    let full = offered(&queues, 3, 0).await;
    refused(dead, "its 4 units are 2 more than there is room for").await;
    let works = take(&queues, 2, SECOND).await;
    assert_eq!(txns(&works), [buried, full]);
    assert_eq!((works[0].takes, works[0].payload.as_ref()), (1, Some(&payload)));
    refused(buried, "it is away, and not dead").await;
    queues.done("mail", "out", works[0].receipt).await.unwrap();
    refused(buried, "has gone from its queue: done").await;
    queues.done("mail", "out", works[1].receipt).await.unwrap();
    assert_eq!(redrive(dead).await.unwrap().state, State::Waiting);
    let rows = limiter.auditor().history(&History::default().txn(dead)).await.unwrap().rows;
    assert_eq!((rows[0].kind, rows[0].member.as_deref()), (Kind::Requeue, Some("ann")));
    for (by, said) in [("", "is empty"), ("a\n", "has a control character")] {
        let error = queues.redrive("mail", "out", dead, by).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(said), "{error}");
    }
    verify(limiter).await;
}

/// Each is refused with what to do, and leaves no row.
pub async fn what_cannot_be_queued_is_refused(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, "mail", queue(10, 10, 10, 5)).await;
    set(&limiter, "login", Policy::sliding_log(5, MINUTE).unwrap()).await;
    let queues = limiter.queues();
    let long = json!("x".repeat(8 * 1024 - 1));
    for (offer, says) in [
        (offer(-1, 0), "cost -1 is out of range; use 1 to 1099511627776"),
        (offer(0, 0), "cost 0 is out of range"),
        (offer(i64::MAX, 0), "cost 9223372036854775807 is out of range"),
        (Offer::new("mail", ""), "bucket key is empty"),
        (Offer::new("mail", "a\n"), "control character"),
        (offer(1, 0).deadline(Duration::ZERO), "deadline of 0s is out of range"),
        (offer(1, 0).deadline(Duration::MAX), "deadline of 106751991d 4h 54s 775ms 807us"),
        (offer(1, 0).payload(&long), "a payload of 8193 bytes is too long; use at most 8192"),
        (offer(1, 0).txn(Uuid::nil()), "nil UUID"),
        (Offer::new("login", "user:1"), "a zone of sliding-log has no items"),
    ] {
        let error = queues.offer(offer).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(says), "{error}");
    }
    assert!(queues.offer(Offer::new("nowhere", "out")).await.unwrap_err().is_unknown_zone());
    let take = || Take::new("mail", "out", SECOND);
    for (take, says) in [
        (take().most(0), "0 items at once are out of range; use 1 to 100"),
        (take().most(101), "101 items at once"),
        (Take::new("mail", "out", Duration::ZERO), "visibility of 0s is out of range"),
        (take().worker(""), "worker is empty"),
        (take().worker("w".repeat(256)), "256 bytes"),
        (Take::new("login", "user:1", SECOND), "a zone of sliding-log has no items"),
    ] {
        let error = queues.take(take).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(says), "{error}");
    }
    for text in [
        "",
        "7",
        "0-0199",
        "-1-01890a5d-ac96-774b-bcce-b302099a8057",
        "x-01890a5d-ac96-774b-bcce-b302099a8057",
    ] {
        assert!(text.parse::<Receipt>().unwrap_err().is_invalid(), "{text}");
    }
    let receipt = Receipt { seq: 1, txn_id: Uuid::now_v7() };
    let extend = queues.extend("mail", "out", receipt, Duration::ZERO).await.unwrap_err();
    assert!(extend.is_invalid(), "{extend}");
    let foreign = queues.done("mail", "out", receipt).await.unwrap_err();
    assert!(foreign.is_conflict() && foreign.to_string().contains("of no item that was taken"), "{foreign}");
    assert_eq!(queues.item("mail", "out", Uuid::now_v7()).await.unwrap(), None);
    assert!(queues.dead("mail", "out", None, 0).await.unwrap_err().is_invalid());
    let check = limiter.check(tallygate::Check::new("mail", "out")).await.unwrap_err();
    assert!(check.is_invalid() && check.to_string().contains("offer an item to it"), "{check}");
    let peek = limiter.peek("mail", "out").await.unwrap_err();
    assert!(peek.is_invalid() && peek.to_string().contains("offer an item to it"), "{peek}");
    assert_eq!(db.rows().await, 0);
    for (zone, policy) in [("mail", Policy::sliding_log(5, MINUTE).unwrap()), ("login", queue(1, 1, 1, 1))] {
        let error = limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("another zone"), "{error}");
    }
    // The longest payload that there can be.
    let most = json!("x".repeat(8 * 1024 - 2));
    queues.offer(offer(1, 0).payload(&most)).await.unwrap();
    assert_eq!(queues.take(take()).await.unwrap().items[0].payload, Some(most));
}

/// A long life under a clock that is set forth and back, with a policy that changes, bans, and limits of the queue's own: the backlog
/// is never exceeded, who takes an item is its only holder, and every row is derived again, and what stands with them.
pub async fn a_long_life_of_a_queue_is_derived_again(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    let operator = limiter.operator();
    set(limiter, "mail", queue(5, 10, 40, 3)).await;
    let (queues, mut rng) = (limiter.queues(), Rng::with_seed(162));
    let mut now_us = START_US;
    let mut receipts: Vec<Receipt> = Vec::new();
    // The time until which somebody has an item.
    let mut held: HashMap<Uuid, i64> = HashMap::new();
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for round in 0..rounds(500, 20_000) {
        now_us += match rng.u8(..20) {
            0 => rng.i64(0..20_000_000),
            1 => -rng.i64(0..1_000_000),
            _ => rng.i64(0..500_000),
        };
        clocked.set(now_us).await;
        let mut count = |what| *seen.entry(what).or_default() += 1;
        match rng.u8(..40) {
            0 => {
                set(limiter, "mail", queue(rng.i64(1..20), rng.i64(4..20), rng.i64(10..60), rng.i32(1..4)))
                    .await
            }
            1 => {
                let limit = Limit::new(rng.i64(1..50), SECOND, Some(rng.i64(4..50))).unwrap();
                let own =
                    Override { limit: Some(limit), ban_exempt: false, for_us: Some(rng.i64(1..9_000_000)) };
                operator.set_override("mail", "out", own, "", "test").await.unwrap();
            }
            2 => drop(
                operator
                    .ban("mail", "out", Duration::from_millis(rng.u64(1..2_000)), "", "test")
                    .await
                    .unwrap(),
            ),
            3..18 => {
                let mut new = offer(rng.i64(1..7), rng.u8(..4));
                if rng.bool() {
                    new = new.deadline(Duration::from_millis(rng.u64(1..9_000)));
                }
                if rng.bool() {
                    new = new.payload(&json!(round));
                }
                let offered = queues.offer(new).await.unwrap();
                let at_us = offered.offered_at.timestamp_micros();
                assert!(offered.blocked != offered.reason.allows());
                assert!(
                    offered.evicted.iter().all(|txn| held.get(txn).is_none_or(|until_us| *until_us <= at_us))
                );
                count(if offered.blocked { "refused" } else { "offered" });
                if !offered.evicted.is_empty() {
                    count("evicted");
                }
            }
            18..30 => {
                let visible = Duration::from_millis(rng.u64(1..5_000));
                for work in take(&queues, rng.u32(1..5), visible).await {
                    let at_us = work.taken_at.timestamp_micros();
                    let before = held.insert(work.txn_id, at_us + work.visible_us);
                    assert!(before.is_none_or(|until_us| until_us <= at_us), "two hold {}", work.txn_id);
                    receipts.push(work.receipt);
                    count("taken");
                }
            }
            38 => {
                let dead = queues.dead("mail", "out", None, 1_000).await.unwrap();
                if let Some(item) = rng.choice(&dead) {
                    match queues.redrive("mail", "out", item.txn_id, "test").await {
                        Ok(_) => count("redriven"),
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            }
            _ if receipts.is_empty() => {}
            said => {
                let receipt =
                    receipts.swap_remove(rng.usize(receipts.len().saturating_sub(4)..receipts.len()));
                let told = match said {
                    30..34 => {
                        queues.extend("mail", "out", receipt, Duration::from_millis(rng.u64(1..9_000))).await
                    }
                    34..37 => queues.done("mail", "out", receipt).await,
                    _ => {
                        queues.release("mail", "out", receipt, Duration::from_millis(rng.u64(0..2_000))).await
                    }
                };
                match told {
                    Ok(told) => {
                        held.remove(&told.txn_id);
                        if let (State::Taken, Some(until)) = (told.state, told.until) {
                            held.insert(told.txn_id, until.timestamp_micros());
                            receipts.push(receipt);
                        }
                        count(told.state.as_str());
                    }
                    Err(error) => {
                        assert!(error.is_conflict(), "{error}");
                        count("lost");
                    }
                }
            }
        }
        if round % rounds(100, 1_000) == 0 {
            verify(limiter).await;
        }
    }
    verify(limiter).await;
    let dead = queues.dead("mail", "out", None, 1_000).await.unwrap();
    for what in ["offered", "refused", "evicted", "taken", "done", "delayed", "lost", "redriven"] {
        assert!(seen.get(what).is_some_and(|count| *count > 2), "{what}: {seen:?}");
    }
    assert!(!dead.is_empty());
    db.assert_ledger_is_whole().await;
}

/// Items, and workers in processes of their own that are killed at random while they work: each item is done once, or dead, and
/// nobody was done with what another one had.
pub async fn each_item_is_done_once_or_dead_however_workers_are_killed(db: Db) {
    let limiter = db.limiter_with(Config { connections: 8, ..db.config() }).await;
    let count = rounds(400, 100_000);
    let kills = rounds(12, 200);
    set(&limiter, "mail", queue(1 << 30, 1 << 30, 1 << 30, 2)).await;
    let queues = limiter.queues();
    let each = join_all((0..8).map(async |part| {
        let mut offered = Vec::new();
        for n in (part..count).step_by(8) {
            let offer = offer(1, (n % 3) as u8).payload(&json!(n));
            offered.push(queues.offer(offer).await.unwrap().txn_id);
        }
        offered
    }));
    let all: HashSet<Uuid> = each.await.into_iter().flatten().collect();
    assert_eq!(all.len(), count);

    let work = child::Work::Worker(child::Worker {
        url: db.url_as(tallygate::schema::Role::App),
        zone: "mail".to_owned(),
        queue: "out".to_owned(),
        visible: Duration::from_secs(rounds(2, 20) as u64),
    });
    let start = async || {
        let mut child = Child::start(&work).await;
        child.go().await;
        child
    };
    let (mut workers, mut rng) = (join_all((0..16).map(|_| start())).await, Rng::with_seed(7));
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.u64(50..400))).await;
        let place = rng.usize(..workers.len());
        workers[place].kill().await;
        workers[place] = start().await;
    }
    // The others go on until nothing is left.
    for worker in workers {
        worker.end().await;
    }
    let size = queues.size("mail", "out").await.unwrap();
    assert_eq!((size.waiting, size.away), (0, 0));
    let of = |kind: &str| format!("select count(*) from zone_txn where kind = '{kind}'");
    let done = db.number(&of("done")).await;
    let items = "select count(distinct txn_id) from zone_txn where kind = 'done'";
    assert_eq!(done, db.number(items).await, "none was done twice");
    // Since nothing waits or is away, all that are left are dead, whether that was put down or not.
    let dead = db.number("select count(*) from zone_item").await;
    assert_eq!(done + dead, i64::try_from(count).unwrap());
    let takes = db.number(&of("take")).await;
    println!("{count} items, {kills} kills: {done} done, {dead} dead, {takes} takes");
    verify(&limiter).await;
    db.assert_ledger_is_whole().await;
}

/// A change that somebody makes in rows of queues, or in what stands, is found, and what their owner removes is
/// accounted for.
pub async fn queues_are_proven_erased_and_dropped(db: Db) {
    let limiter = db.limiter().await;
    let fast = Policy::queue(1 << 20, Duration::from_micros(1), 20).unwrap();
    set(&limiter, "mail", fast.with_queueing(Some(Queueing { backlog: 20, max_takes: 2 }))).await;
    let queues = limiter.queues();
    // Rows: offers 1 to 4, 5 evicts 4 (6), takes 7 and 8, an extension 9, a release 10, a take 11, done 12.
    for (cost, band) in [(3, 0), (4, 1), (5, 1), (6, 3), (7, 0)] {
        queues.offer(offer(cost, band).payload(&json!({ "secret": cost }))).await.unwrap();
    }
    let works = queues.take(Take::new("mail", "out", MINUTE).most(2).worker("worker 7")).await.unwrap().items;
    queues.extend("mail", "out", works[0].receipt, MINUTE).await.unwrap();
    queues.release("mail", "out", works[1].receipt, Duration::ZERO).await.unwrap();
    let last = take(&queues, 1, MINUTE).await.remove(0);
    queues.done("mail", "out", last.receipt).await.unwrap();
    verify(&limiter).await;
    let kinds: Vec<_> = {
        let all = History::default().zone("mail").key("out");
        let rows = limiter.auditor().history(&all).await.unwrap().rows;
        rows.iter().rev().map(|row| row.kind).collect()
    };
    use Kind::{Done, Evict, Extend, Offer as Offers, Requeue, Take as Takes};
    assert_eq!(
        kinds,
        [Offers, Offers, Offers, Offers, Offers, Evict, Takes, Takes, Extend, Requeue, Takes, Done]
    );
    let bigint = if db.engine.is_mysql() { "signed" } else { "bigint" };
    for seq in [1, 6, 7, 9, 10, 12] {
        for (column, other) in [
            ("cost", "cost + 1"),
            ("remaining", "remaining + 1"),
            ("band", "band + 1"),
            ("checks", "checks + 1"),
        ] {
            let of = format!("select cast({column} as {bigint}) from zone_txn where seq = {seq}");
            let before = db.number(&of).await;
            db.execute(&format!("update zone_txn set {column} = {other} where seq = {seq}")).await;
            assert!(is_found(&limiter).await, "{column} of {seq}");
            db.execute(&format!("update zone_txn set {column} = {before} where seq = {seq}")).await;
        }
    }
    verify(&limiter).await;
    // These stand otherwise than the rows say: 3, taken; 4 and 5, waiting; and how much that is.
    for (change, back) in [
        (
            "update zone_item set cost = cost + 1 where seq = 2",
            "update zone_item set cost = cost - 1 where seq = 2",
        ),
        (
            "update zone_item set band = band + 1 where seq = 2",
            "update zone_item set band = band - 1 where seq = 2",
        ),
        (
            "update zone_item set takes = takes + 1 where seq = 3",
            "update zone_item set takes = takes - 1 where seq = 3",
        ),
        (
            "update zone_item set receipt = receipt + 1 where receipt = 7",
            "update zone_item set receipt = receipt - 1 where receipt = 8",
        ),
        (
            "update zone_item set place = 'dead' where seq = 3",
            "update zone_item set place = 'waiting' where seq = 3",
        ),
        ("update zone_queue set waiting = waiting + 1", "update zone_queue set waiting = waiting - 1"),
        ("update zone_queue set away = away + 1", "update zone_queue set away = away - 1"),
        // And these of a queue that there is not.
        (
            "insert into zone_queue (zone_id, bucket_key, waiting, away)
            select q.zone_id, 'nobody', q.waiting, q.away from zone_queue q",
            "delete from zone_queue where bucket_key = 'nobody'",
        ),
        (
            "insert into zone_item (zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes,
                is_last, receipt)
            select i.zone_id, 'nobody', i.seq, i.txn_id, i.cost, i.band, i.offered_at, i.deadline_at, i.place, i.due_at, i.takes,
                i.is_last, i.receipt
            from zone_item i where i.seq = 2",
            "delete from zone_item where bucket_key = 'nobody'",
        ),
    ] {
        db.execute(change).await;
        assert!(is_found(&limiter).await, "{change}");
        db.execute(back).await;
        verify(&limiter).await;
    }
    // A payload that was changed is found, and not handed out.
    db.execute("update zone_item set payload = '{\"secret\":5}' where seq = 2").await;
    assert!(is_found(&limiter).await);
    let changed = queues.take(Take::new("mail", "out", MINUTE)).await.unwrap_err();
    assert!(changed.to_string().contains("was changed from outside"), "{changed}");
    db.execute("update zone_item set payload = '{\"secret\":4}' where seq = 2").await;
    verify(&limiter).await;

    let owner = connected(&db.url).await.owner();
    owner.erase("mail", "out", "asked for", "test").await.unwrap();
    assert_eq!(db.number("select count(*) from zone_txn where member = 'worker 7'").await, 0);
    assert_eq!(db.number("select count(*) from zone_item").await, 0);
    assert_eq!(db.number("select count(*) from zone_queue").await, 0);
    verify(&limiter).await;
    offered(&queues, 20, 0).await;
    // A queue in which something waits is not idle, and its rows stay.
    let moment = Duration::from_millis(1);
    let upkeep = Upkeep::default().idle(moment);
    tokio::time::sleep(5 * moment).await;
    owner.maintain(upkeep).await.unwrap();
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 1, "something waits in it");
    let keep = owner.maintain(Upkeep::default().keep(moment)).await.unwrap_err();
    assert!(keep.is_invalid() && keep.to_string().contains("too short"), "{keep}");
    let work = take(&queues, 1, MINUTE).await.remove(0);
    queues.done("mail", "out", work.receipt).await.unwrap();
    tokio::time::sleep(5 * moment).await;
    owner.maintain(upkeep).await.unwrap();
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 0);
    verify(&limiter).await;
    offered(&queues, 20, 0).await;
    assert!(queues.offer(offer(1, 0)).await.unwrap().blocked);
    verify(&limiter).await;
}

/// An item is dead for all who look as soon as the time of its last take is over, whether anybody else calls or not. Its last
/// worker may still say that it is done, until it is tried again.
pub async fn the_dead_are_seen_at_once_and_may_still_be_done(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, "mail", queue(1 << 20, 1 << 20, 20, 1)).await;
    let queues = limiter.queues();
    let dead = async |after| txns_of(&queues.dead("mail", "out", after, 2).await.unwrap());
    let mut txns = Vec::new();
    for (cost, band) in [(1, 1), (2, 0), (3, 0)] {
        txns.push(offered(&queues, cost, band).await);
    }
    let moment = Duration::from_millis(1);
    let works = queues.take(Take::new("mail", "out", moment).most(3)).await.unwrap().items;
    tokio::time::sleep(10 * moment).await;
    assert_eq!(dead(None).await, [txns[1], txns[2]]);
    assert_eq!(dead(Some(txns[2])).await, [txns[0]]);
    let refused = queues.extend("mail", "out", works[0].receipt, moment).await.unwrap_err();
    assert!(refused.is_conflict() && refused.to_string().contains("is dead"), "{refused}");
    let done = queues.done("mail", "out", works[0].receipt).await.unwrap();
    assert_eq!((done.state, done.until), (State::Done, None));
    assert_eq!(dead(None).await, [txns[2], txns[0]]);
    let tried = queues.redrive("mail", "out", txns[2], "ann").await.unwrap();
    assert_eq!((tried.state, tried.until), (State::Waiting, None));
    let lost = queues.done("mail", "out", works[1].receipt).await.unwrap_err();
    assert!(lost.is_conflict() && lost.to_string().contains("tried again"), "{lost}");
    let back = queues.release("mail", "out", works[1].receipt, moment).await.unwrap_err();
    assert!(back.is_conflict(), "it was not given back by its worker: {back}");
    assert_eq!(dead(None).await, [txns[0]]);
    verify(&limiter).await;
}

/// A call that records nothing changes nothing: where the clock goes back behind it, the next rows follow from those before.
pub async fn a_look_at_a_queue_leaves_no_trace_of_its_time(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    set(limiter, "mail", queue(1 << 20, 1 << 20, 20, 1)).await;
    let queues = limiter.queues();
    clocked.set(START_US).await;
    queues.offer(offer(3, 0).deadline(10 * SECOND)).await.unwrap();
    let dead = offered(&queues, 2, 0).await;
    clocked.set(START_US + 1_000_000).await;
    let lasting = take(&queues, 2, 2 * SECOND).await.remove(1);
    assert_eq!(lasting.txn_id, dead);
    clocked.set(START_US + 20_000_000).await;
    assert_eq!(take(&queues, 1, SECOND).await, []);
    clocked.set(START_US + 2_000_000).await;
    let offered = queues.offer(offer(2, 0)).await.unwrap();
    assert_eq!(offered.remaining, 20 - 3 - 2 - 2);
    queues.done("mail", "out", lasting.receipt).await.unwrap();
    verify(limiter).await;
}

/// More is due at once than one transaction settles, and no row comes before what was settled without one.
pub async fn what_is_due_at_once_is_settled_in_steps(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    set(limiter, "mail", queue(1 << 30, 1 << 30, 1 << 30, 1)).await;
    let queues = limiter.queues();
    clocked.set(START_US).await;
    let many = rounds(1_010, 30_010);
    for _ in 0..many {
        queues.offer(offer(1, 0).deadline(MINUTE)).await.unwrap();
    }
    clocked.set(START_US + 120_000_000).await;
    let size = queues.size("mail", "out").await.unwrap();
    assert_eq!((size.waiting, size.away), (0, 0));
    let items = "select count(*) from zone_item";
    assert_eq!(db.number(items).await as usize, many, "a look puts nothing down");
    assert_eq!(take(&queues, 1, MINUTE).await, []);
    assert_eq!(db.number(items).await, 10, "what the last transaction settles goes with a row");
    verify(limiter).await;
    // The clock goes back behind all of that.
    clocked.set(START_US + 1_000_000).await;
    let last = queues.offer(offer(2, 0)).await.unwrap();
    assert_eq!(last.remaining, (1 << 30) - 2);
    assert_eq!(db.number(items).await, 1);
    assert_eq!(txns(&take(&queues, 1, MINUTE).await), [last.txn_id]);
    verify(limiter).await;
    db.assert_ledger_is_whole().await;
}

/// A session that ends while it settles, after whichever statement, leaves a queue that goes on.
pub async fn a_queue_goes_on_where_a_session_that_settled_it_was_killed(db: Db) {
    let limiter = db.limiter_with(Config { connections: 2, ..db.config() }).await;
    set(&limiter, "mail", queue(1 << 30, 1 << 30, 1 << 30, 1_000)).await;
    let queues = limiter.queues();
    for _ in 0..1_010 {
        offered(&queues, 1, 0).await;
    }
    let proxy = Proxy::before(&db.url_of_own_sessions(Role::App)).await;
    let mut killer = db.connect().await;
    let (mut killed, mut halves) = (0, 0);
    let step = rounds(11, 1);
    for answers in (fastrand::usize(..step)..).step_by(step) {
        // All of it is taken, and its time is over.
        while !take(&queues, 100, 5 * SECOND).await.is_empty() {}
        while queues.size("mail", "out").await.unwrap().away > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let url = proxy.url.clone();
        let work = async move {
            let limiter = connected(&url).await;
            limiter.queues().take(Take::new("mail", "out", Duration::from_millis(1))).await.map(drop)
        };
        let is_done = proxy.ends_within(answers, work, &db, &mut killer).await;
        let left = killer.number("select count(*) from zone_item where place = 'away'").await;
        halves += i32::from((1..1_010).contains(&left));
        verify(&limiter).await;
        assert_eq!(take(&queues, 1, Duration::from_millis(1)).await.len(), 1);
        if is_done {
            break;
        }
        killed += 1;
    }
    assert!(killed > 3 && halves > 0, "{killed} {halves}");
    verify(&limiter).await;
    db.assert_ledger_is_whole().await;
}

/// A call that finds nothing of a queue leaves nothing of it.
pub async fn a_call_that_finds_no_queue_leaves_none(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, "mail", queue(5, 5, 100, 5)).await;
    let queues = limiter.queues();
    assert_eq!(take(&queues, 5, MINUTE).await, []);
    let receipt = Receipt { txn_id: Uuid::now_v7(), seq: 3 };
    queues.done("mail", "out", receipt).await.unwrap_err();
    assert_eq!(queues.item("mail", "out", receipt.txn_id).await.unwrap(), None);
    assert_eq!(db.number("select count(*) from zone_bucket_lock").await, 0);
}

fn txns_of(items: &[Item]) -> Vec<Uuid> {
    items.iter().map(|item| item.txn_id).collect()
}

/// Items that wait in a queue, are taken or are dead go with it, payloads and receipts included, and come
/// back.
pub async fn a_queue_moves_with_what_is_in_it(db: Db) {
    let fast = Policy::queue(1 << 20, Duration::from_micros(1), 20).unwrap();
    let fast = fast.with_queueing(Some(Queueing { backlog: 20, max_takes: 1 }));
    let two = Two::of(db, &[("mail", fast)]).await;
    let (here, there) = (two.here.limiter().await.queues(), two.there.limiter().await.queues());
    let payload = json!({ "to": "a\u{0}\"\\ß" });
    for (cost, band) in [(1, 0), (2, 0), (3, 1)] {
        here.offer(offer(cost, band).payload(&payload).deadline(MINUTE)).await.unwrap();
    }
    let works = here.take(Take::new("mail", "out", MINUTE).most(2)).await.unwrap().items;
    here.release("mail", "out", works[1].receipt, Duration::ZERO).await.unwrap();
    two.move_there("mail", "out").await.unwrap();
    two.assert_clean().await;
    assert_eq!(here.offer(offer(1, 0)).await.unwrap_err().kind(), tallygate::ErrorKind::Refused);

    let size = there.size("mail", "out").await.unwrap();
    assert_eq!((size.waiting, size.away), (3, 1));
    there.done("mail", "out", works[0].receipt).await.unwrap();
    let dead = there.dead("mail", "out", None, 9).await.unwrap();
    assert_eq!(dead.iter().map(|item| item.txn_id).collect::<Vec<_>>(), [works[1].txn_id]);
    let next = there.take(Take::new("mail", "out", MINUTE)).await.unwrap().items.remove(0);
    assert_eq!((next.cost, next.payload.as_ref()), (3, Some(&payload)));
    two.assert_clean().await;
    two.move_back("mail", "out").await.unwrap();
    here.done("mail", "out", next.receipt).await.unwrap();
    assert_eq!(here.size("mail", "out").await.unwrap().waiting, 0);
    two.assert_clean().await;
}

/// A worker that waits for the next item has it soon after it is offered, by itself or by another process.
pub async fn who_waits_for_the_next_item_gets_it(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, "mail", queue(1 << 20, 1 << 20, 20, 2)).await;
    let queues = limiter.queues();
    let none = queues.next(Take::new("mail", "out", MINUTE), Duration::from_millis(50)).await.unwrap();
    assert_eq!(none.items, []);
    for offering in [queues.clone(), db.limiter().await.queues()] {
        let waiting = tokio::spawn({
            let queues = queues.clone();
            async move { queues.next(Take::new("mail", "out", MINUTE), MINUTE).await.unwrap().items }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let txn = offered(&offering, 1, 0).await;
        assert_eq!(txns(&waiting.await.unwrap()), [txn]);
    }
}

/// A worker that waits need not look: it is woken by what its own process offers, and on PostgreSQL by what any
/// other does.
pub async fn who_waits_is_woken(db: Db) {
    let limiter = db.limiter().await;
    set(&limiter, "mail", queue(1 << 20, 1 << 20, 20, 2)).await;
    let queues = limiter.queues();
    let others = db.limiter().await.queues();
    for (offering, hears) in [(&queues, true), (&others, db.engine == Engine::Postgres)] {
        let within = if hears { MINUTE } else { Duration::from_millis(300) };
        // An offer that was dropped before goes on to its end, which this waits for.
        take(&queues, 9, MINUTE).await;
        let heard = queues.hears("mail", "out", within);
        let deaf = queues.hears("mail", "elsewhere", Duration::from_millis(300));
        // Again and again: the first time nobody may be listening yet.
        let offers = async {
            loop {
                offered(offering, 1, 0).await;
                for work in take(offering, 1, MINUTE).await {
                    offering.done("mail", "out", work.receipt).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            (heard, deaf) = async { tokio::join!(heard, deaf) } => {
                assert_eq!((heard.unwrap(), deaf.unwrap()), (hears, false));
            }
            () = offers => {}
        }
    }
}
