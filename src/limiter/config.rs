//! Settings.

use std::time::Duration;

use crate::store::Isolation;

/// Settings of a [`Limiter`](crate::Limiter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How decisions of one bucket are kept apart. Default: row locks.
    pub isolation: Isolation,
    /// How long a call may take, retries included, before it ends with a transient error. MySQL and MariaDB
    /// count lock waits in whole seconds, so there the server may hold on for up to a second more. Default:
    /// 5 s.
    pub deadline: Duration,
    /// How often a decision is tried when the database reports a conflict, a deadlock or a broken
    /// connection. Default: 64; the deadline usually comes first.
    pub attempts: u32,
    /// Connections that [`Limiter::connect`](crate::Limiter::connect) opens at most. Default: 16.
    pub connections: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            isolation: Isolation::RowLock,
            deadline: Duration::from_secs(5),
            attempts: 64,
            connections: 16,
        }
    }
}
