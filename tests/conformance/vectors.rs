//! One table of vectors (`vectors.json`): a policy, steps, and what must be decided. It drives the core and
//! every database.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use tallygate::decide::Undo;
use tallygate::policy::{BanRule, Calendar, Limit, Override};
use tallygate::{Check, Policy};
use uuid::Uuid;

use crate::db::{Clocked, Db};
use crate::model::{Act, Asked, Model};

const START_US: i64 = 1_800_000_000_000_000; // 2027-01-15 08:00 UTC

/// The public vectors of other limiters that were looked at. Those that are missing do not exist.
const PEERS: [&str; 31] = [
    "V01-gcra-throttled",
    "V02-gcra-boulder-spend",
    "V03-gcra-boulder-refund",
    "V04-batch-boulder",
    "V05-governor-burst2",
    "V07-governor-capacity",
    "V08-governor-period",
    "V09-gravitee",
    "V11-cratesio",
    "V12-gubernator-leaky",
    "V13-gubernator-leaky-burst",
    "V14-gubernator-more-than-available",
    "V15-gubernator-drain",
    "V16-gubernator-gregorian",
    "V18-bucket4j-rounding",
    "V19-bucket4j-aligned",
    "V20-bucket4j-config-change",
    "V21-bucket4j-debt",
    "V23-xtime-reserve-cancel",
    "V24-xtime-backwards-DIVERGENT",
    "V25-swc-cloudflare",
    "V26-swc-limiters",
    "V27-fw-limiters",
    "V28-leaky-queue",
    "V29-doorman-fair",
    "V31-doorman-lease-store",
    "V32-crdb-trickle",
    "V33-crdb-seqnum",
    "V34-axes-tiers",
    "V35-rlflx-block",
    "V36-fail2ban",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "note")]
    _note: String,
    vectors: Vec<Vector>,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    case: Option<String>,
    source: String,
    differs: Option<String>,
    policy: Terms,
    /// A second zone, where the vector has one.
    other: Option<Terms>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    id: String,
    /// The part of it; None for all.
    case: Option<String>,
    why: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    algorithm: String,
    rate: i64,
    window_us: u64,
    burst: Option<i64>,
    slots: Option<i32>,
    /// Of UTC.
    calendar: Option<String>,
    mode: Option<String>,
    ban: Option<Ban>,
    running_buckets: Option<String>,
}

/// After so many blocked checks within a time, for a time.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    after: i32,
    within_us: u64,
    for_us: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    /// The zone's policy is changed, at the time of the last decision.
    Change {
        policy: Terms,
    },
    All(Together),
    Undo(Undone),
    Override(Overridden),
    Check(Expected),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Expected {
    at_us: i64,
    cost: i64,
    /// In the second zone?
    #[serde(default)]
    other: bool,
    /// Another bucket than that of most steps.
    key: Option<String>,
    /// A reservation.
    ttl_us: Option<u64>,
    blocked: bool,
    reason: String,
    remaining: i64,
    retry_after_us: Option<i64>,
    delay_us: Option<i64>,
    #[serde(default)]
    differs: Option<String>,
}

/// Limits of one transaction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Together {
    all: Vec<Expected>,
}

/// The charge of the step of this number is ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Undone {
    at_us: i64,
    undo: String,
    of: usize,
    /// The cost that a settlement comes to.
    cost: Option<i64>,
    /// Of each bucket that was charged, in the order in which they were.
    remaining: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overridden {
    at_us: i64,
    #[serde(rename = "override")]
    limit: Terms,
    for_us: Option<i64>,
}

impl Table {
    fn read() -> Self {
        serde_json::from_str(include_str!("vectors.json")).expect("vectors.json")
    }
}

impl Vector {
    fn name(&self) -> String {
        format!("{} {}", self.id, self.case.as_deref().unwrap_or_default()).trim_end().to_owned()
    }

    /// Its zones by name.
    fn zones(&self, name: &str) -> Vec<(String, Policy)> {
        let other = self.other.as_ref().map(|other| (format!("{name}, other"), other.policy()));
        std::iter::once((name.to_owned(), self.policy.policy())).chain(other).collect()
    }
}

