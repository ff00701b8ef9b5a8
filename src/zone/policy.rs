//! The policy of a zone: how much it admits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::choice::{
    Algorithm, BlockedRows, CalendarUnit, Durability, Family, Mode, OnOutage, RunningBuckets,
};
use super::queueing::Queueing;
use super::rules::{BanRule, Limit, micros, validate_time, validate_units};
use super::sharing::{Share, Sharing};
use super::time_zone::{ClockSpan, TimeZoneName};
use crate::error::{Error, Result};

/// A policy: how much a zone admits, and what is done around it.
///
/// The constructors refuse what cannot be decided exactly. Options are set by the `with_…` methods; those that do not
/// go together are refused where the policy is stored, by [`Operator::set_zone`](crate::policy::Operator::set_zone).
///
/// ```
/// use std::time::Duration;
/// use tallygate::policy::Mode;
/// use tallygate::Policy;
/// let logins = Policy::sliding_log(5, Duration::from_secs(60))?.with_mode(Mode::Shadow);
/// assert_eq!(logins.limit(), 5);
/// assert!(Policy::sliding_log(-1, Duration::from_secs(60)).unwrap_err().is_invalid());
/// # Ok::<(), tallygate::Error>(())
/// ```
///
/// As JSON it is an object of what it chooses; what is left out is as a constructor leaves it, and what cannot be decided
/// exactly or does not go together is refused.
///
/// ```
/// # use tallygate::Policy;
/// # use std::time::Duration;
/// let policy: Policy = serde_json::from_str(r#"{"algorithm":"sliding-log","rate":5,"window_us":60000000}"#)?;
/// assert_eq!(policy, Policy::sliding_log(5, Duration::from_secs(60)).unwrap());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Said", into = "Said")]
pub struct Policy {
    algorithm: Algorithm,
    rate: i64,
    window_us: i64,
    burst: Option<i64>,
    slots: Option<i32>,
    calendar: Option<Calendar>,
    soft_rate: Option<i64>,
    reserve: i64,
    mode: Mode,
    count_blocked: bool,
    ban: Option<BanRule>,
    on_outage: OnOutage,
    running_buckets: RunningBuckets,
    durability: Durability,
    blocked_rows: BlockedRows,
    sharing: Option<Sharing>,
    queueing: Option<Queueing>,
    /// With it, window and burst are those that make up for it: see `local.rs`.
    local_us: Option<i64>,
    /// Rate and window without their greatest common divisor, found once and not with each decision.
    per_us: i64,
    per_token: i64,
}

/// A policy as JSON says it, before anybody looked whether it can be.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Said {
    algorithm: Algorithm,
    rate: i64,
    window_us: Option<i64>,
    burst: Option<i64>,
    slots: Option<i32>,
    calendar: Option<Calendar>,
    soft_rate: Option<i64>,
    #[serde(default)]
    reserve: i64,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    count_blocked: bool,
    ban: Option<BanRule>,
    #[serde(default)]
    on_outage: OnOutage,
    #[serde(default)]
    running_buckets: RunningBuckets,
    #[serde(default)]
    durability: Durability,
    #[serde(default)]
    blocked_rows: BlockedRows,
    sharing: Option<Sharing>,
    queueing: Option<Queueing>,
    local_us: Option<i64>,
}

impl From<Policy> for Said {
    fn from(policy: Policy) -> Self {
        let asked = policy.asked();
        Self {
            algorithm: asked.algorithm,
            rate: asked.rate,
            window_us: Some(asked.window_us),
            burst: asked.burst,
            slots: asked.slots,
            calendar: asked.calendar,
            soft_rate: asked.soft_rate,
            reserve: asked.reserve,
            mode: asked.mode,
            count_blocked: asked.count_blocked,
            ban: asked.ban,
            on_outage: asked.on_outage,
            running_buckets: asked.running_buckets,
            durability: asked.durability,
            blocked_rows: asked.blocked_rows,
            sharing: asked.sharing,
            queueing: asked.queueing,
            local_us: policy.local_us,
        }
    }
}

