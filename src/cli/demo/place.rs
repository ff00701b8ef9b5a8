//! Where the demo happens.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use crate::cli::{Failure, Result};

pub struct Place {
    pub url: String,
    pub zone: &'static str,
    /// True for the demo's own file, whose URL holds no secret.
    own: bool,
}

impl Place {
    /// The database that was asked for, or a new file. In a database that was there before, the zone has a
    /// name that nobody else's has.
    pub fn prepare(database: Option<String>) -> Result<Self> {
        if let Some(url) = database {
            return Ok(Self { url, zone: "demo-login", own: false });
        }
        let path = std::env::temp_dir().join("tallygate-demo.db");
        anew(&path).map_err(|error| {
            let path = path.display();
            Failure::new(format!(
                "{path} cannot be made anew: {error}; name another with --database sqlite:FILE"
            ))
        })?;
        Ok(Self { url: format!("sqlite:{}", path.display()), zone: "login", own: true })
    }

    /// How to name the database in a command, for copying. Never the URL of a server, which may hold a
    /// password.
    pub fn flag(&self) -> String {
        if self.own || self.url.starts_with("sqlite:") {
            format!("--database {}", quoted(&self.url))
        } else {
            "--database \"$TALLYGATE_DATABASE_URL\"".to_owned()
        }
    }

    /// The database for people.
    pub fn shown(&self) -> &str {
        if self.url.starts_with("sqlite:") {
            &self.url
        } else {
            self.url.split(':').next().unwrap_or_default()
        }
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

/// A word for the shell.
pub fn quoted(word: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
