//! A stored row as it is hashed.

use crate::chain;
use crate::decide::Exception;
use crate::entry::LedgerRow;

/// The row, with the limit that it sets.
pub(super) fn hashed(row: &LedgerRow, exception: Option<Exception>) -> chain::Row<'_> {
    chain::Row {
        txn: row.txn_id,
        seq: row.seq,
        zone_version: row.zone_version,
        checks: row.checks,
        blocked: row.blocked,
        critical: row.critical,
        band: row.band,
        cost: row.cost,
        spent: row.spent,
        spent_total: row.spent_total,
        remaining: row.remaining,
        limit: row.zone_limit,
        retry_after_us: row.retry_after_us,
        delay_us: row.delay_us,
        level: row.level,
        strikes: row.strikes,
        target_us: row.target_us,
        decided_us: row.at_us,
        ends_us: row.ends_us,
        kind: row.kind,
        reason: row.reason,
        member: row.member.as_deref(),
        note: row.note.as_deref(),
        actor: row.actor.as_deref(),
        login: row.login.as_deref(),
        exception,
    }
}
