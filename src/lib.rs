//! A rate limiter and velocity checker that lives in the SQL database which a login or payment flow already uses.
//! Every decision, allowed or blocked, is one durable row: exact, idempotent, and there to be looked up for years.
//!
//! ```
//! use std::time::Duration;
//! use tallygate::{Check, Limiter, Policy};
//!
//! # #[cfg(feature = "sqlite")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let limiter = Limiter::connect("sqlite::memory:").await?; // or postgres://…, mysql://…, mariadb://…
//! let five_a_minute = Policy::sliding_log(5, Duration::from_secs(60))?;
//! limiter.operator().set_zone("login", &five_a_minute, Some("password attempts"), "alice").await?;
//!
//! // Before the password is looked at, so that a burst cannot slip through:
//! let decision = limiter.check(Check::new("login", "user:42")).await?;
//! if decision.blocked {
//!     println!("try again in {:?}", decision.retry_after());
//! }
//! # Ok::<(), tallygate::Error>(()) }).unwrap();
//! ```
//!
//! # Where to begin
//!
//! - [`Limiter`] is what an application has: it connects, checks, reserves, settles and refunds. A [`Check`] goes in, a
//!   [`Decision`] comes out; a blocked check is a decision too, and never an [`Error`].
//! - A check joins the caller's own transaction by [`Limiter::check_in`], so that the payment and the spent limit are
//!   committed together or not at all. Several limits pass together or not at all by [`Limiter::check_all`]. Everything
//!   that charges has a form that joins: [`Limiter::check_all_in`], [`Limiter::refund_in`] and so on.
//! - Other people have faces of their own: [`Limiter::operator`] sets zones, bans and overrides ([`policy`]),
//!   [`Limiter::auditor`] reads the ledger ([`ledger`], and [`audit`], a feature), [`Limiter::owner`] looks after the tables
//!   ([`schema`]).
//! - PostgreSQL, MySQL and MariaDB are prepared once, by [`schema::Migrator`] or the command `tallygate migrate`. A
//!   SQLite file prepares itself.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `postgres`, `mysql`, `sqlite` | the databases; a service names the one that it uses. `mysql` is MariaDB too |
//! | `tls` (default) | encrypted connections, by rustls |
//! | `audit` | questions about the ledger ([`audit`]): why, verify, reports, and [`backtest`]s of another policy |
//! | `evidence` | checkpoints, proofs and exports of the ledger |
//! | `parquet` | exports as Apache Parquet |
//! | `zone-file` | zones as code: `policy::zone_file` reads a file of them, and durations with units |
//! | `pages` | reports as pages of HTML with charts, and what they are made of ([`page`]) |
//! | `schema` | JSON Schemas of what is asked and answered, by [schemars](https://docs.rs/schemars) |
//! | `clap` | the same names as flags of a command line |
//! | `testing` | clocks that tests move by hand; answers may be built by hand |
//!
//! `chrono`, `sqlx` and `uuid` are in the interface and can be taken from here. A new major version of one of them is
//! a new major version of this library; before 1.0, a minor one.
// A call is futures within futures down to the driver, by some features deeper than the compiler follows by itself.
#![recursion_limit = "256"]
// With some of the databases or the evidence left out, what only they use is unused.
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite", feature = "evidence")),
    allow(dead_code, unused)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "audit")]
pub mod audit;
#[cfg(feature = "audit")]
pub mod backtest;
mod boxed;
mod chain;
mod check;
pub mod decide;
mod decision;
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, unused_imports, reason = "without a database nothing is decided")
)]
mod engine;
mod entry;
mod error;
mod item;
mod lease;
mod limiter;
mod migrate;
mod names;
#[cfg(feature = "pages")]
pub mod page;
mod private;
mod record;
mod retry;
mod shard;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod zone;

pub use crate::{
    check::Check,
    decision::{Decision, Reason, Velocity},
    entry::Recorded,
    error::{Error, ErrorKind, Result},
    limiter::{
        BatchConfig, Charged, Combined, Config, Journal, Limiter, Load, LocalJournal, Predicted, Prediction,
        Shield, Spanning,
    },
    store::{Isolation, Joined, Pool},
    zone::Policy,
};

// Their types are in this interface: a new major version of one is a new major version of this library, until 1.0 a
// minor one. A program that takes them from here has those that fit.
pub use {chrono, sqlx, uuid};

/// Zones and their policies: what an operator sets.
pub mod policy {
    pub use crate::decide::Override;
    pub use crate::entry::Overridden;
    pub use crate::limiter::Operator;
    pub use crate::zone::{
        Algorithm, BanFrom, BanRule, BlockedRows, Calendar, CalendarUnit, Durability, Limit, Mode, OnOutage,
        Queueing, RunningBuckets, Share, Sharing, TimeZoneName, UNITS_MAX, Zone, ZoneSetting, ZoneVersion,
        show_duration,
    };
    #[cfg(feature = "zone-file")]
    pub use crate::zone::{Terms, parse_duration, parse_units, zone_file, zone_terms};
}

/// Capacity: what clients may use of a resource until their leases end.
pub mod capacity {
    pub use crate::lease::{Lease, Want, parse_band};
    pub use crate::limiter::{Demand, Lapsed, Leases, Lent, Region, ServerLeases, Tenant, Upstream};
}

/// Metrics, for the exporter that a program installs.
pub mod metrics {
    pub use crate::limiter::{CHECKS, SECONDS, describe};
}

/// Queues: what waits to be worked off, and who has it.
pub mod queue {
    pub use crate::item::{
        Item, Noted, Offer, Offered, PAYLOAD_MAX, Payload, Receipt, Size, State, TAKE_MAX, Take, Taken, Work,
    };
    pub use crate::lease::parse_band;
    pub use crate::limiter::Queues;
}

/// The ledger: its rows, and how to ask for them.
pub mod ledger {
    pub use crate::entry::{Cursor, Entry, History, Kind, Page};
}

/// The tables: making them, who may do what, and upkeep.
pub mod schema {
    pub use crate::limiter::{Moved, Owner, Rebalanced};
    pub use crate::migrate::{Migration, Migrator, Role};
    pub use crate::store::{Erased, Maintained, Maintenance, Upkeep};
}

// The code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;
#[cfg(doctest)]
#[doc = include_str!("../docs/policies.md")]
struct Policies;
#[cfg(doctest)]
#[doc = include_str!("../docs/backtest.md")]
struct BacktestPage;
#[cfg(doctest)]
#[doc = include_str!("../docs/capacity.md")]
struct Capacity;
#[cfg(doctest)]
#[doc = include_str!("../docs/prediction.md")]
struct PredictionPage;
#[cfg(doctest)]
#[doc = include_str!("../docs/local.md")]
struct Local;
#[cfg(doctest)]
#[doc = include_str!("../docs/queue.md")]
struct Queue;
#[cfg(doctest)]
#[doc = include_str!("../docs/sharding.md")]
struct Sharding;
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../docs/testing.md")]
struct Testing;
