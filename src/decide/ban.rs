//! Bans: what blocked checks lead to.

use super::{Head, Ledger, Need};
use crate::zone::{BanFrom, BanRule};

/// Counts a blocked check. Returns when the ban ends that it brings about.
pub(super) fn strike(
    rule: &BanRule,
    head: &mut Head,
    ledger: &impl Ledger,
    wait_us: Option<i64>,
    now_us: i64,
) -> Result<Option<i64>, Need> {
    head.strikes = head.strikes.saturating_add(1);
    let after = i64::from(rule.after);
    // Those since the last ban are enough to know of, if they are too few.
    if head.strikes - head.ban_strikes < after {
        return Ok(None);
    }
    let before = ledger.strikes_before(now_us.saturating_sub(rule.within_us).saturating_add(1))?;
    if head.strikes - before.max(head.ban_strikes) < after {
        return Ok(None);
    }
    let repeated = |ended_us: i64| now_us <= ended_us.saturating_add(rule.longest_us);
    head.bans = if head.banned_until_us.is_some_and(repeated) { head.bans.saturating_add(1) } else { 1 };
    head.ban_strikes = head.strikes;
    let from_us = match rule.from {
        BanFrom::Block => now_us,
        BanFrom::Window => now_us.saturating_add(wait_us.unwrap_or(0)),
    };
    head.banned_until_us = Some(from_us.saturating_add(rule.length_us(head.bans)));
    Ok(head.banned_until_us)
}
