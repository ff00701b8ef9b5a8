//! The engine: the core decides here, in the process. The database says what there is and appends what was decided.
//!
//! Three things are asked of a database: what it holds, what its rows answer, and to append. All else is the same on
//! each of them: what a call asks for, what follows from it, what was decided before, and what must be written.

mod action;
mod batch;
mod bucket;
mod known;
mod lease;
mod local;
mod memory;
mod predicted;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod process;
mod queue;
mod request;
mod settle;
mod writing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::chain::End;
use crate::decide::{Head, Hold, Shape, Standing, Version};
use crate::entry::LedgerRow;
use crate::error::{Error, Result};

pub(super) use action::act;
pub(super) use batch::{Answered, check};
use bucket::Bucket;
pub(super) use lease::{lease, standing};
pub(super) use local::take_units;
pub(super) use memory::{Memory, Remembering};
pub(super) use predicted::{known, reserve};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use process::{Policies, Process, Range, Server, Turn};
pub(super) use queue::{Behind, Putting, STEP, Shelving, Stored, Which};
pub(super) use queue::{dead, item, offer, progress, size, take};
pub(super) use request::{Action, Kept, Passing, Request, Taking, Took, What};
pub(super) use writing::{Moved, Writing, Written};

/// A bucket's name: the zone's number and the key.
pub(super) type Name<'n> = (i32, &'n str);

/// The versions of each zone, from the oldest that matters.
pub(super) type Versions = BTreeMap<i32, Arc<[Version]>>;

/// A row's time, what it spent, and what had been spent in all up to there.
pub(super) type Charged = (i64, i64, i64);

/// Names a bucket in an error of what a table has of it.
pub(super) fn of_bucket(table: &str, (_, key): Name<'_>) -> impl Fn(Error) -> Error {
    move |error| error.at(format_args!("{table}: bucket_key {key:?}"))
}

/// A database as the engine uses it, for one call.
#[async_trait]
pub(super) trait Session: Send {
    /// The state of some buckets, at one reading of the database's clock.
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held>;

    /// The answers of rows to questions, of buckets that have any; None where the rows are not there.
    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>>;

    /// The first rows of buckets from a time on, at most so many of each.
    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>>;

    /// The leases of a bucket of capacity that have not been replaced; some may have ended.
    async fn leases(&mut self, name: Name<'_>) -> Result<Vec<Standing>>;

    /// The knowledge of the shapes of requests in a bucket; some of it may be too old.
    async fn shapes(&mut self, name: Name<'_>) -> Result<Vec<Shape>>;

    /// The name of the session, of an operator who is logged in; None where the database knows no users.
    ///
    /// # Errors
    /// Refused: no operator is.
    async fn login(&mut self) -> Result<Option<String>>;

    /// Appends rows and moves heads, and says of each bucket whether it was where it was held.
    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended>;
}

/// Appends all rows of a call or none of them, where what is called `what` is not where it was held.
async fn append_together(session: &mut dyn Session, mut writing: Writing<'_>, what: &str) -> Result<()> {
    writing.together = true;
    if session.append(&writing).await?.fates.iter().any(|fate| *fate != Fate::Appended) {
        return Err(Error::transient(format!("something else happened to the {what} meanwhile; try again")));
    }
    Ok(())
}

/// The facts that a call wants to know before anything else.
pub(super) struct Wanted<'w> {
    /// Each bucket once, in the byte order of their names.
    pub names: &'w [Name<'w>],
    /// Of each: may it get rows? Else it is only looked at.
    pub moves: &'w [bool],
    /// Transactions that may have been there before, each with the place of its bucket.
    pub txns: &'w [(usize, Uuid)],
    /// The longest window that the call itself brings.
    pub window_us: i64,
}

/// The state of buckets that a database holds.
#[derive(Default)]
pub(super) struct Held {
    /// Its clock.
    pub now_us: i64,
    /// One for each bucket.
    pub heads: Vec<Loaded>,
    pub versions: Versions,
    /// By the place of the bucket: what ends or has ended of those that have any.
    pub holds: HashMap<usize, Vec<Hold>>,
    /// The rows of the transactions, each with the transaction's place; those of one in order.
    pub past: Vec<(usize, LedgerRow)>,
    /// Answers to questions that are as good as asked.
    pub answers: Vec<(usize, Question, i64)>,
    /// The last rows of the one bucket, which the snapshot of a caller's transaction hides, newest first.
    pub hidden: Vec<LedgerRow>,
}

