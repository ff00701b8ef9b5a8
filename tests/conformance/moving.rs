//! A bucket goes from one database to another, and decides there as if it had always been there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tallygate::audit::verify::{FaultKind, Verify};
use tallygate::ledger::History;
use tallygate::policy::{BanRule, Override};
use tallygate::schema::{Moved, Role};
use tallygate::{Charged, Check, ErrorKind, Limiter, Policy, Result};
use uuid::Uuid;

use crate::child::{Child, Mover, Work};
use crate::db::{Connected, Db, Engine, bucket, connected, log};
use crate::proxy::Proxy;
use crate::rounds;
use crate::verify::verify;

const HOUR: Duration = Duration::from_secs(3600);

/// The names by which callers know the two.
const NAMES: (&str, &str) = ("here", "there");

/// Two databases that have the same zones.
pub struct Two {
    pub here: Db,
    pub there: Db,
}

impl Two {
    /// Of kinds that differ.
    pub async fn of(here: Db, zones: &[(&str, Policy)]) -> Self {
        let there = match here.engine {
            Engine::Postgres => Engine::MySql,
            Engine::MySql => Engine::MariaDb,
            Engine::MariaDb | Engine::Sqlite => Engine::Postgres,
        };
        let there = Db::create(there, "moving::there").await;
        for db in [&here, &there] {
            let limiter = db.limiter().await;
            for (zone, policy) in zones {
                limiter.operator().set_zone(zone, policy, None, "test").await.unwrap();
            }
        }
        let two = Self { here, there };
        two.same_versions().await;
        two
    }

    /// Versions that were made in two places differ in this: when, and by whom.
    async fn same_versions(&self) {
        let (us, hex) = match self.here.engine {
            Engine::Postgres => {
                ("(extract(epoch from changed_at) * 1000000)::bigint::text", "encode(row_hash, 'hex')")
            }
            Engine::Sqlite => ("changed_at", "hex(row_hash)"),
            _ => ("timestampdiff(microsecond, '1970-01-01', changed_at)", "hex(row_hash)"),
        };
        let and = |parts: &[&str]| match self.here.engine {
            Engine::Postgres | Engine::Sqlite => parts.join(" || '|' || "),
            _ => format!("concat({})", parts.join(", '|', ")),
        };
        let row = and(&["zone_id", "version", us, hex, "coalesce(login, '')"]);
        let rows = self.here.connect().await.texts(&format!("select {row} from zone_version")).await;
        let mut there = self.there.connect().await;
        for row in rows {
            let parts: Vec<&str> = row.split('|').collect();
            let &[zone_id, version, us, hash, login] = parts.as_slice() else { panic!("{row}") };
            let (at, hash) = match self.there.engine {
                Engine::Postgres => (format!("zone_time({us})"), format!("'\\x{hash}'")),
                Engine::Sqlite => (us.to_owned(), format!("x'{hash}'")),
                _ => (format!("date_add('1970-01-01', interval {us} microsecond)"), format!("x'{hash}'")),
            };
            there
                .execute(&format!(
                    "update zone_version set changed_at = {at}, row_hash = {hash}, login = nullif('{login}', '')
                    where zone_id = {zone_id} and version = {version}"
                ))
                .await
                .unwrap();
            let master =
                format!("update zone_master set created_at = {at}, updated_at = {at} where id = {zone_id}");
            there.execute(&master).await.unwrap();
        }
    }

    /// As the owner of both.
    pub async fn move_there(&self, zone: &str, key: &str) -> Result<Moved> {
        let (here, there) = (owner(&self.here).await, owner(&self.there).await);
        here.owner().move_bucket(&there.owner(), zone, key, NAMES).await
    }

    pub async fn move_back(&self, zone: &str, key: &str) -> Result<Moved> {
        let (here, there) = (owner(&self.here).await, owner(&self.there).await);
        there.owner().move_bucket(&here.owner(), zone, key, (NAMES.1, NAMES.0)).await
    }

    pub async fn assert_clean(&self) {
        for db in [&self.here, &self.there] {
            let (_, faults) = verify(&db.limiter().await, &Verify::default()).await;
            assert!(faults.is_empty(), "{}: {faults:?}", db.engine);
        }
    }
}

