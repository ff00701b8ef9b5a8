//! The core and each database decide the same, step by step, to the microsecond.

use std::time::Duration;

use fastrand::Rng;
use tallygate::{Check, Durability, Policy, UNITS_MAX};
use uuid::Uuid;

use crate::db::{Clocked, Connected, Db, Engine};
use crate::model::{Expected, Model};
use crate::rounds;

const START_US: i64 = 1_767_225_600_000_000; // 2026-01-01
const STEPS_IN_A_WORLD: usize = 2_000;

/// 100,000 random steps: policies, changes of policy, costs, repeated transactions, and times from standing
/// still over the edges of windows to years.
pub async fn the_database_decides_what_the_core_decides(db: Db) {
    let mut clocked = Vec::new();
    for isolation in db.engine.isolations() {
        clocked.push(Clocked::create_with(&db, *isolation).await);
    }
    let mut steps = 0;
    let mut connection = db.connect().await;
    for world in 0..rounds(50, 500) {
        let clocked = &clocked[world % clocked.len()];
        steps += World::new(world as u64).run(clocked, &mut connection, db.engine).await;
    }
    assert!(steps >= 100_000, "{steps} steps");
    db.assert_ledger_is_whole().await;
}

/// A few zones and buckets that live through some time together.
struct World {
    seed: u64,
    rng: Rng,
    model: Model,
    zones: Vec<String>,
    now_us: i64,
    years_us: i64,
}

