//! Connections, kept at hand between checks.
//!
//! sqlx's pool pings each connection that comes back to it, and ours looks closer (see `still_good`): four
//! more round trips for the server after every check of one. So after a call that ended well its connection
//! stays taken, on a stack of our own, and the next check goes out at once. After any other end, a dropped
//! call included, it goes back to the pool and is looked at there.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database, Pool};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use sqlx::{Executor, pool::PoolOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::{fault::is_told, hosts::Hosts};
use crate::boxed::alone;
use crate::error::{Error, Result};

/// A pool, and those of its connections that are at hand. Of several servers it is that of the one to work with.
pub(super) struct Connections<DB: Database> {
    current: Arc<RwLock<Current<DB>>>,
    most: u32,
    error: fn(sqlx::Error) -> Error,
    /// None where there is nothing to choose.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    hosts: Option<Arc<Hosts<DB>>>,
}

/// The pool of one server.
struct Current<DB: Database> {
    pool: Pool<DB>,
    /// None for a pool of the caller's, from which nothing may be held back.
    shelf: Option<Arc<Shelf<DB>>>,
    /// The one of the list that it is.
    host: usize,
}

struct Shelf<DB: Database> {
    /// One for each connection that the pool may open; waited for in the order of coming.
    turns: Arc<Semaphore>,
    /// Each with the time since when it waits.
    idle: Mutex<Vec<(PoolConnection<DB>, Instant)>>,
}

/// A connection that waited longer is looked at by the pool first: the server or something on the way may
/// have ended it.
const FRESH: Duration = Duration::from_secs(30);

/// A server from which no connection is had for so long is doubted, where there are others.
const SILENT: Duration = Duration::from_secs(1);

/// A connection for one call.
pub(crate) struct Leased<DB: Database> {
    connection: PoolConnection<DB>,
    /// Where it goes when the call ended well, and the turn that it gives back then.
    shelf: Option<(Arc<Shelf<DB>>, OwnedSemaphorePermit)>,
}

/// A pool of ours: of at most so many connections, to a server at this port. A session begins with this statement, if any.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn pool_options<DB: Database>(most: u32, port: u16, first: &'static str) -> PoolOptions<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    PoolOptions::new()
        .max_connections(most)
        .test_before_acquire(false)
        .after_connect(move |connection: &mut DB::Connection, _| {
            // Its messages need not wait, where that can be had.
            #[cfg(target_os = "linux")]
            super::at_once::send_to(port);
            #[cfg(not(target_os = "linux"))]
            let _ = port;
            Box::pin(async move {
                if !first.is_empty() {
                    connection.execute(first).await?;
                }
                Ok(())
            })
        })
        .after_release(|connection, _| Box::pin(async move { Ok(still_good(connection).await) }))
}

/// True when a connection that comes back to a pool can be used again.
///
/// A query that was cancelled while it waited leaves its answer, often an error, for the next reader. The
/// first ping takes that error and the second one tells. Without this the pool closes such a connection
/// the hard way, which with rustls can wait for ever and keep the pool's slot.
///
/// Any other answer than the database's own is one that the driver could not read: the call was dropped while MySQL
/// prepared its statement, of which the driver keeps no account (sqlx 0.9.0), and each later call would read the answer to
/// the one before.
///
/// A `BEGIN` whose caller went away before its answer is one that the driver does not count (sqlx 0.9.0, its issue 4393): the
/// transaction stays open, and what the next callers were told is committed would be undone with it. A transaction
/// that is begun and rolled back here ends that one.
pub(super) async fn still_good<C: Connection>(connection: &mut C) -> bool {
    let look = async {
        match connection.ping().await {
            Err(sqlx::Error::Database(_)) => connection.ping().await?,
            answer => answer?,
        }
        connection.begin().await?.rollback().await
    };
    matches!(timeout(Duration::from_secs(5), look).await, Ok(Ok(())))
}

impl<DB: Database> Connections<DB> {
    /// Of a pool that the caller shares with others.
    pub fn shared(pool: Pool<DB>, error: fn(sqlx::Error) -> Error) -> Self {
        let most = pool.options().get_max_connections();
        Self::over(Current { pool, shelf: None, host: 0 }, most, error)
    }

