//! The present state of buckets: the core decides what would be, from the head and the few rows that it asks
//! for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Auditor;
use super::bucket::left_by;
use super::explain::time;
use crate::boxed::{BoxFuture, boxed};
use crate::check::validate_key;
use crate::decide::{self, Ask, Head, Hold, Ledger, Need, Version, decide, see};
use crate::entry::Overridden;
use crate::error::{Error, Result};
use crate::store::{self, Range, Store, StoredHead};
use crate::zone::{Algorithm, Family, Mode, Zone};

/// Heads that are read at a time.
const PAGE: u32 = 2_000;

/// A member that no check can name.
const NOBODY: &str = "\0";

/// A bucket of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Bucket {
    /// The zone's name.
    pub zone: String,
    /// Its key.
    pub key: String,
    /// Rows in its ledger, those that were dropped included.
    pub seq: i64,
    /// The time when the last of them was recorded.
    pub last_at: DateTime<Utc>,
    /// The time when its ban ends; None when it has none.
    pub banned_until: Option<DateTime<Utc>>,
    /// The database that has it now, by the name that callers know; None for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// The user of the database who said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_by: Option<String>,
}

/// The state of a bucket: what a check would meet now, if nothing else arrived before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Standing {
    /// The bucket.
    #[serde(flatten)]
    pub bucket: Bucket,
    /// The database's time for which it holds.
    pub at: DateTime<Utc>,
    /// The version of the zone's policy that is in force.
    pub zone_version: i32,
    /// The most that a check may spend; of the bucket's own limit, where it has one. The reserve of critical checks is
    /// not in it.
    pub limit: i64,
    /// The units that can be spent now, rounded down; 0 while it is banned.
    pub remaining: i64,
    /// The least wait, in microseconds from `at`, until one unit can be spent; None when it can be now, or never will.
    pub retry_after_us: Option<i64>,
    /// The least wait, in microseconds from `at`, until the whole limit can be spent; 0 when it can be now, None when it
    /// never will, and for a queue. Of a ban nothing is in it.
    pub resets_in_us: Option<i64>,
    /// The parts of its charges that end by themselves and have not ended: reservations, slots, members.
    pub held: Vec<Held>,
    /// The limit of its own that is in force.
    pub bucket_override: Option<Overridden>,
}

/// A part of a charge that ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Held {
    /// The row of the charge.
    pub seq: i64,
    /// The time when it was charged.
    pub charged_at: DateTime<Utc>,
    /// The amount of it that ends.
    pub amount: i64,
    /// The time.
    pub ends_at: DateTime<Utc>,
    /// The member that it stands for, where members are counted.
    pub member: Option<String>,
}

impl Auditor {
    /// The present state of a bucket; None when nothing was ever recorded of it.
    ///
    /// Takes no lock. Reads its head, what it holds and the rows that the core asks for, each by an index: a few round
    /// trips, some 50 where a window is full. A row that is recorded meanwhile may be in it or not.
    ///
    /// # Errors
    /// Invalid: a key that no bucket can have. Unknown zone. Transient: the database did not answer within the deadline.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use tallygate::{Check, Limiter, Policy};
    /// # let limiter = Limiter::connect("sqlite::memory:").await?;
    /// # limiter.operator().set_zone("login", &Policy::sliding_log(5, Duration::from_secs(60))?, None, "docs").await?;
    /// limiter.check(Check::new("login", "user:42").cost(5)).await?;
    /// let standing = limiter.auditor().bucket("login", "user:42").await?.expect("it was checked");
    /// assert_eq!((standing.limit, standing.remaining), (5, 0));
    /// assert!(standing.retry_after_us.is_some_and(|us| us <= 60_000_000));
    /// # Ok::<(), tallygate::Error>(()) }).unwrap();
    /// ```
    pub fn bucket<'a>(&'a self, zone: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Standing>>> {
        boxed(async move {
            validate_key(key)?;
            let one = self.of_bucket(zone, key).await?;
            let zone = one.zone(zone).await?;
            let Some(head) = one.head(&zone, key).await? else { return Ok(None) };
            one.standing(&zone, head).await.map(Some)
        })
    }

