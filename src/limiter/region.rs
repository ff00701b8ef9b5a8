//! Trees of resources: what a resource hands out is itself a lease, of what is above it.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Leases, Limiter, Operator};
use crate::boxed::{BoxFuture, boxed};
use crate::decide::Override;
use crate::error::{Error, Result};
use crate::lease::{Lease, Want};
use crate::zone::{Limit, micros};

/// Between two tries, where what is above does not answer: at first, and at most.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Between two refreshes at least, however often what is above wants to be asked.
const REFRESH_MIN: Duration = Duration::from_millis(100);

/// The name of the one who does it, in the ledger.
const BY: &str = "region";

/// The wants of the clients of one band together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The importance of the clients: 0 is the most.
    pub band: u8,
    /// The number of the clients: 1 to 1,000,000.
    pub clients: i32,
    /// Units, 0 to 2^40.
    pub wants: i64,
}

/// The capacity that a server was granted for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Units that they may use together.
    pub has: i64,
    /// The length for which it was lent, from when it was asked for; zero where nothing was wanted.
    pub length: Duration,
    /// The time after which the server is to ask again.
    pub refresh: Duration,
}

impl Lent {
    /// The sum of the leases of one server: as long as the first of them to end.
    fn of(leases: &[Lease]) -> Self {
        let wanted = leases.iter().filter(|lease| lease.wants > 0);
        Self {
            has: leases.iter().map(|lease| lease.has).sum(),
            length: wanted.map(Lease::length).min().unwrap_or_default(),
            refresh: leases.iter().map(Lease::refresh).min().unwrap_or_default(),
        }
    }
}

/// The level above a region: it grants a server capacity for all of that server's clients.
pub trait Upstream {
    /// The reason why it did not answer.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Asks for what the clients want, each band once; a call stands in place of the one before.
    ///
    /// # Errors
    /// Nothing is known to have been granted; it is asked again later.
    fn ask(&self, bands: &[Demand]) -> impl Future<Output = Result<Lent, Self::Error>> + Send;
}

/// The leases of a server, one for each band of its clients: `SERVER/band N`. Made by [`Leases::for_server`].
#[derive(Clone)]
pub struct ServerLeases {
    pub(super) leases: Leases,
    pub(super) zone: String,
    pub(super) resource: String,
    pub(super) server: String,
}

impl ServerLeases {
    /// Takes a lease for each band, the most important first, in place of all that the server had. One of a band that is no
    /// longer named is given back before. A server that names none is told that it has nothing.
    ///
    /// As [`Leases::get`] for each band, and as [`Leases::wanted`] once; what was granted before an error stands.
    ///
    /// # Errors
    /// Those of [`Leases::get`].
    pub fn get<'a>(&'a self, bands: &'a [Demand]) -> BoxFuture<'a, Result<Vec<Lease>>> {
        boxed(async move {
            let of = |band: u8| format!("{}/band {band}", self.server);
            let want = |Demand { band, clients, wants }| {
                Want::new(&self.zone, &self.resource, of(band), wants).weight(clients).band(band)
            };
            let nothing = [Demand { band: 0, clients: 1, wants: 0 }];
            let mut bands = if bands.is_empty() { &nothing } else { bands }.to_vec();
            bands.sort_unstable_by_key(|demand| demand.band);
            for demand in &bands {
                want(*demand).validate()?;
            }
            for lease in self.leases.standing(&self.zone, &self.resource).await? {
                if lease.client == of(lease.band) && bands.iter().all(|demand| demand.band != lease.band) {
                    let gone = Demand { band: lease.band, clients: lease.weight, wants: 0 };
                    self.leases.get(want(gone)).await?;
                }
            }
            let mut leases = Vec::with_capacity(bands.len());
            for demand in bands {
                leases.push(self.leases.get(want(demand)).await?);
            }
            Ok(leases)
        })
    }
}

impl Upstream for ServerLeases {
    type Error = Error;

    async fn ask(&self, bands: &[Demand]) -> Result<Lent> {
        self.get(bands).await.map(|leases| Lent::of(&leases))
    }
}

