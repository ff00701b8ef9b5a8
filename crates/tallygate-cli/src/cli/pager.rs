//! Long answers a screen at a time: `PAGER`, as other programs of a terminal take it.

use std::env::var_os;
use std::io::{self, IsTerminal, Write, stdout};
use std::process::{Child, Command, Stdio};

/// Less ends at once where one screen holds it all, leaves colours as they are, and the answer on the screen.
const DEFAULT: &str = "less -FRX";

/// The way of an answer: through a pager, or straight to stdout.
pub struct Pager {
    child: Option<Child>,
}

impl Pager {
    /// Begins a pager where a person looks at a terminal, unless none is wished.
    pub fn begin(wished: bool) -> Self {
        let wished = wished && stdout().is_terminal() && var_os("TERM").is_none_or(|term| term != "dumb");
        Self { child: if wished { start() } else { None } }
    }

    /// Does somebody page through it?
    pub fn is_paged(&self) -> bool {
        self.child.is_some()
    }

    /// Waits until the reader has seen enough.
    pub fn end(mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok(())
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(stdin) => stdin.write(bytes),
            None => stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(stdin) => stdin.flush(),
            None => stdout().flush(),
        }
    }
}

/// The pager, unless it is `PAGER=cat` or cannot be started.
fn start() -> Option<Child> {
    let line = var_os("PAGER").unwrap_or_else(|| DEFAULT.into());
    if line.is_empty() || line == "cat" {
        return None;
    }
    // The shell would start for a program that is not there too, and only then fail.
    let program = line.to_string_lossy().split(' ').next().unwrap_or_default().to_owned();
    let there = |folder: std::path::PathBuf| folder.join(&program).is_file();
    if !std::env::split_paths(&var_os("PATH").unwrap_or_default()).any(there) {
        return None;
    }
    Command::new("sh").arg("-c").arg(line).stdin(Stdio::piped()).spawn().ok()
}
