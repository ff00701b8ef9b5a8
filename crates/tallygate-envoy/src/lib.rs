//! Envoy's rate limit service (v3) on [tallygate](https://docs.rs/tallygate): every decision is exact, recorded in a SQL
//! database, and explained.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use tallygate::{Limiter, Policy};
//! use tallygate_envoy::{Mapping, RateLimits};
//!
//! let limiter = Limiter::connect("sqlite::memory:").await?;
//! limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
//! let mapping = Mapping::read(
//!     r#"
//!     [[limit]]
//!     domain = "shop"
//!     entries = ["path=/login", "remote_address"]
//!     zone = "login"
//!     "#,
//! )?;
//! let limits = RateLimits::new(limiter, mapping);
//! limits.ready().await?; // the zones are there, and such as Envoy can use
//! let (health, health_service) = tallygate_envoy::health().await;
//! let server = tonic::transport::Server::builder().add_service(health_service).add_service(limits.into_service());
//! health.set_serving(false).await; // before it ends
//! # let _ = server;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! A [`Mapping`] says which descriptor of Envoy is which zone of tallygate; [`import`] makes one, and the zones, of the
//! configuration of envoyproxy/ratelimit. Putting it in front of a route is told in `docs/envoy.md`.

// A decision in a task of its own is futures within futures, deeper than the compiler follows by itself when it optimizes.
#![recursion_limit = "256"]

mod answer;
mod ask;
mod failure;
mod health;
#[cfg(feature = "import")]
mod import;
mod json;
mod key;
mod kuadrant;
mod mapping;
pub mod proto;
mod service;

use std::error::Error;
use std::fmt;

pub use crate::health::{Health, health};
#[cfg(feature = "import")]
pub use crate::import::{Imported, import};
pub use crate::mapping::Mapping;
pub use crate::service::RateLimits;

// The code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/envoy.md")]
struct Envoy;

/// A failure to configure: it names the value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    /// The number of inputs that a property is tried with; a million in `./soak`.
    pub fn cases() -> proptest::test_runner::Config {
        let cases = if std::env::var_os("TALLYGATE_SOAK").is_some() { 1_000_000 } else { 256 };
        proptest::test_runner::Config::with_cases(cases)
    }
}