/// A resource whose capacity is a lease of what is above it: of another database, or of a server that speaks Doorman's
/// protocol.
///
/// The capacity that is lent is the bucket's own limit for as long as it is lent, and no lease that the bucket grants
/// lasts longer; where nothing is lent, the bucket is banned for that time. When it ends and nothing above answers, the
/// zone's own capacity holds: the safe capacity of the region, which its zone is set to.
///
/// The connections need the roles *app* and, for the [operator](Limiter::with_operator), *operator*. One process
/// refreshes a region.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::capacity::{Region, Want};
/// use tallygate::{Limiter, Policy};
/// # let (root, europe) = (Limiter::connect("sqlite::memory:").await?, Limiter::connect("sqlite::memory:").await?);
/// let minute = Duration::from_secs(60);
/// root.operator().set_zone("gpu", &Policy::capacity(100, minute)?, None, "docs").await?;
/// europe.operator().set_zone("gpu", &Policy::capacity(5, minute)?, None, "docs").await?;
///
/// let above = root.leases().for_server("gpu", "h100", "europe");
/// let mut region = Region::new(&europe, "gpu", "h100", above);
/// let want = || Want::new("gpu", "h100", "worker-1", 80);
/// assert_eq!(europe.leases().get(want()).await?.has, 5);
/// region.refresh().await?;
/// assert_eq!(europe.leases().get(want()).await?.has, 80);
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
pub struct Region<U> {
    leases: Leases,
    operator: Operator,
    zone: String,
    resource: String,
    upstream: U,
    /// A ban of this region's may stand.
    banned: bool,
}

impl<U: Upstream> Region<U> {
    /// The bucket `resource` of a zone of capacity, and what is above it.
    pub fn new(limiter: &Limiter, zone: impl Into<String>, resource: impl Into<String>, upstream: U) -> Self {
        let (leases, operator) = (limiter.leases(), limiter.operator());
        Self { leases, operator, zone: zone.into(), resource: resource.into(), upstream, banned: false }
    }

    /// Asks above for what the clients want here, and hands out what was granted from now on.
    ///
    /// The loan ends here a sixteenth of its length before it ends above, reckoned from when it was asked for: that is
    /// left for the database to write it down.
    ///
    /// # Errors
    /// Transient: nothing above answered, or only after what it granted had ended. Unknown zone, and those of
    /// [`Leases::wanted`], [`Operator::set_override`] and [`Operator::ban`]. A loan of before stands until it ends.
    pub async fn refresh(&mut self) -> Result<Lent> {
        let (zone, resource) = (&*self.zone, &*self.resource);
        let bands = self.leases.wanted(zone, resource).await?;
        let sent = Instant::now();
        let lent = self.upstream.ask(&bands).await.map_err(|error| self.failed(&error).caused_by(error))?;
        let found = self.operator.zone(zone).await?;
        let found = found.ok_or_else(|| Error::unknown_zone(format!("there is no zone {zone:?}")))?;
        let length = Duration::from_micros(found.policy.window_us().unsigned_abs());
        let left = (lent.length - lent.length / 16).saturating_sub(sent.elapsed());
        match lent {
            // Nothing may be used however long that is.
            Lent { has: ..=0, length: lasts, .. } => {
                let time = if lasts.is_zero() { length } else { left };
                self.operator.ban(zone, resource, self.some(time)?, "nothing is lent", BY).await?;
                self.banned = true;
            }
            Lent { has, .. } => {
                let limit = Some(Limit::new(has, length, None)?);
                let own = Override { limit, ban_exempt: false, for_us: Some(micros(self.some(left)?)) };
                self.operator.set_override(zone, resource, own, "what is lent", BY).await?;
                if self.banned {
                    match self.operator.unban(zone, resource, "capacity is lent", BY).await {
                        // It has ended.
                        Err(error) if !error.is_conflict() => return Err(error),
                        _ => self.banned = false,
                    }
                }
            }
        }
        Ok(lent)
    }

    /// Refreshes as often as what is above wants it; where that fails, after 1 s, then twice as long each time, up to 60 s. Drop
    /// the future to end it.
    pub async fn run(mut self) -> Infallible {
        let [least, most] = BACK_OFF;
        let mut wait = least;
        loop {
            match self.refresh().await {
                Ok(lent) => {
                    wait = least;
                    sleep(lent.refresh.max(REFRESH_MIN)).await;
                }
                Err(error) => {
                    tracing::warn!(zone = self.zone, %error, "a region was not refreshed");
                    sleep(wait).await;
                    wait = (2 * wait).min(most);
                }
            }
        }
    }

    /// The time that is left, if any is.
    fn some(&self, left: Duration) -> Result<Duration> {
        match left.as_micros() {
            0 => Err(self.failed(&"the answer came after the lease had ended")),
            _ => Ok(left),
        }
    }

    fn failed(&self, why: &dyn Display) -> Error {
        Error::transient(format!(
            "nothing was lent to {:?} of zone {:?}: {why}; what was lent before stands until it ends",
            self.resource, self.zone
        ))
    }
}
