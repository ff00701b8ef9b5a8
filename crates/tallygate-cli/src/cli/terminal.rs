//! The terminal that a person sits at, if there is one.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;

use anstream::{AutoStream, ColorChoice};
use terminal_size::{Width, terminal_size_of};

static QUIET: OnceLock<bool> = OnceLock::new();

/// Shows no progress and gives no hints from now on, if that is wished.
pub fn hush(quiet: bool) {
    // Said once, by the one that reads the arguments.
    let _ = QUIET.set(quiet);
}

/// Tells a line beside the answer. Nothing that comes after it depends on a reader.
pub fn tell(line: impl Display) {
    writeln!(stderr(), "{line}").ok();
}

/// Is nothing told but errors and what was asked for?
pub fn is_quiet() -> bool {
    QUIET.get().copied().unwrap_or_default()
}

/// The number of columns that there are for an answer: `COLUMNS` says it before the terminal does. None where a program or a
/// file takes the answer.
pub fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = said.or_else(|| terminal_size_of(stdout()).map(|(Width(columns), _)| columns.into()));
    width.filter(|&columns| columns > 0)
}

/// Does somebody look at stderr, where lines can be drawn over, and may be shown progress?
pub fn is_watched() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !dumb && !is_quiet()
}

/// Do answers have colours? They do where a terminal knows them, and neither `NO_COLOR` nor `CLICOLOR=0` forbids them.
pub fn has_colours() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Do the lines of the log have colours?
pub fn log_has_colours() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

/// A word for the shell, as one types it.
pub fn quoted(word: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
