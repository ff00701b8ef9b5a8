//! The policies that are tried: from flags, from a file of zones, and each with the values of a sweep.

use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use tallygate::Policy;
use tallygate::decide::Version;
use tallygate::policy::{Algorithm, Terms};

use crate::cli::failure::reason;
use crate::cli::{Failure, Result, apply};

/// The most policies that are tried at once.
pub const CANDIDATES_MAX: usize = 1_000;

/// The flags of the policies to try.
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
    /// A policy by the names of its flags, with a name of its own in front if you like: strict='3 per 10m',
    /// strict='token-bucket 3 per 10m,burst=9', rate=5,per=60s,count-blocked; may be given more than once
    #[arg(long, value_name = "[NAME=]TERMS")]
    policy: Vec<Written>,
    /// Try the policies of a file of zones, as apply takes it
    #[arg(long, value_name = "FILE")]
    zones: Option<PathBuf>,
    /// Try these values of rate, burst or per: rate=3..20, rate=10..100:10, per=30s,60s,5m
    #[arg(long, value_name = "NAME=VALUES")]
    pub sweep: Option<Sweep>,
}

/// A policy to try.
#[derive(Clone)]
pub struct Candidate {
    /// Its name for people.
    pub name: String,
    /// Its name, and its terms.
    pub label: String,
    /// The policy that it is a variant of, where values are swept.
    pub series: String,
    /// Its value among those that are swept.
    pub value: Option<String>,
    pub policy: Policy,
    /// All its versions, where it changed on the way.
    pub versions: Option<Vec<Version>>,
}

/// Values to try one after the other: `rate=3..20`, `rate=10..100:10`, `per=30s,60s,5m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The name of the term that is swept.
    pub name: String,
    values: Vec<String>,
}

/// A policy of its own, by the names of the flags: `rate=5,per=60s,algorithm=token-bucket`, or in short
/// `token-bucket 5 per 60s`; with a name in front, `strict=…`.
#[derive(Clone, Debug)]
pub struct Written {
    name: Option<String>,
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

/// A policy as it was typed, before values are swept.
struct Series {
    /// A name that was given to it.
    name: Option<String>,
    /// The name of its line in a chart.
    shown: String,
    /// The text before an error about it.
    blamed: Option<String>,
    terms: Terms,
}

pub fn all(Options { terms, policy, zones, sweep }: Options) -> Result<Vec<Candidate>> {
    let first = terms.into_iter().map(|terms| {
        let shown = terms.algorithm.to_string();
        Series { name: None, shown, blamed: None, terms }
    });
    let mut series: Vec<_> = first.chain(policy.into_iter().map(Written::series)).collect();
    if let Some(path) = &zones {
        series.extend(apply::zones(path)?.into_iter().map(|(name, terms)| Series {
            shown: name.clone(),
            blamed: Some(format!("{}: {name}", path.display())),
            name: Some(name),
            terms,
        }));
    }
    let mut candidates = Vec::new();
    for series in &series {
        match &sweep {
            None => candidates.push(series.candidate(None)?),
            Some(sweep) => {
                for value in &sweep.values {
                    candidates.push(series.candidate(Some((&sweep.name, value)))?);
                }
            }
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

impl Candidate {
    /// A policy without a name of its own.
    pub fn of(policy: Policy) -> Self {
        let name = format!("{} {policy}", policy.algorithm());
        Self { label: name.clone(), series: name.clone(), name, value: None, policy, versions: None }
    }
}

impl Series {
    /// The policy of these terms, with this value of the term that is swept.
    fn candidate(&self, swept: Option<(&str, &str)>) -> Result<Candidate> {
        let terms = match swept {
            Some((name, value)) => self.terms.clone().with(name, value)?,
            None => self.terms.clone(),
        };
        let policy = terms.policy().map_err(|error| {
            Failure::new(
                self.blamed.iter().map(|blamed| format!("{blamed}: ")).collect::<String>()
                    + &error.to_string(),
            )
        })?;
        let admits = format!("{} {policy}", policy.algorithm());
        let (name, label) = match (&self.name, swept) {
            (None, _) => (admits.clone(), admits),
            (Some(name), None) => (name.clone(), format!("{name}: {admits}")),
            (Some(name), Some((swept, value))) => {
                (format!("{name}, {swept}={value}"), format!("{name}: {admits}"))
            }
        };
        let value = swept.map(|(_, value)| value.to_owned());
        Ok(Candidate { name, label, series: self.shown.clone(), value, policy, versions: None })
    }
}

impl Written {
    /// The policy, by itself.
    pub fn candidate(self) -> Result<Candidate> {
        self.series().candidate(None)
    }

    fn series(self) -> Series {
        let shown = self.name.clone().unwrap_or_else(|| self.text.clone());
        Series { name: self.name, shown, blamed: Some(self.text), terms: self.terms }
    }
}

impl std::str::FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, terms) = named(text);
        if name.is_some_and(|name| name.trim().is_empty()) {
            return Err("the name before = is empty; give one, like strict='3 per 10m'".to_owned());
        }
        let flags = terms.split(',').map(str::trim).flat_map(|term| match short(term) {
            Some(flags) => flags,
            None => vec![format!("--{term}")],
        });
        let alone = Alone::try_parse_from(flags).map_err(|error| reason(&error))?;
        Ok(Self { name: name.map(|name| name.trim().to_owned()), text: text.to_owned(), terms: alone.terms })
    }
}

/// The text before the first = is a name, unless it is a flag; then terms follow it, and no value.
fn named(text: &str) -> (Option<&str>, &str) {
    let Some((name, rest)) = text.split_once('=') else { return (None, text) };
    let first = rest.split(',').next().unwrap_or_default().trim();
    let flag = first.split('=').next().unwrap_or_default();
    let is_terms = short(first).is_some() || first.contains('=') || is_flag(flag);
    if is_terms && !name.contains(',') && !is_flag(name.trim()) { (Some(name), rest) } else { (None, text) }
}

fn is_flag(name: &str) -> bool {
    Alone::command().get_arguments().any(|argument| argument.get_long() == Some(name))
}

/// `3 per 10m`, `token-bucket 3 per 10m`, as flags.
fn short(term: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = term.split_whitespace().collect();
    let (algorithm, rate, window) = match words[..] {
        [rate, "per", window] => (None, rate, window),
        [algorithm, rate, "per", window] => (Some(algorithm), rate, window),
        _ => return None,
    };
    let slots = algorithm == Some(Algorithm::Concurrency.as_str());
    let window = if slots { format!("--slot-ttl={window}") } else { format!("--per={window}") };
    let algorithm = algorithm.map(|algorithm| format!("--algorithm={algorithm}"));
    Some(algorithm.into_iter().chain([format!("--rate={rate}"), window]).collect())
}

impl std::str::FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or(REMEDY)?;
        Ok(Self { name: name.to_owned(), values: self::values(values)? })
    }
}

