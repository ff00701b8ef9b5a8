//! The policies that are worth a look: those of a grid to which no other is better in both numbers.

use std::time::Duration;

use super::Outcomes;
use crate::error::{Error, Result};
use crate::zone::{Algorithm, Policy, show_duration};

/// The slots of a sliding counter in a grid.
const SLOTS: i32 = 10;

/// Policies to choose from: each of the algorithms with each of the rates in each of the windows, 308 by default. A sliding
/// counter has ten slots.
///
/// ```
/// use tallygate::backtest::Grid;
/// use tallygate::policy::Algorithm;
///
/// let logs = Grid { algorithms: vec![Algorithm::SlidingLog], ..Grid::default() };
/// assert_eq!(Grid::default().policies()?.len(), 308);
/// assert_eq!(logs.policies()?.len(), 77);
/// assert_eq!(logs.policies()?[0].to_string(), "1 per 10s");
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Their algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Their rates: the units that they admit in a window.
    pub rates: Vec<i64>,
    /// The lengths of their windows.
    pub windows: Vec<Duration>,
}

impl Default for Grid {
    fn default() -> Self {
        use Algorithm::{FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
        Self {
            algorithms: vec![SlidingLog, FixedWindow, SlidingCounter, TokenBucket],
            rates: vec![1, 2, 3, 4, 5, 8, 10, 15, 20, 50, 100],
            windows: [10, 60, 300, 600, 3_600, 21_600, 86_400].map(Duration::from_secs).to_vec(),
        }
    }
}

impl Grid {
    /// All policies of the grid: algorithm by algorithm, in the order of their windows, then of their rates.
    ///
    /// # Errors
    /// Invalid: one of them is no policy, with the reason.
    pub fn policies(&self) -> Result<Vec<Policy>> {
        let mut policies = Vec::with_capacity(self.algorithms.len() * self.rates.len() * self.windows.len());
        for &algorithm in &self.algorithms {
            for &window in &self.windows {
                for &rate in &self.rates {
                    let slots = (algorithm == Algorithm::SlidingCounter).then_some(SLOTS);
                    let policy =
                        Policy::new(algorithm, rate, window, None).map(|policy| policy.with_slots(slots));
                    let policy =
                        policy.and_then(|policy| policy.validate().map(|()| policy)).map_err(|error| {
                            let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
                            Error::invalid(format!(
                                "{algorithm} {rate} per {}: {error}",
                                show_duration(window_us)
                            ))
                        })?;
                    policies.push(policy);
                }
            }
        }
        Ok(policies)
    }
}

/// The Pareto front of attacks that are stopped against legitimate attempts that are hit: the places of the outcomes to which
/// no other is better in one number and at least as good in the other, from those that hit least to those that stop most.
/// Outcomes that are the same stand together, in their order.
///
/// ```
/// use tallygate::backtest::{Outcomes, front};
///
/// let found: Vec<Outcomes> = [(0, 5), (2, 9), (2, 7), (1, 5), (0, 5)]
///     .into_iter()
///     .map(|(hit, stopped)| {
///         let mut outcomes = Outcomes::default();
///         (0..10).for_each(|n| outcomes.add(true, n < hit));
///         (0..10).for_each(|n| outcomes.add(false, n < stopped));
///         outcomes
///     })
///     .collect();
/// assert_eq!(front(&found), [0, 4, 1]);
/// ```
pub fn front(found: &[Outcomes]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..found.len()).collect();
    places
        .sort_by_key(|&place| (found[place].legitimate_hit, std::cmp::Reverse(found[place].attacks_stopped)));
    let mut last: Option<&Outcomes> = None;
    places.retain(|&place| {
        let one = &found[place];
        let kept = last.is_none_or(|last| {
            one.attacks_stopped > last.attacks_stopped
                || (one.attacks_stopped == last.attacks_stopped && one.legitimate_hit == last.legitimate_hit)
        });
        if kept {
            last = Some(one);
        }
        kept
    });
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The front by its definition, each against each.
    fn by_definition(found: &[Outcomes]) -> Vec<usize> {
        let better = |a: &Outcomes, b: &Outcomes| {
            a.legitimate_hit <= b.legitimate_hit
                && a.attacks_stopped >= b.attacks_stopped
                && (a.legitimate_hit < b.legitimate_hit || a.attacks_stopped > b.attacks_stopped)
        };
        (0..found.len()).filter(|&n| !found.iter().any(|other| better(other, &found[n]))).collect()
    }

    #[test]
    fn the_front_is_what_its_definition_says_of_any_points() {
        let mut rng = fastrand::Rng::with_seed(17);
        for size in (0..60).chain([500]) {
            let most = 1 + size / 3;
            let mut found = Vec::new();
            for _ in 0..size {
                let (legitimate_hit, attacks_stopped) = (rng.u64(0..=most), rng.u64(0..=most));
                found.push(Outcomes { legitimate: most, legitimate_hit, attacks: most, attacks_stopped });
            }
            let mut places = front(&found);
            assert!(
                places.is_sorted_by_key(|&place| (found[place].legitimate_hit, found[place].attacks_stopped))
            );
            places.sort_unstable();
            assert_eq!(places, by_definition(&found), "{found:?}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_is_named() {
        let grid = Grid { rates: vec![3, 0], ..Grid::default() };
        let error = grid.policies().unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("token-bucket 0 per 10s: rate 0"),
            "{error}"
        );
    }
}
