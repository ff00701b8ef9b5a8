//! The state that a bucket is said to have is what checks then meet.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use fastrand::Rng;
use tallygate::decide::Override;
use tallygate::policy::{BanRule, CalendarUnit, Limit, Mode, RunningBuckets, TimeZoneName};
use tallygate::{Check, Decision, Policy};
use uuid::Uuid;

use crate::db::{Db, log};
use crate::rounds_of_long;

/// No window ends while the test runs.
const WINDOW: Duration = Duration::from_secs(300 * 86_400);

fn policies() -> Vec<(&'static str, Policy)> {
    let policies = [
        ("log", Policy::sliding_log(20, WINDOW)),
        ("counter", Policy::sliding_counter(20, WINDOW, 10)),
        ("fixed", Policy::fixed_window(20, WINDOW)),
        ("tokens", Policy::token_bucket(7, WINDOW, Some(20))),
        ("bucket", Policy::leaky_bucket(7, WINDOW, Some(20))),
        ("queue", Policy::leaky_queue(7, WINDOW, Some(20))),
        ("uniform", Policy::uniform(3, WINDOW)),
        ("slots", Policy::concurrency(20, WINDOW)),
        ("reserve", Policy::sliding_log(20, WINDOW).map(|policy| policy.with_reserve(4))),
    ];
    policies.into_iter().map(|(zone, policy)| (zone, policy.unwrap())).collect()
}

