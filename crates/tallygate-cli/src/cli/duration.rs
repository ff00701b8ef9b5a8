//! Durations and moments as people write and read them.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Reads `60s`, `15m`, `24h`, `30d`. A bare number says nothing about its unit, so it is refused.
pub fn parse(text: &str) -> Result<Duration, String> {
    const REMEDY: &str = "a duration is a number with its unit, like 60s, 15m, 24h or 30d";
    if text.starts_with('-') || text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(REMEDY.to_owned());
    }
    if names_a_month(text) {
        return Err("a month has no length of its own; use 1m for a minute, 30d for thirty days, or a fixed window with \
             --calendar month"
            .to_owned());
    }
    let duration = humantime::parse_duration(text).map_err(|error| format!("{error}; {REMEDY}"))?;
    if duration.subsec_nanos() % 1000 != 0 {
        return Err("time is counted in whole microseconds (us)".to_owned());
    }
    Ok(duration)
}

/// `1M` is one key away from `1m`, and 43,800 times as long.
fn names_a_month(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphabetic());
    words.any(|word| ["M", "month", "months"].contains(&word))
}

/// Reads a moment: RFC 3339, or how long ago it was.
pub fn parse_moment(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Ok(moment.to_utc());
    }
    let ago = parse(text).map_err(|_| {
        "a moment is a time like 2026-01-31T08:00:00Z, or how long ago it was, like 15m or 24h".to_owned()
    })?;
    TimeDelta::from_std(ago)
        .ok()
        .and_then(|ago| Utc::now().checked_sub_signed(ago))
        .ok_or_else(|| "that is before the calendar begins".to_owned())
}

/// A window's length as people type it: `60s`, `15m`, `24h`, `30d`. [`parse`] reads it back.
pub fn show(us: i64) -> String {
    // Each unit with the least that it is used for: one minute is 60s, one day is 24h.
    const UNITS: [(&str, u64, u64); 6] = [
        ("d", 86_400_000_000, 2 * 86_400_000_000),
        ("h", 3_600_000_000, 3_600_000_000),
        ("m", 60_000_000, 2 * 60_000_000),
        ("s", 1_000_000, 1_000_000),
        ("ms", 1_000, 1_000),
        ("us", 1, 1),
    ];
    let mut rest = us.unsigned_abs();
    let mut parts = Vec::new();
    for (name, unit, least) in UNITS {
        if rest >= if parts.is_empty() { least } else { unit } {
            parts.push(format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// A wait, rounded up so that whoever waits as long as it says has waited enough: `3ms`, `41.2s`, `14m 3s`.
pub fn show_wait(us: i64) -> String {
    let us = us.max(0);
    match us {
        ..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", us.div_ceil_by(1_000)),
        1_000_000..60_000_000 => {
            let tenths = us.div_ceil_by(100_000);
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        _ => show(us.div_ceil_by(1_000_000) * 1_000_000),
    }
}

/// A moment, to the second: what a sentence needs.
pub fn show_second(moment: DateTime<Utc>) -> String {
    moment.format("%Y-%m-%d %H:%M:%S").to_string()
}

/// A moment, to the millisecond: what fits in a column.
pub fn show_moment(moment: DateTime<Utc>) -> String {
    moment.format("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// A moment in full, to the microsecond, but for zeros at its end.
pub fn show_micros(moment: DateTime<Utc>) -> String {
    let text = moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

trait CeilingDivision {
    fn div_ceil_by(self, unit: i64) -> i64;
}

impl CeilingDivision for i64 {
    fn div_ceil_by(self, unit: i64) -> i64 {
        self / unit + i64::from(self % unit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_carries_its_unit() {
        assert_eq!(parse("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(parse("24h"), parse("1d"));
        assert_eq!(parse("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("1.5s"), parse("1500ms"));
        for refused in ["60", "0", "", "-5s", "5 parsecs", "1ns", "99999999999999999999s"] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_month_is_no_duration() {
        for refused in ["1M", "15 M", "1d 1M", "1M1d", "1month", "2 months"] {
            let error = parse(refused).unwrap_err();
            for remedy in ["1m for a minute", "30d", "--calendar month"] {
                assert!(error.contains(remedy), "{refused}: {error}");
            }
        }
    }

    #[test]
    fn a_duration_is_shown_as_it_is_typed() {
        for typed in
            ["0s", "1us", "500ms", "60s", "90s", "2m", "15m", "1h", "1h 30m", "24h", "36h", "2d", "7d", "30d"]
        {
            let us = parse(typed).unwrap().as_micros();
            assert_eq!(show(us.try_into().unwrap()), typed);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_is_read_back_as_the_same(
            (count, unit) in (0_i64..1_000_000, proptest::sample::select(&[1, 1_000, 1_000_000, 60_000_000, 86_400_000_000][..])),
            more in 0_i64..100_000_000_000,
        ) {
            for us in [count * unit, more, count * unit + more] {
                let shown = show(us);
                proptest::prop_assert_eq!(parse(&shown).map(|read| read.as_micros()), Ok(us.unsigned_abs().into()), "{}", shown);
            }
        }
    }

    #[test]
    fn a_wait_is_never_shown_shorter_than_it_is() {
        for (us, shown) in [
            (1, "1us"),
            (1_001, "2ms"),
            (41_150_000, "41.2s"),
            (59_999_999, "60.0s"),
            (843_000_001, "14m 4s"),
        ] {
            assert_eq!(show_wait(us), shown);
        }
    }

    #[test]
    fn a_moment_is_a_time_or_how_long_ago_it_was() {
        assert!(parse_moment("2026-01-31T08:00:00Z").is_ok());
        let moment = parse_moment("1h").unwrap();
        let ago = Utc::now() - moment;
        assert!((3_600_000..3_601_000).contains(&ago.num_milliseconds()));
        for refused in ["yesterday", "10", "2026-01-31", "900000y"] {
            assert!(parse_moment(refused).is_err(), "{refused}");
        }
    }
}
