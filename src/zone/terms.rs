//! Zones as people write them: in a file, and on a command line.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::duration::parse_duration as duration;
use super::{
    Algorithm, BanFrom, BanRule, BlockedRows, CalendarUnit, Durability, Mode, OnOutage, Policy, Queueing,
    RunningBuckets, Share, Sharing, TimeZoneName, UNITS_MAX, ZoneSetting, micros,
};
use crate::error::{Error, Result};

/// The parts of a policy, as people write them: the flags of `tallygate zone set`, and the settings of a zone in a
/// file.
///
/// Each has the same name and the same meaning in both. With the feature `clap` it is a group of arguments of a program of
/// yours, too. [`policy`](Self::policy) tells what does not go together.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[non_exhaustive]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Terms {
    /// The limit per window, in the zone's unit: attempts, cents, members, slots, …; of a window 0 refuses all
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", required = true, value_parser = parse_units, allow_negative_numbers = true))]
    pub rate: Option<i64>,
    /// Length of the window, or of a lease, with its unit: 60s, 15m, 24h, 30d
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub per: Option<Duration>,
    /// The algorithm, which says how it counts
    #[cfg_attr(feature = "clap", arg(long, default_value = "sliding-log", value_enum))]
    #[serde(default = "sliding_log")]
    pub algorithm: Algorithm,
    /// Capacity of a token bucket, a leaky bucket, a leaky queue or a queue [default: the rate]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true))]
    pub burst: Option<i64>,
    /// Slots of a sliding counter [default: 1]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", allow_negative_numbers = true))]
    pub slots: Option<i32>,
    /// Count a fixed window by the calendar instead of --per
    #[cfg_attr(feature = "clap", arg(long, value_name = "UNIT", value_enum))]
    #[serde(default)]
    pub calendar: Option<CalendarUnit>,
    /// The time zone of the calendar, such as Europe/Berlin [default: UTC]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TZ", requires = "calendar"))]
    #[serde(default)]
    pub time_zone: Option<TimeZoneName>,
    /// The longest that a slot of concurrency is held, instead of --per
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub slot_ttl: Option<Duration>,
    /// Allow with a warning from so much on
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true))]
    pub soft_rate: Option<i64>,
    /// The part of the limit that only critical checks may take
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value = "0", value_parser = parse_units, allow_negative_numbers = true))]
    #[serde(default)]
    pub reserve: i64,
    /// enforce; shadow records what it would have decided and lets everything pass; off decides nothing
    #[cfg_attr(feature = "clap", arg(long, default_value = "enforce", value_enum))]
    #[serde(default)]
    pub mode: Mode,
    /// Let a check that is over the limit spend its cost all the same
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub count_blocked: bool,
    /// Ban a bucket after so many blocked checks
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", requires_all = ["ban_within", "ban_for"], allow_negative_numbers = true))]
    pub ban_after: Option<i32>,
    /// The time within which they must come
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, requires = "ban_after", allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub ban_within: Option<Duration>,
    /// The length of the ban
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, requires = "ban_after", allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub ban_for: Option<Duration>,
    /// The factor by which a repeated ban is longer [default: 1]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "F", requires = "ban_after", allow_negative_numbers = true)
    )]
    pub ban_factor: Option<i32>,
    /// The longest ban [default: as long as the first one]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, requires = "ban_after", allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub ban_max: Option<Duration>,
    /// Count a ban from the blocked check, or from when that could have passed [default: block]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FROM", requires = "ban_after", value_enum))]
    #[serde(default)]
    pub ban_from: Option<BanFrom>,
    /// The answer of services while the database does not answer: closed, an error; open, allowed and written to
    /// a journal
    #[cfg_attr(feature = "clap", arg(long, default_value = "closed", value_enum))]
    #[serde(default)]
    pub on_outage: OnOutage,
    /// The effect of this change on buckets in use: as-is judges them by the new policy; proportional keeps the
    /// share that they have used; reset forgets it
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", default_value = "as-is", value_enum))]
    #[serde(default)]
    pub running_buckets: RunningBuckets,
    /// durable waits with each answer until it is on the disk; relaxed does not, and a crash can forget the
    /// last decisions
    #[cfg_attr(feature = "clap", arg(long, default_value = "durable", value_enum))]
    #[serde(default)]
    pub durability: Durability,
    /// each writes a row for every blocked check; with coalesced one row may stand for many
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWS", default_value = "each", value_enum))]
    #[serde(default)]
    pub blocked_rows: BlockedRows,
    /// The way in which a zone of capacity shares it among clients [default: fair]
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    #[serde(default)]
    pub share: Option<Share>,
    /// The time after which a client of capacity asks again [default: four times in a lease]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub refresh: Option<Duration>,
    /// The units that a client of capacity may use when it cannot ask [default: the capacity by the number of
    /// clients]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true))]
    pub safe_capacity: Option<i64>,
    /// By bands: what each band below the first has before any band has more
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true))]
    pub guaranteed: Option<i64>,
    /// Of a queue: the most units that wait or are taken [default: the rate]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parse_units, allow_negative_numbers = true))]
    pub backlog: Option<i64>,
    /// Of a queue: how often an item is taken before it is dead, up to 1000 [default: 5]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", allow_negative_numbers = true))]
    pub max_takes: Option<i32>,
    /// For how long a process may decide by itself with what it took, see docs/local.md: 500ms, 2s
    #[cfg_attr(feature = "clap", arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true))]
    #[serde(default, deserialize_with = "span")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub local: Option<Duration>,
    /// The purpose of the zone [default: as it was]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEXT"))]
    pub description: Option<String>,
}