async fn owner(db: &Db) -> Limiter {
    connected(&db.url).await
}

fn is_moved(error: &tallygate::Error, to: &str) -> bool {
    error.kind() == ErrorKind::Refused && error.to_string().contains(&format!("was moved to {to}; ask there"))
}

fn moved<T: std::fmt::Debug>(result: Result<T>, to: &str) {
    let error = result.unwrap_err();
    assert!(is_moved(&error, to), "{error}");
}

/// Makes things happen in the buckets of one key, in every zone.
async fn happen(limiter: &Limiter, zones: &[(&str, Policy)], key: &str) {
    let operator = limiter.operator();
    for (zone, _) in zones {
        let check = || match *zone {
            "distinct" => Check::new(*zone, key).member(Uuid::new_v4().to_string()),
            _ => Check::new(*zone, key),
        };
        let first = limiter.check(check()).await.unwrap();
        match *zone {
            _ if first.blocked => {}
            "concurrency" => drop(limiter.release(Charged::by(first.txn_id)).await.unwrap()),
            "distinct" | "leaky-queue" | "uniform" => {}
            _ => drop(limiter.refund(Charged::by(first.txn_id)).await.unwrap()),
        }
        if matches!(*zone, "sliding-log" | "token-bucket") {
            let reserved = limiter.reserve(check().cost(2), HOUR).await.unwrap();
            if !reserved.blocked {
                limiter.settle(Charged::by(reserved.txn_id), 1).await.unwrap();
            }
            limiter.reserve(check(), HOUR).await.unwrap();
        }
        for _ in 0..4 {
            limiter.check(check()).await.unwrap();
        }
        if *zone == "sliding-log" {
            operator.unban(zone, key, "why", "who").await.ok();
            let own = Override { limit: None, ban_exempt: true, for_us: None };
            operator.set_override(zone, key, own, "why", "who").await.unwrap();
            operator.ban(zone, key, HOUR, "why", "who").await.unwrap();
        }
    }
}

fn all() -> Vec<(&'static str, Policy)> {
    let second = Duration::from_secs(1);
    vec![
        ("sliding-log", log(9, 3600).with_ban(Some(BanRule::new(2, HOUR, HOUR)))),
        ("fixed-window", Policy::fixed_window(3, HOUR).unwrap()),
        ("sliding-counter", Policy::sliding_counter(3, HOUR, 60).unwrap()),
        ("token-bucket", bucket(9, 3600, 9)),
        ("leaky-bucket", Policy::leaky_bucket(3, HOUR, Some(5)).unwrap()),
        ("leaky-queue", Policy::leaky_queue(3, second, Some(5)).unwrap()),
        ("uniform", Policy::uniform(3600, HOUR).unwrap()),
        ("distinct", Policy::distinct(9, HOUR).unwrap()),
        ("concurrency", Policy::concurrency(9, HOUR).unwrap()),
    ]
}

/// Every decision, at either place, is what the core derives from the rows before it.
pub async fn every_algorithm_goes_on_where_it_was_and_comes_back(db: Db) {
    let zones = all();
    let two = Two::of(db, &zones).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    happen(&here, &zones, "42").await;
    for (zone, _) in &zones {
        let rows = two.move_there(zone, "42").await.unwrap().rows;
        assert!(rows >= 5, "{rows} rows of {zone}");
        moved(here.peek(zone, "42").await, "there");
    }
    two.assert_clean().await;
    happen(&there, &zones, "42").await;
    two.assert_clean().await;
    for (zone, _) in &zones {
        assert!(two.move_back(zone, "42").await.unwrap().rows >= 5);
    }
    happen(&here, &zones, "42").await;
    two.assert_clean().await;
    // The history is whole, and each transaction can be explained where the bucket is.
    let history =
        History { zone: Some("sliding-log".to_owned()), key: Some("42".to_owned()), ..History::default() };
    let page = here.auditor().history(&history).await.unwrap();
    let seqs: Vec<i64> = page.rows.iter().rev().map(|row| row.seq).collect();
    assert_eq!(seqs, (1..=page.rows.len() as i64).collect::<Vec<_>>());
    for row in page.rows.iter().filter(|row| row.kind.is_check()) {
        here.auditor().explain(row.txn_id, 20).await.unwrap();
    }
}