impl Terms {
    fn policy(&self) -> Policy {
        let window = Duration::from_micros(self.window_us);
        let policy = Policy::new(self.algorithm.parse().unwrap(), self.rate, window, self.burst).unwrap();
        let calendar = self
            .calendar
            .as_ref()
            .map(|unit| Calendar { unit: unit.parse().unwrap(), time_zone: "UTC".parse().unwrap() });
        let ban = self.ban.as_ref().map(|ban| {
            let [within, length] = [ban.within_us, ban.for_us].map(Duration::from_micros);
            BanRule::new(ban.after, within, length)
        });
        let running = self.running_buckets.as_ref().map(|how| how.parse().unwrap()).unwrap_or_default();
        let mode = self.mode.as_ref().map(|mode| mode.parse().unwrap()).unwrap_or_default();
        let policy = policy.with_slots(self.slots).with_calendar(calendar).with_mode(mode);
        policy.with_ban(ban).with_running_buckets(running)
    }
}

impl Expected {
    fn zone(&self, name: &str) -> String {
        if self.other { format!("{name}, other") } else { name.to_owned() }
    }

    fn key(&self) -> &str {
        self.key.as_deref().unwrap_or("key")
    }

    fn check(&self, name: &str, txn: Uuid) -> Check {
        Check::new(self.zone(name), self.key()).cost(self.cost).txn(txn)
    }

    fn asked(&self, name: &str, txn: Uuid) -> Asked {
        let ttl_us = self.ttl_us.map(|us| us as i64);
        Asked { ttl_us, ..Asked::new(&self.zone(name), self.key(), txn, self.cost) }
    }

    /// The same step as it was decided.
    fn decided(&self, decision: &crate::model::Expected) -> Self {
        Self {
            blocked: decision.blocked,
            reason: decision.reason.to_string(),
            remaining: decision.remaining,
            retry_after_us: decision.retry_after_us,
            delay_us: decision.delay_us,
            ..self.clone()
        }
    }
}

impl Undone {
    fn undo(&self) -> Undo {
        match self.undo.as_str() {
            "refund" => Undo::Refund,
            "settle" => Undo::Settle(self.cost.unwrap()),
            "cancel" => Undo::Cancel,
            "release" => Undo::Release,
            undo => panic!("{undo} is not known"),
        }
    }
}

impl Overridden {
    fn what(&self) -> Override {
        let Terms { rate, window_us, burst, .. } = self.limit;
        let limit = Limit::new(rate, Duration::from_micros(window_us), burst).unwrap();
        Override { limit: Some(limit), ban_exempt: false, for_us: self.for_us }
    }
}

/// The checks of a step, if it has any.
fn checks(step: &Step) -> &[Expected] {
    match step {
        Step::Check(check) => std::slice::from_ref(check),
        Step::All(Together { all }) => all,
        _ => &[],
    }
}

pub fn the_core_decides_every_vector_as_written() {
    for vector in Table::read().vectors {
        let (name, mut model) = (vector.name(), Model::default());
        for (zone, policy) in vector.zones(&name) {
            model.set_zone(&zone, policy, START_US);
        }
        let txns: Vec<Uuid> = vector.steps.iter().map(|_| Uuid::now_v7()).collect();
        for (step, &txn) in vector.steps.iter().zip(&txns) {
            match step {
                Step::Change { policy } => model.set_zone(&name, policy.policy(), START_US),
                Step::Check(step) => {
                    let decision = model.check(&step.asked(&name, txn), START_US + step.at_us).unwrap();
                    assert_eq!(step.decided(&decision), *step, "{name}");
                }
                Step::All(Together { all }) => {
                    let asked: Vec<_> = all.iter().map(|step| step.asked(&name, txn)).collect();
                    let decisions = model.check_all(&asked, START_US + all[0].at_us).unwrap();
                    for (step, decision) in all.iter().zip(&decisions) {
                        assert_eq!(step.decided(decision), *step, "{name}");
                    }
                }
                Step::Undo(undone) => {
                    let charged = checks(&vector.steps[undone.of]).iter();
                    let asked = charged.map(|check| check.asked(&name, txns[undone.of]));
                    let left = asked.map(|asked| {
                        model
                            .act(&asked, Act::Undo(undone.undo()), START_US + undone.at_us)
                            .unwrap()
                            .remaining
                    });
                    assert_eq!(left.collect::<Vec<_>>(), undone.remaining, "{name}: {undone:?}");
                }
                Step::Override(over) => {
                    let asked = Asked::new(&name, "key", txn, 0);
                    model.act(&asked, Act::Override(Some(over.what())), START_US + over.at_us).unwrap();
                }
            }
        }
    }
}

