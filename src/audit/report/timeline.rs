//! Checks over time, in slices that fit however long the time is: what a chart is drawn of.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::values::{Counts, Timeline, Volume};

/// Slices from the first check to the last, at most.
const SLICES: i64 = 120;

/// Lengths of a slice, each a whole number of the one before. The last one is doubled where it is too short.
const LENGTHS_US: [i64; 8] = [
    100_000,
    1_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    86_400_000_000,
    7 * 86_400_000_000,
];

/// A Monday, on which slices of every length begin.
const MONDAY_US: i64 = 4 * 86_400_000_000;

/// The slices of one zone, in bounded memory.
pub(super) struct Slices {
    length_us: i64,
    /// By the number of the slice since that Monday.
    counts: BTreeMap<i64, Counts>,
}

impl Default for Slices {
    fn default() -> Self {
        Self { length_us: LENGTHS_US[0], counts: BTreeMap::new() }
    }
}

impl Slices {
    pub fn add(&mut self, at: DateTime<Utc>, counts: Counts) {
        let number = (at.timestamp_micros() - MONDAY_US).div_euclid(self.length_us);
        let slice = self.counts.entry(number).or_default();
        *slice = *slice + counts;
        while self.span().is_some_and(|(first, last)| last - first >= SLICES) {
            self.lengthen();
        }
    }

    fn span(&self) -> Option<(i64, i64)> {
        let first = self.counts.first_key_value()?.0;
        let last = self.counts.last_key_value()?.0;
        Some((*first, *last))
    }

    /// Makes each slice as long as the next length is.
    fn lengthen(&mut self) {
        let longer = LENGTHS_US.into_iter().find(|length_us| *length_us > self.length_us);
        let longer = longer.unwrap_or(self.length_us * 2);
        let times = longer / self.length_us;
        self.length_us = longer;
        for (number, counts) in std::mem::take(&mut self.counts) {
            let slice = self.counts.entry(number.div_euclid(times)).or_default();
            *slice = *slice + counts;
        }
    }
}

/// The slices of all zones, of one length.
pub(super) fn join(mut zones: Vec<(&str, Slices)>) -> Timeline {
    let slice_us = loop {
        let longest = zones.iter().map(|(_, slices)| slices.length_us).max().unwrap_or(LENGTHS_US[0]);
        for (_, slices) in &mut zones {
            while slices.length_us < longest {
                slices.lengthen();
            }
        }
        let spans = || zones.iter().filter_map(|(_, slices)| slices.span());
        let first = spans().map(|(first, _)| first).min();
        let last = spans().map(|(_, last)| last).max();
        match first.zip(last) {
            Some((first, last)) if last - first >= SLICES => {
                zones.iter_mut().for_each(|(_, slices)| slices.lengthen());
            }
            _ => break longest,
        }
    };
    let mut slices: Vec<_> = zones
        .iter()
        .flat_map(|(zone, slices)| {
            slices.counts.iter().filter_map(|(number, counts)| {
                let starts_us = number.checked_mul(slice_us)?.checked_add(MONDAY_US)?;
                let starts_at = DateTime::from_timestamp_micros(starts_us)?;
                Some(Volume { starts_at, zone: (*zone).to_owned(), counts: *counts })
            })
        })
        .collect();
    slices.sort_by_key(|slice| slice.starts_at);
    Timeline { slice_us, slices }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each check is in the slice of its time, and there are few slices, but not fewer than need be.
        #[test]
        fn every_check_is_in_its_slice(
            start_us in 0..4_000_000_000_000_000_i64,
            span_log in 0..16_u32,
            places in prop::collection::vec((0..10_000_i64, 0..3_usize), 1..60),
        ) {
            let at = |place: i64| DateTime::from_timestamp_micros(start_us + 10_i64.pow(span_log) / 10_000 * place).unwrap();
            let one = Counts { checks: 1, allowed: 1, ..Counts::default() };
            let mut zones: Vec<_> = ["a", "b", "c"].into_iter().map(|zone| (zone, Slices::default())).collect();
            for (place, zone) in &places {
                zones[*zone].1.add(at(*place), one);
            }
            let Timeline { slice_us, slices } = join(zones);
            let in_slice = |at: DateTime<Utc>, slice: &Volume| {
                (0..slice_us).contains(&(at - slice.starts_at).num_microseconds().unwrap())
            };
            for slice in &slices {
                let of_zone = places.iter().filter(|(_, zone)| ["a", "b", "c"][*zone] == slice.zone);
                let there = of_zone.filter(|(place, _)| in_slice(at(*place), slice)).count();
                prop_assert_eq!(slice.counts.checks, there as u64);
            }
            prop_assert_eq!(slices.iter().map(|slice| slice.counts.checks).sum::<u64>(), places.len() as u64);
            let span_us = (slices.last().unwrap().starts_at - slices[0].starts_at).num_microseconds().unwrap();
            prop_assert!(span_us / slice_us < SLICES, "{} slices", span_us / slice_us);
            // The next shorter ones would be too many.
            let shorter = LENGTHS_US.into_iter().rev().find(|length_us| *length_us < slice_us);
            if let Some(shorter) = shorter.filter(|_| slice_us <= LENGTHS_US[7]) {
                let moments = || places.iter().map(|(place, _)| (at(*place).timestamp_micros() - MONDAY_US).div_euclid(shorter));
                prop_assert!(moments().max().unwrap() - moments().min().unwrap() >= SLICES);
            }
        }
    }
}
