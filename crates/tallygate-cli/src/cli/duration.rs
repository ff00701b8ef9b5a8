//! Durations and moments as people write and read them.

use chrono::{DateTime, TimeDelta, Utc};
pub use tallygate::policy::{parse_duration as parse, show_duration as show};

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
