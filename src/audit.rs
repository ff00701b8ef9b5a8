//! What is asked of the ledger afterwards: rows derived again, explained, verified and reported on.

mod book;
mod bucket;
#[cfg(feature = "audit")]
pub(crate) mod checkpoint;
mod compare;
mod dropped;
pub(crate) mod explain;
mod explained;
#[cfg(feature = "audit")]
pub(crate) mod export;
mod fault;
mod hashed;
mod replay;
pub(crate) mod report;
pub(crate) mod verify;
mod walk;
mod zones;

#[cfg(feature = "audit")]
pub use checkpoint::{
    Changed, Checkpoint, CheckpointKey, CheckpointZone, Disclosed, HeadDifference, Proof, ProvenBucket,
    ProvenRow,
};
pub use compare::{Difference, Replayed};
pub use explained::{Bar, Binding, Carry, Counted, CountedCharge, Explained, ExplainedRow, Fade, Level};
#[cfg(feature = "audit")]
pub use export::{Export, ExportFormat, ExportPart, ExportPlace, Manifest};
pub use fault::{Fault, FaultKind};
pub use replay::Replay;
pub use verify::{Verified, Verify, Verifying};
