//! The remains of a flood of blocked checks on PostgreSQL.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tallygate::{Check, Config, Limiter, Policy};
use tokio::task::JoinSet;

use crate::flat::database;
use crate::options::Flat;

/// Checks of one call, and calls at a time.
const BATCH: u64 = 128;
const CALLS: u64 = 4;

const ZONE: &str = "flood";

#[derive(Serialize)]
pub struct Flood {
    buckets: u64,
    checks: u64,
    checks_per_s: f64,
    /// Name, bytes before the flood, right after it, and after autovacuum.
    sizes: Vec<(String, [i64; 3])>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    name: String,
    live: i64,
    dead: i64,
    updates: i64,
    heap_only_updates: i64,
    autovacuum: i64,
    autoanalyze: i64,
    /// Seconds; -1 when there was none.
    since_autovacuum_s: f64,
}

pub async fn run(options: &Flat, server: &str) -> Result<Vec<Flood>> {
    let mut floods = Vec::new();
    for (name, buckets) in [("narrow", 1), ("wide", options.blocked)] {
        floods.push(flood(&database(server, name).await?, buckets, options).await?);
    }
    Ok(floods)
}

async fn flood(url: &str, buckets: u64, options: &Flat) -> Result<Flood> {
    let checks = options.blocked;
    let limiter = Limiter::connect_with(url, Config::default()).await?;
    limiter
        .operator()
        .set_zone(ZONE, &Policy::sliding_log(1, Duration::from_secs(86_400))?, None, "flood")
        .await?;
    let mut wire = PgConnection::connect(url).await?;
    eprintln!("flat: the one check that passes, in {buckets} buckets");
    check(&limiter, buckets, buckets).await?;
    let before = sizes(&mut wire).await?;
    eprintln!("flat: {checks} blocked checks in {buckets} buckets");
    let begin = Instant::now();
    check(&limiter, buckets, checks).await?;
    let took = begin.elapsed();
    let after = sizes(&mut wire).await?;
    eprintln!("flat: waiting for autovacuum");
    let over = Instant::now();
    let tables = loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let tables = tables(&mut wire).await?;
        let came = |table: &Table| (0.0..over.elapsed().as_secs_f64()).contains(&table.since_autovacuum_s);
        if tables.iter().all(came) || over.elapsed().as_secs_f64() > options.patience {
            break tables;
        }
    };
    let later = sizes(&mut wire).await?;
    let sizes = before.into_iter().zip(after).zip(later);
    let sizes = sizes.map(|(((name, before), after), later)| (name, [before, after.1, later.1])).collect();
    Ok(Flood { buckets, checks, checks_per_s: checks as f64 / took.as_secs_f64(), sizes, tables })
}

/// Checks around the buckets, many in a call and some calls at a time.
async fn check(limiter: &Limiter, buckets: u64, checks: u64) -> Result<()> {
    let mut calls = JoinSet::new();
    for first in 0..CALLS {
        let limiter = limiter.clone();
        calls.spawn(async move {
            let mut from = first * BATCH;
            while from < checks {
                let some = from..checks.min(from + BATCH);
                let some = some.map(|n| Check::new(ZONE, format!("bucket:{:07}", n % buckets)));
                limiter.check_many(some.collect()).await?;
                from += CALLS * BATCH;
            }
            Ok::<_, tallygate::Error>(())
        });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    Ok(())
}

async fn sizes(wire: &mut PgConnection) -> Result<Vec<(String, i64)>> {
    Ok(sqlx::query_as(include_str!("../sql/postgres/flat_sizes.sql")).fetch_all(wire).await?)
}

async fn tables(wire: &mut PgConnection) -> Result<Vec<Table>> {
    type Columns = (String, i64, i64, i64, i64, i64, i64, f64);
    let rows: Vec<Columns> =
        sqlx::query_as(include_str!("../sql/postgres/flat_vacuum.sql")).fetch_all(wire).await?;
    let table =
        |(name, live, dead, updates, heap_only_updates, autovacuum, autoanalyze, since_autovacuum_s)| Table {
            name,
            live,
            dead,
            updates,
            heap_only_updates,
            autovacuum,
            autoanalyze,
            since_autovacuum_s,
        };
    Ok(rows.into_iter().map(table).collect())
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buckets, checks, checks_per_s, .. } = self;
        writeln!(
            f,
            "{checks} blocked checks in {buckets} bucket{}: {checks_per_s:.0}/s in calls of {BATCH}, {CALLS} at a time\n\
             {:<26}{:>14}{:>14}{:>18}{:>16}",
            if *buckets == 1 { "" } else { "s" },
            "MiB",
            "before",
            "after",
            "after autovacuum",
            "bytes a check"
        )?;
        for (name, [before, after, later]) in &self.sizes {
            let mib = |bytes: &i64| *bytes as f64 / f64::from(1 << 20);
            let each = (after - before) as f64 / *checks as f64;
            writeln!(
                f,
                "{name:<26}{:>14.1}{:>14.1}{:>18.1}{each:>16.1}",
                mib(before),
                mib(after),
                mib(later)
            )?;
        }
        for table in &self.tables {
            let autovacuum = match table.since_autovacuum_s {
                ..0.0 => "never came".to_owned(),
                seconds => format!("came {} times, last {seconds:.0} s ago", table.autovacuum),
            };
            writeln!(
                f,
                "{}: {} rows, {} dead, {} updates of which {} heap-only; autovacuum {autovacuum}; autoanalyze {} times",
                table.name, table.live, table.dead, table.updates, table.heap_only_updates, table.autoanalyze
            )?;
        }
        Ok(())
    }
}
