//! Does a call wait for a delayed acknowledgement? To servers at addresses of their own, by packets of the size that real
//! networks carry, where a socket without TCP_NODELAY holds back the end of a long call until what it sent before is
//! acknowledged: by connections that the library opens, and by a pool that sqlx opened.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tallygate::schema::Migrator;
use tallygate::{Check, Config, Limiter, Policy};

use crate::database::{Engine, RATE, WINDOW, Wire, ZONE};
use crate::machine::Machine;
use crate::options::Network;
use crate::server::{self, Place};

/// Checks of a call.
const SIZES: [usize; 5] = [1, 8, 32, 64, 128];

/// Of each limiter its own, so that neither finds buckets moved by the other.
const KEYS: usize = 10_000;

/// Linux delays an acknowledgement by 40 ms at least.
const DELAYED: Duration = Duration::from_millis(38);

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    mtu: u32,
    calls: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    database: String,
    connections: &'static str,
    checks: usize,
    p50_us: f64,
    p99_us: f64,
    /// Calls that took as long as an acknowledgement may be delayed.
    delayed: usize,
}

pub async fn run(options: &Network, place: &Place, machine: Machine) -> Result<Report> {
    let mut report = Report { machine, mtu: 0, calls: options.calls, rows: Vec::new() };
    for engine in [Engine::Postgres, Engine::MySql, Engine::MariaDb] {
        eprintln!("network: starting {engine}");
        let server = server::start(engine, place).await?;
        report.mtu = server.mtu()?;
        Wire::open(engine, &server.url).await?.execute("create database network").await?;
        let url = format!("{}/network", server.own_url);
        Migrator::new(&url)?.apply().await?;
        let limiters =
            [("the library's", opened(&url).await?), ("a pool of sqlx", given(engine, &url).await?)];
        let policy = Policy::sliding_log(RATE, WINDOW)?;
        limiters[0].1.operator().set_zone(ZONE, &policy, None, "comparison").await?;
        for checks in SIZES {
            let mut took = [Vec::new(), Vec::new()];
            for call in 0..options.calls {
                for ((connections, limiter), took) in limiters.iter().zip(&mut took) {
                    let key =
                        |nth| Check::new(ZONE, format!("{connections}:{}", (call * checks + nth) % KEYS));
                    let checks = (0..checks).map(key).collect();
                    let before = Instant::now();
                    limiter.check_many(checks).await?;
                    took.push(before.elapsed());
                }
            }
            let rows = limiters.iter().zip(took);
            report.rows.extend(rows.map(|((connections, _), took)| row(engine, connections, checks, took)));
        }
    }
    Ok(report)
}

/// One connection, which the library opens.
async fn opened(url: &str) -> Result<Limiter> {
    Ok(Limiter::connect_with(url, Config { connections: 1, ..Config::default() }).await?)
}

/// One connection, as sqlx opens it.
async fn given(engine: Engine, url: &str) -> Result<Limiter> {
    let config = Config::default();
    Ok(match engine {
        Engine::Postgres => {
            Limiter::with_pool(PgPoolOptions::new().max_connections(1).connect(url).await?, config).await?
        }
        _ => {
            Limiter::with_pool(MySqlPoolOptions::new().max_connections(1).connect(url).await?, config).await?
        }
    })
}

fn row(engine: Engine, connections: &'static str, checks: usize, mut took: Vec<Duration>) -> Row {
    took.sort_unstable();
    let quantile_us = |of: usize| took[(took.len() * of / 100).min(took.len() - 1)].as_secs_f64() * 1e6;
    let delayed = took.iter().filter(|took| **took >= DELAYED).count();
    let (p50_us, p99_us) = (quantile_us(50), quantile_us(99));
    Row { database: engine.to_string(), connections, checks, p50_us, p99_us, delayed }
}

impl Report {
    /// An error where the library's own calls waited for acknowledgements: where they take longer by half of that wait than the two
    /// sizes before them let expect, along a straight line. A call may take as long for other reasons, now and then.
    pub fn judge(&self) -> Result<()> {
        let half_us = DELAYED.as_micros() as f64 / 2.0;
        let own: Vec<_> = self.rows.iter().filter(|row| row.connections == "the library's").collect();
        for sizes in own.chunk_by(|one, next| one.database == next.database) {
            for (n, row) in sizes.iter().enumerate() {
                let work_us = match &sizes[..n] {
                    [] => half_us,
                    [one] => one.p50_us,
                    [.., two, one] => {
                        let each_us = (one.p50_us - two.p50_us) / (one.checks - two.checks) as f64;
                        one.p50_us + each_us * (row.checks - one.checks) as f64
                    }
                };
                ensure!(
                    row.p50_us < work_us + half_us,
                    "{}: calls of {} checks wait for acknowledgements",
                    row.database,
                    row.checks
                );
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine.lines())?;
        writeln!(
            f,
            "one caller, {} calls of each kind in turns, packets of {} bytes; delayed: of {} ms and more\n\
            {:<12}{:<16}{:>8}{:>10}{:>10}{:>10}",
            self.calls,
            self.mtu,
            DELAYED.as_millis(),
            "",
            "connections",
            "checks",
            "p50 µs",
            "p99 µs",
            "delayed"
        )?;
        self.rows.iter().try_for_each(|Row { database, connections, checks, p50_us, p99_us, delayed }| {
            writeln!(f, "{database:<12}{connections:<16}{checks:>8}{p50_us:>10.0}{p99_us:>10.0}{delayed:>10}")
        })
    }
}
