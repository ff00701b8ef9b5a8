//! A row of the ledger as it is exported: every column, in the order in which it is hashed where it is.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::chain::hex;
use crate::store::Evidence;

/// The kinds of values that a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Number,
    Flag,
    Text,
    /// Microseconds since 1970 in UTC.
    Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Number(i64),
    Flag(bool),
    Text(String),
    Time(i64),
    Null,
}

/// The columns: name, what it holds.
pub(super) const COLUMNS: [(&str, Holds); 37] = [
    ("zone_id", Holds::Number),
    ("zone", Holds::Text),
    ("bucket_key", Holds::Text),
    ("seq", Holds::Number),
    ("id", Holds::Number),
    ("txn_id", Holds::Text),
    ("zone_version", Holds::Number),
    ("checks", Holds::Number),
    ("blocked", Holds::Flag),
    ("critical", Holds::Flag),
    ("band", Holds::Number),
    ("cost", Holds::Number),
    ("spent", Holds::Number),
    ("spent_total", Holds::Number),
    ("remaining", Holds::Number),
    ("zone_limit", Holds::Number),
    ("retry_after_us", Holds::Number),
    ("delay_us", Holds::Number),
    ("level", Holds::Number),
    ("strikes", Holds::Number),
    ("target_at", Holds::Time),
    ("created_at", Holds::Time),
    ("prev_at", Holds::Time),
    ("ends_at", Holds::Time),
    ("kind", Holds::Text),
    ("reason", Holds::Text),
    ("member", Holds::Text),
    ("note", Holds::Text),
    ("actor", Holds::Text),
    ("login", Holds::Text),
    ("override_rate", Holds::Number),
    ("override_window_us", Holds::Number),
    ("override_burst", Holds::Number),
    ("override_rate_gcd", Holds::Number),
    ("override_ban_exempt", Holds::Flag),
    ("salt", Holds::Text),
    ("row_hash", Holds::Text),
];

pub(super) type Cells = [Cell; COLUMNS.len()];

pub(super) fn cells(zone_id: i32, zone: &str, evidence: Evidence) -> Cells {
    let Evidence { key, row, exception, salt, row_hash } = evidence;
    let limit = exception.and_then(|exception| exception.limit);
    let number = |number: Option<i64>| number.map_or(Cell::Null, Cell::Number);
    let text = |text: Option<String>| text.map_or(Cell::Null, Cell::Text);
    let time = |us: Option<i64>| us.map_or(Cell::Null, Cell::Time);
    [
        Cell::Number(zone_id.into()),
        Cell::Text(zone.to_owned()),
        Cell::Text(key),
        Cell::Number(row.seq),
        Cell::Number(row.id),
        Cell::Text(row.txn_id.to_string()),
        Cell::Number(row.zone_version.into()),
        Cell::Number(row.checks.into()),
        Cell::Flag(row.blocked),
        Cell::Flag(row.critical),
        number(row.band.map(i64::from)),
        Cell::Number(row.cost),
        Cell::Number(row.spent),
        Cell::Number(row.spent_total),
        Cell::Number(row.remaining),
        Cell::Number(row.zone_limit),
        number(row.retry_after_us),
        number(row.delay_us),
        number(row.level),
        Cell::Number(row.strikes),
        time(row.target_us),
        Cell::Time(row.at_us),
        time(row.prev_us),
        time(row.ends_us),
        Cell::Text(row.kind.as_str().to_owned()),
        Cell::Text(row.reason.as_str().to_owned()),
        text(row.member),
        text(row.note),
        text(row.actor),
        text(row.login),
        number(limit.map(|limit| limit.rate)),
        number(limit.map(|limit| limit.window_us)),
        number(limit.and_then(|limit| limit.burst)),
        number(limit.map(|limit| limit.gcd)),
        exception.map_or(Cell::Null, |exception| Cell::Flag(exception.ban_exempt)),
        text(salt.map(|salt| hex(&salt))),
        Cell::Text(hex(&row_hash)),
    ]
}

impl Cell {
    /// Its text in a CSV: empty for null.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text.clone(),
            Self::Time(us) => DateTime::<Utc>::from_timestamp_micros(*us)
                .unwrap_or_default()
                .to_rfc3339_opts(SecondsFormat::Micros, true),
            Self::Null => String::new(),
        }
    }

    /// Its text in JSON.
    pub fn json(&self) -> String {
        match self {
            Self::Number(_) | Self::Flag(_) => self.text(),
            Self::Text(_) | Self::Time(_) => serde_json::Value::from(self.text()).to_string(),
            Self::Null => "null".to_owned(),
        }
    }
}
