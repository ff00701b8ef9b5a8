//! Files that only their owner may read: keys and members stand in them, and notes of people.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// A file that is gone on with at its end, and is made where there is none.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    options().create(true).append(true).open(path)
}

/// A file made anew. One that was left over, or a link that somebody laid there, is not written to; a device is left alone.
#[cfg(feature = "evidence")]
pub(crate) fn anew(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("what is there is no file"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options().write(true).create_new(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
