//! Does the time of a lone check grow with the ledger, the rate, or the window? On PostgreSQL.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tallygate::schema::Migrator;
use tallygate::{Check, Config, Limiter, Policy};

use crate::database::{Engine, Wire};
use crate::flood::{self, Flood};
use crate::machine::Machine;
use crate::options::Flat;
use crate::server::{self, Place};

/// Everything that is filled in lies within it.
const WINDOW: Duration = Duration::from_secs(86_400);
const RATES: [i64; 2] = [5, 1_000_000];

/// Buckets with a short window; checks go around them, so that their windows stay short.
const SHORT_BUCKETS: u64 = 500;
const SHORT_ROWS: u64 = 10;

/// Rows of each of the buckets that only fill the ledger.
const OTHER_ROWS: u64 = 100;

/// Rows of one insert.
const CHUNK: u64 = 250_000;

/// Turns before the time counts.
const WARM_UP: usize = 200;

/// The longest that all of it may take.
pub const MOST: Duration = Duration::from_secs(3 * 3_600);

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    options: [u64; 3],
    lone: Vec<Lone>,
    floods: Vec<Flood>,
}

#[derive(Serialize)]
struct Lone {
    ledger_rows: i64,
    rate: i64,
    window_rows: u64,
    blocked: f64,
    p50_us: f64,
    p99_us: f64,
    /// By the first of its rate.
    ratio: f64,
}

pub async fn run(options: &Flat, place: &Place, machine: Machine) -> Result<Report> {
    eprintln!("flat: starting PostgreSQL");
    let server = server::start(Engine::Postgres, place).await?.url;
    let lone = lone(options, &server).await?;
    let floods = flood::run(options, &server).await?;
    Ok(Report { machine, options: [options.rows, options.window, options.blocked], lone, floods })
}

/// A migrated database of its own.
pub async fn database(server: &str, name: &str) -> Result<String> {
    Wire::open(Engine::Postgres, server).await?.execute(&format!("create database {name}")).await?;
    let url = format!("{server}/{name}");
    Migrator::new(&url)?.apply().await?;
    Ok(url)
}

struct Ledger {
    url: String,
    limiter: Limiter,
    zone_ids: [i32; 2],
    rows: i64,
}

fn zone_name(rate: i64) -> String {
    format!("rate-{rate}")
}

impl Ledger {
    async fn make(server: &str, name: &str) -> Result<Self> {
        let url = database(server, name).await?;
        let limiter = Limiter::connect_with(&url, Config::default()).await?;
        let mut zone_ids = [0; 2];
        for (zone_id, rate) in zone_ids.iter_mut().zip(RATES) {
            let policy = Policy::sliding_log(rate, WINDOW)?;
            *zone_id = limiter.operator().set_zone(&zone_name(rate), &policy, None, "flat").await?.id;
        }
        Ok(Self { url, limiter, zone_ids, rows: 0 })
    }

    /// Buckets of `rows` rows each in both zones.
    async fn fill(&mut self, prefix: &str, buckets: u64, rows: u64) -> Result<()> {
        let fill = |zone| fill(&self.url, self.zone_ids[zone], RATES[zone], prefix, buckets, rows);
        tokio::try_join!(fill(0), fill(1))?;
        self.rows += i64::try_from(2 * buckets * rows)?;
        Ok(())
    }

    async fn settle(&self) -> Result<()> {
        let mut wire = Wire::open(Engine::Postgres, &self.url).await?;
        wire.execute("vacuum analyze").await?;
        wire.execute("checkpoint").await
    }
}

