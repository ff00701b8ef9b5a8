//! The core and each database decide the same, step by step, to the microsecond.

use std::time::Duration;

use fastrand::Rng;
use tallygate::audit::verify::{FaultKind, Verify};
use tallygate::decide::Undo;
use tallygate::policy::{
    Algorithm, BanFrom, BanRule, BlockedRows, CalendarUnit, Durability, Limit, Mode, Override,
    RunningBuckets, UNITS_MAX,
};
use tallygate::{Charged, Check, Policy};
use uuid::Uuid;

use crate::chain::assert_chained;
use crate::db::{Clocked, Connected, Db, Engine};
use crate::model::{Act, Asked, Expected, Model, Noted, Refused};
use crate::rounds_of_long;
use crate::verify::verify;

const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01
const STEPS_IN_A_WORLD: usize = 2_000;

/// Random steps, 4,000 to 14,000 of a way in `./test --all` (half a million by each way in a soak, and 100,000 over nodes):
/// policies of every algorithm with everything around them, changes of policy, costs, members, reservations, several limits at once, refunds and
/// settlements, bans and overrides, repeated transactions, and times from standing still over the edges of windows to
/// years.
pub async fn the_database_decides_what_the_core_decides(db: Db) {
    let mut clocked = Vec::new();
    for isolation in db.engine.isolations() {
        clocked.push(Clocked::create_with(&db, *isolation).await);
    }
    let worlds = match db.engine {
        Engine::MySql | Engine::MariaDb => rounds_of_long(10, 500),
        Engine::Postgres if db.is_spread => rounds_of_long(2, 50),
        Engine::Postgres => rounds_of_long(20, 500),
        Engine::Sqlite => rounds_of_long(20, 500),
    };
    let mut steps = 0;
    let mut connection = db.connect().await;
    // From here on the second is a crowded one.
    for world in 3..3 + worlds {
        let clocked = &clocked[world % clocked.len()];
        steps += World::new(world as u64, db.engine).run(clocked, &mut connection, db.engine).await;
    }
    assert!(steps >= worlds * STEPS_IN_A_WORLD, "{steps} steps");
    db.assert_ledger_is_whole().await;
    let (rows, _) = assert_chained(db.engine, &mut connection).await;
    assert!(rows > steps / 2, "{rows} rows of {steps} steps");
    // Every row of every kind is what the rows before it lead to. The test itself has moved the zones' versions.
    let (verified, mut faults) = verify(&clocked[0].limiter, &Verify::default()).await;
    faults.retain(|fault| fault.what != FaultKind::WrongZone);
    assert_eq!((verified.rows, faults), (rows as u64, Vec::new()));
}

/// A few zones and buckets that live through some time together.
struct World {
    seed: u64,
    rng: Rng,
    model: Model,
    zones: Vec<String>,
    now_us: i64,
    years_us: i64,
    /// A hundred reservations and refunds and more in the windows of a few buckets.
    crowded: bool,
    /// Most zones are plain, and half of what callers in SQL may ask is asked in SQL.
    in_sql: bool,
    decided_in_sql: usize,
}

impl World {
    fn new(seed: u64, engine: Engine) -> Self {
        let crowded = seed % 5 == 4;
        let zones = if crowded { 1 } else { 4 };
        Self {
            seed,
            rng: Rng::with_seed(seed),
            model: Model::default(),
            zones: (0..zones).map(|n| format!("world {seed} zone {n}")).collect(),
            now_us: START_US,
            years_us: 0,
            crowded,
            in_sql: engine != Engine::Sqlite && seed.is_multiple_of(2),
            decided_in_sql: 0,
        }
    }

