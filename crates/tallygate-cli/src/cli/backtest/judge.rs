//! The attempts that were legitimate, by their outcomes.

use std::collections::BTreeSet;

use serde::Serialize;
use tallygate::backtest::Outcomes;

use crate::cli::{Failure, Result};

/// The most different outcomes that an error names.
const TOLD_MAX: usize = 8;

/// The column of outcomes, and the good ones.
#[derive(clap::Args)]
pub struct Judging {
    /// The column of an attempt's outcome; with --good it shows the legitimate attempts that a policy hits and the attacks that it
    /// stops
    #[arg(long, value_name = "NAME", requires = "good")]
    pub outcome_column: Option<String>,
    /// The outcome of a legitimate attempt; may be given more than once. Every other one is an attack, an empty one unknown
    #[arg(long, value_name = "VALUE", requires = "outcome_column")]
    good: Vec<String>,
}

/// Tells legitimate attempts from attacks.
pub struct Judge {
    column: String,
    /// Each good outcome, and whether there was one.
    good: Vec<(String, bool)>,
    /// Some of the other outcomes that there were.
    others: BTreeSet<String>,
}

/// The outcomes of one policy, as counts and as parts.
#[derive(Serialize)]
pub struct Judged {
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// The part of the legitimate attempts that is hit.
    hit: Option<f64>,
    precision: Option<f64>,
    recall: Option<f64>,
}

impl Judging {
    /// The judge; None where nobody asks for outcomes.
    pub fn judge(self) -> Option<Judge> {
        let Self { outcome_column, good } = self;
        let good = good.into_iter().map(|good| (good, false)).collect();
        outcome_column.map(|column| Judge { column, good, others: BTreeSet::new() })
    }
}

impl Judge {
    /// Was it legitimate? None where it is not known.
    pub fn is_legitimate(&mut self, outcome: Option<&str>) -> Option<bool> {
        let outcome = outcome.map(str::trim).filter(|outcome| !outcome.is_empty())?;
        if let Some((_, seen)) = self.good.iter_mut().find(|(good, _)| good == outcome) {
            *seen = true;
            return Some(true);
        }
        if self.others.len() < TOLD_MAX && !self.others.contains(outcome) {
            self.others.insert(outcome.to_owned());
        }
        Some(false)
    }

    /// Fails for a good outcome that no attempt had: it is mistyped.
    pub fn has_seen_all(&self) -> Result<()> {
        let Some((missed, _)) = self.good.iter().find(|(_, seen)| !seen) else { return Ok(()) };
        let mut there: Vec<&str> = self.others.iter().map(String::as_str).collect();
        there.extend(self.good.iter().filter(|(_, seen)| *seen).map(|(good, _)| good.as_str()));
        let there = if there.is_empty() { "no outcome at all".to_owned() } else { there.join(", ") };
        Err(Failure::new(format!(
            "no attempt has the outcome {missed:?} in column {:?}, where there is {there}; name with --good what is there",
            self.column
        )))
    }
}

impl From<Outcomes> for Judged {
    fn from(outcomes: Outcomes) -> Self {
        Self { outcomes, hit: outcomes.hit(), precision: outcomes.precision(), recall: outcomes.recall() }
    }
}

impl Judged {
    /// The cells of the columns of [`JUDGED`] behind the name of the policy.
    pub fn row(&self) -> [String; 5] {
        let Outcomes { legitimate, legitimate_hit, attacks, attacks_stopped, .. } = self.outcomes;
        [
            format!("{legitimate_hit} of {legitimate}"),
            share(self.hit),
            format!("{attacks_stopped} of {attacks}"),
            share(self.recall),
            share(self.precision),
        ]
    }
}

/// The title of a table of outcomes, and its columns.
pub const TITLE: &str = "Legitimate attempts that are hit, attacks that are stopped";
pub const JUDGED: [&str; 6] = ["policy", "hit", "of legitimate", "stopped", "of attacks", "precision"];

fn share(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part))
}
