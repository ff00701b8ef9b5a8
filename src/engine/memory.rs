//! The memory of this process: buckets that it decided lately, so that it need not ask.
//!
//! The memory is never believed over the database: rows are appended only where the head is still the one that they
//! were derived from. A bucket that has moved on is asked for again; what was charged in it before stays so.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{
    Appended, Asked, Charged, Fate, Held, Loaded, Name, Question, Request, Session, Versions, Wanted, Writing,
};
use crate::decide::{Shape, Standing, Version};
use crate::error::Result;
use crate::zone::Family;

/// The number of buckets that are remembered: at least so many, at most twice as many. Each takes some 400 bytes and
/// its charges.
const BUCKETS: usize = 1 << 16;

/// The number of charges that are remembered of a bucket.
const CHARGES: usize = 1 << 10;

/// The number of rows that are read at once to remember what was charged in a window; where there are more, they are
/// left to be asked.
const ROWS: usize = 1 << 10;

/// Where nearly all buckets of a zone are new that are not remembered, they are not asked for: the database refuses to make
/// one that is there. Each that was new counts 1, up to `NEW_AT_MOST`, each that was not takes `NOT_NEW` away, and from
/// `NEW` on the next is taken for new: so 8 of 9 must be.
const NEW: u32 = 16;
const NEW_AT_MOST: u32 = 64;
const NOT_NEW: u32 = 8;

/// A bucket that somebody else moved is held from the first look on by so many of the calls that may wait for it.
const FOUGHT: u8 = 8;

/// The time for which a comparison of clocks counts. Clocks of machines part by some millionths.
const CLOCK_COUNTS: Duration = Duration::from_secs(5);

/// The memory of a process, of one database.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// The newer ones, and those that go with the next generation.
    buckets: [HashMap<i32, HashMap<Box<str>, Known>>; 2],
    /// The number of the newer ones.
    count: usize,
    /// By zone, the policies that decided and decide its buckets.
    versions: Versions,
    /// By zone: how far its buckets are new that are not remembered.
    new: HashMap<i32, u32>,
    clock: Clock,
    /// The database's clock is one that a test sets.
    is_set_by_hand: bool,
    /// The clock that a test has put in the place of the database's.
    #[cfg(feature = "testing")]
    test_clock: Option<crate::testing::Clock>,
}

/// A bucket.
#[derive(Default)]
struct Known {
    loaded: Loaded,
    charges: Charges,
    /// It has moved on since, or what it holds is not remembered: it is asked for.
    moved: bool,
    /// The number of calls that will hold it from the first look on.
    fought: u8,
}

/// Charges of a bucket, up to its last row: all from a time on.
#[derive(Default)]
struct Charges {
    from_us: i64,
    /// The sum that had been spent before that.
    base: i64,
    /// Each with its time, and what had been spent in all by then.
    list: VecDeque<(i64, i64)>,
    /// There were too many of them to be read.
    too_many: bool,
}

/// The least by which the database's clock is ahead of this process's own.
///
/// Each answer was given after the database read its clock, so that the difference is at least what it says less what the
/// clock here says on arrival; the largest of these is nearest.
#[derive(Default)]
struct Clock {
    started: Option<Instant>,
    /// The largest difference since a time; and that of the time before.
    ahead_us: [Option<(Instant, i64)>; 2],
}

/// A session that asks only what this process does not remember.
pub(crate) struct Remembering<'m> {
    session: Box<dyn Session + 'm>,
    memory: &'m Memory,
    believe: bool,
    /// The knowledge of the buckets of the call, by their order: remembered, or told just now.
    known: Vec<Known>,
    versions: Versions,
}

impl Memory {
    #[cfg(all(feature = "testing", any(feature = "postgres", feature = "mysql")))]
    pub fn set_clock(&self, clock: &crate::testing::Clock) {
        self.remembered().test_clock = Some(clock.clone());
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn guess_no_time(&self) {
        self.remembered().is_set_by_hand = true;
    }

    /// Is one of the buckets fought over, so that who does not hold it comes too late?
    pub fn is_fought_over(&self, requests: &[Request]) -> bool {
        let mut remembered = self.remembered();
        let buckets = requests.chunk_by(Request::is_beside).filter_map(<[Request]>::first);
        // Each of them has one call less to come.
        buckets.filter(|request| remembered.is_fought((request.zone_id, &request.key))).count() > 0
    }

    /// May a routine decide this check, by what is remembered of the zone? None where it may not; else whether it is faster from
    /// the first look on, since the bucket is not remembered.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn is_for_a_routine(&self, request: &Request) -> Option<bool> {
        let mut remembered = self.remembered();
        let of_zone = remembered.versions.get(&request.zone_id).and_then(|versions| versions.last());
        let plain =
            request.is_plain() && of_zone.is_some_and(|version| version.policy.beyond_sql().is_none());
        let name = (request.zone_id, request.key.as_str());
        plain.then(|| remembered.find(name).is_none() && !remembered.is_new(name.0))
    }

