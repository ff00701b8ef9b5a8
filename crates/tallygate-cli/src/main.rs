//! The command `tallygate`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // It changes the environment, which is only safe before there are threads.
    #[cfg(feature = "shell")]
    cli::answer_shell();
    run()
}

#[tokio::main]
async fn run() -> ExitCode {
    match cli::run().await {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
