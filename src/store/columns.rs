//! The numbers and names that programs write in columns. A database takes more; that is refused where it is read, by the column's name.

use std::str::FromStr;

use crate::decide::CARRIED_MAX;
use crate::error::{Error, Result};
use crate::zone::UNITS_MAX;

/// The least and the largest number of a column.
pub(super) const fn range(column: &str) -> (i64, i64) {
    match column.as_bytes() {
        // Rows of one bucket: nobody makes as many, and a sum of them fits.
        b"seq" | b"head_seq" | b"carried_seq" | b"override_seq" | b"receipt" | b"buckets"
        | b"ledger_rows" => (0, 1 << 48),
        b"version" | b"zone_version" | b"bans" | b"takes" => (0, i32::MAX as i64),
        b"checks" | b"weight" => (1, i32::MAX as i64),
        b"band" => (0, u8::MAX as i64),
        // The units of one row.
        b"cost" | b"spent" | b"zone_limit" | b"amount" | b"wants" | b"has" => (0, UNITS_MAX),
        b"carried" => (0, CARRIED_MAX),
        // Sums, and times to wait.
        b"spent_total" | b"carried_total" | b"remaining" | b"waiting" | b"away" | b"strikes"
        | b"ban_strikes" | b"retry_after_us" | b"delay_us" => (0, i64::MAX),
        // Hashes have the least number in the place of none.
        b"level" => (-i64::MAX, i64::MAX),
        _ => unreachable!(),
    }
}

/// A number, if it is within the range of its column.
pub(super) fn counted<N: Number>(column: &str, (least, most): (i64, i64), number: N) -> Result<N> {
    match number.number() {
        Some(out) if out < least || out > most => {
            Err(Error::database(format!("{column:?}: {out} is out of range; it was written from outside")))
        }
        _ => Ok(number),
    }
}

/// A number as a column has it, which may have none.
pub(super) trait Number: Copy {
    fn number(self) -> Option<i64>;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(
            impl Number for $number {
                fn number(self) -> Option<i64> {
                    Some(self.into())
                }
            }

            impl Number for Option<$number> {
                fn number(self) -> Option<i64> {
                    self.map(i64::from)
                }
            }
        )*
    };
}

numbers!(i16, i32, i64);

/// A name of a choice.
pub(super) fn named<T: FromStr<Err = Error>>(column: &str, name: &str) -> Result<T> {
    name.parse().map_err(|error: Error| error.at(format_args!("{column:?}")))
}

/// The error of columns that say something together, or nothing.
pub(super) fn torn(columns: &[&str]) -> Error {
    Error::database(format!("of the columns {columns:?} some are missing; they were changed from outside"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_program_counts_is_refused_by_its_column() {
        let is_read = |column, number: i64| match counted(column, range(column), number) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), "database");
                let told = error.to_string();
                assert!(told.contains(&format!("{column:?}: {number} is out of range")), "{told}");
                false
            }
        };
        for (column, least, most) in [
            ("seq", 0, 1 << 48),
            ("checks", 1, i64::from(i32::MAX)),
            ("band", 0, 255),
            ("spent", 0, UNITS_MAX),
            ("spent_total", 0, i64::MAX),
            ("level", -i64::MAX, i64::MAX),
        ] {
            assert!(is_read(column, least) && is_read(column, most), "{column}");
            assert!(!is_read(column, least - 1), "{column}");
            assert!(!most.checked_add(1).is_some_and(|more| is_read(column, more)), "{column}");
        }
        assert_eq!(counted("level", range("level"), None::<i64>).unwrap(), None);
    }
}
