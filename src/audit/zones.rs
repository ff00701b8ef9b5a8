//! The versions of a zone: a chain of their own, and the policies that its rows name.

use std::sync::Arc;

use super::Auditor;
use super::fault::{Fault, FaultKind};
use super::removals::Removals;
use super::verify::Verify;
use crate::chain;
use crate::decide::Version;
use crate::error::Result;
use crate::store::Chained;
use crate::zone::{Zone, ZoneVersion};

/// A zone as it is stored. Its rows may be there without it.
pub(super) struct Stored {
    pub id: i32,
    pub name: String,
    pub versions: Arc<[Version]>,
    pub removals: Removals,
    pub faults: Vec<Fault>,
}

impl Stored {
    pub fn new(id: i32, zone: Option<&Zone>, versions: &[Chained]) -> Self {
        let name = zone.map_or_else(|| format!("number {id}"), |zone| zone.name.clone());
        let mut stored = Self {
            id,
            name,
            versions: versions.iter().map(|version| Version::from(&version.version)).collect(),
            removals: Removals::of(id),
            faults: Vec::new(),
        };
        stored.check(zone, versions);
        stored
    }

    fn check(&mut self, zone: Option<&Zone>, versions: &[Chained]) {
        let Some(zone) = zone else {
            return self.fault("there are rows of a zone that is not in zone_master".to_owned());
        };
        let first = versions.first().map(|first| &first.version).filter(|first| first.version == 1);
        if let Some(first) = first.filter(|first| first.changed_at != zone.created_at) {
            let [says, was] = [zone.created_at, first.changed_at].map(|at| at.to_rfc3339());
            self.fault(format!(
                "zone_master says that the zone was made at {says}, its first version at {was}"
            ));
        }
        let mut hash = chain::zone(self.id, &zone.name);
        let mut next = 1;
        let (mut derived_gcd, mut stored_gcd) = (1, 1);
        for Chained { version, gcd, zone_gcd, row_hash, clock } in versions {
            let ZoneVersion { version: number, policy, description, changed_at, changed_by, login } = version;
            let gap = *number != next;
            if gap {
                self.fault(format!("version {next} is not there"));
            }
            let hashed = chain::Version {
                version: *number,
                policy,
                description,
                changed_us: changed_at.timestamp_micros(),
                changed_by,
                login: login.as_deref(),
            };
            if !gap && hashed.hash(&hash) != *row_hash {
                self.fault(format!(
                    "version {number}, its calendar, the zone's name or the version before it was edited"
                ));
            }
            if clock[..] != *policy.spans() {
                self.fault(format!("zone_calendar does not say what the clock of version {number} says"));
            }
            if *gcd != policy.gcd() {
                self.fault(format!(
                    "version {number} says that its rate_gcd is {gcd}, and by its rate and window it is {}",
                    policy.gcd()
                ));
            }
            (hash, next) = (*row_hash, number.saturating_add(1));
            (derived_gcd, stored_gcd) = (policy.gcd(), zone_gcd.unwrap_or(policy.gcd()));
        }
        if derived_gcd != stored_gcd {
            self.fault(format!(
                "zone_master says that its rate_gcd is {stored_gcd}, and by its rate and window it is {derived_gcd}"
            ));
        }
        match versions.last().map(|last| &last.version) {
            None => self.fault("it has no version".to_owned()),
            Some(last) if last.version != zone.version => self.fault(format!(
                "zone_master is at version {}, the last of zone_version is {}",
                zone.version, last.version
            )),
            Some(last)
                if last.policy != zone.policy
                    || last.description != zone.description
                    || last.changed_at != zone.updated_at =>
            {
                self.fault(format!("zone_master does not say what version {} says", last.version));
            }
            Some(_) => {}
        }
    }

    /// Reads what owners removed.
    pub async fn remove(&mut self, auditor: &Auditor, versions: &[Chained]) -> Result<()> {
        let mut wrong = Vec::new();
        while {
            let page = auditor.read(|store| store.removals(self.id, self.removals.seq)).await?;
            self.removals.go_on(page, |before, next| wrong.extend(before.wrong(next, versions)))
        } {}
        self.faults.extend(
            wrong.into_iter().map(|detail| Fault::of_zone(&self.name, FaultKind::WrongRemoval, detail)),
        );
        Ok(())
    }

    fn fault(&mut self, detail: String) {
        self.faults.push(Fault::of_zone(&self.name, FaultKind::WrongZone, detail));
    }
}

/// The zones of a database that are not as in the first of several: a bucket would not be decided alike in both.
pub(super) async fn unlike(first: &Auditor, one: &Auditor, what: &Verify) -> Result<Vec<Fault>> {
    let (expected, found) = (first.zones().await?, one.zones().await?);
    let is_asked = |zone: &&Zone| what.zone.as_ref().is_none_or(|name| *name == zone.name);
    let mut faults = Vec::new();
    for zone in expected.iter().chain(&found).filter(is_asked) {
        let of = |zones: &[Zone]| zones.iter().find(|other| other.name == zone.name).map(|zone| zone.id);
        let told = match (of(&expected), of(&found)) {
            (Some(id), Some(own)) if id == own => {
                let expected = first.read(|store| store.zone_versions(id)).await?;
                let found = one.read(|store| store.zone_versions(id)).await?;
                let same = |(a, b): (&ZoneVersion, &ZoneVersion)| {
                    ZoneVersion { login: None, ..a.clone() } == ZoneVersion { login: None, ..b.clone() }
                };
                if expected.len() == found.len() && expected.iter().zip(&found).all(same) {
                    continue;
                }
                "its versions are not those of the first database; set it again in all at once"
            }
            (Some(_), Some(_)) => "it has another number than in the first database",
            (Some(_), None) => "it is in the first database and not here; set it again in all at once",
            _ => "it is here and not in the first database; set it again in all at once",
        };
        let fault = Fault::of_zone(&zone.name, FaultKind::WrongZone, told.to_owned());
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    Ok(faults)
}
