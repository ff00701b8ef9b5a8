//! `tallygate completions`.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate completions bash > ~/.local/share/bash-completion/completions/tallygate
  tallygate completions zsh > ~/.zfunc/_tallygate
  tallygate completions fish > ~/.config/fish/completions/tallygate.fish";

/// Prints completions for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tallygate", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
