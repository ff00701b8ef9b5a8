//! Policies that are put to the same traffic, beside each other.

use tallygate::backtest::{Backtest, BacktestReport, Changed, Difference, Outcomes};
use tallygate::decide::Ask;

use super::Event;
use super::candidates::Candidate;
use super::events::Skipped;
use super::judge::{Judge, Judged};
use super::told::{Most, Told};
use crate::cli::Result;

/// The most policies that have a column in the table of the keys that were blocked most.
const COLUMNS_MAX: usize = 6;

/// All policies that are tried. Outcomes and a baseline take time only where they are asked for.
pub struct Trials {
    /// The baseline is the first.
    trials: Vec<Trial>,
    has_baseline: bool,
    guess: Option<i64>,
    judge: Option<Judge>,
    /// False while events are only there to be looked back on.
    counts: bool,
}

struct Trial {
    candidate: Candidate,
    way: Way,
    test: Backtest,
    difference: Option<Difference>,
    outcomes: Outcomes,
}

/// The units of a reservation: always the same, or what is predicted by its shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Fixed,
    Predicted,
}

impl Trials {
    /// With `guess`, each event is a reservation of that much; with shapes each policy is played once more by prediction.
    pub fn new(
        baseline: Option<Candidate>,
        candidates: Vec<Candidate>,
        guess: Option<i64>,
        has_shapes: bool,
        judge: Option<Judge>,
    ) -> Result<Self> {
        let has_baseline = baseline.is_some();
        let ways: &[_] = if has_shapes { &[Way::Fixed, Way::Predicted] } else { &[Way::Fixed] };
        let mut trials = Vec::new();
        for candidate in baseline.into_iter().chain(candidates) {
            for &way in ways {
                let test = match &candidate.versions {
                    Some(versions) => Backtest::of_versions(versions.clone())?,
                    None => Backtest::new(candidate.policy)?,
                };
                let difference = (has_baseline && !trials.is_empty()).then(Difference::default);
                let candidate = candidate.clone();
                trials.push(Trial { candidate, way, test, difference, outcomes: Outcomes::default() });
            }
        }
        Ok(Self { trials, has_baseline, guess, judge, counts: true })
    }

    /// The longest time that one of them looks back on.
    pub fn looks_back_us(&self) -> i64 {
        self.trials.iter().map(|trial| trial.test.looks_back_us()).max().unwrap_or(0)
    }

    /// Every event until [`count_from_here`](Self::count_from_here) is only there to be looked back on.
    pub fn wait_with_counting(&mut self) {
        self.counts = false;
    }

    pub fn count_from_here(&mut self) {
        self.counts = true;
        self.trials.iter_mut().for_each(|trial| trial.test.count_from_here());
    }

    pub fn play(&mut self, event: &Event<'_>) -> tallygate::Result<()> {
        let Event { at_us, key, cost, critical, member, shape, outcome } = *event;
        let ask = Ask { cost, critical, member, ..Ask::default() };
        let legitimate = self.judge.as_mut().and_then(|judge| judge.is_legitimate(outcome));
        let mut baseline = None;
        for Trial { way, test, difference, outcomes, .. } in &mut self.trials {
            let outcome = match self.guess {
                Some(units) => {
                    let shape = shape.filter(|_| *way == Way::Predicted);
                    test.reserve(key, &ask, units, shape, at_us)?
                }
                None => test.check(key, &ask, at_us)?,
            };
            let blocked = !outcome.reason.allows();
            if let Some(legitimate) = legitimate {
                outcomes.add(legitimate, blocked);
            }
            if self.has_baseline && self.counts {
                match (difference, baseline) {
                    (Some(difference), Some(baseline)) => difference.add(key, baseline, blocked),
                    _ => baseline = Some(blocked),
                }
            }
        }
        Ok(())
    }

    /// Fails for a good outcome that no attempt had: it is mistyped.
    pub fn have_seen_all(&self) -> Result<()> {
        self.judge.as_ref().map_or(Ok(()), Judge::has_seen_all)
    }

    /// The findings about each, with `top` keys, and the keys that were blocked most.
    pub fn told(self, top: usize, skipped: &Skipped) -> (Vec<Told>, Most) {
        let reports: Vec<_> = self.trials.iter().map(|trial| trial.test.report(top)).collect();
        let most = self.most(&reports, top);
        let changed = |trial: &Trial, of: fn(&Difference, &Backtest, &Backtest, usize) -> Changed| {
            Some(of(trial.difference.as_ref()?, &self.trials.first()?.test, &trial.test, top))
        };
        let told = self.trials.iter().enumerate().zip(reports).map(|((number, trial), report)| {
            let Candidate { name, label, series, value, versions, .. } = trial.candidate.clone();
            let way = match (self.guess, trial.way) {
                (None, _) => String::new(),
                (Some(units), Way::Fixed) => format!(", guess {units}"),
                (Some(_), Way::Predicted) => ", predicted".to_owned(),
            };
            Told {
                name: name + &way,
                label: label + &way,
                series: series + &way,
                value,
                baseline: self.has_baseline && number == 0,
                versions: versions.map(|versions| versions.iter().map(|version| version.version).collect()),
                recorded_blocked: None,
                report,
                skipped: skipped.clone(),
                newly_blocked: changed(trial, Difference::newly_blocked),
                freed: changed(trial, Difference::freed),
                outcomes: self.judge.as_ref().map(|_| Judged::from(trial.outcomes)),
            }
        });
        (told.collect(), most)
    }

    /// The keys that one of the first policies blocked most, with the number of checks that each of those blocked.
    fn most(&self, reports: &[BacktestReport], top: usize) -> Most {
        let shown = &self.trials[..self.trials.len().min(COLUMNS_MAX)];
        let row = |key: &str| -> (String, Vec<u64>) {
            (key.to_owned(), shown.iter().map(|trial| trial.test.blocked(key)).collect())
        };
        let reports = reports.iter().take(shown.len());
        let mut keys: Vec<&str> =
            reports.flat_map(|report| &report.top_blocked).map(|blocked| blocked.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut rows: Vec<_> = keys.into_iter().map(row).collect();
        rows.sort_by_key(|(_, blocked)| std::cmp::Reverse(blocked.iter().copied().max()));
        rows.truncate(top);
        Most { of: self.trials.len(), rows }
    }
}
