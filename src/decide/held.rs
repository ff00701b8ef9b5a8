//! Holds, each with an end of its own. Work is proportional to how many there are, at most the limit.

use super::{Ask, Bucket, Hold, Verdict, concurrency, distinct};
use crate::decision::Reason;
use crate::zone::{Algorithm, Policy};

pub(super) fn decide(
    policy: &Policy,
    bucket: &Bucket<'_>,
    limit: i64,
    ask: &Ask<'_>,
    now_us: i64,
) -> Verdict {
    let live = || live(bucket, now_us);
    let used = live().fold(0_i64, |used, hold| used.saturating_add(hold.amount));
    let free = limit.saturating_sub(used).max(0);
    let wanted = match policy.algorithm() {
        Algorithm::Distinct => distinct::wanted(ask, live()),
        Algorithm::Concurrency | Algorithm::Capacity => ask.cost,
        // The other families hold nothing. They are named, so that a new algorithm is asked for.
        Algorithm::SlidingLog
        | Algorithm::FixedWindow
        | Algorithm::SlidingCounter
        | Algorithm::TokenBucket
        | Algorithm::LeakyBucket
        | Algorithm::LeakyQueue
        | Algorithm::Queue
        | Algorithm::Uniform => ask.cost,
    };
    let verdict = |reason, spent, wait_us| Verdict {
        reason,
        spent,
        remaining: free.saturating_sub(spent),
        wait_us,
        delay_us: None,
        level: None,
        ends_us: Some(concurrency::ends_us(policy, now_us)),
    };
    if wanted > limit {
        return verdict(Reason::ExceedsLimit, 0, None);
    }
    if wanted > 0 && wanted > free {
        return verdict(Reason::OverLimit, 0, Some(wait(live(), used - (limit - wanted), now_us)));
    }
    let soft = policy.soft_rate().is_some_and(|soft| used + wanted > soft);
    verdict(if soft && ask.cost > 0 { Reason::Soft } else { Reason::WithinLimit }, wanted, None)
}

/// The holds that have not ended. A charge from before a change of policy that forgot it is not asked for.
fn live<'b>(bucket: &'b Bucket<'b>, now_us: i64) -> impl Iterator<Item = &'b Hold> {
    bucket.holds.iter().filter(move |hold| hold.ends_us > now_us && !bucket.head.forgot(hold.seq))
}

/// Until so much has ended.
fn wait<'b>(live: impl Iterator<Item = &'b Hold>, too_much: i64, now_us: i64) -> i64 {
    let mut ends: Vec<_> = live.map(|hold| (hold.ends_us, hold.amount)).collect();
    ends.sort_unstable();
    let mut ended = 0_i64;
    let enough = ends.iter().find(|(_, amount)| {
        ended = ended.saturating_add(*amount);
        ended >= too_much
    });
    enough.map_or(0, |(ends_us, _)| ends_us.saturating_sub(now_us))
}
