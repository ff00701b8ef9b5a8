//! What the library counts and says about a check, wherever it is installed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sqlx::{Connection, SqliteConnection};
use tallygate::{Check, Limiter, Policy};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

const KEY: &str = "user:alice@example.org";

/// Everything that any library on this thread says, to its last detail.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Said {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Said {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs a test on this thread, where its metrics and traces are kept apart from those of other tests.
fn watched<T>(test: impl AsyncFnOnce(&Snapshotter) -> T) -> (BTreeMap<String, DebugValue>, Said) {
    let (said, recorder) = (Said::default(), DebuggingRecorder::new());
    let snapshotter = recorder.snapshotter();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(said.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        metrics::with_local_recorder(&recorder, || runtime.block_on(test(&snapshotter)))
    });
    (values(&snapshotter), said)
}

/// Values by `name{label=value,…}`. To read them starts them anew.
fn values(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    let name = |key: &metrics::Key| {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    };
    metrics.map(|(key, _, _, value)| (name(key.key()), value)).collect()
}

async fn login(url: &str) -> Limiter {
    let limiter = Limiter::connect(url).await.unwrap();
    let policy = Policy::sliding_log(2, Duration::from_secs(60)).unwrap();
    limiter.operator().set_zone("login", &policy, None, "test").await.unwrap();
    limiter
}

#[test]
fn each_check_is_counted_and_timed_and_its_key_is_nowhere() {
    let (values, said) = watched(async |_| {
        let limiter = login("sqlite::memory:").await;
        for _ in 0..3 {
            limiter.check(Check::new("login", KEY)).await.unwrap();
        }
        let txn = uuid::Uuid::now_v7();
        limiter.check(Check::new("login", "other").txn(txn)).await.unwrap();
        // The same transaction at another cost is refused.
        assert!(limiter.check(Check::new("login", "other").txn(txn).cost(2)).await.is_err());
    });
    let count = |outcome| values.get(&format!("tallygate_checks_total{{zone=login,outcome={outcome}}}"));
    assert_eq!(count("allowed"), Some(&DebugValue::Counter(3)), "{values:?}");
    assert_eq!(count("blocked"), Some(&DebugValue::Counter(1)), "{values:?}");
    assert_eq!(count("error"), Some(&DebugValue::Counter(1)), "{values:?}");
    let times = values.get("tallygate_check_seconds{}");
    assert!(matches!(times, Some(DebugValue::Histogram(times)) if times.len() == 5), "{values:?}");
    assert!(!values.contains_key("tallygate_retries_total{}"), "{values:?}");
    assert!(!values.keys().any(|name| name.contains("alice")), "{values:?}");

    let said = said.text();
    assert!(said.contains("tallygate.call{checks=1}"), "{said}");
    let about = said.lines().filter(|line| line.contains("zone=\"login\""));
    assert_eq!(about.clone().count(), 5, "{said}");
    for part in ["decided zone=", "blocked=true reason=over_limit", "not decided"] {
        assert!(about.clone().any(|line| line.contains(part)), "no {part:?} in:\n{said}");
    }
    assert!(!said.contains("alice"), "{said}");
}

#[test]
fn an_attempt_after_a_conflict_is_counted_once_as_a_retry_and_once_as_a_check() {
    let directory = TempDir::new().unwrap();
    let url = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let (values, said) = watched(async |snapshotter| {
        let limiter = login(&url).await;
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        // Another process that writes for longer than SQLite itself waits.
        let held = other.begin_with("begin immediate").await.unwrap();
        let check = tokio::spawn(async move { limiter.check(Check::new("login", KEY)).await });
        // The counter moves after the attempt that failed; without it the check ends at its deadline.
        while !check.is_finished() && !values(snapshotter).contains_key("tallygate_retries_total{}") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        held.rollback().await.unwrap();
        assert!(check.await.unwrap().unwrap().is_allowed());
    });
    let allowed = values.get("tallygate_checks_total{zone=login,outcome=allowed}");
    assert_eq!(allowed, Some(&DebugValue::Counter(1)), "{values:?}");
    assert!(!values.contains_key("tallygate_checks_total{zone=login,outcome=error}"), "{values:?}");
    assert!(!said.text().contains("alice"), "{}", said.text());
}
