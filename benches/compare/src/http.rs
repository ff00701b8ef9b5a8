//! What a check costs more over HTTP than by the library: the same database, the same keys, in turns. The load over HTTP is made
//! by wrk, which no one here wrote, and which takes its share of the same cores.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::schema::Migrator;
use tallygate::{Check, Limiter, Policy};
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::database::{Engine, RATE, WINDOW, Wire, ZONE};
use crate::machine::Machine;
use crate::options::Http;
use crate::server::{self, Place};

/// What a hot key admits: few enough that it is reached in the shortest round.
const HOT_RATE: i64 = 100;
const HOT_ZONE: &str = "hot";

/// Keys at random, and a line at the end that is read here.
const LOAD: &str = r#"
local thread = 0
function setup(t) thread = thread + 1; t:set("number", thread) end
function init(args) math.randomseed(os.time() * 100 + number); zone = args[1]; keys = tonumber(args[2]) end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
function request()
  return wrk.format(nil, nil, nil, '{"zone":"' .. zone .. '","key":"' .. math.random(keys) .. '"}')
end
function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("\ntold %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), failed))
end
"#;

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    callers: usize,
    keys: usize,
    rounds: u32,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    database: String,
    /// The median of the rounds.
    library: Sample,
    http: Sample,
    ratio: f64,
    /// Of all that was asked of a hot key over HTTP, what was allowed, and what its limit is.
    hot_allowed: i64,
    hot_limit: i64,
    /// Rows that the audit read, and faults that it found.
    verified: u64,
    faults: u64,
}

#[derive(Clone, Copy, Serialize)]
struct Sample {
    checks_per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

pub async fn run(options: &Http, place: &Place, machine: Machine) -> Result<Report> {
    let mut rows = Vec::new();
    for engine in [Engine::Sqlite, Engine::Postgres, Engine::MySql, Engine::MariaDb] {
        if options.has(engine) {
            eprintln!("http: {engine}");
            rows.push(row(options, place, engine).await.with_context(|| engine.to_string())?);
        }
    }
    Ok(Report { machine, callers: options.callers, keys: options.keys, rounds: options.rounds, rows })
}

async fn row(options: &Http, place: &Place, engine: Engine) -> Result<Row> {
    let (url, _server) = match engine {
        Engine::Sqlite => (format!("sqlite:{}/http.db", place.directory("http")?.display()), None),
        _ => {
            let server = server::start(engine, place).await?;
            Wire::open(engine, &server.url).await?.execute("create database http").await?;
            (format!("{}/http", server.url), Some(server))
        }
    };
    Migrator::new(&url)?.apply().await?;
    let limiter = Limiter::connect(&url).await?;
    for (zone, rate) in [(ZONE, RATE), (HOT_ZONE, HOT_RATE)] {
        limiter.operator().set_zone(zone, &Policy::sliding_log(rate, WINDOW)?, None, "comparison").await?;
    }
    let mut config = tallygate_server::Config::default();
    config.listen = "127.0.0.1:0".to_owned();
    config.database.app = url;
    config.stopping.notice_s = 0;
    let served = tallygate_server::Server::bind(config).await?;
    let address = served.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(served.run(async { stopped.await.unwrap_or_default() }));

    let script = place.directory(&format!("load-{engine}"))?.join("load.lua");
    fs::write(&script, LOAD)?;
    let load = Load { script, url: format!("{address}/v1/check"), callers: options.callers };
    let time = Duration::from_secs_f64(options.seconds);
    let (mut library, mut http) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        library.push(direct(&limiter, options, time).await?);
        http.push(load.run(ZONE, options.keys, time).await?);
    }
    load.run(HOT_ZONE, 1, time).await?;
    stop.send(()).ok().context("the server ended by itself")?;
    serving.await??;