async fn fill(url: &str, zone_id: i32, rate: i64, prefix: &str, buckets: u64, rows: u64) -> Result<()> {
    let mut wire = PgConnection::connect(url).await?;
    let total = i64::try_from(buckets * rows)?;
    let begin: String = sqlx::query_scalar("select (clock_timestamp() - interval '12 hours')::text")
        .fetch_one(&mut wire)
        .await?;
    let step_us = 11 * 3_600_000_000 / total.max(1);
    let sql = include_str!("../sql/postgres/flat_rows.sql");
    let mut from = 0;
    while from < total {
        let to = total.min(from + i64::try_from(CHUNK)?);
        sqlx::query(sql)
            .bind(zone_id)
            .bind(&begin)
            .bind(i64::try_from(buckets)?)
            .bind(from)
            .bind(to)
            .bind(prefix)
            .bind(rate)
            .bind(step_us)
            .execute(&mut wire)
            .await?;
        from = to;
        if total > 1_000_000 && from % 1_000_000 < i64::try_from(CHUNK)? {
            eprintln!("flat: {prefix} in zone {}: {from} of {total} rows", zone_name(rate));
        }
    }
    sqlx::query(include_str!("../sql/postgres/flat_heads.sql"))
        .bind(zone_id)
        .bind(prefix)
        .bind(i64::try_from(rows)?)
        .execute(&mut wire)
        .await?;
    Ok(())
}

async fn lone(options: &Flat, server: &str) -> Result<Vec<Lone>> {
    let mut few = Ledger::make(server, "few").await?;
    few.fill("short:", SHORT_BUCKETS, SHORT_ROWS).await?;
    let mut many = Ledger::make(server, "many").await?;
    many.fill("other:", (options.rows / OTHER_ROWS / 2).max(1), OTHER_ROWS).await?;
    many.fill("short:", SHORT_BUCKETS, SHORT_ROWS).await?;
    many.fill("long:", 1, options.window).await?;
    eprintln!("flat: vacuum and checkpoint");
    few.settle().await?;
    many.settle().await?;

    let mut cells = Vec::new();
    for rate in RATES {
        cells.push((&few, rate, SHORT_ROWS));
        cells.push((&many, rate, SHORT_ROWS));
        cells.push((&many, rate, options.window));
    }
    eprintln!("flat: {} lone checks of each kind, in turns", options.checks);
    let mut took = vec![Vec::new(); cells.len()];
    let mut blocked = vec![0_usize; cells.len()];
    for turn in 0..WARM_UP + options.checks {
        for (cell, &(ledger, rate, window_rows)) in cells.iter().enumerate() {
            let key = match window_rows {
                SHORT_ROWS => format!("short:{:06}", turn as u64 % SHORT_BUCKETS),
                _ => "long:000000".to_owned(),
            };
            let check = Check::new(zone_name(rate), key);
            let before = Instant::now();
            let decision = ledger.limiter.check(check).await?;
            if turn >= WARM_UP {
                took[cell].push(before.elapsed());
                blocked[cell] += usize::from(decision.blocked);
            }
        }
    }
    let mut rows: Vec<Lone> = Vec::new();
    for (((ledger, rate, window_rows), mut took), blocked) in cells.into_iter().zip(took).zip(blocked) {
        took.sort_unstable();
        let quantile_us = |of: usize| took[(took.len() * of / 100).min(took.len() - 1)].as_secs_f64() * 1e6;
        let p50_us = quantile_us(50);
        let first = rows.iter().find(|row| row.rate == rate).map_or(p50_us, |row| row.p50_us);
        rows.push(Lone {
            ledger_rows: ledger.rows,
            rate,
            window_rows,
            blocked: blocked as f64 / took.len() as f64,
            p50_us,
            p99_us: quantile_us(99),
            ratio: p50_us / first,
        });
    }
    Ok(rows)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine.lines())?;
        writeln!(
            f,
            "a lone check, sliding log over a day; ratio of p50 to the first of its rate\n{:>14}{:>14}{:>16}{:>10}{:>10}{:>10}{:>8}",
            "rows in ledger", "rate", "rows in window", "blocked", "p50 µs", "p99 µs", "ratio"
        )?;
        for lone in &self.lone {
            writeln!(
                f,
                "{:>14}{:>14}{:>16}{:>9.0}%{:>10.0}{:>10.0}{:>8.2}",
                lone.ledger_rows,
                lone.rate,
                lone.window_rows,
                lone.blocked * 100.0,
                lone.p50_us,
                lone.p99_us,
                lone.ratio
            )?;
        }
        self.floods.iter().try_for_each(|flood| write!(f, "\n{flood}"))
    }
}
