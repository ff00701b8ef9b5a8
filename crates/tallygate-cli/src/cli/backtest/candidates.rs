//! The policies that are tried: from flags, from a file of zones, and each with the values of a sweep.

use std::path::PathBuf;

use clap::Parser;
use tallygate::Policy;
use tallygate::policy::Terms;

use crate::cli::failure::reason;
use crate::cli::{Failure, Result, apply};

/// So many policies are tried at most.
const CANDIDATES_MAX: usize = 1_000;

/// How policies to try are said.
#[derive(clap::Args)]
#[command(
    // A sweep or another policy may say it.
    mut_arg("rate", |arg| arg.required(false)),
    mut_arg("on_outage", |arg| arg.hide(true)),
    mut_arg("running_buckets", |arg| arg.hide(true)),
    mut_arg("durability", |arg| arg.hide(true)),
    mut_arg("blocked_rows", |arg| arg.hide(true)),
    mut_arg("description", |arg| arg.hide(true)),
)]
pub struct Options {
    #[command(flatten)]
    terms: Option<Terms>,
    /// A policy by the names of its flags, like rate=5,per=60s,algorithm=token-bucket; may be given more than once
    #[arg(long, value_name = "TERMS")]
    policy: Vec<Written>,
    /// The policies of a file of zones, as apply takes it
    #[arg(long, value_name = "FILE")]
    zones: Option<PathBuf>,
    /// Try these values of rate, burst or per: rate=3..20, rate=10..100:10, per=30s,60s,5m
    #[arg(long, value_name = "NAME=VALUES")]
    pub sweep: Option<Sweep>,
}

/// A policy to try.
#[derive(Clone)]
pub struct Candidate {
    /// What people call it.
    pub name: String,
    /// What it is a variant of, where values are swept.
    pub series: String,
    /// The value that it has of those that are swept.
    pub value: Option<String>,
    pub policy: Policy,
}

/// Values to try one after the other: `rate=3..20`, `rate=10..100:10`, `per=30s,60s,5m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// What is swept.
    pub name: String,
    values: Vec<String>,
}

/// A policy of its own, by the names of the flags: `rate=5,per=60s,algorithm=token-bucket`.
#[derive(Clone, Debug)]
pub struct Written {
    text: String,
    terms: Terms,
}

/// Lets the flags of a policy be read by themselves.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, mut_arg("rate", |arg| arg.required(false)))]
struct Alone {
    #[command(flatten)]
    terms: Terms,
}

pub fn all(Options { terms, policy, zones, sweep }: Options) -> Result<Vec<Candidate>> {
    let mut series: Vec<_> = terms.into_iter().map(|terms| (terms.algorithm.to_string(), terms)).collect();
    let first_named = series.len();
    series.extend(policy.into_iter().map(|Written { text, terms }| (text, terms)));
    let first_zone = series.len();
    series.extend(zones.as_deref().map(apply::zones).transpose()?.unwrap_or_default());
    let mut candidates = Vec::new();
    for (number, (series, terms)) in series.into_iter().enumerate() {
        let values =
            sweep.as_ref().map_or_else(|| vec![None], |sweep| sweep.values.iter().map(Some).collect());
        for value in values {
            let terms = match (&sweep, value) {
                (Some(sweep), Some(value)) => terms.clone().with(&sweep.name, value)?,
                _ => terms.clone(),
            };
            let told = |because: String| match number {
                _ if number < first_named => Failure::new(because),
                _ => Failure::new(format!("{series}: {because}")),
            };
            let policy = terms.policy().map_err(|error| told(error.to_string()))?;
            let name = format!("{} {policy}", policy.algorithm());
            let name = if number < first_zone { name } else { format!("{series}: {name}") };
            candidates.push(Candidate { name, series: series.clone(), value: value.cloned(), policy });
        }
    }
    match candidates.len() {
        0 => Err(Failure::new("there is no policy to try; give --rate and --per, --policy or --zones")),
        1..=CANDIDATES_MAX => Ok(candidates),
        many => {
            Err(Failure::new(format!("{many} policies are too many at once; use up to {CANDIDATES_MAX}")))
        }
    }
}

impl std::str::FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let flags = text.split(',').map(|term| format!("--{}", term.trim()));
        let alone = Alone::try_parse_from(flags).map_err(|error| reason(&error))?;
        Ok(Self { text: text.to_owned(), terms: alone.terms })
    }
}

impl std::str::FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const REMEDY: &str =
            "use a range of whole numbers like rate=3..20 or rate=10..100:10, or values like per=30s,60s";
        let (name, values) = text.split_once('=').ok_or(REMEDY)?;
        let values = match values.split_once("..") {
            None => values.split(',').map(|value| value.trim().to_owned()).collect(),
            Some((first, rest)) => {
                let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
                let [first, last, step] = [first, last, step].map(|number| number.trim().parse::<i64>());
                let (Ok(first), Ok(last), Ok(step @ 1..)) = (first, last, step) else {
                    return Err(REMEDY.to_owned());
                };
                if first > last {
                    return Err(format!("the range ends before it begins; use {last}..{first}"));
                }
                let values = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
                // One more is enough to know that they are too many.
                values.take(CANDIDATES_MAX + 1).map(|value| value.to_string()).collect()
            }
        };
        Ok(Self { name: name.to_owned(), values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_range_with_both_its_ends_or_a_list() {
        for (text, values) in [
            ("rate=3..6", &["3", "4", "5", "6"][..]),
            ("burst=10..35:10", &["10", "20", "30"]),
            ("per=30s, 5m", &["30s", "5m"]),
            ("rate=7", &["7"]),
        ] {
            assert_eq!(text.parse::<Sweep>().unwrap().values, values, "{text}");
        }
        for refused in ["", "rate", "rate=3..", "rate=9..3", "rate=1..9:0", "rate=a..b"] {
            assert!(refused.parse::<Sweep>().is_err(), "{refused}");
        }
    }
}
