//! The places of buckets among several databases: each bucket is open in one of them, and the database to which its key belongs
//! has it, or has a mark of where it went.

use std::collections::VecDeque;

use super::Auditor;
use super::fault::{Fault, FaultKind};
use super::verify::Verify;
use crate::chain::is_erased;
use crate::error::Result;
use crate::store::{Range, Standing};

/// A database on its way through the keys of a zone.
struct Keys<'a> {
    name: &'a str,
    one: &'a Auditor,
    /// None at the end.
    rest: Option<Range>,
    next: VecDeque<(String, Standing)>,
}

/// Tells of each bucket that two databases decide, or that the database to which its key belongs would begin anew.
pub(super) async fn astray(
    auditor: &Auditor,
    what: &Verify,
    tell: &mut (dyn FnMut(Fault) + Send),
) -> Result<()> {
    for zone in auditor.zones().await? {
        if what.zone.as_ref().is_some_and(|name| *name != zone.name) {
            continue;
        }
        let range = match &what.key {
            Some(key) => Range::only(&(zone.id, key.clone())),
            None => Range::all(zone.id),
        };
        let mut all = Vec::new();
        for (name, one) in auditor.shards() {
            all.push(Keys { name, one, rest: Some(range.clone()), next: VecDeque::new() });
        }
        while let Some(key) = next(&mut all).await? {
            let mut found = Vec::new();
            for keys in &mut all {
                if keys.next.front().is_some_and(|(next, _)| *next == key) {
                    found.extend(keys.next.pop_front().map(|(_, standing)| (keys.name, standing)));
                }
            }
            if auditor.wrong(&key, &found).is_none() {
                continue;
            }
            // It may have been on its way from one to another, while they were read one after the other.
            let bucket = (zone.id, key);
            let mut found = Vec::new();
            for (name, one) in auditor.shards() {
                found.push((name, one.read(|store| store.standing(&bucket)).await?));
            }
            if let Some((shard, detail)) = auditor.wrong(&bucket.1, &found) {
                let fault = Fault::of_zone(&zone.name, FaultKind::WrongPlace, detail);
                tell(Fault { shard: Some(shard.to_owned()), key: Some(bucket.1), ..fault });
            }
        }
    }
    Ok(())
}

/// The least key that any of them has and that was not taken yet.
async fn next(all: &mut [Keys<'_>]) -> Result<Option<String>> {
    for keys in &mut *all {
        if keys.next.is_empty()
            && let Some(range) = keys.rest.take()
        {
            keys.next = keys.one.read(|store| store.standings(&range)).await?.into();
            keys.rest = keys.next.back().map(|(last, _)| range.behind(last));
        }
    }
    Ok(all.iter().filter_map(|keys| keys.next.front()).map(|(key, _)| key).min().cloned())
}

impl Auditor {
    /// The fault of a bucket by where it is found: the database that has it, and the evidence.
    fn wrong<'a>(&'a self, key: &str, found: &[(&'a str, Standing)]) -> Option<(&'a str, String)> {
        if is_erased(key) {
            // Nothing happens in it any more, wherever it was open.
            return None;
        }
        let open = |(_, standing): &&(&str, Standing)| matches!(standing, Standing::Here);
        let open: Vec<&str> = found.iter().filter(open).map(|(name, _)| *name).collect();
        let Some(&first) = open.first() else {
            // Two that lead to each other have a move that was cut off.
            let has = |to: &str| {
                found.iter().any(|(name, there)| *name == to && !matches!(there, Standing::Nothing))
            };
            return found.iter().find_map(|(name, standing)| match standing {
                Standing::Moved(to, rows) if *rows > 0 && !has(to) => {
                    Some((*name, format!("its {rows} rows have moved to {to}, which has nothing of it")))
                }
                _ => None,
            });
        };
        if open.len() > 1 {
            let all = open.join(" and ");
            return Some((first, format!("{all} have it open, and each lets it pass up to its limit")));
        }
        let (home, later) = self.homes(key)?;
        let leads =
            |(name, standing): &(&str, Standing)| *name == home && matches!(standing, Standing::Moved(..));
        if first == home || first == later || found.iter().any(leads) {
            return None;
        }
        Some((
            first,
            format!("{home}, to which its key belongs, has no mark that leads here, and would begin it anew"),
        ))
    }
}
