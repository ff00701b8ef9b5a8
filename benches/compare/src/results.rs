//! The findings of a run, and its table.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::measure::{Keys, Sample};

#[derive(Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    /// Versions, and what decides durability.
    pub settings: Vec<String>,
    pub terms: Terms,
    pub rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
pub struct Terms {
    pub seconds: f64,
    pub rounds: u32,
    pub callers: usize,
    pub keys: usize,
    pub batch: usize,
}

#[derive(Serialize, Deserialize)]
pub struct Row {
    pub contestant: Title,
    pub keys: Keys,
    /// A round of a contestant that failed is not among them.
    pub samples: Vec<Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Medians of the rounds.
    pub decisions_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub allowed: f64,
    pub errors: u64,
    #[serde(default)]
    pub checks_per_call: Option<f64>,
    /// Decisions a second, by those of the floor in batches on the same database and keys.
    pub to_floor: Option<f64>,
    /// The same by Redis' sliding window with appendfsync=always, the better client.
    pub to_redis: Option<f64>,
    /// False where another client of the same contestant is better.
    pub best: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    pub group: Group,
    pub role: Role,
    pub family: String,
    pub name: String,
    /// The name of the way in which it is called, where there are two ways to do that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The remains of an answered decision when the machine loses its power.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    Recorded,
    Durable,
    NotDurable,
    Memory,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Tallygate,
    /// The same number of processes of it.
    Spread,
    /// The library without batches.
    Single,
    Seed,
    /// Nothing is decided.
    Bare,
    /// Nothing is decided, many at once.
    Floor,
    Peer,
    /// Redis' sliding window with appendfsync=always.
    Reference,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Recorded, Self::Durable, Self::NotDurable, Self::Memory];

    pub fn describe(self) -> &'static str {
        match self {
            Self::Recorded => "durable, and a row of the ledger for every decision",
            Self::Durable => "durable: what is left of a bucket survives; no decision is recorded",
            Self::NotDurable => "not durable: up to a second of decisions may be lost",
            Self::Memory => "in memory of one process: nothing survives, nothing is recorded",
        }
    }
}

impl fmt::Display for Title {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, name, .. } = self;
        write!(f, "{family}: {name}")?;
        self.client.iter().try_for_each(|client| write!(f, ", {client}"))
    }
}

impl Row {
    pub fn new(contestant: Title, keys: Keys, samples: Vec<Sample>, failed: Option<String>) -> Self {
        let median = |of: fn(&Sample) -> f64| {
            let mut all = samples.iter().map(of).collect::<Vec<_>>();
            all.sort_unstable_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        Self {
            contestant,
            keys,
            failed,
            decisions_per_s: median(|sample| sample.decisions_per_s),
            p50_us: median(|sample| sample.p50_us),
            p99_us: median(|sample| sample.p99_us),
            allowed: median(|sample| sample.allowed),
            checks_per_call: samples
                .iter()
                .all(|sample| sample.checks_per_call.is_some())
                .then(|| median(|sample| sample.checks_per_call.unwrap_or(0.0))),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            to_floor: None,
            to_redis: None,
            best: true,
            samples,
        }
    }

    fn ran(&self) -> bool {
        !self.samples.is_empty()
    }
}

impl Results {
    /// Fills in the ratios, and which client is the better one.
    pub fn relate(mut self) -> Self {
        let best = |of: &dyn Fn(&Row) -> bool| {
            let rates = self.rows.iter().filter(|row| row.ran() && of(row)).map(|row| row.decisions_per_s);
            rates.max_by(f64::total_cmp)
        };
        let related = self.rows.iter().map(|row| {
            let (this, keys) = (&row.contestant, row.keys);
            let floor = best(&|other| {
                other.keys == keys
                    && other.contestant.role == Role::Floor
                    && other.contestant.family == this.family
            });
            let redis = best(&|other| other.keys == keys && other.contestant.role == Role::Reference);
            let same = best(&|other| {
                let other_title = &other.contestant;
                other.keys == keys && other_title.family == this.family && other_title.name == this.name
            });
            (floor, redis, same.is_none_or(|same| row.decisions_per_s >= same))
        });
        let related = related.collect::<Vec<_>>();
        for (row, (floor, redis, best)) in self.rows.iter_mut().zip(related) {
            let ratio = |to: f64| row.decisions_per_s / to;
            (row.to_floor, row.to_redis, row.best) = (floor.map(ratio), redis.map(ratio), best);
        }
        self
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { seconds, rounds, callers, keys, batch } = self.terms;
        writeln!(f, "{}", self.machine.lines())?;
        self.settings.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(
            f,
            "zone: 100 per 60 s; {callers} callers; medians of {rounds} rounds of {seconds} s, in turns; floor in \
             batches of {batch}"
        )?;
        for (kind, title) in
            [(Keys::Distinct, format!("{keys} distinct keys")), (Keys::Hot, "one hot key".to_owned())]
        {
            writeln!(
                f,
                "\n{title:<58}{:>12}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}",
                "decisions/s", "p50 µs", "p99 µs", "allowed", "× floor", "× Redis", "a call"
            )?;
            for group in Group::ALL {
                let rows = self.rows.iter().filter(|row| row.keys == kind && row.contestant.group == group);
                let mut rows = rows.peekable();
                if rows.peek().is_some() {
                    writeln!(f, "  {}", group.describe())?;
                }
                rows.try_for_each(|row| write!(f, "{row}"))?;
            }
        }
        writeln!(
            f,
            "\n× floor: the floor in batches on the same database. × Redis: its sliding window, appendfsync=always, \
             with the better of two clients.\na call: mean checks in one call of the library to its database."
        )
    }
}

impl Results {
    /// Fails when a call or a round did.
    pub fn whole(&self) -> anyhow::Result<()> {
        let broken = self.rows.iter().find(|row| row.errors > 0 || row.failed.is_some());
        broken.map_or(Ok(()), |row| Err(anyhow::anyhow!("{} failed, see above", row.contestant)))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    {:<54}", self.contestant.to_string())?;
        if self.ran() {
            let decided = !matches!(self.contestant.role, Role::Bare | Role::Floor);
            let allowed = if decided { format!("{:.0}%", self.allowed * 100.0) } else { "-".to_owned() };
            let ratio = |to: Option<f64>| to.map_or("-".to_owned(), |to| format!("{to:.3}"));
            write!(
                f,
                "{:>12.0}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}",
                self.decisions_per_s,
                micros(self.p50_us),
                micros(self.p99_us),
                allowed,
                ratio(self.to_floor),
                ratio(self.to_redis),
                self.checks_per_call.map_or("-".to_owned(), |checks| format!("{checks:.0}"))
            )?;
        }
        if self.errors > 0 {
            let first = self.samples.iter().find_map(|sample| sample.first_error.as_deref());
            write!(f, "  {} calls failed: {}", self.errors, first.unwrap_or_default())?;
        }
        self.failed.iter().try_for_each(|failed| write!(f, "  a round failed: {failed}"))?;
        writeln!(f)
    }
}

fn micros(us: f64) -> String {
    if us < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}
