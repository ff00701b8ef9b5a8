//! `tallygate man`.

use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{Cli, Failure, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate man ~/.local/share/man/man1
  man tallygate-audit-explain

A page for each command, with the words of --help.";

/// Writes manual pages into a folder
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder, which is made if it is not there
    folder: PathBuf,
}

pub fn run(args: &Args) -> Result {
    let folder = &args.folder;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder)
        .and_then(|()| pages(&command, folder))
        .map_err(|error| Failure::new(format!("no pages can be written to {}: {error}", folder.display())))?;
    writeln!(stdout(), "wrote the pages of tallygate to {}", folder.display())?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of the commands below it.
fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    let shown = |command: &&Command| !command.is_hide_set();
    command.get_subcommands().filter(shown).try_for_each(|command| pages(command, folder))?;
    let page = Man::new(command.clone().after_help(Resettable::Reset))
        .source(concat!("tallygate ", env!("CARGO_PKG_VERSION")));
    let mut file = File::create(folder.join(page.get_filename()))?;
    page.render(&mut file)?;
    match command.get_after_help() {
        Some(help) => examples(&help.to_string()).to_writer(&mut file),
        None => Ok(()),
    }
}

/// The examples below the help, line by line, and the sentences behind them.
fn examples(help: &str) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]);
    for paragraph in help.trim().split("\n\n") {
        let lines = paragraph.strip_prefix("Examples:\n").unwrap_or(paragraph);
        let listed = lines.lines().any(|line| line.starts_with(' '));
        page.control(if listed { "nf" } else { "PP" }, []);
        for line in lines.lines() {
            page.text([roman(line)]);
        }
        if listed {
            page.control("fi", []);
        }
    }
    page
}
