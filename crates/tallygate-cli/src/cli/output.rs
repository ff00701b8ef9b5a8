//! How answers look on a terminal.

use std::io::{IsTerminal, stdout};

use clap::ValueEnum;
use comfy_table::{Table, presets};
pub use tallygate::page::{by, plain};

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

/// Text in a cell of CSV, which a spreadsheet may open: an apostrophe stands before what it would take for a formula. To
/// read it back, take one away where a cell begins with one.
pub fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']);
    if formula { format!("'{text}") } else { text.to_owned() }
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
