//! The attempts that a policy hits, where it is known which ones were legitimate.

use serde::Serialize;

/// Attempts of which it is known whether they were legitimate, and the numbers that a policy blocks of either kind. Every
/// attempt that is not legitimate counts as an attack.
///
/// ```
/// use tallygate::backtest::Outcomes;
///
/// let mut outcomes = Outcomes::default();
/// for (legitimate, blocked) in [(true, false), (true, true), (false, true), (false, true), (false, false)] {
///     outcomes.add(legitimate, blocked);
/// }
/// assert_eq!((outcomes.legitimate, outcomes.legitimate_hit), (2, 1));
/// assert_eq!((outcomes.attacks, outcomes.attacks_stopped), (3, 2));
/// assert_eq!((outcomes.precision(), outcomes.recall()), (Some(2.0 / 3.0), Some(2.0 / 3.0)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Outcomes {
    /// Legitimate attempts.
    pub legitimate: u64,
    /// The number of them that the policy blocks.
    pub legitimate_hit: u64,
    /// Attempts of attackers.
    pub attacks: u64,
    /// The number of them that the policy blocks.
    pub attacks_stopped: u64,
}

impl Outcomes {
    /// Counts an attempt.
    pub fn add(&mut self, legitimate: bool, blocked: bool) {
        let (all, blocked_ones) = if legitimate {
            (&mut self.legitimate, &mut self.legitimate_hit)
        } else {
            (&mut self.attacks, &mut self.attacks_stopped)
        };
        *all += 1;
        *blocked_ones += u64::from(blocked);
    }

    /// The part of the legitimate attempts that is blocked, 0 to 1; None where there are none.
    pub fn hit(&self) -> Option<f64> {
        part(self.legitimate_hit, self.legitimate)
    }

    /// The part of the blocked attempts that are attacks, 0 to 1; None where nothing is blocked.
    pub fn precision(&self) -> Option<f64> {
        part(self.attacks_stopped, self.attacks_stopped + self.legitimate_hit)
    }

    /// The part of the attacks that is blocked, 0 to 1; None where there are none.
    pub fn recall(&self) -> Option<f64> {
        part(self.attacks_stopped, self.attacks)
    }
}

fn part(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}
