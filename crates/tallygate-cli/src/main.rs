//! The command `tallygate`.

mod cli;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::run().await {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
