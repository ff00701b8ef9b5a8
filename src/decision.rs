//! The answer to a caller.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::names;

/// By so much clocks differ at most; a decision that is later than now by more was made by one that was ahead.
const AHEAD: TimeDelta = TimeDelta::minutes(1);

/// Is it not yet time for this decision?
pub(crate) fn is_ahead(decided_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    decided_at.signed_duration_since(now) > AHEAD
}

/// The answer to a [`Check`](crate::Check).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Decision {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
    /// The transaction that was decided: the caller's own id, or the one that was made for it.
    pub txn_id: Uuid,
    /// True when the transaction may not pass. It spent nothing, unless the zone counts blocked checks.
    pub blocked: bool,
    /// The reason.
    pub reason: Reason,
    /// The most that the zone admits: its burst, or its rate.
    pub limit: i64,
    /// The units that can still be spent after this decision, rounded down; never negative.
    pub remaining: i64,
    /// The least wait, in microseconds, after which the same request passes if nothing else arrives. It counts from the
    /// database's clock: from `decided_at`, or from before where that is still to come. None when it was allowed, and when
    /// it [can never pass](Self::never_passes).
    pub retry_after_us: Option<i64>,
    /// The wait for the caller's turn, in microseconds as `retry_after_us`, where the check was allowed into a queue; None
    /// for other algorithms.
    pub delay_us: Option<i64>,
    /// When what it took ends by itself: a reservation, a slot, a member.
    pub ends_at: Option<DateTime<Utc>>,
    /// Position in the bucket's ledger, from 1 without gaps. None for a peek.
    pub seq: Option<i64>,
    /// The version of the zone's policy that decided.
    pub zone_version: i32,
    /// The database's time of the decision; that of the bucket's last row where the clock has gone backwards since.
    pub decided_at: DateTime<Utc>,
    /// True when the caller named the transaction, and it had been decided before: then nothing was spent now. That may have been
    /// by an attempt of the same call whose answer was lost, when a connection broke or a statement was killed at its
    /// commit. So all answers can say true; at most one says false.
    pub replayed: bool,
    /// Where the process decided by itself, with units that it had taken under this transaction before: that one has a row in the
    /// ledger, and the decision has none. Then `seq` is None, `decided_at` is what the process takes for the database's time, and
    /// `remaining` is what the process knew last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Uuid>,
}

impl Decision {
    /// True when the transaction may pass.
    pub fn is_allowed(&self) -> bool {
        !self.blocked
    }

    /// True when it would have been blocked, if the zone's mode were not [`Mode::Shadow`](crate::policy::Mode::Shadow).
    pub fn is_shadowed(&self) -> bool {
        !self.blocked && !self.reason.allows()
    }

    /// The wait for the caller's turn before it goes on; zero but for a leaky queue.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us.and_then(|us| u64::try_from(us).ok()).unwrap_or(0))
    }

    /// True when it was blocked, and will be after any wait: it costs more than the whole limit.
    pub fn never_passes(&self) -> bool {
        self.blocked && self.reason == Reason::ExceedsLimit
    }

    /// The least wait as a duration; None when it was allowed or [can never pass](Self::never_passes).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us.and_then(|us| u64::try_from(us).ok()).map(Duration::from_micros)
    }
}

/// The answer to the routine `check_velocity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Velocity {
    /// True when the transaction may not pass.
    pub blocked: bool,
    /// Number of its row in the ledger: a reference for whoever asks later.
    pub id: i64,
    /// The zone's number.
    pub zone_id: i32,
    /// The bucket's key.
    pub key: String,
    /// The units that the zone admits in a window.
    pub rate: i64,
    /// The window in seconds, rounded up.
    pub window_seconds: i64,
}

/// The reasons of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Allowed: the cost fitted.
    WithinLimit,
    /// Allowed with a warning: the cost fitted, beyond the soft limit.
    Soft,
    /// Allowed: the zone is switched off.
    Off,
    /// Allowed while the database did not answer: the zone says so.
    Unchecked,
    /// Blocked: the cost does not fit now; it will after the wait.
    OverLimit,
    /// Blocked: the cost is more than the whole limit and can never pass.
    ExceedsLimit,
    /// Blocked: the bucket is banned.
    Banned,
    /// Blocked: it would have passed, but another limit of the same request did not.
    HeldBack,
    /// Blocked by this process alone, see [`Config::shield`](crate::Config::shield). No row says so.
    LocalLimit,
    /// No decision: the row records another event.
    Recorded,
}

impl Reason {
    /// True when a check passes for this reason, whatever the mode of its zone.
    pub fn allows(self) -> bool {
        !matches!(
            self,
            Self::OverLimit | Self::ExceedsLimit | Self::Banned | Self::HeldBack | Self::LocalLimit
        )
    }
}

names!(
    ledger Reason, "reason",
    WithinLimit "within_limit", Soft "soft", Off "off", Unchecked "unchecked", OverLimit "over_limit",
    ExceedsLimit "exceeds_limit", Banned "banned", HeldBack "held_back", LocalLimit "local_limit", Recorded "recorded",
);
