//! The parts of an explanation.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::audit::compare::Difference;
use crate::entry::Entry;
use crate::zone::{BanRule, Limit, ZoneVersion};

/// The explanation of a transaction: each of its rows, in every bucket that it touched.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Explained {
    /// The transaction.
    pub txn_id: Uuid,
    /// Of several limits that were asked together, the one that blocked it the longest; None when nothing blocked it.
    pub binding: Option<Binding>,
    /// Its rows, bucket by bucket, in the order in which they were recorded.
    pub rows: Vec<ExplainedRow>,
}

/// A limit that blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Binding {
    /// The zone's name.
    pub zone: String,
    /// The bucket's key.
    pub key: String,
}

/// A row, and the facts that it was decided from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ExplainedRow {
    /// The row.
    #[serde(flatten)]
    pub row: Entry,
    /// The most that a check like it could have spent.
    pub limit: i64,
    /// The zone's policy at the row's version; None when that version is missing.
    pub policy: Option<ZoneVersion>,
    /// The limit of the bucket's own that was in force, or that the row began.
    pub bucket_override: Option<Bar>,
    /// The ban that was in force, or that the row began.
    pub ban: Option<Bar>,
    /// The charges that counted at that moment, where the zone counts charges: those of its window, or those
    /// that were held.
    pub counted: Option<Counted>,
    /// The level at that moment, where the zone has one.
    pub level_was: Option<Level>,
    /// Of a lease: the capacity that it was a share of.
    pub leased: Option<Leased>,
    /// Of a reservation whose cost was to be predicted: the settlements that it was predicted from. None also where nothing
    /// was known.
    pub predicted: Option<Taught>,
    /// Of a row of a queue: the load of the queue before it.
    pub queued: Option<Queued>,
    /// The units that a check like it could have spent before it; None when rows before it are missing.
    pub left_before: Option<i64>,
    /// The time when the same request would have passed, had nothing else arrived; None when it passed, or never would.
    pub passes_at: Option<DateTime<Utc>>,
    /// Do the rows before it lead to exactly this row? None when some of them are missing.
    pub reproduced: Option<bool>,
    /// The columns in which it differs from the row that they lead to.
    pub differences: Vec<Difference>,
    /// The reason why it cannot be derived.
    pub missing: Option<String>,
}

/// The settlements that a prediction was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Taught {
    /// The cost that was predicted.
    pub cost: i64,
    /// The number of settlements.
    pub samples: i64,
    /// The time of the last of them.
    pub learned_at: DateTime<Utc>,
    /// True when they were those of all the shapes together that were not kept apart.
    pub shared: bool,
}

/// A ban or an override, as its row in the bucket's ledger has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Bar {
    /// The row that set it.
    pub seq: i64,
    /// The time when it was set.
    pub set_at: DateTime<Utc>,
    /// The time when it was to end; None for never.
    pub ends_at: Option<DateTime<Utc>>,
    /// The reason, as people wrote it; None for a ban that blocked checks brought about.
    pub note: Option<String>,
    /// The person who set it, as was said.
    pub actor: Option<String>,
    /// The name by which the database knows the session that set it, see [`Entry::login`](crate::ledger::Entry::login).
    pub login: Option<String>,
    /// The transaction that brought it about, or its own.
    pub txn_id: Uuid,
    /// Of an override: the limit; None keeps the zone's.
    pub limit: Option<Limit>,
    /// Of an override: True when blocked checks do not lead to a ban.
    pub ban_exempt: bool,
    /// Of a ban that blocked checks brought about: those checks, and why it lasts as long as it does. None also where rows
    /// before it are missing.
    pub cause: Option<Cause>,
    /// Of an override whose own row is explained: the time of the last check that was decided by it; None when there was none.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// The blocked checks that brought about a ban, and why it lasts as long as it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Cause {
    /// The zone's rule at that moment.
    pub rule: BanRule,
    /// The number of blocked checks within the rule's time, without those before the previous ban.
    pub blocked: u64,
    /// The newest of them, oldest first: as many as were asked for.
    pub checks: Vec<BlockedCheck>,
    /// Its number among the bans that followed each other closely, from 1.
    pub number: i32,
    /// The time when the ban before it ended; None for the first.
    pub last_ended_at: Option<DateTime<Utc>>,
    /// The time from which its length counts: that of the last of the blocked checks, or the time when that check would have
    /// passed without a ban.
    pub counts_from: DateTime<Utc>,
    /// Its length from then on, in microseconds: the first ban's length times the factor for each ban before it, up to the
    /// longest.
    pub length_us: i64,
}

