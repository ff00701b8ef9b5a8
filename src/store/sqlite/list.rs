//! Lists of rows as one JSON text: however many they are, they are one argument of one statement.

use std::fmt::Write as _;

use uuid::Uuid;

/// Rows that `jsonb_each` takes apart, each one a list of values.
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
        self.0.push(if self.0.is_empty() { '[' } else { ',' });
        for (n, value) in row.into_iter().enumerate() {
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

pub(super) enum Value<'v> {
    Number(Option<i64>),
    Text(&'v str),
    Txn(Uuid),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(Some(number.into()))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl From<Uuid> for Value<'_> {
    fn from(txn: Uuid) -> Self {
        Self::Txn(txn)
    }
}

impl Value<'_> {
    fn write(self, json: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Number(Some(number)) => write!(json, "{number}"),
            Self::Number(None) => json.write_str("null"),
            Self::Text(text) => return write_text(text, json),
            Self::Txn(txn) => write!(json, "\"{:x}\"", txn.simple()),
        };
    }
}

/// Keys have no control characters, so two characters are left to escape.
fn write_text(text: &str, json: &mut String) {
    json.push('"');
    for part in text.split_inclusive(['"', '\\']) {
        match part.strip_suffix(['"', '\\']) {
            Some(plain) => {
                json.push_str(plain);
                json.push('\\');
                json.push_str(&part[plain.len()..]);
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
        let rows = [[Value::from(-1), "plain".into()], [None.into(), r#"a"b\c\"#.into()]];
        assert_eq!(List::of(rows).json(), r#"[[-1,"plain"],[null,"a\"b\\c\\"]]"#);
    }
}
