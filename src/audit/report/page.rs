//! A report as a page.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::chart::{Slice, Slices};
use super::sections::{explanation, percent};
use super::{Before, Report};
use crate::page::Column::{Number, Word};
use crate::page::{Cell, Page, count, many, plain, second};
use crate::store::Address;

/// Zones that have a chart of their own.
const CHARTS: usize = 6;
/// Rows of the table of slices that are shown at once; more are folded away.
const UNFOLDED: usize = 31;

/// The facts of a page besides the report itself: of what it was made, when and by whom, and why some of what it
/// names was decided so.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imprint {
    /// The place of the database, without users, passwords and options.
    pub database: String,
    /// The maker of the page, as was said.
    pub by: String,
    /// The moment at which it was made.
    pub made_at: DateTime<Utc>,
    /// Explanations of transactions that the report names, see [`Report::transactions`].
    pub explanations: Vec<Explanation>,
}

/// The reasons of a decision, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The transaction.
    pub txn_id: Uuid,
    /// Of each of its rows a heading, and sentences.
    pub rows: Vec<(String, Vec<String>)>,
}

impl Imprint {
    /// Of a page that is made now, of the database at this URL, or of several as
    /// [`Limiter::connect`](crate::Limiter::connect) takes them.
    pub fn new(url: &str, by: &str) -> Self {
        let place = |named: &str| {
            let (name, url) = match named.split_once('=') {
                Some((name, url)) if !name.contains(':') => (format!("{name} "), url),
                _ => (String::new(), named),
            };
            // A text that is no URL may be anything, a secret too.
            Some(format!("{name}{}", Address::parse(url).ok()?))
        };
        // One without a name may be a file whose path has spaces.
        let places = || url.split_whitespace().filter_map(place).collect::<Vec<_>>().join(", ");
        let database = Address::parse(url).map_or_else(|_| places(), |address| address.to_string());
        Self { database, by: by.to_owned(), made_at: Utc::now(), explanations: Vec::new() }
    }

    /// With these explanations.
    pub fn explanations(self, explanations: Vec<Explanation>) -> Self {
        Self { explanations, ..self }
    }
}

impl Report {
    /// The report as a page of HTML: one file with charts, without a network and without a script.
    ///
    /// Things that it names in several places lead to each other: bars to their row, buckets to where they are named first, and
    /// transactions to their explanations, of those that the imprint has.
    pub fn page(&self, imprint: &Imprint) -> String {
        let zones = match self.zones.as_slice() {
            [zone] => format!("Zone {}", plain(&zone.zone)),
            zones => format!("{} zones", zones.len()),
        };
        let title = match imprint.database.as_str() {
            "" => "Report of a ledger".to_owned(),
            database => format!("Report of {database}"),
        };
        let mut page =
            Page::new(&title, &format!("{zones}, {} to {} UTC", second(self.since), second(self.until)));
        page.imprint(&format!(
            "Made on {} UTC by {} with tallygate {}, from {} of the ledger. Times are the database's, in UTC.",
            second(imprint.made_at),
            plain(&imprint.by),
            env!("CARGO_PKG_VERSION"),
            many(count(self.rows), "row")
        ));
        page.compared(&self.figures());
        page.paragraph(&self.compared_with());
        let slices = Slices::of(self);
        match &slices {
            Some(slices) => self.charts(&mut page, slices),
            None => page.paragraph("No checks were decided."),
        }
        let explained: HashSet<String> =
            imprint.explanations.iter().map(|one| explanation(one.txn_id)).collect();
        for mut section in self.sections() {
            if section.rows.is_empty() {
                continue;
            }
            page.heading(section.heading);
            if !section.about.is_empty() {
                page.paragraph(&section.about);
            }
            let cells = section.rows.iter_mut().flatten();
            for cell in cells.filter(|cell| cell.to.starts_with("txn-") && !explained.contains(&cell.to)) {
                cell.to.clear();
            }
            page.table(&section.columns, &section.rows);
        }
        if let Some(slices) = &slices {
            table(&mut page, slices);
        }
        self.explanations(&mut page, &imprint.explanations);
        page.finish("A transaction is explained in full by: tallygate audit explain TXN")
    }

    /// The time with which the figures are compared.
    fn compared_with(&self) -> String {
        match &self.before {
            Some(Before { since, until, first_at: Some(first_at), .. }) => {
                let began = if *first_at - *since > self.grain.length() {
                    format!(", of which the first row is of {}", second(*first_at))
                } else {
                    String::new()
                };
                format!("Before is as long a time: {} to {}{began}.", second(*since), second(*until))
            }
            _ => "The ledger has no rows of as long a time before, so nothing is compared.".to_owned(),
        }
    }