    /// Remembers a bucket as a routine has left it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub fn learn(&self, name: Name<'_>, loaded: Loaded) {
        let (mut remembered, zone_id) = (self.remembered(), name.0);
        match loaded.head.seq {
            1 => remembered.was_new(zone_id),
            _ => remembered.was_not_new(zone_id),
        }
        let of_zone = remembered.versions.get(&zone_id).and_then(|versions| versions.last());
        if of_zone.is_some_and(|version| version.version == loaded.head.zone_version) {
            remembered.clock.compare(loaded.head.last_us);
            let fought = remembered.remove(name).map_or(0, |known| known.fought);
            remembered.put(name, Known { fought, ..Known::of(loaded) });
        }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'m> Remembering<'m> {
    /// With `believe` what is remembered is not asked for, and transactions that were there before show when rows are
    /// appended; else all is asked for, and remembered.
    pub fn new(session: impl Session + 'm, memory: &'m Memory, believe: bool) -> Self {
        Self { session: Box::new(session), memory, believe, known: Vec::new(), versions: Versions::new() }
    }
}

impl Remembering<'_> {
    /// Reads what was charged in the windows that are asked about, so that it need not be asked again.
    async fn read_charges(&mut self, questions: &[Asked<'_>]) -> Result<()> {
        let mut asked: Vec<(usize, Name<'_>, i64)> = Vec::new();
        for &Asked { bucket, name, question } in questions {
            if let Some(at_us) = question.since_us()
                && let Some(Known { charges, .. }) = self.known.get(bucket)
                && at_us < charges.from_us
                && !charges.too_many
                && asked.last().is_none_or(|(last, ..)| *last != bucket)
            {
                asked.push((bucket, name, at_us));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let windows: Vec<_> = asked.iter().map(|&(_, name, at_us)| (name, at_us)).collect();
        let read: Vec<Vec<Charged>> = self.session.charges(&windows, ROWS).await?;
        for ((bucket, _, at_us), rows) in asked.into_iter().zip(read) {
            if let Some(Known { loaded, charges, .. }) = self.known.get_mut(bucket) {
                charges.read(at_us, &rows, loaded.head.spent_total);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Session for Remembering<'_> {
    async fn hold(&mut self, wanted: &Wanted<'_>) -> Result<Held> {
        if !self.believe {
            let held = self.session.hold(wanted).await?;
            let known = wanted.names.iter().map(|_| None);
            self.known = self.memory.remembered().recall(wanted, known, &held.heads);
            self.versions = held.versions.clone();
            return Ok(held);
        }
        let (mut known, versions, now_us) = self.memory.remembered().take(wanted);
        let now_us = now_us.filter(|_| known.iter().all(Option::is_some));
        // Without its time a call must ask for something.
        if let (None, Some(first)) = (now_us, known.first_mut()) {
            *first = None;
        }
        let asked: Vec<_> = (0..known.len()).filter(|&place| known[place].is_none()).collect();
        let names: Vec<_> = asked.iter().map(|&place| wanted.names[place]).collect();
        let moves: Vec<_> = asked.iter().map(|&place| wanted.moves[place]).collect();
        let mut held = match now_us {
            Some(now_us) => Held { now_us, ..Held::default() },
            None => self.session.hold(&Wanted { names: &names, moves: &moves, txns: &[], ..*wanted }).await?,
        };
        for ((zone_id, _), _) in names.iter().zip(&held.heads).filter(|(_, loaded)| loaded.end.is_some()) {
            self.memory.remembered().was_not_new(*zone_id);
        }
        let mut heads = Vec::with_capacity(known.len());
        let mut told = std::mem::take(&mut held.heads).into_iter();
        for known in &known {
            // One for each that was asked for.
            heads.push(known.as_ref().map_or_else(|| told.next().unwrap_or_default(), |known| known.loaded));
        }
        held.heads = heads;
        held.holds = held.holds.into_iter().map(|(n, holds)| (asked[n], holds)).collect();
        held.answers.iter_mut().for_each(|(n, _, _)| *n = asked[*n]);
        for (zone_id, versions) in versions {
            held.versions.entry(zone_id).or_insert(versions);
        }
        self.known = self.memory.remembered().recall(wanted, known.into_iter(), &held.heads);
        self.versions = held.versions.clone();
        Ok(held)
    }

    async fn answer(&mut self, questions: &[Asked<'_>]) -> Result<Vec<Option<i64>>> {
        self.read_charges(questions).await?;
        let known = |asked: &Asked<'_>| self.known.get(asked.bucket)?.charges.answer(asked.question);
        let mut answers: Vec<_> = questions.iter().map(known).collect();
        let open: Vec<_> = (0..answers.len()).filter(|&n| answers[n].is_none()).collect();
        if !open.is_empty() {
            let questions: Vec<_> = open.iter().map(|&n| questions[n]).collect();
            for (n, answer) in open.into_iter().zip(self.session.answer(&questions).await?) {
                answers[n] = answer;
            }
        }
        Ok(answers)
    }

    async fn charges(&mut self, windows: &[(Name<'_>, i64)], limit: usize) -> Result<Vec<Vec<Charged>>> {
        self.session.charges(windows, limit).await
    }

    async fn leases(&mut self, name: Name<'_>) -> Result<Vec<Standing>> {
        self.session.leases(name).await
    }

    async fn shapes(&mut self, name: Name<'_>) -> Result<Vec<Shape>> {
        self.session.shapes(name).await
    }

    async fn login(&mut self) -> Result<Option<String>> {
        self.session.login().await
    }

    async fn append(&mut self, writing: &Writing<'_>) -> Result<Appended> {
        let appended = self.session.append(writing).await?;
        let mut known: Vec<_> =
            writing.buckets.iter().map(|moved| std::mem::take(&mut self.known[moved.place])).collect();
        let is_there = |bucket: usize| appended.fates.get(bucket) == Some(&Fate::Appended);
        for written in writing.rows.iter().filter(|written| is_there(written.bucket)) {
            if written.row.spent > 0 {
                let charge = (written.row.decided_us, written.row.spent_total);
                known[written.bucket].charges.list.push_back(charge);
            }
        }
        let mut remembered = self.memory.remembered();
        if let Some(now_us) = appended.now_us {
            remembered.clock.compare(now_us);
        }
        for ((moved, mut known), fate) in writing.buckets.iter().zip(known).zip(&appended.fates) {
            let zone_id = moved.name.0;
            match (fate, self.versions.get(&zone_id)) {
                (Fate::Appended, Some(versions)) => {
                    remembered.learn(zone_id, versions);
                    if moved.is_new {
                        remembered.was_new(zone_id);
                    }
                    if let Some(version) = versions.last() {
                        known.loaded = Loaded { head: moved.head, end: Some(moved.end), ..Loaded::default() };
                        known.charges.trim(version, moved.head.last_us);
                        known.moved = moved.holding;
                        remembered.put(moved.name, known);
                    }
                }
                (Fate::Outdated, _) => {
                    remembered.versions.remove(&zone_id);
                    remembered.clock = Clock::default();
                }
                (Fate::Stale, _) if moved.is_new => remembered.was_not_new(zone_id),
                (Fate::Stale, _) => {
                    (known.moved, known.fought) = (true, FOUGHT);
                    remembered.put(moved.name, known);
                }
                _ => {}
            }
        }
        Ok(appended)
    }
}

impl Remembered {
    /// Takes out what is remembered of buckets that move, or guessed, and tells the policies of their zones and the time.
    fn take(&mut self, wanted: &Wanted<'_>) -> (Vec<Option<Known>>, Versions, Option<i64>) {
        let mut versions = Versions::new();
        let mut known = Vec::with_capacity(wanted.names.len());
        for (&(zone_id, key), &moves) in wanted.names.iter().zip(wanted.moves) {
            // A bucket that is only looked at is asked for, and stays remembered.
            let Some(of_zone) = self.versions.get(&zone_id).filter(|_| moves).cloned() else {
                known.push(None);
                continue;
            };
            versions.entry(zone_id).or_insert_with(|| of_zone.clone());
            if self.find((zone_id, key)).is_some_and(|known| known.moved) {
                known.push(None);
                continue;
            }
            let found = self.remove((zone_id, key));
            let reaches = |known: &Known| {
                of_zone.first().is_some_and(|first| first.version <= known.loaded.head.zone_version)
            };
            let is_new = self.is_new(zone_id);
            known.push(match found {
                Some(known) => Some(known).filter(reaches),
                None => is_new.then(|| Known::of(Loaded::default())),
            });
        }
        (known, versions, self.now_us())
    }

    fn find(&mut self, (zone_id, key): Name<'_>) -> Option<&mut Known> {
        self.buckets.iter_mut().find_map(|buckets| buckets.get_mut(&zone_id)?.get_mut(key))
    }

    /// It is put back with what it comes to, and is none more then.
    fn remove(&mut self, (zone_id, key): Name<'_>) -> Option<Known> {
        let mut generations = self.buckets.iter_mut().enumerate();
        let (age, known) =
            generations.find_map(|(age, buckets)| Some((age, buckets.get_mut(&zone_id)?.remove(key)?)))?;
        self.count -= usize::from(age == 0);
        Some(known)
    }

    /// The knowledge of the buckets now that the database has told of those that were not known: it said nothing of
    /// their charges.
    fn recall(
        &mut self,
        wanted: &Wanted<'_>,
        known: impl Iterator<Item = Option<Known>>,
        heads: &[Loaded],
    ) -> Vec<Known> {
        let told = wanted.names.iter().zip(wanted.moves).zip(heads);
        let all = known.zip(told).map(|(known, ((name, moves), told))| {
            // One that is only looked at stays remembered.
            known.unwrap_or_else(|| match moves.then(|| self.remove(*name)).flatten() {
                Some(before) => before.told(*told),
                None => Known::of(*told),
            })
        });
        all.collect()
    }

    fn is_fought(&mut self, name: Name<'_>) -> bool {
        let Some(known) = self.find(name).filter(|known| known.fought > 0) else { return false };
        known.fought -= 1;
        true
    }

    /// Is a bucket that is not remembered taken for new?
    fn is_new(&self, zone_id: i32) -> bool {
        self.new.get(&zone_id).is_some_and(|new| *new >= NEW)
    }

    fn was_new(&mut self, zone_id: i32) {
        let new = self.new.entry(zone_id).or_default();
        *new = (*new + 1).min(NEW_AT_MOST);
    }

    fn was_not_new(&mut self, zone_id: i32) {
        if let Some(new) = self.new.get_mut(&zone_id) {
            *new = new.saturating_sub(NOT_NEW);
        }
    }

    fn now_us(&self) -> Option<i64> {
        #[cfg(feature = "testing")]
        if let Some(clock) = &self.test_clock {
            return Some(clock.now().timestamp_micros());
        }
        self.clock.now_us().filter(|_| !self.is_set_by_hand)
    }

    fn put(&mut self, (zone_id, key): Name<'_>, known: Known) {
        if self.count >= BUCKETS {
            let [new, old] = &mut self.buckets;
            *old = std::mem::take(new);
            self.count = 0;
        }
        self.count += 1;
        self.buckets[0].entry(zone_id).or_default().insert(key.into(), known);
    }

    fn learn(&mut self, zone_id: i32, versions: &std::sync::Arc<[Version]>) {
        let known = self.versions.entry(zone_id).or_insert_with(|| versions.clone());
        let (from, to) = (
            |versions: &[Version]| versions.first().map(|version| version.version),
            |versions: &[Version]| versions.last().map(|version| version.version),
        );
        // The newest; of these the one that reaches furthest back.
        if to(known) < to(versions) || (to(known) == to(versions) && from(versions) < from(known)) {
            *known = versions.clone();
        }
    }
}

impl Known {
    /// A bucket as the database told it: of its charges it said nothing.
    fn of(loaded: Loaded) -> Self {
        let Loaded { head, .. } = loaded;
        let from_us = if head.seq > 0 { head.last_us.saturating_add(1) } else { i64::MIN };
        Self {
            loaded,
            charges: Charges { from_us, base: head.spent_total, list: VecDeque::new(), too_many: false },
            moved: false,
            fought: 0,
        }
    }

    /// The same bucket as the database has just told it.
    fn told(self, loaded: Loaded) -> Self {
        let salt = |loaded: &Loaded| loaded.end.and_then(|end| end.salt);
        let (before, now) = (&self.loaded.head, &loaded.head);
        // The ledger only grows: where nothing more was spent, these are all its charges.
        let are_all = before.seq <= now.seq
            && before.spent_total == now.spent_total
            && salt(&self.loaded) == salt(&loaded);
        let charges = if are_all { self.charges } else { Self::of(loaded).charges };
        Self { loaded, charges, moved: false, fought: self.fought }
    }
}

impl Charges {
    fn answer(&self, question: Question) -> Option<i64> {
        match question {
            Question::TotalBefore(at_us) if at_us >= self.from_us => {
                let before = self.list.partition_point(|(charged_us, _)| *charged_us < at_us);
                Some(before.checked_sub(1).map_or(self.base, |last| self.list[last].1))
            }
            Question::Reached(search) if search.total > self.base => {
                let reached = self.list.partition_point(|(_, total)| *total < search.total);
                self.list.get(reached).map(|(charged_us, _)| *charged_us)
            }
            _ => None,
        }
    }

    /// Takes the rows from a time on: each its time, what was spent, and what in all.
    fn read(&mut self, at_us: i64, rows: &[Charged], spent_total: i64) {
        self.too_many = rows.len() >= ROWS;
        if let (Some((_, spent, total)), false) = (rows.first(), self.too_many) {
            self.from_us = at_us;
            self.base = total.saturating_sub(*spent);
            // A row that came after the head was read is not in it.
            let charges = rows.iter().filter(|(_, spent, total)| *spent > 0 && *total <= spent_total);
            self.list = charges.map(|(charged_us, _, total)| (*charged_us, *total)).collect();
        }
    }

    /// Forgets what is of no more use to a policy, and what is too much.
    fn trim(&mut self, version: &Version, now_us: i64) {
        let most = if version.policy.algorithm().family() == Family::Window { CHARGES } else { 0 };
        // A sliding counter looks at the window before, too.
        let before_us = now_us.saturating_sub(version.policy.window_us().saturating_mul(2));
        while let Some(&(at_us, total)) = self.list.front()
            && (self.list.len() > most || at_us < before_us)
        {
            self.list.pop_front();
            (self.from_us, self.base) = (at_us.saturating_add(1), total);
        }
    }
}

impl Clock {
    /// The database's time, or a little earlier; None when it was not compared lately.
    fn now_us(&self) -> Option<i64> {
        let ahead_us = self.ahead_us.iter().flatten();
        let ahead_us =
            ahead_us.filter(|(since, _)| since.elapsed() < CLOCK_COUNTS * 2).map(|(_, us)| *us).max()?;
        Some(self.own_us()?.saturating_add(ahead_us))
    }

    /// The database has said its time, and it has just arrived.
    fn compare(&mut self, now_us: i64) {
        let now = Instant::now();
        self.started.get_or_insert(now);
        let ahead_us = now_us.saturating_sub(self.own_us().unwrap_or_default());
        match &mut self.ahead_us[0] {
            Some((since, largest)) if since.elapsed() < CLOCK_COUNTS => *largest = ahead_us.max(*largest),
            _ => self.ahead_us = [Some((now, ahead_us)), self.ahead_us[0]],
        }
    }

    fn own_us(&self) -> Option<i64> {
        i64::try_from(self.started?.elapsed().as_micros()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Head;
    use crate::zone::Policy;

    fn known(remembered: &Remembered) -> usize {
        remembered.buckets.iter().flat_map(HashMap::values).map(HashMap::len).sum()
    }

    /// Of this process, in MB.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        pages * 4096 / 1_000_000
    }

    /// A million here; ten million with `TALLYGATE_SOAK`.
    #[test]
    fn however_many_buckets_are_decided_two_generations_are_remembered() {
        let buckets = if std::env::var_os("TALLYGATE_SOAK").is_some() { 10_000_000 } else { 1_000_000 };
        let before = resident();
        let mut remembered = Remembered::default();
        for n in 0..buckets {
            let mut known =
                Known::of(Loaded { head: Head { seq: 1, ..Head::default() }, ..Loaded::default() });
            known.charges.list.push_back((n, 1));
            remembered.put((1, &format!("user:{n}@example.com")), known);
        }
        let known = known(&remembered);
        assert!((BUCKETS..=2 * BUCKETS).contains(&known), "{known}");
        println!("{buckets} buckets: {known} remembered, {} MB more", resident() - before);
    }

    /// A bucket that is decided again and again drives nothing else out.
    #[test]
    fn a_bucket_counts_once_however_often_it_is_decided() {
        let version = Version {
            version: 1,
            policy: Policy::sliding_log(1, Duration::from_secs(1)).unwrap(),
            changed_us: 0,
        };
        let mut remembered = Remembered::default();
        remembered.learn(1, &[version].into());
        remembered.put((1, "quiet"), Known::default());
        let (names, moves) = ([(1, "busy")], [true]);
        let wanted = Wanted { names: &names, moves: &moves, txns: &[], window_us: 0 };
        for _ in 0..3 * BUCKETS {
            remembered.take(&wanted);
            remembered.put((1, "busy"), Known::default());
        }
        assert_eq!(known(&remembered), 2);
    }
}
