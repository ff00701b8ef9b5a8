//! The made-up login storm, and the clients that send attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use tallygate::{Check, Limiter};

use super::CLIENTS;
use crate::cli::output::{green, red};
use crate::cli::progress::progress;
use crate::cli::terminal::{self, tell};
use crate::cli::{Failure, Result};

/// The users, and how often each tries. The attacker guesses; the office is many people behind one address;
/// the others mistype at most a few times.
pub const CAST: [(&str, usize); 9] = [
    ("ip:203.0.113.66", 260),
    ("ip:203.0.113.67", 74),
    ("ip:192.0.2.10", 12),
    ("user:alice", 3),
    ("user:bob", 1),
    ("user:carol", 5),
    ("user:dave", 2),
    ("user:erin", 4),
    ("user:frank", 1),
];

/// The time that the storm is drawn out when somebody watches.
const WATCHED: Duration = Duration::from_secs(4);

/// The same attempts in the same order every time.
pub fn attempts() -> Vec<String> {
    let mut keys: Vec<_> =
        CAST.iter().flat_map(|&(key, times)| std::iter::repeat_n(key.to_owned(), times)).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut keys);
    keys
}

/// Sends every attempt through concurrent clients, each taking the next one as soon as it is free.
pub async fn send(limiter: &Limiter, zone: &'static str, keys: Vec<String>) -> Result<()> {
    let watched = terminal::is_watched();
    let pause =
        if watched { WATCHED * CLIENTS as u32 / keys.len().max(CLIENTS) as u32 } else { Duration::ZERO };
    let storm = Arc::new(Storm {
        bar: progress(Some(keys.len() as u64), "  {bar:30.cyan/dim} {pos:>4}/{len}  {msg}"),
        keys,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        allowed: AtomicUsize::new(0),
        blocked: AtomicUsize::new(0),
    });
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(Arc::clone(&storm).client(limiter.clone(), zone, pause))).collect();
    for client in clients {
        client.await.map_err(|_| Failure::new("a client of the demo ended early"))??;
    }
    storm.bar.abandon();
    if watched {
        tell("");
    }
    Ok(())
}

struct Storm {
    keys: Vec<String>,
    next: AtomicUsize,
    done: AtomicUsize,
    allowed: AtomicUsize,
    blocked: AtomicUsize,
    bar: ProgressBar,
}

impl Storm {
    async fn client(self: Arc<Self>, limiter: Limiter, zone: &str, pause: Duration) -> tallygate::Result<()> {
        while let Some(key) = self.keys.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let decision = limiter.check(Check::new(zone, key)).await?;
            let count = if decision.blocked { &self.blocked } else { &self.allowed };
            count.fetch_add(1, Ordering::Relaxed);
            self.show();
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// A bar that moves, or a line for each quarter.
    fn show(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(self.tally());
        self.bar.inc(1);
        let quarter = self.keys.len().div_ceil(4);
        if self.bar.is_hidden()
            && !terminal::is_quiet()
            && (done.is_multiple_of(quarter) || done == self.keys.len())
        {
            tell(format_args!("  {done:>4}/{}  {}", self.keys.len(), self.tally()));
        }
    }

    fn tally(&self) -> String {
        let allowed = format!("{} allowed", self.allowed.load(Ordering::Relaxed));
        let blocked = format!("{} blocked", self.blocked.load(Ordering::Relaxed));
        format!("{}  {}", green(&allowed), red(&blocked))
    }
}
