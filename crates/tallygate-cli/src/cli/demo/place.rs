//! Where the demo happens.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use crate::cli::terminal::quoted;
use crate::cli::{Failure, Result};

pub struct Place {
    pub url: String,
    pub zone: &'static str,
    /// The file of the report, where the demo has a folder of its own.
    pub page: Option<PathBuf>,
}

impl Place {
    /// The database that was asked for, or a new file. In a database that was there before, the zone has a
    /// name that nobody else's has.
    pub fn prepare(database: Option<String>) -> Result<Self> {
        if let Some(url) = database {
            return Ok(Self { url, zone: "demo-login", page: None });
        }
        let elsewhere = "name another place with --database sqlite:FILE";
        let own = etcetera::choose_base_strategy().map_err(|error| {
            Failure::new(format!("the user has no folder for caches: {error}; {elsewhere}"))
        })?;
        let folder = own.cache_dir().join("tallygate");
        let path = folder.join("demo.db");
        anew(&folder, &path).map_err(|error| {
            Failure::new(format!("{} cannot be made anew: {error}; {elsewhere}", path.display()))
        })?;
        let url = format!("sqlite:{}", path.display());
        Ok(Self { url, zone: "login", page: Some(folder.join("demo.html")) })
    }

    /// The database for people: never the URL of a server, which may hold a password.
    pub fn shown(&self) -> &str {
        match self.url.split_once(':') {
            Some(("sqlite", _)) | None => &self.url,
            Some((engine, _)) => engine,
        }
    }

    /// A line for the shell that names the database for the commands after it; None where it would show a
    /// password.
    pub fn export(&self) -> Option<String> {
        let open = self.url.starts_with("sqlite:");
        open.then(|| format!("export {}={}", crate::cli::URL_VARIABLE, quoted(&self.url)))
    }
}

/// An empty file that was not there before: nobody can have put a link in its place.
fn anew(folder: &Path, path: &Path) -> io::Result<()> {
    let mut own = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut own, 0o700);
    own.recursive(true).create(folder)?;
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    OpenOptions::new().write(true).create_new(true).open(path).map(drop)
}
