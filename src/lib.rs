#![doc = include_str!("../README.md")]
// With some of the databases or the evidence left out, what only they use is unused.
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite", feature = "audit")),
    allow(dead_code, unused)
)]

mod audit;
mod backtest;
pub mod chain;
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

#[cfg(feature = "audit")]
pub use crate::audit::{
    Changed, Checkpoint, CheckpointKey, CheckpointZone, Disclosed, Export, ExportFormat, ExportPart,
    ExportPlace, HeadDifference, Manifest, Proof, ProvenBucket, ProvenRow,
};
pub use crate::{
    audit::report::{
        Act, Acts, BlockedBucket, Counts, FieldChange, Grain, NearBucket, PolicyChange, Report, ReportOn,
        Top, Undone, Volume, ZoneReport,
    },
    audit::{
        Bar, Binding, Carry, Counted, CountedCharge, Difference, Explained, ExplainedRow, Fade, Fault,
        FaultKind, Level, Replay, Replayed, Verified, Verify, Verifying,
    },
    backtest::{Backtest, BacktestReport, BlockedKey, TimeSlice},
    check::Check,
    decide::{
        Ask, Bucket, BucketOverride, Carried, Charge, Event, Exception, Happened, Head, Hold, Ledger, Need,
        Outcome, Override, Undo, Version, decide, happen,
    },
    decision::{Decision, Reason},
    entry::{Cursor, Entry, History, Kind, LedgerRow, Overridden, Page, Recorded},
    error::{Error, Result},
    limiter::{BatchConfig, Charged, Combined, Config, Journal, Limiter, ZoneSetting},
    migrate::{Migration, Migrator, Role},
    store::{Erased, Isolation, Joined, Maintained, Pool, Upkeep},
    zone::{
        Algorithm, BanFrom, BanRule, BlockedRows, Calendar, CalendarUnit, Durability, Limit, Mode, OnOutage,
        Policy, RunningBuckets, TimeZoneName, UNITS_MAX, Zone, ZoneVersion,
    },
};

// The code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;
#[cfg(doctest)]
#[doc = include_str!("../docs/policies.md")]
struct Policies;
#[cfg(doctest)]
#[doc = include_str!("../docs/backtest.md")]
struct BacktestPage;
