//! P5: what a caller was told survives the end of the server, or of the process, that told it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::policy::Durability;
use tallygate::schema::Role;
use tallygate::{Check, Config, Limiter, Policy};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::child::{Calls, Child, Work};
use crate::db::{Connected, Db, Told, bucket, log, told};
use crate::locks::hold;
use crate::proxy::Proxy;
use crate::rounds;
use crate::server::PATIENCE;
use crate::verify::verify;

const LIMIT: i64 = 100;
const CALLERS: usize = 32;

/// One limiter for all rounds: its pool must find the server again by itself.
pub async fn a_killed_server_keeps_every_decision_it_gave(mut db: Db) {
    let engine = db.engine;
    let config = Config { deadline: Duration::from_secs(1), ..Config::default() };
    let limiter = db.limiter_with(config).await;
    let mut rows = 0;
    for round in 0..rounds(2, 20) {
        let zone = format!("round {round}");
        limiter.operator().set_zone(&zone, &log(LIMIT, 86_400), None, "test").await.unwrap();
        let load = Load::start(&limiter, &zone);
        load.get(200).await;
        sleep(Duration::from_millis(fastrand::u64(0..500))).await;
        db.server().kill().await;
        db.server().restart(engine).await;
        load.get(200).await;
        let answers = load.end().await;

        rows += answers.len();
        assert_eq!(db.rows().await as usize, rows, "round {round}: a row for each call, and no other");
        db.assert_ledger_says(&zone, &answers).await;
        db.assert_ledger_is_whole().await;
        db.assert_first_come(LIMIT).await;
    }
}

/// A durable and a relaxed zone on one server. Its log is one, so what was relaxed and answered before a durable
/// check began is on the disk when that one is answered.
pub async fn a_killed_server_keeps_what_was_durable_and_loses_only_the_last_of_what_was_relaxed(mut db: Db) {
    let engine = db.engine;
    let config = Config { deadline: Duration::from_secs(2), ..Config::default() };
    let mut lost = 0;
    for round in 0.. {
        // The server decides how much is lost, and the moment of its end.
        if round >= rounds(3, 20) && lost > 0 {
            break;
        }
        assert!(round < 30, "nothing was lost: the relaxed zone waited for the disk");
        let limiter = db.limiter_with(config).await;
        let (durable, relaxed) = (format!("durable {round}"), format!("relaxed {round}"));
        let policy = log(1_000_000, 86_400);
        limiter.operator().set_zone(&durable, &policy, None, "test").await.unwrap();
        let policy = policy.with_durability(Durability::Relaxed);
        limiter.operator().set_zone(&relaxed, &policy, None, "test").await.unwrap();
        // A connection at hand, so that the short while before the end is one of checks.
        limiter.peek(&durable, "0").await.unwrap();
        let clock = Arc::<AtomicUsize>::default();
        let answered = Arc::<[AtomicUsize; 2]>::default();
        let killed = Arc::<AtomicBool>::default();
        let mut callers = Vec::new();
        for caller in 0..9 {
            // One caller of the durable zone, who rests between its checks.
            let of_durable = caller == 0;
            let zone = if of_durable { &durable } else { &relaxed };
            let (limiter, zone, clock) = (limiter.clone(), zone.clone(), Arc::clone(&clock));
            let (answered, killed) = (Arc::clone(&answered), Arc::clone(&killed));
            callers.push(tokio::spawn(async move {
                let mut answers = Vec::new();
                // A check that a slow machine does not answer in time is none that was told.
                while !killed.load(Ordering::SeqCst) {
                    let asked = clock.fetch_add(1, Ordering::SeqCst);
                    let key = format!("{}", fastrand::u8(..4));
                    let check = Check::new(&zone, key).txn(Uuid::now_v7());
                    let Ok(decision) = limiter.check(check).await else { continue };
                    answers.push((asked, clock.fetch_add(1, Ordering::SeqCst), decision));
                    answered[usize::from(of_durable)].fetch_add(1, Ordering::SeqCst);
                    if of_durable {
                        sleep(Duration::from_millis(fastrand::u64(100..200))).await;
                    }
                }
                answers
            }));
        }
        let started = Instant::now();
        while answered.iter().any(|answered| answered.load(Ordering::SeqCst) < 4) {
            assert!(started.elapsed() < PATIENCE, "the callers are not answered");
            sleep(Duration::from_millis(5)).await;
        }
        sleep(Duration::from_millis(fastrand::u64(0..500))).await;
        db.server().kill().await;
        killed.store(true, Ordering::SeqCst);
        let mut answers = join_all(callers).await.into_iter().map(Result::unwrap);
        let of_durable = answers.next().unwrap();
        let of_relaxed: Vec<_> = answers.flatten().collect();
        db.server().restart(engine).await;

        db.assert_ledger_is_whole().await;
        let told_all: Vec<Told> = of_durable.iter().map(|(_, _, decision)| told(decision)).collect();
        db.assert_ledger_says(&durable, &told_all).await;
        let last_asked = of_durable.iter().map(|(asked, _, _)| *asked).max().unwrap();
        let mut kept = Vec::new();
        for key in 0..4 {
            let zone_rows = format!(
                "select count(*) from zone_txn t join zone_master z on z.id = t.zone_id
                where z.name = '{relaxed}' and t.bucket_key = '{key}'"
            );
            let rows = db.number(&zone_rows).await;
            for (_, answered, decision) in of_relaxed.iter().filter(|(_, _, d)| d.key == key.to_string()) {
                // The ledger has no gap, so a row is there when there are as many.
                if decision.seq.unwrap() <= rows {
                    kept.push(told(decision));
                } else {
                    lost += 1;
                    assert!(
                        *answered > last_asked,
                        "lost, though a later commit was waited for: {decision:?}"
                    );
                }
            }
        }
        db.assert_ledger_says(&relaxed, &kept).await;
    }
}

