//! Pages of the ledger.

use std::collections::BTreeSet;

use super::Auditor;
use crate::entry::{Cursor, Entry, History, Page};
use crate::error::{Error, Result};
use crate::store::{Of, Span, Store};

/// Of several databases each gives a page, of which the first rows are taken.
pub(super) async fn pages(auditor: &Auditor, history: &History) -> Result<Page> {
    let asked = match (&history.zone, &history.key) {
        (Some(zone), Some(key)) if history.txn.is_none() && auditor.are_several() => {
            vec![auditor.of_bucket(zone, key).await?]
        }
        _ => auditor.each().collect(),
    };
    let mut pages = Vec::with_capacity(asked.len());
    for one in asked {
        pages.push(one.page(|store| page(store, history)).await?);
    }
    match pages.len() {
        1 => Ok(pages.remove(0)),
        _ => Ok(merge(pages, history)),
    }
}

/// Rows of the same time and number stay on one page: the place to go on from is behind all of them.
fn merge(pages: Vec<Page>, history: &History) -> Page {
    let more = pages.iter().any(|page| page.next.is_some());
    let place = |row: &Entry| (row.decided_at, row.id);
    let mut rows: Vec<Entry> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.sort_by(|a, b| match history.oldest_first {
        true => place(a).cmp(&place(b)),
        false => place(b).cmp(&place(a)),
    });
    // A bucket that was moved has its rows in both databases.
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert((row.txn_id, row.zone.clone(), row.key.clone(), row.seq)));
    let limit = history.limit as usize;
    let last = limit.checked_sub(1).and_then(|last| rows.get(last)).map(place);
    let full = last.is_some();
    if let Some(last) = last {
        let same = rows.iter().skip(limit).take_while(|row| place(row) == last).count();
        rows.truncate(limit + same);
    }
    let next = if full || more { rows.last().map(Cursor::from) } else { None };
    Page { rows, next }
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
        (Some(txn), _, _) => store.history(&Span::new(Of::Txn(txn), history)).await?,
        (None, Some(zone_id), Some(key)) => {
            store.history(&Span::new(Of::Bucket(zone_id, key), history)).await?
        }
        (None, Some(zone_id), None) if history.oldest_first => {
            store.history(&Span::new(Of::ZoneUpwards(zone_id), history)).await?
        }
        (None, Some(zone_id), None) => store.history(&Span::new(Of::Zone(zone_id), history)).await?,
        (None, None, _) => {
            let mut rows = Vec::new();
            for zone in store.zones().await? {
                rows.extend(store.history(&Span::new(Of::Zone(zone.id), history)).await?);
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
        });
    }
    Ok(Page { rows, next })
}
