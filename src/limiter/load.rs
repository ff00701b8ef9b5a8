//! The work that a limiter has now.

use super::{Inner, Limiter};

/// The work that a limiter has at this moment, see [`Limiter::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Load {
    /// Connections to the database that are in a call.
    pub connections_in_use: u32,
    /// Connections that are open beside these.
    pub connections_idle: u32,
    /// Connections that there may be: [`Config::connections`](crate::Config::connections), or the most of a pool that was given.
    pub connections_most: u32,
    /// Checks that wait for a call; [`BatchConfig::queue`](crate::BatchConfig::queue) bounds them.
    pub checks_waiting: usize,
    /// Bytes of the journal that the ledger does not know of yet; None without a journal.
    pub journal_bytes: Option<u64>,
    /// Bytes that the journal has room for; None without a journal.
    pub journal_most_bytes: Option<u64>,
}

impl Limiter {
    /// The work that it has at this moment, for gauges. Asks no database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let limiter = tallygate::Limiter::connect("sqlite::memory:").await?;
    /// let load = limiter.load();
    /// assert_eq!((load.connections_in_use, load.checks_waiting, load.journal_bytes), (0, 0, None));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn load(&self) -> Load {
        let sum = |of: fn(&Inner) -> u32| self.shards.all().map(|inner| of(inner)).sum();
        Load {
            connections_in_use: sum(|inner| inner.store.in_use_and_idle().0),
            connections_idle: sum(|inner| inner.store.in_use_and_idle().1),
            connections_most: sum(|inner| inner.store.connections()),
            checks_waiting: self.shards.all().map(|inner| inner.combiner.waiting()).sum(),
            journal_bytes: self.journal.as_ref().map(|journal| journal.bytes()),
            journal_most_bytes: self.journal.as_ref().map(|journal| journal.most_bytes()),
        }
    }
}
