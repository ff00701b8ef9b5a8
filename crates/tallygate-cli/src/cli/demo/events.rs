//! Attempts from a CSV file.

use std::path::Path;

use chrono::{DateTime, Utc};
use csv::StringRecord;
use tallygate::Check;
use tallygate::page::second;

use super::Attempts;
use crate::cli::{Failure, Result};

/// Reads and checks the whole file before anything is sent.
pub fn read(file: &Path, at_column: &str, key_column: &str) -> Result<Attempts> {
    let wrong = |what: String| Failure::new(format!("{}: {what}", file.display()));
    let mut reader = csv::Reader::from_path(file).map_err(|error| wrong(reason(error)))?;
    let header = reader.headers().map_err(|error| wrong(reason(error)))?.clone();
    let at = column(&header, at_column, "--at-column").map_err(&wrong)?;
    let key = column(&header, key_column, "--key-column").map_err(&wrong)?;
    let mut keys = Vec::new();
    let mut span: Option<(DateTime<Utc>, DateTime<Utc>)> = None;
    for record in reader.records() {
        let record = record.map_err(|error| wrong(reason(error)))?;
        let line = record.position().map_or(0, csv::Position::line);
        let moment = DateTime::parse_from_rfc3339(&record[at])
            .map_err(|_| wrong(format!("line {line}: {:?} is no RFC 3339 time", &record[at])))?
            .to_utc();
        Check::new("demo", &record[key])
            .validate()
            .map_err(|error| wrong(format!("line {line}: {error}")))?;
        span = Some(span.map_or((moment, moment), |(from, to)| (from.min(moment), to.max(moment))));
        keys.push(record[key].to_owned());
    }
    let (from, to) = span.ok_or_else(|| wrong("there is no event in it".to_owned()))?;
    let story = format!(
        "{} events of {} to {}, all sent now:\n  they are decided at the time at which they arrive, not at the time in the file",
        keys.len(),
        second(from),
        second(to),
    );
    Ok(Attempts { keys, story })
}

fn column(header: &StringRecord, name: &str, flag: &str) -> Result<usize, String> {
    header.iter().position(|column| column == name).ok_or_else(|| {
        let columns = header.iter().collect::<Vec<_>>().join(", ");
        format!("there is no column {name:?}; name one of these with {flag}: {columns}")
    })
}

/// The error without the name of the library's types.
fn reason(error: csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(io) => io.to_string(),
        _ => error.to_string(),
    }
}
