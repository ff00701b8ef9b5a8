//! The choice of the server, of several, that is worked with: the first in their order that is what is wanted.
//!
//! All callers of one list so meet at one server, which decides each bucket alone: several that write would be as exact, but
//! spend most of their tries on one another.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::{Connection, Database, Pool};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::Address;
use super::url::Target;
use crate::boxed::spawn;
use crate::error::{Error, Result};

/// A server that says nothing for so long is passed by, while another one answers.
const SILENT: Duration = Duration::from_secs(1);

/// The pause before all are asked again when none of them was the right one.
const PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks whether an earlier server of the list is back.
const LOOK: Duration = Duration::from_secs(5);

/// The part that a server plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It takes writes.
    Primary,
    /// It only reads.
    Replica,
    /// It says itself that it does neither now.
    Unready,
}

type Options<DB> = <<DB as Database>::Connection as Connection>::Options;
/// The answer of a server about itself, and the connection on which it gave it.
type Answer<DB> = Result<(Standing, <DB as Database>::Connection)>;
type Asked<'c> = Pin<Box<dyn Future<Output = Result<Standing>> + Send + 'c>>;

/// The knowledge that a kind of database has of its servers.
pub(super) struct Server<DB: Database> {
    pub options: fn(&Address) -> Result<Options<DB>>,
    pub pool: fn(Options<DB>, u32) -> Pool<DB>,
    pub error: fn(sqlx::Error) -> Error,
    pub standing: for<'c> fn(&'c mut DB::Connection) -> Asked<'c>,
}

impl<DB: Database> Clone for Server<DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: Database> Copy for Server<DB> {}

/// The servers of one address.
pub(super) struct Hosts<DB: Database> {
    pub server: Server<DB>,
    /// Each with the address that is shown for it.
    places: Vec<(Address, Options<DB>)>,
    target: Target,
    /// The one that was worked with failed in a way that another one may not.
    doubted: AtomicBool,
    /// The time when it was last looked whether an earlier one is back.
    looked: Mutex<Instant>,
    /// The time when the one to work with was last chosen. Locked by who chooses.
    pub chosen: tokio::sync::Mutex<Instant>,
}

impl<DB: Database> Hosts<DB> {
    pub fn of(address: &Address, server: Server<DB>) -> Result<Self> {
        let (target, addresses) = address.hosts()?;
        let place = |address: Address| {
            let options = (server.options)(&address)?;
            Ok((address, options))
        };
        Ok(Self {
            server,
            places: addresses.into_iter().map(place).collect::<Result<_>>()?,
            target,
            doubted: AtomicBool::new(false),
            looked: Mutex::new(Instant::now()),
            chosen: tokio::sync::Mutex::new(Instant::now()),
        })
    }

    /// Is there anything to choose?
    pub fn are_chosen(&self) -> bool {
        self.places.len() > 1 || self.target != Target::Any
    }

    pub fn pool(&self, host: usize, most: u32) -> Pool<DB> {
        (self.server.pool)(self.places[host].1.clone(), most)
    }

    /// Another server may be the one by now.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    pub fn trust(&self) {
        self.doubted.store(false, Ordering::Relaxed);
    }

    pub fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    /// Now and then, while a later server of the list stands in for an earlier one.
    pub fn is_time_to_look(&self, host: usize) -> bool {
        if host == 0 {
            return false;
        }
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = looked.elapsed() >= LOOK;
        if due {
            *looked = Instant::now();
        }
        due
    }

    /// The one to work with, and a connection to it. Asks all at once, and again until then while none is.
    pub async fn find(&self, until: Instant) -> Result<(usize, DB::Connection)> {
        if !self.are_chosen() {
            let (address, options) = &self.places[0];
            let connecting = async { DB::Connection::connect_with(options).await.map_err(self.server.error) };
            let connection = super::in_time(until, connecting).await.map_err(|error| error.at(address))?;
            return Ok((0, connection));
        }
        let mut silent = SILENT;
        let mut earlier = None;
        loop {
            let began = Instant::now();
            let failures = match self.look(until.min(began + silent)).await {
                Ok(found) => return Ok(found),
                // A look that the deadline cut off tells less than the one before it.
                Err(failures) => earlier.take().filter(|_| Instant::now() >= until).unwrap_or(failures),
            };
            let passes = failures.iter().any(|(_, error)| error.is_transient());
            // Another look takes as long as this one did, and is not cut shorter than that.
            if !passes || Instant::now() + PAUSE + began.elapsed() >= until {
                return Err(self.none(failures, passes));
            }
            earlier = Some(failures);
            sleep(PAUSE).await;
            // They may all have much to do.
            silent = (silent * 2).min(until.saturating_duration_since(began));
        }
    }

    /// Asks all once. Where none is the one to work with, the error of each.
    pub async fn look(&self, within: Instant) -> Result<(usize, DB::Connection), Vec<(usize, Error)>> {
        let asked = self.ask_all(within);
        let mut failures = Vec::with_capacity(asked.len());
        for (host, asked) in asked.into_iter().enumerate() {
            match asked.await.unwrap_or_else(|cut| Err(Error::transient(cut.to_string()))) {
                Ok((standing, connection)) if self.target.is(standing) => return Ok((host, connection)),
                Ok((standing, _)) => failures.push((host, Error::transient(standing.told()))),
                Err(error) => failures.push((host, error)),
            }
        }
        Err(failures)
    }

    /// Waits until every server that answers by then has caught up with the others of its cluster.
    #[cfg(feature = "mysql")]
    pub async fn catch_up(&self, until: Instant) {
        for asked in self.ask_all(until) {
            // One that does not answer cannot be written to either.
            drop(asked.await);
        }
    }

    fn ask_all(&self, within: Instant) -> Vec<JoinHandle<Answer<DB>>> {
        let asked = |(_, options): &(Address, Options<DB>)| spawn(ask(options.clone(), self.server, within));
        self.places.iter().map(asked).collect()
    }

    fn none(&self, failures: Vec<(usize, Error)>, passes: bool) -> Error {
        let told = failures.iter().map(|(host, error)| format!("{}: {error}", self.places[*host].0));
        let told = format!("no server {}: {}", self.target.wanted(), told.collect::<Vec<_>>().join("; "));
        match failures.into_iter().next() {
            Some((_, first)) if !passes => first.told(told),
            _ => Error::transient(told),
        }
    }
}

/// In a task of its own, so that one that is silent delays nobody.
async fn ask<DB: Database>(options: Options<DB>, server: Server<DB>, within: Instant) -> Answer<DB> {
    let asked = async {
        let mut connection = DB::Connection::connect_with(&options).await.map_err(server.error)?;
        let standing = (server.standing)(&mut connection).await?;
        Ok((standing, connection))
    };
    let silent = |_| Err(Error::transient("it does not answer"));
    timeout_at(within, asked).await.unwrap_or_else(silent)
}

impl Standing {
    fn told(self) -> &'static str {
        match self {
            Self::Primary => "it takes writes, and is no replica",
            Self::Replica => "it only reads",
            Self::Unready => "it is not ready, or cut off from the others",
        }
    }
}

impl Target {
    fn is(self, standing: Standing) -> bool {
        match self {
            Self::Any => standing != Standing::Unready,
            Self::Primary => standing == Standing::Primary,
            Self::Replica => standing == Standing::Replica,
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Any => "answers",
            Self::Primary => "takes writes",
            Self::Replica => "is a replica that can be read",
        }
    }
}
