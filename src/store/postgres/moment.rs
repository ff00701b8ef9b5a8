//! Times.

use chrono::{DateTime, Utc};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgHasArrayType, PgRow, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Row, Type};

use super::error;
use crate::error::Result;

/// 2000, from which PostgreSQL counts, in microseconds since 1970.
const EPOCH_US: i64 = 946_684_800_000_000;

/// A time of the calendar. PostgreSQL stores others too, infinity and years up to 294276, over which the driver panics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(pub DateTime<Utc>);

impl Moment {
    fn new(us: i64) -> Option<Self> {
        us.checked_add(EPOCH_US).and_then(DateTime::from_timestamp_micros).map(Self)
    }
}

impl Type<sqlx::Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        <DateTime<Utc> as Type<sqlx::Postgres>>::type_info()
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        <DateTime<Utc> as PgHasArrayType>::array_type_info()
    }
}

impl Decode<'_, sqlx::Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let us = <i64 as Decode<sqlx::Postgres>>::decode(value)?;
        Self::new(us).ok_or_else(|| {
            let told = match us {
                i64::MAX => "infinity".to_owned(),
                i64::MIN => "-infinity".to_owned(),
                us => format!("{us} µs after 2000"),
            };
            format!("{told} is no time that the calendar knows; it was written from outside").into()
        })
    }
}

pub(super) fn time(row: &PgRow, column: &str) -> Result<DateTime<Utc>> {
    row.try_get(column).map(|Moment(at)| at).map_err(error)
}

pub(super) fn time_if(row: &PgRow, column: &str) -> Result<Option<DateTime<Utc>>> {
    let at: Option<Moment> = row.try_get(column).map_err(error)?;
    Ok(at.map(|Moment(at)| at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_of_the_calendar_are_read() {
        assert_eq!(Moment::new(0).unwrap().0.to_rfc3339(), "2000-01-01T00:00:00+00:00");
        let last_us = DateTime::<Utc>::MAX_UTC.timestamp_micros() - EPOCH_US;
        let first_us = DateTime::<Utc>::MIN_UTC.timestamp_micros() - EPOCH_US;
        for us in [first_us, last_us] {
            assert_eq!(Moment::new(us).unwrap().0.timestamp_micros(), us + EPOCH_US);
        }
        // Infinity, minus infinity, the last that PostgreSQL stores, and the first behind each end.
        for us in [i64::MAX, i64::MIN, 9_223_371_331_199_999_999, first_us - 1, last_us + 1] {
            assert!(Moment::new(us).is_none(), "{us}");
        }
    }
}
