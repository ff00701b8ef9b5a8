//! The callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tallygate::{Check, Limiter};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::told::Told;
use crate::cli::progress::progress;
use crate::cli::{Failure, Result};

/// The time between two moves of the bar.
const TICK: Duration = Duration::from_millis(100);

/// The load that is sent.
#[derive(Clone)]
pub struct Load {
    pub zone: &'static str,
    /// Begins each key, so that runs do not meet.
    pub run: Arc<str>,
    pub keys: u32,
    pub cost: i64,
    pub callers: u32,
}

impl Load {
    /// Sends for this long, and waits for the last answers.
    pub async fn send(&self, limiter: &Limiter, time: Duration) -> Result<Told> {
        let told = Arc::new(Mutex::new(Told::new()?));
        let length = time.as_millis() as u64;
        let bar = progress(Some(length), "  {bar:30.cyan/dim} {elapsed}  {msg}");
        let began = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            callers.spawn(self.clone().call(limiter.clone(), began + time, Arc::clone(&told)));
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                ended = callers.join_next() => match ended {
                    Some(ended) => ended.map_err(|_| Failure::new("a caller of the benchmark ended early"))??,
                    None => break,
                },
                _ = tick.tick() => show(&bar, began.elapsed(), &told),
            }
        }
        bar.finish_and_clear();
        let mut told = std::mem::replace(&mut *lock(&told), Told::new()?);
        told.took = began.elapsed();
        match told.last_error {
            Some(error) if told.allowed + told.blocked == 0 => Err(error.into()),
            _ => Ok(told),
        }
    }

    /// One caller, which asks again as soon as it is answered.
    async fn call(self, limiter: Limiter, until: Instant, told: Arc<Mutex<Told>>) -> tallygate::Result<()> {
        while Instant::now() < until {
            let number = fastrand::u32(0..self.keys);
            let check = Check::new(self.zone, format!("{}:{number}", self.run)).cost(self.cost);
            let asked = Instant::now();
            let answer = limiter.check(check).await;
            lock(&told).add(number, asked.elapsed(), answer)?;
        }
        Ok(())
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(bar: &ProgressBar, elapsed: Duration, told: &Mutex<Told>) {
    if !bar.is_hidden() {
        let answered = lock(told).answered();
        bar.set_message(format!("{answered} decisions  {:.0}/s", answered as f64 / elapsed.as_secs_f64()));
        bar.set_position(elapsed.as_millis() as u64);
    }
}
