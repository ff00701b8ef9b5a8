//! `tallygate audit key`.

use std::fs::OpenOptions;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tallygate::audit::checkpoint::CheckpointKey;

use super::files;
use crate::cli::{Failure, Result};

const EXAMPLES: &str = "\
Examples:
  tallygate audit key audit.key                     make a key, and print its public key
  tallygate audit key audit.key                     again: print the public key of the file

Only the file's owner can read the file. The public key is for those who check: give it to them by another way than the \
checkpoints.";

/// Makes a key that signs checkpoints
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key's file; made when it is not there
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(args: &Args) -> Result {
    let path = &args.file;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let key = match options.open(path) {
        Ok(mut file) => {
            let key = CheckpointKey::make()?;
            file.write_all(key.secret_text().as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(|error| unwritten(path, &error))?;
            key
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path)?,
        Err(error) => return Err(unwritten(path, &error)),
    };
    writeln!(stdout(), "{}", key.public_key())?;
    Ok(ExitCode::SUCCESS)
}

/// A key from its file, which nobody but its owner may read.
pub fn read(path: &Path) -> Result<CheckpointKey> {
    let text = files::read(path)?;
    #[cfg(unix)]
    if let Ok(metadata) = std::fs::metadata(path)
        && std::os::unix::fs::MetadataExt::mode(&metadata) & 0o077 != 0
    {
        let path = path.display();
        return Err(Failure::new(format!("{path} can be read by others; run: chmod 600 {path}")));
    }
    CheckpointKey::parse(&text).map_err(|error| files::at(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{} cannot be written: {error}", path.display()))
}
