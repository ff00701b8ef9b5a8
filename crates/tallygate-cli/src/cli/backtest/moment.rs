//! Times as events tell them.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};

use crate::cli::clock::Clock;

const REMEDY: &str = "use RFC 3339 like 2026-01-31T08:00:00Z, 2026-01-31 08:00:00 or 20260131080000 for UTC, or Unix time \
                      in seconds, milliseconds or microseconds";

/// The times that a database stores: the years 1000 to 9999.
const ANY_US: RangeInclusive<i64> = -30_610_224_000_000_000..=253_402_300_799_000_000;

/// From 2000 to the end of tomorrow, wherever that is.
static LIKELY_US: LazyLock<RangeInclusive<i64>> = LazyLock::new(|| {
    let end = Utc::now().checked_add_signed(TimeDelta::days(2));
    946_684_800_000_000..=end.map_or(i64::MAX, |at| at.timestamp_micros())
});

/// Microseconds since 1970 in UTC. Finer parts are cut off.
///
/// A bare number is a time of the calendar (8, 12 or 14 digits), if that is from 2000 to tomorrow. Else it is Unix time: up to
/// 11 digits are seconds, which may have a fraction; 12 to 14 are milliseconds; 15 to 17 are microseconds. No
/// number is both from 2000 to tomorrow. With `any` a bare number is Unix time, and a time may be of any year.
pub fn parse(text: &str, any: bool) -> Result<i64, String> {
    let text = text.trim();
    let unix = || if text.starts_with(|c: char| c.is_ascii_digit()) { unix(text) } else { None };
    let compact = if any { None } else { compact(text).filter(|us| LIKELY_US.contains(us)) };
    let us = compact.or_else(unix).or_else(|| written(text)).ok_or_else(|| REMEDY.to_owned())?;
    let (range, remedy) = match any {
        true => (&ANY_US, "use a time of the years 1000 to 9999"),
        false => (
            &*LIKELY_US,
            "that is before 2000 or after tomorrow; mend it, or take times of any year with --any-time",
        ),
    };
    if range.contains(&us) { Ok(us) } else { Err(remedy.to_owned()) }
}

/// A time of the calendar in digits alone: of a day, a minute or a second.
fn compact(text: &str) -> Option<i64> {
    let time = match text.len() {
        8 => NaiveDate::parse_from_str(text, "%Y%m%d").ok()?.and_time(NaiveTime::MIN),
        12 => NaiveDateTime::parse_from_str(text, "%Y%m%d%H%M").ok()?,
        14 => NaiveDateTime::parse_from_str(text, "%Y%m%d%H%M%S").ok()?,
        _ => return None,
    };
    Some(time.and_utc().timestamp_micros())
}

fn unix(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || text.ends_with('.') {
        return None;
    }
    let number: i64 = whole.parse().ok()?;
    match (whole.len(), fraction) {
        (..=11, _) => {
            let micros: String = fraction.chars().chain("000000".chars()).take(6).collect();
            Some(number * 1_000_000 + micros.parse::<i64>().ok()?)
        }
        (12..=14, "") => Some(number * 1_000),
        (15..=17, "") => Some(number),
        _ => None,
    }
}

fn written(text: &str) -> Option<i64> {
    let moment = crate::cli::moment::written(text)?;
    Some(moment.by(Clock::UTC).ok()?.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_by_its_form() {
        let at = 1_769_846_400_000_000;
        for (text, us) in [
            ("2026-01-31T08:00:00Z", at),
            ("2026-01-31T09:00:00+01:00", at),
            ("2026-01-31T08:00:00.123456789Z", at + 123_456),
            ("2026-01-31 08:00:00", at),
            ("2026-01-31 08:00:00.5", at + 500_000),
            ("2026-01-31T08:00:00", at),
            ("2026-01-31 08:00", at),
            (" 1769846400 ", at),
            ("1769846400.25", at + 250_000),
            ("1769846400.1234567", at + 123_456),
            ("1769846400123", at + 123_000),
            ("1769846400123456", at + 123_456),
        ] {
            assert_eq!((parse(text, false), parse(text, true)), (Ok(us), Ok(us)), "{text}");
        }
        // The calendar in digits alone is no number of milliseconds of the year 2608.
        for (text, us) in [
            ("20260131080000", at),
            ("202601310800", at),
            ("20260131", at - 8 * 3_600_000_000),
            ("999912312359", 999_912_312_359_000),
        ] {
            assert_eq!(parse(text, false), Ok(us), "{text}");
        }
        assert!(parse("0999-12-31T00:00:00Z", true).unwrap_err().contains("1000 to 9999"));
        for (text, us) in
            [("0", 0), ("99999999999", 99_999_999_999_000_000), ("1999-12-31T23:59:59Z", 946_684_799_000_000)]
        {
            assert!(parse(text, false).unwrap_err().contains("--any-time"), "{text}");
            assert_eq!(parse(text, true), Ok(us), "{text}");
        }
        assert_eq!(parse("20260131080000", true), Ok(20_260_131_080_000_000), "a number is Unix time");
        for refused in [
            "",
            "yesterday",
            "2026-13-31T08:00:00Z",
            "-1",
            "17698464001234567890",
            "1769846400123.5",
            "1769846400.",
            "1e9",
            "31/01/2026 08:00",
        ] {
            assert!(parse(refused, false).is_err() && parse(refused, true).is_err(), "{refused}");
        }
    }
}
