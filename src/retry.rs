//! When to try again: bounded attempts, full jitter, one deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};

/// The attempts of one call.
pub(crate) struct Tries {
    backoff: Backoff,
    until: Instant,
    /// May a call that failed so be tried again?
    when: fn(&Error) -> bool,
    /// It is tried again.
    counted: fn(),
}

impl Tries {
    /// At most `attempts` tries in all, none begun after `until`.
    pub fn new(attempts: u32, until: Instant) -> Self {
        Self { backoff: Backoff::new(attempts), until, when: Error::is_transient, counted: || {} }
    }

    /// Only what fails so is tried again.
    pub fn when(self, when: fn(&Error) -> bool) -> Self {
        Self { when, ..self }
    }

    /// Calls this before each further try.
    pub fn counted(self, counted: fn()) -> Self {
        Self { counted, ..self }
    }

    /// Calls until it ends for good, or the tries or the time are over. The call is told whether it was tried before: then that
    /// attempt may have been committed.
    pub async fn run<T, F>(mut self, mut call: impl FnMut(bool) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut again = false;
        loop {
            match call(again).await {
                Err(error) if self.again(&error).await => again = true,
                done => return done,
            }
        }
    }

    /// Waits and says true when the call should be tried again.
    pub async fn again(&mut self, error: &Error) -> bool {
        if !(self.when)(error) {
            return false;
        }
        match self.backoff.next(fastrand::f64()) {
            Some(wait) if Instant::now() + wait < self.until => {
                (self.counted)();
                tokio::time::sleep(wait).await;
                true
            }
            _ => false,
        }
    }
}

/// Waits between attempts.
///
/// The n-th wait is drawn evenly from 0 to min(cap, first × 2^n): "full jitter" of M. Brooker, Exponential
/// Backoff and Jitter, AWS Architecture Blog, 2015. It spreads callers that failed together.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    attempts: u32,
    tried: u32,
}

const FIRST: Duration = Duration::from_millis(2);
const CAP: Duration = Duration::from_millis(100);

impl Backoff {
    /// At most `attempts` tries in all.
    fn new(attempts: u32) -> Self {
        Self { attempts, tried: 0 }
    }

    /// Counts a failed try. The wait before the next, drawn by `random` (0 to 1), or None when there is none.
    fn next(&mut self, random: f64) -> Option<Duration> {
        self.tried += 1;
        let most = FIRST.saturating_mul(1 << self.tried.min(16)).min(CAP);
        (self.tried < self.attempts).then(|| most.mul_f64(random.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_the_attempts_are_bounded() {
        let mut backoff = Backoff::new(9);
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next(1.0)).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [4, 8, 16, 32, 64, 100, 100, 100]);
        assert_eq!(Backoff::new(2).next(0.0), Some(Duration::ZERO));
        assert_eq!(Backoff::new(1).next(1.0), None);
    }
}
