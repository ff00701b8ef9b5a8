//! Times as events tell them.

use chrono::Utc;

const REMEDY: &str = "use RFC 3339 like 2026-01-31T08:00:00Z, 2026-01-31 08:00:00 for UTC, or Unix time in seconds, \
                      milliseconds or microseconds";

/// Microseconds since 1970 in UTC. Finer parts are cut off.
///
/// A bare number is Unix time: up to 11 digits are seconds, which may have a fraction; 12 to 14 are milliseconds; 15 to
/// 17 are microseconds. So milliseconds and microseconds are recognised from March 1973 to the year 5138.
pub fn parse(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let unix = if text.starts_with(|c: char| c.is_ascii_digit()) { unix(text) } else { None };
    unix.or_else(|| written(text)).ok_or_else(|| REMEDY.to_owned())
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
    Some(moment.in_zone(&Utc).ok()?.timestamp_micros())
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
            ("0", 0),
            ("99999999999", 99_999_999_999_000_000),
        ] {
            assert_eq!(parse(text), Ok(us), "{text}");
        }
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
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}