/// Nothing is decided, done or made, by whoever asks and whatever it remembers.
pub async fn nothing_happens_behind_the_mark(db: Db) {
    let two = Two::of(db, &[("login", log(5, 3600)), ("pay", log(5, 3600))]).await;
    let here = two.here.limiter().await;
    let first = here.check(Check::new("login", "42")).await.unwrap();
    let reserved = here.reserve(Check::new("login", "42"), HOUR).await.unwrap();
    // Remembered, where it is.
    here.check(Check::new("login", "42")).await.unwrap();
    two.move_there("login", "42").await.unwrap();
    let rows = two.here.rows().await;
    let check = || Check::new("login", "42");
    moved(here.check(check()).await, "there");
    moved(here.check(check().txn(first.txn_id)).await, "there");
    moved(here.peek("login", "42").await, "there");
    moved(here.reserve(check(), HOUR).await, "there");
    moved(here.check_all(vec![check(), Check::new("pay", "42")]).await, "there");
    moved(here.check_many(vec![Check::new("pay", "1"), check()]).await, "there");
    moved(here.refund(Charged::by(first.txn_id)).await, "there");
    moved(here.settle(Charged::by(reserved.txn_id), 1).await, "there");
    moved(here.check_velocity(1, "42").await, "there");
    moved(here.record_blocked(1, "42", Uuid::now_v7(), 1, 2).await, "there");
    let operator = here.operator();
    moved(operator.ban("login", "42", HOUR, "why", "who").await, "there");
    moved(operator.unban("login", "42", "why", "who").await, "there");
    let own = Override { limit: None, ban_exempt: true, for_us: None };
    moved(operator.set_override("login", "42", own, "why", "who").await, "there");
    let mut session = two.here.connect_as(Role::App).await;
    session.begin().await;
    moved(here.check_in(session.joined(), check()).await, "there");
    session.execute("rollback").await.unwrap();
    assert_eq!(two.here.rows().await, rows);
    // Auditors see it, and who did it.
    let listed = here.auditor().buckets("login", None, 10).await.unwrap().remove(0);
    assert_eq!(listed.moved_to.as_deref(), Some("there"));
    assert_eq!(listed.moved_by.is_some(), two.here.engine != Engine::Sqlite, "{listed:?}");
    // Others are let be, and the bucket answers at its place: a transaction that was decided is known there.
    assert!(!here.check(Check::new("pay", "42")).await.unwrap().blocked);
    let there = two.there.limiter().await;
    assert!(there.check(check().txn(first.txn_id)).await.unwrap().replayed);
    there.settle(Charged::by(reserved.txn_id), 1).await.unwrap();
    two.assert_clean().await;
}

/// At whichever step a move was cut off, the next one finishes it: nothing is lost or doubled, and never do both decide.
pub async fn a_move_that_was_cut_off_is_finished_by_the_next(db: Db) {
    let two = Two::of(db, &[("login", log(50, 3600))]).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    let check = || Check::new("login", "42");
    here.check(check()).await.unwrap();
    // After the target's mark.
    mark_new(&two.there, "42", "here").await;
    moved(there.check(check()).await, "here");
    here.check(check()).await.unwrap();
    two.assert_clean().await;
    assert_eq!(two.move_there("login", "42").await.unwrap().rows, 2);
    // After the copy, before the source's mark.
    unmark(&two.here).await;
    mark(&two.there, "here").await;
    two.assert_clean().await;
    moved(there.check(check()).await, "here");
    for _ in 0..3 {
        here.check(check()).await.unwrap();
    }
    assert_eq!(two.move_there("login", "42").await.unwrap().rows, 3);
    // After the source's mark: neither decides.
    mark(&two.there, "here").await;
    moved(there.check(check()).await, "here");
    moved(here.check(check()).await, "there");
    two.assert_clean().await;
    assert_eq!(two.move_there("login", "42").await.unwrap().rows, 0);
    // After all.
    assert_eq!(two.move_there("login", "42").await.unwrap().rows, 0);
    let decision = there.check(check()).await.unwrap();
    assert_eq!((decision.seq, decision.remaining), (Some(6), 44));
    two.assert_clean().await;
    // A bucket that has decided in both places has no one history.
    unmark(&two.here).await;
    here.check(check()).await.unwrap();
    let both = two.move_there("login", "42").await.unwrap_err();
    assert!(both.is_invalid() && both.to_string().contains("in here and in there"), "{both}");
}

