//! The clock by which times are read and shown.

use std::str::FromStr;

use chrono::{DateTime, Local, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;

use super::moment::{self, Moment};

/// The clock by which times are read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The clock of a place, or UTC.
    Of(Tz),
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
    pub const UTC: Self = Self::Of(Tz::UTC);

    /// The time to the second; finer parts are cut off.
    pub fn show(self, at: DateTime<Utc>) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// The time to the minute; finer parts are cut off.
    pub fn show_minute(self, at: DateTime<Utc>) -> String {
        self.format(at, "%Y-%m-%d %H:%M %Z")
    }

    fn format(self, at: DateTime<Utc>, form: &str) -> String {
        match self {
            Self::Of(zone) => at.with_timezone(&zone).format(form).to_string(),
            Self::Here => at.with_timezone(&Local).format(form).to_string(),
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
        if text == "local" {
            return Ok(Self::Here);
        }
        let named = text.parse::<Tz>().map(Self::Of);
        named.map_err(|_| "a time zone is a name like Europe/Berlin or UTC, or local".to_owned())
    }
}

impl Typed {
    /// Its beginning.
    pub fn begin(self, clock: Clock) -> Result<DateTime<Utc>, String> {
        match clock {
            Clock::Of(zone) => self.moment.in_zone(&zone),
            Clock::Here => self.moment.in_zone(&Local),
        }
    }

    /// Its last microsecond.
    pub fn end(self, clock: Clock) -> Result<DateTime<Utc>, String> {
        match clock {
            Clock::Of(zone) => self.end_in(&zone),
            Clock::Here => self.end_in(&Local),
        }
    }

    fn end_in(self, zone: &impl TimeZone) -> Result<DateTime<Utc>, String> {
        let begin = self.moment.in_zone(zone)?;
        if self.width.is_zero() {
            return Ok(begin);
        }
        let next = match self.moment {
            Moment::Instant(at) => at.checked_add_signed(self.width),
            // A day on which the clock is set has more hours, or fewer.
            Moment::Wall(_) | Moment::DayBegan(_) => {
                let shown = begin.with_timezone(zone).naive_local().checked_add_signed(self.width);
                shown.map(|shown| Moment::Wall(shown).in_zone(zone)).transpose()?
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

    const BERLIN: Clock = Clock::Of(Tz::Europe__Berlin);

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
        assert_eq!(of("2026-07-01", BERLIN), expected);
        let utc = ["2026-07-01T08:00:00+00:00", "2026-07-01T08:00:59.999999+00:00"];
        assert_eq!(of("2026-07-01 10:00", BERLIN), utc);
        assert_eq!(of("2026-07-01 08:00 UTC", BERLIN), utc);
        // A day on which the clock is set forward has 23 hours, and an hour that it never shows.
        let short = ["2026-03-28T23:00:00+00:00", "2026-03-29T21:59:59.999999+00:00"];
        assert_eq!(of("2026-03-29", BERLIN), short);
        let never: Typed = "2026-03-29 02:30".parse().unwrap();
        assert!(never.begin(BERLIN).unwrap_err().contains("2026-03-29 02:30:00"));
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
        assert_eq!(BERLIN.show(at), "2026-11-22 04:00:23 CET");
        assert_eq!("Asia/Kathmandu".parse::<Clock>().unwrap().show(at), "2026-11-22 08:45:23 +0545");
        let whole = "2026-11-22T03:00:23Z".parse().unwrap();
        assert_eq!(Clock::UTC.show_end(whole), Clock::UTC.show(whole));
        for clock in [Clock::UTC, Clock::Here] {
            let typed: Typed = clock.show(at).parse().unwrap();
            let [first, last] = [typed.begin(BERLIN), typed.end(BERLIN)].map(Result::unwrap);
            assert!(first <= at && at <= last, "{}", clock.show(at));
        }
    }
}
