//! The time that checks take while a report reads a large ledger.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use tallygate::audit::report::ReportOn;
use tallygate::{Check, Limiter};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::{Instant as Due, MissedTickBehavior, interval_at};

use crate::site::{BUCKETS, Site, ZONE, bucket};

const CALLERS: usize = 8;

/// Each caller asks this often, whether it was answered or not.
const EVERY: Duration = Duration::from_millis(20);

/// With and without take turns, so that what else happens on the machine meets them alike.
const TURNS: u32 = 5;

pub struct Beside {
    rows: i64,
    /// The time that each whole report took.
    reports: Vec<Duration>,
    without: Vec<Duration>,
    with: Vec<Duration>,
}

pub async fn beside(site: &Site, rows: i64, time: Duration) -> Beside {
    let mut connection = PgConnection::connect(&site.url).await.expect("PostgreSQL");
    let fill = sqlx::query(include_str!("postgres/past.sql")).bind(rows).bind(site.bare_zone_id);
    fill.execute(&mut connection).await.expect("rows");
    // Nothing of the filling is left to be written while checks are measured.
    for settle in ["vacuum analyze zone_txn", "checkpoint"] {
        sqlx::raw_sql(settle).execute(&mut connection).await.expect("a ledger at rest");
    }
    let mut beside = Beside { rows, reports: Vec::new(), without: Vec::new(), with: Vec::new() };
    for _ in 0..TURNS {
        beside.without.extend(checks(site, time / TURNS).await);
        let goes_on = Arc::new(AtomicBool::new(true));
        let (url, until) = (site.url.clone(), Arc::clone(&goes_on));
        // The process that reports is not the one that checks: here a thread and a runtime of its own.
        let reports = spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(reports(url, rows, until))
        });
        beside.with.extend(checks(site, time / TURNS).await);
        goes_on.store(false, Ordering::Relaxed);
        beside.reports.extend(reports.await.expect("reports"));
    }
    beside
}

/// One report after the other.
async fn reports(url: String, rows: i64, goes_on: Arc<AtomicBool>) -> Vec<Duration> {
    let limiter = Limiter::connect(&url).await.expect("a limiter");
    let mut took = Vec::new();
    while goes_on.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let report = limiter.auditor().report(&ReportOn::default(), |_| ()).await.expect("a report");
        assert!(report.rows as i64 >= rows - 10, "{} rows were reported", report.rows);
        took.push(begin.elapsed());
    }
    took
}

/// The time that each check took, from when it was due.
async fn checks(site: &Site, time: Duration) -> Vec<Duration> {
    let callers = (0..CALLERS).map(|caller| {
        let limiter = site.limiter.clone();
        tokio::spawn(async move {
            // Callers come one after the other, not all at once.
            let first = Due::now() + EVERY * caller as u32 / CALLERS as u32;
            let mut ticks = interval_at(first, EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let (begin, mut took) = (Instant::now(), Vec::new());
            while begin.elapsed() < time {
                let due = ticks.tick().await;
                let check = Check::new(ZONE, bucket((took.len() * CALLERS + caller) % BUCKETS));
                limiter.check(check).await.expect("a decision");
                took.push(due.elapsed());
            }
            took
        })
    });
    let mut all = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        all.extend(caller.await.expect("a caller that ends well"));
    }
    all
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_s = CALLERS as f64 / EVERY.as_secs_f64();
        writeln!(f, "\nchecks, {per_s:.0} a second, while a report reads {} rows", self.rows)?;
        for (name, took) in [("without a report", &self.without), ("during a report", &self.with)] {
            let mut took = took.clone();
            took.sort_unstable();
            let quantile =
                |part: usize| took[(took.len() * part / 100).min(took.len() - 1)].as_secs_f64() * 1_000.0;
            let (p50, p99) = (quantile(50), quantile(99));
            writeln!(f, "  {name:<17} p50 {p50:6.2} ms   p99 {p99:6.2} ms   of {}", took.len())?;
        }
        let took: Duration = self.reports.iter().sum();
        let seconds = took.as_secs_f64() / self.reports.len() as f64;
        writeln!(f, "  a report took {seconds:.1} s, the mean of {}", self.reports.len())
    }
}
