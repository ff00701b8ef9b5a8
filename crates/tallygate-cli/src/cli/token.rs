//! `tallygate token`.

use std::fs;
use std::io::{self, ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tallygate::capacity::parse_band;
use tallygate_server::{Failure as Refused, Right, TokenEntry, Tokens};

use super::output::{Format, plain, render, table};
use super::private::Private;
use super::{Failure, Result, spreadsheet};

const ADD_EXAMPLES: &str = "\
Examples:
  tallygate token add web --role app --zones 'login*'
  tallygate token add support --role auditor --role operator --zones '*' --file /etc/tallygate/tokens.toml
  tallygate token add shop --role app --zones 'login*' --certificate shop.crt

The token is printed once; the file keeps its hash. A caller who loses it gets another one, and the old entry is removed. With \
--certificate no token is made: the caller is known by this certificate. A running server reads the file again on SIGHUP.";

const LIST_EXAMPLES: &str = "\
Examples:
  tallygate token list
  tallygate token list --format json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  tallygate token remove web

The rest of the file stays as it is. A running server refuses the token after SIGHUP.";

/// The tokens of a server's callers
#[derive(clap::Subcommand)]
pub enum Command {
    /// Makes a token, adds its hash to the file and prints it
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        /// The caller who gets it: 1 to 64 letters, digits, '-', '_' and '.'. Its settings are recorded under
        /// this name
        name: String,
        /// The roles that it has: app checks and settles, auditor reads, operator sets zones, bans and
        /// overrides, metrics reads /metrics alone
        #[arg(long = "role", value_name = "ROLE", required = true)]
        roles: Vec<Right>,
        /// The zones that it may ask: a name, in which * stands for any characters
        #[arg(long, value_name = "GLOB", required = true)]
        zones: Vec<String>,
        /// The most important band that it may claim: 0 to 255, or critical-plus, critical, sheddable-plus, sheddable
        #[arg(long, value_name = "BAND", default_value = "0", value_parser = parse_band, allow_negative_numbers = true)]
        band: u8,
        /// A certificate as PEM by which it is known, and by no token
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
        /// The file of tokens; it is made if it is not there
        #[arg(long, value_name = "FILE", default_value = "tokens.toml")]
        file: PathBuf,
    },
    /// Shows the callers, without secrets and hashes
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// The file of tokens
        #[arg(long, value_name = "FILE", default_value = "tokens.toml")]
        file: PathBuf,
        /// The form of the list
        #[arg(long, default_value = "text")]
        format: Format,
    },
    /// Removes a token from the file
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// The name of the caller
        name: String,
        /// The file of tokens
        #[arg(long, value_name = "FILE", default_value = "tokens.toml")]
        file: PathBuf,
    },
}

pub fn run(command: Command) -> Result {
    match command {
        Command::Add { name, roles, zones, band, certificate, file } => {
            let (told, entry) = match certificate {
                Some(certificate) => {
                    (format!("added  {name}"), Tokens::admit(&name, &roles, &zones, &certificate)?)
                }
                None => {
                    let made = Tokens::make(&name, &roles, &zones)?;
                    (made.secret, made.entry)
                }
            };
            add(&file, &if band == 0 { entry } else { Tokens::up_to(band, &entry) })?;
            writeln!(stdout(), "{told}")?;
        }
        Command::List { file, format } => list(&Tokens::read_file(&file)?, format)?,
        Command::Remove { name, file } => {
            remove(&file, &name)?;
            writeln!(stdout(), "removed  {name}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(file: &Path, entry: &str) -> Result<()> {
    let before = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| unreadable(file, &error))?,
    };
    let gap = if before.is_empty() { "" } else { "\n" };
    let text = format!("{before}{gap}{entry}");
    Tokens::read(&text).map_err(|refused| wrong(file, &refused))?;
    write(file, &text)
}

fn remove(file: &Path, name: &str) -> Result<()> {
    let before = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    write(file, &Tokens::remove(&before, name).map_err(|refused| wrong(file, &refused))?)
}

fn list(tokens: &Tokens, format: Format) -> Result<()> {
    let entries: Vec<_> = tokens.entries().collect();
    let mut out = stdout().lock();
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(&entries)?)?,
        Format::Csv => {
            let fields = ["name", "roles", "zones", "band", "by"];
            out.write_all(spreadsheet::list(&fields, &entries)?.as_bytes())?;
        }
        Format::Text if entries.is_empty() => {
            writeln!(out, "no tokens yet; make one: tallygate token add web --role app --zones 'login*'")?;
        }
        Format::Text => {
            let mut table = table(&["name", "roles", "zones", "band", "known by"]);
            for TokenEntry { name, roles, zones, band, by } in entries {
                let roles: Vec<_> = roles.into_iter().map(Right::as_str).collect();
                table.add_row([
                    name,
                    roles.join(" "),
                    plain(&zones.join(" ")),
                    band.to_string(),
                    by.to_owned(),
                ]);
            }
            out.write_all(render(&table, 0).as_bytes())?;
        }
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    let written = Private::begin(file).and_then(|private| private.end(text));
    written.map_err(|error| Failure::new(format!("{} cannot be written: {error}", file.display())))
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{} cannot be read: {error}", file.display()))
}

fn wrong(file: &Path, refused: &Refused) -> Failure {
    Failure::new(format!("{}: {refused}", file.display()))
}
