//! Events in a file or on standard input, one after the other, in constant memory.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, stdin};
use std::path::Path;

use csv::ByteRecord;
use indicatif::ProgressBar;
use serde_json::{Map, Value};
use tallygate::Check;
use tallygate::policy::parse_units;

use super::{Event, moment};
use crate::cli::lines::{self, LINE_BYTES_MAX, Line};
use crate::cli::progress::progress;
use crate::cli::{Failure, Result};

/// The columns of a CSV file, or the fields of JSON lines.
#[derive(Default, clap::Args)]
pub struct Columns {
    /// The column of the time: RFC 3339, 2026-01-31 08:00:00 in UTC, or Unix time in seconds, milliseconds or microseconds
    #[arg(long, value_name = "NAME", default_value = "at")]
    at_column: String,
    /// The column of the key that is limited
    #[arg(long, value_name = "NAME", default_value = "key")]
    key_column: String,
    /// The column of the cost [default: each costs 1]
    #[arg(long, value_name = "NAME")]
    cost_column: Option<String>,
    /// The column of the member that a policy of distinct members counts
    #[arg(long, value_name = "NAME")]
    member_column: Option<String>,
    /// The column that tells whether a check may take from the reserve: true or false, 1 or 0
    #[arg(long, value_name = "NAME")]
    critical_column: Option<String>,
    /// The column of the shape by which the cost is predicted, in place of --guess
    #[arg(long, value_name = "NAME")]
    shape_column: Option<String>,
    /// The column of the outcome. Only a back-test asks for it.
    #[arg(skip)]
    pub outcome_column: Option<String>,
}

/// The number of columns that are known.
const COLUMNS: usize = 7;

/// The fields of an event, in the order of [`Columns::names`].
type Fields<'f> = [Option<Cow<'f, str>>; COLUMNS];

/// Reads all events. An event that `each` refuses, or that cannot be read, ends the reading with its place.
pub fn read<E: Display>(
    path: &Path,
    columns: &Columns,
    each: impl FnMut(&Event<'_>) -> Result<(), E>,
) -> Result<()> {
    let shown = path.display().to_string();
    if shown == "-" {
        let mut reader = BufReader::new(counter(None, "bytes").wrap_read(stdin()));
        let json = reader.fill_buf().map_err(|error| ended("standard input", &error))?.starts_with(b"{");
        return Reading { shown: "standard input", columns, each }.all(reader, json);
    }
    let unreadable = |error| Failure::new(format!("{shown} cannot be read: {error}; name a file of events"));
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(Failure::new(format!("{shown} is a directory; name a file of events")));
    }
    let json =
        path.extension().is_some_and(|ending| ["json", "jsonl", "ndjson"].iter().any(|name| ending == *name));
    let reader = BufReader::with_capacity(1 << 16, counter(Some(metadata.len()), "bytes").wrap_read(file));
    Reading { shown: &shown, columns, each }.all(reader, json)
}

/// The progress, which is gone when the reader is.
pub fn counter(bytes: Option<u64>, unit: &'static str) -> ProgressBar {
    let template = match bytes {
        Some(_) => "{bar:30} {percent:>3} %  {eta} left",
        None => "{spinner} {human_pos} {msg} read  {elapsed}",
    };
    progress(bytes, template).with_message(unit)
}

fn ended(shown: &str, error: &io::Error) -> Failure {
    Failure::new(format!("{shown} cannot be read: {error}"))
}

struct Reading<'r, F> {
    shown: &'r str,
    columns: &'r Columns,
    each: F,
}

