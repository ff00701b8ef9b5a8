//! Callers that are all busy for some time.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// Drawn at random from many.
    Distinct,
    /// One for all callers.
    Hot,
}

/// One of those who are compared: it makes callers.
pub trait Contestant: Send + Sync {
    type Caller: Caller;

    fn callers(&self) -> usize;

    /// Keys that a caller wants for a call.
    fn batch(&self) -> usize {
        1
    }

    fn caller(&self, number: usize) -> Self::Caller;
}

pub trait Caller: Send + 'static {
    fn call(&mut self, keys: &[&'static str]) -> impl Future<Output = Result<Answer>> + Send;
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Distinct => "distinct",
            Self::Hot => "hot",
        })
    }
}

/// The result of a call.
#[derive(Clone, Copy)]
pub struct Answer {
    pub decisions: u64,
    pub allowed: u64,
}

impl Answer {
    pub fn one(allowed: bool) -> Self {
        Self { decisions: 1, allowed: allowed.into() }
    }
}

/// The findings of one round of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub decisions_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Of the decisions.
    pub allowed: f64,
    /// Checks in a call to the database, where the library makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks_per_call: Option<f64>,
    /// Calls that failed.
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

#[derive(Clone, Copy)]
pub struct Times {
    pub warm_up: Duration,
    pub measured: Duration,
}

/// The time after its end for which a round may still wait for its last calls.
const GRACE: Duration = Duration::from_secs(30);

/// Calls that take longer count as this.
const LONGEST_NS: u64 = 120_000_000_000;

/// The names of all buckets; the last one is the hot one.
pub fn names(keys: usize) -> &'static [String] {
    (0..=keys).map(|n| format!("bucket:{n:06}")).collect::<Vec<_>>().leak()
}

/// A contestant of any kind.
pub trait Contest: Send + Sync {
    fn round<'a>(
        &'a self,
        names: &'static [String],
        keys: Keys,
        times: Times,
    ) -> Pin<Box<dyn Future<Output = Result<Sample>> + Send + 'a>>;
}

impl<C: Contestant> Contest for C {
    fn round<'a>(
        &'a self,
        names: &'static [String],
        keys: Keys,
        times: Times,
    ) -> Pin<Box<dyn Future<Output = Result<Sample>> + Send + 'a>> {
        Box::pin(async move {
            let begin = Instant::now() + times.warm_up;
            let end = begin + times.measured;
            let (callers, batch) = (self.callers(), self.batch());
            let mut team = JoinSet::new();
            for number in 0..callers {
                // Transactions of several keys that meet could lock each other out: each has keys of its own.
                let (lane, lanes) = if batch > 1 { (number, callers) } else { (0, 1) };
                let draw = Draw { names, keys, lane, lanes, random: fastrand::Rng::new() };
                team.spawn(busy(self.caller(number), draw, batch, begin, end));
            }
            let all = async {
                let mut sum = Tally::new();
                while let Some(tally) = team.join_next().await {
                    sum.add(tally.context("a caller broke down")?);
                }
                Ok::<_, anyhow::Error>(sum)
            };
            let limit = times.warm_up + times.measured + GRACE;
            let sum = tokio::time::timeout(limit, all).await.context("calls that do not end")??;
            sum.sample(times.measured)
        })
    }
}

async fn busy(mut caller: impl Caller, mut draw: Draw, batch: usize, begin: Instant, end: Instant) -> Tally {
    let mut tally = Tally::new();
    let mut keys = Vec::with_capacity(batch);
    loop {
        keys.clear();
        keys.extend((0..batch).map(|_| draw.key()));
        let before = Instant::now();
        if before >= end {
            return tally;
        }
        let answer = caller.call(&keys).await;
        let after = Instant::now();
        // A call that ends within the time counts, whenever it began.
        if (begin..end).contains(&after) {
            tally.count(answer, after - before);
        }
        // Those who never wait give way to the others from time to time.
        tokio::task::consume_budget().await;
    }
}

struct Draw {
    names: &'static [String],
    keys: Keys,
    lane: usize,
    lanes: usize,
    random: fastrand::Rng,
}

impl Draw {
    fn key(&mut self) -> &'static str {
        let hot = self.names.len() - 1;
        match self.keys {
            Keys::Hot => &self.names[hot],
            Keys::Distinct => {
                let number = self.random.usize(..(hot / self.lanes).max(1)) * self.lanes + self.lane;
                &self.names[number % hot]
            }
        }
    }
}

struct Tally {
    decisions: u64,
    allowed: u64,
    errors: u64,
    first_error: Option<String>,
    took_ns: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let took_ns = Histogram::new_with_max(LONGEST_NS, 2).expect("these bounds are within what it can");
        Self { decisions: 0, allowed: 0, errors: 0, first_error: None, took_ns }
    }

    fn count(&mut self, answer: Result<Answer>, took: Duration) {
        match answer {
            Ok(answer) => {
                self.decisions += answer.decisions;
                self.allowed += answer.allowed;
                self.took_ns.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.allowed += other.allowed;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.took_ns.add(other.took_ns).expect("they have the same bounds");
    }

    fn sample(self, time: Duration) -> Result<Sample> {
        if self.decisions == 0 {
            bail!("no decision: {}", self.first_error.as_deref().unwrap_or("none was made within the time"));
        }
        let quantile_us = |quantile| self.took_ns.value_at_quantile(quantile) as f64 / 1_000.0;
        Ok(Sample {
            decisions_per_s: self.decisions as f64 / time.as_secs_f64(),
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            allowed: self.allowed as f64 / self.decisions as f64,
            checks_per_call: None,
            errors: self.errors,
            first_error: self.first_error,
        })
    }
}
