//! The gain of a process that decides locally: the same checks of one hot key, in a zone that allows it and in one that
//! does not, in turns.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tallygate::{BatchConfig, Check, Config, Limiter, Policy};

use crate::measure::{TURNS, median};
use crate::server::Engine;
use crate::site::Site;

const CALLERS: usize = 64;

/// So that nothing is ever blocked.
const RATE: i64 = 1 << 40;

/// Prints checks a second in both zones, and their ratio.
pub async fn print(engine: Engine, time: Duration) {
    for (told, batch) in [("one call each", None), ("in batches", Some(BatchConfig::default()))] {
        let site = Site::make(engine, "local", Config { connections: 64, batch, ..Config::default() }).await;
        let exact = Policy::sliding_log(RATE, Duration::from_secs(3_600)).expect("a policy");
        let zones = [("exact", exact), ("local", exact.with_local(Some(Duration::from_secs(1))))];
        for (zone, policy) in &zones {
            site.limiter.operator().set_zone(zone, policy, None, "bench").await.expect("a zone");
            // The first checks of a process tell it how much to take.
            round(&site.limiter, zone, Duration::from_millis(500)).await;
        }
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for ((zone, _), rates) in zones.iter().zip(&mut rates) {
                rates.push(round(&site.limiter, zone, time / TURNS).await);
            }
        }
        let [exact, local] = rates.map(|rates| median(rates, f64::total_cmp));
        println!(
            "{engine}: {CALLERS} callers, one key: exact {told} {exact:>8.0}/s, local {local:>8.0}/s: {:.0} ×",
            local / exact
        );
        site.limiter.settle_local().await.expect("settled");
        site.remove().await;
    }
}

/// Checks a second of all callers, each a task of its own.
async fn round(limiter: &Limiter, zone: &'static str, time: Duration) -> f64 {
    let begin = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut done = 0_u32;
            while begin.elapsed() < time {
                // A server gives others their turn between two requests.
                tokio::task::yield_now().await;
                assert!(limiter.check(Check::new(zone, "hot")).await.expect("a decision").is_allowed());
                done += 1;
            }
            done
        })
    });
    let done: u32 = join_all(callers).await.into_iter().map(|done| done.expect("a caller")).sum();
    f64::from(done) / begin.elapsed().as_secs_f64()
}