/// Each vector twice: step by step, and the plain checks of one time in one call.
pub async fn every_vector_is_decided_as_written(db: Db) {
    let clocked = Clocked::create(&db).await;
    let limiter = &clocked.limiter;
    for vector in Table::read().vectors {
        for batched in [false, true] {
            let name = format!("{}{}", vector.name(), if batched { ", in batches" } else { "" });
            for (zone, policy) in vector.zones(&name) {
                limiter.operator().set_zone(&zone, &policy, None, "test").await.unwrap();
            }
            let txns: Vec<Uuid> = vector.steps.iter().map(|_| Uuid::now_v7()).collect();
            let together = |a: &(&Step, &Uuid), b: &(&Step, &Uuid)| match (a.0, b.0) {
                (Step::Check(a), Step::Check(b)) => {
                    batched && a.at_us == b.at_us && a.ttl_us.is_none() && b.ttl_us.is_none()
                }
                _ => false,
            };
            let steps: Vec<(&Step, &Uuid)> = vector.steps.iter().zip(&txns).collect();
            for steps in steps.chunk_by(together) {
                let &(step, &txn) = &steps[0];
                let expected: Vec<&Expected> = steps.iter().flat_map(|(step, _)| checks(step)).collect();
                if let Some(first) = expected.first() {
                    clocked.set(START_US + first.at_us).await;
                }
                let decisions = match step {
                    Step::Change { policy } => {
                        limiter.operator().set_zone(&name, &policy.policy(), None, "test").await.unwrap();
                        Vec::new()
                    }
                    Step::Check(check) if check.ttl_us.is_some() => {
                        let ttl = Duration::from_micros(check.ttl_us.unwrap());
                        vec![limiter.reserve(check.check(&name, txn), ttl).await.unwrap()]
                    }
                    Step::Check(_) => {
                        let asked =
                            expected.iter().zip(steps).map(|(check, (_, txn))| check.check(&name, **txn));
                        limiter.check_many(asked.collect()).await.unwrap()
                    }
                    Step::All(_) => {
                        let asked = expected.iter().map(|check| check.check(&name, txn)).collect();
                        limiter.check_all(asked).await.unwrap().decisions
                    }
                    Step::Undo(undone) => {
                        clocked.set(START_US + undone.at_us).await;
                        let charged = txns[undone.of];
                        let recorded = match undone.undo() {
                            Undo::Refund => limiter.refund(charged).await,
                            Undo::Settle(cost) => limiter.settle(charged, cost).await,
                            Undo::Cancel => limiter.cancel(charged).await,
                            Undo::Release => limiter.release(charged).await,
                            Undo::Used(_) => unreachable!("no caller settles what a process took"),
                        };
                        // Told by bucket, in whatever order.
                        let recorded = recorded.unwrap();
                        let left = checks(&vector.steps[undone.of]).iter().map(|check| {
                            recorded.iter().find(|one| one.zone == check.zone(&name)).unwrap().remaining
                        });
                        assert_eq!(left.collect::<Vec<_>>(), undone.remaining, "{name}: {undone:?}");
                        Vec::new()
                    }
                    Step::Override(over) => {
                        clocked.set(START_US + over.at_us).await;
                        limiter.operator().set_override(&name, "key", over.what(), "", "test").await.unwrap();
                        Vec::new()
                    }
                };
                assert_eq!(decisions.len(), expected.len(), "{name}");
                for (step, decision) in expected.into_iter().zip(&decisions) {
                    assert_eq!(step.decided(&decision.into()), *step, "{name}");
                }
            }
        }
    }
    db.assert_ledger_is_whole().await;
}

pub fn every_peer_vector_is_used_or_left_out_with_a_reason() {
    let table = Table::read();
    let peers = BTreeSet::from(PEERS);
    let used: BTreeSet<&str> =
        table.vectors.iter().map(|vector| vector.id.as_str()).filter(|id| peers.contains(id)).collect();
    let left: BTreeSet<&str> = table.left_out.iter().map(|left| left.id.as_str()).collect();
    let seen: BTreeSet<&str> = used.union(&left).copied().collect();
    assert_eq!(seen, peers);
    for left in &table.left_out {
        assert!(left.why.len() > 10, "{}: why?", left.id);
        assert!(left.case.is_some() || !used.contains(left.id.as_str()), "{} is used after all", left.id);
    }
    let mut names = BTreeSet::new();
    for vector in &table.vectors {
        assert!(names.insert(vector.name()), "{} is there twice", vector.name());
        assert!(!vector.source.is_empty() && !vector.steps.is_empty(), "{}", vector.name());
        // A difference of a peer is said at the step, and explained in words.
        let steps = vector.steps.iter().flat_map(checks).filter_map(|step| step.differs.as_ref());
        for text in steps.chain(&vector.differs) {
            assert!(text.len() > 20, "{}: how does it differ?", vector.name());
        }
    }
}
