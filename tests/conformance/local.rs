//! The local tier on databases: what processes take, spend in memory and give back. That this never comes to more than the limit
//! is told for every algorithm by the core's own tests; here real processes do it, and are killed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use tallygate::audit::verify::Verify;
use tallygate::chrono::{DateTime, Utc};
use tallygate::ledger::{Entry, History, Kind};
use tallygate::policy::{Limit, Mode, Override};
use tallygate::schema::{Role, Upkeep};
use tallygate::testing::Clock;
use tallygate::{Charged, Check, Config, Decision, ErrorKind, Limiter, LocalJournal, Policy, Reason, Shield};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::child::{Child, LocalCaller, Work};
use crate::db::{Db, Engine, connected};
use crate::engine::sql_check;
use crate::moving::Two;
use crate::rounds;
use crate::server::PATIENCE;

const HOUR: Duration = Duration::from_secs(3_600);

fn policy(rate: i64, local: Duration) -> Policy {
    Policy::sliding_log(rate, HOUR).unwrap().with_local(Some(local))
}

async fn limiter(db: &Db, policy: Policy) -> Limiter {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("api", &policy, None, "test").await.unwrap();
    limiter
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check(Check::new("api", "key")).await.unwrap()
}

/// Every row is derived again.
async fn verify(limiter: &Limiter) {
    let (_, faults) = crate::verify::verify(limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

async fn history(limiter: &Limiter, zone: &str) -> Vec<Entry> {
    let (mut rows, mut page) = (Vec::new(), History::default().zone(zone).limit(10_000));
    page.oldest_first = true;
    loop {
        let read = limiter.auditor().history(&page).await.unwrap();
        rows.extend(read.rows);
        match read.next {
            Some(next) => page.before = Some(next),
            None => return rows,
        }
    }
}

/// A hot key is decided in memory, and the ledger adds up to the unit: what was taken, less what was given back, is what
/// was decided.
pub async fn a_hot_key_is_decided_by_its_process_and_adds_up(db: Db) {
    let limiter = limiter(&db, policy(1_000_000, Duration::from_secs(30))).await;
    let (mut checks, mut local) = (0, 0);
    let began = Instant::now();
    while local < 20_000 {
        let decision = check(&limiter).await;
        assert!(decision.is_allowed() && decision.seq.is_none() == decision.local.is_some());
        (checks, local) = (checks + 1, local + i64::from(decision.local.is_some()));
        assert!(began.elapsed() < PATIENCE, "{local} of {checks} were decided here");
    }
    // A check that needs a row of its own has one.
    let needs = || Check::new("api", "key");
    for (needs, cost) in [
        (needs().txn(Uuid::now_v7()), 1),
        (needs().critical(), 1),
        (needs().reserved_for(HOUR), 1),
        (needs().cost(500_000), 500_000),
    ] {
        checks += cost;
        let decision = limiter.check(needs).await.unwrap();
        assert!(decision.is_allowed() && decision.local.is_none() && decision.seq.is_some(), "{decision:?}");
    }
    limiter.settle_local().await.unwrap();
    assert_eq!(limiter.peek("api", "key").await.unwrap().remaining, 1_000_000 - checks);
    let rows = history(&limiter, "api").await;
    let of = |kind| rows.iter().filter(move |row| row.kind == kind);
    assert!(of(Kind::Local).count() < 200, "{}", of(Kind::Local).count());
    assert!(of(Kind::Local).all(|row| row.spent <= row.cost && row.ends_at.is_some()));
    let settled: HashMap<Uuid, i64> = of(Kind::Settle).map(|row| (row.txn_id, row.cost)).collect();
    let used = of(Kind::Local).map(|row| settled.get(&row.txn_id).copied().unwrap_or(row.spent));
    assert_eq!(used.sum::<i64>(), local);
    verify(&limiter).await;
}

/// Units that a process has in hand, or on their way, are no reason to block its own check: one that does not fit in hand, one
/// that has a row of its own, one of several.
pub async fn a_check_that_fits_is_not_blocked_by_what_its_process_took(db: Db) {
    let limiter = limiter(&db, policy(100, Duration::from_secs(30))).await;
    let check = |key: &str, cost| Check::new("api", key).cost(cost);
    let first = limiter.check(check("first", 80)).await.unwrap();
    assert_eq!((first.blocked, first.remaining), (false, 20));
    for way in ["in hand", "a row of its own", "several"] {
        let mut spent = 0;
        loop {
            spent += 1;
            if limiter.check(check(way, 1)).await.unwrap().local.is_some() {
                break;
            }
        }
        let last = match way {
            "in hand" => limiter.check(check(way, 100 - spent)).await.unwrap(),
            "several" => limiter.check_many(vec![check(way, 100 - spent)]).await.unwrap().remove(0),
            _ => limiter.check(check(way, 100 - spent).txn(Uuid::now_v7())).await.unwrap(),
        };
        assert_eq!((last.blocked, last.remaining), (false, 0), "{way}: {spent} and {last:?}");
    }
    while limiter.check(check("again", 1)).await.unwrap().local.is_none() {}
    for n in 1..=4 {
        let dear = limiter.check(check("again", 24)).await.unwrap();
        assert!(!dear.blocked, "{n}: {dear:?}");
    }
    verify(&limiter).await;
}

/// The units that a process took go with their bucket: the process spends them where it is, and they are spent for all who ask
/// at the bucket's new database.
pub async fn a_bucket_moves_with_what_was_taken_of_it(db: Db) {
    let two = Two::of(db, &[("api", policy(1_000, Duration::from_secs(30)))]).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    let mut spent = 0;
    while check(&here).await.local.is_none() {
        spent += 1;
    }
    two.move_there("api", "key").await.unwrap();
    two.assert_clean().await;
    let left = there.peek("api", "key").await.unwrap().remaining;
    let taken = 1_000 - left - spent;
    for n in 1..taken {
        assert!(check(&here).await.local.is_some(), "{n} of {taken}");
    }
    let refused = here.check(Check::new("api", "key")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    for n in 0..left {
        assert!(check(&there).await.is_allowed(), "{n} of {left}");
    }
    assert!(check(&there).await.blocked);
    two.assert_clean().await;
}

/// Callers who come at once wait for the units that one of them takes, and do not stand in its way at the database.
pub async fn callers_at_once_wait_for_what_one_of_them_takes(db: Db) {
    let limiter = limiter(&db, policy(1_000_000, Duration::from_secs(30))).await;
    let decisions = join_all((0..64).map(|_| check(&limiter))).await;
    let rows = decisions.iter().filter(|decision| decision.local.is_none()).count();
    assert!(rows < 8, "{rows} of 64 have a row");
}

/// Checks of a zone that does not allow it are decided by the database, and recorded.
pub async fn without_a_word_of_the_zone_each_check_is_decided_by_the_database(db: Db) {
    let limiter = limiter(&db, Policy::sliding_log(1_000, HOUR).unwrap()).await;
    for _ in 0..50 {
        assert_eq!(check(&limiter).await.local, None);
    }
}

/// A take is settled once, by what the process used; nothing else ends it, by whichever way it is asked.
pub async fn what_was_taken_is_settled_once_and_ended_by_nothing_else(db: Db) {
    let limiter = limiter(&db, policy(100, Duration::from_secs(30))).await;
    let id = limiter.operator().zone("api").await.unwrap().unwrap().id;
    let txn = Uuid::now_v7();
    let (units, remaining, _) = limiter.take_units(id, "key", txn, 20).await.unwrap().unwrap();
    assert_eq!((units, remaining), (20, 80));
    let again = limiter.take_units(id, "key", txn, 20).await.unwrap().unwrap();
    assert_eq!((again.0, db.rows().await), (20, 1), "the answer was lost, the units were not");

    // By its transaction, and by its bucket.
    for charged in [Charged::by(txn), Charged::by(txn).in_bucket("api", "key")] {
        let told = [
            limiter.refund(charged.clone()).await,
            limiter.settle(charged.clone(), 3).await,
            limiter.cancel(charged.clone()).await,
            limiter.release(charged).await,
        ];
        for error in told.map(Result::unwrap_err) {
            assert!(error.is_conflict() && error.to_string().contains("a process took"), "{error}");
        }
    }
    let named = |cost| Check::new("api", "key").cost(cost).txn(txn);
    for error in [
        limiter.check(named(20)).await.unwrap_err(),
        limiter.check(named(1)).await.unwrap_err(),
        limiter.check_all(vec![named(20)]).await.unwrap_err(),
        limiter.reserve_predicted(named(20), HOUR, "shape").await.unwrap_err(),
    ] {
        assert!(error.is_conflict() && error.to_string().contains("a process took"), "{error}");
    }
    if db.engine != Engine::Sqlite {
        let mut sql = db.connect_as(Role::Caller).await;
        let hex = txn.simple();
        let calls = match db.engine {
            Engine::Postgres => [
                format!("select seq from zone_check('api', 'key', '{txn}', 20)"),
                format!("select seq from zone_refund('api', 'key', '{txn}')"),
            ],
            _ => [
                format!("call zone_check('api', 'key', unhex('{hex}'), 20, null, null)"),
                format!("call zone_refund('api', 'key', unhex('{hex}'), null)"),
            ],
        };
        for call in calls {
            let error = sql.try_number(&call).await.unwrap_err();
            assert!(error.to_string().contains("a process took"), "{call}: {error}");
        }
    }

    for used in [-1, 21, i64::MAX, i64::MIN] {
        let error = limiter.settle_units(id, "key", txn, used).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("of 20"), "{error}");
    }
    let checked = limiter.check(Check::new("api", "key").txn(Uuid::now_v7())).await.unwrap();
    let error = limiter.settle_units(id, "key", checked.txn_id, 0).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    for (key, txn) in [("key", Uuid::now_v7()), ("another", txn)] {
        let error = limiter.settle_units(id, key, txn, 0).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("was not decided in the bucket"), "{error}");
    }
    assert_eq!(limiter.peek("api", "key").await.unwrap().remaining, 79, "nothing happened by all that");

    let settled = limiter.settle_units(id, "key", txn, 5).await.unwrap();
    assert_eq!((settled.kind, settled.cost, settled.spent, settled.remaining), (Kind::Settle, 5, 0, 94));
    assert!(limiter.settle_units(id, "key", txn, 5).await.unwrap().replayed);
    assert!(limiter.settle_units(id, "key", txn, 4).await.unwrap_err().is_conflict());
    assert!(limiter.refund(Charged::by(txn)).await.unwrap_err().is_conflict());
    if db.engine != Engine::Sqlite {
        // The decisions of the routines behind it are derived by the core.
        let mut sql = db.connect_as(Role::Caller).await;
        sql.try_number(&sql_check(db.engine, "api", "key", 90)).await.unwrap();
        sql.try_number(&sql_check(db.engine, "api", "key", 90)).await.unwrap();
    }
    verify(&limiter).await;
}

/// A bucket that is not to be decided locally gives nothing: a zone that enforces nothing, a limit of the bucket's own,
/// a ban.
pub async fn nothing_is_taken_where_nothing_may_be(db: Db) {
    let limiter = limiter(&db, policy(100, Duration::from_secs(30))).await;
    let operator = limiter.operator();
    let id = operator.zone("api").await.unwrap().unwrap().id;
    let take = async |key| limiter.take_units(id, key, Uuid::now_v7(), 10).await.unwrap().map(|took| took.0);
    let limit = Limit::new(1_000, Duration::from_secs(1), None).ok();
    let own = Override { limit, ban_exempt: false, for_us: None };
    operator.set_override("api", "own", own, "", "test").await.unwrap();
    operator.ban("api", "banned", HOUR, "", "test").await.unwrap();
    // A transaction of its own is decided by the database, which nothing is taken for.
    limiter.check(Check::new("api", "used").cost(93).txn(Uuid::now_v7())).await.unwrap();
    assert_eq!((take("own").await, take("banned").await, take("used").await), (None, None, None));
    assert_eq!(take("key").await, Some(10));
    operator.remove_override("api", "own", "", "test").await.unwrap();
    operator.unban("api", "banned", "", "test").await.unwrap();
    assert_eq!((take("own").await, take("banned").await), (Some(10), Some(10)));
    let rows = db.rows().await;
    for policy in [
        policy(100, Duration::from_secs(30)).with_mode(Mode::Shadow),
        policy(100, Duration::from_secs(30)).with_mode(Mode::Off),
        Policy::sliding_log(100, HOUR).unwrap(),
    ] {
        operator.set_zone("api", &policy, None, "test").await.unwrap();
        assert_eq!((take("key").await, take("new").await), (None, None), "{policy}");
    }
    assert_eq!(db.rows().await, rows, "what is not had leaves no row");
    verify(&limiter).await;
}

/// A change that somebody makes in the rows of takes is found and explained, and what their owner removes is
/// accounted for.
pub async fn takes_are_proven_explained_erased_and_dropped(db: Db) {
    let limiter = limiter(&db, policy(100, Duration::from_secs(30))).await;
    let id = limiter.operator().zone("api").await.unwrap().unwrap().id;
    let txns = [Uuid::now_v7(), Uuid::now_v7()];
    for txn in txns {
        limiter.take_units(id, "key", txn, 20).await.unwrap().unwrap();
    }
    limiter.settle_units(id, "key", txns[0], 5).await.unwrap();
    let explained = limiter.auditor().explain(txns[0], 5).await.unwrap();
    assert!(explained.rows.iter().all(|row| row.reproduced == Some(true)), "{explained:?}");
    verify(&limiter).await;
    let bigint = if db.engine.is_mysql() { "signed" } else { "bigint" };
    for (seq, column, value) in [
        (2, "spent", "19"),
        (2, "cost", "21"),
        (2, "remaining", "3"),
        (3, "cost", "6"),
        (3, "remaining", "3"),
    ] {
        let of = format!("select cast({column} as {bigint}) from zone_txn where seq = {seq}");
        let before = db.number(&of).await;
        db.execute(&format!("update zone_txn set {column} = {value} where seq = {seq}")).await;
        let (_, faults) = crate::verify::verify(&limiter, &Verify::default()).await;
        assert!(!faults.is_empty(), "{column} of {seq}");
        db.execute(&format!("update zone_txn set {column} = {before} where seq = {seq}")).await;
        verify(&limiter).await;
    }
    db.execute("update zone_hold set amount = amount + 1 where seq = 1").await;
    let (_, faults) = crate::verify::verify(&limiter, &Verify::default()).await;
    assert!(!faults.is_empty(), "more comes back than the rows say");
    db.execute("update zone_hold set amount = amount - 1 where seq = 1").await;

    let owner = connected(&db.url).await.owner();
    owner.erase("api", "key", "asked for", "test").await.unwrap();
    verify(&limiter).await;
    assert_eq!(limiter.peek("api", "key").await.unwrap().remaining, 100, "the bucket begins anew");
    owner.maintain(Upkeep::default()).await.unwrap();
    verify(&limiter).await;
}

/// A steady demand of twice the limit for 20.8 seconds, at moments that a test sets: at least 95 % of what was asked for passes,
/// and no more.
pub async fn a_steady_demand_uses_nearly_all_of_the_limit(_: Db) {
    let second = Duration::from_secs(1);
    for (asked, local_ms) in [
        // 20 times 1.04 seconds.
        (Policy::sliding_log(500, second).unwrap(), 40),
        (Policy::token_bucket(500, second, Some(100)).unwrap(), 50),
        (Policy::fixed_window(500, second).unwrap(), 50),
    ] {
        let clock = Clock::at(DateTime::from_timestamp(1_767_225_600, 0).unwrap());
        let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
        let policy = asked.with_local(Some(Duration::from_millis(local_ms)));
        limiter.operator().set_zone("api", &policy, None, "test").await.unwrap();
        let (mut passed, mut local) = (Vec::new(), 0);
        for _ in 0..20_800 {
            clock.advance(second / 1_000);
            let decision = check(&limiter).await;
            if decision.is_allowed() {
                passed.push((decision.decided_at.timestamp_micros(), 1));
                local += i64::from(decision.local.is_some());
            }
            // A process has other tasks; this one waits for the database meanwhile.
            tokio::task::yield_now().await;
        }
        within(&asked, &mut passed);
        let share = passed.len() as f64 / (20.8 * 500.0);
        println!(
            "{asked}, local {local_ms} ms: {:.1} % used, {local} of {} here",
            share * 100.0,
            passed.len()
        );
        assert!((0.95..1.01).contains(&share), "{asked}: {share}");
        // A level that is always asked for more than flows in is near its limit all the time.
        assert!(local > 20, "{asked}: {local} of {}", passed.len());
        limiter.settle_local().await.unwrap();
        verify(&limiter).await;
    }
}

/// A line of a journal.
#[derive(Deserialize)]
struct Line {
    zone: String,
    key: String,
    take: Uuid,
    cost: i64,
    at: DateTime<Utc>,
}

/// Eight processes decide, most of it by themselves; some are killed and others take their places. Recomputed from their
/// journals and the ledger no window has more than was asked for, no lease was spent beyond what it was, and what was given
/// back was not spent.
pub async fn processes_that_are_killed_never_come_to_more_than_the_limit(db: Db) {
    let (wanted, window) = (rounds(20_000, 1_000_000), Duration::from_secs(10));
    let zones = [
        ("log", Policy::sliding_log(20_000, window).unwrap()),
        ("fixed", Policy::fixed_window(20_000, window).unwrap()),
        ("tokens", Policy::token_bucket(20_000, window, Some(12_000)).unwrap()),
        // At its limit on the slowest machine.
        ("scarce", Policy::sliding_log(5, window).unwrap()),
    ];
    let limiter = db.limiter().await;
    for (zone, asked) in &zones {
        let policy = asked.with_local(Some(Duration::from_secs(4)));
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut journals = Vec::new();
    let mut start = async || {
        let journal: PathBuf = folder.path().join(format!("{}.jsonl", journals.len()));
        journals.push(journal.clone());
        let zones = zones.iter().map(|(zone, _)| (*zone).to_owned()).collect();
        let work = Work::Local(LocalCaller { url: db.url_as(Role::App), zones, journal });
        let mut child = Child::start(&work).await;
        child.go().await;
        child
    };
    let mut children = Vec::new();
    for _ in 0..8 {
        children.push(start().await);
    }
    let size = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().metadata().unwrap().len();
    let mut killed = 0;
    // A line has some 190 bytes.
    while killed < rounds(4, 40)
        || folder.path().read_dir().unwrap().map(size).sum::<u64>() / 190 < wanted as u64
    {
        sleep(Duration::from_millis(fastrand::u64(500..1_500))).await;
        if killed < rounds(4, 40) {
            let place = fastrand::usize(..children.len());
            children[place] = start().await;
            killed += 1;
        }
    }
    for child in &mut children {
        child.answers_until(std::future::ready(())).await;
    }
    let (mut lines, mut spent) = (0, HashMap::<Uuid, i64>::new());
    let mut passed: HashMap<String, Vec<(i64, i64)>> = HashMap::new();
    for line in folder.path().read_dir().unwrap().flat_map(|file| read(&file.unwrap().path())) {
        assert_eq!(line.key, "key");
        lines += 1;
        *spent.entry(line.take).or_default() += line.cost;
        passed.entry(line.zone).or_default().push((line.at.timestamp_micros(), line.cost));
    }
    let (mut blocked, mut takes) = (0, 0);
    for (zone, asked) in &zones {
        let passed = passed.entry((*zone).to_owned()).or_default();
        for row in history(&limiter, zone).await {
            let here = spent.get(&row.txn_id).copied().unwrap_or(0);
            match row.kind {
                Kind::Check if row.blocked => blocked += 1,
                Kind::Check => passed.push((row.decided_at.timestamp_micros(), row.spent)),
                Kind::Local => {
                    takes += 1;
                    assert!(here <= row.spent, "{here} were spent of {}", row.spent);
                }
                Kind::Settle => assert_eq!(here, row.cost, "what was settled is what was spent"),
                kind => panic!("{kind}"),
            }
        }
        within(asked, passed);
    }
    assert!(lines >= wanted * 3 / 4 && blocked > 0, "{lines} here, {blocked} blocked");
    println!("{lines} decided here with {takes} takes, {blocked} blocked, {killed} processes killed");
    verify(&limiter).await;
}

/// The last line of one that was killed may be cut off.
fn read(journal: &Path) -> Vec<Line> {
    let lines = BufReader::new(std::fs::File::open(journal).unwrap()).lines();
    lines.filter_map(|line| serde_json::from_str(&line.unwrap()).ok()).collect()
}

/// No window has more than that, by definition.
fn within(asked: &Policy, passed: &mut [(i64, i64)]) {
    passed.sort_unstable();
    let (limit, window_us) = (asked.limit(), asked.window_us());
    if asked.burst().is_some() {
        let full = i128::from(limit) * i128::from(window_us);
        let (mut level, mut last_us) = (full, 0);
        for &(at_us, units) in &*passed {
            level = full.min(level + i128::from(at_us - last_us) * i128::from(asked.rate()));
            level -= i128::from(units) * i128::from(window_us);
            last_us = at_us;
            assert!(level >= 0, "{asked} is overdrawn at {at_us}");
        }
        return;
    }
    let fixed = asked.algorithm() == tallygate::policy::Algorithm::FixedWindow;
    let (mut from, mut sum) = (0, 0);
    for &(at_us, units) in &*passed {
        sum += units;
        let start_us = if fixed { at_us - at_us % window_us } else { at_us - window_us + 1 };
        while passed[from].0 < start_us {
            sum -= passed[from].1;
            from += 1;
        }
        assert!(sum <= limit, "{sum} in the window of {at_us} by {asked}");
    }
}

/// A journal that cannot be written is told, and the file of one that can has a line for each local decision.
pub async fn each_local_decision_has_its_line(db: Db) {
    let limiter = limiter(&db, policy(1_000_000, Duration::from_secs(30))).await;
    let folder = tempfile::tempdir().unwrap();
    let error = LocalJournal::open(folder.path()).err().unwrap();
    assert!(error.is_invalid() && error.to_string().contains("cannot be opened"), "{error}");
    let journal = folder.path().join("local.jsonl");
    let limiter = limiter.with_local_journal(LocalJournal::open(&journal).unwrap());
    let (mut local, began) = (0, Instant::now());
    while local < 500 && began.elapsed() < PATIENCE {
        local += usize::from(check(&limiter).await.local.is_some());
    }
    let lines = read(&journal);
    assert_eq!(
        (lines.len(), lines.iter().filter(|line| line.zone == "api" && line.cost == 1).count()),
        (local, local)
    );
    let takes: Vec<_> =
        history(&limiter, "api").await.into_iter().filter(|row| row.kind == Kind::Local).collect();
    assert!(lines.iter().all(|line| takes.iter().any(|row| row.txn_id == line.take)));
    #[cfg(target_os = "linux")]
    {
        let limiter = limiter.with_local_journal(LocalJournal::open("/dev/full").unwrap());
        let told = async {
            loop {
                if let Err(error) = limiter.check(Check::new("api", "key")).await {
                    return error;
                }
            }
        };
        let error = tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}

/// A check that comes too fast for this process is blocked by it, whoever else decides; nothing is recorded
/// of that.
pub async fn a_shield_blocks_in_this_process_alone_and_leaves_no_row(db: Db) {
    let [per_second, burst] = [1, 3].map(|n| NonZeroU32::new(n).unwrap());
    let config = Config { shield: Some(Shield { per_second, burst }), ..db.config() };
    let (shielded, other) =
        (db.limiter_with(config).await, limiter(&db, Policy::sliding_log(100, HOUR).unwrap()).await);
    for _ in 0..3 {
        assert!(check(&shielded).await.is_allowed());
    }
    let blocked = check(&shielded).await;
    assert_eq!(
        (blocked.blocked, blocked.reason, blocked.limit, blocked.seq),
        (true, Reason::LocalLimit, 3, None)
    );
    assert!((1..=1_000_001).contains(&blocked.retry_after_us.unwrap()), "{blocked:?}");
    assert!(check(&other).await.is_allowed(), "another process knows nothing of it");
    assert!(shielded.check(Check::new("api", "another key")).await.unwrap().is_allowed());
    assert_eq!(db.rows().await, 5);
    verify(&other).await;
}
