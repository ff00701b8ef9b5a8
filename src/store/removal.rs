//! Removals by owners from the ledger: a chain of its own for each zone, to which upkeep and erasures append.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::chain::{self, Hash};

/// The number of removals of a page, unless it is the last.
pub(crate) const REMOVALS: usize = 1_000;

/// A removal as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Removal {
    pub seq: i64,
    pub kind: String,
    #[serde(serialize_with = "moment")]
    pub removed_at: DateTime<Utc>,
    /// Of a drop.
    #[serde(serialize_with = "moment_if")]
    pub cut_at: Option<DateTime<Utc>>,
    /// Of an erasure.
    pub bucket_key: Option<String>,
    pub buckets: i64,
    pub ledger_rows: i64,
    pub actor: Option<String>,
    pub login: Option<String>,
    pub note: Option<String>,
    #[serde(serialize_with = "digits")]
    pub row_hash: Hash,
}

/// A removal that is to be recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Removing<'r> {
    Drop { cut_at: DateTime<Utc>, buckets: u64, rows: u64 },
    Erase { key: &'r str, rows: u64, by: &'r str, note: &'r str },
}

/// The removal that one follows, and the user who is logged in.
pub(super) struct Before {
    pub last: Option<(i64, Hash)>,
    pub removed_at: DateTime<Utc>,
    pub login: Option<String>,
}

impl Removing<'_> {
    pub fn after(&self, zone_id: i32, before: Before) -> Removal {
        let (kind, cut_at, key, buckets, rows, said) = match *self {
            Self::Drop { cut_at, buckets, rows } => ("drop", Some(cut_at), None, buckets, rows, None),
            Self::Erase { key, rows, by, note } => ("erase", None, Some(key), 1, rows, Some((by, note))),
        };
        let (seq, hash) = before.last.unwrap_or((0, chain::removals(zone_id)));
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut removal = Removal {
            seq: seq.saturating_add(1),
            kind: kind.to_owned(),
            removed_at: before.removed_at,
            cut_at,
            bucket_key: key.map(str::to_owned),
            buckets: number(buckets),
            ledger_rows: number(rows),
            actor: said.map(|(by, _)| by.to_owned()),
            login: before.login,
            note: said.map(|(_, note)| note.to_owned()),
            row_hash: hash,
        };
        removal.row_hash = removal.hash(&hash);
        removal
    }
}

impl Removal {
    /// Its hash, given that of the one before it.
    pub fn hash(&self, before: &Hash) -> Hash {
        let removal = chain::Removal {
            seq: self.seq,
            kind: &self.kind,
            removed_us: self.removed_at.timestamp_micros(),
            cut_us: self.cut_at.map(|at| at.timestamp_micros()),
            key: self.bucket_key.as_deref(),
            buckets: self.buckets,
            rows: self.ledger_rows,
            actor: self.actor.as_deref(),
            login: self.login.as_deref(),
            note: self.note.as_deref(),
        };
        removal.hash(before)
    }
}

fn digits<S: serde::Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&chain::hex(hash))
}

fn moment<S: serde::Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Micros, true))
}

fn moment_if<S: serde::Serializer>(at: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => moment(at, serializer),
        None => serializer.serialize_none(),
    }
}
