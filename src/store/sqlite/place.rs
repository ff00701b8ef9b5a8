//! Where the file stands: a process that has it open goes on in it when it has lost its name, and what it records then ends
//! with the process.

use std::fs::{Metadata, metadata};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A name, and the file that it was of when that was opened.
pub(super) struct Place {
    path: PathBuf,
    opened: Identity,
}

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = ();

#[cfg(unix)]
fn identity(file: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {}

impl Place {
    /// Of a file that is open by now.
    pub fn of(path: &Path) -> Result<Self> {
        let file = metadata(path)
            .map_err(|error| Error::database(format!("the file {path:?} cannot be looked at: {error}")))?;
        Ok(Self { path: path.to_owned(), opened: identity(&file) })
    }

    /// That the name is still of that file.
    pub fn is_kept(&self) -> Result<()> {
        match metadata(&self.path) {
            Ok(file) if identity(&file) == self.opened => Ok(()),
            _ => Err(Error::database(format!(
                "the file {:?} was removed or replaced while it was open, so nothing is recorded any more; end every process \
                 that uses it, put the file in its place, and start them again",
                self.path
            ))),
        }
    }
}
