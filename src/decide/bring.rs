//! Brings a bucket to a later time, through the changes of its policy, the end of its override and the ends of what it
//! holds.

use std::borrow::Cow;

use super::{Bucket, Carried, Exception, Head, Ledger, Need, Version, share_up, token_bucket, window};
use crate::error::Error;
use crate::zone::{Family, Policy, RunningBuckets, UNITS_MAX};

/// The most that is carried over: more would say nothing more of any limit, and the sums could not be reckoned
/// with.
pub(crate) const CARRIED_MAX: i64 = 4 * UNITS_MAX;

/// A bucket at a time after its last row.
pub(super) struct Brought<'b> {
    /// The head that the row left behind, or what has become of it since.
    pub head: Cow<'b, Head>,
    /// The level at the time, in place of the head's.
    pub level: Option<i64>,
    /// The policy that is in force for the bucket then.
    pub policy: Cow<'b, Policy>,
}

/// Brings a bucket to a time that is not before its own.
pub(super) fn to<'b>(bucket: &Bucket<'b>, ledger: &impl Ledger, now_us: i64) -> Result<Brought<'b>, Need> {
    let head = bucket.head;
    let Some((mut first, mut later)) = bucket.versions.split_first() else {
        return Err(Error::invalid("no policy was given to decide by").into());
    };
    if let (0, Some(current)) = (head.seq, later.last()) {
        (first, later) = (current, &[]);
    }
    let mut at_us = if head.seq == 0 { now_us } else { head.last_us };
    let level = first.policy.algorithm().family() == Family::Level;
    if later.is_empty() && head.exception.is_none() && (bucket.holds.is_empty() || !level) {
        // Nothing has happened in between: so it is with nearly every check.
        let refill = |before| token_bucket::refill(&first.policy, before, now_us.saturating_sub(at_us));
        let level = if level { head.level.map(refill) } else { head.level };
        return Ok(Brought { head: Cow::Borrowed(head), level, policy: Cow::Borrowed(&first.policy) });
    }
    let mut head = *head;
    let head = &mut head;
    let mut version = first;
    let mut later = later.iter().peekable();
    let mut ends: Vec<_> = Vec::new();
    if level || later.peek().is_some() {
        ends.extend(bucket.holds.iter().filter(|hold| hold.ends_us > at_us && hold.ends_us <= now_us));
        ends.sort_by_key(|hold| hold.ends_us);
    }
    let mut ends = ends.into_iter().peekable();
    loop {
        let policy = effective(version, head.exception.as_ref());
        let end_us = ends.peek().map(|hold| hold.ends_us);
        let change_us = later.peek().map(|next| next.changed_us.clamp(at_us, now_us));
        let over_us = head.exception.and_then(|over| over.until_us).filter(|&until_us| until_us <= now_us);
        let next_us = [end_us, change_us, over_us].into_iter().flatten().min().unwrap_or(now_us).max(at_us);
        if policy.algorithm().family() == Family::Level {
            head.level =
                head.level.map(|level| token_bucket::refill(&policy, level, next_us.saturating_sub(at_us)));
        }
        at_us = next_us;
        if end_us.is_some_and(|end_us| end_us <= at_us) {
            let hold = ends.next().filter(|hold| !head.forgot(hold.seq));
            if let (Family::Level, Some(hold)) = (policy.algorithm().family(), hold) {
                head.level = head.level.map(|level| token_bucket::give_back(&policy, level, hold.amount));
            }
        } else if change_us.is_some_and(|change_us| change_us <= at_us) {
            if let Some(next) = later.next() {
                let after = effective(next, head.exception.as_ref());
                convert(head, bucket, ledger, [&policy, &after], next.policy.running_buckets(), at_us)?;
                version = next;
            }
        } else if over_us.is_some_and(|over_us| over_us <= at_us) {
            head.exception = None;
            convert(head, bucket, ledger, [&policy, &version.policy], RunningBuckets::AsIs, at_us)?;
        } else {
            return Ok(Brought { level: head.level, head: Cow::Owned(*head), policy });
        }
    }
}

/// The policy of a version in a bucket with an override.
pub(super) fn effective<'v>(version: &'v Version, exception: Option<&Exception>) -> Cow<'v, Policy> {
    match exception.and_then(|exception| exception.limit) {
        Some(limit) => Cow::Owned(version.policy.overridden(limit)),
        None => Cow::Borrowed(&version.policy),
    }
}

/// Carries what was used under the old policy over to the new one.
pub(super) fn convert(
    head: &mut Head,
    bucket: &Bucket<'_>,
    ledger: &impl Ledger,
    [old, new]: [&Policy; 2],
    running: RunningBuckets,
    at_us: i64,
) -> Result<(), Need> {
    let families = [old.algorithm().family(), new.algorithm().family()];
    let carried = |amount| Some(Carried { at_us, amount, total: head.spent_total, seq: head.seq });
    match (running, families) {
        (RunningBuckets::Reset, _) => {
            head.carried = carried(0);
            head.level = None;
        }
        (RunningBuckets::Proportional, [Family::Window | Family::Level, Family::Window | Family::Level]) => {
            let (used, of) = if families[0] == Family::Level {
                token_bucket::used(old, head.level)
            } else {
                let bucket = Bucket { head, ..*bucket };
                (window::used(old, &bucket, ledger, at_us)?, old.limit())
            };
            if families[1] == Family::Window {
                head.carried = carried(share_up(used, new.limit(), of).min(CARRIED_MAX));
                head.level = None;
            } else {
                head.level = Some(token_bucket::with_used(new, used, of));
            }
        }
        (_, [Family::Level, Family::Level]) => {
            head.level = head.level.map(|level| token_bucket::carry(old, new, level));
        }
        _ => head.level = None,
    }
    Ok(())
}
