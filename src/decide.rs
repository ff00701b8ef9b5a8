//! The pure core: `(bucket, ledger, what is asked, now) -> outcome`.
//!
//! No clock, no store, no floating point. Times are microseconds since 1970 in UTC, amounts are units of
//! cost. The SQL routines decide the same, statement by statement; differential tests hold the two
//! together. This is also what SQLite's engine runs and what the tests take as their oracle.
//!
//! There are three families of algorithms. A *window* (sliding log, fixed window, sliding counter) asks the
//! ledger what was spent between two times. A *level* (token bucket, leaky bucket, leaky queue, uniform) is a
//! number in the bucket's head. *Holds* (distinct, concurrency) are counted one by one. Around them stand bans,
//! a soft limit, a reserve for critical checks and the mode of the zone, the same for all.

mod ban;
mod bring;
mod capacity;
mod concurrency;
mod distinct;
mod event;
mod fixed_window;
mod held;
mod leaky_queue;
mod local;
mod predict;
mod queue;
mod see;
mod sliding_counter;
mod sliding_log;
mod token_bucket;
mod window;

use bring::Brought;

use crate::decision::Reason;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Family, Limit, Mode, Policy, ZoneVersion};

pub(crate) use bring::CARRIED_MAX;
pub use capacity::{Claim, Granted, Standing, WEIGHT_MAX, lease, shares};
pub use event::{Charge, Event, Happened, Override, Undo, happen};
pub use local::{UnitsTaken, take_units};
pub use predict::{SHAPE_AGE_US, SHAPES_MAX, SHARED_SHAPE, Shape, learn, predict};
pub(crate) use queue::queueing;
pub use queue::{Bid, Item, Load, Offered, Place, Progress, Progressed, Shelf, Taken, offer, progress, take};
pub(crate) use see::{Seen, see};
pub(crate) use window::{same_as, since};

/// The head of a bucket: everything about it that is not in its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Rows in the bucket's ledger; 0 for a bucket that was never checked.
    pub seq: i64,
    /// The time when the last row was decided. Meaningless while `seq` is 0.
    pub last_us: i64,
    /// Sum of all that was ever spent.
    pub spent_total: i64,
    /// The level at `last_us`, in fractions of a token (see `decide/token_bucket.rs`); None before the first
    /// decision by an algorithm that has one. Below 0 where more was settled than there was.
    pub level: Option<i64>,
    /// The zone's version that decided the last row.
    pub zone_version: i32,
    /// The part of the time before it that a change of policy left.
    pub carried: Option<Carried>,
    /// Blocked checks that count for bans, in all.
    pub strikes: i64,
    /// When the last ban ends; None when there was none, or it was lifted.
    pub banned_until_us: Option<i64>,
    /// Bans that followed each other.
    pub bans: i32,
    /// `strikes` when the last ban began.
    pub ban_strikes: i64,
    /// The bucket's own limit.
    pub exception: Option<Exception>,
}

/// A charge in place of all that was spent before a change of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The time when the policy changed, which is that of the charge.
    pub at_us: i64,
    /// The amount, in units.
    pub amount: i64,
    /// `spent_total` when the policy changed; nothing of that counts any more.
    pub total: i64,
    /// `seq` when the policy changed.
    pub seq: i64,
}

/// An override: a limit for one bucket, for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The row that set it.
    pub seq: i64,
    /// Another limit than the zone's; None keeps that.
    pub limit: Option<Limit>,
    /// True when blocked checks do not lead to a ban.
    pub ban_exempt: bool,
    /// The time when it ends; None for never.
    pub until_us: Option<i64>,
}

/// A policy and when it came into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number in the zone's history.
    pub version: i32,
    /// The policy that it admits by.
    pub policy: Policy,
    /// The time when it came into force.
    pub changed_us: i64,
}

/// The only version that there ever was.
impl From<Policy> for Version {
    fn from(policy: Policy) -> Self {
        Self { version: 1, policy, changed_us: i64::MIN }
    }
}

