//! Durations as people write and read them, and times as they read them.

use chrono::{DateTime, Utc};
pub use tallygate::policy::{parse_duration as parse, show_duration as show};

/// A wait, rounded up so that a caller who waits as long as it says has waited long enough: `3ms`, `41.2s`, `14m 3s`.
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

/// A moment as evidence names it: in full, to the microsecond, but for zeros at its end.
pub fn show_micros(moment: DateTime<Utc>) -> String {
    let text = moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    format!("{} UTC", text.trim_end_matches('0').trim_end_matches('.'))
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
}