/// A blocked check that counted for a ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct BlockedCheck {
    /// Its transaction.
    pub txn_id: Uuid,
    /// Its row in the bucket's ledger.
    pub seq: i64,
    /// The time when it was blocked.
    pub at: DateTime<Utc>,
}

/// The charges that counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Counted {
    /// The units that counted in all.
    pub used: i64,
    /// Charges of this time or later counted in full; None for what is held, whenever it was charged.
    pub from: Option<DateTime<Utc>>,
    /// Of a sliding counter: the slot before that, of which a share counted.
    pub fading: Option<Fade>,
    /// The sum that counts in place of all charges before a change of policy.
    pub carried: Option<Carry>,
    /// The number of charges.
    pub transactions: u64,
    /// The newest of them, oldest first: as many as were asked for.
    pub charges: Vec<CountedCharge>,
}

/// A slot that is leaving its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Fade {
    /// The time when it began.
    pub from: DateTime<Utc>,
    /// The units that were spent in it, and not given back.
    pub spent: i64,
    /// The part of it that is still in the window, in microseconds.
    pub part_us: i64,
    /// Its whole length in microseconds.
    pub of_us: i64,
    /// The units of it that counted, rounded down.
    pub counts: i64,
}

/// A charge in place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Carry {
    /// The time when the policy changed.
    pub at: DateTime<Utc>,
    /// The units that it stands for.
    pub amount: i64,
}

/// The load of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Queued {
    /// Units that waited.
    pub waiting: i64,
    /// Units that were taken, or given back for a time.
    pub away: i64,
}

/// The share of a client, and the leases of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Leased {
    /// The share that it could have, if the others held no more than theirs.
    pub share: i64,
    /// The time since which the client has had leases that followed each other.
    pub since: DateTime<Utc>,
    /// The leases of the other clients at that moment, in the order of their rows.
    pub others: Vec<OtherLease>,
}

/// A lease of another client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct OtherLease {
    /// Its row in the bucket's ledger.
    pub seq: i64,
    /// The client that had it.
    pub client: String,
    /// The units that it wanted.
    pub wants: i64,
    /// The number of clients that it stood for.
    pub weight: i32,
    /// The importance that it had: 0 is the most.
    pub band: u8,
    /// The units that it had.
    pub has: i64,
    /// The time when it was to end.
    pub ends_at: DateTime<Utc>,
}

/// A charge that counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct CountedCharge {
    /// Its transaction; None for one whose row is too old to have been read.
    pub txn_id: Option<Uuid>,
    /// Its row in the bucket's ledger.
    pub seq: i64,
    /// The time when it was charged.
    pub at: DateTime<Utc>,
    /// The units that it charged.
    pub cost: i64,
    /// The part of that which was given back, or had ended by itself.
    pub given_back: i64,
    /// The time when the rest was to end by itself, of a reservation, a slot or a member.
    pub ends_at: Option<DateTime<Utc>>,
    /// The member that it stands for.
    pub member: Option<String>,
}

/// The level of a token bucket and its kin, in fractions of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Level {
    /// The level after the row before it; None when the bucket began full.
    pub before: Option<i64>,
    /// The time of the row before it.
    pub before_at: Option<DateTime<Utc>>,
    /// The microseconds since then, times `per_us`: the inflow, had there been room for it.
    pub flowed_in: i64,
    /// The level at the moment of the row.
    pub now: i64,
    /// The level after the row.
    pub after: Option<i64>,
    /// The level of a full bucket.
    pub capacity: i64,
    /// The units that a microsecond adds.
    pub per_us: i64,
    /// The units of a whole token.
    pub per_token: i64,
    /// True when something other than time changed it since the row before: a change of policy, the end of an override or
    /// of a reservation.
    pub changed: bool,
}

impl ExplainedRow {
    /// Is it about a check, and not about something else that happened to the bucket?
    pub fn is_check(&self) -> bool {
        self.row.kind.is_check()
    }
}
