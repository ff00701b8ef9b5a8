//! Where the demo happens.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use crate::cli::terminal::quoted;
use crate::cli::{Failure, Result};

pub struct Place {
    pub url: String,
    pub zone: &'static str,
}

impl Place {
    /// The database that was asked for, or a new file. In a database that was there before, the zone has a
    /// name that nobody else's has.
    pub fn prepare(database: Option<String>) -> Result<Self> {
        if let Some(url) = database {
            return Ok(Self { url, zone: "demo-login" });
        }
        let path = std::env::temp_dir().join("tallygate-demo.db");
        anew(&path).map_err(|error| {
            let path = path.display();
            Failure::new(format!(
                "{path} cannot be made anew: {error}; name another with --database sqlite:FILE"
            ))
        })?;
        Ok(Self { url: format!("sqlite:{}", path.display()), zone: "login" })
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
fn anew(path: &Path) -> io::Result<()> {
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
