//! A row of the ledger as it is stored: all that its decision can be derived from again, and compared with.

use uuid::Uuid;

use crate::decision::Reason;
use crate::names::names;

/// A row of the ledger, but for its bucket. Times are microseconds since 1970 in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// Number of the row, unique in the ledger.
    pub id: i64,
    /// The transaction.
    pub txn_id: Uuid,
    /// The version of the zone that decided.
    pub zone_version: i32,
    /// Position in the bucket, from 1 without gaps.
    pub seq: i64,
    /// The kind of thing that it records.
    pub kind: Kind,
    /// The number of checks that it stands for.
    pub checks: i32,
    /// May the transaction not pass?
    pub blocked: bool,
    /// The reason.
    pub reason: Reason,
    /// Could the check take from the reserve?
    pub critical: bool,
    /// The importance: 0 is the most; of leases and items of queues.
    pub band: Option<u8>,
    /// The cost that was asked for; what a refund, a cancellation or a release gave back; what a settlement
    /// came to.
    pub cost: i64,
    /// The units that were spent.
    pub spent: i64,
    /// Sum of `spent` over the bucket up to and with this row.
    pub spent_total: i64,
    /// The units that could still be spent after the decision.
    pub remaining: i64,
    /// The most that a check like it could have spent.
    pub zone_limit: i64,
    /// The wait that was promised.
    pub retry_after_us: Option<i64>,
    /// The wait for its turn that the caller was told.
    pub delay_us: Option<i64>,
    /// The level after the row.
    pub level: Option<i64>,
    /// Blocked checks that counted for bans up to and with this row.
    pub strikes: i64,
    /// The time of the charge that the row ends.
    pub target_us: Option<i64>,
    /// The time when it was decided.
    pub at_us: i64,
    /// The time when the row before it in the bucket was decided.
    pub prev_us: Option<i64>,
    /// The time when what it began ends by itself.
    pub ends_us: Option<i64>,
    /// The member that the check was about, where members are counted.
    pub member: Option<String>,
    /// Why, as people wrote it.
    pub note: Option<String>,
    /// The person who did it, as was said, for acts of people.
    pub actor: Option<String>,
    /// By which name the session was logged in that did it, for what people do.
    pub login: Option<String>,
    /// The bucket's salt, in its first row.
    pub salt: Option<[u8; 16]>,
    /// The hash of the row before it and of all that it says.
    pub row_hash: [u8; 32],
}

impl LedgerRow {
    /// Is it a reservation whose cost was to be predicted, by the shape that stands in the place of a member?
    pub(crate) fn is_predicted(&self) -> bool {
        self.kind == Kind::Reserve && self.member.is_some()
    }
}

/// The kinds of things that a row of the ledger records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A check.
    Check,
    /// A check whose charge ends by itself.
    Reserve,
    /// Checks that were blocked without asking the database.
    Coalesced,
    /// A check that passed while the database did not answer.
    Unchecked,
    /// A client may use some of a capacity for a time.
    Lease,
    /// A process took units to decide checks by itself for a time.
    Local,
    /// An item was offered to a queue.
    Offer,
    /// An item of a queue was taken by a worker.
    Take,
    /// A worker keeps an item for longer.
    Extend,
    /// An item was worked off.
    Done,
    /// A worker gave an item back.
    Requeue,
    /// An item had to make room for a more important one.
    Evict,
    /// The charge of a check was given back.
    Refund,
    /// A reservation became a charge.
    Settle,
    /// A reservation was given back.
    Cancel,
    /// A slot was given back.
    Release,
    /// Nothing passes for a time.
    Ban,
    /// A ban was lifted.
    Unban,
    /// A limit of the bucket's own began.
    Override,
    /// It ended before its time.
    OverrideEnd,
}

impl Kind {
    /// True for what decided, or let pass, a transaction: a transaction has one such row in a bucket.
    pub fn is_check(self) -> bool {
        matches!(self, Self::Check | Self::Reserve | Self::Coalesced | Self::Unchecked)
    }

    /// True for what may have charged something that can be given back.
    pub(crate) fn is_charge(self) -> bool {
        self.is_check() || self == Self::Local
    }

    /// True for what happens to the items of a queue.
    pub fn is_of_queue(self) -> bool {
        matches!(self, Self::Offer | Self::Take | Self::Extend | Self::Done | Self::Requeue | Self::Evict)
    }

    /// True for what ends a charge: a transaction has at most one such row in a bucket.
    pub fn is_undo(self) -> bool {
        matches!(self, Self::Refund | Self::Settle | Self::Cancel | Self::Release)
    }
}

names!(
    ledger Kind, "kind",
    Check "check", Reserve "reserve", Coalesced "coalesced", Unchecked "unchecked", Lease "lease", Local "local",
    Refund "refund", Settle "settle",
    Cancel "cancel", Release "release", Ban "ban", Unban "unban", Override "override", OverrideEnd "override_end",
    Offer "offer", Take "take", Extend "extend", Done "done", Requeue "requeue", Evict "evict",
);
