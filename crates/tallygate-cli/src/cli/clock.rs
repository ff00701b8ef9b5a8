//! The clock by which times are read and shown.

use std::str::FromStr;

use chrono::{DateTime, FixedOffset, Local, LocalResult, NaiveDateTime, TimeDelta, TimeZone, Utc};
use tallygate::policy::TimeZoneName;

use super::moment::{self, Moment};

/// The clock by which times are read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Utc,
    /// The clock of a place.
    Of(TimeZoneName),
    /// The clock of this machine.
    Here,
}

/// A time as somebody typed it. A day, a minute or a second stands for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed {
    moment: Moment,
    /// The length of the time that it stands for.
    width: TimeDelta,
}

impl Clock {
    pub const UTC: Self = Self::Utc;

    /// The time to the second; finer parts are cut off.
    pub fn show(self, at: DateTime<Utc>) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S")
    }

    /// The time to the minute; finer parts are cut off.
    pub fn show_minute(self, at: DateTime<Utc>) -> String {
        self.format(at, "%Y-%m-%d %H:%M")
    }

    fn format(self, at: DateTime<Utc>, form: &str) -> String {
        let shown = self.shows(at);
        let zone = match self {
            Self::Utc => "UTC".to_owned(),
            Self::Of(zone) => zone.abbreviation(at),
            Self::Here => shown.offset().to_string(),
        };
        format!("{} {zone}", shown.format(form))
    }

    /// The time as it shows it.
    pub fn shows(self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        match self {
            Self::Utc => at.fixed_offset(),
            Self::Of(zone) => zone.shows(at),
            Self::Here => at.with_timezone(&Local).fixed_offset(),
        }
    }

    /// The instants at which it shows a time.
    pub fn instants(self, shown: NaiveDateTime) -> LocalResult<DateTime<Utc>> {
        match self {
            Self::Utc => LocalResult::Single(shown.and_utc()),
            Self::Of(zone) => zone.instants(shown),
            Self::Here => Local.from_local_datetime(&shown).map(|time| time.to_utc()),
        }
    }

    /// The time to the second in which it is over: nobody who comes then comes too early.
    pub fn show_end(self, at: DateTime<Utc>) -> String {
        let whole = TimeDelta::nanoseconds(i64::from(at.timestamp_subsec_nanos()));
        let over = if whole.is_zero() { TimeDelta::zero() } else { TimeDelta::seconds(1) - whole };
        self.show(at.checked_add_signed(over).unwrap_or(at))
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "UTC" => Ok(Self::Utc),
            "local" => Ok(Self::Here),
            _ => match text.parse() {
                Ok(zone) => Ok(Self::Of(zone)),
                Err(_) => Err("a time zone is a name like Europe/Berlin or UTC, or local".to_owned()),
            },
        }
    }
}

impl Typed {
    /// Its beginning.
    pub fn begin(self, clock: Clock) -> Result<DateTime<Utc>, String> {
        self.moment.by(clock)
    }

    /// Its last microsecond.
    pub fn end(self, clock: Clock) -> Result<DateTime<Utc>, String> {
        let begin = self.moment.by(clock)?;
        if self.width.is_zero() {
            return Ok(begin);
        }
        let next = match self.moment {
            Moment::Instant(at) => at.checked_add_signed(self.width),
            // A day on which the clock is set has more hours, or fewer.
            Moment::Wall(_) | Moment::DayBegan(_) => {
                let shown = clock.shows(begin).naive_local().checked_add_signed(self.width);
                shown.map(|shown| Moment::Wall(shown).by(clock)).transpose()?
            }
        };
        next.map(|next| next - TimeDelta::microseconds(1))
            .ok_or_else(|| "that is behind the end of the calendar".to_owned())
    }
}

impl FromStr for Typed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let moment: Moment = text.parse()?;
        let width = match moment {
            Moment::DayBegan(_) => TimeDelta::days(1),
            _ if moment::written(text).is_some() => precision(text),
            _ => TimeDelta::zero(),
        };
        Ok(Self { moment, width })
    }
}

