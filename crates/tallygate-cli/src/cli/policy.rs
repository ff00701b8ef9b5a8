//! A policy as it is written on the command line and in a file of zones: the same names, the same meanings.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Deserializer};
use tallygate::Policy;
use tallygate::policy::{
    Algorithm, BanFrom, BanRule, BlockedRows, CalendarUnit, Durability, Mode, OnOutage, RunningBuckets,
    TimeZoneName,
};

use super::{Failure, Result, duration, units};

#[derive(Clone, Debug, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Terms {
    /// How much it admits per window, in the zone's unit: attempts, cents, members, slots, …
    #[arg(long, value_name = "N", required = true, value_parser = units::parse, allow_negative_numbers = true)]
    rate: Option<i64>,
    /// Length of the window, with its unit: 60s, 15m, 24h, 30d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    #[serde(default, deserialize_with = "span")]
    per: Option<Duration>,
    /// How it counts
    #[arg(long, default_value = "sliding-log", value_parser = choice(Algorithm::ALL, Algorithm::as_str))]
    #[serde(default = "sliding_log", deserialize_with = "named")]
    algorithm: Algorithm,
    /// Capacity of a token bucket, a leaky bucket or a leaky queue [default: the rate]
    #[arg(long, value_name = "N", value_parser = units::parse, allow_negative_numbers = true)]
    burst: Option<i64>,
    /// Slots of a sliding counter [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    slots: Option<i32>,
    /// Count a fixed window by the calendar instead of --per
    #[arg(long, value_name = "UNIT", value_parser = choice(CalendarUnit::ALL, CalendarUnit::as_str))]
    #[serde(default, deserialize_with = "named_if")]
    calendar: Option<CalendarUnit>,
    /// Whose calendar, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "TZ", requires = "calendar")]
    #[serde(default, deserialize_with = "named_if")]
    time_zone: Option<TimeZoneName>,
    /// How long a slot of concurrency is held at most, instead of --per
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    #[serde(default, deserialize_with = "span")]
    slot_ttl: Option<Duration>,
    /// Allow with a warning from so much on
    #[arg(long, value_name = "N", value_parser = units::parse, allow_negative_numbers = true)]
    soft_rate: Option<i64>,
    /// How much of the limit only critical checks may take
    #[arg(long, value_name = "N", default_value = "0", value_parser = units::parse, allow_negative_numbers = true)]
    #[serde(default)]
    reserve: i64,
    /// enforce; shadow records what it would have decided and lets everything pass; off decides nothing
    #[arg(long, default_value = "enforce", value_parser = choice(Mode::ALL, Mode::as_str))]
    #[serde(default, deserialize_with = "named")]
    mode: Mode,
    /// Let a check that is over the limit spend its cost all the same
    #[arg(long)]
    #[serde(default)]
    count_blocked: bool,
    /// Ban a bucket after so many blocked checks
    #[arg(long, value_name = "N", requires_all = ["ban_within", "ban_for"], allow_negative_numbers = true)]
    ban_after: Option<i32>,
    /// The time within which they must come
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "ban_after", allow_hyphen_values = true)]
    #[serde(default, deserialize_with = "span")]
    ban_within: Option<Duration>,
    /// How long the ban takes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "ban_after", allow_hyphen_values = true)]
    #[serde(default, deserialize_with = "span")]
    ban_for: Option<Duration>,
    /// What a repeated ban is lengthened by [default: 1]
    #[arg(long, value_name = "F", requires = "ban_after", allow_negative_numbers = true)]
    ban_factor: Option<i32>,
    /// The longest ban [default: as long as the first one]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "ban_after", allow_hyphen_values = true)]
    #[serde(default, deserialize_with = "span")]
    ban_max: Option<Duration>,
    /// Count a ban from the blocked check, or from when that could have passed [default: block]
    #[arg(long, value_name = "FROM", requires = "ban_after", value_parser = choice(BanFrom::ALL, BanFrom::as_str))]
    #[serde(default, deserialize_with = "named_if")]
    ban_from: Option<BanFrom>,
    /// What services answer while the database does not: closed, an error; open, allowed and written to a journal
    #[arg(long, default_value = "closed", value_parser = choice(OnOutage::ALL, OnOutage::as_str))]
    #[serde(default, deserialize_with = "named")]
    on_outage: OnOutage,
    /// What this change does to buckets in use: as-is judges them by the new policy; proportional keeps the share
    /// that they have used; reset forgets it
    #[arg(long, value_name = "HOW", default_value = "as-is", value_parser = choice(RunningBuckets::ALL, RunningBuckets::as_str))]
    #[serde(default, deserialize_with = "named")]
    running_buckets: RunningBuckets,
    /// durable waits with each answer until it is on the disk; relaxed does not, and a crash can forget the
    /// last decisions
    #[arg(long, default_value = "durable", value_parser = choice(Durability::ALL, Durability::as_str))]
    #[serde(default, deserialize_with = "named")]
    durability: Durability,
    /// each writes a row for every blocked check; with coalesced one row may stand for many
    #[arg(long, value_name = "ROWS", default_value = "each", value_parser = choice(BlockedRows::ALL, BlockedRows::as_str))]
    #[serde(default, deserialize_with = "named")]
    blocked_rows: BlockedRows,
    /// What the zone is for [default: as it was]
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
}

