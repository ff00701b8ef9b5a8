//! The files of evidence.

use std::fs;
use std::path::Path;

use indicatif::ProgressBar;
use tallygate::audit::checkpoint::Checkpoint;

use crate::cli::exit::Exit;
use crate::cli::progress::progress;
use crate::cli::{Failure, Result};

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))
}

/// A checkpoint, signed by the owner of the public key if one is given.
pub fn checkpoint(path: &Path, public_key: Option<&str>) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::parse(&read(path)?).map_err(|error| {
        let exit = if error.is_conflict() { Exit::Unproven } else { Exit::Error };
        at(path, &error).meaning(exit)
    })?;
    if let Some(public_key) = public_key {
        checkpoint.require_key(public_key).map_err(|error| at(path, &error).meaning(Exit::Unproven))?;
    }
    Ok(checkpoint)
}

/// Names the file in which the fault is.
pub fn at(path: &Path, error: &tallygate::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Counts what is read.
pub fn counter(what: &str) -> ProgressBar {
    progress(None, &format!("  {{spinner}} {{human_pos}} {what} read  {{elapsed}}"))
}
