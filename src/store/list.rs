//! Lists of rows as one JSON text: however many they are, they are one argument of one statement.

use std::fmt::Write as _;

use uuid::Uuid;

use crate::chain;
use crate::decide::Item;

/// Rows that the database takes apart, each one a list of values.
#[derive(Default)]
pub(super) struct List(String);

impl List {
    pub fn of<'v, const N: usize>(rows: impl IntoIterator<Item = [Value<'v>; N]>) -> Self {
        rows.into_iter().fold(Self::default(), |mut list, row| {
            list.push(row);
            list
        })
    }

    pub fn push<const N: usize>(&mut self, row: [Value<'_>; N]) {
        self.push_all(row.into_iter());
    }

    pub fn push_all<'v>(&mut self, row: impl Iterator<Item = Value<'v>>) {
        self.0.push(if self.0.is_empty() { '[' } else { ',' });
        for (n, value) in row.enumerate() {
            self.0.push(if n == 0 { '[' } else { ',' });
            value.write(&mut self.0);
        }
        self.0.push(']');
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn json(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "[]" } else { "]" });
        self.0
    }
}

/// Items of a queue as rows.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn listed(items: &[Item]) -> List {
    List::of(items.iter().map(|item| {
        [
            item.seq.into(),
            (&item.txn).into(),
            item.cost.into(),
            i32::from(item.band).into(),
            item.offered_us.into(),
            item.deadline_us.into(),
            item.place.as_str().into(),
            item.due_us.into(),
            item.takes.into(),
            item.last.into(),
            item.receipt.into(),
        ]
    }))
}

pub(super) enum Value<'v> {
    None,
    Number(i64),
    Text(&'v str),
    Bytes(&'v [u8]),
    #[cfg(feature = "mysql")]
    Rows(List),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Number(yes.into())
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

#[cfg(feature = "mysql")]
impl From<List> for Value<'_> {
    fn from(rows: List) -> Self {
        Self::Rows(rows)
    }
}

impl<'v> From<&'v Uuid> for Value<'v> {
    fn from(txn: &'v Uuid) -> Self {
        Self::Bytes(txn.as_bytes())
    }
}

impl Value<'_> {
    fn write(self, json: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::None => json.write_str("null"),
            Self::Number(number) => write!(json, "{number}"),
            Self::Text(text) => return write_text(text, json),
            Self::Bytes(bytes) => write!(json, "\"{}\"", chain::hex(bytes)),
            #[cfg(feature = "mysql")]
            Self::Rows(rows) => json.write_str(&rows.json()),
        };
    }
}

/// Quotes, backslashes and control characters are written by their numbers.
pub(super) fn write_text(text: &str, json: &mut String) {
    let escaped = |c: char| c < ' ' || c == '"' || c == '\\';
    json.push('"');
    for part in text.split_inclusive(escaped) {
        match part.chars().next_back().filter(|&c| escaped(c)) {
            Some(last) => {
                json.push_str(part.trim_end_matches(last));
                let _ = write!(json, "\\u{:04x}", u32::from(last));
            }
            None => json.push_str(part),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_one_json_text() {
        assert_eq!(List::default().json(), "[]");
        let rows = [[Value::from(-1), "plain".into()], [Value::None, "a\"b\\c\n".into()]];
        assert_eq!(List::of(rows).json(), r#"[[-1,"plain"],[null,"a\u0022b\u005cc\u000a"]]"#);
    }
}
