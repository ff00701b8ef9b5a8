//! A service that shows Prometheus what its limiter counts: the page of its `/metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tallygate::metrics::{CHECKS, SECONDS, describe};
use tallygate::{Check, Limiter, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .set_buckets_for_metric(Matcher::Full("tallygate_call_checks".to_owned()), &CHECKS)?
        .install_recorder()?;
    describe();

    let limiter = Limiter::connect("sqlite::memory:").await?;
    let five_a_minute = Policy::sliding_log(5, Duration::from_secs(60))?;
    limiter.operator().set_zone("login", &five_a_minute, None, "example").await?;
    for _ in 0..7 {
        limiter.check(Check::new("login", "user:42")).await?;
    }
    // From time to time, also where nobody scrapes.
    exporter.run_upkeep();
    print!("{}", exporter.render());
    Ok(())
}
