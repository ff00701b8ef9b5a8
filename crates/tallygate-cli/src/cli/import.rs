//! `tallygate import`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use tallygate_envoy::import;

use super::output::Answer;
use super::{Failure, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate import envoy-ratelimit config.yaml
  tallygate import envoy-ratelimit config.yaml --format json | jq -r .mapping > envoy.toml
  tallygate import envoy-ratelimit config.yaml --format json | jq -r .zones > zones.toml
  tallygate apply zones.toml --dry-run

Rules that have no equal are told on stderr, a sentence for each, and in JSON as notes. Nothing is written and no database is \
asked.";

/// Rules of other limiters, in the words of this one
#[derive(clap::Subcommand)]
pub enum Command {
    /// Prints the mapping and the zones that a file of envoyproxy/ratelimit comes to
    #[command(after_help = EXAMPLES)]
    EnvoyRatelimit {
        /// Their file, in YAML
        file: PathBuf,
        /// The form of the answer
        #[arg(long, default_value = "text")]
        format: Answer,
    },
}

pub fn run(command: Command) -> Result {
    let Command::EnvoyRatelimit { file, format } = command;
    let shown = file.display();
    let text = std::fs::read_to_string(&file).map_err(|error| {
        Failure::new(format!("{shown} cannot be read: {error}; name a file of envoyproxy/ratelimit"))
    })?;
    let imported = import(&text).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    let (mapping, zones, notes) = (imported.mapping, imported.zones, imported.notes);
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", json!({ "mapping": mapping, "zones": zones, "notes": notes }))?,
        Answer::Text => {
            write!(out, "# The mapping, for envoy.mapping of tallygate serve.\n{mapping}\n")?;
            write!(out, "# The zones, for tallygate apply.\n{zones}")?;
            notes.iter().for_each(|note| eprintln!("note: {note}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
