//! `tallygate token`.

use std::io::{ErrorKind, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use tallygate_server::{Right, Tokens};

use super::private::Private;
use super::{Failure, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate token add web --role app --zones 'login*'
  tallygate token add support --role auditor --role operator --zones '*' --file /etc/tallygate/tokens.toml

The token is printed once; the file keeps its hash. Whoever loses it gets another one, and the entry is removed from the file. A \
running server reads the file again on SIGHUP.";

/// The tokens of a server's callers
#[derive(clap::Subcommand)]
pub enum Command {
    /// Makes a token, adds its hash to the file and prints it
    #[command(after_help = EXAMPLES)]
    Add {
        /// Who gets it: 1 to 64 letters, digits, '-', '_' and '.'. What it sets is recorded under this name
        name: String,
        /// What it may do: app checks and settles, auditor reads, operator sets zones, bans and overrides
        #[arg(long = "role", value_name = "ROLE", required = true)]
        roles: Vec<Right>,
        /// In which zones: a name, in which * stands for any characters
        #[arg(long, value_name = "GLOB", required = true)]
        zones: Vec<String>,
        /// The file of tokens; it is made if it is not there
        #[arg(long, value_name = "FILE", default_value = "tokens.toml")]
        file: PathBuf,
    },
}

pub fn run(command: Command) -> Result {
    let Command::Add { name, roles, zones, file } = command;
    let shown = file.display();
    let unwritten = |error: std::io::Error| Failure::new(format!("{shown} cannot be written: {error}"));
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::new(format!("{shown} cannot be read: {error}"))),
    };
    let made = Tokens::make(&name, &roles, &zones)?;
    let gap = if before.is_empty() { "" } else { "\n" };
    let text = format!("{before}{gap}{}", made.entry);
    Tokens::read(&text).map_err(|refused| Failure::new(format!("{shown}: {refused}")))?;
    Private::begin(&file).and_then(|private| private.end(&text)).map_err(unwritten)?;
    writeln!(stdout(), "{}", made.secret)?;
    Ok(ExitCode::SUCCESS)
}
