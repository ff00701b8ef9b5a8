//! Clients that go by leases of a capacity: each uses up evenly what it was granted, and asks again in time.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::recent::Recent;
use super::traffic::Request;
use super::{failed, validate};
use crate::decide::{Ask, Bucket, Claim, Head, Standing, Version, lease};
use crate::error::Result;
use crate::zone::{Policy, UNITS_MAX};

/// The clients of each resource, which is the key that a request names.
pub(super) struct Tenants {
    version: [Version; 1],
    resources: HashMap<String, Resource>,
}

#[derive(Default)]
struct Resource {
    head: Head,
    standing: Vec<Standing>,
    clients: BTreeMap<String, Client>,
}

/// A client, which wants half as much again as it was asked for within one length of a lease.
#[derive(Default)]
struct Client {
    asked: VecDeque<(i64, i64)>,
    asked_for: i64,
    has: i64,
    /// The time when it asks again; None where it has no lease, for want of anything to do.
    again_us: Option<i64>,
    /// The units that it has used, as a level that drains by `has` in the length of a lease, in parts of a unit, of which there
    /// are as many as the length has microseconds; and the time of that level.
    used: (i128, i64),
}

impl Tenants {
    pub fn new(policy: Policy) -> Result<Self> {
        policy.validate()?;
        Ok(Self { version: [policy.into()], resources: HashMap::new() })
    }

    /// Does the client of a request go on with it now?
    pub fn pass(&mut self, request: &Request) -> Result<bool> {
        let Request { at_us, key, cost, client, .. } = request;
        validate(&Ask { cost: *cost, ..Ask::default() }, *at_us)?;
        let length_us = self.version[0].policy.window_us();
        let resource = self.resources.entry(key.clone()).or_default();
        let name = client.as_deref().unwrap_or_default();
        while let Some((due_us, due)) = resource.due(*at_us) {
            resource.ask(&self.version, &due, due_us)?;
        }
        let client = resource.clients.entry(name.to_owned()).or_default();
        client.asked.push_back((*at_us, *cost));
        client.asked_for += cost;
        if client.again_us.is_none() {
            resource.ask(&self.version, name, *at_us)?;
        }
        let client = resource.clients.entry(name.to_owned()).or_default();
        Ok(client.pass(*cost, *at_us, length_us))
    }
}

impl Resource {
    /// The client that asks first among those whose time has come.
    fn due(&self, at_us: i64) -> Option<(i64, String)> {
        let due = self.clients.iter().filter_map(|(name, client)| Some((client.again_us?, name)));
        due.filter(|(again_us, _)| *again_us <= at_us).min().map(|(again_us, name)| (again_us, name.clone()))
    }

    fn ask(&mut self, versions: &[Version; 1], name: &str, now_us: i64) -> Result<()> {
        let Self { head, standing, clients } = self;
        let Some(client) = clients.get_mut(name) else { return Ok(()) };
        client.forget(now_us.saturating_sub(versions[0].policy.window_us()));
        let bucket = Bucket { versions, head, holds: &[] };
        let wants = client.asked_for.saturating_add((client.asked_for + 1) / 2).min(UNITS_MAX);
        let claim = Claim { client: name, wants, weight: 1, band: 0 };
        let granted = lease(bucket, standing, &Recent::default(), claim, now_us).map_err(failed)?;
        // The units that it used so far were of the lease before.
        client.drain(now_us, versions[0].policy.window_us());
        client.has = granted.has;
        client.again_us = (claim.wants > 0).then(|| now_us.saturating_add(granted.refresh_us));
        standing.retain(|lease| lease.client != name && lease.ends_us > now_us);
        standing.extend(granted.hold(name).map(|hold| Standing {
            seq: hold.seq,
            since_us: granted.since_us,
            client: name.to_owned(),
            wants: claim.wants,
            weight: claim.weight,
            band: claim.band,
            has: hold.amount,
            ends_us: hold.ends_us,
        }));
        *head = granted.head;
        Ok(())
    }
}

impl Client {
    fn forget(&mut self, until_us: i64) {
        while let Some((_, cost)) = self.asked.pop_front_if(|asked| asked.0 <= until_us) {
            self.asked_for -= cost;
        }
    }

    fn drain(&mut self, now_us: i64, length_us: i64) {
        let passed_us = now_us.saturating_sub(self.used.1).clamp(0, length_us);
        let drained = i128::from(passed_us) * i128::from(self.has);
        self.used = ((self.used.0 - drained).max(0), now_us);
    }

    fn pass(&mut self, cost: i64, now_us: i64, length_us: i64) -> bool {
        self.drain(now_us, length_us);
        let wanted = self.used.0 + i128::from(cost) * i128::from(length_us);
        let passes = wanted <= i128::from(self.has) * i128::from(length_us);
        if passes {
            self.used.0 = wanted;
        }
        passes
    }
}