/// A day, a minute, a second, or the time that the last of its decimals stands for.
fn precision(text: &str) -> TimeDelta {
    let decimals = text.split_once('.').map_or("", |(_, decimals)| decimals);
    let decimals = decimals.bytes().take_while(u8::is_ascii_digit).count().min(6);
    // Its offset has a colon too.
    match text.bytes().take(19).filter(|byte| *byte == b':').count() {
        0 => TimeDelta::days(1),
        1 => TimeDelta::minutes(1),
        _ => TimeDelta::microseconds(10_i64.pow(6 - decimals as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Clock {
        "Europe/Berlin".parse().unwrap()
    }

    fn of(text: &str, clock: Clock) -> [String; 2] {
        let typed: Typed = text.parse().unwrap();
        [typed.begin(clock), typed.end(clock)].map(|at| at.unwrap().to_rfc3339())
    }

    #[test]
    fn a_moment_stands_for_all_of_what_is_typed() {
        for (text, first, last) in [
            ("2026-01-31T08:00:00Z", "08:00:00+00:00", "08:00:00.999999+00:00"),
            ("2026-01-31T09:00:00+01:00", "08:00:00+00:00", "08:00:00.999999+00:00"),
            ("2026-01-31 09:00:00 +01:00", "08:00:00+00:00", "08:00:00.999999+00:00"),
            ("2026-01-31T08:00:00.25Z", "08:00:00.250+00:00", "08:00:00.259999+00:00"),
            ("2026-01-31T08:00:00.123456Z", "08:00:00.123456+00:00", "08:00:00.123456+00:00"),
            ("2026-01-31 08:00:00", "08:00:00+00:00", "08:00:00.999999+00:00"),
            ("2026-01-31 08:00:00 UTC", "08:00:00+00:00", "08:00:00.999999+00:00"),
            (" 2026-01-31 08:00 ", "08:00:00+00:00", "08:00:59.999999+00:00"),
            ("2026-01-31T08:00", "08:00:00+00:00", "08:00:59.999999+00:00"),
            ("2026-01-31", "00:00:00+00:00", "23:59:59.999999+00:00"),
        ] {
            let expected = [first, last].map(|time| format!("2026-01-31T{time}"));
            assert_eq!(of(text, Clock::UTC), expected, "{text}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_by_the_clock_that_was_asked_for() {
        let expected = ["2026-06-30T22:00:00+00:00", "2026-07-01T21:59:59.999999+00:00"];
        assert_eq!(of("2026-07-01", berlin()), expected);
        let utc = ["2026-07-01T08:00:00+00:00", "2026-07-01T08:00:59.999999+00:00"];
        assert_eq!(of("2026-07-01 10:00", berlin()), utc);
        assert_eq!(of("2026-07-01 08:00 UTC", berlin()), utc);
        // A day on which the clock is set forward has 23 hours, and an hour that it never shows.
        let short = ["2026-03-28T23:00:00+00:00", "2026-03-29T21:59:59.999999+00:00"];
        assert_eq!(of("2026-03-29", berlin()), short);
        let never: Typed = "2026-03-29 02:30".parse().unwrap();
        assert!(never.begin(berlin()).unwrap_err().contains("2026-03-29 02:30:00"));
    }

    #[test]
    fn a_moment_that_is_told_from_now_is_an_instant_or_a_day() {
        let [first, last] = of("yesterday", Clock::UTC);
        assert_eq!(first[..10], last[..10]);
        let [first, last] = of("1h", Clock::UTC);
        assert_eq!(first, last);
        assert!("Mars/Olympus".parse::<Clock>().unwrap_err().contains("Europe/Berlin"));
    }

    #[test]
    fn a_moment_is_shown_to_the_second_with_its_zone_and_read_again() {
        let at: DateTime<Utc> = "2026-11-22T03:00:23.93257Z".parse().unwrap();
        assert_eq!(Clock::UTC.show(at), "2026-11-22 03:00:23 UTC");
        assert_eq!(Clock::UTC.show_end(at), "2026-11-22 03:00:24 UTC");
        assert_eq!(berlin().show(at), "2026-11-22 04:00:23 CET");
        assert_eq!("Asia/Kathmandu".parse::<Clock>().unwrap().show(at), "2026-11-22 08:45:23 +0545");
        let whole = "2026-11-22T03:00:23Z".parse().unwrap();
        assert_eq!(Clock::UTC.show_end(whole), Clock::UTC.show(whole));
        for clock in [Clock::UTC, Clock::Here] {
            let typed: Typed = clock.show(at).parse().unwrap();
            let [first, last] = [typed.begin(berlin()), typed.end(berlin())].map(Result::unwrap);
            assert!(first <= at && at <= last, "{}", clock.show(at));
        }
    }
}
