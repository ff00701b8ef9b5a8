//! The facts that the core looks at when it decides: for a reader to whom a decision is explained.

use super::bring::Brought;
use super::token_bucket::Units;
use super::{Bucket, Head, Ledger, Need, bring, share, window};
use crate::zone::{Family, Policy};

/// A bucket at a time, brought through all that happened since its last row.
pub(crate) struct Seen {
    /// Its level is that at the time.
    pub head: Head,
    /// The policy that is in force, an override included.
    pub policy: Policy,
    /// The time from which a window counts everything.
    pub from_us: Option<i64>,
    pub fade: Option<Fading>,
    pub units: Option<LevelUnits>,
}

/// The slot that a sliding counter is leaving: from a time on up to the window's start, so many parts of so many count.
#[derive(Clone, Copy)]
pub(crate) struct Fading {
    pub from_us: i64,
    pub part: i64,
    pub of: i64,
}

/// In what a level is counted.
#[derive(Clone, Copy)]
pub(crate) struct LevelUnits {
    pub per_us: i64,
    pub per_token: i64,
    pub capacity: i64,
}

impl Fading {
    /// The part of what was spent in the slot that counts.
    pub fn share(&self, spent: i64) -> i64 {
        share(spent.max(0), self.part, self.of)
    }
}

pub(crate) fn see(bucket: Bucket<'_>, ledger: &impl Ledger, now_us: i64) -> Result<Seen, Need> {
    let now_us = bucket.head.clamp(now_us);
    let Brought { head, level, policy } = bring::to(&bucket, ledger, now_us)?;
    let (head, policy) = (Head { level, ..*head }, policy.into_owned());
    let family = policy.algorithm().family();
    let frame = (family == Family::Window).then(|| window::frame(&policy, now_us));
    let units = (family == Family::Level).then(|| {
        let Units { per_us, per_token, capacity } = Units::of(&policy);
        LevelUnits { per_us, per_token, capacity }
    });
    let fade = frame.and_then(|frame| frame.fade);
    let fade = fade.map(|fade| Fading { from_us: fade.from_us, part: fade.part, of: fade.of });
    Ok(Seen { head, policy, from_us: frame.map(|frame| frame.from_us), fade, units })
}
