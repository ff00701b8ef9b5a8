//! The keys that would newly be blocked, and those that would be freed.

use std::collections::HashMap;

use serde::Serialize;

use super::Backtest;

/// The checks in which a policy decides otherwise than the baseline, by key.
///
/// Memory: the name and some 50 bytes for each key of which something was decided otherwise.
///
/// ```
/// use std::time::Duration;
/// use tallygate::Policy;
/// use tallygate::backtest::{Backtest, Difference};
/// use tallygate::decide::Ask;
///
/// let minute = Duration::from_secs(60);
/// let mut baseline = Backtest::new(Policy::sliding_log(3, minute)?)?;
/// let mut stricter = Backtest::new(Policy::sliding_log(1, minute)?)?;
/// let mut difference = Difference::default();
/// for second in 0..5 {
///     let blocked = |test: &mut Backtest| -> tallygate::Result<bool> {
///         let login = Ask { cost: 1, ..Ask::default() };
///         Ok(!test.check("203.0.113.7", &login, second * 1_000_000)?.reason.allows())
///     };
///     difference.add("203.0.113.7", blocked(&mut baseline)?, blocked(&mut stricter)?);
/// }
/// let newly_blocked = difference.newly_blocked(&baseline, &stricter, 10);
/// assert_eq!((newly_blocked.checks, newly_blocked.keys), (2, 1));
/// let [address] = newly_blocked.top.as_slice() else { panic!("one address") };
/// assert_eq!((address.checks, address.blocked_by_baseline, address.blocked), (2, 2, 4));
/// assert_eq!(difference.freed(&baseline, &stricter, 10).checks, 0);
/// # Ok::<(), tallygate::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Difference {
    keys: HashMap<Box<str>, Otherwise>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Otherwise {
    newly_blocked: u64,
    freed: u64,
}

/// Checks that were decided otherwise, one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Changed {
    /// The number of these checks.
    pub checks: u64,
    /// The number of different keys among them.
    pub keys: u64,
    /// The keys with the most of them, most first, then in the order of their bytes.
    pub top: Vec<ChangedKey>,
}

/// A key of which checks were decided otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct ChangedKey {
    /// The key.
    pub key: String,
    /// The number of its checks that were decided otherwise.
    pub checks: u64,
    /// The number of its checks that the baseline blocks in all.
    pub blocked_by_baseline: u64,
    /// The number of its checks that the policy blocks in all.
    pub blocked: u64,
}

impl Difference {
    /// Counts a check of which it is known what the baseline and the policy decided.
    pub fn add(&mut self, key: &str, blocked_by_baseline: bool, blocked: bool) {
        if blocked_by_baseline == blocked {
            return;
        }
        let otherwise = match self.keys.get_mut(key) {
            Some(otherwise) => otherwise,
            None => self.keys.entry(key.into()).or_default(),
        };
        otherwise.newly_blocked += u64::from(blocked);
        otherwise.freed += u64::from(blocked_by_baseline);
    }

    /// The checks that the baseline lets pass and the policy blocks, with `top` of their keys. The two tests are those whose
    /// decisions were counted.
    pub fn newly_blocked(&self, baseline: &Backtest, policy: &Backtest, top: usize) -> Changed {
        self.changed(|otherwise| otherwise.newly_blocked, baseline, policy, top)
    }

    /// The checks that the baseline blocks and the policy lets pass, with `top` of their keys.
    pub fn freed(&self, baseline: &Backtest, policy: &Backtest, top: usize) -> Changed {
        self.changed(|otherwise| otherwise.freed, baseline, policy, top)
    }

    fn changed(
        &self,
        count: impl Fn(&Otherwise) -> u64,
        baseline: &Backtest,
        policy: &Backtest,
        top: usize,
    ) -> Changed {
        let counted = self.keys.iter().map(|(key, otherwise)| (&**key, count(otherwise)));
        let mut keys: Vec<(&str, u64)> = counted.filter(|(_, checks)| *checks > 0).collect();
        keys.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let key = |&(key, checks): &(&str, u64)| ChangedKey {
            key: key.to_owned(),
            checks,
            blocked_by_baseline: baseline.blocked(key),
            blocked: policy.blocked(key),
        };
        Changed {
            checks: keys.iter().map(|(_, checks)| checks).sum(),
            keys: keys.len() as u64,
            top: keys.iter().take(top).map(key).collect(),
        }
    }
}
