//! A process that decides beside others, on a server: what it knows of the database, and how it goes about what somebody
//! else was faster with.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Action, Answered, Fate, Loaded, Memory, Name, Passing, Request, What};
use crate::decide::{Undo, Version};
use crate::decision::Decision;
use crate::entry::Recorded;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::moved_to;

/// The number of times that a call tries without holding the buckets while it decides.
const SWAPS: u32 = 2;

/// The number of times that it begins anew then, when the policy changes under its hands.
const HOLDS: u32 = 8;

/// The time for which it is believed that the user may not append.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The knowledge that this process has of one database.
#[derive(Default)]
pub(crate) struct Process {
    pub memory: Memory,
    pub policies: Policies,
    /// May its user append what the engine decides? Found out with the first check; None before.
    may: Mutex<May>,
    /// May the users of callers' connections, who may be others?
    callers_may: Mutex<May>,
}

/// The last answer, and when it was given.
type May = Option<(bool, Instant)>;

/// The policies that were read, by zone: each from some version on without gaps. A version never changes.
#[derive(Default)]
pub(crate) struct Policies {
    known: Mutex<HashMap<i32, Arc<[Version]>>>,
    /// Zones with a version that a newer program has written.
    foreign: Mutex<HashSet<i32>>,
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
    /// May its user append?
    async fn may_append(&mut self) -> Result<bool>;

    /// Is it a caller's, with a transaction that is open?
    fn is_a_callers(&self) -> bool;

    /// Decides once.
    async fn once(&mut self, requests: &[Request], passing: Passing, turn: Turn) -> Result<Vec<Answered>>;

    /// Lets actions happen, in a transaction that holds their buckets.
    async fn act(&mut self, actions: &[Action]) -> Result<Vec<Recorded>>;
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
    /// Decides by the engine. None where the routines must: the user may not append, a newer program has chosen a policy that
    /// this one does not know, or somebody else was faster with the one bucket that is asked about.
    ///
    /// A bucket that somebody else holds and that is not to be waited for is left undecided.
    pub async fn decide(
        &self,
        server: &mut dyn Server,
        requests: &[Request],
        passing: Passing,
        serializable: bool,
    ) -> Option<Result<Vec<Option<Decision>>>> {
        let zones = requests.iter().map(|request| request.zone_id);
        match self.is_up_to(server, zones.clone()).await {
            Ok(true) => {
                let decisions = self.derive(server, requests, passing, serializable).await;
                self.or_routines(server.is_a_callers(), decisions, zones)?.transpose()
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Decides in the caller's transaction, which holds the buckets until it ends. None where the routines must, as in
    /// [`decide`](Self::decide).
    pub async fn decide_in(
        &self,
        server: &mut dyn Server,
        requests: &[Request],
        passing: Passing,
    ) -> Option<Result<Vec<Decision>>> {
        let zones = requests.iter().map(|request| request.zone_id);
        match self.is_up_to(server, zones.clone()).await {
            Ok(true) => {
                let answers = server.once(requests, passing, Turn { believe: false, hold: true }).await;
                let decided = |answer| match answer {
                    Answered::Decided(decision) => Ok(decision),
                    Answered::Undone(_) => Err(Error::transient(
                        "the policy changed, or seconds passed, while this was decided; begin the transaction again",
                    )),
                };
                let decisions = answers.and_then(|answers| answers.into_iter().map(decided).collect());
                self.or_routines(server.is_a_callers(), decisions, zones)
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Lets actions happen by the engine. None where the routines must end charges of checks, as in [`decide`](Self::decide).
    pub async fn act(&self, server: &mut dyn Server, actions: &[Action]) -> Option<Result<Vec<Recorded>>> {
        let of_check = |action: &Action| match action.what {
            What::Undo(undo) => !matches!(undo, Undo::Used(_)),
            _ => false,
        };
        if !actions.iter().all(of_check) {
            return Some(server.act(actions).await);
        }
        let zones = actions.iter().map(|action| action.zone_id);
        match self.is_up_to(server, zones.clone()).await {
            Ok(true) => {
                let recorded = server.act(actions).await;
                self.or_routines(server.is_a_callers(), recorded, zones)
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// May it append, and does it know what may be in force in these zones?
    async fn is_up_to(&self, server: &mut dyn Server, zones: impl Iterator<Item = i32>) -> Result<bool> {
        Ok(self.may_append(server).await? && !self.policies.are_foreign(zones))
    }

    /// None where this fails since it may not append any more, or since a newer program has chosen a policy.
    fn or_routines<T>(
        &self,
        is_a_callers: bool,
        done: Result<T>,
        zones: impl Iterator<Item = i32>,
    ) -> Option<Result<T>> {
        match done {
            // The right was taken back. A transaction of the caller's has failed by that.
            Err(error) if error.kind() == ErrorKind::Refused && moved_to(&error).is_none() => {
                *self.may(is_a_callers) = Some((false, Instant::now()));
                is_a_callers.then_some(Err(error))
            }
            Err(_) if self.policies.are_foreign(zones) => None,
            done => Some(done),
        }
    }

    async fn may_append(&self, server: &mut dyn Server) -> Result<bool> {
        // A caller whose user may, among callers whose users may not, is no reason to try these again.
        let is_a_callers = server.is_a_callers();
        let lasts = |since: Instant| is_a_callers || since.elapsed() < REFUSED_FOR;
        let known = self.may(is_a_callers).filter(|(may, since)| *may || lasts(*since));
        if let Some((may, _)) = known {
            return Ok(may);
        }
        let may = server.may_append().await?;
        *self.may(is_a_callers) = Some((may, Instant::now()));
        Ok(may)
    }

    /// Checks of buckets that are not where they were looked at are decided again; where that is a check by itself, by
    /// a routine, which holds the bucket for no round trip.
    async fn derive(
        &self,
        server: &mut dyn Server,
        requests: &[Request],
        passing: Passing,
        serializable: bool,
    ) -> Result<Option<Vec<Option<Decision>>>> {
        let skip = passing.skips();
        let alone = requests.len() == 1 && !skip && !serializable;
        // Whether a row for many was recorded before must be known before it is asked what it follows.
        let first = u32::from(matches!(passing, Passing::Unasked(_)));
        let mut decisions: Vec<Option<Decision>> = vec![None; requests.len()];
        let fought = !skip && self.memory.is_fought_over(requests);
        if alone && fought {
            return Ok(None);
        }
        let turns = if alone { first + 1 } else { SWAPS + HOLDS };
        let first = if fought { SWAPS } else { first };
        // Those that are left, and where they belong.
        let (mut left, mut places) = (Cow::Borrowed(requests), (0..requests.len()).collect::<Vec<_>>());
        for turn in first..turns {
            let how = Turn { believe: turn == 0, hold: turn >= SWAPS && !skip };
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
                    Answered::Undone(Fate::Locked) => {}
                    Answered::Undone(_) => stale.push((request.clone(), *place)),
                }
            }
            // Where nobody waits for buckets they are left undecided at once, for a later call.
            if stale.is_empty() || skip {
                return Ok(Some(decisions));
            }
            let (requests, rest): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
            (left, places) = (Cow::Owned(requests), rest);
        }
        if alone {
            return Ok(None);
        }
        Err(Error::transient("the policy changed as often as this was decided; try again"))
    }

    fn may(&self, is_a_callers: bool) -> MutexGuard<'_, May> {
        let may = if is_a_callers { &self.callers_may } else { &self.may };
        may.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(zone_id);
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

    fn are_foreign(&self, mut zones: impl Iterator<Item = i32>) -> bool {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        zones.any(|zone_id| foreign.contains(&zone_id))
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