impl TryFrom<Said> for Policy {
    type Error = Error;

    fn try_from(said: Said) -> Result<Self> {
        let window_us = match (said.window_us, said.calendar) {
            (Some(window_us), _) => window_us,
            (None, Some(calendar)) => calendar.longest_us(),
            (None, None) => {
                return Err(Error::invalid("the policy has neither a window nor a calendar; give it one"));
            }
        };
        let policy = Self::from_columns(said.algorithm, said.rate, window_us, said.burst)?
            .with_slots(said.slots)
            .with_calendar(said.calendar)
            .with_soft_rate(said.soft_rate)
            .with_reserve(said.reserve)
            .with_mode(said.mode)
            .with_count_blocked(said.count_blocked)
            .with_ban(said.ban)
            .with_on_outage(said.on_outage)
            .with_running_buckets(said.running_buckets)
            .with_durability(said.durability)
            .with_blocked_rows(said.blocked_rows)
            .with_sharing(said.sharing)
            .with_queueing(said.queueing)
            .locally(said.local_us);
        policy.validate()?;
        Ok(policy)
    }
}

impl Policy {
    /// At most `rate` units (0, which refuses all, to 2^40) in any `window` (1 µs to 10 years).
    ///
    /// # Errors
    /// Invalid: the rate or the window is out of range.
    pub fn sliding_log(rate: i64, window: Duration) -> Result<Self> {
        Self::new(Algorithm::SlidingLog, rate, window, None)
    }

    /// At most `rate` units (0, which refuses all, to 2^40) in each `window` (1 µs to 10 years) since 1970.
    ///
    /// # Errors
    /// Invalid: the rate or the window is out of range.
    pub fn fixed_window(rate: i64, window: Duration) -> Result<Self> {
        Self::new(Algorithm::FixedWindow, rate, window, None)
    }

    /// At most `rate` units (0, which refuses all, to 2^40) in each period of a calendar.
    ///
    /// # Errors
    /// Invalid: the rate is out of range.
    pub fn calendar(rate: i64, unit: CalendarUnit, time_zone: TimeZoneName) -> Result<Self> {
        let calendar = Calendar { unit, time_zone };
        let window_us = calendar.longest_us();
        Ok(Self {
            calendar: Some(calendar),
            ..Self::from_columns(Algorithm::FixedWindow, rate, window_us, None)?
        })
    }

    /// At most about `rate` units (0, which refuses all, to 2^40) in any `window` (1 µs to 10 years), counted in `slots`
    /// (1 to 1,000) of the same whole number of microseconds.
    ///
    /// # Errors
    /// Invalid: the rate, the window or the number of slots is out of range, or the window cannot be cut into so many.
    pub fn sliding_counter(rate: i64, window: Duration, slots: i32) -> Result<Self> {
        Self { slots: Some(slots), ..Self::new(Algorithm::SlidingCounter, rate, window, None)? }.checked()
    }

    /// `rate` units (1 to 2^40) flow in per `window` (1 µs to 10 years), up to `burst` (1 to 2^40;
    /// `None` means `rate`).
    ///
    /// With g the greatest common divisor of rate and window in µs, burst × window/g + rate/g must fit in
    /// 63 bits.
    ///
    /// # Errors
    /// Invalid: the rate, the window or the burst is out of range, or does not fit; the error names the largest burst
    /// that does.
    pub fn token_bucket(rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        Self::new(Algorithm::TokenBucket, rate, window, burst)
    }

    /// A bucket of `burst` units (1 to 2^40; `None` means `rate`) that drains at `rate` units (1 to 2^40) per `window`
    /// (1 µs to 10 years); a check that would overflow it is blocked. The numbers must fit in integers, as those of
    /// [`token_bucket`](Self::token_bucket).
    ///
    /// # Errors
    /// Those of [`token_bucket`](Self::token_bucket).
    pub fn leaky_bucket(rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        Self::new(Algorithm::LeakyBucket, rate, window, burst)
    }

