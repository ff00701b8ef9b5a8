//! The decision that is asked about by somebody who knows a key and no transaction.

use chrono::{DateTime, TimeDelta, Utc};

use crate::audit::Auditor;
use crate::boxed::{BoxFuture, boxed};
use crate::check::validate_key;
use crate::decision::Reason;
use crate::entry::{Entry, History, Kind};
use crate::error::Result;

/// Rows that are read at a time: what was decided last is mostly among the last few.
const PAGE: u32 = 20;

#[derive(Clone, Copy)]
enum Wanted {
    Block,
    At(DateTime<Utc>),
}

impl Auditor {
    /// The last block of a bucket: the row of the last check that was blocked, or of a ban that nothing was decided
    /// after. None when nothing was ever blocked. Without a zone it is the last one of that key in any zone.
    /// [`explain`](Self::explain) says why its transaction was blocked.
    ///
    /// Takes no lock. Two or three index ranges of the bucket, each a round trip after that which finds the zone; without a
    /// zone, as many for each zone that knows the key, after those of [`find`](Self::find).
    ///
    /// # Errors
    /// Invalid: a key that no bucket can have. Unknown zone. Transient: the database did not answer within the deadline.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(1, Duration::from_secs(60))?, None, "docs").await?;
    /// let auditor = limiter.auditor();
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// assert!(auditor.last_block(Some("login"), "user:42").await?.is_none());
    /// limiter.check(Check::new("login", "user:42")).await?;
    /// let block = auditor.last_block(None, "user:42").await?.expect("the second was blocked");
    /// let explained = auditor.explain(block.txn_id, 20).await?;
    /// assert_eq!(explained.rows[0].left_before, Some(0));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn last_block<'a>(
        &'a self,
        zone: Option<&'a str>,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Entry>>> {
        boxed(async move { self.last(zone, key, Wanted::Block).await })
    }

    /// The last decision about a bucket at a time or before it, whatever it was: bans and overrides of people, and charges
    /// that were given back, are no decisions. None when nothing was decided by then, or upkeep dropped it. Without a zone it
    /// is the last decision of that key in any zone.
    ///
    /// Takes no lock. A round trip for the zone and mostly one for the bucket, an index range of 20 rows; without a zone, as
    /// many for each zone that knows the key, after those of [`find`](Self::find).
    ///
    /// # Errors
    /// Invalid: a key that no bucket can have. Unknown zone. Transient: the database did not answer within the deadline.
    pub fn last_decision<'a>(
        &'a self,
        zone: Option<&'a str>,
        key: &'a str,
        at: DateTime<Utc>,
    ) -> BoxFuture<'a, Result<Option<Entry>>> {
        boxed(async move { self.last(zone, key, Wanted::At(at)).await })
    }

    async fn last(&self, zone: Option<&str>, key: &str, wanted: Wanted) -> Result<Option<Entry>> {
        validate_key(key)?;
        let zones = match zone {
            Some(zone) => vec![zone.to_owned()],
            None => self.find(key).await?.into_iter().map(|bucket| bucket.zone).collect(),
        };
        let mut last: Option<Entry> = None;
        for zone in zones {
            let of = History::default().zone(zone).key(key).limit(PAGE);
            let found = match wanted {
                Wanted::Block => self.block(of).await?,
                Wanted::At(at) => self.decision(of, at).await?,
            };
            last = found.into_iter().chain(last).max_by_key(|row| row.decided_at);
        }
        Ok(last)
    }

    async fn block(&self, of: History) -> Result<Option<Entry>> {
        let newest = self.history(&of).await?.rows;
        // A ban blocks before the next check does.
        let tells = |row: &Entry| matches!(row.kind, Kind::Ban | Kind::Unban) || is_decision(row);
        match newest.into_iter().find(tells) {
            Some(row) if row.blocked || row.kind == Kind::Ban => Ok(Some(row)),
            _ => Ok(self.history(&of.blocked(true).limit(1)).await?.rows.into_iter().next()),
        }
    }

    async fn decision(&self, of: History, at: DateTime<Utc>) -> Result<Option<Entry>> {
        let mut of = of.until(at.checked_add_signed(TimeDelta::microseconds(1)).unwrap_or(at));
        loop {
            let page = self.history(&of).await?;
            if let Some(row) = page.rows.into_iter().find(is_decision) {
                return Ok(Some(row));
            }
            match page.next {
                Some(next) => of = of.before(next),
                None => return Ok(None),
            }
        }
    }
}

fn is_decision(row: &Entry) -> bool {
    row.kind == Kind::Local || row.reason != Reason::Recorded
}