impl From<&ZoneVersion> for Version {
    fn from(version: &ZoneVersion) -> Self {
        let ZoneVersion { version, policy, changed_at, .. } = version;
        Self { version: *version, policy: *policy, changed_us: changed_at.timestamp_micros() }
    }
}

/// A part of a charge that ends by itself: it was given back, a reservation runs out, a slot or a member
/// goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// `seq` of the charge.
    pub seq: i64,
    /// The time when the charge was made.
    pub charged_us: i64,
    /// The amount of it that ends.
    pub amount: i64,
    /// The time.
    pub ends_us: i64,
    /// The member that it stands for.
    pub member: Option<String>,
}

/// A bucket as [`decide`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'b> {
    /// The zone's versions, from the one that decided the bucket's last row to the one in force, in order; at least
    /// the one in force.
    pub versions: &'b [Version],
    /// The head that the last row left behind.
    pub head: &'b Head,
    /// The parts of charges that end or have ended, in any order. At least: what ends after the head's time, and
    /// what was charged in the windows that are asked about.
    pub holds: &'b [Hold],
}

/// The question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Units, 0 to 2^40.
    pub cost: i64,
    /// May it take from the reserve?
    pub critical: bool,
    /// The member that it is about, where members are counted.
    pub member: Option<&'a str>,
    /// A reservation: what it charges ends by itself after so long.
    pub ttl_us: Option<i64>,
    /// Another limit of the same request has blocked it: it must not pass.
    pub held_back: bool,
}

/// The rows of the bucket, as far as [`decide`] wants to know them.
///
/// An implementation that does not know an answer returns it as [`Need`]; the caller finds it out and decides again.
pub trait Ledger {
    /// `spent_total` of the last row before a time; that of the row before the first one that is kept, if there is none.
    ///
    /// # Errors
    /// [`Need::TotalBefore`]: the answer is not known.
    fn total_before(&self, at_us: i64) -> Result<i64, Need>;

    /// The time when `spent_total` was first at least this; None when it never was.
    ///
    /// # Errors
    /// [`Need::Reached`]: the answer is not known.
    fn reached(&self, total: i64) -> Result<Option<i64>, Need>;

    /// `strikes` of the last row before a time; 0 if there is none.
    ///
    /// # Errors
    /// [`Need::StrikesBefore`]: the answer is not known.
    fn strikes_before(&self, at_us: i64) -> Result<i64, Need>;

    /// Told before what nothing depends on but a wait: totals are asked for then that may be guessed for the time being.
    fn waits(&self) {}
}

/// The reason why there is no outcome.
#[derive(Debug)]
pub enum Need {
    /// The answer of [`Ledger::total_before`] for this time.
    TotalBefore(i64),
    /// The answer of [`Ledger::reached`] for this total.
    Reached(i64),
    /// The answer of [`Ledger::strikes_before`] for this time.
    StrikesBefore(i64),
    /// Nothing: it cannot be decided.
    Failed(Error),
}

impl From<Error> for Need {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A decision, and the head that it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// True when it may not pass.
    pub blocked: bool,
    /// The reason. In [`Mode::Shadow`] that of the decision which did not hold.
    pub reason: Reason,
    /// The units that the decision took.
    pub spent: i64,
    /// The most that it could have been.
    pub limit: i64,
    /// The units that are left after it, rounded down.
    pub remaining: i64,
    /// The least wait after which the same passes.
    pub retry_after_us: Option<i64>,
    /// The wait for its turn, where it passed into a queue.
    pub delay_us: Option<i64>,
    /// The time when the units that it took end by themselves.
    pub ends_us: Option<i64>,
    /// When it was decided: `now`, or the bucket's last time if the clock went backwards.
    pub decided_us: i64,
    /// The ban that it brought about, a row of its own after that of the decision: when it ends.
    pub banned_until_us: Option<i64>,
    /// The bucket's next head, a ban's row included.
    pub head: Head,
}

