//! Proves to others that a transaction's rows were in the ledger at a checkpoint. The file is specified in `docs/chain.md`.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::heads::Head;
use super::link::Link;
use super::merkle::{self, Path, Tree};
use super::read::{head, sorted, unsorted};
use super::{Checkpoint, FORMAT};
use crate::audit::Auditor;
use crate::audit::hashed::hashed;
use crate::chain::{self, Hash, Salt, hex, sha256, unhex};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};
use crate::store::{Bucket, BucketAt, EvidenceOf};

/// A proof that a transaction's rows were in the ledger at a [`Checkpoint`]. A person who has both checks it without the
/// database.
///
/// Keys, members, notes and authors are in it by salted hashes only, unless they are disclosed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Proof {
    /// Version of the file's format: 1.
    pub format: u32,
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// The transaction.
    pub txn_id: Uuid,
    /// The buckets in which it has rows.
    pub buckets: Vec<ProvenBucket>,
}

/// One bucket of a [`Proof`]. Hashes and bytes are hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ProvenBucket {
    /// Its zone.
    pub zone_id: i32,
    /// The hash that its chain begins with.
    pub start: String,
    /// The hash of the row before the first one here; of a first row, `start`.
    pub before: String,
    /// The rows from the transaction's first to the last one of the checkpoint: what each is hashed as, without the hash of
    /// the row before it.
    pub rows: Vec<String>,
    /// Number of the bucket among those of the zone, from 0.
    pub index: u64,
    /// The hashes that stand beside it in the tree, from the leaf up.
    pub path: Vec<String>,
    /// The texts that show whose bucket it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disclosed: Option<Disclosed>,
}

/// The personal data that a proof tells. With the salt, members, notes and authors of all rows in the proof can be
/// guessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Disclosed {
    /// The bucket's key.
    pub key: String,
    /// The bucket's salt: 32 hexadecimal digits.
    pub salt: String,
    /// The member of the transaction's first row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// A row that a proof proves to have been in the ledger. Fields as in [`Entry`](crate::ledger::Entry).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ProvenRow {
    /// The zone's name.
    pub zone: String,
    /// The hash that the bucket's chain begins with.
    pub bucket: String,
    /// The bucket's key, where it is disclosed.
    pub key: Option<String>,
    /// The place where it is disclosed.
    pub member: Option<String>,
    /// Position in the bucket.
    pub seq: i64,
    /// The transaction.
    pub txn_id: Uuid,
    /// The time when it was decided.
    pub decided_at: DateTime<Utc>,
    /// The kind of thing that it records.
    pub kind: String,
    /// The number of checks that it stands for.
    pub checks: i32,
    /// True when the transaction could not pass.
    pub blocked: bool,
    /// The reason.
    pub reason: String,
    /// The cost that was asked for.
    pub cost: i64,
    /// The units that were spent.
    pub spent: i64,
    /// The units that could still be spent.
    pub remaining: i64,
    /// The most that could have been spent.
    pub zone_limit: i64,
    /// The wait that was promised.
    pub retry_after_us: Option<i64>,
    /// The time when what it began ends by itself.
    pub ends_at: Option<DateTime<Utc>>,
    /// The version of the zone that decided.
    pub zone_version: i32,
}

/// Proves a transaction's rows of before the checkpoint's cut, each bucket with at most so many rows behind them.
pub(crate) async fn prove(
    auditor: &Auditor,
    txn_id: Uuid,
    checkpoint: &Checkpoint,
    disclose: bool,
    rows_max: u32,
) -> Result<Proof> {
    let rows = auditor.read(|store| store.ledger_txn(txn_id)).await?;
    if rows.is_empty() {
        return Err(Error::invalid(format!("no row of the ledger has the transaction {txn_id}")));
    }
    let mut buckets: Vec<(Bucket, LedgerRow)> = Vec::new();
    for (bucket, row) in rows {
        let known = buckets.last().is_some_and(|(last, _)| *last == bucket);
        if !known && row.at_us <= checkpoint.cut_at.timestamp_micros() {
            buckets.push((bucket, row));
        }
    }
    if buckets.is_empty() {
        return Err(Error::invalid(format!(
            "transaction {txn_id} is younger than the checkpoint, which ends at {}; use a later one",
            super::written(checkpoint.cut_at)
        )));
    }
    let mut proof =
        Proof { format: FORMAT, checkpoint: checkpoint.digest.clone(), txn_id, buckets: Vec::new() };
    for (bucket, row) in buckets {
        proof.buckets.push(prove_bucket(auditor, &bucket, &row, checkpoint, disclose, rows_max).await?);
    }
    proof.check(checkpoint).map_err(|e| {
        Error::invalid("the rows of the ledger are not what their hashes say; see: tallygate audit verify")
            .caused_by(e)
    })?;
    Ok(proof)
}

