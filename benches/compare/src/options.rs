//! The options: what to run.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::database::Engine;

/// Compares Tallygate with what others offer, on this machine, in one run.
#[derive(Parser)]
#[command(name = "./run", bin_name = "./run", args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub compare: Compare,
    /// Bind this program, Redis and the containers to these cores, as in 0,1; all when not given
    #[arg(long, global = true, value_name = "LIST")]
    pub cores: Option<String>,
    /// Only print which of docker, redis, wrk and h2load the run needs
    #[arg(long, global = true, hide = true)]
    pub needs: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Does the time of a lone check grow with the ledger, the rate or the window? And what does a flood of blocked
    /// checks leave behind? On PostgreSQL
    Flat(Flat),
    /// Does a call wait for a delayed acknowledgement, to a server that is not on the loopback interface?
    Network(Network),
    /// Is a decision as much work when several databases decide as one? On PostgreSQL
    Shards(Shards),
    /// What does a check cost more by the server, over HTTP and gRPC, than by the library?
    Http(Http),
    /// Draw the plots of an earlier run again, from its JSON file
    Plot {
        results: PathBuf,
        /// Directory of the plots
        #[arg(long, default_value = crate::PLOTS)]
        plots: PathBuf,
    },
}

#[derive(Args, Clone)]
pub struct Compare {
    /// Measure only these
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<Family>,
    /// Time for each contestant in each round
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds; a figure is the median of its rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Concurrent callers
    #[arg(long, default_value_t = 256, value_parser = positive)]
    pub callers: usize,
    /// Distinct keys, drawn at random
    #[arg(long, default_value_t = 100_000, value_parser = positive)]
    pub keys: usize,
    /// Writes in each transaction of the floor in batches
    #[arg(long, default_value_t = 128, value_parser = positive)]
    pub batch: usize,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the plots here; docs/performance when everything is measured, nowhere with --only
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct Flat {
    /// Rows in the full ledger
    #[arg(long, default_value_t = 20_000_000)]
    pub rows: u64,
    /// Rows in a long window
    #[arg(long, default_value_t = 1_000_000)]
    pub window: u64,
    /// Blocked checks of a flood, and buckets of the wide one
    #[arg(long, default_value_t = 1_000_000)]
    pub blocked: u64,
    /// Checks of each kind, in turns
    #[arg(long, default_value_t = 2_000)]
    pub checks: usize,
    /// The longest wait for autovacuum after a flood, which looks once a minute
    #[arg(long, default_value_t = 130.0, value_parser = seconds, value_name = "SECONDS")]
    pub patience: f64,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct Network {
    /// Calls of each kind, in turns
    #[arg(long, default_value_t = 300, value_parser = positive)]
    pub calls: usize,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct Shards {
    /// Time for each number of databases in each round
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds; a figure is the median of its rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Concurrent callers for each database
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub callers: usize,
    /// Distinct keys, drawn at random
    #[arg(long, default_value_t = 100_000, value_parser = positive)]
    pub keys: usize,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct Http {
    /// Measure only these databases
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<Family>,
    /// Time for each way in each round
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Rounds; a figure is the median of its rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Concurrent callers, and connections
    #[arg(long, default_value_t = 64, value_parser = positive)]
    pub callers: usize,
    /// Distinct keys, drawn at random
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    pub keys: usize,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    Postgres,
    Mysql,
    Mariadb,
    Sqlite,
    Redis,
    Memory,
}

impl Options {
    pub fn needs(&self) -> Vec<&'static str> {
        match &self.command {
            Some(Command::Flat(_) | Command::Network(_) | Command::Shards(_)) => vec!["docker"],
            Some(Command::Http(http)) => [needs(|family| http.has(family)), vec!["wrk", "h2load"]].concat(),
            Some(Command::Plot { .. }) => vec![],
            None => needs(|family| self.compare.has(family)),
        }
    }
}

fn needs(has: impl Fn(Family) -> bool) -> Vec<&'static str> {
    let docker = [Family::Postgres, Family::Mysql, Family::Mariadb].into_iter().any(&has);
    [(docker, "docker"), (has(Family::Redis), "redis")]
        .into_iter()
        .filter_map(|(is_needed, what)| is_needed.then_some(what))
        .collect()
}

impl Http {
    pub fn has(&self, family: Family) -> bool {
        self.only.is_empty() || self.only.contains(&family)
    }
}

impl From<Engine> for Family {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Postgres => Self::Postgres,
            Engine::MySql => Self::Mysql,
            Engine::MariaDb => Self::Mariadb,
            Engine::Sqlite => Self::Sqlite,
        }
    }
}

impl Compare {
    pub fn has(&self, family: Family) -> bool {
        self.only.is_empty() || self.only.contains(&family)
    }

    pub fn plots(&self) -> Option<PathBuf> {
        let everything = self.only.is_empty().then(|| PathBuf::from(crate::PLOTS));
        self.plots.clone().or(everything)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=100_000_000).contains(&number) => Ok(number),
        _ => Err("a number from 1 to 100000000".to_owned()),
    }
}
