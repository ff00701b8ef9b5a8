//! Rate limits of [tallygate](https://docs.rs/tallygate) as a layer of tower: every decision is exact, recorded in the
//! database that the service already has, and explained.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use axum::Router;
//! use axum::routing::post;
//! use tallygate::{Limiter, Policy};
//! use tallygate_tower::{ClientAddress, RateLimit};
//!
//! let limiter = Limiter::connect("sqlite::memory:").await?;
//! limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
//! let app: Router = Router::new()
//!     .route("/login", post(async || "welcome"))
//!     .layer(RateLimit::new(limiter, "login").by(ClientAddress::behind(["10.0.0.0/8"])?));
//! // axum tells the peer's address where it is asked for it:
//! let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
//! # let _ = service;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! A blocked request is answered with 429, a problem document (RFC 9457) and `Retry-After`, and never reaches the service;
//! see [`OnBlocked`] for other answers. Several limits of one request are one decision: all pass, or none is spent from.
//!
//! # Limits of this layer
//!
//! - It checks before the service sees the request, and the body is not read: what is in the body names no bucket. A login whose
//!   body names the user asks the limiter in its handler, and answers by [`Decided::passed`] and [`Refused`].
//! - Where the database does not answer, the answer is 503, unless the limiter has a journal and each zone says by `on_outage`
//!   that checks pass then.

mod address;
mod answer;
mod body;
mod due;
mod fields;
mod layer;
mod limit;
#[cfg(feature = "region")]
mod region;
mod service;
pub mod who;

use std::error::Error;
use std::fmt;

pub use crate::address::{ClientAddress, Peer};
pub use crate::answer::{Answering, Decided, OnBlocked, Refused, Target};
pub use crate::body::Body;
pub use crate::fields::Fields;
pub use crate::layer::RateLimit;
pub use crate::limit::{After, Limit, Nobody};
#[cfg(feature = "region")]
pub use crate::region::Region;
pub use crate::service::RateLimited;

// The code in the documents compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/http.md")]
struct Http;

/// A failure to configure: one line that names the value and the remedy.
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
