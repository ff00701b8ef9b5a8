//! [tallygate](https://docs.rs/tallygate) for every language: a server that decides, records and explains over HTTP, and
//! answers Envoy and clients of Doorman over gRPC.
//!
//! It holds nothing that the database does not: several servers on one database are the normal case. `tallygate serve` is this
//! crate with a command line; `docs/server.md` tells how to use it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use tallygate_server::{Config, Server};
//!
//! let config = Config::read("listen = '127.0.0.1:0'\ndatabase.app = 'sqlite::memory:'")?;
//! let server = Server::bind(config).await?;
//! println!("ask it at {}", server.address());
//! server.run(async { /* until this is over */ }).await?;
//! # Ok::<(), tallygate_server::Failure>(()) }).unwrap();
//! ```

mod api;
mod app;
mod caller;
mod config;
mod grpc;
mod listen;
mod measured;
mod problem;
mod server;
mod tls;
mod token;
mod traceparent;

use std::error::Error;
use std::fmt;

pub use crate::caller::{Right, UnknownRight};
pub use crate::config::{Config, Databases, Doorman, Envoy, Limits, Stopping, Tls};
pub use crate::server::{Reload, Server};
pub use crate::token::{NewToken, TokenEntry, Tokens};

/// The reason why a server does not start or ended badly: one line that names the value and the remedy.
#[derive(Debug)]
pub struct Failure {
    message: String,
    source: Option<tallygate::Error>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The error of the database that is behind it, if one is.
    pub fn reason(&self) -> Option<&tallygate::Error> {
        self.source.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<tallygate::Error> for Failure {
    fn from(error: tallygate::Error) -> Self {
        Self { message: error.to_string(), source: Some(error) }
    }
}
