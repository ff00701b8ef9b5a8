//! One table of vectors (`vectors.json`): a policy, steps, and what must be decided. It drives the core and
//! every database.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use tallygate::{Check, Policy};
use uuid::Uuid;

use crate::db::{Clocked, Db};
use crate::model::Model;

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
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    id: String,
    /// What part of it; None for all.
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
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    /// The zone's policy is changed, at the time of the last decision.
    Change {
        policy: Terms,
    },
    Check(Expected),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Expected {
    at_us: i64,
    cost: i64,
    blocked: bool,
    reason: String,
    remaining: i64,
    retry_after_us: Option<i64>,
    #[serde(default)]
    differs: Option<String>,
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
}

impl Terms {
    fn policy(&self) -> Policy {
        let window = Duration::from_micros(self.window_us);
        Policy::new(self.algorithm.parse().unwrap(), self.rate, window, self.burst).unwrap()
    }
}

impl Expected {
    /// The same step as it was decided.
    fn decided(&self, decision: &crate::model::Expected) -> Self {
        Self {
            blocked: decision.blocked,
            reason: decision.reason.to_string(),
            remaining: decision.remaining,
            retry_after_us: decision.retry_after_us,
            ..self.clone()
        }
    }
}

pub fn the_core_decides_every_vector_as_written() {
    for vector in Table::read().vectors {
        let (name, mut model) = (vector.name(), Model::default());
        model.set_zone(&name, vector.policy.policy(), START_US);
        for step in &vector.steps {
            match step {
                Step::Change { policy } => model.set_zone(&name, policy.policy(), START_US),
                Step::Check(step) => {
                    let now_us = START_US + step.at_us;
                    let decision = model.check(&name, "key", Uuid::now_v7(), step.cost, now_us).unwrap();
                    assert_eq!(step.decided(&decision), *step, "{name}");
                }
            }
        }
    }
}

/// Each vector twice: step by step, and the steps of one time in one call.
pub async fn every_vector_is_decided_as_written(db: Db) {
    let clocked = Clocked::create(&db).await;
    for vector in Table::read().vectors {
        for batched in [false, true] {
            let zone = format!("{}{}", vector.name(), if batched { ", in batches" } else { "" });
            clocked.limiter.set_zone(&zone, &vector.policy.policy(), None, "test").await.unwrap();
            let together = |a: &Step, b: &Step| match (a, b) {
                (Step::Check(a), Step::Check(b)) => batched && a.at_us == b.at_us,
                _ => false,
            };
            for steps in vector.steps.chunk_by(together) {
                let mut checks = Vec::new();
                for step in steps {
                    match step {
                        Step::Change { policy } => {
                            clocked.limiter.set_zone(&zone, &policy.policy(), None, "test").await.unwrap();
                        }
                        Step::Check(step) => checks.push(step),
                    }
                }
                let Some(first) = checks.first() else { continue };
                clocked.set(START_US + first.at_us).await;
                let asked = checks.iter().map(|step| Check::new(&zone, "key").cost(step.cost)).collect();
                let decisions = clocked.limiter.check_many(asked).await.unwrap();
                for (step, decision) in checks.into_iter().zip(&decisions) {
                    assert_eq!(step.decided(&decision.into()), *step, "{zone}");
                }
                assert_eq!(decisions.len(), steps.len(), "{zone}");
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
        // What a peer says otherwise is said at the step, and explained in words.
        let steps = vector.steps.iter().filter_map(|step| match step {
            Step::Check(step) => step.differs.as_ref(),
            Step::Change { .. } => None,
        });
        for text in steps.chain(&vector.differs) {
            assert!(text.len() > 20, "{}: how does it differ?", vector.name());
        }
    }
}