/// A head, and the end of its chain.
#[derive(Clone, Copy, Default)]
pub(super) struct Loaded {
    pub head: Head,
    /// None for a new bucket.
    pub end: Option<End>,
    /// The database has holds of the bucket, or had.
    pub holding: bool,
    /// Its row was removed; this is what its ledger left.
    pub removed: bool,
}

/// A question about a bucket.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Its place in the call.
    pub bucket: usize,
    pub name: Name<'a>,
    pub question: Question,
}

/// A question of the core, or of the engine, to a bucket's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// What was spent in all before a time that is not after the last row's?
    TotalBefore(i64),
    /// When was a total first reached, that was?
    Reached(Search),
    /// How many strikes had there been before a time?
    StrikesBefore(i64),
    /// 1, where a check was blocked for some time, from a time on, by a version whose blocked rows are coalesced.
    BlockedSince(i64),
    /// 1, where a version of its zone was ever open while the database did not answer.
    WasOpen,
}

impl Question {
    /// From when on rows say what was charged; None where they do not say it, or nobody knows from when on.
    pub fn since_us(self) -> Option<i64> {
        match self {
            Self::TotalBefore(us) => Some(us),
            Self::Reached(search) => Some(search.after_us + 1).filter(|us| *us > 0),
            _ => None,
        }
    }

    /// As the routine `zone_engine_ask` takes it: what is asked, about which number, and of a search, between which times.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn asked(self) -> (&'static str, i64, Option<(i64, i64)>) {
        match self {
            Self::TotalBefore(us) => ("total", us, None),
            Self::Reached(search) => ("reached", search.total, Some((search.after_us, search.until_us))),
            Self::StrikesBefore(us) => ("strikes", us, None),
            Self::BlockedSince(us) => ("blocked", us, None),
            Self::WasOpen => ("open", 0, None),
        }
    }
}

/// When was a total reached? Later than `after_us`, and not later than `until_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    pub total: i64,
    pub after_us: i64,
    pub until_us: i64,
}

/// The result of appending rows.
pub(super) struct Appended {
    /// The database's clock, where it is another than ours.
    pub now_us: Option<i64>,
    /// Of each bucket that rows were for.
    pub fates: Vec<Fate>,
}

/// The fate of the rows of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are in the ledger.
    Appended,
    /// Somebody else was faster, holds the bucket that is not to be waited for, or one of the transactions was there before: it
    /// must be decided again.
    Stale,
    /// The same, because of what is not the bucket's: a newer policy, or a time that is not now.
    Outdated,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl Fate {
    /// By its number, as routines tell it.
    pub fn told(number: i32) -> Self {
        if number == 0 { Self::Appended } else { Self::Stale }
    }
}

/// Each bucket once, in order, and which of them each name is.
fn distinct<'n>(all: impl Iterator<Item = Name<'n>>) -> (Vec<Name<'n>>, Vec<usize>) {
    let all: Vec<_> = all.collect();
    let mut names = all.clone();
    names.sort_unstable();
    names.dedup();
    // Each is one of them.
    let places = all.iter().map(|name| names.binary_search(name).unwrap_or_default()).collect();
    (names, places)
}

/// The buckets as they were held.
fn buckets<'n>(names: &[Name<'n>], held: &mut Held) -> Vec<Bucket<'n>> {
    let loaded = names.iter().zip(&held.heads).enumerate();
    let mut buckets: Vec<_> = loaded
        .map(|(n, (&name, &loaded))| {
            let versions = held.versions.get(&name.0).cloned().unwrap_or_default();
            let holds = held.holds.remove(&n).unwrap_or_default();
            Bucket::new(name, loaded, versions, holds, held.now_us)
        })
        .collect();
    for (place, question, answer) in held.answers.drain(..) {
        buckets[place].known.put(question, answer);
    }
    buckets
}

pub(super) fn from_us(us: i64) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(us)
        .ok_or_else(|| Error::database(format!("{us} µs is no time that the calendar knows")))
}
