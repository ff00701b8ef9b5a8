//! The number of times that the limiters of this process tried again, counted where an exporter would count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Retries of this process so far; counted from the first call on.
pub fn so_far() -> u64 {
    static RETRIES: OnceLock<Arc<AtomicU64>> = OnceLock::new();
    let retries = RETRIES.get_or_init(|| {
        let retries = Arc::new(AtomicU64::new(0));
        metrics::set_global_recorder(Retries(Arc::clone(&retries))).ok();
        retries
    });
    retries.load(Ordering::Relaxed)
}

struct Retries(Arc<AtomicU64>);

impl Recorder for Retries {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let counts = key.name() == "tallygate_retries_total";
        if counts { Counter::from_arc(Arc::clone(&self.0)) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
