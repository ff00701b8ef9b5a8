#![doc = include_str!("../README.md")]
// With some of the databases left out, what only they use is unused.
#![cfg_attr(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")), allow(dead_code, unused))]

mod check;
mod decide;
mod decision;
mod entry;
mod error;
mod limiter;
mod migrate;
mod retry;
mod store;
mod zone;

pub use crate::{
    check::Check,
    decide::{Head, Outcome, Probe, Version, Window, decide, probe},
    decision::{Decision, Reason},
    entry::{Cursor, Entry, History, Page},
    error::{Error, Result},
    limiter::{BatchConfig, Config, Limiter},
    migrate::{Migration, Migrator},
    store::{Isolation, Joined, Pool},
    zone::{Algorithm, BlockedRows, Durability, Policy, UNITS_MAX, Zone, ZoneVersion},
};

// The code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;
