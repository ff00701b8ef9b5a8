//! An owner's work that is cut off behind whichever answer of the server, or anywhere with its process: no check is refused for it,
//! however long it lies, and the next run ends it.

use std::time::{Duration, Instant};

use chrono::Utc;
use serde::{Deserialize, Serialize};
use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::policy::Override;
use tallygate::schema::{Migrator, Role, Upkeep};
use tallygate::{Charged, Check, Limiter, Result};

use crate::child::{Child, Work};
use crate::db::{Clocked, Db, Engine, bucket, connected, log};
use crate::maintain::{DAY, age};
use crate::proxy::Proxy;
use crate::verify::verify;
use crate::{rounds, server, upgrade};

/// The part of a second in which the time is told at which a process is killed.
const PART: Duration = Duration::from_micros(100);

/// The cuts of a small round, or a few more.
const CUTS: usize = 6;

const ERASED: &str = "42";

/// An owner's work.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Task {
    Upkeep,
    Migration,
    /// Of the bucket [`ERASED`].
    Erasure,
    /// Of the policy of a zone, to another one each time.
    Change,
    /// Of the role auditor, to the application's user.
    Grant,
    /// The migration to the next release.
    Release(Engine),
}

impl Task {
    pub async fn run(self, url: &str) -> Result<()> {
        match self {
            Self::Upkeep => {
                let upkeep = Upkeep::default().keep(60 * DAY).idle(60 * DAY);
                connected(url).await.owner().maintain(upkeep).await.map(drop)
            }
            Self::Migration => Migrator::new(url)?.apply().await.map(drop),
            Self::Erasure => {
                match connected(url).await.owner().erase("log", ERASED, "request", "privacy").await {
                    // It was done to its end before.
                    Err(error) if error.is_invalid() => Ok(()),
                    erased => erased.map(drop),
                }
            }
            Self::Change => {
                let policy = log(fastrand::i64(1_000..1_000_000_000), 60);
                connected(url).await.operator().set_zone("log", &policy, None, "test").await.map(drop)
            }
            Self::Grant => Migrator::new(url)?.grant(Role::Auditor, &server::user(Role::App)).await.map(drop),
            Self::Release(engine) => upgrade::next(engine, url).apply().await.map(drop),
        }
    }

    /// Runs to its end, though sessions that were ended may not be gone yet.
    async fn end(self, db: &Db) {
        loop {
            match self.run(&db.url).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(10)).await,
                done => return done.unwrap(),
            }
        }
    }

    async fn begin(self, db: &Db) -> Child {
        let mut child = Child::start(&Work::Task(self, db.url.clone())).await;
        child.go().await;
        child
    }

    /// The number of answers that it gets; with a file, of parts of a second that it takes.
    async fn length(self, db: &Db) -> usize {
        if db.engine == Engine::Sqlite {
            let (child, began) = (self.begin(db).await, Instant::now());
            child.end().await;
            return (began.elapsed().as_micros() / PART.as_micros()) as usize;
        }
        let proxy = Proxy::before(&db.url).await;
        self.run(&proxy.url).await.unwrap();
        proxy.round_trips()
    }

    /// Does it end within so many of these? Else it is cut off there.
    async fn ends_within(self, length: usize, db: &Db) -> bool {
        if db.engine == Engine::Sqlite {
            return self.begin(db).await.ends_within(PART * length as u32).await;
        }
        let proxy = Proxy::before(&db.url_of_own_sessions(Role::Owner)).await;
        let (url, mut killer) = (proxy.url.clone(), db.connect().await);
        proxy.ends_within(length, async move { self.run(&url).await }, db, &mut killer).await
    }

    /// Cuts it off once in each of the databases that are made, here and there, or everywhere in a soak.
    async fn cut(self, make: impl AsyncFn() -> Db, mut judge: impl AsyncFnMut(&Db)) {
        let length = self.length(&make().await).await;
        let step = rounds(length.div_ceil(CUTS).max(1), 1);
        let lengths = (fastrand::usize(..step)..).step_by(step);
        for (cuts, length) in lengths.enumerate() {
            let db = make().await;
            let is_done = self.ends_within(length, &db).await;
            judge(&db).await;
            if is_done {
                assert!(cuts > 3 || db.engine == Engine::Sqlite, "{cuts} cuts");
                return eprintln!("{}: cut off {cuts} times", db.engine);
            }
        }
    }
}

