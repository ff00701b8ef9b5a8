//! Distinct: so many different members in a window. A member is counted from its first check until its window is over;
//! checks about it in between pass, spend nothing and renew nothing.

use super::{Ask, Hold};

/// The units that the check wants: nothing for a member that is counted already.
pub(super) fn wanted<'b>(ask: &Ask<'_>, mut counted: impl Iterator<Item = &'b Hold>) -> i64 {
    let known = ask.member.is_some() && counted.any(|hold| hold.member.as_deref() == ask.member);
    if known { 0 } else { ask.cost }
}
