//! `tallygate import`.

use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use tallygate_envoy::import;

use super::output::Answer;
use super::terminal::tell;
use super::{Failure, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate import envoy-ratelimit config.yaml
  tallygate import envoy-ratelimit config/*.yaml
  tallygate import envoy-ratelimit config.yaml --format json | jq -r .mapping > envoy.toml
  tallygate import envoy-ratelimit config.yaml --format json | jq -r .zones > zones.toml
  tallygate apply zones.toml --dry-run

Rules that have no equal are told on stderr, a sentence for each, and in JSON as notes. Nothing is written and no database is \
asked.";

/// Rules of other limiters, in the words of this one
#[derive(clap::Subcommand)]
pub enum Command {
    /// Prints the mapping and the zones that files of envoyproxy/ratelimit come to
    #[command(after_help = EXAMPLES)]
    EnvoyRatelimit {
        /// Their files, in YAML, one for each domain
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The form of the answer
        #[arg(long, default_value = "text")]
        format: Answer,
    },
}

pub fn run(command: Command) -> Result {
    let Command::EnvoyRatelimit { files, format } = command;
    let (mut mapping, mut zones, mut notes) = (String::new(), String::new(), Vec::new());
    let mut domains = BTreeSet::new();
    for file in &files {
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(format!("{shown} cannot be read: {error}; name a file of envoyproxy/ratelimit"))
        })?;
        let imported = import(&text).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
        let domain = imported.domain;
        if !domains.insert(domain.clone()) {
            return Err(Failure::new(format!(
                "{shown}: domain {domain:?} is that of a file before it; put both into one file"
            )));
        }
        mapping += &imported.mapping;
        zones += &imported.zones;
        notes.extend(imported.notes);
    }
    let mut out = stdout().lock();
    match format {
        Answer::Json => writeln!(out, "{}", json!({ "mapping": mapping, "zones": zones, "notes": notes }))?,
        Answer::Text => {
            write!(out, "# The mapping, for envoy.mapping of tallygate serve.\n{mapping}\n")?;
            write!(out, "# The zones, for tallygate apply.\n{zones}")?;
            notes.iter().for_each(|note| tell(format_args!("note: {note}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}