impl Terms {
    /// The policy that they say.
    ///
    /// # Errors
    /// Invalid: something is missing, is out of range, or does not go together; it says how to mend it.
    pub fn policy(&self) -> Result<Policy> {
        let rate = self.rate.ok_or_else(|| Error::invalid("the rate is missing; give --rate, like 5"))?;
        let policy = match self.calendar {
            Some(unit) => self.by_calendar(rate, unit)?,
            None => Policy::new(self.algorithm, rate, self.window()?, self.burst)?,
        };
        if self.time_zone.is_some() && self.calendar.is_none() {
            return Err(Error::invalid(
                "a time zone is for a calendar; give a calendar too, or leave it out",
            ));
        }
        let policy = policy
            .with_slots(self.slots)
            .with_soft_rate(self.soft_rate)
            .with_reserve(self.reserve)
            .with_mode(self.mode)
            .with_count_blocked(self.count_blocked)
            .with_ban(self.ban()?)
            .with_on_outage(self.on_outage)
            .with_running_buckets(self.running_buckets)
            .with_durability(self.durability)
            .with_blocked_rows(self.blocked_rows);
        let policy = policy
            .with_sharing(self.sharing(&policy))
            .with_queueing(self.queueing(rate))
            .with_local(self.local);
        policy.validate()?;
        Ok(policy)
    }

    /// The same with another `rate`, `burst` or `per`, as people write it.
    ///
    /// # Errors
    /// Invalid: another name, or a value that cannot be read.
    pub fn with(mut self, name: &str, value: &str) -> Result<Self> {
        let wrong = |remedy: Error| Error::invalid(format!("{name} {value:?} cannot be used; {remedy}"));
        match name {
            "rate" => self.rate = Some(parse_units(value).map_err(wrong)?),
            "burst" => self.burst = Some(parse_units(value).map_err(wrong)?),
            "per" => self.per = Some(duration(value).map_err(wrong)?),
            _ => return Err(Error::invalid(format!("{name:?} cannot be swept; use rate, burst or per"))),
        }
        Ok(self)
    }

    fn by_calendar(&self, rate: i64, unit: CalendarUnit) -> Result<Policy> {
        if self.algorithm != Algorithm::FixedWindow {
            return Err(Error::invalid(format!(
                "{} does not follow a calendar; use the algorithm fixed-window, or leave the calendar out",
                self.algorithm
            )));
        }
        if self.per.is_some() || self.slot_ttl.is_some() || self.burst.is_some() {
            return Err(Error::invalid(format!(
                "a calendar {unit} has its own length and no burst; leave out --per, --slot-ttl and --burst"
            )));
        }
        let time_zone = self.time_zone.map_or_else(|| "UTC".parse(), Ok)?;
        Policy::calendar(rate, unit, time_zone)
    }

    fn window(&self) -> Result<Duration> {
        let concurrency = self.algorithm == Algorithm::Concurrency;
        match (self.per, self.slot_ttl) {
            (Some(_), Some(_)) => {
                Err(Error::invalid("a window and a slot's time to live are one; give --per or --slot-ttl"))
            }
            (None, Some(_)) if !concurrency => Err(Error::invalid(format!(
                "{} holds no slots; leave out --slot-ttl, or use the algorithm concurrency",
                self.algorithm
            ))),
            (None, None) if concurrency => Err(Error::invalid(
                "the time to live of a slot is missing; give --slot-ttl with its unit, like 30s",
            )),
            (None, None) => {
                Err(Error::invalid("the length of the window is missing; give --per with its unit, like 60s"))
            }
            (Some(window), None) | (None, Some(window)) => Ok(window),
        }
    }