/// A session of either database ends after whichever answer: all others are decided, and the next move finishes it.
pub async fn a_move_that_was_killed_anywhere_is_finished_by_the_next(db: Db) {
    let two = Two::of(db, &[("login", log(5_000, 3600))]).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    for (killed, other) in [(&two.here, &two.there), (&two.there, &two.here)] {
        if killed.engine == Engine::Sqlite {
            continue;
        }
        let proxy = Proxy::before(&killed.url_of_own_sessions(Role::Owner)).await;
        let mut killer = killed.connect().await;
        let mut kills = 0;
        let step = rounds(9, 1);
        for answers in (fastrand::usize(..step)..).step_by(step) {
            let key = format!("{} {answers}", killed.engine);
            let check = || Check::new("login", &key);
            for _ in 0..3 {
                here.check(check()).await.unwrap();
            }
            let (from, to, moving) = match killed.engine == two.here.engine {
                true => (proxy.url.clone(), other.url.clone(), key.clone()),
                false => (other.url.clone(), proxy.url.clone(), key.clone()),
            };
            let work = async move {
                let (from, to) = (connected(&from).await, connected(&to).await);
                from.owner().move_bucket(&to.owner(), "login", &moving, NAMES).await.map(drop)
            };
            let is_done = proxy.ends_within(answers, work, killed, &mut killer).await;
            for limiter in [&here, &there] {
                limiter.check(Check::new("login", "other")).await.unwrap();
            }
            two.assert_clean().await;
            two.move_there("login", &key).await.unwrap();
            assert_eq!(there.check(check()).await.unwrap().seq, Some(4), "{key}");
            moved(here.check(check()).await, "there");
            if is_done {
                break;
            }
            kills += 1;
        }
        assert!(kills > 3, "{kills}");
    }
    two.assert_clean().await;
}

/// The same, with the process of the mover (SIGKILL).
pub async fn a_mover_that_was_killed_leaves_nothing_that_the_next_does_not_finish(db: Db) {
    let two = Two::of(db, &[("login", log(5_000, 3600))]).await;
    let (here, there) = (two.here.limiter().await, two.there.limiter().await);
    let mut unfinished = 0;
    for round in 0..rounds(4, 200) {
        let keys: Vec<String> = (0..20).map(|n| format!("{round} {n}")).collect();
        let checks = || keys.iter().map(|key| Check::new("login", key)).collect::<Vec<_>>();
        here.check_many(checks()).await.unwrap();
        let mut mover = Child::start(&Work::Mover(Mover {
            urls: [two.here.url.clone(), two.there.url.clone()],
            names: [NAMES.0, NAMES.1].map(str::to_owned),
            zone: "login".to_owned(),
            keys: keys.clone(),
        }))
        .await;
        mover.go().await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..400))).await;
        mover.kill().await;
        for limiter in [&here, &there] {
            limiter.check(Check::new("login", "other")).await.unwrap();
        }
        two.assert_clean().await;
        for key in &keys {
            unfinished += two.move_there("login", key).await.unwrap().rows;
        }
        for decision in there.check_many(checks()).await.unwrap() {
            assert_eq!(decision.seq, Some(2), "{}", decision.key);
        }
    }
    assert!(unfinished > 0, "no mover was killed before it had copied all");
    two.assert_clean().await;
}

/// A caller that comes to a bucket while another one moves it finds it moved, at whatever moment that is.
pub async fn movers_at_once_all_find_it_moved(db: Db) {
    let two = Two::of(db, &[("login", log(5, 3600))]).await;
    let here = two.here.limiter().await;
    let keys: Vec<String> = (0..rounds(30, 1_000)).map(|n| format!("user:{n}")).collect();
    here.check_many(keys.iter().map(|key| Check::new("login", key)).collect()).await.unwrap();
    let mut movers = Vec::new();
    for _ in 0..4 {
        let (here, there, keys) = (owner(&two.here).await, owner(&two.there).await, keys.clone());
        movers.push(tokio::spawn(async move {
            let mut rows = 0;
            for key in &keys {
                rows += here.owner().move_bucket(&there.owner(), "login", key, NAMES).await.unwrap().rows;
            }
            rows
        }));
    }
    let mut rows = 0;
    for mover in movers {
        rows += mover.await.unwrap();
    }
    assert_eq!(rows, keys.len() as u64, "each row was copied once");
    two.assert_clean().await;
}