    /// A queue of `burst` units (1 to 2^40; `None` means `rate`) that is served at `rate` units (1 to 2^40) per `window`
    /// (1 µs to 10 years); a check that finds room is told when its turn is. Bounded as
    /// [`token_bucket`](Self::token_bucket).
    ///
    /// # Errors
    /// Those of [`token_bucket`](Self::token_bucket).
    pub fn leaky_queue(rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        Self::new(Algorithm::LeakyQueue, rate, window, burst)
    }

    /// One unit at a time, `rate` of them (1 to 2^40) per `window` (1 µs to 10 years), at even distances.
    ///
    /// # Errors
    /// Invalid: the rate or the window is out of range.
    pub fn uniform(rate: i64, window: Duration) -> Result<Self> {
        Self::new(Algorithm::Uniform, rate, window, None)
    }

    /// At most `limit` different members (1 to 2^40) in a `window` (1 µs to 10 years).
    ///
    /// # Errors
    /// Invalid: the limit or the window is out of range.
    pub fn distinct(limit: i64, window: Duration) -> Result<Self> {
        Self::new(Algorithm::Distinct, limit, window, None)
    }

    /// At most `limit` units (1 to 2^40) held at once, each for at most `slot_ttl` (1 µs to 10 years).
    ///
    /// # Errors
    /// Invalid: the limit or the time is out of range.
    pub fn concurrency(limit: i64, slot_ttl: Duration) -> Result<Self> {
        Self::new(Algorithm::Concurrency, limit, slot_ttl, None)
    }

    /// At most `capacity` units (1 to 2^40) handed out at a time, in leases of `length` (1 µs to 10 years), shared by
    /// [`Share::Fair`](crate::policy::Share::Fair) until [`with_sharing`](Self::with_sharing) says otherwise.
    ///
    /// # Errors
    /// Invalid: the capacity or the length is out of range.
    pub fn capacity(capacity: i64, length: Duration) -> Result<Self> {
        Self::new(Algorithm::Capacity, capacity, length, None)
    }

    /// A queue of at most `backlog` units (1 to 2^40) that wait or are taken, of which `rate` units (1 to 2^40) can be taken
    /// per `window` (1 µs to 10 years), at most the rate at once. An item can be taken five times until
    /// [`with_queueing`](Self::with_queueing) says otherwise. Bounded as [`token_bucket`](Self::token_bucket).
    ///
    /// # Errors
    /// Those of [`token_bucket`](Self::token_bucket), and the backlog is out of range.
    pub fn queue(rate: i64, window: Duration, backlog: i64) -> Result<Self> {
        let policy = Self::new(Algorithm::Queue, rate, window, None)?;
        let policy = policy.with_queueing(Some(Queueing::new(backlog)));
        policy.validate()?;
        Ok(policy)
    }

    /// Any of them, for callers that read the algorithm from a file or a flag. A sliding counter has one slot until it
    /// is given others.
    ///
    /// # Errors
    /// Invalid: what the algorithm's own constructor refuses, and a burst for an algorithm that has none.
    pub fn new(algorithm: Algorithm, rate: i64, window: Duration, burst: Option<i64>) -> Result<Self> {
        Self::from_columns(algorithm, rate, micros(window), burst)
    }