async fn prove_bucket(
    auditor: &Auditor,
    (zone_id, key): &Bucket,
    first: &LedgerRow,
    checkpoint: &Checkpoint,
    disclose: bool,
    rows_max: u32,
) -> Result<ProvenBucket> {
    let mut bucket: Option<BucketAt> = None;
    let mut keep = |seen: &BucketAt| {
        if seen.key == *key {
            bucket = Some(seen.clone());
        }
    };
    let mut heads = sorted(auditor, *zone_id, checkpoint.cut_at, &mut keep).await?;
    let last = bucket.as_ref().and_then(|bucket| head(*zone_id, bucket));
    let mut tree = Tree::default();
    while let Some(head) = heads.next().map_err(unsorted)? {
        if !head.is_lost() {
            tree.push(merkle::leaf(&head.bytes()), Some(head) == last);
        }
    }
    let (_, root, path) = tree.finish();
    let is_same = checkpoint.zone(*zone_id).is_some_and(|zone| zone.buckets_root == hex(&root));
    let (Some(bucket), Some(last), Some(path), true) = (bucket, last, path, is_same) else {
        return Err(Error::invalid(
            "the ledger is not what it was at the checkpoint, so nothing can be proven by it; \
             see: tallygate audit checkpoint --check FILE",
        ));
    };
    if last.seq - first.seq >= i64::from(rows_max) {
        return Err(Error::invalid(format!(
            "{} rows of the bucket follow the transaction up to the checkpoint, and a proof has them all; use a checkpoint \
             that is nearer to {}, or allow more with --rows",
            last.seq - first.seq,
            super::written(DateTime::from_timestamp_micros(first.at_us).unwrap_or_default())
        )));
    }
    let salt = bucket.salt.as_ref();
    let (before, rows) = links(auditor, (*zone_id, key), first, salt, checkpoint, last.seq).await?;
    let disclosed = match (disclose, salt) {
        (false, _) => None,
        (true, None) => {
            return Err(Error::invalid(
                "the bucket's key is erased and cannot be disclosed; prove without --disclose",
            ));
        }
        (true, Some(salt)) => {
            Some(Disclosed { key: key.clone(), salt: hex(salt), member: first.member.clone() })
        }
    };
    Ok(ProvenBucket {
        zone_id: *zone_id,
        start: hex(&last.start),
        before: hex(&before.unwrap_or(last.start)),
        rows: rows.iter().map(|row| hex(row)).collect(),
        index: path.index,
        path: path.beside.iter().map(|hash| hex(hash)).collect(),
        disclosed,
    })
}

/// The hash of the row before the first one, if there is one, and what the rows are hashed as.
async fn links(
    auditor: &Auditor,
    (zone_id, key): (i32, &str),
    first: &LedgerRow,
    salt: Option<&Salt>,
    checkpoint: &Checkpoint,
    last_seq: i64,
) -> Result<(Option<Hash>, Vec<Vec<u8>>)> {
    let at = |us| DateTime::from_timestamp_micros(us).unwrap_or_default();
    let since = at(first.prev_us.unwrap_or(first.at_us));
    let mut of = EvidenceOf {
        zone_id,
        after: (key.to_owned(), since, first.seq - 2),
        since,
        until: checkpoint.cut_at + TimeDelta::microseconds(1),
    };
    let (mut before, mut rows, mut seq) = (None, Vec::new(), first.seq - 1);
    while seq < last_seq {
        let page = auditor.read(|store| store.evidence(&of)).await?;
        let Some(end) = page.iter().rfind(|evidence| evidence.key == key) else { break };
        (of.after.1, of.after.2) = (at(end.row.at_us), end.row.seq);
        for evidence in page.into_iter().filter(|evidence| evidence.key == key) {
            if evidence.row.seq < first.seq {
                before = Some(evidence.row_hash);
            } else {
                rows.push(hashed(&evidence.row, evidence.exception).bytes(salt));
                seq = evidence.row.seq;
            }
        }
    }
    Ok((before, rows))
}