/// Callers who go where they are told find one bucket, wherever it is.
pub async fn callers_who_follow_the_mark_are_decided_exactly(db: Db) {
    let two = Two::of(db, &[("login", log(60, 3600))]).await;
    two.here.limiter().await.check(Check::new("login", "42")).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..6 {
        let limiters = [two.here.limiter().await, two.there.limiter().await];
        let done = Arc::clone(&done);
        callers.push(tokio::spawn(async move {
            let (mut at, mut allowed) = (0, 0);
            while !done.load(Ordering::SeqCst) {
                let txn = Uuid::now_v7();
                let decision = loop {
                    match limiters[at].check(Check::new("login", "42").txn(txn)).await {
                        Ok(decision) => break decision,
                        Err(error) if error.kind() == ErrorKind::Refused => at = 1 - at,
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                };
                allowed += usize::from(!decision.blocked);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            allowed
        }));
    }
    for _ in 0..3 {
        two.move_there("login", "42").await.unwrap();
        two.move_back("login", "42").await.unwrap();
    }
    let here = two.here.limiter().await;
    while here.check(Check::new("login", "42")).await.is_ok_and(|decision| !decision.blocked) {}
    done.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    let seq = two.here.number("select seq from zone_bucket_lock").await;
    assert_eq!(two.here.rows().await, seq);
    assert_eq!(two.here.number("select spent_total from zone_bucket_lock").await, 60);
    assert_eq!(two.here.fullest_window(1, 3_600_000_000).await, 60);
    two.here.assert_ledger_is_whole().await;
    two.assert_clean().await;
}

/// The rows that upkeep has taken of a bucket are not missed at its new place.
pub async fn a_bucket_without_its_oldest_rows_or_its_head_moves_too(db: Db) {
    // A window so short that upkeep may drop what is older.
    let short = Policy::sliding_log(50, Duration::from_millis(1)).unwrap();
    let two = Two::of(db, &[("login", short)]).await;
    let here = two.here.limiter().await;
    for _ in 0..5 {
        here.check(Check::new("login", "42")).await.unwrap();
    }
    let columns = "zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, row_hash";
    two.here
        .execute(&format!(
            "insert into zone_txn_dropped ({columns}, salt)
            select {columns}, (select b.salt from zone_bucket_lock b where b.bucket_key = t.bucket_key)
            from zone_txn t where seq = 3"
        ))
        .await;
    two.here.execute("delete from zone_txn where seq <= 3").await;
    two.here.execute("delete from zone_bucket_lock").await;
    let now = if two.here.engine == Engine::Sqlite { "1" } else { "current_timestamp" };
    two.here
        .execute(&format!("insert into zone_bucket_removed (zone_id, removed_at) values (1, {now})"))
        .await;
    assert_eq!(two.move_there("login", "42").await.unwrap().rows, 2);
    moved(two.here.limiter().await.check(Check::new("login", "42")).await, "there");
    let there = two.there.limiter().await;
    assert_eq!(there.check(Check::new("login", "42")).await.unwrap().seq, Some(6));
    let (verified, faults) = verify(&there, &Verify::default()).await;
    assert!(faults.is_empty() && verified.rows == 3, "{verified:?} {faults:?}");
}

/// Each change of a mark, or of what was copied, is found.
pub async fn each_change_of_what_was_moved_is_found(db: Db) {
    let two = Two::of(db, &[("login", log(5, 3600))]).await;
    let here = two.here.limiter().await;
    for _ in 0..3 {
        here.check(Check::new("login", "42")).await.unwrap();
    }
    two.move_there("login", "42").await.unwrap();
    mark_new(&two.here, "left", "there").await;
    two.assert_clean().await;
    let found = async |db: &Db, change: &str, undo: &str, what: FaultKind| {
        db.execute(change).await;
        let (_, faults) = verify(&db.limiter().await, &Verify::default()).await;
        assert!(faults.iter().any(|fault| fault.what == what), "{change}: {faults:?}");
        db.execute(undo).await;
    };
    for key in ["42", "left"] {
        let set =
            |to: &str| format!("update zone_bucket_lock set moved_to = {to} where bucket_key = '{key}'");
        found(&two.here, &set("'yonder'"), &set("'there'"), FaultKind::WrongHead).await;
    }
    let set = |to: &str| format!("update zone_bucket_lock set moved_to = {to} where bucket_key = '42'");
    found(&two.here, &set("null"), &set("'there'"), FaultKind::WrongHead).await;
    for db in [&two.here, &two.there] {
        let cost = |cost: i32| format!("update zone_txn set cost = {cost} where seq = 2");
        found(db, &cost(2), &cost(1), FaultKind::Edited).await;
    }
    two.assert_clean().await;
}

/// Databases that do not have the same zone are refused, and so is a bucket that is nowhere; nothing is done.
pub async fn what_cannot_be_moved_is_refused(db: Db) {
    let two = Two::of(db, &[("login", log(5, 3600))]).await;
    let here = two.here.limiter().await;
    let nowhere = two.move_there("login", "42").await.unwrap_err();
    assert!(nowhere.is_invalid() && nowhere.to_string().contains("no bucket \"42\""), "{nowhere}");
    here.check(Check::new("login", "42")).await.unwrap();
    here.operator().set_zone("login", &log(6, 3600), None, "test").await.unwrap();
    let differs = two.move_there("login", "42").await.unwrap_err();
    assert!(
        differs.is_invalid() && differs.to_string().contains("2 versions in here and 1 in there"),
        "{differs}"
    );
    let (owner, names) = (owner(&two.here).await, ("here", "here"));
    let itself = owner.owner().move_bucket(&owner.owner(), "login", "42", names).await.unwrap_err();
    assert!(itself.is_invalid(), "{itself}");
    if two.here.engine != Engine::Sqlite {
        let there = two.there.limiter().await;
        let app = here.owner().move_bucket(&there.owner(), "login", "42", NAMES).await.unwrap_err();
        assert_eq!(app.kind(), ErrorKind::Refused, "{app}");
    }
    here.check(Check::new("login", "42")).await.unwrap();
    assert_eq!(two.there.number("select count(*) from zone_bucket_lock").await, 0);
}

/// As a move leaves the one bucket of a database between two of its steps.
async fn mark(db: &Db, to: &str) {
    let last = last_hash(db).await;
    let hash = Sha256::new().chain_update(last).chain_update(to).finalize();
    set_mark(db, &format!("'{to}'"), &hash).await;
}

/// The mark of a bucket of which there is nothing.
async fn mark_new(db: &Db, key: &str, to: &str) {
    let salt = [7; 16];
    let name =
        Sha256::new().chain_update(salt).chain_update(1_i32.to_be_bytes()).chain_update(key).finalize();
    let hash = Sha256::new().chain_update(name).chain_update(to).finalize();
    let (salt, hash) = (literal(db, &salt), literal(db, &hash));
    db.execute(&format!(
        "insert into zone_bucket_lock (zone_id, bucket_key, seq, spent_total, strikes, salt, row_hash, moved_to)
        values (1, '{key}', 0, 0, 0, {salt}, {hash}, '{to}')"
    ))
    .await;
}

async fn unmark(db: &Db) {
    set_mark(db, "null", &last_hash(db).await).await;
}

async fn set_mark(db: &Db, to: &str, hash: &[u8]) {
    let hash = literal(db, hash);
    db.execute(&format!("update zone_bucket_lock set moved_to = {to}, moved_by = null, row_hash = {hash}"))
        .await;
}

fn literal(db: &Db, bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if db.engine == Engine::Postgres { format!("'\\x{digits}'") } else { format!("x'{digits}'") }
}

async fn last_hash(db: &Db) -> Vec<u8> {
    let hex = if db.engine == Engine::Postgres { "encode(row_hash, 'hex')" } else { "hex(row_hash)" };
    let mut session: Connected = db.connect().await;
    let digits = session.texts(&format!("select {hex} from zone_txn order by seq desc limit 1")).await;
    (0..32).map(|n| u8::from_str_radix(&digits[0][2 * n..2 * n + 2], 16).unwrap()).collect()
}
