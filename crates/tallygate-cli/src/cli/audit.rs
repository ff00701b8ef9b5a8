//! `tallygate audit …`: questions to the ledger afterwards.

mod check_proof;
mod checkpoint;
mod customer;
pub mod explain;
mod export;
mod files;
mod key;
mod prove;
pub mod report;
mod verify;
mod words;

use clap::Subcommand;

use super::Result;

/// Asks the ledger: explanations, verification, checkpoints and proofs, reports, exports
#[derive(Subcommand)]
pub enum Command {
    Explain(explain::Args),
    Verify(verify::Args),
    Report(report::Args),
    Checkpoint(checkpoint::Args),
    Prove(prove::Args),
    CheckProof(check_proof::Args),
    Key(key::Args),
    Export(export::Args),
}

pub async fn run(url: &str, command: Command) -> Result {
    match command {
        Command::Explain(args) => explain::run(url, args).await,
        Command::Verify(args) => verify::run(url, args).await,
        Command::Report(args) => report::run(url, args).await,
        Command::Checkpoint(args) => checkpoint::run(url, args).await,
        Command::Prove(args) => prove::run(url, args).await,
        Command::CheckProof(args) => check_proof::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Export(args) => export::run(url, args).await,
    }
}
