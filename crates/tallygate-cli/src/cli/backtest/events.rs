//! Events in a file or on standard input, in the order of their times, in memory that does not grow with their number.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, stdin};
use std::path::Path;

use csv::ByteRecord;
use indicatif::ProgressBar;
use serde::Serialize;
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
    /// The column of the time: RFC 3339, 2026-01-31 08:00:00 or 20260131080000 in UTC, or Unix time in seconds, milliseconds or
    /// microseconds
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
    /// End at the first line that cannot be read, in place of leaving such lines out
    #[arg(long)]
    strict: bool,
    /// Take the events as they come, in place of putting them in the order of their times
    #[arg(long)]
    sorted: bool,
    /// Take times of any year, and every bare number as Unix time; else times before 2000 and after tomorrow cannot be read
    #[arg(long)]
    any_time: bool,
}

/// The number of columns that are known.
const COLUMNS: usize = 7;

/// The most events that are held to be put in order: some 50 MB of them.
const HELD_MAX: usize = 1 << 18;

/// The fields of an event, in the order of [`Columns::names`].
type Fields<'f> = [Option<Cow<'f, str>>; COLUMNS];

/// The lines that could not be read and were left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Skipped {
    lines: u64,
    /// The fault of the first of them, with its place.
    first: Option<String>,
}

impl Skipped {
    /// `; 3 lines were left out: the first is …`; nothing where there was none.
    pub fn told(&self) -> String {
        let Some(first) = &self.first else { return String::new() };
        let (lines, were) = if self.lines == 1 { ("line", "was") } else { ("lines", "were") };
        format!("; {} {lines} that cannot be read {were} left out, the first: {first}", self.lines)
    }
}

/// Reads all events, in the order of their times as far as as many as are held can be put in order. An event that `each`
/// refuses ends the reading with its place; so does one that cannot be read, if it is to be strict or if none can.
pub fn read<E: Display>(
    path: &Path,
    columns: &Columns,
    each: impl FnMut(&Event<'_>) -> Result<(), E>,
) -> Result<Skipped> {
    let shown = path.display().to_string();
    if shown == "-" {
        let mut reader = BufReader::new(counter(None, "bytes").wrap_read(stdin()));
        let json = reader.fill_buf().map_err(|error| ended("standard input", &error))?.starts_with(b"{");
        return Reading::new("standard input", columns, each).all(reader, json);
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
    Reading::new(&shown, columns, each).all(reader, json)
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
    /// The events that may not be the next ones, by their times and lines.
    held: BTreeMap<(i64, u64), Held>,
    has_played: bool,
    skipped: Skipped,
}

/// An event that waits for those before it.
struct Held {
    key: Box<str>,
    cost: i64,
    member: Option<Box<str>>,
    critical: bool,
    shape: Option<Box<str>>,
    outcome: Option<Box<str>>,
}

impl<'r, F: FnMut(&Event<'_>) -> Result<(), E>, E: Display> Reading<'r, F> {
    fn new(shown: &'r str, columns: &'r Columns, each: F) -> Self {
        Self { shown, columns, each, held: BTreeMap::new(), has_played: false, skipped: Skipped::default() }
    }

    fn all(mut self, reader: impl BufRead, json: bool) -> Result<Skipped> {
        if json {
            self.json(reader)?
        } else {
            self.csv(reader)?
        }
        while !self.held.is_empty() {
            self.play_first()?;
        }
        match self.skipped.first {
            Some(first) if !self.has_played => Err(Failure::new(first)),
            _ => Ok(self.skipped),
        }
    }

    fn csv(&mut self, reader: impl Read) -> Result<()> {
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
            // A quote that is never closed takes all lines that follow.
            let lines = reader.position().line().saturating_sub(line).max(1);
            let fields = self.columns.of_record(&record, header.len(), &places);
            self.line(line, lines, fields)?;
        }
        Ok(())
    }

    fn json(&mut self, mut reader: impl BufRead) -> Result<()> {
        for number in 1.. {
            let line = match lines::next(&mut reader).map_err(|error| ended(self.shown, &error))? {
                None => break,
                Some(Line::TooLong) => {
                    let fault = format!("longer than {LINE_BYTES_MAX} bytes; shorten it");
                    self.line(number, 1, Err(fault))?;
                    continue;
                }
                Some(Line::Whole(line)) if line.trim_ascii().is_empty() => continue,
                Some(Line::Whole(line)) => line,
            };
            let object: Result<Map<String, Value>, _> = serde_json::from_slice(&line);
            let fields = match &object {
                Ok(object) => self.columns.of_object(object),
                Err(error) => {
                    let error = error.to_string().replace(" at line 1 column ", " at byte ");
                    let example = r#"{"at":"2026-01-31T08:00:00Z","key":"42"}"#;
                    Err(format!("not a JSON object like {example}: {error}"))
                }
            };
            self.line(number, 1, fields)?;
        }
        Ok(())
    }

    /// Takes the event of a line, or leaves out the lines that it stands for.
    fn line(&mut self, line: u64, lines: u64, fields: Result<Fields<'_>, String>) -> Result<()> {
        let fault = match &fields {
            Err(fault) => fault.clone(),
            Ok(fields) => match self.columns.event(fields) {
                Err(fault) => fault,
                Ok(event) if self.columns.sorted => return self.play(line, &event),
                Ok(event) => {
                    self.held.insert((event.at_us, line), Held::from(&event));
                    return if self.held.len() > HELD_MAX { self.play_first() } else { Ok(()) };
                }
            },
        };
        let fault = self.fault(line, &fault);
        if self.columns.strict {
            return Err(Failure::new(fault));
        }
        self.skipped.lines += lines;
        self.skipped.first.get_or_insert(fault);
        Ok(())
    }

    fn play_first(&mut self) -> Result<()> {
        let Some(((at_us, line), held)) = self.held.pop_first() else { return Ok(()) };
        self.play(line, &held.event(at_us))
    }

    fn play(&mut self, line: u64, event: &Event<'_>) -> Result<()> {
        self.has_played = true;
        (self.each)(event).map_err(|error| Failure::new(self.fault(line, &error.to_string())))
    }

    fn fault(&self, line: u64, fault: &str) -> String {
        format!("{}, line {line}: {fault}", self.shown)
    }

    fn broken(&self, error: csv::Error) -> Failure {
        Failure::new(format!("{} cannot be read: {error}", self.shown))
    }
}

