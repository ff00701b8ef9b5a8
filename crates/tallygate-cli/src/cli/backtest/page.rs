//! The page of a back-test: one for the question that was asked, however many policies there are.

use std::path::Path;

use tallygate::backtest::Outcomes;
use tallygate::page::Column::{Number, Text, Word};
use tallygate::page::{Column, Page};

use super::told::{CHANGES, Told, changes, judged, moment, recorded};
use super::{charts, judge, suggest};
use crate::cli::output::plain;

/// The findings in `source`, with the name of the swept term.
pub fn page(source: &str, told: &[Told], swept: Option<&str>) -> String {
    let mut page = begin("Back-test of", source, told);
    page.heading("Policies");
    let has_events = told.iter().any(|told| told.report.events > 0);
    match swept {
        Some(name) => page.plots(&charts::sweep(told, name)),
        None if has_events => {
            page.plot(&charts::over_time(told));
            let others = told.iter().filter(|told| !told.baseline).count();
            if others > charts::LINES_MAX {
                page.paragraph(&format!(
                    "The chart shows the first {} of {others} policies.",
                    charts::LINES_MAX
                ));
            }
        }
        None => {}
    }
    policies(&mut page, told);
    let rows = judged(told);
    if !rows.is_empty() {
        page.heading(judge::TITLE);
        page.plot(&charts::outcomes(told));
        page.table(&judge::JUDGED.map(column), &rows);
    }
    if swept.is_none() {
        for (title, of) in CHANGES {
            let rows: Vec<_> = told.iter().flat_map(|told| changes(told, of(told))).collect();
            if !rows.is_empty() {
                page.heading(title);
                page.table(&CHANGED, &rows);
            }
        }
        blocked_most(&mut page, told);
    }
    end(page)
}

/// The suggestions, among all that were tried.
pub fn front(source: &str, tried: &[Outcomes], front: &[Told]) -> String {
    let mut page = begin("Policies for", source, front);
    page.paragraph(&format!(
        "{} policies were tried. No other stops more of these attacks for as few legitimate attempts as those of the table.",
        tried.len()
    ));
    suggest::few(front).into_iter().for_each(|warning| page.paragraph(&warning));
    page.plot(&charts::front(tried, front));
    page.table(&suggest::HEADER.map(column), &suggest::rows(front));
    end(page)
}

fn begin(title: &str, source: &str, told: &[Told]) -> Page {
    let facts = told.first().map(Told::span).unwrap_or_default();
    // The folder of the file is nobody else's concern.
    let name = Path::new(source).file_name().map_or(source.into(), |name| name.to_string_lossy());
    Page::new(&format!("{title} {}", plain(&name)), &facts)
}

fn end(page: Page) -> String {
    let version = env!("CARGO_PKG_VERSION");
    page.finish(&format!("tallygate {version}. Each event was decided at its own time; times are in UTC."))
}

fn column(name: &'static str) -> Column {
    if name == "policy" { Text(name) } else { Number(name) }
}

const CHANGED: [Column; 5] = [
    Text("policy"),
    Text("key"),
    Number("checks"),
    Number("blocked by baseline"),
    Number("blocked by policy"),
];

fn policies(page: &mut Page, told: &[Told]) {
    const COLUMNS: [&str; 8] =
        ["policy", "allowed", "blocked", "share", "keys", "blocked keys", "newly blocked", "freed"];
    let columns = if told.iter().any(|told| told.baseline) { &COLUMNS[..] } else { &COLUMNS[..6] };
    let row = |told: &Told| [told.row(), told.change().to_vec()].concat();
    let rows: Vec<Vec<String>> = told.iter().map(row).collect();
    page.table(&columns.iter().copied().map(column).collect::<Vec<_>>(), &rows);
    if let Some(sentence) = told.first().and_then(recorded) {
        page.paragraph(&sentence);
    }
}

fn blocked_most(page: &mut Page, told: &[Told]) {
    let row = |told: &Told| {
        let name = plain(&told.name);
        let row = move |key: &tallygate::backtest::BlockedKey| {
            let [first, last] = [key.first_at, key.last_at].map(moment);
            vec![name.clone(), plain(&key.key), key.blocked.to_string(), first, last]
        };
        told.report.top_blocked.iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = told.iter().flat_map(row).collect();
    if rows.is_empty() {
        return;
    }
    page.heading("Blocked most, by key");
    let columns =
        [Text("policy"), Text("key"), Number("blocked"), Word("first blocked"), Word("last blocked")];
    page.table(&columns, &rows);
}