    /// The core of a policy as the tables hold it.
    pub(crate) fn from_columns(
        algorithm: Algorithm,
        rate: i64,
        window_us: i64,
        burst: Option<i64>,
    ) -> Result<Self> {
        // A rate of 0 refuses all. One way to say that is enough: by a window.
        let least = i64::from(algorithm.family() != Family::Window);
        validate_units("rate", least, rate)?;
        validate_time("window", window_us).map_err(|error| error.of("window_us"))?;
        if let Some(burst) = burst {
            validate_units("burst", 1, burst)?;
        }
        let gcd = gcd(rate, window_us);
        Self {
            algorithm,
            rate,
            window_us,
            burst,
            slots: (algorithm == Algorithm::SlidingCounter).then_some(1),
            calendar: None,
            soft_rate: None,
            reserve: 0,
            mode: Mode::default(),
            count_blocked: false,
            ban: None,
            on_outage: OnOutage::default(),
            running_buckets: RunningBuckets::default(),
            durability: Durability::default(),
            blocked_rows: BlockedRows::default(),
            sharing: (algorithm == Algorithm::Capacity).then(|| Sharing::new(Share::Fair, window_us)),
            queueing: (algorithm == Algorithm::Queue).then(|| Queueing::new(rate)),
            local_us: None,
            per_us: rate / gcd,
            per_token: window_us / gcd,
        }
        .checked()
    }

    /// Itself, if its algorithm can count it exactly.
    fn checked(self) -> Result<Self> {
        let Self { algorithm, rate, window_us, per_us, per_token, .. } = self;
        if let Some(burst) = self.burst
            && !matches!(
                algorithm,
                Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue | Algorithm::Queue
            )
        {
            return Err(Error::invalid(format!(
                "burst {burst} has no meaning for {algorithm}; leave it out, or use token-bucket"
            ))
            .of("burst"));
        }
        let largest = (i64::MAX - per_us) / per_token;
        if algorithm.family() == Family::Level && self.limit() > largest {
            return Err(Error::invalid(format!(
                "burst {} with rate {rate} per {window_us} µs cannot be counted exactly in 63 bits; the largest \
                 burst is {largest}, or use a window that shares more factors with the rate",
                self.limit()
            )).of(if self.burst.is_some() { "burst" } else { "rate" }));
        }
        if let Some(slots) = self.slots {
            if algorithm != Algorithm::SlidingCounter {
                return Err(Error::invalid(format!(
                    "{algorithm} has no slots; leave them out, or use sliding-counter"
                ))
                .of("slots"));
            }
            if !(1..=1_000).contains(&slots) {
                return Err(
                    Error::invalid(format!("{slots} slots are out of range; use 1 to 1000")).of("slots")
                );
            }
            if window_us % i64::from(slots) != 0 {
                return Err(Error::invalid(format!(
                    "a window of {window_us} µs cannot be cut into {slots} slots of whole microseconds; use another number"
                )).of("slots"));
            }
        }
        Ok(self)
    }

    /// Looks at the options; storing the policy calls it.
    ///
    /// # Errors
    /// Invalid: an option is out of range, or options do not go together.
    pub fn validate(&self) -> Result<()> {
        self.validate_local()?;
        self.checked()?;
        let Self { algorithm, .. } = self;
        if let Some(Calendar { unit, .. }) = self.calendar
            && *algorithm != Algorithm::FixedWindow
        {
            return Err(Error::invalid(format!(
                "{algorithm} does not follow a calendar {unit}; leave the calendar out, or use fixed-window"
            ))
            .of("calendar"));
        }
        // Below a limit of 0 there is nothing.
        let most = (self.limit() - 1).max(0);
        let soft_rate = ("soft_rate", "soft rate", self.soft_rate.unwrap_or(0));
        for (column, what, part) in [soft_rate, ("reserve", "reserve", self.reserve)] {
            if !(0..=most).contains(&part) {
                return Err(Error::invalid(format!(
                    "{what} {part} is out of range; use 0 to {most}, one below the limit"
                ))
                .of(column));
            }
        }
        if self.count_blocked && algorithm.family() != Family::Window {
            return Err(Error::invalid(format!(
                "{algorithm} cannot count blocked checks; use sliding-log, fixed-window or sliding-counter"
            ))
            .of("count_blocked"));
        }
        if self.count_blocked && self.blocked_rows == BlockedRows::Coalesced {
            return Err(Error::invalid(
                "blocked checks that count need a row each; leave out coalesced rows, or the counting",
            )
            .of("blocked_rows"));
        }
        self.validate_sharing()?;
        self.validate_queueing()?;
        self.ban.map_or(Ok(()), |ban| ban.validate())
    }