const REMEDY: &str =
    "use a range of whole numbers like rate=3..20 or rate=10..100:10, or values like per=30s,60s";

/// A range with both its ends, in steps or not, or a list: `3..20`, `10..100:10`, `30s,60s`.
pub fn values(values: &str) -> Result<Vec<String>, String> {
    let Some((first, rest)) = values.split_once("..") else {
        return Ok(values.split(',').map(|value| value.trim().to_owned()).collect());
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let [first, last, step] = [first, last, step].map(|number| number.trim().parse::<i64>());
    let (Ok(first), Ok(last), Ok(step @ 1..)) = (first, last, step) else {
        return Err(REMEDY.to_owned());
    };
    if first > last {
        return Err(format!("the range ends before it begins; use {last}..{first}"));
    }
    let values = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    // One more is enough to know that there are too many.
    Ok(values.take(CANDIDATES_MAX + 1).map(|value| value.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_in_short_or_by_its_flags_with_a_name_or_without() {
        for (text, name, label) in [
            ("strict=3 per 10m", "strict", "strict: sliding-log 3 per 10m"),
            (
                "very strict = token-bucket 3 per 10m, burst=9",
                "very strict",
                "very strict: token-bucket 3 per 10m, burst 9",
            ),
            ("strict=rate=3,per=10m", "strict", "strict: sliding-log 3 per 10m"),
            (
                "strict=count-blocked,rate=3,per=10m",
                "strict",
                "strict: sliding-log 3 per 10m, counts blocked",
            ),
            ("3 per 10m", "sliding-log 3 per 10m", "sliding-log 3 per 10m"),
            ("rate=3,per=10m", "sliding-log 3 per 10m", "sliding-log 3 per 10m"),
            (
                "count-blocked,rate=3,per=10m",
                "sliding-log 3 per 10m, counts blocked",
                "sliding-log 3 per 10m, counts blocked",
            ),
            ("jobs=concurrency 3 per 30s", "jobs", "jobs: concurrency 3 at once, each up to 30s"),
        ] {
            let candidate = text.parse::<Written>().unwrap().candidate().ok().unwrap();
            assert_eq!((candidate.name.as_str(), candidate.label.as_str()), (name, label), "{text}");
        }
        for (refused, because) in [
            ("=3 per 10m", "the name before ="),
            ("rte=5,per=60s", "--rte"),
            ("strict=3 per 10", "with its unit"),
            ("strict=bucket 3 per 10m", "bucket"),
            ("strict", "--strict"),
        ] {
            let error = refused.parse::<Written>().unwrap_err();
            assert!(error.contains(because), "{refused}: {error}");
        }
    }

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