/// The next run does all that is to be done.
pub async fn upkeep_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    lay_by(&db).await;
    let target = if db.engine.is_mysql() { Some(beside(&db).await) } else { None };
    let make = async || copy(&db, target.as_ref()).await;
    let whole = make().await;
    Task::Upkeep.end(&whole).await;
    let dropped = "select count(*) * 1000 + coalesce(max(d.seq), 0) from zone_txn_dropped d";
    let expected = whole.number(dropped).await;
    assert!(expected > 3_000, "{expected}");
    let mut stood = 0;
    let guards = "select count(*) from pg_constraint where conname = 'zone_txn_bounds_ck'";
    Task::Upkeep
        .cut(make, async |db| {
            if db.engine == Engine::Postgres {
                stood += db.number(guards).await;
            }
            decide_in_two_years(db).await.unwrap();
            Task::Upkeep.end(db).await;
            assert_eq!(db.number(dropped).await, expected);
            assert_clean(db).await;
        })
        .await;
    if db.engine == Engine::Postgres {
        // It stands for a few answers, between which a small round may cut.
        assert!(stood > 0 || rounds(0, 1) == 0, "no run was cut off while its guard stood");
        let traces = "select count(*) from pg_proc where proname = 'zone_txn_is_guarded'";
        assert_eq!((whole.number(guards).await, whole.number(traces).await), (0, 0));
        // As a release before this one left it.
        let until = whole.limiter().await.auditor().maintenance().await.unwrap().partitions_until.unwrap();
        let guard = format!("add constraint zone_txn_bounds_ck check (created_at < '{until}') not valid");
        whole.execute(&format!("alter table zone_txn_last {guard}")).await;
        decide_in_two_years(&whole).await.unwrap_err();
        Task::Upkeep.end(&whole).await;
        decide_in_two_years(&whole).await.unwrap();
    }
}

/// Until it is ended there is no schema.
pub async fn a_first_migration_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    Task::Migration
        .cut(
            async || db.create_empty_beside("cut").await,
            async |db| {
                let unfinished = Limiter::connect_with(&db.url, db.config()).await.err();
                assert!(unfinished.as_ref().is_none_or(|error| error.is_schema()), "{unfinished:?}");
                Task::Migration.end(db).await;
                db.migrate().await;
                assert!(Migrator::new(&db.url).unwrap().pending().await.unwrap().is_empty());
                set_zones(&db.limiter().await).await;
                decide_in_two_years(db).await.unwrap();
                assert_clean(db).await;
            },
        )
        .await;
}

/// A routine that is gone is there again, and who had a right on it has that, too.
pub async fn a_migration_of_what_is_gone_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    let limiter = db.limiter().await;
    set_zones(&limiter).await;
    let kind = if db.engine == Engine::Postgres { "function" } else { "procedure" };
    let check = async || limiter.check(Check::new("log", "42")).await.unwrap().txn_id;
    Task::Migration
        .cut(
            async || {
                db.execute(&format!("drop {kind} if exists zone_charges")).await;
                db.elsewhere(db.url.clone())
            },
            async |db| {
                check().await;
                Task::Migration.end(db).await;
                limiter.refund(Charged::by(check().await)).await.unwrap();
                assert_clean(db).await;
            },
        )
        .await;
}

/// It is done whole or not at all.
pub async fn an_erasure_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    let limiter = db.limiter().await;
    set_zones(&limiter).await;
    let rows = format!("select count(*) from zone_txn where bucket_key = '{ERASED}'");
    Task::Erasure
        .cut(
            async || {
                for _ in 0..3 {
                    let charge = limiter.check(Check::new("log", ERASED)).await.unwrap().txn_id;
                    limiter.refund(Charged::by(charge)).await.unwrap();
                }
                db.elsewhere(db.url.clone())
            },
            async |db| {
                let left = db.number(&rows).await;
                assert!(left == 0 || left == 6, "{left} rows are left");
                limiter.check(Check::new("log", "other")).await.unwrap();
                Task::Erasure.end(db).await;
                assert_eq!(db.number(&rows).await, 0);
                assert_clean(db).await;
            },
        )
        .await;
}

/// As above, and checks go on by the policy before or by the one after.
pub async fn a_change_of_a_zone_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    let limiter = db.limiter().await;
    set_zones(&limiter).await;
    let versions =
        "select max(v.version) * 1000 + count(*) from zone_version v join zone_master z on z.id = v.zone_id
        where z.name = 'log'";
    Task::Change
        .cut(
            async || db.elsewhere(db.url.clone()),
            async |db| {
                let before = db.number(versions).await;
                assert_eq!(before / 1000, before % 1000, "as many versions as the last one says");
                limiter.check(Check::new("log", "42")).await.unwrap();
                Task::Change.end(db).await;
                assert_eq!(db.number(versions).await, before + 1001);
                limiter.check(Check::new("log", "42")).await.unwrap();
                assert_clean(db).await;
            },
        )
        .await;
}

/// A user of another role decides on, and has all of the new one after the next run.
pub async fn a_grant_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    let read = async |limiter: &Limiter| limiter.auditor().history(&History::default()).await;
    Task::Grant
        .cut(
            async || beside_with_zones(&db).await,
            async |db| {
                let app = app(db).await;
                app.check(Check::new("log", "42")).await.unwrap();
                Task::Grant.end(db).await;
                assert_eq!(read(&app).await.unwrap().rows.len(), 1);
                app.check(Check::new("log", "42")).await.unwrap();
                assert_clean(db).await;
            },
        )
        .await;
    let without = app(&beside(&db).await).await;
    assert!(read(&without).await.is_err(), "it needs the role");
}