impl From<&Event<'_>> for Held {
    fn from(event: &Event<'_>) -> Self {
        let Event { key, cost, member, critical, shape, outcome, .. } = *event;
        let [member, shape, outcome] = [member, shape, outcome].map(|text| text.map(Box::from));
        Self { key: key.into(), cost, member, critical, shape, outcome }
    }
}

impl Held {
    fn event(&self, at_us: i64) -> Event<'_> {
        let Self { key, cost, critical, .. } = self;
        let [member, shape, outcome] = [&self.member, &self.shape, &self.outcome].map(Option::as_deref);
        Event { at_us, key, cost: *cost, member, critical: *critical, shape, outcome }
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

    /// The fields of a line of CSV, whose columns have these places.
    fn of_record<'f>(
        &self,
        record: &'f ByteRecord,
        columns: usize,
        places: &[Option<usize>; COLUMNS],
    ) -> Result<Fields<'f>, String> {
        if record.len() != columns {
            return Err(format!("{} columns, but the header has {columns}; mend the line", record.len()));
        }
        let mut fields = Fields::default();
        for (n, (field, place)) in fields.iter_mut().zip(places).enumerate() {
            let Some(bytes) = place.and_then(|place| record.get(place)) else { continue };
            let text = std::str::from_utf8(bytes)
                .map_err(|_| format!("column {}: not UTF-8; mend its encoding", self.name(n)))?;
            *field = Some(Cow::Borrowed(text));
        }
        Ok(fields)
    }

    /// The fields of a JSON object.
    fn of_object<'f>(&self, object: &'f Map<String, Value>) -> Result<Fields<'f>, String> {
        let mut fields = Fields::default();
        for (field, name) in fields.iter_mut().zip(self.names()) {
            let Some((flag, name)) = name else { continue };
            *field = Some(match object.get(name) {
                Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => Cow::Owned(value.to_string()),
                Some(other) => {
                    return Err(format!("{name} is {other}; give a text, a number, true or false"));
                }
                None => return Err(format!("there is no {name:?}; name the right one with {flag}")),
            });
        }
        Ok(fields)
    }

    /// The event that these fields tell, if a database would store it.
    fn event<'f>(&self, fields: &'f Fields<'_>) -> Result<Event<'f>, String> {
        let [at, key, cost, member, critical, shape, outcome] = fields.each_ref().map(Option::as_deref);
        let wrong = |place: usize, value: &str, remedy: &str| {
            format!("column {}: {value:?} cannot be used; {remedy}", self.name(place))
        };
        let at = at.unwrap_or_default();
        let event = Event {
            at_us: moment::parse(at, self.any_time).map_err(|remedy| wrong(0, at, &remedy))?,
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
        let good = || Check::new("zone", "key");
        let parts = [
            (1, Check::new("zone", event.key)),
            (2, good().cost(event.cost)),
            (3, event.member.map_or_else(good, |member| good().member(member))),
        ];
        for (place, check) in parts {
            check.validate().map_err(|error| format!("column {}: {error}", self.name(place)))?;
        }
        Ok(event)
    }

    /// The name of a column that is there.
    fn name(&self, place: usize) -> &str {
        self.names()[place].map_or("", |(_, name)| name)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}