    fn validate_sharing(&self) -> Result<()> {
        let Some(sharing) = self.sharing else { return Ok(()) };
        if self.algorithm != Algorithm::Capacity {
            return Err(Error::invalid(format!(
                "{} shares nothing among clients; leave the sharing out, or use capacity",
                self.algorithm
            ))
            .of("share"));
        }
        if self.is_about_checks() {
            return Err(Error::invalid(
                "capacity is handed out, not checked; leave out the soft rate, the reserve, the mode, bans, coalesced rows and the \
                 way of outages",
            ).of("share"));
        }
        sharing.validate(self.rate, self.window_us)
    }

    fn validate_queueing(&self) -> Result<()> {
        let Some(queueing) = self.queueing else { return Ok(()) };
        if self.algorithm != Algorithm::Queue {
            return Err(Error::invalid(format!(
                "nothing waits in a zone of {}; leave out the backlog and the takes, or use queue",
                self.algorithm
            ))
            .of("backlog"));
        }
        if self.is_about_checks() {
            return Err(Error::invalid(
                "a queue decides no checks; leave out the soft rate, the reserve, the mode, bans, coalesced rows and the way of \
                 outages",
            ).of("backlog"));
        }
        queueing.validate()
    }

    /// True when it says anything that is of use where checks are decided only.
    fn is_about_checks(&self) -> bool {
        self.soft_rate.is_some()
            || self.reserve != 0
            || self.mode != Mode::Enforce
            || self.ban.is_some()
            || self.blocked_rows != BlockedRows::Each
            || self.on_outage != OnOutage::default()
    }

    /// The same policy with another limit, as an override sets it.
    pub(crate) fn overridden(&self, limit: Limit) -> Self {
        let Limit { rate, burst, gcd, .. } = limit;
        // A calendar's periods, and a window cut into slots, stay what they are.
        let keeps = self.calendar.is_some() || self.slots.is_some();
        let window_us = if keeps { self.window_us } else { limit.window_us };
        let burst = burst.filter(|_| self.algorithm.family() == Family::Level);
        // Its fields can be set one by one, so that the number may be no divisor.
        let [per_us, per_token] = [rate, limit.window_us].map(|number| (number / gcd.max(1)).max(1));
        // The units that a process took would need more than such a limit has: see `local.rs`.
        Self { rate, window_us, burst, local_us: None, per_us, per_token, ..*self }
    }

    /// The same with another window and burst.
    pub(super) fn counting(self, window_us: i64, burst: Option<i64>, local_us: Option<i64>) -> Self {
        // A window that was stored by hand may be none without the time of local decisions.
        let gcd = gcd(self.rate, window_us).max(1);
        Self { window_us, burst, local_us, per_us: self.rate / gcd, per_token: window_us / gcd, ..self }
    }

    /// Sets the number of slots that a sliding counter has.
    #[must_use]
    pub fn with_slots(self, slots: Option<i32>) -> Self {
        Self { slots: slots.or(self.slots), ..self }
    }

    /// The calendar that a fixed window follows; its window is then the longest period of that.
    #[must_use]
    pub fn with_calendar(self, calendar: Option<Calendar>) -> Self {
        Self { calendar, ..self }
    }

    /// From how much on a check is allowed with [`Reason::Soft`](crate::Reason::Soft), 0 to one below the limit.
    #[must_use]
    pub fn with_soft_rate(self, soft_rate: Option<i64>) -> Self {
        Self { soft_rate, ..self }
    }

    /// Sets the part of the limit that only critical checks may take, 0 to one below the limit.
    #[must_use]
    pub fn with_reserve(self, reserve: i64) -> Self {
        Self { reserve, ..self }
    }