/// Callers that go on until they are told to end, and ask again until they are answered.
struct Load {
    callers: Vec<tokio::task::JoinHandle<Vec<Told>>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    hot: AtomicUsize,
    answered: AtomicUsize,
    ending: AtomicBool,
}

impl Load {
    fn start(limiter: &Limiter, zone: &str) -> Self {
        let shared = Arc::<Shared>::default();
        let callers = (0..CALLERS).map(|caller| {
            let (limiter, zone, shared) = (limiter.clone(), zone.to_owned(), Arc::clone(&shared));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                while !shared.ending.load(Ordering::Relaxed) {
                    let key = match caller % 4 {
                        // Half as many checks again as its limit, then the next one gets hot.
                        0 => format!(
                            "hot {}",
                            shared.hot.fetch_add(1, Ordering::Relaxed) as i64 / (LIMIT * 3 / 2)
                        ),
                        _ => format!("mild {}", fastrand::u16(..2000)),
                    };
                    let check = Check::new(&zone, key).txn(Uuid::now_v7());
                    answers.push(told(&until_answered(&limiter, check).await));
                    shared.answered.fetch_add(1, Ordering::Relaxed);
                }
                answers
            })
        });
        Self { callers: callers.collect(), shared }
    }

    /// Waits for so many more answers.
    async fn get(&self, more: usize) {
        let enough = self.shared.answered.load(Ordering::Relaxed) + more;
        let started = Instant::now();
        while self.shared.answered.load(Ordering::Relaxed) < enough {
            assert!(started.elapsed() < PATIENCE, "the callers are not answered");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Vec<Told> {
        self.shared.ending.store(true, Ordering::Relaxed);
        join_all(self.callers).await.into_iter().flat_map(Result::unwrap).collect()
    }
}

async fn until_answered(limiter: &Limiter, check: Check) -> tallygate::Decision {
    let started = Instant::now();
    loop {
        match limiter.check(check.clone()).await {
            Ok(decision) => return decision,
            Err(error) => assert!(
                error.is_transient() && started.elapsed() < 2 * PATIENCE,
                "after {:?}: {error}",
                started.elapsed()
            ),
        }
    }
}

/// The embedded engine has no server to kill: here the program that holds the file is killed.
pub async fn a_killed_process_leaves_every_decision_it_printed(db: Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("killed", &log(LIMIT, 86_400), None, "test").await.unwrap();
    let mut rng = Rng::new();
    for round in 0..rounds(10, 100) {
        let keys = if round % 2 == 0 { 1 } else { 3 };
        let work = Work::Calls(Calls {
            url: db.url_as(tallygate::schema::Role::App),
            zone: "killed".to_owned(),
            keys: (0..keys).map(|n| format!("{n} of round {}", round / 4)).collect(),
            serializable: false,
            clients: 8,
            calls: usize::MAX,
        });
        let mut child = Child::start(&work).await;
        child.go().await;
        let answers = child.answers_until_killed(Duration::from_millis(rng.u64(0..400))).await;

        db.assert_ledger_says("killed", &answers).await;
        db.assert_ledger_is_whole().await;
        db.assert_first_come(LIMIT).await;
    }
}

/// KILL QUERY, and a time limit of the server's, end a routine where it stands: no handler of it runs, and its transaction
/// stays open.
pub async fn a_connection_whose_statement_was_killed_is_not_used_again(db: Db) {
    let config = Config { connections: 1, ..db.config() };
    let limiter = db.limiter_with(config).await;
    limiter.operator().set_zone("login", &log(LIMIT, 3600), None, "test").await.unwrap();
    limiter.check(Check::new("login", "42")).await.unwrap();
    let mut killer = db.connect().await;

    let mut holder = hold(&db, "42").await;
    let waiting = tokio::spawn(async move { limiter.check(Check::new("login", "42")).await });
    db.kill_the_waiting_statement(&mut killer).await;
    holder.execute("rollback").await.unwrap();
    assert!(!waiting.await.unwrap().unwrap().replayed, "it was tried again, on another connection");

    // A pool of the caller's own, whose next user might begin a transaction, and commit what was left.
    let pool = sqlx::MySqlPool::connect(&db.url_as(Role::App)).await.unwrap();
    let config = Config { attempts: 1, ..config };
    let limiter = Limiter::with_pool(pool.clone(), config).await.unwrap();
    let mut holder = hold(&db, "42").await;
    let waiting = tokio::spawn(async move { limiter.check(Check::new("login", "42")).await });
    db.kill_the_waiting_statement(&mut killer).await;
    holder.execute("rollback").await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_transient(), "{error}");
    let mut next = pool.acquire().await.unwrap();
    sqlx::raw_sql("set transaction isolation level read committed").execute(&mut *next).await.unwrap();
    db.assert_ledger_is_whole().await;
}