/// Programs of this release decide on, whatever there is of the next one.
pub async fn a_next_release_that_was_cut_off_anywhere_is_ended_by_the_next(db: Db) {
    let task = Task::Release(db.engine);
    task.cut(
        async || beside_with_zones(&db).await,
        async |db| {
            let app = app(db).await;
            let charge = app.check(Check::new("log", "42")).await.unwrap().txn_id;
            task.end(db).await;
            assert_eq!(upgrade::routines_of_next(db).await, 5);
            app.refund(Charged::by(charge)).await.unwrap();
            app.check_many(vec![Check::new("log", "42"); 2]).await.unwrap();
            assert_clean(db).await;
        },
    )
    .await;
}

async fn beside_with_zones(db: &Db) -> Db {
    let db = beside(db).await;
    set_zones(&db.limiter().await).await;
    db
}

/// The application's user alone.
async fn app(db: &Db) -> Limiter {
    Limiter::connect_with(&db.url_as(Role::App), db.config()).await.unwrap()
}

async fn set_zones(limiter: &Limiter) {
    for (zone, policy) in [("log", log(1_000, 60)), ("level", bucket(1_000, 60, 1_000))] {
        limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
    }
}

/// Rows of every age, what has ended, what is in force, and a row of next year: work for each step of upkeep.
async fn lay_by(db: &Db) {
    age(db).await;
    connected(&db.url).await.owner().maintain(Upkeep::default().ahead(DAY)).await.unwrap();
    let clocked = Clocked::create(db).await;
    let (limiter, now_us) = (&clocked.limiter, Utc::now().timestamp_micros());
    let set = async |days: i64| clocked.set(now_us + days * 86_400_000_000).await;
    set(-190).await;
    set_zones(limiter).await;
    for days in [-150, -100, -70, -1, 400] {
        set(days).await;
        for key in if days < -60 { &["long", "quiet", "banned", "own"][..] } else { &["long"] } {
            for zone in ["log", "level"] {
                let decision = limiter.check(Check::new(zone, *key).cost(2)).await.unwrap();
                if decision.is_allowed() {
                    limiter.refund(Charged::by(decision.txn_id)).await.unwrap();
                }
                limiter.reserve(Check::new(zone, *key), Duration::from_secs(90)).await.unwrap();
            }
        }
        if days == -150 {
            limiter.operator().ban("log", "banned", 400 * DAY, "why", "who").await.unwrap();
            let own = Override { limit: None, ban_exempt: true, for_us: None };
            limiter.operator().set_override("log", "own", own, "why", "who").await.unwrap();
        }
    }
    drop(clocked);
    db.remove_test_clock().await;
    if db.engine == Engine::Postgres {
        db.close().await;
    }
}

/// A migrated database beside it.
async fn beside(world: &Db) -> Db {
    Db::create(world.engine, "cut").await
}

/// The database once more: on MySQL and MariaDB, where none can be copied, in the place of what is in the target.
async fn copy(world: &Db, target: Option<&Db>) -> Db {
    let Some(target) = target else {
        if world.engine == Engine::Postgres {
            return world.copy("cut").await;
        }
        let copy = world.create_empty_beside("cut").await;
        world.execute(&format!("vacuum into '{}'", copy.url.trim_start_matches("sqlite:"))).await;
        return copy;
    };
    let (mut owner, name) = (target.connect().await, world.name());
    owner.execute("set session foreign_key_checks = 0").await.unwrap();
    let tables = format!(
        "select cast(t.table_name as char)
        from information_schema.tables t
        where t.table_schema = '{name}' and t.table_type = 'BASE TABLE' and t.table_name like 'zone%'"
    );
    for table in owner.texts(&tables).await {
        // All but what the database computes.
        let columns = format!(
            "select cast(group_concat(c.column_name) as char)
            from information_schema.columns c
            where c.table_schema = '{name}' and c.table_name = '{table}' and coalesce(c.generation_expression, '') = ''"
        );
        let columns = owner.texts(&columns).await;
        for sql in [
            format!("drop table if exists {table}"),
            format!("create table {table} like {name}.{table}"),
            format!("insert into {table} ({0}) select {0} from {name}.{table}", columns[0]),
        ] {
            owner.execute(&sql).await.unwrap();
        }
    }
    target.elsewhere(target.url.clone())
}

/// Checks of buckets of every age, by a clock that is put back then.
async fn decide_in_two_years(db: &Db) -> Result<()> {
    let clocked = Clocked::create(db).await;
    clocked.set(Utc::now().timestamp_micros() + 730 * 86_400_000_000).await;
    let mut decided = Ok(());
    for key in ["long", "quiet", "new"] {
        let checks = ["log", "level"].map(|zone| Check::new(zone, key)).to_vec();
        decided = decided.and(clocked.limiter.check_many(checks).await.map(drop));
        decided = decided.and(clocked.limiter.check(Check::new("log", key)).await.map(drop));
    }
    drop(clocked);
    db.remove_test_clock().await;
    decided
}

async fn assert_clean(db: &Db) {
    assert_eq!(verify(&db.limiter().await, &Verify::default()).await.1, []);
}
