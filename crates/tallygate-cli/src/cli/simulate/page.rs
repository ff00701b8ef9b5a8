//! The page of a simulation.

use tallygate::page::Column::{Number, Text, Word};
use tallygate::page::Page;

use super::plot;
use super::told::{HEADER, Played, Told};
use crate::cli::Result;
use crate::cli::output::plain;

/// A page with a chart of each policy for each traffic.
pub fn page(played: &[Played]) -> Result<String> {
    let mut page = Page::new("What gets through", "The same traffic, put to each policy.");
    for one in played {
        page.heading(&one.title());
        page.paragraph(
            "A curve counts the window that ends at each moment. A delayed request counts when its turn comes.",
        );
        let chart = |told: &Told| Ok((plain(&told.name), plot::through(told, &one.policies)?));
        page.charts(&one.policies.iter().map(chart).collect::<Result<Vec<_>>>()?, &plot::LEGEND);
        let columns = HEADER.map(|name| if name == "policy" { Word(name) } else { Number(name) });
        page.table(&columns, &one.policies.iter().map(|told| told.row().to_vec()).collect::<Vec<_>>());
        let shares = one.shares();
        if !shares.is_empty() {
            page.table(&[Word("policy"), Text("what each got")], &shares);
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    Ok(page.finish(&format!(
        "tallygate {version}. Fairness is Jain's index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984): 1 where all got the \
         same."
    )))
}
