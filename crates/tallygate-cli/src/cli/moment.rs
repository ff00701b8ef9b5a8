//! Times as people say them.

use std::str::FromStr;

use chrono::{DateTime, Days, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};

use super::clock::Clock;
use super::duration;

const REMEDY: &str = "a time is written like 2026-01-31, \"2026-01-31 08:00\" or 2026-01-31T08:00:00Z, or is today, \
                      yesterday, or how long ago it was, like 15m or 24h";

/// A time that was said, before anybody knows whose clock was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is the same everywhere.
    Instant(DateTime<Utc>),
    /// A clock on a wall showed it.
    Wall(NaiveDateTime),
    /// The beginning of the day this many days before today.
    DayBegan(u64),
}

impl Moment {
    /// The instant, by this clock. An hour that was lived through twice is the first of the two.
    pub fn by(self, clock: Clock) -> Result<DateTime<Utc>, String> {
        let wall = match self {
            Self::Instant(instant) => return Ok(instant),
            Self::Wall(wall) => wall,
            Self::DayBegan(days) => {
                let today = clock.shows(Utc::now()).date_naive();
                today.checked_sub_days(Days::new(days)).ok_or(TOO_EARLY)?.and_time(NaiveTime::MIN)
            }
        };
        match clock.instants(wall) {
            LocalResult::Single(time) | LocalResult::Ambiguous(time, _) => Ok(time),
            LocalResult::None => Err(format!("{wall} was left out in that time zone; name a time after it")),
        }
    }
}

const TOO_EARLY: &str = "that is before the calendar begins";

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "now" => return Ok(Self::Instant(Utc::now())),
            "today" => return Ok(Self::DayBegan(0)),
            "yesterday" => return Ok(Self::DayBegan(1)),
            _ => {}
        }
        if let Some(written) = written(text) {
            return Ok(written);
        }
        let ago = duration::parse(text.strip_suffix(" ago").unwrap_or(text)).map_err(|_| REMEDY)?;
        let then = TimeDelta::from_std(ago).ok().and_then(|ago| Utc::now().checked_sub_signed(ago));
        Ok(Self::Instant(then.ok_or(TOO_EARLY)?))
    }
}

/// A time of a calendar, which means the same whenever it is read: with its offset, or by a clock on a wall.
pub fn written(text: &str) -> Option<Moment> {
    if let Some(Moment::Wall(wall)) = text.strip_suffix(" UTC").and_then(written) {
        return Some(Moment::Instant(wall.and_utc()));
    }
    // The clock of a place is shown so where its time has no name.
    let text = &text.replacen(" +", "+", 1).replacen(" -", "-", 1);
    if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
        return Some(Moment::Instant(instant.to_utc()));
    }
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Some(Moment::Wall(day.and_time(NaiveTime::MIN)));
    }
    let text = text.replacen('T', " ", 1);
    let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    forms.into_iter().find_map(|form| NaiveDateTime::parse_from_str(&text, form).ok()).map(Moment::Wall)
}

/// Reads a time, by the clocks of UTC where it names none.
pub fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    text.parse::<Moment>()?.by(Clock::UTC)
}

/// Reads a time of a calendar: the same arguments mean the same time tomorrow.
pub fn parse_written(text: &str) -> Result<DateTime<Utc>, String> {
    let moment = written(text).ok_or(
        "a time is written like 2026-01-31, \"2026-01-31 08:00\" or 2026-01-31T08:00:00Z, so that it means the same tomorrow",
    )?;
    moment.by(Clock::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn a_time_is_written_in_several_ways() {
        for (text, means) in [
            ("2026-11-22", "2026-11-22T00:00:00Z"),
            ("2026-11-22 03:00", "2026-11-22T03:00:00Z"),
            ("2026-11-22 03:00:05", "2026-11-22T03:00:05Z"),
            ("2026-11-22T03:00:05.25", "2026-11-22T03:00:05.25Z"),
            ("2026-11-22T03:00:05+01:00", "2026-11-22T02:00:05Z"),
            ("2026-11-22 03:00:05Z", "2026-11-22T03:00:05Z"),
            ("2026-11-22 03:00:05 UTC", "2026-11-22T03:00:05Z"),
            ("2026-11-22 03:00 UTC", "2026-11-22T03:00:00Z"),
            ("2026-11-22 03:00:05 +01:00", "2026-11-22T02:00:05Z"),
        ] {
            assert_eq!(parse(text), Ok(utc(means)), "{text}");
            assert_eq!(parse_written(text), Ok(utc(means)), "{text}");
        }
    }

    #[test]
    fn a_time_is_so_long_ago_or_a_day_began() {
        for text in ["1h", "1h ago"] {
            let moment = parse(text).unwrap();
            let ago = Utc::now() - moment;
            assert!((3_600_000..3_601_000).contains(&ago.num_milliseconds()), "{text}");
        }
        let today = Utc::now().date_naive();
        assert_eq!(parse("today").unwrap().naive_utc(), today.and_time(NaiveTime::MIN));
        assert_eq!(parse("yesterday").unwrap(), parse("today").unwrap() - TimeDelta::days(1));
        for text in ["1h", "yesterday", "now"] {
            assert!(parse_written(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_clock_on_a_wall_is_that_of_its_time_zone() {
        let in_berlin = |text: &str| text.parse::<Moment>().unwrap().by("Europe/Berlin".parse().unwrap());
        assert_eq!(in_berlin("2026-11-22 03:00"), Ok(utc("2026-11-22T02:00:00Z")));
        assert_eq!(in_berlin("2026-10-25 02:30"), Ok(utc("2026-10-25T00:30:00Z")), "the first of two");
        assert!(in_berlin("2026-03-29 02:30").unwrap_err().contains("was left out"));
        assert_eq!(in_berlin("2026-03-29T02:30:00Z"), Ok(utc("2026-03-29T02:30:00Z")));
    }

    #[test]
    fn what_is_no_time_is_told_how_one_is_written() {
        for refused in ["", "noon", "3600", "2026-13-01", "2026-11-22 25:00", "-1h", "1M", "900000y"] {
            assert!(parse(refused).is_err(), "{refused}");
        }
        assert!(parse("noon").unwrap_err().contains("yesterday"));
    }
}