/// The verdict of an algorithm.
struct Verdict {
    reason: Reason,
    spent: i64,
    remaining: i64,
    /// None when it passes, or never will.
    wait_us: Option<i64>,
    delay_us: Option<i64>,
    level: Option<i64>,
    /// When what it takes ends by itself, for the algorithms by which it does.
    ends_us: Option<i64>,
}

/// Decides one check.
///
/// Any time will do, the ends of 63 bits included; what `bucket` and `ledger` say is what was recorded.
///
/// # Errors
/// The [`Need`] that `ledger` answers with; else [`Need::Failed`]. Invalid: no policy was given, the bucket's running
/// total would leave 63 bits, the check lacks the member that the zone counts or carries what its algorithm has no use
/// for.
pub fn decide(bucket: Bucket<'_>, ledger: &impl Ledger, ask: &Ask<'_>, now_us: i64) -> Result<Outcome, Need> {
    let now_us = bucket.head.clamp(now_us);
    let current = bucket.versions.last().ok_or_else(|| Error::invalid("no policy was given to decide by"))?;
    let Brought { mut head, level, policy } = bring::to(&bucket, ledger, now_us)?;
    let policy = policy.as_ref();
    validate(policy, ask)?;

    let banned = head.banned_until_us.filter(|&until_us| until_us > now_us);
    // A ban that keeps a check from passing also keeps it from counting.
    let ask = &Ask { held_back: ask.held_back || banned.is_some(), ..*ask };
    // An override may leave nothing but the reserve.
    let kept = if ask.critical { 0 } else { policy.reserve() };
    let limit = (policy.limit() - kept).max(0);
    let bucket = Bucket { head: &head, ..bucket };
    let mut verdict = match policy.algorithm().family() {
        _ if policy.mode() == Mode::Off => Verdict::off(limit, level),
        Family::Window => window::decide(policy, &bucket, ledger, limit, ask, now_us)?,
        Family::Level => token_bucket::decide(policy, &bucket, level, limit, ask, now_us),
        Family::Held => held::decide(policy, &bucket, limit, ask, now_us),
    };
    let mut banned_until_us = None;
    if banned.is_some() && policy.mode() != Mode::Off && ask.cost == 0 {
        verdict.remaining = 0;
    } else if policy.mode() != Mode::Off && ask.cost > 0 {
        if let Some(until_us) = banned
            && verdict.reason != Reason::ExceedsLimit
        {
            let wait_us = until_us.saturating_sub(now_us).max(verdict.wait_us.unwrap_or(0));
            verdict = Verdict { remaining: 0, ..verdict.refuse(Reason::Banned, Some(wait_us), level) };
        } else if banned.is_none() && !verdict.reason.allows() {
            let exempt =
                head.exception.is_some_and(|exception| exception.ban_exempt && exception.holds(now_us));
            if let Some(rule) = policy.ban().filter(|_| !exempt) {
                banned_until_us = ban::strike(&rule, head.to_mut(), ledger, verdict.wait_us, now_us)?;
                if let (Some(until_us), Some(wait_us)) = (banned_until_us, &mut verdict.wait_us) {
                    *wait_us = until_us.saturating_sub(now_us).max(*wait_us);
                }
            }
        }
        if ask.held_back && verdict.reason.allows() {
            verdict = verdict.refuse(Reason::HeldBack, None, level);
        }
    }
    let spent_total = head.spent_total.checked_add(verdict.spent).ok_or_else(|| {
        Error::invalid(format!(
            "the bucket has spent {} in all and cannot count {} more",
            head.spent_total, verdict.spent
        ))
    })?;
    let ends_us = verdict.ends_us.or(ask.ttl_us.map(|ttl_us| now_us.saturating_add(ttl_us)));
    Ok(Outcome {
        blocked: !verdict.reason.allows() && policy.mode() == Mode::Enforce,
        reason: verdict.reason,
        spent: verdict.spent,
        limit,
        remaining: verdict.remaining,
        retry_after_us: verdict.wait_us,
        delay_us: verdict.delay_us,
        ends_us: ends_us.filter(|_| verdict.spent > 0 && verdict.reason.allows()),
        decided_us: now_us,
        banned_until_us,
        head: Head {
            seq: head.seq + 1 + i64::from(banned_until_us.is_some()),
            last_us: now_us,
            spent_total,
            level: verdict.level,
            zone_version: current.version,
            ..*head
        },
    })
}