    /// The buckets of a zone by key, behind `after`, at most `limit` of them.
    ///
    /// One index range. A bucket that was idle for so long that [maintenance](crate::schema::Owner::maintain) removed its head
    /// is not listed.
    ///
    /// # Errors
    /// Unknown zone. Transient: the database did not answer within the deadline.
    pub fn buckets<'a>(
        &'a self,
        zone: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Bucket>>> {
        boxed(async move {
            let zone = self.zone(zone).await?;
            let range = Range::all(zone.id);
            let range = after.map_or_else(|| range.clone(), |after| range.behind(after));
            let mut heads = Vec::new();
            for one in self.each() {
                let of_one = one.page(|store| store.heads(&range, limit)).await?;
                // Of several, one that was moved is listed where it went.
                heads
                    .extend(of_one.into_iter().filter(|head| !self.are_several() || head.moved_to.is_none()));
            }
            heads.sort_by(|a, b| a.key.cmp(&b.key));
            heads.iter().take(limit as usize).map(|head| listed(&zone, head)).collect()
        })
    }

    /// The buckets of a zone that are banned now, by key. [`bucket`](Self::bucket) and the
    /// [history](Self::history) of each tell why.
    ///
    /// Reads every head of the zone, 2,000 at a time.
    ///
    /// # Errors
    /// Unknown zone. Transient: the database did not answer.
    pub fn bans<'a>(&'a self, zone: &'a str) -> BoxFuture<'a, Result<Vec<Bucket>>> {
        boxed(async move {
            let mut banned = Vec::new();
            for one in self.each() {
                banned.extend(one.banned(&one.zone(zone).await?).await?);
            }
            banned.sort_by(|a, b| a.key.cmp(&b.key));
            Ok(banned)
        })
    }

    /// The buckets of this key in all zones, by the zones' names.
    ///
    /// Two round trips for each zone at most.
    ///
    /// # Errors
    /// Invalid: a key that no bucket can have. Transient: the database did not answer within the deadline.
    pub fn find<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Vec<Bucket>>> {
        boxed(async move {
            validate_key(key)?;
            let mut found = Vec::new();
            for zone in self.zones().await? {
                let one = self.of_bucket(&zone.name, key).await?;
                found.extend(one.head(&zone, key).await?.map(|head| listed(&zone, &head)).transpose()?);
            }
            Ok(found)
        })
    }

    /// Is the bucket here, and was not moved away?
    pub(super) async fn has(&self, zone: &str, key: &str) -> Result<bool> {
        let Some(zone) = self.page(|store| store.zone(zone)).await? else { return Ok(false) };
        Ok(self.head(&zone, key).await?.is_some_and(|head| head.moved_to.is_none()))
    }

    async fn banned(&self, zone: &Zone) -> Result<Vec<Bucket>> {
        let now = self.page(Store::now).await?;
        let (mut range, mut banned) = (Range::all(zone.id), Vec::new());
        loop {
            let heads = self.read(|store| store.heads(&range, PAGE)).await?;
            for head in &heads {
                let bucket = listed(zone, head)?;
                if bucket.banned_until.is_some_and(|until| until > now) {
                    banned.push(bucket);
                }
            }
            let full = heads.len() == PAGE as usize;
            let Some(last) = heads.last().filter(|_| full) else { return Ok(banned) };
            range = range.behind(&last.key);
        }
    }

    /// The head of a bucket: where upkeep has removed it, or all rows too, as the last of them left it.
    async fn head(&self, zone: &Zone, key: &str) -> Result<Option<StoredHead>> {
        let of = (zone.id, key.to_owned());
        let only = Range::only(&of);
        let head = self.page(|store| store.heads(&only, 1)).await?.pop();
        if let Some(head) = head.filter(|head| head.head.seq > 0) {
            return Ok(Some(head));
        }
        let last = self.page(|ledger| ledger.ledger_before(&of, store::ending())).await?;
        if let Some(last) = last {
            let (key, head) = (of.1, left_by(&last));
            let (salt, row_hash) = (last.salt, last.row_hash);
            return Ok(Some(StoredHead {
                key,
                head,
                override_seq: None,
                holding: false,
                salt,
                row_hash,
                moved_to: None,
                moved_by: None,
                shapes: Vec::new(),
            }));
        }
        Ok(self.page(|store| store.dropped(&only, 1)).await?.pop())
    }

