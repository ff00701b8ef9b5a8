//! The requests of the engine: checks, what else happens to a bucket, and units that a process takes.

use uuid::Uuid;

use crate::decide::{Load, Override, Undo};
use crate::decision::Reason;
use crate::entry::Kind;

/// A check as a store wants it: validated, its zone resolved, its transaction named.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub zone: String,
    pub zone_id: i32,
    pub key: String,
    pub txn: Uuid,
    pub cost: i64,
    /// The id was just made here. Where nobody else can say so, on SQLite, the ledger need not be asked for it.
    pub fresh: bool,
    pub record: bool,
    /// It may take from the reserve.
    pub critical: bool,
    /// The member that it is about, where members are counted.
    pub member: Option<String>,
    /// A reservation, which ends by itself after so long.
    pub ttl_us: Option<i64>,
    /// Of which shape the reservation is, whose cost is predicted by that.
    pub shape: Option<String>,
}

impl Request {
    /// Its bucket.
    pub fn bucket(&self) -> (i32, String) {
        (self.zone_id, self.key.clone())
    }

    /// The text of its row in the column `member`.
    pub fn about(&self) -> Option<&str> {
        self.member.as_deref().or(self.shape.as_deref())
    }

    /// True when both are of one bucket.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.zone_id == other.zone_id && self.key == other.key
    }

    /// True when a routine for plain zones knows all of it, and it leaves a row.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn is_plain(&self) -> bool {
        self.leaves_row() && !self.critical && self.member.is_none() && self.ttl_us.is_none()
    }

    /// True when it leaves a row, and so must hold the bucket's lock. A peek only looks.
    pub fn leaves_row(&self) -> bool {
        self.cost > 0 || self.record
    }
}

/// Units that a process takes of a bucket, to decide checks by itself.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    pub zone_id: i32,
    pub key: String,
    pub txn: Uuid,
    /// The units that are taken, if they are to be had.
    pub wants: i64,
    /// An attempt before may have taken them.
    pub again: bool,
}

/// Something that happens to a bucket besides checks, under a transaction: once.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub zone: String,
    pub zone_id: i32,
    pub key: String,
    /// For an undo the one that made the charge.
    pub txn: Uuid,
    pub what: What,
    /// The reason.
    pub note: Option<String>,
    /// The person who does it.
    pub actor: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Undo(Undo),
    /// For so many microseconds.
    Ban(i64),
    Unban,
    Override(Option<Override>),
    /// A check of this cost, which is noted and not charged.
    Unchecked(i64),
}

impl What {
    /// The kind of its ledger row.
    pub fn kind(self) -> Kind {
        match self {
            Self::Undo(Undo::Refund) => Kind::Refund,
            Self::Undo(Undo::Settle(_) | Undo::Used(_)) => Kind::Settle,
            Self::Undo(Undo::Cancel) => Kind::Cancel,
            Self::Undo(Undo::Release) => Kind::Release,
            Self::Ban(_) => Kind::Ban,
            Self::Unban => Kind::Unban,
            Self::Override(Some(_)) => Kind::Override,
            Self::Override(None) => Kind::OverrideEnd,
            Self::Unchecked(_) => Kind::Unchecked,
        }
    }

    /// May only an operator do it?
    pub fn is_an_operators(self) -> bool {
        matches!(self, Self::Ban(_) | Self::Unban | Self::Override(_))
    }
}

/// Units that a process decides by itself with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Took {
    pub txn: Uuid,
    /// The reason why a check that is decided with them passes.
    pub reason: Reason,
    pub units: i64,
    /// The limit of the zone, and what was left in the bucket.
    pub limit: i64,
    pub remaining: i64,
    /// When they were taken, and until when they may be spent.
    pub at_us: i64,
    pub ends_us: i64,
    pub zone_version: i32,
}

/// The choice of which requests of a call pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Each that fits.
    Each,
    /// Each that fits, of the buckets that nobody else holds; the others are left undecided.
    Free,
    /// All, of different buckets, or none.
    Together,
    /// None: each row stands for so many checks that were blocked without asking.
    Unasked(i32),
}

impl Passing {
    /// The number of checks that a row stands for and that were blocked without asking; None for those that ask.
    pub fn unasked(self) -> Option<i32> {
        match self {
            Self::Unasked(checks) => Some(checks),
            _ => None,
        }
    }

    pub fn skips(self) -> bool {
        self == Self::Free
    }
}

/// The load of a queue as it is stored, and by when its items have become something else without a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub load: Load,
    pub settled_us: Option<i64>,
}
