//! The question that is asked before Envoy sends traffic: `grpc.health.v1`.

use std::fmt;

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{self, HealthServer};
use tonic_health::server::{HealthReporter, health_reporter};

/// The names that are asked for: the whole server, and the service as envoyproxy/ratelimit calls it.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// Says whether the service is to get traffic. Clones are the same.
#[derive(Clone)]
pub struct Health(HealthReporter);

impl Health {
    /// Whether it is to get traffic from now on: not, while the database does not answer or before the program ends.
    pub async fn set_serving(&self, is_serving: bool) {
        let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends what watches it, which would hold up the end of the program.
    pub async fn end(&self) {
        let mut reporter = self.0.clone();
        for name in NAMES {
            reporter.clear_service_status(name).await;
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Health")
    }
}

/// The service of health under the names "" and `ratelimit`, which serves from the beginning, and what sets it.
pub async fn health() -> (Health, HealthServer<impl health_server::Health>) {
    let (reporter, service) = health_reporter();
    let health = Health(reporter);
    health.set_serving(true).await;
    (health, service)
}
