//! Decisions a second of the routine path, beside the seed's way of counting and the bare two statements.
//!
//! `cargo bench --bench routine`; `-- --help` shows the options. Every engine starts in a container with its
//! durability as delivered, unless a URL names a server that already runs.

mod chain;
mod client;
mod local;
mod measure;
mod options;
mod processor;
mod report;
mod server;
mod site;
mod table;

use std::time::Duration;

use measure::Keys;
use options::Options;
use site::Site;
use table::Table;
use tallygate::Config;

#[tokio::main]
async fn main() {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return println!("{}", options::HELP),
        Err(problem) => {
            eprintln!("{problem}\n\n{}", options::HELP);
            std::process::exit(2);
        }
    };
    println!("{}\n", server::machine());
    for &engine in &options.engines {
        if options.chain {
            chain::print(engine, options.seconds).await;
            continue;
        }
        if options.local {
            local::print(engine, options.seconds).await;
            continue;
        }
        // Each check a call of its own; what batches add is measured by benches/compare.
        let config = Config { connections: 64, batch: None, ..Config::default() };
        let site = Site::make(engine, "alone", config).await;
        println!("{engine}: {}", site.settings().await);
        match options.report_rows {
            Some(rows) => println!("{}", report::beside(&site, rows, options.seconds).await),
            None => println!("{}", table(&site, options.seconds).await),
        }
        site.remove().await;
    }
}

async fn table(site: &Site, time: Duration) -> Table {
    let mut table = Table::default();
    for keys in [Keys::Distinct, Keys::Hot] {
        for clients in [1, 16, 64] {
            table.columns.push(measure::column(site, keys, clients, time).await);
        }
    }
    table.columns.push(measure::column(site, Keys::New, 1, time).await);
    table
}
