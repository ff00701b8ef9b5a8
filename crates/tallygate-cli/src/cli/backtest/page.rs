//! The page of a back-test.

use tallygate::page::Column::{Number, Text, Word};
use tallygate::page::Page;

use super::plot;
use super::told::{Told, moment, span};
use crate::cli::Result;
use crate::cli::output::plain;

/// A page for what was found in `source`, with the name of what was swept.
pub fn page(source: &str, told: &[Told], swept: Option<&str>) -> Result<String> {
    let facts = told.first().map(|first| span(&first.report)).unwrap_or_default();
    let mut page = Page::new(&format!("Back-test of {}", plain(source)), &facts);
    if let Some(name) = swept {
        page.plot(&plot::sweep(name, &plot::lines(told)));
    }
    policies(&mut page, told);
    for one in told.iter().filter(|one| one.value.is_none() && one.report.events > 0) {
        page.heading(&plain(&one.name));
        page.plot(&plot::timeline(&one.report));
        keys(&mut page, one);
    }
    let version = env!("CARGO_PKG_VERSION");
    Ok(page
        .finish(&format!("tallygate {version}. Each event was decided at its own time; times are in UTC.")))
}

fn policies(page: &mut Page, told: &[Told]) {
    let columns = [
        Text("policy"),
        Number("allowed"),
        Number("blocked"),
        Number("share"),
        Number("keys"),
        Number("blocked keys"),
    ];
    page.table(&columns, &told.iter().map(Told::row).collect::<Vec<_>>());
}

fn keys(page: &mut Page, told: &Told) {
    let rows: Vec<_> = told
        .report
        .top_blocked
        .iter()
        .map(|key| vec![plain(&key.key), key.blocked.to_string(), moment(key.first_at), moment(key.last_at)])
        .collect();
    if !rows.is_empty() {
        page.table(&[Text("key"), Number("blocked"), Word("first blocked"), Word("last blocked")], &rows);
    }
}