/// The library's own statements, killed one after the other at any time: no bucket is torn, and whatever was told is in
/// the ledger.
pub async fn killed_statements_tear_no_bucket(db: Db) {
    let staff = db.limiter().await;
    let zones = ["window", "level"];
    let level = Policy::token_bucket(1_000, Duration::from_secs(1), None).unwrap();
    for (zone, policy) in zones.iter().zip([log(1_000, 1), level]) {
        staff.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let config = Config { connections: 6, ..db.config() };
    let limiter = Limiter::connect_with(&db.url_of_own_sessions(Role::App), config).await.unwrap();
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let caller = async |seed: u64| {
        let mut rng = Rng::with_seed(seed);
        let mut answers = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let had = answers.len();
            let check = |rng: &mut Rng| {
                Check::new(zones[rng.usize(..2)], rng.u8(..20).to_string()).txn(Uuid::now_v7())
            };
            match rng.u8(..8) {
                0 => {
                    let checks = (0..4).map(|_| check(&mut rng)).collect();
                    answers.extend(unless_killed(limiter.check_many(checks).await).unwrap_or_default());
                }
                1 => {
                    let txn = Uuid::now_v7();
                    let checks = zones.map(|zone| Check::new(zone, rng.u8(..20).to_string()).txn(txn));
                    let combined = unless_killed(limiter.check_all(checks.to_vec()).await);
                    answers.extend(combined.into_iter().flat_map(|combined| combined.decisions));
                }
                2 => {
                    let reserved = limiter.reserve(check(&mut rng), Duration::from_secs(9)).await;
                    if let Some(reserved) = unless_killed(reserved) {
                        unless_killed(limiter.settle(tallygate::Charged::by(reserved.txn_id), 2).await);
                    }
                }
                3 => {
                    if let Some(charged) = answers.pop() {
                        unless_killed(limiter.refund(tallygate::Charged::by(charged.txn_id)).await);
                    }
                }
                _ => answers.extend(unless_killed(limiter.check(check(&mut rng)).await)),
            }
            answered.fetch_add(answers.len().saturating_sub(had), Ordering::Relaxed);
        }
        answers
    };
    let kill = async {
        let (mut killer, mut killed) = (db.connect().await, 0);
        while killed < rounds(150, 10_000) {
            // On a slow machine too, somebody is answered between two kills.
            let before = answered.load(Ordering::Relaxed);
            killed += usize::from(db.kill_a_statement(&mut killer).await);
            sleep(Duration::from_micros(fastrand::u64(..8_000))).await;
            while answered.load(Ordering::Relaxed) == before {
                sleep(Duration::from_millis(1)).await;
            }
        }
        over.store(true, Ordering::Relaxed);
        killed
    };
    let (answers, killed) = tokio::join!(join_all((0..12).map(caller)), kill);
    let answers = answers.concat();
    let (verified, faults) = verify(&staff, &Verify::default()).await;
    println!("{killed} statements were killed, {} checks answered, {} rows", answers.len(), verified.rows);
    assert!(faults.is_empty(), "{} faults: {:?}", faults.len(), faults.first());
    assert!(answers.len() > 50, "{}", answers.len());
    for told in answers.iter().step_by(answers.len() / 200 + 1) {
        let again = Check::new(&told.zone, &told.key).txn(told.txn_id);
        let again = staff.check(again).await.unwrap();
        assert_eq!((again.replayed, again.seq), (true, told.seq), "{told:?}");
    }
}