impl Proof {
    /// Reads a proof.
    ///
    /// # Errors
    /// Invalid: it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let proof: Self = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("the file is no proof: {e}")).caused_by(e))?;
        if proof.format != FORMAT {
            return Err(Error::invalid(format!(
                "the proof has format {} and this program reads {FORMAT}; use the program that wrote it",
                proof.format
            )));
        }
        Ok(proof)
    }

    /// Checks it, and tells the transaction's rows that it proves. Needs no database.
    ///
    /// # Errors
    /// Invalid: it is of another checkpoint, or was changed.
    pub fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<ProvenRow>> {
        if self.checkpoint != checkpoint.digest {
            return Err(Error::invalid(format!(
                "the proof is of the checkpoint {} and not of {}; use that one",
                self.checkpoint, checkpoint.digest
            )));
        }
        let mut proven = Vec::new();
        for bucket in &self.buckets {
            proven.extend(bucket.check(self.txn_id, checkpoint)?);
        }
        if proven.is_empty() {
            return Err(changed("it has no bucket"));
        }
        Ok(proven)
    }
}

impl ProvenBucket {
    fn check(&self, txn_id: Uuid, checkpoint: &Checkpoint) -> Result<Vec<ProvenRow>> {
        let zone = checkpoint.zone(self.zone_id).ok_or_else(|| changed("the checkpoint has no such zone"))?;
        let hash = |digits: &str| unhex::<32>(digits).ok_or_else(|| changed("what should be a hash is none"));
        let (start, mut row_hash) = (hash(&self.start)?, hash(&self.before)?);
        let starts_chain = row_hash == start;
        let mut seq = 0;
        let mut rows = Vec::new();
        for (n, row) in self.rows.iter().enumerate() {
            let bytes = unhex_all(row).ok_or_else(|| changed("what should be a row is none"))?;
            let link = Link::read(&bytes).ok_or_else(|| changed("what should be a row is none"))?;
            let follows = if n == 0 { starts_chain == (link.seq == 1) } else { link.seq == seq + 1 };
            if !follows {
                return Err(changed("its rows do not follow each other"));
            }
            seq = link.seq;
            row_hash = sha256(&[&row_hash, &bytes]);
            if link.txn_id == txn_id {
                rows.push(link);
            }
        }
        let leaf = merkle::leaf(&Head { zone_id: self.zone_id, start, seq, row_hash }.bytes());
        let beside = self.path.iter().map(|digits| hash(digits)).collect::<Result<_>>()?;
        let root = Path { index: self.index, beside }.root(leaf, zone.buckets);
        if root.is_none_or(|root| hex(&root) != zone.buckets_root) {
            return Err(changed("its rows do not lead to the checkpoint"));
        }
        if rows.is_empty() {
            return Err(changed("it has no row of its transaction"));
        }
        let disclosed = self.disclosed.as_ref();
        if let Some(disclosed) = disclosed {
            let salt: Option<Salt> = unhex(&disclosed.salt);
            let is_key = chain::bucket(salt.as_ref(), self.zone_id, &disclosed.key) == start;
            let member = disclosed.member.as_ref().map(|member| chain::text(salt.as_ref(), member));
            let is_member = rows.first().is_some_and(|row| row.member == member);
            if salt.is_none() || !is_key || !is_member {
                return Err(changed("the key or the member that it discloses is another one"));
            }
        }
        let tell = |(n, row): (usize, Link)| ProvenRow {
            zone: zone.zone.clone(),
            bucket: self.start.clone(),
            key: disclosed.map(|disclosed| disclosed.key.clone()),
            member: disclosed.filter(|_| n == 0).and_then(|disclosed| disclosed.member.clone()),
            seq: row.seq,
            txn_id: row.txn_id,
            decided_at: row.decided_at,
            kind: row.kind,
            checks: row.checks,
            blocked: row.blocked,
            reason: row.reason,
            cost: row.cost,
            spent: row.spent,
            remaining: row.remaining,
            zone_limit: row.zone_limit,
            retry_after_us: row.retry_after_us,
            ends_at: row.ends_at,
            zone_version: row.zone_version,
        };
        Ok(rows.into_iter().enumerate().map(tell).collect())
    }
}

fn unhex_all(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| std::str::from_utf8(pair).ok().and_then(unhex::<1>).map(|[byte]| byte)).collect()
}

fn changed(what: &str) -> Error {
    Error::invalid(format!("the proof was changed: {what}; use the original"))
}