pub async fn how_a_bucket_stands_is_what_a_check_meets(db: Db) {
    let limiter = db.limiter().await;
    for (zone, policy) in policies() {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let mut rng = Rng::with_seed(1);
    let (mut blocked, mut waited) = (0, 0);
    for round in 0..rounds_of_long(6, 100) {
        for (zone, policy) in policies() {
            let key = format!("{round}");
            for _ in 0..rng.u32(1..8) {
                let txn = Uuid::now_v7();
                let check = Check::new(zone, &key).txn(txn).cost(rng.i64(1..=policy.limit().min(6)));
                let reserves = zone != "slots" && rng.u8(..4) == 0;
                let check = if reserves { check.reserved_for(WINDOW / 2) } else { check };
                let charged = limiter.check(check).await.unwrap();
                if charged.is_allowed() && !reserves && zone != "slots" && rng.u8(..4) == 0 {
                    limiter.refund(txn).await.unwrap();
                }
            }
            let stood = limiter.auditor().bucket(zone, &key).await.unwrap().unwrap();
            let peek = limiter.peek(zone, &key).await.unwrap();
            let place = format!("{zone} {key}: {stood:?}, {peek:?}");
            assert_eq!((stood.limit, stood.remaining), (peek.limit, peek.remaining), "{place}");
            assert_eq!(stood.zone_version, peek.zone_version, "{place}");
            // A blocked check of all that there is says when it will be there, as does one of a single unit.
            if stood.remaining < stood.limit {
                let all = limiter.check(Check::new(zone, &key).cost(stood.limit)).await.unwrap();
                assert_eq!(when(stood.at, stood.resets_in_us), passes_at(&all), "all of {place}, {all:?}");
                waited += 1;
            }
            let one = limiter.check(Check::new(zone, &key)).await.unwrap();
            assert_eq!(when(stood.at, stood.retry_after_us), passes_at(&one), "one of {place}, {one:?}");
            blocked += usize::from(one.blocked);
        }
    }
    assert!(
        blocked >= rounds_of_long(6, 6) && waited > rounds_of_long(30, 30),
        "{blocked} were blocked, {waited} had not all that there is"
    );
}

pub async fn bans_limits_of_their_own_and_modes_are_seen(db: Db) {
    let limiter = db.limiter().await;
    let (operator, auditor) = (limiter.operator(), limiter.auditor());
    let banning = log(1, 86_400).with_ban(Some(BanRule::new(2, WINDOW, WINDOW)));
    let off = log(1, 86_400).with_mode(Mode::Off);
    let day = Policy::calendar(3, CalendarUnit::Month, "UTC".parse::<TimeZoneName>().unwrap()).unwrap();
    let members = Policy::distinct(2, WINDOW).unwrap();
    for (zone, policy) in [("bans", banning), ("off", off), ("month", day), ("members", members)] {
        operator.set_zone(zone, &policy, None, "test").await.unwrap();
    }
    assert_eq!(auditor.bucket("bans", "never").await.unwrap(), None);
    for key in ["a", "b", "c"] {
        for zone in ["bans", "off", "month"] {
            limiter.check(Check::new(zone, key)).await.unwrap();
        }
    }
    for _ in 0..2 {
        limiter.check(Check::new("bans", "b")).await.unwrap();
    }
    let banned = auditor.bucket("bans", "b").await.unwrap().unwrap();
    let told = limiter.check(Check::new("bans", "b")).await.unwrap();
    assert_eq!((banned.remaining, when(banned.at, banned.retry_after_us)), (0, passes_at(&told)));
    let bans = auditor.bans("bans").await.unwrap();
    assert_eq!(bans.iter().map(|banned| banned.key.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(bans[0].banned_until, banned.bucket.banned_until);
    operator.unban("bans", "b", "a mistake", "test").await.unwrap();
    assert_eq!(auditor.bans("bans").await.unwrap(), []);

    let own = Override { limit: Some(Limit::new(9, WINDOW, None).unwrap()), ban_exempt: true, for_us: None };
    operator.set_override("bans", "c", own, "a friend", "test").await.unwrap();
    let own = auditor.bucket("bans", "c").await.unwrap().unwrap();
    assert_eq!((own.limit, own.remaining), (9, 8));
    let set = own.bucket_override.unwrap();
    assert_eq!((set.note.as_deref(), set.set_by.as_deref()), (Some("a friend"), Some("test")));

    let off = auditor.bucket("off", "a").await.unwrap().unwrap();
    assert_eq!((off.remaining, off.retry_after_us, off.resets_in_us), (1, None, Some(0)));

    let month = auditor.bucket("month", "a").await.unwrap().unwrap();
    let all = limiter.check(Check::new("month", "a").cost(3)).await.unwrap();
    assert_eq!((month.remaining, when(month.at, month.resets_in_us)), (2, passes_at(&all)));

    for member in ["one", "two"] {
        limiter.check(Check::new("members", "a").member(member)).await.unwrap();
    }
    let members = auditor.bucket("members", "a").await.unwrap().unwrap();
    let held: Vec<_> = members.held.iter().map(|held| held.member.as_deref().unwrap()).collect();
    assert_eq!((members.remaining, held), (0, vec!["one", "two"]));
    assert_eq!(when(members.at, members.resets_in_us), members.held.last().map(|held| held.ends_at));
    let third = limiter.check(Check::new("members", "a").member("three")).await.unwrap();
    assert_eq!(when(members.at, members.retry_after_us), passes_at(&third));
}

/// A hold that a change of policy put something else in place of is held no more.
pub async fn what_a_change_of_policy_forgot_is_not_held(db: Db) {
    let limiter = db.limiter().await;
    let slots = Policy::concurrency(3, WINDOW).unwrap();
    limiter.operator().set_zone("slots", &slots, None, "test").await.unwrap();
    limiter.check(Check::new("slots", "a").cost(2)).await.unwrap();
    let before = limiter.auditor().bucket("slots", "a").await.unwrap().unwrap();
    assert_eq!((before.remaining, before.held.len()), (1, 1));
    let reset = Policy::concurrency(4, WINDOW).unwrap().with_running_buckets(RunningBuckets::Reset);
    limiter.operator().set_zone("slots", &reset, None, "test").await.unwrap();
    let after = limiter.auditor().bucket("slots", "a").await.unwrap().unwrap();
    assert_eq!((after.limit, after.remaining, after.resets_in_us), (4, 4, Some(0)));
    assert_eq!(after.held, []);
}

pub async fn buckets_are_listed_by_key_and_found_in_every_zone(db: Db) {
    let limiter = db.limiter().await;
    for zone in ["login", "payment", "empty"] {
        limiter.operator().set_zone(zone, &log(5, 60), None, "test").await.unwrap();
    }
    for key in ["b", "a", "c"] {
        limiter.check(Check::new("login", key)).await.unwrap();
    }
    limiter.check(Check::new("payment", "b")).await.unwrap();
    let auditor = limiter.auditor();
    let listed = async |after: Option<&str>, limit| {
        let buckets = auditor.buckets("login", after, limit).await.unwrap();
        buckets.into_iter().map(|bucket| bucket.key).collect::<String>()
    };
    assert_eq!(listed(None, 10).await, "abc");
    assert_eq!(listed(None, 2).await, "ab");
    assert_eq!(listed(Some("b"), 2).await, "c");
    assert!(auditor.buckets("nothing", None, 1).await.unwrap_err().is_unknown_zone());

    let zones = async |auditor: &tallygate::audit::Auditor, key: &str| {
        let found = auditor.find(key).await.unwrap();
        found.into_iter().map(|bucket| (bucket.zone, bucket.seq)).collect::<Vec<_>>()
    };
    let both = [("login".to_owned(), 1), ("payment".to_owned(), 1)];
    assert_eq!(zones(&auditor, "b").await, both);
    assert_eq!(zones(&auditor, "B").await, []);
    // Upkeep removes the heads of those that were idle for long.
    db.connect().await.execute("delete from zone_bucket_lock").await.unwrap();
    assert_eq!(zones(&auditor, "b").await, both);
    let stood = auditor.bucket("login", "b").await.unwrap().unwrap();
    assert_eq!((stood.limit, stood.remaining), (5, 4));
}

fn when(at: DateTime<Utc>, us: Option<i64>) -> Option<DateTime<Utc>> {
    us.filter(|&us| us > 0).map(|us| at + TimeDelta::microseconds(us))
}

fn passes_at(decision: &Decision) -> Option<DateTime<Utc>> {
    when(decision.decided_at, decision.retry_after_us)
}