impl<F: FnMut(&Event<'_>) -> Result<(), E>, E: Display> Reading<'_, F> {
    fn all(self, reader: impl BufRead, json: bool) -> Result<()> {
        if json { self.json(reader) } else { self.csv(reader) }
    }

    fn csv(mut self, reader: impl Read) -> Result<()> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(reader);
        let header = reader.byte_headers().map_err(|error| self.broken(error))?.clone();
        if header.is_empty() {
            return Err(Failure::new(format!("{} is empty; a CSV file begins with a header", self.shown)));
        }
        let mut places = [None; COLUMNS];
        for (place, name) in places.iter_mut().zip(self.columns.names()) {
            let Some((flag, name)) = name else { continue };
            let mut found = (0..header.len()).filter(|&n| header.get(n) == Some(name.as_bytes()));
            *place = found.next();
            if place.is_none() || found.next().is_some() {
                let there = header.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(", ");
                let fault = if place.is_none() { "no column" } else { "more than one column" };
                return Err(Failure::new(format!(
                    "{} has {fault} {name:?}, only {there}; name the right one with {flag}",
                    self.shown
                )));
            }
        }
        let mut record = ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(|error| self.broken(error))? {
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() != header.len() {
                return Err(self.fault(
                    line,
                    &format!("{} columns, but the header has {}; mend the line", record.len(), header.len()),
                ));
            }
            let mut fields = Fields::default();
            for (n, (field, place)) in fields.iter_mut().zip(places).enumerate() {
                let Some(bytes) = place.and_then(|place| record.get(place)) else { continue };
                let text = std::str::from_utf8(bytes).map_err(|_| {
                    let name = self.columns.names()[n].map_or("", |(_, name)| name);
                    self.fault(line, &format!("column {name}: not UTF-8; mend its encoding"))
                })?;
                *field = Some(Cow::Borrowed(text));
            }
            self.one(line, &fields)?;
        }
        Ok(())
    }

    fn json(mut self, mut reader: impl BufRead) -> Result<()> {
        for number in 1.. {
            let line = match lines::next(&mut reader).map_err(|error| ended(self.shown, &error))? {
                None => break,
                Some(Line::TooLong) => {
                    return Err(
                        self.fault(number, &format!("longer than {LINE_BYTES_MAX} bytes; shorten it"))
                    );
                }
                Some(Line::Whole(line)) if line.trim_ascii().is_empty() => continue,
                Some(Line::Whole(line)) => line,
            };
            let object: Map<String, Value> = serde_json::from_slice(&line).map_err(|error| {
                let error = error.to_string().replace(" at line 1 column ", " at byte ");
                let example = r#"{"at":"2026-01-31T08:00:00Z","key":"42"}"#;
                self.fault(number, &format!("not a JSON object like {example}: {error}"))
            })?;
            let mut fields = Fields::default();
            for (field, name) in fields.iter_mut().zip(self.columns.names()) {
                let Some((flag, name)) = name else { continue };
                *field = Some(match object.get(name) {
                    Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                    Some(value @ (Value::Number(_) | Value::Bool(_))) => Cow::Owned(value.to_string()),
                    Some(other) => {
                        let fault = format!("{name} is {other}; give a text, a number, true or false");
                        return Err(self.fault(number, &fault));
                    }
                    None => {
                        let fault = format!("there is no {name:?}; name the right one with {flag}");
                        return Err(self.fault(number, &fault));
                    }
                });
            }
            self.one(number, &fields)?;
        }
        Ok(())
    }

    fn one(&mut self, line: u64, fields: &Fields<'_>) -> Result<()> {
        let [at, key, cost, member, critical, shape, outcome] = fields.each_ref().map(Option::as_deref);
        let wrong = |place: usize, value: &str, remedy: &str| {
            let name = self.columns.names()[place].map_or("", |(_, name)| name);
            self.fault(line, &format!("column {name}: {value:?} cannot be used; {remedy}"))
        };
        let event = Event {
            at_us: moment::parse(at.unwrap_or_default())
                .map_err(|remedy| wrong(0, at.unwrap_or_default(), &remedy))?,
            key: key.unwrap_or_default(),
            cost: cost.map_or(Ok(1), |cost| {
                parse_units(cost.trim()).map_err(|remedy| wrong(2, cost, &remedy.to_string()))
            })?,
            member,
            shape,
            outcome,
            critical: critical.map_or(Ok(false), |text| {
                flag(text.trim()).ok_or_else(|| wrong(4, text, "use true or false, 1 or 0"))
            })?,
        };
        (self.each)(&event).map_err(|error| {
            let place =
                self.columns.at_fault(&event).map(|name| format!("column {name}: ")).unwrap_or_default();
            self.fault(line, &format!("{place}{error}"))
        })
    }

    fn fault(&self, line: u64, fault: &str) -> Failure {
        Failure::new(format!("{}, line {line}: {fault}", self.shown))
    }

    fn broken(&self, error: csv::Error) -> Failure {
        Failure::new(format!("{} cannot be read: {error}", self.shown))
    }
}

impl Columns {
    /// A time and a key in the columns of these names.
    pub fn named(at_column: &str, key_column: &str) -> Self {
        Self { at_column: at_column.to_owned(), key_column: key_column.to_owned(), ..Self::default() }
    }

    /// Do events tell their shapes?
    pub fn have_shapes(&self) -> bool {
        self.shape_column.is_some()
    }

    /// The columns, each with the flag that names it.
    fn names(&self) -> [Option<(&'static str, &str)>; COLUMNS] {
        [
            Some(("--at-column", self.at_column.as_str())),
            Some(("--key-column", self.key_column.as_str())),
            self.cost_column.as_deref().map(|name| ("--cost-column", name)),
            self.member_column.as_deref().map(|name| ("--member-column", name)),
            self.critical_column.as_deref().map(|name| ("--critical-column", name)),
            self.shape_column.as_deref().map(|name| ("--shape-column", name)),
            self.outcome_column.as_deref().map(|name| ("--outcome-column", name)),
        ]
    }

    /// The column whose value no database would store.
    fn at_fault(&self, event: &Event<'_>) -> Option<&str> {
        let good = || Check::new("zone", "key");
        let parts = [
            good(),
            Check::new("zone", event.key),
            good().cost(event.cost),
            event.member.map_or_else(good, |member| good().member(member)),
        ];
        let place = parts.iter().position(|check| check.validate().is_err())?;
        self.names()[place].map(|(_, name)| name)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}
