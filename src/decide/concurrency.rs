//! Concurrency: so much at once. Each admitted check holds its cost until it is released, or its time is over.

use crate::zone::Policy;

/// The time when what is taken now ends by itself. The same for a member of a distinct count.
pub(super) fn ends_us(policy: &Policy, now_us: i64) -> i64 {
    now_us.saturating_add(policy.window_us())
}