    async fn run(mut self, clocked: &Clocked, connection: &mut Connected, engine: Engine) -> usize {
        for zone in self.zones.clone() {
            self.set_zone(&zone, clocked, connection, engine).await;
        }
        let mut steps = 0;
        while steps < STEPS_IN_A_WORLD {
            if self.rng.u32(..200) == 0 {
                let zone = self.rng.choice(self.zones.clone()).unwrap();
                self.set_zone(&zone, clocked, connection, engine).await;
            }
            self.advance();
            clocked.set(self.now_us).await;
            steps += match self.rng.u8(..16) {
                0..6 => {
                    let asked = self.ask();
                    self.decide(clocked, vec![asked]).await
                }
                6..11 => {
                    let batch = (0..self.rng.usize(2..20)).map(|_| self.ask()).collect();
                    self.decide(clocked, batch).await
                }
                11 => self.decide_together(clocked).await,
                12..14 => self.undo(clocked).await,
                14 => self.mark(clocked).await,
                _ if self.rng.bool() => self.take(clocked).await,
                _ => self.record_blocked(clocked).await,
            };
        }
        self.assert_heads(connection, engine).await;
        self.assert_explained(clocked).await;
        assert_eq!(
            self.in_sql,
            self.decided_in_sql > 0,
            "{} in SQL in world {}",
            self.decided_in_sql,
            self.seed
        );
        steps
    }

    /// The rows of a bucket can be derived again, whatever happened to it.
    async fn assert_explained(&mut self, clocked: &Clocked) {
        for bucket in self.model.buckets.values().filter(|bucket| bucket.head.seq > 0) {
            // An act of people has a transaction that the library makes.
            let decided = bucket.rows.iter().filter(|row| row.decided.is_some());
            for row in self.rng.choose_multiple(decided, 5) {
                let explained = clocked.limiter.auditor().explain(row.txn, 5).await.unwrap();
                for row in &explained.rows {
                    assert_eq!(row.reproduced, Some(true), "{row:?} in world {}", self.seed);
                }
            }
        }
    }