    /// Of a pool that nobody else uses and that opens at most `most` connections.
    #[cfg(feature = "sqlite")]
    pub fn own(pool: Pool<DB>, most: u32, error: fn(sqlx::Error) -> Error) -> Self {
        Self::over(Current::own(pool, most, 0), most, error)
    }

    /// At most `most`, to whichever of these servers is the one to work with.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub async fn to(hosts: Hosts<DB>, most: u32, until: Instant) -> Result<Self> {
        // One connection by hand first: a pool would hide why it cannot connect behind its timeout.
        let (host, connection) = hosts.find(until).await?;
        let error = hosts.server.error;
        connection.close().await.map_err(error)?;
        let connections = Self::over(Current::own(hosts.pool(host, most), most, host), most, error);
        Ok(Self { hosts: hosts.are_chosen().then(|| Arc::new(hosts)), ..connections })
    }

    fn over(current: Current<DB>, most: u32, error: fn(sqlx::Error) -> Error) -> Self {
        Self {
            current: Arc::new(RwLock::new(current)),
            most,
            error,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            hosts: None,
        }
    }

    /// The options for connecting to the server that is worked with.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn options(&self) -> <DB::Connection as Connection>::Options {
        (*self.current().pool.connect_options()).clone()
    }

    /// The most connections that there may be.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The number that are in a call, and the number that are open beside them.
    pub fn in_use_and_idle(&self) -> (u32, u32) {
        let Current { pool, shelf, .. } = self.current();
        let open = pool.size();
        let in_use = match shelf {
            Some(shelf) => self.most as usize - shelf.turns.available_permits().min(self.most as usize),
            None => (open as usize).saturating_sub(pool.num_idle()),
        } as u32;
        (in_use, open.saturating_sub(in_use))
    }

    /// A connection, or the error that none was free in time.
    pub async fn lease(&self, until: Instant) -> Result<Leased<DB>> {
        let mut silent = SILENT;
        loop {
            if let Some(leased) = self.lease_of_one(until, silent).await? {
                return Ok(leased);
            }
            // It does not answer, or has much to do: all are asked before it is tried again, with more patience.
            self.doubt();
            silent *= 2;
        }
    }

    /// Of the server to work with. None where that gave no new connection for so long, and there are others: the pool tries
    /// again where one is refused, and another server may not refuse it.
    async fn lease_of_one(&self, until: Instant, silent: Duration) -> Result<Option<Leased<DB>>> {
        let Current { pool, shelf, .. } = self.chosen(until).await?;
        let late = |_| (self.error)(sqlx::Error::PoolTimedOut);
        let Some(shelf) = shelf else {
            let connection = timeout_at(until, self.acquire(&pool)).await.map_err(late)??;
            return Ok(Some(Leased { connection, shelf: None }));
        };
        let turn = timeout_at(until, Arc::clone(&shelf.turns).acquire_owned()).await.map_err(late)?;
        let turn = turn.map_err(|_| (self.error)(sqlx::Error::PoolClosed))?;
        // One that is not fresh goes back here, before the pool is asked: it may be the pool's last.
        let at_hand = shelf.idle().pop().filter(|(_, since)| since.elapsed() < FRESH);
        let connection = match at_hand {
            Some((connection, _)) => connection,
            None => {
                let patience = if self.are_of_several() { until.min(Instant::now() + silent) } else { until };
                match timeout_at(patience, self.acquire(&pool)).await {
                    Err(_) if patience < until => return Ok(None),
                    connection => connection.map_err(late)??,
                }
            }
        };
        Ok(Some(Leased { connection, shelf: Some((shelf, turn)) }))
    }

    /// Closes them all, unless the pool is the caller's.
    pub async fn close(&self) {
        self.current().close().await;
    }

    fn current(&self) -> Current<DB> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of the pool's, outside any transaction.
    async fn acquire(&self, pool: &Pool<DB>) -> Result<PoolConnection<DB>> {
        loop {
            let mut connection = pool.acquire().await.map_err(self.error)?;
            if !connection.is_in_transaction() {
                return Ok(connection);
            }
            // SQLite ends a transaction by itself when the disk is full or broken. The driver's rollback then finds
            // none, fails, and counts one as open for as long as the connection lives.
            connection.close_on_drop();
        }
    }
}

