//! The answers to the callers, in memory that does not grow with the number of decisions.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hdrhistogram::Histogram;
use tallygate::Decision;
use tallygate::ledger::Entry;
use uuid::Uuid;

use crate::cli::{Failure, Result};

/// The longest time that is told apart from longer ones: more than any deadline.
const LATENCY_US_MAX: u64 = 60_000_000;

/// The answers to all callers.
pub struct Told {
    pub allowed: u64,
    pub blocked: u64,
    /// Calls that ended without an answer. Their checks may have been decided all the same.
    pub errors: u64,
    pub last_error: Option<tallygate::Error>,
    pub took: Duration,
    pub latency_us: Histogram<u64>,
    /// The answers about each key, by its number.
    pub buckets: HashMap<u32, Bucket>,
}

/// The answers to the callers about one bucket.
#[derive(Default)]
pub struct Bucket {
    pub answered: u64,
    pub errors: u64,
    pub last_seq: i64,
    pub digest: Digest,
}

/// A sum over decisions in any order. Other decisions have another sum, but for a chance of one in 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

/// The part of a decision that a caller is told and that the ledger keeps.
type Content = (Uuid, i64, bool, &'static str, i64, Option<i64>, DateTime<Utc>);

impl Told {
    pub fn new() -> Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
            .map_err(|error| Failure::new(format!("latencies cannot be counted: {error}")))?;
        Ok(Self {
            allowed: 0,
            blocked: 0,
            errors: 0,
            last_error: None,
            took: Duration::ZERO,
            latency_us,
            buckets: HashMap::new(),
        })
    }

    pub fn answered(&self) -> u64 {
        self.allowed + self.blocked
    }

    /// Notes the outcome of a check about this key. An error that does not pass by itself is returned.
    pub fn add(
        &mut self,
        number: u32,
        latency: Duration,
        answer: tallygate::Result<Decision>,
    ) -> tallygate::Result<()> {
        let bucket = self.buckets.entry(number).or_default();
        match answer {
            Ok(decision) => {
                let count = if decision.blocked { &mut self.blocked } else { &mut self.allowed };
                *count += 1;
                bucket.answered += 1;
                bucket.last_seq = bucket.last_seq.max(decision.seq.unwrap_or_default());
                bucket.digest.add_answer(&decision);
                self.latency_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
            }
            Err(error) if error.is_transient() => {
                self.errors += 1;
                bucket.errors += 1;
                self.last_error = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Digest {
    fn add_answer(&mut self, told: &Decision) {
        let seq = told.seq.unwrap_or_default();
        let reason = told.reason.as_str();
        self.add((
            told.txn_id,
            seq,
            told.blocked,
            reason,
            told.remaining,
            told.retry_after_us,
            told.decided_at,
        ));
    }

    pub fn add_row(&mut self, row: &Entry) {
        let reason = row.reason.as_str();
        self.add((
            row.txn_id,
            row.seq,
            row.blocked,
            reason,
            row.remaining,
            row.retry_after_us,
            row.decided_at,
        ));
    }

    fn add(&mut self, content: Content) {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        self.0 = self.0.wrapping_add(hasher.finish());
    }
}