    /// The database keeps of each bucket what the core left behind.
    async fn assert_heads(&self, connection: &mut Connected, engine: Engine) {
        let us = |column: &str| match engine {
            Engine::Postgres => format!("(extract(epoch from {column}) * 1000000)::bigint"),
            Engine::Sqlite => column.to_owned(),
            _ => format!("timestampdiff(microsecond, '1970-01-01', {column})"),
        };
        for ((zone, key), bucket) in self.model.buckets.iter().filter(|(_, bucket)| bucket.head.seq > 0) {
            let head = &bucket.head;
            let or = |value: Option<i64>| value.unwrap_or(-1);
            let carried = head.carried;
            let columns = [
                ("b.seq".to_owned(), head.seq),
                ("b.spent_total".to_owned(), head.spent_total),
                ("coalesce(b.level, -1)".to_owned(), or(head.level)),
                ("b.zone_version".to_owned(), head.zone_version.into()),
                ("b.strikes".to_owned(), head.strikes),
                (format!("coalesce({}, -1)", us("b.banned_until")), or(head.banned_until_us)),
                ("b.bans".to_owned(), head.bans.into()),
                ("b.ban_strikes".to_owned(), head.ban_strikes),
                ("coalesce(b.carried, -1)".to_owned(), or(carried.map(|carried| carried.amount))),
                (format!("coalesce({}, -1)", us("b.carried_at")), or(carried.map(|carried| carried.at_us))),
                ("coalesce(b.carried_total, -1)".to_owned(), or(carried.map(|carried| carried.total))),
                ("coalesce(b.carried_seq, -1)".to_owned(), or(carried.map(|carried| carried.seq))),
                ("coalesce(b.override_seq, -1)".to_owned(), or(head.exception.map(|exception| exception.seq))),
                (
                    "(select count(*) from zone_hold h where h.zone_id = b.zone_id and h.bucket_key = b.bucket_key)"
                        .to_owned(),
                    bucket.holds.len() as i64,
                ),
                (
                    "(select cast(coalesce(sum(h.amount), 0) as decimal(30)) from zone_hold h
                      where h.zone_id = b.zone_id and h.bucket_key = b.bucket_key)"
                        .to_owned(),
                    bucket.holds.iter().map(|hold| hold.amount).sum(),
                ),
            ];
            for (column, value) in columns {
                let same = format!(
                    "select count(*) from zone_bucket_lock b join zone_master z on z.id = b.zone_id
                     where z.name = '{zone}' and b.bucket_key = '{key}' and {column} = {value}"
                );
                let found = connection.number(&same).await;
                assert_eq!(found, 1, "{column} of {zone} {key} in world {}: {head:?}", self.seed);
            }
        }
    }

    /// Sends the steps to both and compares.
    async fn decide(&mut self, clocked: &Clocked, batch: Vec<Asked>) -> usize {
        let steps = batch.len();
        let (mut checks, mut expected) = (Vec::new(), Vec::new());
        for asked in batch {
            match self.model.check(&asked, self.now_us) {
                Ok(decision) => {
                    checks.push(asked);
                    expected.push(decision);
                }
                // An error fails a whole batch, so it goes alone.
                Err(refused) => match self.check_in_sql(clocked, &asked).await {
                    Some(told) => assert_eq!(told.unwrap_err(), refused, "{asked:?} in world {}", self.seed),
                    None => {
                        let error = clocked.limiter.check(check(&asked)).await.unwrap_err();
                        self.assert_refused(&error, &refused, &asked);
                    }
                },
            }
        }
        if checks.is_empty() {
            return steps;
        }
        if let ([asked], [expected]) = (checks.as_slice(), expected.as_slice())
            && let Some(told) = self.check_in_sql(clocked, asked).await
        {
            // Of what the library decided it tells no more than of its own.
            let expected = Expected { delay_us: None, ends_us: None, ..*expected };
            assert_eq!(told, Ok(expected), "{asked:?} in SQL in world {}", self.seed);
            return steps;
        }
        let decisions = if let [asked] = checks.as_slice() {
            vec![clocked.limiter.check(check(asked)).await.unwrap()]
        } else {
            clocked.limiter.check_many(checks.iter().map(check).collect()).await.unwrap()
        };
        for ((decision, expected), asked) in decisions.iter().zip(&expected).zip(&checks) {
            assert_eq!(Expected::from(decision), *expected, "{asked:?} in world {}", self.seed);
        }
        steps
    }

    /// May a routine for SQL callers be asked about this bucket, and is it? Not where it was last decided before a change that none
    /// of them knows.
    fn goes_by_sql(&mut self, asked: &Asked) -> bool {
        let versions = &self.model.zones[&asked.zone];
        let bucket = self.model.buckets.get(&(asked.zone.clone(), asked.key.clone()));
        let head = bucket.map(|bucket| bucket.head).filter(|head| head.seq > 0);
        let known = head.is_none_or(|head| {
            let later = versions.iter().filter(|version| version.version > head.zone_version);
            later.clone().all(|version| version.policy.running_buckets() == RunningBuckets::AsIs)
        });
        self.in_sql && known && self.model.policy(&asked.zone).beyond_sql().is_none() && self.rng.bool()
    }

    /// The answer of `zone_check`; None where the library is asked.
    async fn check_in_sql(&mut self, clocked: &Clocked, asked: &Asked) -> Option<Result<Expected, Refused>> {
        if asked.critical || asked.member.is_some() || asked.ttl_us.is_some() || !self.goes_by_sql(asked) {
            return None;
        }
        self.decided_in_sql += 1;
        let Asked { zone, key, txn, cost, .. } = asked;
        let told = clocked.routine("zone_check", zone, key, *txn, &format!(", {cost}")).await;
        Some(told.map_err(|code| refused(&code)).map(|told| Expected {
            blocked: told.blocked,
            reason: told.reason.parse().unwrap(),
            limit: told.limit,
            remaining: told.remaining,
            retry_after_us: told.retry_after_us,
            delay_us: None,
            ends_us: None,
            seq: told.seq,
            zone_version: told.zone_version,
            decided_us: told.created_at.timestamp_micros(),
            replayed: told.replayed,
        }))
    }

    /// Several limits of one transaction.
    async fn decide_together(&mut self, clocked: &Clocked) -> usize {
        let mut all: Vec<Asked> = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let asked = Asked { ttl_us: None, ..self.ask() };
            if !all.iter().any(|other| other.zone == asked.zone && other.key == asked.key) {
                all.push(asked);
            }
        }
        let txn = all[0].txn;
        all.iter_mut().for_each(|asked| asked.txn = txn);
        let before = self.model.buckets.clone();
        let expected = self.model.check_all(&all, self.now_us);
        let answer = clocked.limiter.check_all(all.iter().map(check).collect()).await;
        match expected {
            Ok(expected) => {
                let answer = answer.unwrap_or_else(|error| panic!("{error}: {all:?} in world {}", self.seed));
                for ((decision, expected), asked) in answer.decisions.iter().zip(&expected).zip(&all) {
                    assert_eq!(
                        Expected::from(decision),
                        *expected,
                        "{asked:?} of {all:?} in world {}",
                        self.seed
                    );
                }
                assert_eq!(answer.blocked, expected.iter().any(|expected| expected.blocked));
            }
            Err(refused) => {
                self.model.buckets = before;
                self.assert_refused(&answer.unwrap_err(), &refused, &all);
            }
        }
        all.len()
    }

    /// Ends a charge of before, in whatever way.
    async fn undo(&mut self, clocked: &Clocked) -> usize {
        let mut asked = self.ask();
        let bucket = self.model.buckets.get(&(asked.zone.clone(), asked.key.clone()));
        let Some(rows) = bucket.map(|bucket| &bucket.rows).filter(|rows| !rows.is_empty()) else { return 0 };
        // The last ones more often: they are in the window.
        let last = if self.rng.bool() { rows.len().min(6) } else { rows.len() };
        let row = &rows[rows.len() - 1 - self.rng.usize(..last)];
        asked.txn = row.txn;
        let undo = match (row.kind, self.rng.u8(..8)) {
            ("reserve", 0..5) => Undo::Settle(self.rng.i64(0..=row.cost.saturating_mul(2).min(UNITS_MAX))),
            ("reserve", 5..7) => Undo::Cancel,
            ("local", 0..=6) => Undo::Used(self.rng.i64(0..=row.cost)),
            (_, 3) => Undo::Used(1),
            (_, 0..3) => Undo::Release,
            (_, 7) => Undo::Cancel,
            _ => Undo::Refund,
        };
        let expected = self.model.act(&asked, Act::Undo(undo), self.now_us);
        if matches!(undo, Undo::Refund) && self.goes_by_sql(&asked) {
            let told = clocked.routine("zone_refund", &asked.zone, &asked.key, asked.txn, "").await;
            let noted = told.map(|told| Noted {
                kind: "refund",
                cost: told.cost,
                spent: 0,
                remaining: told.remaining,
                ends_us: None,
                seq: told.seq.unwrap(),
                zone_version: told.zone_version,
                at_us: told.created_at.timestamp_micros(),
                replayed: told.replayed,
            });
            self.decided_in_sql += 1;
            assert_eq!(
                noted.map_err(|code| refused(&code)),
                expected,
                "{asked:?} in SQL in world {}",
                self.seed
            );
            return 1;
        }
        let charged = Charged::by(asked.txn).in_bucket(&asked.zone, &asked.key);
        let recorded = match undo {
            Undo::Refund => clocked.limiter.refund(charged).await,
            Undo::Settle(cost) => clocked.limiter.settle(charged, cost).await,
            Undo::Cancel => clocked.limiter.cancel(charged).await,
            Undo::Release => clocked.limiter.release(charged).await,
            Undo::Used(units) => {
                let id = clocked.limiter.operator().zone(&asked.zone).await.unwrap().unwrap().id;
                let settled = clocked.limiter.settle_units(id, &asked.key, asked.txn, units).await;
                settled.map(|recorded| vec![recorded])
            }
        };
        self.assert_noted(recorded.map(|mut recorded| recorded.remove(0)), expected, &(undo, &asked));
        1
    }

    /// Units for local decisions.
    async fn take(&mut self, clocked: &Clocked) -> usize {
        let asked = Asked { txn: Uuid::now_v7(), ..self.ask() };
        let id = clocked.limiter.operator().zone(&asked.zone).await.unwrap().unwrap().id;
        let expected = self.model.take(&asked, self.now_us);
        let taken = clocked.limiter.take_units(id, &asked.key, asked.txn, asked.cost).await;
        match (taken, expected) {
            (Ok(taken), Ok(expected)) => assert_eq!(taken, expected, "{asked:?} in world {}", self.seed),
            (Err(error), Err(refused)) => self.assert_refused(&error, &refused, &asked),
            (taken, expected) => panic!("{taken:?}, not {expected:?}: {asked:?} in world {}", self.seed),
        }
        1
    }

    /// Bans, overrides, and their ends.
    async fn mark(&mut self, clocked: &Clocked) -> usize {
        let asked = self.ask();
        let window_us = self.model.policy(&asked.zone).window_us();
        let time_us = self.rng.i64(1..=window_us.saturating_mul(3).min(UNITS_MAX));
        let over = Override {
            limit: self.limit(),
            ban_exempt: self.rng.bool(),
            for_us: self.rng.bool().then_some(time_us),
        };
        let act = match self.rng.u8(..8) {
            0..2 => Act::Ban(time_us),
            2 => Act::Unban,
            3 => Act::Override(None),
            _ if over.limit.is_none() && !over.ban_exempt => Act::Unban,
            _ => Act::Override(Some(over)),
        };
        let expected = self.model.act(&asked, act, self.now_us);
        let (limiter, zone, key) = (&clocked.limiter, asked.zone.as_str(), asked.key.as_str());
        let recorded = match act {
            Act::Ban(us) => {
                limiter.operator().ban(zone, key, Duration::from_micros(us as u64), "why", "who").await
            }
            Act::Unban => limiter.operator().unban(zone, key, "why", "who").await,
            Act::Override(Some(over)) => limiter.operator().set_override(zone, key, over, "why", "who").await,
            Act::Override(None) => limiter.operator().remove_override(zone, key, "why", "who").await,
            Act::Undo(_) => unreachable!(),
        };
        self.assert_noted(recorded, expected, &(act, &asked));
        1
    }

    fn assert_noted(
        &self,
        recorded: tallygate::Result<tallygate::Recorded>,
        expected: Result<Noted, Refused>,
        what: &dyn std::fmt::Debug,
    ) {
        match (recorded, expected) {
            (Ok(recorded), Ok(expected)) => {
                assert_eq!(Noted::from(&recorded), expected, "{what:?} in world {}", self.seed);
            }
            (Err(error), Err(refused)) => self.assert_refused(&error, &refused, what),
            (recorded, expected) => panic!("{recorded:?}, not {expected:?}: {what:?} in world {}", self.seed),
        }
    }

    fn assert_refused(&self, error: &tallygate::Error, refused: &Refused, what: &dyn std::fmt::Debug) {
        let same = match refused {
            Refused::Conflict => error.is_conflict(),
            Refused::Invalid => error.is_invalid(),
        };
        assert!(same, "{error}, not {refused:?}: {what:?} in world {}", self.seed);
    }

    /// Records checks that nobody decided, and asks what was recorded.
    async fn record_blocked(&mut self, clocked: &Clocked) -> usize {
        let mut asked = Asked { critical: false, member: None, ttl_us: None, ..self.ask() };
        // Often of a bucket that has just blocked one.
        let blocked = self.model.buckets.iter().filter(|(_, bucket)| {
            let last = bucket.rows.last().filter(|row| self.now_us - row.at_us <= 60_000_000);
            last.is_some_and(|row| row.decided.is_some_and(|told| told.blocked))
        });
        if let Some((zone, key)) = blocked.map(|(names, _)| names).min().filter(|_| self.rng.bool()) {
            (asked.zone, asked.key) = (zone.clone(), key.clone());
        }
        let id = clocked.limiter.operator().zone(&asked.zone).await.unwrap().unwrap().id;
        let checks = self.rng.u32(1..1_000);
        let recorded = clocked.limiter.record_blocked(id, &asked.key, asked.txn, asked.cost, checks).await;
        match self.model.record_blocked(&asked, self.now_us) {
            Ok(()) => {
                recorded.unwrap();
                if asked.cost > 0 {
                    self.decide(clocked, vec![asked]).await;
                }
            }
            Err(refused) => self.assert_refused(&recorded.unwrap_err(), &refused, &asked),
        }
        1
    }

    /// A time at which something may change: the same, the next, an edge of a window, of a promised wait or of what
    /// ends by itself, or far away.
    fn advance(&mut self) {
        let zone = self.rng.choice(&self.zones).unwrap();
        let window_us = self.model.policy(zone).window_us();
        if self.crowded && self.rng.u8(..64) > 0 {
            self.now_us += self.rng.i64(0..window_us / 1_000);
            return;
        }
        let edge = i64::from(self.rng.u8(..3)) - 1;
        let step_us = match self.rng.u8(..18) {
            0..4 => 0,
            4..6 => 1,
            6..11 => self.rng.i64(0..=window_us / 4 + 1),
            11 => (window_us + edge).max(0),
            12..15 => {
                let rows = self.model.buckets.values().filter_map(|b| b.rows.last()?.decided);
                let waits = rows
                    .filter_map(|decided| Some(decided.decided_us + decided.retry_after_us? - self.now_us));
                let wait = waits.filter(|wait| *wait > 0).min().unwrap_or(0);
                (wait + edge).max(0)
            }
            15..17 => {
                let holds = self.model.buckets.values().flat_map(|b| b.holds.iter().map(|hold| hold.ends_us));
                let bans = self.model.buckets.values().filter_map(|b| b.head.banned_until_us);
                let overrides = self.model.buckets.values().filter_map(|b| b.head.exception?.until_us);
                let ends = holds.chain(bans).chain(overrides).map(|us| us - self.now_us);
                let end = ends.filter(|us| *us > 0).min().unwrap_or(0);
                (end + edge).max(0)
            }
            _ => window_us.saturating_mul(10),
        };
        // No more than 2,000 years a world: MySQL's calendar ends with the year 9999.
        let years_us = self.years_us + step_us;
        if years_us < 2_000 * 366 * 86_400_000_000 {
            self.years_us = years_us;
            self.now_us += step_us;
        }
    }

    fn ask(&mut self) -> Asked {
        let zone = self.rng.choice(self.zones.clone()).unwrap();
        let key = format!("key {}", self.rng.u8(..3));
        let policy = self.model.policy(&zone);
        let limit = policy.limit();
        let mut cost = match self.rng.u8(..16) {
            _ if self.crowded && self.rng.u8(..16) > 0 => 1,
            0 => 0,
            1..9 => 1,
            9..12 => self.rng.i64(1..=limit.max(1)),
            12 => limit,
            13 => (limit + 1).min(UNITS_MAX),
            14 => UNITS_MAX,
            _ => self.rng.i64(1..=limit / 3 + 1),
        };
        let (mut txn, mut about) = (Uuid::now_v7(), None);
        let past = self.model.buckets.get(&(zone.clone(), key.clone())).filter(|b| !b.rows.is_empty());
        if let Some(bucket) = past
            && self.rng.u8(..8) == 0
        {
            let row = &bucket.rows[self.rng.usize(..bucket.rows.len())];
            cost = if self.rng.u8(..4) == 0 { row.cost % UNITS_MAX + 1 } else { row.cost };
            txn = row.txn;
            about = (self.rng.u8(..8) > 0).then(|| row.member.clone());
        }
        let distinct = policy.algorithm() == Algorithm::Distinct;
        // Once in a while what has no meaning: a cost of a member, a member where none is counted.
        let strange = self.rng.u8(..64) == 0;
        if distinct && !strange {
            cost = cost.min(1);
        }
        let member = (distinct != strange).then(|| format!("member {}", self.rng.u8(..12)));
        let member = about.unwrap_or(member);
        let held = matches!(policy.algorithm(), Algorithm::Distinct | Algorithm::Concurrency);
        let reserves = cost > 0 && (!held || strange) && self.rng.u8(..6) < if self.crowded { 4 } else { 1 };
        let ttl_us = reserves.then(|| self.rng.i64(1..=policy.window_us().saturating_mul(2).min(UNITS_MAX)));
        Asked { zone, key, txn, cost, critical: self.rng.u8(..3) == 0, member, ttl_us }
    }

    fn limit(&mut self) -> Option<Limit> {
        if self.rng.u8(..3) == 0 {
            return None;
        }
        let window = Duration::from_micros(self.rng.choice([1_000_000, 60_000_000]).unwrap());
        let burst = self.rng.bool().then(|| self.rng.i64(1..=20));
        Limit::new(self.rng.i64(1..=20), window, burst).ok()
    }

    fn policy(&mut self) -> Policy {
        if self.crowded {
            let (rate, window) = (self.rng.i64(50..500), Duration::from_millis(self.rng.u64(1..4) * 300));
            let policy = match self.rng.u8(..3) {
                0 => Policy::sliding_log(rate, window),
                1 => Policy::fixed_window(rate, window),
                _ => Policy::sliding_counter(rate, window, 3),
            };
            if self.in_sql {
                return policy.unwrap();
            }
            let counts = self.rng.u8(..4) == 0;
            let rows = if counts { BlockedRows::Each } else { BlockedRows::Coalesced };
            return policy.unwrap().with_count_blocked(counts).with_blocked_rows(rows);
        }
        let windows = [1, 7, 1_000, 999_983, 1_000_000, 60_000_000, 3_600_000_000, 2_592_000_000_000];
        let window = Duration::from_micros(self.rng.choice(windows).unwrap());
        let rate = match self.rng.u8(..6) {
            // 0 refuses all, where the algorithm knows of it.
            0 => self.rng.i64(0..=1),
            1..4 => self.rng.i64(2..10),
            4 => self.rng.i64(10..100_000),
            _ => self.rng.i64(1..=UNITS_MAX),
        };
        // Capacity is not checked.
        let algorithm = *self.rng.choice(&Algorithm::ALL[..9]).unwrap();
        let plain =
            [Algorithm::SlidingLog, Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::Uniform];
        let algorithm =
            if self.in_sql && self.rng.u8(..8) > 0 { self.rng.choice(plain).unwrap() } else { algorithm };
        let level =
            matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue);
        let burst = (level && self.rng.bool()).then(|| self.rng.i64(1..=20));
        let policy = Policy::new(algorithm, rate, window, burst)
            .unwrap_or_else(|_| Policy::new(algorithm, 3, Duration::from_secs(7), burst).unwrap());
        let policy = match algorithm {
            Algorithm::SlidingCounter => {
                let slots = self.rng.choice([1, 2, 3, 10]).unwrap();
                Policy::sliding_counter(rate, window, slots).unwrap_or(policy)
            }
            Algorithm::FixedWindow if !self.in_sql && self.rng.bool() => {
                let unit = *self.rng.choice(CalendarUnit::ALL).unwrap();
                let zones =
                    ["UTC", "Europe/Berlin", "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe"];
                Policy::calendar(rate, unit, self.rng.choice(zones).unwrap().parse().unwrap()).unwrap()
            }
            _ => policy,
        };
        if self.in_sql && self.rng.u8(..8) > 0 {
            let mode = if self.rng.u8(..8) == 0 { Mode::Off } else { Mode::Enforce };
            return policy.with_mode(mode);
        }
        let policy = policy.with_running_buckets(*self.rng.choice(RunningBuckets::ALL).unwrap());
        let rows = *self.rng.choice(BlockedRows::ALL).unwrap();
        let policy = policy.with_blocked_rows(rows);
        if self.rng.bool() {
            return policy;
        }
        let below = |rng: &mut Rng| rng.bool().then(|| rng.i64(0..policy.limit().max(1)));
        let window = counts(algorithm);
        let ban = self.rng.bool().then(|| {
            let time = |rng: &mut Rng| rng.i64(1..=policy.window_us().saturating_mul(2).min(UNITS_MAX));
            let for_us = time(&mut self.rng);
            BanRule {
                after: self.rng.i32(1..5),
                within_us: time(&mut self.rng),
                for_us,
                factor: self.rng.i32(1..5),
                longest_us: for_us + self.rng.i64(0..=for_us.saturating_mul(8)),
                from: *self.rng.choice(BanFrom::ALL).unwrap(),
            }
        });
        policy
            .with_soft_rate(below(&mut self.rng))
            .with_reserve(below(&mut self.rng).unwrap_or(0))
            .with_mode(
                *self
                    .rng
                    .choice([Mode::Enforce, Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Off].as_slice())
                    .unwrap(),
            )
            .with_count_blocked(window && rows == BlockedRows::Each && self.rng.u8(..4) == 0)
            .with_ban(ban)
    }

    /// Makes or changes the zone at the test's time, which the library's own way of changing would not take.
    async fn set_zone(&mut self, zone: &str, clocked: &Clocked, connection: &mut Connected, engine: Engine) {
        let mut policy = self.policy();
        let local = Duration::from_micros(self.rng.u64(1..=policy.window_us().unsigned_abs()));
        if self.rng.bool() && policy.with_local(Some(local)).validate().is_ok() {
            policy = policy.with_local(Some(local));
        }
        if !engine.is_mysql() && self.rng.bool() {
            policy = policy.with_durability(Durability::Relaxed);
        }
        clocked.set(self.now_us).await;
        let before = self.model.zones.get(zone).map_or(0, Vec::len);
        let running = policy.running_buckets();
        if before > 0 && self.model.policy(zone).with_running_buckets(running) == policy {
            return;
        }
        let stored = clocked.limiter.operator().set_zone(zone, &policy, None, "test").await.unwrap();
        assert_eq!(stored.version as usize, before + 1);
        let at = match engine {
            Engine::Postgres => {
                // An interval is multiplied in floating point: hours and their rest are exact.
                let (hours, us) = (self.now_us / 3_600_000_000, self.now_us % 3_600_000_000);
                format!("timestamptz 'epoch' + {hours} * interval '1 hour' + {us} * interval '1 microsecond'")
            }
            Engine::Sqlite => self.now_us.to_string(),
            _ => format!("date_add('1970-01-01', interval {} microsecond)", self.now_us),
        };
        let (id, version) = (stored.id, stored.version);
        connection
            .execute(&format!(
                "update zone_version set changed_at = {at} where zone_id = {id} and version = {version};
                 update zone_master set updated_at = {at} where id = {id}"
            ))
            .await
            .unwrap();
        self.model.set_zone(zone, policy, self.now_us);
    }
}

/// The meaning of a SQLSTATE of ours.
fn refused(code: &str) -> Refused {
    match code {
        "TG002" => Refused::Conflict,
        "TG003" | "TG004" => Refused::Invalid,
        code => panic!("{code}"),
    }
}

/// May a blocked check spend?
fn counts(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::SlidingLog | Algorithm::FixedWindow | Algorithm::SlidingCounter)
}

fn check(asked: &Asked) -> Check {
    let mut check = Check::new(&asked.zone, &asked.key).cost(asked.cost).txn(asked.txn);
    if asked.critical {
        check = check.critical();
    }
    if let Some(member) = &asked.member {
        check = check.member(member);
    }
    if let Some(ttl_us) = asked.ttl_us {
        check = check.reserved_for(Duration::from_micros(ttl_us as u64));
    }
    check
}