/// Of one server there is nothing to choose.
#[cfg(not(any(feature = "postgres", feature = "mysql")))]
impl<DB: Database> Connections<DB> {
    async fn chosen(&self, _until: Instant) -> Result<Current<DB>> {
        Ok(self.current())
    }

    pub fn are_of_several(&self) -> bool {
        false
    }

    pub fn doubt(&self) {}
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl<DB: Database> Connections<DB> {
    /// May a call that failed here pass at another server?
    pub fn are_of_several(&self) -> bool {
        self.hosts.is_some()
    }

    /// The server failed in a way that another one may not: before the next call all are asked.
    pub fn doubt(&self) {
        if let Some(hosts) = &self.hosts {
            hosts.doubt();
        }
    }

    /// One outside the pool, to the server to work with; not asked for again where it is refused.
    pub async fn another(&self, until: Instant) -> Result<DB::Connection> {
        match &self.hosts {
            Some(hosts) => {
                hosts.look(until).await.map(|(_, connection)| connection).map_err(|mut failures| {
                    let told = failures.iter().position(|(_, error)| is_told(error));
                    failures.swap_remove(told.unwrap_or_default()).1
                })
            }
            None => {
                let options = self.options();
                DB::Connection::connect_with(&options).await.map_err(self.error)
            }
        }
    }

    /// Waits until every server of the list that answers by then has caught up with the others of its cluster.
    #[cfg(feature = "mysql")]
    pub async fn catch_up(&self, until: Instant) {
        if let Some(hosts) = &self.hosts {
            hosts.catch_up(until).await;
        }
    }

    /// The pool of the server to work with.
    async fn chosen(&self, until: Instant) -> Result<Current<DB>> {
        let Some(hosts) = &self.hosts else { return Ok(self.current()) };
        if hosts.is_doubted() {
            return self.choose(hosts, until).await;
        }
        let current = self.current();
        if hosts.is_time_to_look(current.host) {
            let (this, hosts) = (self.clone(), Arc::clone(hosts));
            alone(async move { drop(this.choose(&hosts, Instant::now() + FRESH).await) });
        }
        Ok(current)
    }

    /// Asks all servers, once for all who wait, and goes on at the one that is found.
    async fn choose(&self, hosts: &Hosts<DB>, until: Instant) -> Result<Current<DB>> {
        let began = Instant::now();
        let late = |_| (self.error)(sqlx::Error::PoolTimedOut);
        let mut chosen = timeout_at(until, hosts.chosen.lock()).await.map_err(late)?;
        if *chosen > began {
            return Ok(self.current());
        }
        let (host, _connection) = hosts.find(until).await?;
        hosts.trust();
        *chosen = Instant::now();
        let old = self.current();
        if old.host == host {
            return Ok(old);
        }
        let new = Current::own(hosts.pool(host, self.most), self.most, host);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        alone(async move { old.close().await });
        Ok(new)
    }
}

impl<DB: Database> Clone for Connections<DB> {
    fn clone(&self) -> Self {
        Self {
            current: Arc::clone(&self.current),
            most: self.most,
            error: self.error,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            hosts: self.hosts.clone(),
        }
    }
}

impl<DB: Database> Current<DB> {
    fn own(pool: Pool<DB>, most: u32, host: usize) -> Self {
        let turns = Arc::new(Semaphore::new(most as usize));
        Self { pool, shelf: Some(Arc::new(Shelf { turns, idle: Mutex::default() })), host }
    }

    async fn close(&self) {
        if let Some(shelf) = &self.shelf {
            // The pool closes what comes back to it, now or when its call ends; nothing is kept at hand any more.
            shelf.turns.close();
            drop(std::mem::take(&mut *shelf.idle()));
            self.pool.close().await;
        }
    }
}

impl<DB: Database> Clone for Current<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), shelf: self.shelf.clone(), host: self.host }
    }
}

