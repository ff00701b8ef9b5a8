//! `tallygate audit …`: what is asked of the ledger afterwards.

mod report;

use clap::Subcommand;

use super::Result;

/// Asks the ledger: reports
#[derive(Subcommand)]
pub enum Command {
    Report(report::Args),
}

pub async fn run(url: &str, command: Command) -> Result {
    match command {
        Command::Report(args) => report::run(url, args).await,
    }
}
