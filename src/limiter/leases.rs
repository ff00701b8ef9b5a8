//! The face for clients of capacity: leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::region::{Demand, ServerLeases};
use super::shards::Shards;
use super::{Inner, until};
use crate::boxed::{BoxFuture, boxed};
use crate::check::validate_key;
use crate::decide::{Standing, WEIGHT_MAX};
use crate::error::Result;
use crate::lease::{Lease, Want};
use crate::store::{Isolation, Terms};
use crate::zone::{UNITS_MAX, validate_name};

/// The calls of clients of capacity: they take leases, refresh them and give them back. Made by
/// [`Limiter::leases`](crate::Limiter::leases). The connections need the role *app*.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tallygate::{Limiter, Policy, capacity::Want};
/// # let limiter = Limiter::connect("sqlite::memory:").await?;
/// let gpus = Policy::capacity(100, Duration::from_secs(60))?;
/// limiter.operator().set_zone("render", &gpus, None, "docs").await?;
/// let leases = limiter.leases();
/// let first = leases.get(Want::new("render", "gpu", "worker-1", 80)).await?;
/// let second = leases.get(Want::new("render", "gpu", "worker-2", 80)).await?;
/// assert_eq!((first.has, second.has), (80, 20));
/// // Its share is 50. It gets that once the first has asked again.
/// let first = leases.get(Want::new("render", "gpu", "worker-1", 80).after(&first)).await?;
/// let second = leases.get(Want::new("render", "gpu", "worker-2", 80).after(&second)).await?;
/// assert_eq!((first.has, second.has), (50, 50));
/// leases.release(first).await?;
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Leases {
    pub(super) shards: Shards,
}

impl Leases {
    /// Takes a lease, or refreshes the one that the client has, in one transaction that holds the resource's row: its share of
    /// all that is wanted by the zone's [`Share`](crate::policy::Share), and no more than nobody else holds. But for
    /// [`Share::None`](crate::policy::Share::None) and [`Share::Static`](crate::policy::Share::Static) the leases that have
    /// not ended never come to more than the capacity at the time of the last grant.
    ///
    /// Work is proportional to the clients of the resource. Three round trips, and two for the transaction.
    ///
    /// # Errors
    /// Invalid: see [`Want::validate`], or the zone hands out no capacity. Conflict: the lease that it
    /// [follows](Want::after) is not the client's last one, or its transaction asked for something else before. Refused:
    /// the user has not the role *app*. And those of [`Limiter`](crate::Limiter).
    pub fn get(&self, want: Want) -> BoxFuture<'_, Result<Lease>> {
        boxed(async move {
            want.validate()?;
            let until = until(self.shards.first().config.deadline);
            let (zone, resource) = (want.zone.clone(), want.resource.clone());
            let ask = |inner: Arc<Inner>| {
                let want = want.clone();
                async move { inner.grant(want, until).await }
            };
            self.shards.ask(&zone, &resource, until, ask).await
        })
    }

    /// Gives a lease back before it ends: by asking for nothing. One that has ended, or was replaced, holds nothing any more.
    ///
    /// # Errors
    /// Conflict: the client was granted another lease since. And those of [`get`](Self::get).
    pub fn release(&self, lease: Lease) -> BoxFuture<'_, Result<Lease>> {
        boxed(async move {
            let want = Want::new(&lease.zone, &lease.resource, &lease.client, 0);
            self.get(want.weight(lease.weight).band(lease.band).after(&lease)).await
        })
    }

    /// The wants of the clients whose leases on a resource have not ended, by band, the most important first: what a
    /// server asks for upstream, see [`Region`](crate::capacity::Region). A band in which nothing is wanted is not
    /// there.
    ///
    /// Work is proportional to the clients of the resource. Two round trips; takes no lock.
    ///
    /// # Errors
    /// Invalid: a name or a resource that cannot be stored. Refused: the user has not the role *app*. And those of
    /// [`Limiter`](crate::Limiter).
    pub fn wanted<'a>(&'a self, zone: &'a str, resource: &'a str) -> BoxFuture<'a, Result<Vec<Demand>>> {
        boxed(async move {
            let mut bands: BTreeMap<u8, Demand> = BTreeMap::new();
            for lease in self.standing(zone, resource).await?.into_iter().filter(|lease| lease.wants > 0) {
                let band =
                    bands.entry(lease.band).or_insert(Demand { band: lease.band, clients: 0, wants: 0 });
                band.clients = band.clients.saturating_add(lease.weight).min(WEIGHT_MAX);
                band.wants = band.wants.saturating_add(lease.wants).min(UNITS_MAX);
            }
            Ok(bands.into_values().collect())
        })
    }

    /// Takes leases of a server for clients of its own: see [`Upstream`](crate::capacity::Upstream).
    pub fn for_server(
        &self,
        zone: impl Into<String>,
        resource: impl Into<String>,
        server: impl Into<String>,
    ) -> ServerLeases {
        let (zone, resource, server) = (zone.into(), resource.into(), server.into());
        ServerLeases { leases: self.clone(), zone, resource, server }
    }

    /// The leases of a resource that have not ended, in the order in which their clients came.
    ///
    /// Work is proportional to the clients of the resource. Two round trips; takes no lock.
    ///
    /// # Errors
    /// Those of [`wanted`](Self::wanted).
    pub fn standing<'a>(&'a self, zone: &'a str, resource: &'a str) -> BoxFuture<'a, Result<Vec<Standing>>> {
        boxed(async move {
            validate_name(zone)?;
            validate_key(resource)?;
            let until = until(self.shards.first().config.deadline);
            let standing = |inner: Arc<Inner>| async move {
                let zone_id = inner.within(inner.zone(zone)).await?.id;
                let terms = Terms { isolation: Isolation::RowLock, until };
                let mut standing = inner.within(inner.store.leases(zone_id, resource, terms)).await?;
                standing.sort_unstable_by_key(|lease| (lease.since_us, lease.seq));
                Ok(standing)
            };
            self.shards.ask(zone, resource, until, standing).await
        })
    }
}

impl Inner {
    async fn grant(self: &Arc<Self>, want: Want, until: Instant) -> Result<Lease> {
        let (zone, resource) = (want.zone.clone(), want.resource.clone());
        let txn = want.txn.unwrap_or_else(Uuid::now_v7);
        self.holding_of(&zone, resource, until, move |inner, zone_id, terms, again| {
            let want = Want { txn: if again { Some(txn) } else { want.txn }, ..want.clone() };
            async move { inner.store.grant(zone_id, &want, txn, terms).await }
        })
        .await
    }
}