    fn charts(&self, page: &mut Page, slices: &Slices<'_>) {
        page.heading("Over time");
        if slices.is_part() {
            let (first, last) = (self.timeline.slices.first(), self.timeline.slices.last());
            if let Some((first, last)) = first.zip(last) {
                page.paragraph(&format!(
                    "Checks were decided from {} to {} only; that time is shown.",
                    slices.name(first.starts_at),
                    slices.name(last.starts_at)
                ));
            }
        }
        let all = slices.slices(|_| true);
        let each = slices.each();
        page.plot(&slices.volumes(&format!("Checks per {each}"), 220, &all));
        if all.iter().any(|slice| slice.counts.blocked > 0) {
            page.plot(&slices.share(&format!("Share of checks that were blocked, per {each}"), 120, &all));
        }
        let mut busiest: Vec<_> = self.zones.iter().filter(|zone| zone.counts.checks > 0).collect();
        busiest.sort_by_key(|zone| std::cmp::Reverse(zone.counts.checks));
        if busiest.len() > 1 {
            let of_zone = |zone: &&super::ZoneReport| {
                let of_zone = slices.slices(|name| name == zone.zone);
                slices.volumes(&format!("{}: checks per {each}", plain(&zone.zone)), 110, &of_zone)
            };
            page.plots(&busiest.iter().take(CHARTS).map(of_zone).collect::<Vec<_>>());
            if busiest.len() > CHARTS {
                page.paragraph(&format!("The {CHARTS} zones with most checks of {}.", busiest.len()));
            }
        }
    }

    fn explanations(&self, page: &mut Page, explanations: &[Explanation]) {
        if explanations.is_empty() {
            return;
        }
        page.heading("Explanations");
        let named = self.transactions().len();
        page.paragraph(&if named > explanations.len() {
            format!("Explained are {} of the {named} transactions that are named above.", explanations.len())
        } else {
            "Each transaction that is named above.".to_owned()
        });
        for one in explanations {
            page.subheading(&explanation(one.txn_id), &one.txn_id.to_string());
            for (heading, sentences) in &one.rows {
                page.paragraph(heading);
                page.list(sentences);
            }
        }
    }
}

/// The slices that have checks, each a row that its bar leads to.
fn table(page: &mut Page, slices: &Slices<'_>) {
    let all = slices.slices(|_| true);
    let row = |slice: &Slice| {
        let Slice { starts_at, counts } = slice;
        let cut = slices.cut(*starts_at).map(|(since, until)| {
            let begins = if since == *starts_at { String::new() } else { format!("from {}", second(since)) };
            let ends = if Some(until) == slices.ends_at(*starts_at) {
                String::new()
            } else {
                format!("until {}", second(until))
            };
            format!("incomplete: {}", [begins, ends].join(" ").trim())
        });
        let name = Cell {
            text: slices.name(*starts_at),
            id: slices.id(*starts_at),
            beside: cut.unwrap_or_default(),
            ..Cell::default()
        };
        let share = percent(counts.blocked as f64 / counts.checks.max(1) as f64);
        let mut row = vec![name];
        row.extend([counts.checks, counts.allowed, counts.blocked].map(|number| Cell::from(count(number))));
        row.push(share.into());
        row
    };
    let rows: Vec<_> = all.iter().filter(|slice| slice.counts.checks > 0).map(row).collect();
    let each = slices.each();
    let columns = [Word("from"), Number("checks"), Number("allowed"), Number("blocked"), Number("share")];
    page.heading("In numbers");
    if rows.len() > UNFOLDED {
        page.folded(&format!("Checks per {each}, {} rows", rows.len()), |page| page.table(&columns, &rows));
    } else {
        page.paragraph(&format!("Checks per {each}."));
        page.table(&columns, &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::Imprint;

    #[test]
    fn a_page_says_of_which_database_it_is_and_no_secret() {
        for (url, database) in [
            (
                "postgres://erin:s3cret@db.example:5432/shop?sslmode=require",
                "postgres://db.example:5432/shop",
            ),
            ("mariadb://erin:s3@cret@one,two/shop?password=s3cret", "mariadb://one,two/shop"),
            ("sqlite:my ledgers/shop.db?mode=ro", "sqlite:my ledgers/shop.db"),
            ("a=postgres://u:s3cret@one/x b=mysql://u:s3cret@two/y", "a postgres://one/x, b mysql://two/y"),
            ("a=sqlite:one.db", "a sqlite:one.db"),
            ("s3cret", ""),
        ] {
            let imprint = Imprint::new(url, "erin");
            assert_eq!(imprint.database, database, "{url}");
            assert!(!format!("{imprint:?}").contains("s3cret"), "{imprint:?}");
        }
    }
}
