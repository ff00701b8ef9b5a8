//! Counts over time in a bounded number of slices: when the traffic grows too long for them, several become one.

use std::collections::VecDeque;

use chrono::DateTime;

use super::TimeSlice;

const SLICES_MAX: usize = 400;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// The lengths of slices. Each is a multiple of the one before. 400 of the last are more than there are years to test.
const LENGTHS_US: [i64; 18] = [
    1_000,
    10_000,
    100_000,
    SECOND_US,
    5 * SECOND_US,
    15 * SECOND_US,
    60 * SECOND_US,
    300 * SECOND_US,
    900 * SECOND_US,
    3_600 * SECOND_US,
    21_600 * SECOND_US,
    DAY_US,
    7 * DAY_US,
    28 * DAY_US,
    364 * DAY_US,
    3_640 * DAY_US,
    36_400 * DAY_US,
    364_000 * DAY_US,
];

#[derive(Default)]
pub(super) struct Timeline {
    /// The place of the slices' length among all lengths.
    length: usize,
    /// The number of the first slice, counted from 1970.
    first: i64,
    slices: VecDeque<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    allowed: u64,
    blocked: u64,
}

impl Timeline {
    pub fn add(&mut self, at_us: i64, blocked: bool) {
        let mut place = at_us.div_euclid(self.slice_us()) - self.first;
        if usize::try_from(place).is_err() || place as usize >= self.slices.len() {
            place = self.make_room(at_us);
        }
        if let Some(counts) = usize::try_from(place).ok().and_then(|place| self.slices.get_mut(place)) {
            counts.allowed += u64::from(!blocked);
            counts.blocked += u64::from(blocked);
        }
    }

    pub fn slice_us(&self) -> i64 {
        LENGTHS_US[self.length]
    }

    pub fn slices(&self) -> Vec<TimeSlice> {
        let slices =
            (self.first..).zip(&self.slices).filter(|(_, counts)| counts.allowed + counts.blocked > 0);
        let slice = |(number, &Counts { allowed, blocked }): (i64, &Counts)| TimeSlice {
            from: DateTime::from_timestamp_micros(number * self.slice_us()),
            allowed,
            blocked,
        };
        slices.map(slice).collect()
    }

    /// Makes a place for a time that has none yet.
    fn make_room(&mut self, at_us: i64) -> i64 {
        loop {
            let number = at_us.div_euclid(self.slice_us());
            if self.slices.is_empty() {
                self.first = number;
            }
            let first = self.first.min(number);
            let end = (self.first + self.slices.len() as i64).max(number + 1);
            if end - first <= SLICES_MAX as i64 || self.length + 1 == LENGTHS_US.len() {
                (first..self.first).for_each(|_| self.slices.push_front(Counts::default()));
                self.slices.resize((end - first) as usize, Counts::default());
                self.first = first;
                return number - first;
            }
            self.lengthen();
        }
    }

    fn lengthen(&mut self) {
        let old_us = self.slice_us();
        self.length += 1;
        let times = self.slice_us() / old_us;
        let first = self.first.div_euclid(times);
        let mut slices: VecDeque<Counts> = VecDeque::new();
        for (number, counts) in (self.first..).zip(&self.slices) {
            let place = (number.div_euclid(times) - first) as usize;
            slices.resize(slices.len().max(place + 1), Counts::default());
            if let Some(sum) = slices.get_mut(place) {
                sum.allowed += counts.allowed;
                sum.blocked += counts.blocked;
            }
        }
        (self.first, self.slices) = (first, slices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_slices_become_one_and_each_is_where_its_events_are() {
        let hour = 3_600 * SECOND_US;
        let times = [5 * hour, 5 * hour + 1, 30 * hour, -hour, 5 * hour + 999, 99 * DAY_US];
        let mut timeline = Timeline::default();
        for (n, at_us) in times.into_iter().enumerate() {
            timeline.add(at_us, at_us == 30 * hour);
            let slices = timeline.slices();
            assert!(timeline.slices.len() <= SLICES_MAX);
            assert_eq!(slices.iter().map(|slice| slice.allowed + slice.blocked).sum::<u64>(), n as u64 + 1);
        }
        assert_eq!(timeline.slice_us(), 21_600 * SECOND_US);
        let shown = timeline.slices().into_iter();
        let shown =
            shown.map(|slice| (slice.from.unwrap().timestamp_micros() / hour, slice.allowed, slice.blocked));
        assert_eq!(shown.collect::<Vec<_>>(), [(-6, 1, 0), (0, 3, 0), (30, 0, 1), (2_376, 1, 0)]);
    }

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        assert!(LENGTHS_US.is_sorted());
        assert!(LENGTHS_US.windows(2).all(|pair| pair[1] % pair[0] == 0));
    }
}