    /// Sets the use that is made of a decision; without this [`Mode::Enforce`].
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Sets whether a check that is blocked because it is over the limit spends its cost all the same. Not for levels, and
    /// not for what is held.
    #[must_use]
    pub fn with_count_blocked(self, count_blocked: bool) -> Self {
        Self { count_blocked, ..self }
    }

    /// Sets the rule by which a bucket is banned.
    #[must_use]
    pub fn with_ban(self, ban: Option<BanRule>) -> Self {
        Self { ban, ..self }
    }

    /// Sets the answer that is given while the database does not answer; without this [`OnOutage::Closed`].
    #[must_use]
    pub fn with_on_outage(self, on_outage: OnOutage) -> Self {
        Self { on_outage, ..self }
    }

    /// Sets the effect of the change to this policy on buckets in use; without this [`RunningBuckets::AsIs`].
    #[must_use]
    pub fn with_running_buckets(self, running_buckets: RunningBuckets) -> Self {
        Self { running_buckets, ..self }
    }

    /// Sets the wait of an answer for the disk; without this [`Durability::Durable`]. MySQL and MariaDB have
    /// no other.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Sets the rows that a flood of blocked checks leaves in the ledger; without this [`BlockedRows::Each`].
    #[must_use]
    pub fn with_blocked_rows(self, blocked_rows: BlockedRows) -> Self {
        Self { blocked_rows, ..self }
    }

    /// Sets the way in which capacity is shared among clients; None keeps what the algorithm has.
    #[must_use]
    pub fn with_sharing(self, sharing: Option<Sharing>) -> Self {
        Self { sharing: sharing.or(self.sharing), ..self }
    }

    /// As the tables have it: no constructor chose anything, and window and burst make up for local decisions already.
    pub(crate) fn stored(
        self,
        slots: Option<i32>,
        sharing: Option<Sharing>,
        queueing: Option<Queueing>,
        local_us: Option<i64>,
    ) -> Result<Self> {
        let policy = Self { slots, sharing, queueing, local_us, ..self };
        let missing = match self.algorithm {
            Algorithm::SlidingCounter if slots.is_none() => Some("slots"),
            Algorithm::Capacity if sharing.is_none() => Some("share"),
            Algorithm::Queue if queueing.is_none() => Some("backlog"),
            _ => None,
        };
        if let Some(column) = missing {
            return Err(Error::invalid(format!("it is missing, and each zone of {} has it", self.algorithm))
                .of(column));
        }
        policy.validate()?;
        Ok(policy)
    }

    /// Sets the bounds of a queue: its backlog, and the number of takes; None keeps what the algorithm has.
    #[must_use]
    pub fn with_queueing(self, queueing: Option<Queueing>) -> Self {
        Self { queueing: queueing.or(self.queueing), ..self }
    }

    /// The algorithm by which it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units admitted per window; 0 where nothing is.
    pub fn rate(&self) -> i64 {
        self.rate
    }

    /// Length of the window in microseconds.
    pub fn window_us(&self) -> i64 {
        self.window_us
    }

    /// Capacity of a token bucket, a leaky bucket or a queue where it differs from the rate.
    pub fn burst(&self) -> Option<i64> {
        self.burst
    }

    /// Itself in a zone that had another policy before, which may know later rules of the same time zone.
    pub(crate) fn after(self, before: &Self) -> Self {
        let time_zone = |own: TimeZoneName| before.calendar.map_or(own, |known| own.after(known.time_zone));
        let calendar = self.calendar.map(|own| Calendar { time_zone: time_zone(own.time_zone), ..own });
        self.with_calendar(calendar)
    }

