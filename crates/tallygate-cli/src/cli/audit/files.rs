//! The files of evidence.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tallygate::audit::checkpoint::Checkpoint;

use crate::cli::{Failure, Result};

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
}

/// A checkpoint, signed by the owner of the public key if one is given.
pub fn checkpoint(path: &Path, public_key: Option<&str>) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::parse(&read(path)?).map_err(|error| at(path, &error))?;
    if let Some(public_key) = public_key {
        checkpoint.require_key(public_key).map_err(|error| at(path, &error))?;
    }
    Ok(checkpoint)
}

/// Names the file in which the fault is.
pub fn at(path: &Path, error: &tallygate::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Counts on a terminal.
pub fn counter(what: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(&format!("  {{spinner}} {{human_pos}} {what} read  {{elapsed}}"));
    let bar =
        ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