impl Terms {
    /// The policy that they say.
    pub fn policy(&self) -> Result<Policy> {
        let rate = self.rate.ok_or_else(|| Failure::new("the rate is missing; give --rate, like 5"))?;
        let policy = match self.calendar {
            Some(unit) => self.by_calendar(rate, unit)?,
            None => Policy::new(self.algorithm, rate, self.window()?, self.burst)?,
        };
        if self.time_zone.is_some() && self.calendar.is_none() {
            return Err(Failure::new("a time zone is for a calendar; give a calendar too, or leave it out"));
        }
        Ok(policy
            .with_slots(self.slots)
            .with_soft_rate(self.soft_rate)
            .with_reserve(self.reserve)
            .with_mode(self.mode)
            .with_count_blocked(self.count_blocked)
            .with_ban(self.ban()?)
            .with_on_outage(self.on_outage)
            .with_running_buckets(self.running_buckets)
            .with_durability(self.durability)
            .with_blocked_rows(self.blocked_rows))
    }

    /// The same with another rate, burst or window.
    pub fn with(mut self, name: &str, value: &str) -> Result<Self> {
        let wrong = |remedy| Failure::new(format!("{name} {value:?} cannot be used; {remedy}"));
        match name {
            "rate" => self.rate = Some(units::parse(value).map_err(wrong)?),
            "burst" => self.burst = Some(units::parse(value).map_err(wrong)?),
            "per" => self.per = Some(duration::parse(value).map_err(wrong)?),
            _ => return Err(Failure::new(format!("{name:?} cannot be swept; use rate, burst or per"))),
        }
        Ok(self)
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    fn by_calendar(&self, rate: i64, unit: CalendarUnit) -> Result<Policy> {
        if self.algorithm != Algorithm::FixedWindow {
            return Err(Failure::new(format!(
                "{} does not follow a calendar; use the algorithm fixed-window, or leave the calendar out",
                self.algorithm
            )));
        }
        if self.per.is_some() || self.slot_ttl.is_some() || self.burst.is_some() {
            return Err(Failure::new(format!(
                "a calendar {unit} has its own length and no burst; leave out --per, --slot-ttl and --burst"
            )));
        }
        let time_zone = self.time_zone.map_or_else(|| "UTC".parse(), Ok)?;
        Ok(Policy::calendar(rate, unit, time_zone)?)
    }

    fn window(&self) -> Result<Duration> {
        let concurrency = self.algorithm == Algorithm::Concurrency;
        match (self.per, self.slot_ttl) {
            (Some(_), Some(_)) => {
                Err(Failure::new("a window and a slot's time to live are one; give --per or --slot-ttl"))
            }
            (None, Some(_)) if !concurrency => Err(Failure::new(format!(
                "{} holds no slots; leave out --slot-ttl, or use the algorithm concurrency",
                self.algorithm
            ))),
            (None, None) if concurrency => Err(Failure::new(
                "the time to live of a slot is missing; give --slot-ttl with its unit, like 30s",
            )),
            (None, None) => {
                Err(Failure::new("the length of the window is missing; give --per with its unit, like 60s"))
            }
            (Some(window), None) | (None, Some(window)) => Ok(window),
        }
    }

    fn ban(&self) -> Result<Option<BanRule>> {
        let (Some(after), Some(within), Some(length)) = (self.ban_after, self.ban_within, self.ban_for)
        else {
            let some = self.ban_after.is_some() || self.ban_within.is_some() || self.ban_for.is_some();
            let more = self.ban_factor.is_some() || self.ban_max.is_some() || self.ban_from.is_some();
            if some || more {
                return Err(Failure::new("a ban needs ban-after, ban-within and ban-for; give all three"));
            }
            return Ok(None);
        };
        let rule = BanRule::new(after, within, length);
        let longest_us =
            self.ban_max.map_or(rule.longest_us, |longest| BanRule::new(1, within, longest).for_us);
        let (factor, from) = (self.ban_factor.unwrap_or(1), self.ban_from.unwrap_or_default());
        Ok(Some(BanRule { factor, longest_us, from, ..rule }))
    }
}

fn sliding_log() -> Algorithm {
    Algorithm::SlidingLog
}

/// A flag that takes one of a few names.
pub fn choice<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + FromStr<Err = tallygate::Error> + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.iter().copied().map(name)).try_map(|name| name.parse::<T>())
}

