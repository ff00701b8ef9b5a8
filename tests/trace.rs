//! The counts and the words of the library about a check, wherever it is installed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sqlx::{Connection, SqliteConnection};
use tallygate::{BatchConfig, Check, Config, Limiter, Policy};
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
    for (outcome, reason, count) in
        [("allowed", "within_limit", 3), ("blocked", "over_limit", 1), ("error", "conflict", 1)]
    {
        let counted =
            values.get(&format!("tallygate_checks_total{{zone=login,outcome={outcome},reason={reason}}}"));
        assert_eq!(counted, Some(&DebugValue::Counter(count)), "{values:?}");
    }
    let failed = values.get("tallygate_call_errors_total{code=conflict}");
    assert_eq!(failed, Some(&DebugValue::Counter(1)), "{values:?}");
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
    let allowed = values.get("tallygate_checks_total{zone=login,outcome=allowed,reason=within_limit}");
    assert_eq!(allowed, Some(&DebugValue::Counter(1)), "{values:?}");
    assert!(!values.keys().any(|name| name.contains("outcome=error")), "{values:?}");
    assert!(!said.text().contains("alice"), "{}", said.text());
}

#[test]
fn a_check_that_may_not_wait_and_a_zone_that_is_not_there_are_counted_as_errors() {
    let (values, _) = watched(async |_| {
        let limiter = login("sqlite::memory:").await;
        assert!(limiter.check(Check::new("nowhere", KEY)).await.unwrap_err().is_unknown_zone());
        let batch = Some(BatchConfig { queue: 0, ..BatchConfig::default() });
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}", directory.path().join("ledger.db").display());
        drop(login(&url).await);
        let full = Limiter::connect_with(&url, Config { batch, ..Config::default() }).await.unwrap();
        let refused = full.check(Check::new("login", KEY)).await.unwrap_err();
        assert!(refused.is_transient() && refused.to_string().contains("0 checks wait already"), "{refused}");
    });
    for counted in [
        "tallygate_call_errors_total{code=unknown_zone}",
        "tallygate_checks_total{zone=login,outcome=error,reason=transient}",
    ] {
        assert_eq!(values.get(counted), Some(&DebugValue::Counter(1)), "{values:?}");
    }
    assert!(!values.keys().any(|name| name.contains("nowhere")), "{values:?}");
}

#[cfg(feature = "testing")]
#[test]
fn a_decision_for_which_it_is_not_time_yet_is_counted_and_told() {
    let (values, said) = watched(async |_| {
        let clock = tallygate::testing::Clock::at(chrono::Utc::now() + Duration::from_secs(86_400));
        let ahead = login("sqlite::memory:").await.with_clock(&clock).unwrap();
        assert!(ahead.check(Check::new("login", KEY)).await.unwrap().is_allowed());
    });
    assert_eq!(values.get("tallygate_ahead_total{}"), Some(&DebugValue::Counter(1)), "{values:?}");
    assert!(said.text().contains("the bucket's time is still to come"), "{}", said.text());
}
