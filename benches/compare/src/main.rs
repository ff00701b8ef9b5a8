//! Tallygate beside what others offer: one program, one run, one table. See README.md.

mod calls;
mod compare;
mod database;
mod flat;
mod flood;
mod http;
mod ledger;
mod load;
mod machine;
mod measure;
mod network;
mod options;
mod peers;
mod plot;
mod results;
mod server;
mod shards;

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;

use tokio::time::timeout;

use options::{Command, Options};
use results::Results;
use server::Place;

/// The folder for the plots of a complete run.
const PLOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/performance");

fn main() -> Result<()> {
    let options = Options::parse();
    if options.needs {
        println!("{}", options.needs().join("\n"));
        return Ok(());
    }
    if let Some(Command::Plot { results, plots }) = &options.command {
        return plot::draw(&read(results)?, plots);
    }
    if let Some(cores) = &options.cores {
        machine::bind(cores)?;
    }
    let place = Place::given(options.cores.clone())?;
    let machine = machine::Machine::look(options.cores.as_deref(), &place.scratch)?;
    // Made after the program was bound, so that it has a thread for each core that is left.
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match &options.command {
            Some(Command::Flat(options)) => {
                let report = timeout(flat::MOST, flat::run(options, &place, machine)).await;
                let report = report.context("flat does not end; ask for less")??;
                print!("{report}");
                if let Some(path) = &options.json {
                    write(path, &report)?;
                }
                Ok(())
            }
            Some(Command::Network(options)) => {
                let report = network::run(options, &place, machine).await?;
                print!("{report}");
                if let Some(path) = &options.json {
                    write(path, &report)?;
                }
                report.judge()
            }
            Some(Command::Shards(options)) => {
                let report = shards::run(options, &place, machine).await?;
                print!("{report}");
                if let Some(path) = &options.json {
                    write(path, &report)?;
                }
                Ok(())
            }
            Some(Command::Http(options)) => {
                let report = http::run(options, &place, machine).await?;
                print!("{report}");
                if let Some(path) = &options.json {
                    write(path, &report)?;
                }
                report.judge()
            }
            _ => {
                let results = compare::run(&options.compare, &place, machine).await?;
                print!("{results}");
                if let Some(path) = &options.compare.json {
                    write(path, &results)?;
                }
                if let Some(directory) = options.compare.plots() {
                    plot::draw(&results, &directory)?;
                }
                results.whole()
            }
        }
    })
}

fn read(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

fn write(path: &Path, results: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(results)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
