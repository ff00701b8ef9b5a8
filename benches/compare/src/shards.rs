//! Is a decision as much work when several databases decide as one? One, two and four databases of the same server, in turns, each
//! with callers of its own: how long the processors worked for each decision, those of the server and those of the program.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use tallygate::schema::Migrator;
use tallygate::{Config, Limiter, Policy};

use crate::database::{Engine, RATE, WINDOW, Wire, ZONE};
use crate::ledger::Tallygate;
use crate::machine::{Machine, worked};
use crate::measure::{Contest, Keys, Times, names};
use crate::options::Shards;
use crate::server::{self, Place, Server};

/// The numbers of databases that decide.
const COUNTS: [usize; 3] = [1, 2, 4];

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    callers: usize,
    keys: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    databases: usize,
    decisions_per_s: f64,
    /// Processor time for each decision.
    server_us: f64,
    program_us: f64,
    /// Of both, beside one database.
    relative: f64,
}

pub async fn run(options: &Shards, place: &Place, machine: Machine) -> Result<Report> {
    let server = server::start(Engine::Postgres, place).await?;
    let mut contestants = Vec::new();
    for count in COUNTS {
        let limiters = vec![limiter(&server, count).await?];
        contestants.push(Tallygate { limiters, callers: options.callers * count });
    }
    let names = names(options.keys);
    let times = Times { warm_up: Duration::ZERO, measured: Duration::from_secs_f64(options.seconds) };
    let mut found = vec![Vec::new(); COUNTS.len()];
    // The first round makes the buckets, and is not counted.
    for round in 0..=options.rounds {
        for (contestant, found) in contestants.iter().zip(&mut found) {
            let before = [worked(server.process)?, worked(std::process::id())?];
            let sample = contestant.round(names, Keys::Distinct, times).await?;
            let after = [worked(server.process)?, worked(std::process::id())?];
            ensure!(sample.errors == 0, "{:?}", sample.first_error);
            let decisions = sample.decisions_per_s * options.seconds;
            let us = |of: usize| after[of].saturating_sub(before[of]).as_secs_f64() * 1e6 / decisions;
            if round > 0 {
                found.push([sample.decisions_per_s, us(0), us(1)]);
            }
        }
    }
    let rows: Vec<[f64; 3]> = found.into_iter().map(medians).collect();
    let work = |[_, server_us, program_us]: [f64; 3]| server_us + program_us;
    let one = work(rows[0]);
    let rows = COUNTS.into_iter().zip(rows).map(|(databases, row)| {
        let [decisions_per_s, server_us, program_us] = row;
        Row { databases, decisions_per_s, server_us, program_us, relative: work(row) / one }
    });
    Ok(Report { machine, callers: options.callers, keys: options.keys, rows: rows.collect() })
}

async fn limiter(server: &Server, count: usize) -> Result<Limiter> {
    let mut wire = Wire::open(Engine::Postgres, &server.url).await?;
    let mut list = Vec::new();
    for number in 1..=count {
        let name = format!("of{count}_{number}");
        wire.execute(&format!("create database {name}")).await?;
        list.push(format!("{name}={}/{name}", server.url));
    }
    let list = list.join(" ");
    for (_, migrator) in Migrator::each(&list)? {
        migrator.apply().await?;
    }
    let limiter = Limiter::connect_with(&list, Config::default()).await?;
    let policy = Policy::sliding_log(RATE, WINDOW)?;
    limiter.operator().set_zone(ZONE, &policy, None, "comparison").await?;
    Ok(limiter)
}

fn medians(rounds: Vec<[f64; 3]>) -> [f64; 3] {
    std::array::from_fn(|figure| {
        let mut figures: Vec<f64> = rounds.iter().map(|round| round[figure]).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine.lines())?;
        writeln!(
            f,
            "databases of one PostgreSQL server, {} callers for each, {} keys at random; processor time of a decision\n\
            {:<12}{:>14}{:>12}{:>12}{:>12}",
            self.callers, self.keys, "databases", "decisions/s", "server µs", "program µs", "relative"
        )?;
        self.rows.iter().try_for_each(|Row { databases, decisions_per_s, server_us, program_us, relative }| {
            writeln!(
                f,
                "{databases:<12}{decisions_per_s:>14.0}{server_us:>12.1}{program_us:>12.1}{relative:>12.2}"
            )
        })
    }
}