fn named<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn named_if<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    named(deserializer).map(Some)
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration::parse(&String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

/// `5 per 60s`; `100 per 1s, burst 500, relaxed, blocked rows coalesced`; `5000 per month in Europe/Berlin`.
pub fn show(policy: &Policy) -> String {
    let mut text = match policy.by_calendar() {
        Some(calendar) => format!("{} per {} in {}", policy.rate(), calendar.unit, calendar.time_zone),
        None if policy.algorithm() == Algorithm::Concurrency => {
            format!("{} at once, each up to {}", policy.rate(), duration::show(policy.window_us()))
        }
        None => format!("{} per {}", policy.rate(), duration::show(policy.window_us())),
    };
    let mut add = |more: String| text += &format!(", {more}");
    policy.burst().into_iter().for_each(|burst| add(format!("burst {burst}")));
    policy.slots().into_iter().for_each(|slots| add(format!("slots {slots}")));
    policy.soft_rate().into_iter().for_each(|soft| add(format!("soft from {soft}")));
    if policy.reserve() > 0 {
        add(format!("reserve {}", policy.reserve()));
    }
    if policy.mode() != Mode::default() {
        add(policy.mode().to_string());
    }
    if policy.count_blocked() {
        add("counts blocked".to_owned());
    }
    if let Some(ban) = policy.ban() {
        let [within, first, longest] = [ban.within_us, ban.for_us, ban.longest_us].map(duration::show);
        add(format!("ban for {first} after {} blocked in {within}", ban.after));
        if ban.factor > 1 {
            add(format!("then times {} up to {longest}", ban.factor));
        }
        if ban.from != BanFrom::default() {
            add(format!("from the {}", ban.from));
        }
    }
    if policy.on_outage() != OnOutage::default() {
        add(format!("{} on outage", policy.on_outage()));
    }
    if policy.durability() != Durability::default() {
        add(policy.durability().to_string());
    }
    if policy.blocked_rows() != BlockedRows::default() {
        add(format!("blocked rows {}", policy.blocked_rows()));
    }
    text
}
