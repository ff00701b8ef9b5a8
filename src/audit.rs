//! What is asked of the ledger afterwards: rows derived again, explained, verified and reported on.

mod book;
mod bucket;
mod compare;
pub(crate) mod explain;
mod explained;
mod fault;
mod replay;
pub(crate) mod report;
pub(crate) mod verify;
mod walk;
mod zones;

pub use compare::{Difference, Replayed};
pub use explained::{Bar, Binding, Carry, Counted, CountedCharge, Explained, ExplainedRow, Fade, Level};
pub use fault::{Fault, FaultKind};
pub use replay::Replay;
pub use verify::{Verified, Verify, Verifying};
