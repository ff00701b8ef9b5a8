//! `tallygate audit …`: what is asked of the ledger afterwards.

mod explain;
mod report;
mod verify;
mod words;

use clap::Subcommand;

use super::Result;

/// Asks the ledger: explanations, verification, reports
#[derive(Subcommand)]
pub enum Command {
    Explain(explain::Args),
    Verify(verify::Args),
    Report(report::Args),
}

pub async fn run(url: &str, command: Command) -> Result {
    match command {
        Command::Explain(args) => explain::run(url, args).await,
        Command::Verify(args) => verify::run(url, args).await,
        Command::Report(args) => report::run(url, args).await,
    }
}
