//! `tallygate completions`, and the answers to a shell that completes a command.

use std::env;
use std::io::{Write, stdout};
use std::path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Command, CommandFactory};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCandidates, CompleteEnv, CompletionCandidate, Shell};

use super::{Cli, Failure, Result, open, terminal, url};

/// A shell that completes a command sets it for the program that it asks.
const VARIABLE: &str = "TALLYGATE_COMPLETE";

/// The longest that a person who presses a key waits for a database.
const PATIENCE: Duration = Duration::from_secs(1);

/// The arguments that are names of zones.
const ZONES: [&str; 2] = ["zone", "from_ledger"];

const EXAMPLES: &str = "\
Examples:
  tallygate completions bash > ~/.local/share/bash-completion/completions/tallygate
  tallygate completions zsh > ~/.zfunc/_tallygate
  tallygate completions fish > ~/.config/fish/completions/tallygate.fish

The script asks the program, which knows its commands, its flags, and the zones of the database in TALLYGATE_DATABASE_URL. \
Make it anew with each version. A database that does not answer within a second, or does not show its zones to the user, \
completes nothing. Bash breaks a URL of \
--database at its colons, and completes nothing behind it.";

/// Prints completions for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: &Args) -> Result {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string());
    let shell = shell.ok_or_else(|| Failure::new(format!("there are no completions for {}", args.shell)))?;
    // A name is looked up by the shell, and a path must be one from everywhere.
    let program = env::args().next().unwrap_or_else(|| "tallygate".to_owned());
    let program =
        if program.contains('/') { path::absolute(&program)?.display().to_string() } else { program };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "tallygate", "tallygate", &program, &mut script)?;
    stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that completes a command, and ends the program then. Does nothing where no shell asks.
pub fn answer() {
    CompleteEnv::with_factory(|| knowing_zones(Cli::command())).var(VARIABLE).complete();
}

/// The command, whose arguments that are zones have the names of those that there are.
fn knowing_zones(command: Command) -> Command {
    command.mut_subcommands(knowing_zones).mut_args(|arg| {
        if ZONES.contains(&arg.get_id().as_str()) { arg.add(ArgValueCandidates::new(zones)) } else { arg }
    })
}

/// The zones of the database of the environment. It tells no errors: they would land in the line that is completed.
fn zones() -> Vec<CompletionCandidate> {
    terminal::hush(true);
    let ask = async {
        let limiter = open(&url(None).ok()?).await.ok()?;
        limiter.operator().zones().await.ok()
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let zones = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask).await });
    runtime.shutdown_background();
    let zones = zones.ok().flatten().unwrap_or_default().into_iter();
    zones.map(|zone| CompletionCandidate::new(zone.name).help(Some(zone.policy.to_string().into()))).collect()
}
