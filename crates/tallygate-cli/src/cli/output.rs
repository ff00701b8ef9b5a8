//! How answers look on a terminal.

use std::io::{IsTerminal, stdout};

use clap::ValueEnum;
use comfy_table::{Table, presets};

/// How to print what a person or a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // Columns for people.
    Table,
    // For programs.
    Json,
}

/// How to print an answer of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Answer {
    // One line for people.
    Text,
    // For programs.
    Json,
}

/// A table in columns, without lines.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The lines of a table, its header bold, each `indent` spaces from the edge.
pub fn render(table: &Table, indent: usize) -> String {
    let lines = table.trim_fmt();
    let line = |(number, line): (usize, &str)| {
        let line = if number == 0 { bold(line) } else { line.to_owned() };
        format!("{:indent$}{line}\n", "")
    };
    lines.lines().enumerate().map(line).collect()
}

/// Text from elsewhere, without the control characters that could write over the terminal, and without those that
/// nobody sees, which could make it read otherwise.
pub fn plain(text: &str) -> String {
    let show =
        |c: char| if c.is_control() || is_unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(show).collect()
}

/// Characters that have no width, turn the direction of what follows, tag it, or end a line.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text in a cell of CSV, which a spreadsheet may open: an apostrophe stands before what it would take for a formula. To
/// read it back, take one away where a cell begins with one.
pub fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

/// Who did it, as was said, and as whom the session was logged in.
pub fn by(said: &str, login: Option<&str>) -> String {
    let login = login.map(|login| format!(" (login {})", plain(login))).unwrap_or_default();
    format!("{}{login}", plain(said))
}

pub fn bold(text: &str) -> String {
    paint("1", text)
}

pub fn dim(text: &str) -> String {
    paint("2", text)
}

pub fn green(text: &str) -> String {
    paint("32", text)
}

pub fn red(text: &str) -> String {
    paint("31", text)
}

fn paint(code: &str, text: &str) -> String {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && stdout().is_terminal() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_shown_by_its_number() {
        for unseen in
            ['\u{1b}', '\u{85}', '\u{200b}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{feff}', '\u{e0041}']
        {
            assert_eq!(plain(&format!("a{unseen}b")), format!("a\\u{{{:x}}}b", u32::from(unseen)));
        }
        for seen in ["card:9f3c", "Zoë", "日本", "עברית", "👍🏽", "a b"] {
            assert_eq!(plain(seen), seen);
        }
    }
}