    async fn standing(&self, zone: &Zone, stored: StoredHead) -> Result<Standing> {
        let of = (zone.id, stored.key.clone());
        let only = Range::only(&of);
        let exception = match stored.override_seq {
            None => None,
            Some(seq) => {
                let all = self.page(|store| store.bucket_overrides(&only)).await?;
                all.into_iter().map(|(_, own)| own).find(|own| own.seq == seq)
            }
        };
        let head = Head { exception, ..stored.head };
        let (_, mut holds) = self.page(|store| store.bucket_holds(&of)).await?;
        holds.retain(|hold| hold.seq <= head.seq);
        let versions = self.page(|store| store.zone_versions(zone.id)).await?;
        let since = versions.iter().filter(|version| version.version >= head.zone_version);
        let versions: Vec<_> = since.map(Version::from).collect();
        let lacking = || {
            Error::database(format!(
                "zone_version has no row of \"zone_id\" {} whose \"version\" is {} or later, as \"zone_version\" of zone_bucket_lock \
                 says; it was changed from outside",
                zone.id, head.zone_version
            ))
        };
        let current = versions.last().ok_or_else(lacking)?;
        let now = self.page(Store::now).await?;
        let now_us = head.clamp(now.timestamp_micros());
        // Where the clock went backwards, a wait begins before the bucket's time.
        let from_now = |us: i64| if us > 0 { us.saturating_add(now_us - now.timestamp_micros()) } else { us };
        let bucket = decide::Bucket { versions: &versions, head: &head, holds: &holds };
        let known = Known { head: &head, answers: Mutex::default() };
        let now_head = self.asking(&known, &of, || see(bucket, &known, now_us)).await?.head;
        let live = |hold: &&Hold| hold.ends_us > now_us && !now_head.forgot(hold.seq);
        let live: Vec<_> = holds.iter().filter(live).collect();
        let nobody = (current.policy.algorithm() == Algorithm::Distinct).then_some(NOBODY);
        // Where nothing is checked something else is asked for, at any time.
        let is_checked = !matches!(current.policy.algorithm(), Algorithm::Capacity | Algorithm::Queue);
        let least = i64::from(is_checked);
        let ask = |cost| Ask { cost, member: nobody.filter(|_| cost > 0), ..Ask::default() };

        let found = self.asking(&known, &of, || decide(bucket, &known, &ask(0), now_us)).await?;
        let one = self.asking(&known, &of, || decide(bucket, &known, &ask(least), now_us)).await?;
        let free = Head { banned_until_us: None, ..head };
        let unbanned = decide::Bucket { head: &free, ..bucket };
        let resets_in_us = match current.policy.algorithm().family() {
            _ if current.policy.mode() == Mode::Off => Some(0),
            Family::Level if !is_checked => None,
            Family::Held => {
                let last_us = live.iter().map(|hold| hold.ends_us).max().unwrap_or(now_us);
                Some(last_us.saturating_sub(now_us))
            }
            Family::Window | Family::Level => {
                let all = ask(found.limit);
                let whole = self.asking(&known, &of, || decide(unbanned, &known, &all, now_us)).await?;
                if whole.reason.allows() { Some(0) } else { whole.retry_after_us }
            }
        };
        let bucket_override = match now_head.exception {
            None => None,
            Some(_) => self.page(|store| store.overrides(&only)).await?.pop(),
        };
        Ok(Standing {
            bucket: listed(zone, &stored)?,
            at: now,
            zone_version: current.version,
            limit: found.limit,
            remaining: found.remaining,
            retry_after_us: one.retry_after_us.map(from_now),
            resets_in_us: resets_in_us.map(from_now),
            held: live.into_iter().map(held).collect::<Result<_>>()?,
            bucket_override,
        })
    }

