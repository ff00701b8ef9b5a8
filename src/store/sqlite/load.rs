//! Loads buckets, in as many statements for many as for one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::{Row, SqliteConnection};

use super::bucket::Bucket;
use super::list::List;
use super::statement::{place, read, rows, text, unreadable};
use super::{Clock, error};
use crate::chain::End;
use crate::decide::{Carried, Exception, Head, Hold, Version};
use crate::error::Result;
use crate::zone::{BanRule, Calendar, Limit, Policy};

/// A bucket's name: the zone's number and the key.
pub(super) type Name<'n> = (i32, &'n str);

type Versions = BTreeMap<i32, Arc<[Version]>>;

/// A head, the end of its chain, and whether the database has holds of its bucket, or had.
#[derive(Clone, Copy, Default)]
struct Loaded {
    head: Head,
    end: Option<End>,
    holding: bool,
    /// Its row was removed; this is what its ledger left.
    removed: bool,
}

/// Each bucket once, and which of them each name is.
pub(super) fn distinct<'n>(all: impl Iterator<Item = Name<'n>>) -> (Vec<Name<'n>>, Vec<usize>) {
    let mut names = Vec::new();
    let mut known = HashMap::with_capacity(all.size_hint().0);
    let places = all.map(|name| {
        *known.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    });
    let places = places.collect();
    (names, places)
}

/// The buckets as they are at one reading of the clock. The caller holds the write lock, or only looks. `window_us` is
/// the longest window that the call itself brings.
pub(super) async fn buckets<'n>(
    connection: &mut SqliteConnection,
    names: &[Name<'n>],
    window_us: i64,
    clock: &Clock,
) -> Result<Vec<Bucket<'n>>> {
    let heads = load_heads(connection, names).await?;
    let versions = load_versions(connection, names, &heads).await?;
    let mut holds = load_holds(connection, names, &heads, &versions, window_us).await?;
    let now_us = clock.now_us();
    let made =
        names.iter().zip(heads).enumerate().map(|(n, (&name, Loaded { head, end, holding, removed }))| {
            let versions = versions.get(&name.0).cloned().unwrap_or_default();
            let holds = holding.then(|| holds.remove(&n).unwrap_or_default());
            let end = end.unwrap_or_else(|| End::new(name.0, name.1));
            Bucket::new(name, versions, head, end, holds, now_us).removed(removed)
        });
    Ok(made.collect())
}