struct Step {
    zone: String,
    key: String,
    txn: Option<Uuid>,
    cost: i64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: Rng::with_seed(seed),
            model: Model::default(),
            zones: (0..4).map(|n| format!("world {seed} zone {n}")).collect(),
            now_us: START_US,
            years_us: 0,
        }
    }

    async fn run(mut self, clocked: &Clocked, connection: &mut Connected, engine: Engine) -> usize {
        for zone in self.zones.clone() {
            self.set_zone(&zone, clocked, connection, engine).await;
        }
        let mut steps = 0;
        while steps < STEPS_IN_A_WORLD {
            if self.rng.u32(..400) == 0 {
                let zone = self.rng.choice(self.zones.clone()).unwrap();
                self.set_zone(&zone, clocked, connection, engine).await;
            }
            self.advance();
            clocked.set(self.now_us).await;
            // Half of the steps go alone, half in batches.
            let batch = if self.rng.bool() { 1 } else { self.rng.usize(2..20) };
            let batch: Vec<Step> = (0..batch).map(|_| self.step()).collect();
            steps += batch.len();
            self.decide(clocked, batch).await;
            if self.rng.u8(..8) == 0 {
                self.record_blocked(clocked).await;
            }
        }
        self.assert_heads(connection).await;
        steps
    }

    /// What the database keeps of each bucket is what the core left behind.
    async fn assert_heads(&self, connection: &mut Connected) {
        for ((zone, key), bucket) in self.model.buckets.iter().filter(|(_, bucket)| bucket.head.seq > 0) {
            let head = &bucket.head;
            let same = format!(
                "select count(*) from zone_bucket_lock b join zone_master z on z.id = b.zone_id
                 where z.name = '{zone}' and b.bucket_key = '{key}' and b.seq = {} and b.spent_total = {}
                     and coalesce(b.level, -1) = {} and b.zone_version = {}",
                head.seq,
                head.spent_total,
                head.level.unwrap_or(-1),
                head.zone_version
            );
            assert_eq!(connection.number(&same).await, 1, "{zone} {key} in world {}: {head:?}", self.seed);
        }
    }

    /// Sends the steps to both and compares.
    async fn decide(&mut self, clocked: &Clocked, batch: Vec<Step>) {
        let mut checks = Vec::new();
        let mut expected = Vec::new();
        for step in batch {
            let txn = step.txn.unwrap_or_else(Uuid::now_v7);
            let check = Check::new(&step.zone, &step.key).cost(step.cost).txn(txn);
            match self.model.check(&step.zone, &step.key, txn, step.cost, self.now_us) {
                Ok(decision) => {
                    checks.push(check);
                    expected.push(decision);
                }
                // A conflict fails a whole batch, so it goes alone.
                Err(_) => {
                    let error = clocked.limiter.check(check).await.unwrap_err();
                    assert!(error.is_conflict(), "{error} in world {}", self.seed);
                }
            }
        }
        if checks.is_empty() {
            return;
        }
        let decisions = if checks.len() == 1 {
            vec![clocked.limiter.check(checks[0].clone()).await.unwrap()]
        } else {
            clocked.limiter.check_many(checks.clone()).await.unwrap()
        };
        for ((decision, expected), check) in decisions.iter().zip(&expected).zip(&checks) {
            assert_eq!(Expected::from(decision), *expected, "{check:?} in world {}", self.seed);
        }
    }

    /// Records checks that nobody decided, and asks what was recorded.
    async fn record_blocked(&mut self, clocked: &Clocked) {
        let Step { zone, key, txn, cost } = self.step();
        let txn = txn.unwrap_or_else(Uuid::now_v7);
        let id = clocked.limiter.zone(&zone).await.unwrap().unwrap().id;
        let checks = self.rng.u32(1..1_000);
        let recorded = clocked.pool().record_blocked(id, &key, txn, cost, checks).await;
        match self.model.record_blocked(&zone, &key, txn, cost, self.now_us) {
            Ok(()) => {
                recorded.unwrap();
                if cost > 0 {
                    self.decide(clocked, vec![Step { zone, key, txn: Some(txn), cost }]).await;
                }
            }
            Err(_) => assert!(recorded.unwrap_err().is_conflict(), "in world {}", self.seed),
        }
    }

    /// A time at which something may change: the same, the next, an edge of a window or of a promised wait,
    /// or far away.
    fn advance(&mut self) {
        let zone = self.rng.choice(&self.zones).unwrap();
        let window_us = self.model.policy(zone).window_us();
        let edge = i64::from(self.rng.u8(..3)) - 1;
        let step_us = match self.rng.u8(..16) {
            0..4 => 0,
            4..6 => 1,
            6..11 => self.rng.i64(0..=window_us / 4 + 1),
            11 => (window_us + edge).max(0),
            12..15 => {
                let rows = self.model.buckets.values().filter_map(|b| b.rows.last());
                let waits = rows.filter_map(|row| {
                    row.expected.retry_after_us.map(|wait| row.expected.decided_us + wait - self.now_us)
                });
                let wait = waits.filter(|wait| *wait > 0).min().unwrap_or(0);
                (wait + edge).max(0)
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

    fn step(&mut self) -> Step {
        let zone = self.rng.choice(self.zones.clone()).unwrap();
        let key = format!("key {}", self.rng.u8(..3));
        let limit = self.model.policy(&zone).limit();
        let cost = match self.rng.u8(..16) {
            0 => 0,
            1..9 => 1,
            9..12 => self.rng.i64(1..=limit),
            12 => limit,
            13 => (limit + 1).min(UNITS_MAX),
            14 => UNITS_MAX,
            _ => self.rng.i64(1..=limit / 3 + 1),
        };
        let past = self.model.buckets.get(&(zone.clone(), key.clone())).filter(|b| !b.rows.is_empty());
        if let Some(bucket) = past
            && self.rng.u8(..8) == 0
        {
            let row = &bucket.rows[self.rng.usize(..bucket.rows.len())];
            let cost = if self.rng.u8(..4) == 0 { row.cost % UNITS_MAX + 1 } else { row.cost };
            return Step { zone, key, txn: Some(row.txn), cost };
        }
        Step { zone, key, txn: None, cost }
    }

    fn policy(&mut self) -> Policy {
        let windows = [1, 7, 1_000, 999_983, 1_000_000, 60_000_000, 3_600_000_000, 2_592_000_000_000];
        let window = Duration::from_micros(self.rng.choice(windows).unwrap());
        let rate = match self.rng.u8(..4) {
            0 => 1,
            1 => self.rng.i64(2..10),
            2 => self.rng.i64(10..100_000),
            _ => self.rng.i64(1..=UNITS_MAX),
        };
        let burst = if self.rng.bool() { None } else { Some(self.rng.i64(1..=20)) };
        let policy = if self.rng.bool() {
            Policy::sliding_log(rate, window)
        } else {
            Policy::token_bucket(rate, window, burst)
        };
        policy.unwrap_or_else(|_| Policy::token_bucket(3, Duration::from_secs(7), burst).unwrap())
    }

    /// Makes or changes the zone at the test's time, which the library's own way of changing would not take.
    async fn set_zone(&mut self, zone: &str, clocked: &Clocked, connection: &mut Connected, engine: Engine) {
        let mut policy = self.policy();
        if !engine.is_mysql() && self.rng.bool() {
            policy = policy.with_durability(Durability::Relaxed);
        }
        clocked.set(self.now_us).await;
        let before = self.model.zones.get(zone).map_or(0, Vec::len);
        if before > 0 && self.model.policy(zone) == policy {
            return;
        }
        let stored = clocked.limiter.set_zone(zone, &policy, None, "test").await.unwrap();
        assert_eq!(stored.version as usize, before + 1);
        let at = match engine {
            Engine::Postgres => {
                format!("timestamptz 'epoch' + {} * interval '1 microsecond'", self.now_us)
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