impl<DB: Database> Shelf<DB> {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(PoolConnection<DB>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Database> Drop for Shelf<DB> {
    /// Giving a connection back to the pool takes a runtime, and the last limiter may be dropped without one.
    fn drop(&mut self) {
        self.idle().drain(..).for_each(|(connection, _)| drop(connection.leak()));
    }
}

impl<DB: Database> Leased<DB> {
    /// The connection for good, which is closed when it is dropped: for what leaves its traces on a session.
    pub fn detach(self) -> DB::Connection {
        self.connection.detach()
    }

    /// The connection is closed after the call, and the server rolls back what is open on it.
    pub fn close(&mut self) {
        self.connection.close_on_drop();
    }

    /// Ends the call: after a good one the connection stays at hand.
    pub fn end<T>(self, result: Result<T>) -> Result<T> {
        let Self { connection, shelf } = self;
        if let (Ok(_), Some((shelf, _turn))) = (&result, shelf) {
            let mut idle = shelf.idle();
            if !shelf.turns.is_closed() {
                idle.push((connection, Instant::now()));
            }
        }
        result
    }
}

impl<DB: Database> Deref for Leased<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Leased<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "sqlite")]
    use crate::store::sqlite::error;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn the_only_connection_is_had_again_after_it_waited_long() {
        let pool = sqlx::pool::PoolOptions::<sqlx::Sqlite>::new().max_connections(1);
        let connections = Connections::own(pool.connect_lazy("sqlite::memory:").unwrap(), 1, error);
        let soon = || Instant::now() + Duration::from_secs(5);
        connections.lease(soon()).await.unwrap().end(Ok(())).unwrap();
        let shelf = connections.current().shelf.unwrap();
        shelf.idle()[0].1 -= FRESH;
        assert!(connections.lease(soon()).await.is_ok());
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn those_in_a_call_are_told_from_those_that_rest() {
        let pool = || sqlx::pool::PoolOptions::<sqlx::Sqlite>::new().connect_lazy("sqlite::memory:").unwrap();
        for connections in [Connections::own(pool(), 10, error), Connections::shared(pool(), error)] {
            assert_eq!(connections.in_use_and_idle(), (0, 0));
            let soon = || Instant::now() + Duration::from_secs(5);
            let (first, second) =
                (connections.lease(soon()).await.unwrap(), connections.lease(soon()).await.unwrap());
            assert_eq!(connections.in_use_and_idle(), (2, 0));
            first.end(Ok(())).unwrap();
            while connections.in_use_and_idle() != (1, 1) {
                tokio::task::yield_now().await;
            }
            drop(second);
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn closing_waits_for_a_call_that_is_under_way_and_no_longer() {
        let pool = sqlx::pool::PoolOptions::<sqlx::Sqlite>::new().max_connections(1);
        let connections = Connections::own(pool.connect_lazy("sqlite::memory:").unwrap(), 1, error);
        let lease = connections.lease(Instant::now() + Duration::from_secs(5)).await.unwrap();
        let call = async {
            tokio::task::yield_now().await;
            lease.end(Ok(())).unwrap();
        };
        let closed = async { tokio::join!(connections.close(), call) };
        tokio::time::timeout(Duration::from_secs(20), closed).await.expect("it closes");
        assert!(connections.lease(Instant::now() + Duration::from_secs(5)).await.is_err());
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_connection_whose_rollback_failed_is_not_used_again() {
        let pool = sqlx::pool::PoolOptions::<sqlx::Sqlite>::new().max_connections(1);
        let pool = pool.connect_lazy("sqlite::memory:").unwrap();
        for connections in [Connections::own(pool.clone(), 1, error), Connections::shared(pool, error)] {
            for _ in 0..3 {
                let mut lease = connections.lease(Instant::now() + Duration::from_secs(5)).await.unwrap();
                let mut tx = lease.begin_with("begin immediate").await.unwrap();
                // As SQLite does by itself.
                sqlx::query("rollback").execute(&mut *tx).await.unwrap();
            }
        }
    }
}
