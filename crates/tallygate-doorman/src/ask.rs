//! The questions, in whole units and bands; and the answers, in Doorman's numbers.

use std::collections::BTreeMap;

use tallygate::Policy;
use tallygate::capacity::{Demand, Lease as Granted};
use tallygate::policy::{Share, UNITS_MAX};
use tonic::Status;

use crate::proto::algorithm::Kind;
use crate::proto::{Algorithm, Lease, PriorityBandAggregate};

/// A larger priority is more important, and a band is the less so the larger it is: priority 255 and more is band 0, priority 0
/// and less is band 255.
pub(crate) fn band(priority: i64) -> u8 {
    u8::MAX - u8::try_from(priority.clamp(0, 255)).unwrap_or_default()
}

pub(crate) fn priority(band: u8) -> i64 {
    i64::from(u8::MAX - band)
}

/// Whole units, rounded down.
pub(crate) fn units(what: &str, resource: &str, value: f64) -> Result<i64, Status> {
    if !(0.0..=UNITS_MAX as f64).contains(&value) {
        return Err(Status::invalid_argument(format!(
            "{what} {value} of resource {resource:?} is out of range; use 0 to {UNITS_MAX}"
        )));
    }
    // In the range, so that nothing is lost but the fraction.
    Ok(value as i64)
}

/// The ledger knows what the client has; what it says of it only must be a lease.
pub(crate) fn held(resource: &str, has: Option<&Lease>) -> Result<(), Status> {
    has.map_or(Ok(()), |has| units("has.capacity", resource, has.capacity).map(drop))
}

/// The priorities as bands, each once.
pub(crate) fn demands(resource: &str, wants: &[PriorityBandAggregate]) -> Result<Vec<Demand>, Status> {
    let mut bands: BTreeMap<u8, Demand> = BTreeMap::new();
    for &PriorityBandAggregate { priority, num_clients, wants } in wants {
        let clients = i32::try_from(num_clients).ok().filter(|clients| *clients > 0).ok_or_else(|| {
            Status::invalid_argument(format!(
                "num_clients {num_clients} of resource {resource:?} is out of range; use 1 to 1000000"
            ))
        })?;
        let (band, wants) = (band(priority), units("wants", resource, wants)?);
        let all = bands.entry(band).or_insert(Demand { band, clients: 0, wants: 0 });
        all.clients = all.clients.saturating_add(clients);
        all.wants = all.wants.saturating_add(wants);
    }
    Ok(bands.into_values().collect())
}

/// The leases of one client or server, as one: it ends when the first of them does, by the database's clock.
pub(crate) fn lease(granted: &[Granted]) -> Lease {
    let ends =
        |lease: &Granted| (lease.granted_at.timestamp_micros() + lease.length_us).div_euclid(1_000_000);
    let wanted = granted.iter().filter(|lease| lease.wants > 0).map(ends).min();
    let refresh_us = granted.iter().map(|lease| lease.refresh_us).min().unwrap_or_default();
    Lease {
        expiry_time: wanted.or_else(|| granted.first().map(ends)).unwrap_or_default(),
        refresh_interval: (refresh_us / 1_000_000).max(1),
        capacity: granted.iter().map(|lease| lease.has).sum::<i64>() as f64,
    }
}

/// By bands is max-min within each of them.
pub(crate) fn algorithm(policy: &Policy) -> Option<Algorithm> {
    let sharing = policy.sharing()?;
    let kind = match sharing.share {
        Share::None => Kind::NoAlgorithm,
        Share::Static => Kind::Static,
        Share::Proportional => Kind::ProportionalShare,
        _ => Kind::FairShare,
    };
    Some(Algorithm {
        kind: kind.into(),
        lease_length: (policy.window_us() / 1_000_000).max(1),
        refresh_interval: (sharing.refresh_us / 1_000_000).max(1),
        parameters: Vec::new(),
        learning_mode_duration: Some(0),
    })
}
