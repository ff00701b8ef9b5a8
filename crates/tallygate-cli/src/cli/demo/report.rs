//! The ledger's word about a zone since a moment. Nothing here is counted while sending.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use tallygate::ledger::{Entry, History};
use tallygate::{Limiter, Policy};

use crate::cli::Result;
use crate::cli::most::Most;

#[derive(Serialize)]
pub struct Report {
    pub zone: String,
    pub limit: i64,
    pub window_us: i64,
    pub attempts: u64,
    pub allowed: u64,
    pub blocked: u64,
    /// The most that one key was let through in any window.
    pub most_in_any_window: i64,
    /// Time from the first row to the last.
    pub span_us: i64,
    /// By attempts, most first.
    pub keys: Vec<Key>,
}

#[derive(Clone, Serialize)]
pub struct Key {
    pub key: String,
    pub attempts: u64,
    pub allowed: u64,
    pub blocked: u64,
    pub first_blocked_at: Option<DateTime<Utc>>,
}

impl Report {
    /// Pages through the ledger.
    pub async fn read(limiter: &Limiter, zone: &str, policy: &Policy, start: DateTime<Utc>) -> Result<Self> {
        let window = TimeDelta::microseconds(policy.window_us());
        // A charge in the window before still counts at the start.
        let mut history = History::default().zone(zone).since(start - window).limit(1_000);
        let mut counts = BTreeMap::new();
        loop {
            let page = limiter.auditor().history(&history).await?;
            page.rows.iter().for_each(|row| {
                counts.entry(row.key.clone()).or_insert_with(|| Count::new(&row.key)).add(row, window, start);
            });
            match page.next {
                Some(next) => history.before = Some(next),
                None => break,
            }
        }
        Ok(Self::sum(zone, policy, counts.into_values().collect()))
    }

    fn sum(zone: &str, policy: &Policy, counts: Vec<Count>) -> Self {
        let first = counts.iter().filter_map(|count| count.first).min();
        let last = counts.iter().filter_map(|count| count.last).max();
        let span = first.zip(last).and_then(|(first, last)| (last - first).num_microseconds());
        let most = counts.iter().map(|count| count.most.found()).max().unwrap_or_default();
        let mut keys: Vec<_> =
            counts.into_iter().map(|count| count.key).filter(|key| key.attempts > 0).collect();
        keys.sort_by(|a, b| b.attempts.cmp(&a.attempts).then_with(|| a.key.cmp(&b.key)));
        Self {
            zone: zone.to_owned(),
            limit: policy.limit(),
            window_us: policy.window_us(),
            attempts: keys.iter().map(|key| key.attempts).sum(),
            allowed: keys.iter().map(|key| key.allowed).sum(),
            blocked: keys.iter().map(|key| key.blocked).sum(),
            most_in_any_window: most,
            span_us: span.unwrap_or_default(),
            keys,
        }
    }
}

/// The rows of one key, read from the newest to the oldest.
struct Count {
    key: Key,
    first: Option<DateTime<Utc>>,
    last: Option<DateTime<Utc>>,
    most: Most,
}

impl Count {
    fn new(key: &str) -> Self {
        let key = Key { key: key.to_owned(), attempts: 0, allowed: 0, blocked: 0, first_blocked_at: None };
        Self { key, first: None, last: None, most: Most::default() }
    }

    fn add(&mut self, row: &Entry, window: TimeDelta, start: DateTime<Utc>) {
        self.most.add(row, window);
        if row.decided_at < start {
            return;
        }
        self.first = Some(row.decided_at);
        self.last = self.last.or(Some(row.decided_at));
        self.key.attempts += 1;
        if row.blocked {
            self.key.blocked += 1;
            self.key.first_blocked_at = Some(row.decided_at);
        } else {
            self.key.allowed += 1;
        }
    }
}