    /// Runs the core until it knows all that it asks for.
    async fn asking<T>(
        &self,
        known: &Known<'_>,
        of: &store::Bucket,
        core: impl Fn() -> Result<T, Need>,
    ) -> Result<T> {
        loop {
            let (asked, answer) = match core() {
                Ok(told) => return Ok(told),
                Err(Need::Failed(error)) => return Err(error),
                Err(Need::TotalBefore(at_us)) => (Asked::Before(at_us), self.before(of, at_us).await?.0),
                Err(Need::StrikesBefore(at_us)) => (Asked::Strikes(at_us), self.before(of, at_us).await?.1),
                Err(Need::Reached(total)) => (Asked::Reached(total), self.reached(of, known, total).await?),
            };
            known.answers().insert(asked, answer);
        }
    }

    /// `spent_total` and `strikes` of the last row before a time.
    async fn before(&self, of: &store::Bucket, at_us: i64) -> Result<(i64, i64)> {
        let at = time(at_us)?;
        if let Some(row) = self.page(|store| store.ledger_before(of, at)).await? {
            return Ok((row.spent_total, row.strikes));
        }
        let only = Range::only(of);
        let dropped = self.page(|store| store.dropped(&only, 1)).await?.pop();
        Ok(dropped.map_or((0, 0), |dropped| (dropped.head.spent_total, dropped.head.strikes)))
    }

    /// When a total was first reached, which the head has: found by halving the time between.
    async fn reached(&self, of: &store::Bucket, known: &Known<'_>, total: i64) -> Result<i64> {
        let mut reached_us = known.head.last_us;
        let mut not_us = known.last_below(total);
        while reached_us - not_us > 1 {
            let middle_us = not_us + (reached_us - not_us) / 2;
            match self.before(of, middle_us + 1).await?.0 < total {
                true => not_us = middle_us,
                false => reached_us = middle_us,
            }
        }
        Ok(reached_us)
    }
}

/// The bucket's rows as far as they were asked for. Those that came after its head do not count.
struct Known<'h> {
    head: &'h Head,
    /// Behind a lock, so that the asking may go on in another thread.
    answers: Mutex<BTreeMap<Asked, i64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Before(i64),
    Reached(i64),
    Strikes(i64),
}

impl Known<'_> {
    fn answers(&self) -> MutexGuard<'_, BTreeMap<Asked, i64>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last known time up to which less than a total was spent; no row is as old as the other.
    fn last_below(&self, total: i64) -> i64 {
        let answers = self.answers();
        let below = answers.iter().filter_map(|(asked, spent)| match asked {
            Asked::Before(at_us) if *spent < total => Some(at_us - 1),
            _ => None,
        });
        below.max().unwrap_or_else(|| store::beginning().0.timestamp_micros())
    }

    fn answer(&self, asked: Asked) -> Option<i64> {
        self.answers().get(&asked).copied()
    }
}

impl Ledger for Known<'_> {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        match at_us > self.head.last_us {
            true => Ok(self.head.spent_total),
            false => self.answer(Asked::Before(at_us)).ok_or(Need::TotalBefore(at_us)),
        }
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        match total > self.head.spent_total {
            true => Ok(None),
            false => self.answer(Asked::Reached(total)).map(Some).ok_or(Need::Reached(total)),
        }
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        match at_us > self.head.last_us {
            true => Ok(self.head.strikes),
            false => self.answer(Asked::Strikes(at_us)).ok_or(Need::StrikesBefore(at_us)),
        }
    }
}

fn listed(zone: &Zone, stored: &StoredHead) -> Result<Bucket> {
    Ok(Bucket {
        zone: zone.name.clone(),
        key: stored.key.clone(),
        seq: stored.head.seq,
        last_at: time(stored.head.last_us)?,
        banned_until: stored.head.banned_until_us.map(time).transpose()?,
        moved_to: stored.moved_to.clone(),
        moved_by: stored.moved_by.clone(),
    })
}

fn held(hold: &Hold) -> Result<Held> {
    Ok(Held {
        seq: hold.seq,
        charged_at: time(hold.charged_us)?,
        amount: hold.amount,
        ends_at: time(hold.ends_us)?,
        member: hold.member.clone(),
    })
}
