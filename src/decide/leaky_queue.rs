//! Leaky queue: those who are admitted go on one after the other, at even distances.

use super::token_bucket::Units;

/// The time that the queue takes to serve what is in it: the level is the room that is left.
pub(super) fn delay_us(units: &Units, level: i64) -> i64 {
    units.time_for(units.capacity.saturating_sub(level))
}
