//! Doorman's capacity service on [tallygate](https://docs.rs/tallygate): clients of Doorman take leases that are rows of a SQL
//! database, so that nobody elects a master and nothing is learned anew after a restart.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use tallygate::{Limiter, Policy};
//! use tallygate_doorman::{Doorman, Template};
//!
//! let limiter = Limiter::connect("sqlite::memory:").await?;
//! limiter.operator().set_zone("gpu", &Policy::capacity(120, Duration::from_secs(60))?, None, "docs").await?;
//! let doorman = Doorman::new(limiter, [Template::new("gpu/*", "gpu")?]);
//! let server = tonic::transport::Server::builder().add_service(doorman.into_service());
//! # let _ = server;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! A [`Parent`] is such a server as what is above a [`Region`](tallygate::capacity::Region). The differences from
//! Doorman are told in `docs/doorman.md`.

mod ask;
mod asker;
mod failure;
mod parent;
pub mod proto;
mod service;
mod template;

pub use crate::asker::Asker;
pub use crate::parent::Parent;
pub use crate::service::Doorman;
pub use crate::template::{Template, TemplateError};

// The code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/doorman.md")]
struct Document;
