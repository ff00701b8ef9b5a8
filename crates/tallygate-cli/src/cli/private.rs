//! Files with keys, members and notes in them: only their owner may read them, and none is written through a link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that has its name when it is whole. A file or a link that stood there before is replaced then.
pub struct Private {
    path: PathBuf,
    partial: PathBuf,
    file: File,
}

impl Private {
    /// Begins the file beside its place. Fails where none can be written.
    pub fn begin(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        // A device or a pipe would not be written to, but be gone.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("what is there is no file"));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        // One that was left over, or laid there by somebody else, is not written to.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&partial)?;
        Ok(Self { path: path.to_owned(), partial, file })
    }

    pub fn end(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        fs::rename(&self.partial, &self.path)
    }
}

impl Drop for Private {
    /// Nothing is left of one that failed.
    fn drop(&mut self) {
        fs::remove_file(&self.partial).ok();
    }
}
