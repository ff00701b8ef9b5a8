//! Settings.

use std::time::Duration;

use super::shield::Shield;
use crate::store::Isolation;

/// Settings of a [`Limiter`](crate::Limiter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The way in which decisions of one bucket are kept apart. Default: row locks.
    pub isolation: Isolation,
    /// The longest that a call may take, retries included, before it ends with a transient error. MySQL and
    /// MariaDB count lock waits in whole seconds, so there the server may hold on for up to a second more.
    /// More than a day counts as a day. Default: 5 s.
    pub deadline: Duration,
    /// The number of times that a decision is tried when the database reports a conflict, a deadlock or a
    /// broken connection. Default: 64; the deadline usually comes first.
    pub attempts: u32,
    /// Connections that [`Limiter::connect`](crate::Limiter::connect) opens at most. Default: 16.
    pub connections: u32,
    /// Whether [`Limiter::connect`](crate::Limiter::connect) makes a SQLite file that is not there or is empty, with its
    /// schema. Where it may not, that is an error: for programs that only read. Default: it may.
    pub create: bool,
    /// Checks of [`Limiter::check_until`](crate::Limiter::check_until) that wait at once, at most. Default: 1,024.
    pub waiters: usize,
    /// The handling of several limits at once that are in [several databases](crate::Limiter::sharded). Default: they
    /// are refused.
    pub spanning: Spanning,
    /// A limit of this process alone, before everything else. Default: none.
    pub shield: Option<Shield>,
    /// The way in which concurrent checks share their calls to the database; None sends each by itself.
    /// Default: they do.
    pub batch: Option<BatchConfig>,
}

/// The handling of [`check_all`](crate::Limiter::check_all) over keys of several databases: no transaction spans these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spanning {
    /// It is an error, and nothing is decided.
    #[default]
    Refused,
    /// Each database decides its part by itself, one after the other in the order of their names, and when one blocks, what
    /// those before it took is given back: refunded, cancelled or released.
    ///
    /// **The loss.** Until it is given back it counts, so that others may be blocked by it. A database that fails in
    /// between, or a process that ends, leaves what was taken before; asking again with the same transaction goes on
    /// from there. In the ledger of a database that came first, what was given back is a row that passed and one that
    /// undoes it.
    InOrder,
}

/// The settings by which concurrent checks of one process travel together.
///
/// A check that finds a lane free goes at once, by itself. While all lanes are busy the next ones gather, and the
/// first lane that is free takes them along in one call. Nothing ever waits for a batch to fill, so a process with
/// little to do notices no difference. Each check is decided by itself, in the order of arrival within its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Checks in one call at most, from 1. More make a call cheaper and longer. Default: 128.
    pub size: usize,
    /// Calls under way at once, from 1 up to the connections. A second one prepares its checks while the first one
    /// waits for the disk; with more of them each carries fewer checks. A call that waits for a bucket which
    /// another process holds gives its lane back. Default: 2.
    pub lanes: usize,
    /// Checks that wait for a call at most, and a quarter of them for one bucket; one more is refused at once with
    /// a transient error. Bounds the memory of a process whose database stands still: some 500 bytes each.
    /// Default: 16,384.
    pub queue: usize,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { size: 128, lanes: 2, queue: 16_384 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            isolation: Isolation::RowLock,
            deadline: Duration::from_secs(5),
            attempts: 64,
            connections: 16,
            create: true,
            waiters: 1_024,
            spanning: Spanning::Refused,
            shield: None,
            batch: Some(BatchConfig::default()),
        }
    }
}
