//! The name of the client that asks.

use std::fmt;
use std::sync::Arc;

/// The client that asks, where something before the service knows it: this is put into the extensions of the request.
/// Without it, whoever reaches the service may take and give back any client's leases of any resource.
#[derive(Clone)]
pub struct Asker {
    /// Its name: a client of it is known as `NAME/CLIENT_ID`, so that nobody touches the leases of somebody else.
    pub name: String,
    /// The address that it asked at, which Discovery names where no other is set.
    pub asked_at: Option<String>,
    /// The most important band that it may claim: 0 is any, which is priority 255 and more.
    pub band: u8,
    /// Whether it may ask for what a zone hands out, by the zone's name.
    pub may: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("name", &self.name).finish_non_exhaustive()
    }
}
