//! A report of a ledger on a time: volumes, who was blocked most, who acted, what was changed.

mod changes;
#[cfg(feature = "pages")]
mod chart;
mod near;
#[cfg(feature = "pages")]
mod page;
#[cfg(feature = "pages")]
mod sections;
mod sketch;
mod tally;
mod timeline;
mod values;

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::Auditor;
use crate::boxed::{BoxFuture, boxed};
use crate::entry::{Cursor, History};
use crate::error::{Error, Result};
use crate::store::{Lines, Of, Span};
use crate::zone::Zone;
use tally::Tally;

#[cfg(feature = "pages")]
pub use page::{Explanation, Imprint};
#[cfg(feature = "pages")]
pub use sections::Section;
pub use values::{
    Act, Acts, Before, BlockedBucket, Counts, FieldChange, Grain, NearBucket, PolicyChange, Report, ReportOn,
    Sum, Timeline, Top, Volume, ZoneReport,
};

/// The length of the time where no beginning is given.
const DAYS: TimeDelta = TimeDelta::days(30);

impl Auditor {
    /// Reports on a time, and compares it with as long a time before.
    ///
    /// Each row of both is read once, in pages of 2,000 by the index of the zone's rows. A page is a statement and a
    /// transaction of its own that locks nothing, with the deadline and the retries of any call; the next one goes on from
    /// its last row. Memory does not grow with the number of rows: some 20 MB for a zone with more than 65,536 blocked
    /// buckets, twice that with the longest keys, one zone after the other. Beyond so many, [`Report::blocked_most`] and
    /// [`Report::near_limit`] are estimates and say so; every other number is exact.
    ///
    /// `progress` is called after each page with the part that is done, 0 to 1.
    ///
    /// # Errors
    /// Unknown zone. Invalid: `since` after `until`, `top` out of range. Transient: the database did not answer.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// use tallygate::audit::report::ReportOn;
    /// use tallygate::{Check, Limiter, Policy};
    ///
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// for _ in 0..7 {
    ///     limiter.check(Check::new("login", "user:42")).await?;
    /// }
    /// let report = limiter.auditor().report(&ReportOn::default().zone("login"), |_| ()).await?;
    /// assert_eq!((report.zones[0].counts.allowed, report.zones[0].counts.blocked), (5, 2));
    /// assert_eq!(report.blocked_most.buckets[0].key, "user:42");
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub async fn report(&self, on: &ReportOn, mut progress: impl FnMut(f64) + Send) -> Result<Report> {
        self.read_report(on, &mut progress).await
    }

    fn read_report<'a>(
        &'a self,
        on: &'a ReportOn,
        progress: &'a mut (dyn FnMut(f64) + Send),
    ) -> BoxFuture<'a, Result<Report>> {
        boxed(async move {
            let mut report = on.empty()?;
            let (since, until, top) = (report.since, report.until, on.top as usize);
            let zones = self.zones_of(on).await?;
            let steps = zones.len() * 2;
            let mut timeline = Vec::with_capacity(zones.len());
            for (n, zone) in zones.iter().enumerate() {
                let changes =
                    changes::changes(zone, &self.page(|store| store.zone_versions(zone.id)).await?)?;
                report
                    .changes
                    .extend(changes.into_iter().filter(|change| (since..until).contains(&change.changed_at)));
                let mut told =
                    |step: usize, part: f64| progress(((n * 2 + step) as f64 + part) / steps as f64);
                if let Some(before) = &mut report.before {
                    let mut tally = Tally::new(&zone.name, report.grain, top);
                    self.tally(zone, (before.since, before.until), &mut tally, |part| told(0, part)).await?;
                    let (zone, first_at) = tally.zone();
                    before.zones.push(zone);
                    before.first_at = before.first_at.into_iter().chain(first_at).min();
                }
                let mut tally = Tally::new(&zone.name, report.grain, top);
                self.tally(zone, (since, until), &mut tally, |part| told(1, part)).await?;
                timeline.push((zone.name.as_str(), tally.join(&mut report)));
                let ahead = self.ahead(zone.id).await?;
                report.ahead.extend(ahead.map(|at| (zone.name.clone(), at)));
            }
            report.timeline = timeline::join(timeline);
            report.volumes.sort_by_key(|volume| volume.starts_at);
            report.changes.sort_by_key(|change| change.changed_at);
            Ok(report)
        })
    }

    /// Reads the rows of a zone in a time.
    async fn tally(
        &self,
        zone: &Zone,
        (since, until): (DateTime<Utc>, DateTime<Utc>),
        tally: &mut Tally<'_>,
        mut progress: impl FnMut(f64) + Send,
    ) -> Result<()> {
        let databases: Vec<&Self> = self.each().collect();
        for (n, one) in databases.iter().enumerate() {
            let mut after = Cursor { at: since, id: 0 };
            loop {
                let lines = Lines { zone_id: zone.id, after, until, of_several: databases.len() > 1 };
                let lines = one.page(|store| store.lines(lines)).await?;
                let Some(last) = lines.last() else { break };
                after = Cursor { at: last.decided_at, id: last.id };
                lines.into_iter().for_each(|line| tally.add(line));
                let part = (after.at - since).as_seconds_f64() / (until - since).as_seconds_f64();
                progress((n as f64 + part) / databases.len() as f64);
            }
        }
        Ok(())
    }

    async fn zones_of(&self, on: &ReportOn) -> Result<Vec<Zone>> {
        let Some(name) = &on.zone else { return self.zones().await };
        Ok(vec![self.zone(name).await?])
    }
}

impl ReportOn {
    /// The report before anything was read.
    fn empty(&self) -> Result<Report> {
        if !(1..=1_000).contains(&self.top) {
            return Err(Error::invalid(format!("top {} is out of range; use 1 to 1000", self.top)));
        }
        let until = self.until.unwrap_or_else(|| Utc::now().max(self.since.unwrap_or_default()));
        let since = self.since.or_else(|| until.checked_sub_signed(DAYS));
        let history = History { zone: self.zone.clone(), since, until: Some(until), ..History::default() };
        history.validate()?;
        // To what every database can store.
        let Span { since, until, .. } = Span::new(Of::Zone(0), &history);
        let (since, until) = (since.trunc_subsecs(6), until.trunc_subsecs(6));
        Ok(Report {
            since,
            until,
            rows: 0,
            grain: Grain::for_time(until - since),
            zones: Vec::new(),
            volumes: Vec::new(),
            timeline: Timeline::default(),
            before: before(since, until),
            blocked_most: Top::default(),
            shadowed_most: Top::default(),
            near_limit: Top::default(),
            bans: Acts::default(),
            actions: Acts::default(),
            changes: Vec::new(),
            ahead: BTreeMap::new(),
        })
    }
}

/// As long a time before.
fn before(since: DateTime<Utc>, until: DateTime<Utc>) -> Option<Before> {
    let began = since.checked_sub_signed(until - since).filter(|began| *began >= DateTime::UNIX_EPOCH)?;
    Some(Before { since: began, until: since, first_at: None, zones: Vec::new() })
}