async fn load_heads(connection: &mut SqliteConnection, names: &[Name<'_>]) -> Result<Vec<Loaded>> {
    let list = List::of(names.iter().map(|&(zone_id, key)| [zone_id.into(), key.into()]));
    let mut heads = vec![Loaded::default(); names.len()];
    let mut more = Vec::new();
    let said = rows(connection, include_str!("heads.sql"), list).await?;
    let Some(said) = said.first() else { return Ok(heads) };
    let (numbers, removed): (Option<String>, bool) = (get!(said, "numbers"), get!(said, "removed"));
    for row in numbers.unwrap_or_default().split_terminator(',') {
        let (n, loaded, has_more) = loaded(row)?;
        heads[n] = loaded;
        if has_more {
            more.push(n);
        }
    }
    let without: Vec<_> = (0..names.len()).filter(|&n| heads[n].end.is_none()).collect();
    if removed && !without.is_empty() {
        let list = List::of(without.iter().map(|&n| [names[n].0.into(), names[n].1.into()]));
        for row in text(connection, include_str!("heads_back.sql"), list).await?.split_terminator(',') {
            let (n, loaded, _) = loaded(row)?;
            heads[without[n]] = Loaded { removed: true, ..loaded };
        }
    }
    let list = List::of(more.iter().map(|&n| [names[n].0.into(), names[n].1.into()]));
    for row in rows(connection, include_str!("heads_more.sql"), list).await? {
        let Loaded { head, holding, .. } = &mut heads[more[place(&row)?]];
        *holding = get!(row, "holding");
        head.banned_until_us = get!(row, "banned_until");
        head.bans = get!(row, "bans");
        head.ban_strikes = get!(row, "ban_strikes");
        let carried_us: Option<i64> = get!(row, "carried_at");
        if let Some(at_us) = carried_us {
            let amount = get!(row, "carried");
            let (total, seq) = (get!(row, "carried_total"), get!(row, "carried_seq"));
            head.carried = Some(Carried { at_us, amount, total, seq });
        }
        let override_seq: Option<i64> = get!(row, "override_seq");
        if let Some(seq) = override_seq {
            let (ban_exempt, until_us) = (get!(row, "ban_exempt"), get!(row, "ends_at"));
            head.exception = Some(Exception { seq, limit: limit!(row), ban_exempt, until_us });
        }
    }
    Ok(heads)
}

/// A row of heads.sql: which one, the head, and whether it says more than most.
fn loaded(row: &str) -> Result<(usize, Loaded, bool)> {
    let (numbers, chain) = row.split_once(';').ok_or_else(|| unreadable(&row))?;
    let (n, [seq, last_us, spent_total, version, strikes, has_more], level) = read(numbers)?;
    let end = Some(End::from_hex(chain).ok_or_else(|| unreadable(&chain))?);
    let zone_version = i32::try_from(version).map_err(|_| unreadable(&version))?;
    let head = Head { seq, last_us, spent_total, level, zone_version, strikes, ..Head::default() };
    Ok((n, Loaded { head, end, ..Loaded::default() }, has_more != 0))
}

/// The versions of each zone, from the oldest that decided the last row of one of the buckets.
async fn load_versions(
    connection: &mut SqliteConnection,
    names: &[Name<'_>],
    heads: &[Loaded],
) -> Result<Versions> {
    let mut from: BTreeMap<i32, Option<i64>> = BTreeMap::new();
    for (&(zone_id, _), Loaded { head, .. }) in names.iter().zip(heads) {
        let version = (head.seq > 0).then_some(i64::from(head.zone_version));
        let oldest = from.entry(zone_id).or_default();
        *oldest = [*oldest, version].into_iter().flatten().min();
    }
    let list = List::of(from.into_iter().map(|(zone_id, version)| [zone_id.into(), version.into()]));
    let mut zones: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in rows(connection, include_str!("versions.sql"), list).await? {
        zones.entry(get!(row, "zone_id")).or_default().push(Version {
            version: get!(row, "version"),
            policy: policy!(row),
            changed_us: get!(row, "changed_at"),
        });
    }
    Ok(zones.into_iter().map(|(zone_id, versions)| (zone_id, versions.into())).collect())
}

/// The holds of those buckets that have any: what ends after the last row, and what was charged in a window that can be
/// asked about: by a version, by the override in force, or by one that comes now.
async fn load_holds(
    connection: &mut SqliteConnection,
    names: &[Name<'_>],
    heads: &[Loaded],
    versions: &Versions,
    window_us: i64,
) -> Result<HashMap<usize, Vec<Hold>>> {
    let holding = heads.iter().enumerate().filter(|(_, head)| head.holding);
    let holding: Vec<_> = holding.map(|(n, Loaded { head, .. })| (n, names[n], head)).collect();
    let list = List::of(holding.iter().map(|(_, (zone_id, key), head)| {
        let own = head.exception.and_then(|exception| exception.limit).map(|limit| limit.window_us);
        let windows = versions.get(zone_id).map_or(&[][..], |versions| versions).iter();
        let longest_us =
            windows.map(|version| version.policy.window_us()).chain(own).fold(window_us, i64::max);
        // The earliest that is asked about is the window that was open at the last row, and, of a sliding counter, the
        // slot before that, which is no longer.
        let charged_us = head.last_us.saturating_sub(longest_us.saturating_mul(2));
        [(*zone_id).into(), (*key).into(), head.last_us.into(), charged_us.into()]
    }));
    let mut holds: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows(connection, include_str!("holds.sql"), list).await? {
        holds.entry(holding[place(&row)?].0).or_default().push(Hold {
            seq: get!(row, "seq"),
            charged_us: get!(row, "charged_at"),
            amount: get!(row, "amount"),
            ends_us: get!(row, "ends_at"),
            member: get!(row, "member"),
        });
    }
    Ok(holds)
}
