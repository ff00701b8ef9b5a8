//! The forms in which answers are printed.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, ValueEnum};
pub use tallygate::page::{by, count, many, plain};

pub use super::layout::{Table, paragraph, render, render_more, table};
pub use super::spreadsheet::cell;
use super::terminal;

/// The form of a list: the same words everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs, with everything that there is.
    Json,
    /// For spreadsheets, with a header: the fields of the json, a row for each element.
    Csv,
}

/// The form of an answer that is no list, so that there is nothing to make a spreadsheet of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Text,
    Json,
}

const WORDS: [&str; 2] = ["text", "json"];

impl ValueParserFactory for Answer {
    type Parser = AnswerParser;

    fn value_parser() -> AnswerParser {
        AnswerParser
    }
}

/// Reads an [`Answer`], and says why there is no csv of it.
#[derive(Clone)]
pub struct AnswerParser;

impl TypedValueParser for AnswerParser {
    type Value = Answer;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Answer, clap::Error> {
        if value == "csv" {
            let told = "--format csv is for lists, and this answer is none; use text or json";
            return Err(clap::Error::raw(ErrorKind::ValueValidation, told).with_cmd(command));
        }
        let word = PossibleValuesParser::new(WORDS).parse_ref(command, arg, value)?;
        Ok(if word == "json" { Answer::Json } else { Answer::Text })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(WORDS.into_iter().map(PossibleValue::new)))
    }
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
    if terminal::has_colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
