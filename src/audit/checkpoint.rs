//! Checkpoints: what the ledger was at a time, in a file that is kept elsewhere. The bytes are specified in `docs/chain.md`.

mod check;
mod heads;
mod key;
mod link;
mod merkle;
mod proof;
mod read;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::chain::{self, Hash, hex, sha256, unhex};
use crate::error::{Error, Result};
use merkle::Tree;

pub(crate) use check::check;
pub(crate) use proof::prove;
pub(crate) use read::take;

pub use check::{Changed, Comparison, HeadDifference};
pub use key::CheckpointKey;
pub use proof::{Disclosed, Proof, ProvenBucket, ProvenRow};

/// The format that is written and read.
const FORMAT: u32 = 1;

/// The state of the ledger at a time: the ends of all chains, in some hundred bytes for each zone.
///
/// A person who keeps one where the ledger's owner cannot change it finds out later whether any row of before was
/// changed, removed or slipped in. Holds no personal data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Checkpoint {
    /// Version of the file's format: 1.
    pub format: u32,
    /// When it was made, by the database's clock.
    #[serde(serialize_with = "moment")]
    pub made_at: DateTime<Utc>,
    /// It tells of the rows up to and with this time.
    #[serde(serialize_with = "moment")]
    pub cut_at: DateTime<Utc>,
    /// The number of buckets that had rows.
    pub buckets: u64,
    /// The number of rows that they had: the sum of the `seq` of their last ones.
    pub rows: u64,
    /// The zones that there were, by number.
    pub zones: Vec<CheckpointZone>,
    /// Root of the tree over the zones: 64 hexadecimal digits, as all hashes here.
    pub root: String,
    /// SHA-256 of the text that is signed.
    pub digest: String,
    /// The key of the signature: an Ed25519 key as 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// 128 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// A zone in a [`Checkpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct CheckpointZone {
    /// Its number.
    pub zone_id: i32,
    /// Its name.
    pub zone: String,
    /// Its version at that time.
    pub version: i32,
    /// The hash of that version.
    pub version_hash: String,
    /// The number of its buckets that had rows.
    pub buckets: u64,
    /// The number of rows that they had.
    pub rows: u64,
    /// Root of the tree over the ends of their chains.
    pub buckets_root: String,
    /// The number of times that owners had removed something of its ledger: runs of upkeep that dropped rows,
    /// and erasures.
    pub removals: u64,
    /// The hash of the last of these; without one, that which their chain begins with.
    pub removals_hash: String,
}

impl Checkpoint {
    fn new(made_at: DateTime<Utc>, cut_at: DateTime<Utc>, zones: Vec<CheckpointZone>) -> Result<Self> {
        let mut checkpoint = Self {
            format: FORMAT,
            made_at,
            cut_at,
            buckets: zones.iter().map(|zone| zone.buckets).sum(),
            rows: zones.iter().map(|zone| zone.rows).sum(),
            root: hex(&root(&zones)?),
            zones,
            digest: String::new(),
            public_key: None,
            signature: None,
        };
        checkpoint.digest = hex(&sha256(&[checkpoint.text().as_bytes()]));
        Ok(checkpoint)
    }

    /// Reads a checkpoint, and looks whether it is whole: its counts, root and digest agree, and its signature, if it
    /// has one, is that of its public key. The owner of that key must be known from elsewhere: see
    /// [`require_key`](Self::require_key).
    ///
    /// # Errors
    /// Invalid: it is no checkpoint, or of a newer format. Conflict: it was changed.
    pub fn parse(text: &str) -> Result<Self> {
        /// The part that every format has.
        #[derive(Deserialize)]
        struct Any {
            format: u32,
        }
        let fault = |e| Error::invalid(format!("the file is no checkpoint: {e}")).caused_by(e);
        let Any { format } = serde_json::from_str(text).map_err(fault)?;
        if format != FORMAT {
            return Err(Error::invalid(format!(
                "the checkpoint has format {format} and this program reads {FORMAT}; use the program that wrote it"
            )));
        }
        let read: Self = serde_json::from_str(text).map_err(fault)?;
        let right = Self::new(read.made_at, read.cut_at, read.zones.clone())?;
        let is_ordered = read.zones.windows(2).all(|pair| pair[0].zone_id < pair[1].zone_id);
        let changed =
            |what| Err(Error::conflict(format!("the checkpoint was changed: its {what}; use the original")));
        if !is_ordered || (read.buckets, read.rows) != (right.buckets, right.rows) || read.root != right.root
        {
            return changed("zones are not those of its root");
        }
        if read.digest != right.digest {
            return changed("times or root are not those of its digest");
        }
        match (&read.public_key, &read.signature) {
            (Some(key), Some(signature)) if !key::is_signed(read.text().as_bytes(), key, signature) => {
                changed("signature is not that of its public key")
            }
            (Some(_), None) | (None, Some(_)) => changed("signature or its public key is missing"),
            _ => Ok(read),
        }
    }

    /// Signs it.
    pub fn sign(&mut self, key: &CheckpointKey) {
        self.signature = Some(key.sign(self.text().as_bytes()));
        self.public_key = Some(key.public_key());
    }

    /// Fails unless the owner of this public key signed it.
    ///
    /// # Errors
    /// Invalid: it is not signed, or by another key.
    pub fn require_key(&self, public_key: &str) -> Result<()> {
        match &self.public_key {
            None => Err(Error::invalid("the checkpoint is not signed; ask who made it for a signed one")),
            Some(key) if !key.eq_ignore_ascii_case(public_key) => Err(Error::invalid(format!(
                "the checkpoint is signed by the key {key} and not by {public_key}; it is somebody else's"
            ))),
            Some(_) => Ok(()),
        }
    }

    /// The text that is signed. All else follows from it, the zones by the root.
    fn text(&self) -> String {
        let Self { made_at, cut_at, root, .. } = self;
        format!("tallygate checkpoint {FORMAT}\n{}\n{}\n{root}\n", written(*made_at), written(*cut_at))
    }

    fn zone(&self, zone_id: i32) -> Option<&CheckpointZone> {
        self.zones.iter().find(|zone| zone.zone_id == zone_id)
    }
}

/// The tree over the zones, in the order of their numbers.
fn root(zones: &[CheckpointZone]) -> Result<Hash> {
    let mut tree = Tree::default();
    for zone in zones {
        let hash = |digits: &str| {
            unhex::<32>(digits).ok_or_else(|| {
                Error::invalid(format!("the checkpoint was changed: {digits:?} is no hash; use the original"))
            })
        };
        let leaf = [
            &chain::zone(zone.zone_id, &zone.zone)[..],
            &zone.zone_id.to_be_bytes(),
            &zone.version.to_be_bytes(),
            &hash(&zone.version_hash)?,
            &zone.buckets.to_be_bytes(),
            &zone.rows.to_be_bytes(),
            &hash(&zone.buckets_root)?,
            &zone.removals.to_be_bytes(),
            &hash(&zone.removals_hash)?,
        ];
        tree.push(merkle::leaf(&leaf.concat()), false);
    }
    Ok(tree.finish().1)
}

fn written(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn moment<S: serde::Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&written(*at))
}