/// Refuses what the algorithm has no meaning for.
fn validate(policy: &Policy, ask: &Ask<'_>) -> Result<()> {
    let algorithm = policy.algorithm();
    let distinct = algorithm == Algorithm::Distinct;
    if distinct && ask.cost > 1 {
        return Err(Error::invalid(format!(
            "cost {} is out of range; a zone that counts members takes 0 or 1",
            ask.cost
        )));
    }
    if distinct && ask.cost > 0 && ask.member.is_none() {
        return Err(Error::invalid("the zone counts members; name the one that the check is about"));
    }
    if !distinct && ask.member.is_some() {
        return Err(Error::invalid(format!("{algorithm} counts no members; leave the member out")));
    }
    if algorithm == Algorithm::Capacity && ask.cost > 0 {
        return Err(Error::invalid("the zone hands out capacity, and decides no checks; take a lease of it"));
    }
    if algorithm == Algorithm::Queue && ask.cost > 0 {
        return Err(Error::invalid("the zone is a queue, and decides no checks; offer an item to it"));
    }
    if ask.ttl_us.is_some() && algorithm.family() == Family::Held {
        return Err(Error::invalid(format!("nothing can be reserved in a zone of {algorithm}; use a check")));
    }
    Ok(())
}

impl Outcome {
    /// The check's place in the bucket; a ban that it brought about comes after it.
    #[must_use]
    pub fn seq(&self) -> i64 {
        self.head.seq - i64::from(self.banned_until_us.is_some())
    }

    /// The part of it that ends by itself, with the member that was asked about.
    #[must_use]
    pub fn hold(&self, member: Option<&str>) -> Option<Hold> {
        self.ends_us.map(|ends_us| Hold {
            seq: self.seq(),
            charged_us: self.decided_us,
            amount: self.spent,
            ends_us,
            member: member.map(str::to_owned),
        })
    }
}

impl Verdict {
    /// The outcome of a check that passes because the zone is switched off.
    fn off(limit: i64, level: Option<i64>) -> Self {
        Self {
            reason: Reason::Off,
            spent: 0,
            remaining: limit,
            wait_us: None,
            delay_us: None,
            level,
            ends_us: None,
        }
    }

    /// The same bucket, with nothing taken from it.
    fn refuse(self, reason: Reason, wait_us: Option<i64>, level: Option<i64>) -> Self {
        let remaining = self.remaining.saturating_add(if self.reason.allows() { self.spent } else { 0 });
        Self { reason, spent: 0, remaining, wait_us, delay_us: None, level, ends_us: None }
    }
}

impl Head {
    /// Time never moves backwards within a bucket.
    pub(crate) fn clamp(&self, now_us: i64) -> i64 {
        if self.seq == 0 { now_us } else { now_us.max(self.last_us) }
    }

    /// True when a change of policy put something else in place of what that row charged: then nothing of it comes back.
    pub(crate) fn forgot(&self, seq: i64) -> bool {
        self.carried.is_some_and(|carried| seq <= carried.seq)
    }
}

impl Exception {
    /// Half-open, like a window: at its end it holds no more.
    fn holds(&self, at_us: i64) -> bool {
        self.until_us.is_none_or(|until_us| at_us < until_us)
    }
}

/// `a × b / c`, rounded down, for amounts that are not negative.
fn share(a: i64, b: i64, c: i64) -> i64 {
    i64::try_from(i128::from(a) * i128::from(b) / i128::from(c).max(1)).unwrap_or(i64::MAX)
}

/// `a × b / c`, rounded up.
fn share_up(a: i64, b: i64, c: i64) -> i64 {
    let c = i128::from(c).max(1);
    i64::try_from((i128::from(a) * i128::from(b) + (c - 1)).div_euclid(c)).unwrap_or(i64::MAX)
}
