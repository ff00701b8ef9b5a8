//! What is asked of the ledger afterwards.

pub(crate) mod report;