    /// The clock of its calendar; nothing without one.
    pub(crate) fn spans(&self) -> &'static [ClockSpan] {
        self.calendar.map(|calendar| calendar.time_zone.spans()).unwrap_or_default()
    }

    /// Slots of a sliding counter.
    pub fn slots(&self) -> Option<i32> {
        self.slots
    }

    /// The calendar of a fixed window.
    pub fn by_calendar(&self) -> Option<Calendar> {
        self.calendar
    }

    /// From how much on a check is allowed with a warning.
    pub fn soft_rate(&self) -> Option<i64> {
        self.soft_rate
    }

    /// The part of the limit that only critical checks may take.
    pub fn reserve(&self) -> i64 {
        self.reserve
    }

    /// The use that is made of a decision.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Does a blocked check spend its cost?
    pub fn count_blocked(&self) -> bool {
        self.count_blocked
    }

    /// The rule by which a bucket is banned.
    pub fn ban(&self) -> Option<BanRule> {
        self.ban
    }

    /// The answer that is given while the database does not answer.
    pub fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// The effect that the change to this policy had on buckets in use.
    pub fn running_buckets(&self) -> RunningBuckets {
        self.running_buckets
    }

    /// The wait of an answer for the disk.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The rows that a flood of blocked checks leaves in the ledger.
    pub fn blocked_rows(&self) -> BlockedRows {
        self.blocked_rows
    }

    /// The way in which capacity is shared among clients; None for what is no capacity.
    pub fn sharing(&self) -> Option<Sharing> {
        self.sharing
    }

    /// The number of microseconds for which a process may decide by itself; None where it may not.
    pub fn local_us(&self) -> Option<i64> {
        self.local_us
    }

    /// The bounds of a queue: its backlog, and the number of takes; None for what is no queue.
    pub fn queueing(&self) -> Option<Queueing> {
        self.queueing
    }

    /// The part of the policy that no SQL routine decides; None where the zone is *plain*, and callers in SQL may use it.
    ///
    /// The same as the column `beyond_sql` of `zone_master`: see `docs/sql.md`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tallygate::{Policy, policy::Mode};
    ///
    /// let policy = Policy::sliding_log(5, Duration::from_secs(60))?;
    /// assert_eq!(policy.beyond_sql(), None);
    /// assert_eq!(policy.with_mode(Mode::Shadow).beyond_sql(), Some("mode"));
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    #[must_use]
    pub fn beyond_sql(&self) -> Option<&'static str> {
        // Each field by its name: a new one must find its place here.
        let Self {
            algorithm,
            calendar,
            mode,
            soft_rate,
            reserve,
            ban,
            count_blocked,
            blocked_rows,
            running_buckets,
            // Every routine knows these, or they have no say in a decision.
            rate: _,
            window_us: _,
            burst: _,
            on_outage: _,
            durability: _,
            local_us: _,
            per_us: _,
            per_token: _,
            // Of other algorithms.
            slots: _,
            sharing: _,
            queueing: _,
        } = *self;
        let plain = matches!(
            algorithm,
            Algorithm::SlidingLog
                | Algorithm::FixedWindow
                | Algorithm::TokenBucket
                | Algorithm::LeakyBucket
                | Algorithm::Uniform
        );
        [
            (!plain, "algorithm"),
            (calendar.is_some(), "calendar"),
            (mode == Mode::Shadow, "mode"),
            (soft_rate.is_some(), "soft limit"),
            (reserve > 0, "reserve"),
            (ban.is_some(), "ban"),
            (count_blocked, "counted blocks"),
            (blocked_rows != BlockedRows::Each, "coalesced rows"),
            (running_buckets != RunningBuckets::AsIs, "change"),
        ]
        .into_iter()
        .find_map(|(beyond, name)| beyond.then_some(name))
    }

    /// The most that can ever be spent at once: the burst, or the rate; 1 for [`Algorithm::Uniform`].
    pub fn limit(&self) -> i64 {
        if self.algorithm == Algorithm::Uniform { 1 } else { self.burst.unwrap_or(self.rate) }
    }

    /// The units that a microsecond adds to a level, and the units of a token.
    pub(crate) fn units(&self) -> (i64, i64) {
        (self.per_us, self.per_token)
    }

    /// The greatest common divisor of rate and window: what makes token counting exact in integers.
    pub(crate) fn gcd(&self) -> i64 {
        self.window_us / self.per_token
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::super::UNITS_MAX;
    use super::*;

    #[test]
    fn a_token_bucket_that_overflows_is_refused_with_the_largest_burst_that_fits() {
        let window = Duration::from_micros(315_575_999_999_999);
        let error = Policy::token_bucket(7, window, Some(UNITS_MAX)).unwrap_err().to_string();
        let largest: i64 =
            error.split("largest burst is ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(Policy::token_bucket(7, window, Some(largest)).is_ok());
        assert!(Policy::token_bucket(7, window, Some(largest + 1)).is_err());
    }
    #[test]
    fn what_no_program_stores_is_refused_by_its_column() {
        let window = Duration::from_secs(60);
        let ban = BanRule::new(1, window, window);
        let numbers =
            [i64::MIN, i64::MIN + 1, -1, 0, 1, 4, 60_000_000, UNITS_MAX + 1, i64::MAX - 1, i64::MAX];
        for &algorithm in Algorithm::ALL {
            let base = Policy::new(algorithm, 5, window, None).unwrap();
            let of = |rate, window_us, burst| Policy::from_columns(algorithm, rate, window_us, burst);
            for (n, local) in numbers.into_iter().flat_map(|n| [(n, None), (n, Some(n))]) {
                let less = i32::try_from(n).unwrap_or(i32::MIN);
                let queueing = |backlog, max_takes| base.queueing.map(|_| Queueing { backlog, max_takes });
                let sharing = |of: fn(Sharing, i64) -> Sharing| base.sharing.map(|sharing| of(sharing, n));
                for policy in [
                    of(n, 60_000_000, None),
                    of(0, n, None),
                    of(5, n, None),
                    of(5, 60_000_000, Some(n)),
                    Ok(base.with_soft_rate(Some(n))),
                    Ok(base.with_reserve(n)),
                    Ok(base.with_slots(Some(less))),
                    Ok(base.with_ban(Some(BanRule { after: less, ..ban }))),
                    Ok(base.with_ban(Some(BanRule { within_us: n, ..ban }))),
                    Ok(base.with_ban(Some(BanRule { for_us: n, ..ban }))),
                    Ok(base.with_ban(Some(BanRule { factor: less, ..ban }))),
                    Ok(base.with_ban(Some(BanRule { longest_us: n, ..ban }))),
                    Ok(base.with_queueing(queueing(n, 1))),
                    Ok(base.with_queueing(queueing(1, less))),
                    Ok(base.with_sharing(sharing(|of, n| Sharing { refresh_us: n, ..of }))),
                    Ok(base.with_sharing(sharing(|of, n| Sharing { safe_capacity: Some(n), ..of }))),
                    Ok(base.with_sharing(sharing(|of, n| Sharing { guaranteed: Some(n), ..of }))),
                ] {
                    let stored = |of: Policy| of.stored(of.slots, of.sharing, of.queueing, local);
                    if let Err(error) = policy.and_then(stored) {
                        let told = error.stored().to_string();
                        assert!(told.starts_with('"'), "{algorithm} of {n}: {told}");
                    }
                }
            }
            let needs =
                [Algorithm::SlidingCounter, Algorithm::Capacity, Algorithm::Queue].contains(&algorithm);
            assert_eq!(base.stored(None, None, None, None).is_err(), needs, "{algorithm}");
        }
        let reserve = Policy::sliding_log(5, window).unwrap().with_reserve(5);
        let told = reserve.stored(None, None, None, None).unwrap_err().stored();
        let expected = "\"reserve\": reserve 5 is out of range; use 0 to 4, one below the limit";
        assert_eq!((told.code(), &*told.to_string()), ("database", expected));
        for gcd in [i64::MIN, -1, 0, 7, i64::MAX] {
            let told = Limit::stored(5, 60_000_000, None, gcd).unwrap_err().stored().to_string();
            assert!(told.starts_with("\"rate_gcd\": "), "{told}");
        }
    }
}
