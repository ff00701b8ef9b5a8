//! A row as it is recorded, beside the same row as it is derived.

use serde::Serialize;

use crate::chain::Row;
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

/// The row with what follows from an outcome in place of what it says.
pub(super) fn derived(row: &LedgerRow, made: &Row<'_>) -> LedgerRow {
    LedgerRow {
        txn_id: made.txn,
        kind: made.kind,
        checks: made.checks,
        blocked: made.blocked,
        reason: made.reason,
        critical: made.critical,
        band: made.band,
        cost: made.cost,
        spent: made.spent,
        spent_total: made.spent_total,
        remaining: made.remaining,
        zone_limit: made.limit,
        retry_after_us: made.retry_after_us,
        delay_us: made.delay_us,
        level: made.level,
        strikes: made.strikes,
        target_us: made.target_us,
        at_us: made.decided_us,
        ends_us: made.ends_us,
        member: made.member.map(str::to_owned),
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
