//! Removals by owners from the ledger of a zone, as they are hashed.

use super::{Hash, hex, sha256};

/// The hash that the removals of a zone begin with.
pub fn removals(zone_id: i32) -> Hash {
    sha256(&[format!("removals|{zone_id}").as_bytes()])
}

/// A removal by an owner from the ledger of a zone, as it is hashed. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Removal<'r> {
    /// Position among those of the zone.
    pub seq: i64,
    /// `drop` or `erase`.
    pub kind: &'r str,
    /// The time.
    pub removed_us: i64,
    /// Of a drop: rows decided before this time went.
    pub cut_us: Option<i64>,
    /// Of an erasure: what stands in the place of the key.
    pub key: Option<&'r str>,
    /// Of how many buckets.
    pub buckets: i64,
    /// The number of rows.
    pub rows: i64,
    /// The person who did it, as was said.
    pub actor: Option<&'r str>,
    /// The name by which the session was logged in that did it.
    pub login: Option<&'r str>,
    /// The reason.
    pub note: Option<&'r str>,
}

impl Removal<'_> {
    /// The removal's hash, given that of the one before it.
    pub fn hash(&self, before: &Hash) -> Hash {
        let Self { seq, kind, removed_us, buckets, rows, .. } = self;
        let cut_us = self.cut_us.map(|us| us.to_string()).unwrap_or_default();
        let key = self.key.unwrap_or_default();
        let text = |text: Option<&str>| text.map(|text| hex(&sha256(&[text.as_bytes()]))).unwrap_or_default();
        let [actor, login, note] = [self.actor, self.login, self.note].map(text);
        let before = hex(before);
        let line = format!(
            "{before}|{seq}|{kind}|{removed_us}|{cut_us}|{key}|{buckets}|{rows}|{actor}|{login}|{note}"
        );
        sha256(&[line.as_bytes()])
    }
}