/// A call that is killed may fail, and is told that trying again may help.
fn unless_killed<T>(result: Result<T, tallygate::Error>) -> Option<T> {
    let passes = |error: &tallygate::Error| assert!(error.is_transient(), "{error:?}");
    result.inspect_err(passes).ok()
}

/// However much of an answer had come when its caller went away, the next user of the connection is answered what it
/// asked.
pub async fn what_a_dropped_call_is_answered_reaches_nobody_else(db: Db) {
    let limiter = db.limiter().await;
    for name in ["one", "two"] {
        limiter.operator().set_zone(name, &log(2, 3600), None, "test").await.unwrap();
        limiter.check(Check::new(name, name)).await.unwrap();
    }
    let proxy = Proxy::before(&db.url_as(Role::Auditor)).await;
    let mut held = 0;
    loop {
        let config = Config { connections: 1, ..db.config() };
        let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
        limiter.ping().await.unwrap();
        let key_of = async |zone: &str| {
            let rows = limiter.auditor().history(&History::default().zone(zone)).await.unwrap().rows;
            rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
        };
        proxy.hold_after(held);
        let is_held = tokio::select! {
            _ = key_of("one") => false,
            () = proxy.holds() => true,
        };
        proxy.let_pass();
        for name in ["two", "one", "two"] {
            assert_eq!(key_of(name).await, [name], "held after {held} answers");
        }
        if !is_held {
            break;
        }
        held += 1;
    }
    assert!(held > 1, "{held}");
}

/// However far the transaction of a call had come when its caller went away, it takes nothing of later callers with it.
pub async fn what_comes_after_a_dropped_call_is_not_lost_with_it(db: Db) {
    let proxy = Proxy::before(&db.url).await;
    // While MySQL's driver prepares a statement it may be left waiting for an answer that never comes, for 5 s.
    let config = Config { connections: 1, ..db.config() };
    let limiter = Limiter::connect_with(&proxy.url, config).await.unwrap();
    let set = async |limit| limiter.operator().set_zone("login", &log(limit, 3600), None, "test").await;
    let mut other = db.connect().await;
    let mut held = 0;
    loop {
        // Its statements are prepared then.
        set(1).await.unwrap();
        proxy.hold_after(held);
        let is_held = tokio::select! {
            _ = set(2) => false,
            () = proxy.holds() => true,
        };
        proxy.let_pass();
        let banned = format!("banned {held}");
        limiter.operator().ban("login", &banned, Duration::from_secs(600), "", "test").await.unwrap();
        limiter.check(Check::new("login", format!("here {held}"))).await.unwrap();
        let buckets = other.number("select count(*) from zone_bucket_lock").await;
        assert_eq!(buckets, 2 * (held as i64 + 1), "held after {held} answers");
        if !is_held {
            break;
        }
        held += 1;
    }
    assert!(held > 2, "{held}");
}