    let allowed = History::default().zone(HOT_ZONE).blocked(false).limit(10_000);
    let hot_allowed = i64::try_from(limiter.auditor().history(&allowed).await?.rows.len())?;
    let verified = limiter.auditor().verify(&Verify::default(), |_| {}).await?;
    let (library, http) = (median(library), median(http));
    Ok(Row {
        database: engine.to_string(),
        library,
        http,
        ratio: http.checks_per_s / library.checks_per_s,
        hot_allowed,
        hot_limit: HOT_RATE,
        verified: verified.rows,
        faults: verified.faults,
    })
}

/// As many callers in this process.
async fn direct(limiter: &Limiter, options: &Http, time: Duration) -> Result<Sample> {
    let began = Instant::now();
    let keys = options.keys;
    let callers = (0..options.callers).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut took = Histogram::<u64>::new(3)?;
            while began.elapsed() < time {
                let asked = Instant::now();
                limiter.check(Check::new(ZONE, fastrand::usize(1..=keys).to_string())).await?;
                took.record(u64::try_from(asked.elapsed().as_micros())?)?;
            }
            anyhow::Ok(took)
        })
    });
    let mut all = Histogram::<u64>::new(3)?;
    for caller in callers.collect::<Vec<_>>() {
        all.add(caller.await??)?;
    }
    Ok(Sample {
        checks_per_s: all.len() as f64 / began.elapsed().as_secs_f64(),
        p50_us: all.value_at_quantile(0.5) as f64,
        p99_us: all.value_at_quantile(0.99) as f64,
    })
}

struct Load {
    script: PathBuf,
    url: String,
    callers: usize,
}

impl Load {
    async fn run(&self, zone: &str, keys: usize, time: Duration) -> Result<Sample> {
        let output = Command::new("wrk")
            .args(["--threads", &self.callers.min(2).to_string(), "--connections", &self.callers.to_string()])
            .args(["--duration", &format!("{}s", time.as_secs().max(1)), "--timeout", "10s", "--script"])
            .arg(&self.script)
            .args([&self.url, "--", zone, &keys.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("wrk does not run")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "wrk: {text}{}", String::from_utf8_lossy(&output.stderr));
        let told = text.lines().find_map(|line| line.strip_prefix("told ")).context("wrk told nothing")?;
        let told = told.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [requests, us, p50_us, p99_us, failed] = told[..] else { anyhow::bail!("wrk told {told:?}") };
        ensure!(failed == 0.0, "{failed} requests were not answered with 200");
        Ok(Sample { checks_per_s: requests / us * 1e6, p50_us, p99_us })
    }
}

fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.checks_per_s.total_cmp(&b.checks_per_s));
    samples[samples.len() / 2]
}

impl Report {
    /// An error where a limit was not kept, or the ledger is not whole.
    pub fn judge(&self) -> Result<()> {
        for row in &self.rows {
            let Row { database, hot_allowed, hot_limit, faults, .. } = row;
            ensure!(hot_allowed == hot_limit, "{database}: a hot key got {hot_allowed} of {hot_limit}");
            ensure!(*faults == 0, "{database}: the audit found {faults} faults");
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, callers, keys, rounds, rows } = self;
        writeln!(f, "{}\n", machine.lines())?;
        writeln!(
            f,
            "{callers} callers, {keys} keys, the median of {rounds} rounds in turns\n\
            {:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>14}{:>12}",
            "", "library/s", "p99 µs", "HTTP/s", "p50 µs", "p99 µs", "ratio", "hot allowed", "rows, faults"
        )?;
        rows.iter().try_for_each(|row| {
            let (library, http) = (row.library, row.http);
            writeln!(
                f,
                "{:<12}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>8.2}{:>14}{:>12}",
                row.database,
                library.checks_per_s,
                library.p99_us,
                http.checks_per_s,
                http.p50_us,
                http.p99_us,
                row.ratio,
                format!("{} of {}", row.hot_allowed, row.hot_limit),
                format!("{}, {}", row.verified, row.faults)
            )
        })
    }
}
