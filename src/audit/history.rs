//! Pages of the ledger.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use super::Auditor;
use crate::entry::{Cursor, Entry, History, Page};
use crate::error::{Error, Result};
use crate::store::{Of, Range, Span, Store};

/// Rows that there are of one microsecond at most, as far as anybody has seen.
const SAME_TIME: u32 = 10_000;

/// Heads that are read at a time.
const HEADS: u32 = 1_000;

/// The most keys that begin alike whose rows are put together.
const KEYS_MAX: usize = 1_000;

/// The most keys that are told as near ones, and the pages of heads of a zone among which they are looked for.
const NEAR_MAX: usize = 3;
const NEAR_PAGES: u32 = 10;

/// Of several databases each gives a page, and what comes first of all is one.
pub(super) async fn pages(auditor: &Auditor, history: &History) -> Result<Page> {
    let asked: Vec<_> = match (&history.zone, &history.key) {
        (Some(zone), Some(key)) if history.txn.is_none() && auditor.are_several() => {
            vec![auditor.of_bucket(zone, key).await?]
        }
        _ => auditor.each().collect(),
    };
    let mut pages = Vec::with_capacity(asked.len());
    for one in &asked {
        pages.push(one.page(|store| page(store, history)).await?);
    }
    match pages.len() {
        1 => Ok(pages.remove(0)),
        _ => merge(&asked, pages, history).await,
    }
}

/// A bucket that was moved has its rows in both databases, and a page has them once. It ends with the last row of some time, so that
/// no two rows of one time are parted: then the next page has none that was told.
async fn merge(asked: &[&Auditor], mut pages: Vec<Page>, history: &History) -> Result<Page> {
    let mut times: Vec<_> = pages.iter().flat_map(|page| &page.rows).map(|row| row.decided_at).collect();
    times.sort_unstable();
    if !history.oldest_first {
        times.reverse();
    }
    let end = (history.limit as usize).checked_sub(1).and_then(|last| times.get(last)).copied();
    if let Some(end) = end {
        let of_its_time = History {
            since: Some(end),
            until: end.checked_add_signed(TimeDelta::microseconds(1)),
            before: None,
            limit: SAME_TIME,
            ..history.clone()
        };
        for (one, given) in asked.iter().zip(&mut pages) {
            // The place where its page may have been cut.
            if given.rows.last().is_some_and(|last| last.decided_at == end) {
                given.rows.retain(|row| row.decided_at != end);
                given.rows.extend(one.page(|store| page(store, &of_its_time)).await?.rows);
            }
        }
    }
    let mut rows: Vec<Entry> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.retain(|row| {
        end.is_none_or(|end| if history.oldest_first { row.decided_at <= end } else { row.decided_at >= end })
    });
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert((row.txn_id, row.zone.clone(), row.key.clone(), row.seq)));
    let place = |row: &Entry| (row.decided_at, row.id);
    rows.sort_by(|a, b| match history.oldest_first {
        true => place(a).cmp(&place(b)),
        false => place(b).cmp(&place(a)),
    });
    let id = if history.oldest_first { i64::MAX } else { 0 };
    Ok(Page { rows, next: end.map(|at| Cursor { at, id }) })
}

pub(super) async fn page(store: &Store, history: &History) -> Result<Page> {
    let zone_id = match &history.zone {
        Some(zone) => match store.find_zone(zone).await? {
            Some(found) => Some(found.id),
            None => {
                return Err(Error::unknown_zone(format!(
                    "there is no zone {zone:?}; list them with: tallygate zone list"
                )));
            }
        },
        None => None,
    };
    let mut rows = match (history.txn, zone_id, &history.key) {
        (None, _, _) if history.key_prefix.is_some() => of_keys(store, zone_id, history).await?,
        (Some(txn), _, _) => store.history(&Span::new(Of::Txn(txn), history)).await?,
        (None, Some(zone_id), Some(key)) => {
            store.history(&Span::new(Of::Bucket(zone_id, key), history)).await?
        }
        (None, Some(zone_id), None) if history.oldest_first => {
            store.history(&Span::new(Of::ZoneUpwards(zone_id), history)).await?
        }
        (None, Some(zone_id), None) => store.history(&Span::new(Of::Zone(zone_id), history)).await?,
        (None, None, key) => {
            let mut rows = Vec::new();
            for zone in store.zones().await? {
                let of = key.as_ref().map_or(Of::Zone(zone.id), |key| Of::Bucket(zone.id, key));
                rows.extend(store.history(&Span::new(of, history)).await?);
            }
            rows.sort_unstable_by_key(|row| std::cmp::Reverse((row.decided_at, row.id)));
            rows
        }
    };
    let full = rows.len() >= history.limit as usize;
    rows.truncate(history.limit as usize);
    let next = if full { rows.last().map(Cursor::from) } else { None };
    if history.txn.is_some() {
        rows.retain(|row| {
            history.zone.as_ref().is_none_or(|zone| *zone == row.zone)
                && history.key.as_ref().is_none_or(|key| *key == row.key)
                && history.key_prefix.as_ref().is_none_or(|prefix| row.key.starts_with(prefix))
        });
    }
    Ok(Page { rows, next })
}

/// The rows of the buckets whose keys begin as is asked for, of one zone or of all.
async fn of_keys(store: &Store, zone_id: Option<i32>, history: &History) -> Result<Vec<Entry>> {
    let prefix = history.key_prefix.as_deref().unwrap_or_default();
    let zones = match zone_id {
        Some(zone_id) => vec![zone_id],
        None => store.zones().await?.into_iter().map(|zone| zone.id).collect(),
    };
    let (mut rows, mut known) = (Vec::new(), 0);
    for zone_id in zones {
        let mut range = Range::beginning(zone_id, prefix);
        loop {
            let heads = store.heads(&range, HEADS).await?;
            let Some(last) = heads.last() else { break };
            range = range.behind(&last.key);
            known += heads.len();
            if known > KEYS_MAX {
                return Err(Error::invalid(format!(
                    "more than {KEYS_MAX} keys begin with {prefix:?}; name more of them, or one zone"
                )));
            }
            for head in heads {
                rows.extend(store.history(&Span::new(Of::Bucket(zone_id, &head.key), history)).await?);
                rows.sort_unstable_by_key(|row: &Entry| std::cmp::Reverse((row.decided_at, row.id)));
                rows.truncate(history.limit as usize);
            }
        }
    }
    Ok(rows)
}

/// Some keys that have a text in them, each with its zone.
pub(super) async fn near(store: &Store, zone: Option<&str>, text: &str) -> Result<Vec<(String, String)>> {
    let (text, mut found) = (text.to_lowercase(), Vec::new());
    for of in store.zones().await?.into_iter().filter(|of| zone.is_none_or(|zone| *zone == of.name)) {
        let mut range = Range::all(of.id);
        for _ in 0..NEAR_PAGES {
            let heads = store.heads(&range, HEADS).await?;
            let Some(last) = heads.last() else { break };
            range = range.behind(&last.key);
            let near = heads.into_iter().filter(|head| head.key.to_lowercase().contains(&text));
            found.extend(near.map(|head| (of.name.clone(), head.key)));
            if found.len() >= NEAR_MAX {
                found.truncate(NEAR_MAX);
                return Ok(found);
            }
        }
    }
    Ok(found)
}
