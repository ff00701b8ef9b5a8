//! Calendar periods: minutes, hours, days and months of a time zone.
//!
//! A period begins at the first instant at which the zone's clock shows its beginning. A clock that is set back
//! does not begin a period again: the hour that is lived through twice is one hour of two. One that is set
//! forward over a beginning begins the period there.

use std::cell::Cell;

use chrono::{DateTime, Datelike, Months, NaiveDateTime, NaiveTime, Utc};
use serde::{Deserialize, Serialize};

use super::choice::CalendarUnit;
use super::time_zone::{ClockSpan, TimeZoneName, span_at};

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// The calendar that a fixed window follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calendar {
    /// The length of a period.
    pub unit: CalendarUnit,
    /// The time zone whose clock it is.
    pub time_zone: TimeZoneName,
}

impl Calendar {
    /// The longest that a period can be, changes of the clock left aside.
    pub(crate) fn longest_us(self) -> i64 {
        match self.unit {
            CalendarUnit::Minute => 60 * SECOND_US,
            CalendarUnit::Hour => 3_600 * SECOND_US,
            CalendarUnit::Day => DAY_US,
            CalendarUnit::Month => 31 * DAY_US,
        }
    }

    /// The period that a time is in: its first microsecond, and that of the next period.
    pub(crate) fn period(self, at_us: i64) -> (i64, i64) {
        thread_local! {
            /// The last question is asked again, several times in each decision.
            static LAST: Cell<Option<(Calendar, (i64, i64))>> = const { Cell::new(None) };
        }
        match LAST.get() {
            Some((calendar, period)) if calendar == self && (period.0..period.1).contains(&at_us) => period,
            _ => {
                let period = self.find_period(at_us);
                LAST.set(Some((self, period)));
                period
            }
        }
    }

    fn find_period(self, at_us: i64) -> (i64, i64) {
        let spans = self.time_zone.spans();
        let span = span_at(spans, at_us);
        let shown_us = at_us.saturating_add(span.offset_us).max(span.shown_us);
        let start = self.start(shown_us);
        (first_shown(spans, start), first_shown(spans, self.next(start)))
    }

    /// The beginning of the period, as the clock shows it.
    fn start(self, shown_us: i64) -> i64 {
        match self.unit {
            CalendarUnit::Month => naive(shown_us)
                .and_then(|time| time.date().with_day(1))
                .map_or(shown_us, |date| date.and_time(NaiveTime::MIN).and_utc().timestamp_micros()),
            _ => shown_us.saturating_sub(shown_us.rem_euclid(self.longest_us())),
        }
    }

    fn next(self, start_us: i64) -> i64 {
        match self.unit {
            CalendarUnit::Month => naive(start_us)
                .and_then(|time| time.checked_add_months(Months::new(1)))
                .map_or(i64::MAX, |time| time.and_utc().timestamp_micros()),
            _ => start_us.saturating_add(self.longest_us()),
        }
    }
}

/// The first instant at which the clock shows a time, or has passed it: in the last span before which it had not.
fn first_shown(spans: &[ClockSpan], shown_us: i64) -> i64 {
    let before = spans.partition_point(|span| span.shown_us < shown_us);
    let span = spans[before.saturating_sub(1)];
    span.starts_us.max(shown_us.saturating_sub(span.offset_us))
}

fn naive(us: i64) -> Option<NaiveDateTime> {
    DateTime::<Utc>::from_timestamp_micros(us).map(|time| time.naive_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(time: &str) -> i64 {
        time.parse::<DateTime<Utc>>().unwrap().timestamp_micros()
    }

    fn assert_period(unit: CalendarUnit, zone: &str, at: &str, period: [&str; 2]) {
        let calendar = Calendar { unit, time_zone: zone.parse().unwrap() };
        assert_eq!(calendar.find_period(us(at)), (us(period[0]), us(period[1])), "{unit} of {zone} at {at}");
    }

    #[test]
    fn periods_begin_when_the_clock_on_the_wall_says_so() {
        use CalendarUnit::{Day, Hour, Minute, Month};
        // A month with a change of the clock in it.
        assert_period(
            Month,
            "Europe/Berlin",
            "2026-03-31T21:59:59.999999Z",
            ["2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"],
        );
        assert_period(
            Day,
            "Asia/Kathmandu",
            "2026-01-01T00:00:00Z",
            ["2025-12-31T18:15:00Z", "2026-01-01T18:15:00Z"],
        );
        assert_period(
            Minute,
            "UTC",
            "2026-01-01T00:00:59.999999Z",
            ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"],
        );
        // 3 o'clock becomes 2: the hour from 2 to 3 takes two.
        for at in ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"] {
            assert_period(Hour, "Europe/Berlin", at, ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]);
        }
        // Midnight does not exist: the day begins at 1.
        assert_period(
            Day,
            "Africa/Cairo",
            "2026-04-24T12:00:00Z",
            ["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"],
        );
        // Midnight happens twice: the day begins at the first.
        assert_period(
            Day,
            "America/Havana",
            "2024-11-03T04:30:00Z",
            ["2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"],
        );
        assert_period(
            Day,
            "America/Havana",
            "2024-11-03T05:30:00Z",
            ["2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"],
        );
    }

    #[test]
    fn periods_follow_each_other_without_gap_or_overlap() {
        for zone in ["Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia"]
        {
            for unit in [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Month] {
                let calendar = Calendar { unit, time_zone: zone.parse().unwrap() };
                let (mut start_us, mut end_us) = calendar.find_period(us("2011-12-01T00:00:00Z"));
                for _ in 0..3_000 {
                    assert!(start_us < end_us, "{unit} of {zone}");
                    assert_eq!(calendar.find_period(end_us - 1), (start_us, end_us), "{unit} of {zone}");
                    (start_us, end_us) = {
                        let next = calendar.find_period(end_us);
                        assert_eq!(next.0, end_us, "{unit} of {zone}");
                        next
                    };
                }
            }
        }
    }
}
