//! The library's own count of its retries, read where an exporter would read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::cli::{Failure, Result};

const NAME: &str = "tallygate_retries_total";

/// Attempts after the first, by all calls of this process.
pub struct Retries(Arc<AtomicU64>);

impl Retries {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts from here on.
pub fn count() -> Result<Retries> {
    let counter = Arc::default();
    metrics::set_global_recorder(Only(Arc::clone(&counter)))
        .map_err(|error| Failure::new(format!("retries cannot be counted: {error}")))?;
    Ok(Retries(counter))
}

/// Keeps this one counter and lets go of everything else.
struct Only(Arc<AtomicU64>);

impl Recorder for Only {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == NAME { Counter::from_arc(Arc::clone(&self.0)) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_counted_and_nothing_else_is() {
        let retries = Retries(Arc::default());
        metrics::with_local_recorder(&Only(Arc::clone(&retries.0)), || {
            metrics::counter!("tallygate_retries_total").increment(2);
            metrics::counter!("tallygate_checks_total", "zone" => "bench").increment(5);
        });
        assert_eq!(retries.get(), 2);
    }
}