    /// The sharing of capacity; None where nothing is said of it.
    fn sharing(&self, policy: &Policy) -> Option<Sharing> {
        let Self { share, refresh, safe_capacity, guaranteed, .. } = *self;
        let said = share.is_some() || refresh.is_some() || safe_capacity.is_some() || guaranteed.is_some();
        let default = policy.sharing().unwrap_or_else(|| Sharing::new(Share::default(), policy.window_us()));
        let refresh_us = refresh.map_or(default.refresh_us, micros);
        said.then(|| Sharing { share: share.unwrap_or_default(), refresh_us, safe_capacity, guaranteed })
    }

    /// The bounds of a queue; None where nothing is said of it.
    fn queueing(&self, rate: i64) -> Option<Queueing> {
        let default = Queueing::new(self.backlog.unwrap_or(rate));
        let max_takes = self.max_takes.unwrap_or(default.max_takes);
        (self.backlog.is_some() || self.max_takes.is_some()).then_some(Queueing { max_takes, ..default })
    }

    fn ban(&self) -> Result<Option<BanRule>> {
        let (Some(after), Some(within), Some(length)) = (self.ban_after, self.ban_within, self.ban_for)
        else {
            let some = self.ban_after.is_some() || self.ban_within.is_some() || self.ban_for.is_some();
            let more = self.ban_factor.is_some() || self.ban_max.is_some() || self.ban_from.is_some();
            if some || more {
                return Err(Error::invalid("a ban needs ban-after, ban-within and ban-for; give all three"));
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

/// A file of zones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    zone: BTreeMap<String, Spanned<Terms>>,
}

/// The zones of a file, by name, as they are written in it: TOML, a table `zone.NAME` for each.
///
/// ```
/// let text = r#"
///     [zone.login]
///     rate = 5
///     per = "60s"
///     description = "password attempts"
/// "#;
/// let terms = tallygate::policy::zone_terms(text)?;
/// assert_eq!(terms["login"].policy()?.to_string(), "5 per 60s");
/// # Ok::<(), tallygate::Error>(())
/// ```
///
/// # Errors
/// Invalid: what cannot be read, with its line.
pub fn zone_terms(text: &str) -> Result<BTreeMap<String, Terms>> {
    Ok(file(text)?.zone.into_iter().map(|(name, terms)| (name, terms.into_inner())).collect())
}

fn file(text: &str) -> Result<File> {
    toml::from_str(text).map_err(|error| {
        // The line itself is not repeated: a file of another kind may have been named, with secrets in it.
        let begin = error.span().map_or(0, |span| span.start);
        Error::invalid(format!("line {}: {}", line_of(text, begin), error.message()))
    })
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

/// The zones of a file, each of them good, for [`Operator::set_zones`](crate::policy::Operator::set_zones).
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let limiter = tallygate::Limiter::connect("sqlite::memory:").await?;
/// let zones = tallygate::policy::zone_file("zone.login = { rate = 5, per = '60s' }")?;
/// limiter.operator().set_zones(zones, "release 4711").await?;
/// # Ok::<(), tallygate::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// Invalid: what cannot be read, with its line; a zone that is not good, with the line where it begins.
pub fn zone_file(text: &str) -> Result<Vec<ZoneSetting>> {
    let settings = file(text)?.zone.into_iter().map(|(name, terms)| {
        let line = line_of(text, terms.span().start);
        let terms = terms.into_inner();
        let told = |error: Error| Error::invalid(format!("line {line}: zone {name:?}: {error}"));
        let policy = terms.policy().map_err(told)?;
        let setting = ZoneSetting { name: name.clone(), policy, description: terms.description };
        setting.validate().map_err(told)?;
        Ok(setting)
    });
    settings.collect()
}

fn sliding_log() -> Algorithm {
    Algorithm::SlidingLog
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(&String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

/// Reads a cost, a rate or a burst: a whole number, of which the policy or the check judges the range, so that the refusal of -1
/// can say what is allowed.
///
/// # Errors
/// Invalid: no whole number.
///
/// ```
/// assert_eq!(tallygate::policy::parse_units("-1")?, -1);
/// # Ok::<(), tallygate::Error>(())
/// ```
pub fn parse_units(text: &str) -> Result<i64> {
    text.parse().map_err(|_| Error::invalid(format!("use a whole number up to {UNITS_MAX}")))
}
