//! Pages of the ledger.

use super::{Limiter, until};
use crate::entry::{Cursor, History, Page};
use crate::error::Result;
use crate::store::{Line, Lines, Of, Span};

impl Limiter {
    pub(super) async fn read_history(&self, history: &History) -> Result<Page> {
        let store = &self.inner.store;
        let zone_id = match &history.zone {
            Some(zone) => Some(self.inner.zone(zone).await?.id),
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

    /// A page of a zone's rows as a report reads them. Reading may be tried again whatever went wrong.
    pub(crate) async fn lines(&self, lines: Lines) -> Result<Vec<Line>> {
        let inner = &self.inner;
        let mut tries = inner.tries(until(inner.config.deadline));
        loop {
            match inner.within(inner.store.lines(lines)).await {
                Err(error) if tries.again(&error).await => {}
                lines => return lines,
            }
        }
    }
}
