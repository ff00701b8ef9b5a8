//! Lists as CSV, which a spreadsheet may open.

use serde::Serialize;
use serde_json::Value;

use super::{Failure, Result};

/// A header and a row for each element of a list, by the names of its fields in JSON. A value that is no single one
/// stands in its cell as JSON.
pub fn list<T: Serialize>(fields: &[&str], rows: &[T]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields).map_err(unwritten)?;
    for row in rows {
        let row = serde_json::to_value(row)?;
        writer.write_record(fields.iter().map(|field| shown(&row[field]))).map_err(unwritten)?;
    }
    Ok(String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned())
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => cell(text),
        // A negative number begins like a formula, but does nothing.
        value => value.to_string(),
    }
}

fn unwritten(error: csv::Error) -> Failure {
    Failure::new(format!("no CSV could be made: {error}"))
}

/// Text in a cell of CSV: an apostrophe stands before text that a spreadsheet would take for a formula. To read it back,
/// take one away where a cell begins with one.
pub fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']);
    if formula { format!("'{text}") } else { text.to_owned() }
}
