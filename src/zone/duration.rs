//! Durations as people write and read them.

#[cfg(feature = "zone-file")]
use std::time::Duration;

#[cfg(feature = "zone-file")]
use crate::error::{Error, Result};

/// Reads `60s`, `15m`, `24h`, `30d`. A bare number says nothing about its unit, so it is refused.
///
/// # Errors
/// Invalid: it says what a duration looks like.
#[cfg(feature = "zone-file")]
pub fn parse_duration(text: &str) -> Result<Duration> {
    const REMEDY: &str = "a duration is a number with its unit, like 60s, 15m, 24h or 30d";
    if text.starts_with('-') || text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::invalid(REMEDY));
    }
    if names_a_month(text) {
        return Err(Error::invalid(
            "a month has no length of its own; use 1m for a minute, 30d for thirty days, or a fixed window with \
             --calendar month",
        ));
    }
    let duration = humantime::parse_duration(text);
    let duration = duration.map_err(|error| Error::invalid(format!("{error}; {REMEDY}")))?;
    if duration.subsec_nanos() % 1000 != 0 {
        return Err(Error::invalid("time is counted in whole microseconds (us)"));
    }
    Ok(duration)
}

/// `1M` is one key away from `1m`, and 43,800 times as long.
#[cfg(feature = "zone-file")]
fn names_a_month(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphabetic());
    words.any(|word| ["M", "month", "months"].contains(&word))
}

/// A window's length as people type it: `60s`, `15m`, `24h`, `30d`. `parse_duration` reads it back.
pub fn show_duration(us: i64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_carries_its_unit() {
        let read = |text| parse_duration(text).unwrap();
        assert_eq!(read("60s"), Duration::from_secs(60));
        assert_eq!(read("15m"), Duration::from_secs(900));
        assert_eq!(read("24h"), read("1d"));
        assert_eq!(read("1h 30m"), Duration::from_secs(5400));
        assert_eq!(read("1.5s"), read("1500ms"));
        for refused in ["60", "0", "", "-5s", "5 parsecs", "1ns", "99999999999999999999s"] {
            assert!(parse_duration(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_month_is_no_duration() {
        for refused in ["1M", "15 M", "1d 1M", "1M1d", "1month", "2 months"] {
            let error = parse_duration(refused).unwrap_err().to_string();
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
            let us = parse_duration(typed).unwrap().as_micros();
            assert_eq!(show_duration(us.try_into().unwrap()), typed);
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_is_read_back_as_the_same(
            (count, unit) in (0_i64..1_000_000, proptest::sample::select(&[1, 1_000, 1_000_000, 60_000_000, 86_400_000_000][..])),
            more in 0_i64..100_000_000_000,
        ) {
            for us in [count * unit, more, count * unit + more] {
                let shown = show_duration(us);
                proptest::prop_assert_eq!(parse_duration(&shown).unwrap().as_micros(), u128::from(us.unsigned_abs()), "{}", shown);
            }
        }
    }
}
