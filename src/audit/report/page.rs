//! A report as a page.

use super::chart::{self, Bar};
use super::sections::percent;
use super::{Counts, Report};
use crate::error::{Error, Result};
use crate::page::{Page, count, second};

/// Zones that have a chart of their own.
const CHARTS: usize = 6;

impl Report {
    /// The report as a page of HTML: one file with charts, without a network.
    ///
    /// # Errors
    /// Database: a chart could not be drawn.
    pub fn page(&self) -> Result<String> {
        let zones = match self.zones.as_slice() {
            [zone] => format!("Zone {}", zone.zone),
            zones => format!("{} zones", zones.len()),
        };
        let time = format!("{} to {} UTC", second(self.since), second(self.until));
        let mut page = Page::new("What the ledger says", &format!("{zones}, {time}"));
        let total = total(self);
        let share = total.blocked as f64 / total.checks.max(1) as f64;
        page.figures(&[
            (count(total.checks), "checks"),
            (count(total.allowed), "allowed"),
            (count(total.blocked), "blocked"),
            (percent(share), "of them blocked"),
            (count(self.bans.total), "bans"),
            (count(self.actions.total), "actions by people"),
        ]);
        charts(&mut page, self)
            .map_err(|error| Error::database(format!("a chart could not be drawn: {error}")))?;
        for section in self.sections() {
            page.heading(section.heading);
            if section.rows.is_empty() {
                page.paragraph(&sentence(section.none));
                continue;
            }
            if !section.about.is_empty() {
                page.paragraph(&section.about);
            }
            page.table(section.columns, &section.rows);
        }
        Ok(page.finish(&format!(
            "tallygate {}, from {} rows of the ledger. Times are the database's, in UTC.",
            env!("CARGO_PKG_VERSION"),
            count(self.rows)
        )))
    }
}

fn charts(page: &mut Page, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    page.heading("Volumes");
    if report.volumes.is_empty() {
        page.paragraph("No checks were decided.");
        return Ok(());
    }
    let all: Vec<Bar> = chart::bars(report, |_| true);
    let per = format!("per {}", report.grain.as_str());
    page.chart(&format!("Checks {per}"), &chart::volumes(&all, 240)?, &chart::legend(&all));
    page.chart(&format!("Share of checks that were blocked, {per}"), &chart::share(&all, 150)?, &[]);
    let mut busiest: Vec<_> = report.zones.iter().filter(|zone| zone.counts.checks > 0).collect();
    busiest.sort_by_key(|zone| std::cmp::Reverse(zone.counts.checks));
    if busiest.len() > 1 {
        for zone in busiest.iter().take(CHARTS) {
            let bars = chart::bars(report, |name| name == zone.zone);
            let title = format!("{}: checks {per}", zone.zone);
            page.chart(&title, &chart::volumes(&bars, 130)?, &chart::legend(&bars));
        }
        if busiest.len() > CHARTS {
            page.paragraph(&format!("The {CHARTS} zones with most checks of {}.", busiest.len()));
        }
    }
    Ok(())
}

fn total(report: &Report) -> Counts {
    report.zones.iter().fold(Counts::default(), |total, zone| total + zone.counts)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| format!("{}{}.", first.to_uppercase(), chars.as_str())).unwrap_or_default()
}
