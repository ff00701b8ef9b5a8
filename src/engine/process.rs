//! A process that decides beside others, on a server: what it knows of the database, and how it goes about what somebody
//! else was faster with.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{Answered, Loaded, Memory, Name, Passing, Request};
use crate::decide::Version;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};

/// The number of times that a call tries without holding the buckets while it decides.
const SWAPS: u32 = 2;

/// The number of times that it begins anew then, when the policy changes under its hands.
const HOLDS: u32 = 8;

/// The knowledge that this process has of one database.
#[derive(Default)]
pub(crate) struct Process {
    pub memory: Memory,
    pub policies: Policies,
    /// The database is spread over the nodes of Citus: what asks about one bucket has a plan there, and what asks about several has none.
    pub is_spread: AtomicBool,
}

/// The policies that were read, by zone: each from some version on without gaps. A version never changes.
#[derive(Default)]
pub(crate) struct Policies {
    known: Mutex<HashMap<i32, Arc<[Version]>>>,
}

/// The versions that a zone was asked for: the one in force, and the oldest that decided the last row of one of its
/// buckets.
pub(crate) struct Range {
    pub from: i32,
    pub to: i32,
}

/// A connection to a server, as a call decides on it.
#[async_trait]
pub(crate) trait Server: Send {
    /// Must each turn hold the buckets, since what is read is locked all the same?
    fn always_holds(&self) -> bool;

    /// Decides a check of a plain zone by one call of a routine; what it left of the bucket, where that is simple. None where the zone
    /// is not plain any more, or the check was decided before.
    async fn check_plain(&mut self, request: &Request) -> Result<Option<(Decision, Option<Loaded>)>>;

    /// Decides once.
    async fn once(&mut self, requests: &[Request], passing: Passing, turn: Turn) -> Result<Vec<Answered>>;
}

/// The way in which a call goes about its buckets in one of its turns.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Remembered facts need not be asked for.
    pub believe: bool,
    /// Nobody else decides in the buckets meanwhile.
    pub hold: bool,
}

impl Process {
    pub fn is_spread(&self) -> bool {
        self.is_spread.load(Ordering::Relaxed)
    }

    /// Decides checks. Those of buckets that are not where they were looked at are decided again.
    ///
    /// A bucket that somebody else holds and that is not to be waited for is left undecided.
    pub async fn decide(
        &self,
        server: &mut dyn Server,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Option<Decision>>> {
        let skip = passing.skips();
        // Whether a row for many was recorded before must be known before it is asked what it follows.
        let first = u32::from(matches!(passing, Passing::Unasked(_)));
        let routine = match (requests, passing) {
            ([request], Passing::Each) if self.is_spread() => request.is_plain().then_some(true),
            ([request], Passing::Each) => self.memory.is_for_a_routine(request),
            _ => None,
        };
        let holds =
            !skip && (server.always_holds() || self.memory.is_fought_over(requests) || routine == Some(true));
        // One that was too late with the only bucket that it asks for is so again, but for holding it.
        let swaps = if requests.len() == 1 { first + 1 } else { SWAPS };
        let first = if holds { swaps } else { first };
        let mut decisions: Vec<Option<Decision>> = vec![None; requests.len()];
        // Those that are left, and where they belong.
        let (mut left, mut places) = (Cow::Borrowed(requests), (0..requests.len()).collect::<Vec<_>>());
        for turn in first..swaps + HOLDS {
            let how = Turn { believe: turn == 0, hold: turn >= swaps && !skip };
            if how.hold
                && let (Some(_), [request]) = (routine, requests)
                && let Some((decision, loaded)) = server.check_plain(request).await?
            {
                if let Some(loaded) = loaded {
                    self.memory.learn((request.zone_id, &request.key), loaded);
                }
                return Ok(vec![Some(decision)]);
            }
            let answers = match server.once(&left, passing, how).await {
                // The memory may be wrong about this, too.
                Err(error) if turn == 0 && !error.is_transient() && error.kind() != ErrorKind::Refused => {
                    continue;
                }
                answers => answers?,
            };
            let mut stale = Vec::new();
            for ((request, place), answer) in left.iter().zip(&places).zip(answers) {
                match answer {
                    Answered::Decided(decision) => decisions[*place] = Some(decision),
                    Answered::Undone(_) => stale.push((request.clone(), *place)),
                }
            }
            // Where nobody waits for buckets they are left undecided at once, for a later call.
            if stale.is_empty() || skip {
                return Ok(decisions);
            }
            let (requests, rest): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
            (left, places) = (Cow::Owned(requests), rest);
        }
        Err(Error::transient("the policy changed as often as this was decided; try again"))
    }

    /// Decides checks in the caller's transaction, which holds the buckets until it ends.
    pub async fn decide_in(
        &self,
        server: &mut dyn Server,
        requests: &[Request],
        passing: Passing,
    ) -> Result<Vec<Decision>> {
        let answers = server.once(requests, passing, Turn { believe: false, hold: true }).await?;
        let decided = |answer| match answer {
            Answered::Decided(decision) => Ok(decision),
            Answered::Undone(_) => Err(Error::transient(
                "the policy changed, or seconds passed, while this was decided; begin the transaction again",
            )),
        };
        answers.into_iter().map(decided).collect()
    }
}

impl Policies {
    /// Those of a zone, where they are known.
    pub fn known_of(&self, zone_id: i32, range: &Range) -> Option<Arc<[Version]>> {
        let known = self.known().get(&zone_id).cloned()?;
        let reaches = known.first()?.version <= range.from && known.last()?.version == range.to;
        reaches.then_some(known)
    }

    /// Learns what was read: an error where a newer program has written it. With `keep` it is known from now on: what a caller's
    /// transaction reads may be rolled back.
    pub fn learn(
        &self,
        zone_id: i32,
        range: &Range,
        read: Result<Vec<Version>>,
        keep: bool,
    ) -> Result<Arc<[Version]>> {
        let versions = read.map_err(|error| {
            Error::schema(format!(
                "this program does not know a policy of zone {zone_id}: {error}; install the newer tallygate"
            ))
        })?;
        // One that came into force since then is none of this call.
        let versions: Arc<[_]> = versions.into_iter().filter(|version| version.version <= range.to).collect();
        if keep {
            self.known().insert(zone_id, Arc::clone(&versions));
        }
        Ok(versions)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<i32, Arc<[Version]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Range {
    /// Of each zone, by the heads of its buckets and the version that is in force for each; None where there is no such zone.
    pub fn of_zones(names: &[Name<'_>], heads: &[Loaded], in_force: &[Option<i32>]) -> BTreeMap<i32, Self> {
        let mut ranges = BTreeMap::new();
        for ((&(zone_id, _), Loaded { head, .. }), to) in names.iter().zip(heads).zip(in_force) {
            if let &Some(to) = to {
                let from = if head.seq > 0 { head.zone_version } else { to };
                let range = ranges.entry(zone_id).or_insert(Self { from, to });
                range.from = range.from.min(from);
            }
        }
        ranges
    }
}
