//! Zones of several databases: one version everywhere.
//!
//! The first database by name is where a zone is changed. Each other one is given what it lacks: the same number, and each version
//! with the same policy, from the same time on. So a bucket is decided alike wherever it is, and rows can go from one to
//! another. One that was down, or is new, is given the rest the next time that the zone is set.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::shards::Shards;
use super::{Inner, until};
use crate::error::{Error, Result};
use crate::store::ZoneRemoved;
use crate::zone::{Zone, ZoneSetting, ZoneVersion};

/// A zone with all of its versions.
type Whole = (Zone, Vec<ZoneVersion>);

impl Shards {
    pub async fn set_zones(&self, settings: Vec<ZoneSetting>, by: &str) -> Result<Vec<Zone>> {
        if !self.are_several() {
            return self.first().set_zones(&settings, by).await;
        }
        for inner in self.all() {
            settings.iter().try_for_each(|setting| inner.told(inner.store.keeps(&setting.policy)))?;
        }
        let names: Vec<String> = settings.iter().map(|setting| setting.name.clone()).collect();
        self.bring_first(&names).await?;
        let zones = self.first().told(self.first().set_zones(&settings, by).await)?;
        self.bring_rest(&names).await?;
        Ok(zones)
    }

    /// Removes a zone that none of them used, from the first one last. Where one did, the others get it back.
    pub async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        for inner in self.rest() {
            let removed = inner.told(inner.remove_zone(name).await);
            if !matches!(removed, Ok(ZoneRemoved::Removed | ZoneRemoved::Unknown)) {
                self.bring_rest(&[name.to_owned()]).await?;
                return removed;
            }
        }
        let removed = self.first().told(self.first().remove_zone(name).await);
        if self.are_several() && !matches!(removed, Ok(ZoneRemoved::Removed | ZoneRemoved::Unknown)) {
            self.bring_rest(&[name.to_owned()]).await?;
        }
        removed
    }

    /// Gives each database the zones that it lacks.
    pub async fn bring_all(&self) -> Result<()> {
        let zones = |inner: Arc<Inner>| async move { inner.within(inner.store.zones()).await };
        let mut names = BTreeSet::new();
        for (_, zones) in self.each(zones).await {
            names.extend(zones?.into_iter().map(|zone| zone.name));
        }
        let names: Vec<String> = names.into_iter().collect();
        self.bring_first(&names).await?;
        self.bring_rest(&names).await
    }

    /// Another one may be further: it was the first before this one was added.
    async fn bring_first(&self, names: &[String]) -> Result<()> {
        let first = self.first();
        let own = first.told(first.whole(names).await)?;
        let version = |all: &[Whole], name: &str| {
            all.iter().find(|(zone, _)| zone.name == name).map_or(0, |(zone, _)| zone.version)
        };
        let asked: Arc<[String]> = names.into();
        let whole = move |inner: Arc<Inner>| {
            let names = Arc::clone(&asked);
            async move { inner.whole(&names).await }
        };
        // Those that do not answer are told of when they are to be given what the first one has.
        let others: Vec<Vec<Whole>> =
            self.each(whole).await.into_iter().filter_map(|(_, all)| all.ok()).collect();
        for name in names {
            let furthest = others.iter().max_by_key(|all| version(all, name)).map_or(&[][..], |all| all);
            if version(furthest, name) > version(&own, name) {
                let lacked: Vec<Whole> =
                    furthest.iter().filter(|(zone, _)| zone.name == *name).cloned().collect();
                first.told(first.bring(&lacked).await)?;
            }
        }
        Ok(())
    }

    async fn bring_rest(&self, names: &[String]) -> Result<()> {
        let whole: Arc<[Whole]> = self.first().told(self.first().whole(names).await)?.into();
        let bring = move |inner: Arc<Inner>| {
            let whole = Arc::clone(&whole);
            async move { inner.bring(&whole).await }
        };
        self.done("has these zones as they shall be", self.each(bring).await).map(drop)
    }

    /// The answers of all of them, or an error that says where what was asked is done.
    pub fn done<T>(&self, what: &str, answers: Vec<(&Arc<Inner>, Result<T>)>) -> Result<Vec<T>> {
        let (mut done, mut names, mut failed) = (Vec::new(), Vec::new(), None);
        for (inner, answer) in answers {
            match answer {
                Ok(answer) => {
                    names.push(inner.name());
                    done.push(answer);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(done),
            Some(error) if names.is_empty() => Err(error),
            Some(error) => {
                let told = format!(
                    "{error}; of the databases, this one {what} already: {}; run it again",
                    names.join(", ")
                );
                Err(error.told(told))
            }
        }
    }
}

impl Inner {
    async fn set_zones(&self, settings: &[ZoneSetting], by: &str) -> Result<Vec<Zone>> {
        self.again(move || self.store.set_zones(settings, by)).await
    }

    async fn remove_zone(&self, name: &str) -> Result<ZoneRemoved> {
        let removed = self.again(move || self.store.remove_zone(name)).await?;
        if removed == ZoneRemoved::Removed {
            self.zones.forget(name);
        }
        Ok(removed)
    }

    /// Those of these zones that it has.
    async fn whole(&self, names: &[String]) -> Result<Vec<Whole>> {
        self.again(move || async move {
            let mut whole = Vec::with_capacity(names.len());
            for name in names {
                if let Some(zone) = self.store.zone(name).await? {
                    let versions = self.store.zone_versions(zone.id).await?;
                    whole.push((zone, versions));
                }
            }
            Ok(whole)
        })
        .await
    }

    /// Gives it what it lacks of these zones.
    async fn bring(&self, whole: &[Whole]) -> Result<()> {
        self.again(move || async move {
            let there = self.store.zones().await?;
            for (zone, versions) in whole {
                let other = |other: &&Zone| (other.id == zone.id) != (other.name == zone.name);
                if let Some(Zone { id, name, .. }) = there.iter().find(other) {
                    return Err(Error::invalid(format!(
                        "its zone {name:?} has the number {id}, and {:?} has {} elsewhere; a database whose zones were made \
                         apart cannot join others: let it be the first to be filled, or begin with an empty one",
                        zone.name, zone.id
                    )));
                }
                if there.iter().any(|there| there.id == zone.id) {
                    let known = self.store.zone_versions(zone.id).await?;
                    known.iter().try_for_each(|version| is_among(zone, version, versions))?;
                }
                self.store.copy_zone(zone, versions).await?;
            }
            Ok(())
        })
        .await
    }

    /// Does work that may be done again when it failed in passing.
    async fn again<T, F>(&self, work: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        // Boxed, as what is rare: else what it is made of would be too deep for the compiler in a program around it.
        self.within(Box::pin(self.tries(until(self.config.deadline)).run(|_| work()))).await
    }
}

/// Is a version of this database one of all? The name of the user who was logged in is each database's own.
fn is_among(zone: &Zone, version: &ZoneVersion, all: &[ZoneVersion]) -> Result<()> {
    let same =
        |other: &ZoneVersion| ZoneVersion { login: version.login.clone(), ..other.clone() } == *version;
    match all.iter().find(|other| other.version == version.version) {
        Some(other) if same(other) => Ok(()),
        _ => Err(Error::invalid(format!(
            "version {} of zone {:?} was made here by itself and is not that of the others; set the zone in all databases at \
             once only, and take this one out of the list",
            version.version, zone.name
        ))),
    }
}
