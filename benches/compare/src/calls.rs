//! The number of checks that travel in one call of the library: from what it tells any collector of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Calls and the checks in them, since the program began.
#[derive(Clone, Default)]
pub struct Calls(Arc<Sums>);

#[derive(Default)]
struct Sums {
    calls: AtomicU64,
    checks: AtomicU64,
}

impl Calls {
    pub fn listen() -> Result<Self> {
        let calls = Self::default();
        metrics::set_global_recorder(calls.clone()).map_err(|error| anyhow!("{error}"))?;
        Ok(calls)
    }

    /// Mean checks of the calls since it was last asked.
    pub fn take_mean(&self) -> Option<f64> {
        let [calls, checks] = [&self.0.calls, &self.0.checks].map(|sum| sum.swap(0, Ordering::Relaxed));
        (calls > 0).then(|| checks as f64 / calls as f64)
    }
}

impl HistogramFn for Sums {
    fn record(&self, checks: f64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.checks.fetch_add(checks as u64, Ordering::Relaxed);
    }
}

impl Recorder for Calls {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "tallygate_call_checks" => Histogram::from_arc(Arc::clone(&self.0)),
            _ => Histogram::noop(),
        }
    }
}
