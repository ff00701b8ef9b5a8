//! Pages of the ledger.

use crate::entry::{Cursor, History, Page};
use crate::error::{Error, Result};
use crate::store::{Of, Span, Store};

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
