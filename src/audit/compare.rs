//! A row as it is recorded, beside the same row as it is derived.

use serde::Serialize;

use crate::decide::Head;
use crate::decision::Reason;
use crate::entry::LedgerRow;

/// The result of deriving a row again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// The core decides exactly what the row says.
    Same,
    /// It says something else: each column that differs.
    Differs(Vec<Difference>),
    /// The core would have refused to record it, or lacks what it needs; in words.
    Impossible(String),
}

/// A column of a row that is not what the core derives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Difference {
    /// Its name.
    pub column: &'static str,
    /// The text of the row.
    pub recorded: String,
    /// The text that the rows before it lead to.
    pub derived: String,
}

pub(super) fn compare(row: &LedgerRow, derived: &LedgerRow) -> Replayed {
    if row == derived {
        return Replayed::Same;
    }
    let mut differences = Vec::new();
    macro_rules! columns {
        ($($field:ident $column:literal),+) => {
            $(if row.$field != derived.$field {
                let (recorded, derived) = (show(&row.$field), show(&derived.$field));
                differences.push(Difference { column: $column, recorded, derived });
            })+
        };
    }
    columns!(
        kind "kind", txn_id "txn_id", checks "checks", blocked "blocked", reason "reason", critical "critical",
        band "band",
        cost "cost", spent "spent", spent_total "spent_total", remaining "remaining", zone_limit "zone_limit",
        retry_after_us "retry_after_us", delay_us "delay_us", level "level", strikes "strikes",
        target_us "target_at", at_us "created_at", prev_us "prev_at", ends_us "ends_at", member "member"
    );
    Replayed::Differs(differences)
}

/// The fields of a row that is no check, but for what it is about.
pub(super) fn event_row(row: &LedgerRow, head: &Head) -> LedgerRow {
    LedgerRow {
        checks: 1,
        blocked: false,
        reason: Reason::Recorded,
        critical: false,
        cost: 0,
        spent: 0,
        spent_total: head.spent_total,
        retry_after_us: None,
        delay_us: None,
        level: head.level,
        strikes: head.strikes,
        target_us: None,
        ends_us: None,
        member: None,
        ..row.clone()
    }
}

fn show(value: &impl Serialize) -> String {
    serde_json::to_value(value).map_or_else(
        |_| String::new(),
        |value| match value {
            serde_json::Value::String(text) => text,
            value => value.to_string(),
        },
    )
}
