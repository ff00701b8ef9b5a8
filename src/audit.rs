//! The questions that are asked of the ledger afterwards: rows derived again, explained, verified and
//! reported on.
//!
//! An [`Auditor`] asks it. Its questions and answers are in a room for each of them.

mod auditor;
mod book;
mod bucket;
#[cfg(feature = "evidence")]
pub mod checkpoint;
mod compare;
mod dropped;
#[cfg(feature = "evidence")]
mod evidence;
pub mod explain;
#[cfg(feature = "evidence")]
pub mod export;
mod fault;
mod hashed;
mod history;
mod places;
mod removals;
pub mod replay;
pub mod report;
mod standing;
pub mod verify;
mod walk;
mod zones;

pub use auditor::Auditor;
pub use standing::{Bucket, Held, Standing};

/// The chain of hashes, for programs that check a ledger by themselves; its bytes are told in `docs/chain.md`.
pub mod chain {
    pub use crate::chain::{
        End, Hash, Removal, Row, Salt, bucket, hex, is_erased, removals, sha256, text, tombstone, unhex, zone,
    };
}