/// The next statement of such a session commits what the routine had done so far. That must be whole
/// decisions.
pub async fn a_killed_statement_leaves_no_half_of_a_decision(db: Db) {
    let limiter = db.limiter().await;
    for (zone, policy) in [("window", log(2, 3600)), ("level", bucket(2, 3600, 2))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let mut killer = db.connect().await;
    let mut app = db.connect_as(Role::App).await;
    let id = app.number("select cast(connection_id() as signed)").await;
    let (mut killed, mut usual_us) = (0, 4_000);
    let all = rounds(400, 6000);
    for round in 0..all {
        // In a transaction of its own, or in the session's.
        let joins = round % 4 > 1;
        let call = if joins { "zone_check_in" } else { "zone_check" };
        if joins {
            app.begin().await;
        }
        let sql = format!("call {call}({}, '{}', null, 1, false, 5)", 1 + round % 2, round / 8);
        killed += u32::from(kill_within(&mut app, &sql, &mut killer, id, &mut usual_us).await);
    }
    assert!(killed > 20, "only {killed} calls were killed");
    // Further checks follow what was left, if it counts.
    for key in 0..all / 8 {
        for zone in ["window", "level"] {
            for _ in 0..3 {
                limiter.check(Check::new(zone, key.to_string())).await.unwrap();
            }
        }
    }
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert!(verified.rows > 0 && faults.is_empty(), "{} faults: {:?}", faults.len(), faults.first());
    let over = "select count(*) from (
            select sum(spent) as spent from zone_txn_view group by zone_id, bucket_key
        ) b
        where spent > 2";
    assert_eq!(db.number(over).await, 0, "buckets that got more than their limit");
}

/// Runs a call that is killed at any time of what one usually takes, and commits what it left, as whoever begins
/// something next does. True where the call was killed.
async fn kill_within(
    session: &mut Connected,
    sql: &str,
    killer: &mut Connected,
    id: i64,
    usual_us: &mut u64,
) -> bool {
    let wait = Duration::from_micros(fastrand::u64(0..*usual_us));
    let kill = async {
        sleep(wait).await;
        killer.execute(&format!("kill query {id}")).await.unwrap();
    };
    let began = Instant::now();
    let (called, ()) = tokio::join!(async { session.execute(sql).await.map(|()| began.elapsed()) }, kill);
    if let Ok(took) = called {
        *usual_us = (*usual_us + took.as_micros() as u64) / 2;
    }
    // The kill may have come when the call was over.
    session.execute("begin").await.ok();
    session.execute("begin").await.unwrap();
    session.execute("commit").await.unwrap();
    called.is_err()
}

/// A refund is a row, a head and a hold: all of them or none.
pub async fn a_killed_statement_gives_nothing_back_by_halves(db: Db) {
    let limiter = db.limiter().await;
    for (zone, policy) in [("window", log(2, 3600)), ("level", bucket(2, 3600, 2))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
    let (mut killer, mut session) = (db.connect().await, db.connect().await);
    let id = session.number("select cast(connection_id() as signed)").await;
    let (mut killed, mut usual_us) = (0, 4_000);
    for round in 0..rounds(400, 6000) {
        let (zone, key) = (["window", "level"][round % 2], (round / 16).to_string());
        let charged = limiter.check(Check::new(zone, &key)).await.unwrap();
        if charged.blocked {
            continue;
        }
        let sql = format!("call zone_refund('{zone}', '{key}', x'{}', 5)", charged.txn_id.simple());
        killed += u32::from(kill_within(&mut session, &sql, &mut killer, id, &mut usual_us).await);
        // Half of what was killed is asked for again.
        if round % 4 > 1 {
            session.execute(&sql).await.unwrap();
        }
    }
    assert!(killed > 20, "only {killed} calls were killed");
    let (verified, faults) = verify(&limiter, &Verify::default()).await;
    assert!(verified.rows > 0 && faults.is_empty(), "{} faults: {:?}", faults.len(), faults.first());
}
