//! The price of a check by the server, beside that by the library: the same database, in turns, over HTTP and over
//! gRPC. The load is made by programs that no one here wrote.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tallygate::audit::verify::Verify;
use tallygate::ledger::History;
use tallygate::schema::Migrator;
use tallygate::{Check, Limiter, Policy};
use tallygate_server::{Config, Envoy, Server};
use tokio::sync::oneshot;

use crate::database::{Engine, RATE, WINDOW, Wire, ZONE};
use crate::load::{Load, Sample, mapping};
use crate::machine::Machine;
use crate::options::{Family, Http};
use crate::server::{self, Place, Redis};

/// The rate of a hot key: small enough that it is reached in the shortest round.
const HOT_RATE: i64 = 100;
/// The number of keys that h2load is given, which are never exhausted.
const FEW_KEYS: usize = 4;
const FEW_RATE: i64 = 1_000_000;

// Each way has zones of its own, as one program on its buckets has: it remembers them, and no other changes them.
const HTTP_ZONE: &str = "http";
const FEW_ZONE: &str = "few";
const GRPC_ZONE: &str = "grpc";
const HOT_ZONES: [&str; 2] = ["hot-http", "hot-grpc"];

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    callers: usize,
    keys: usize,
    rounds: u32,
    rows: Vec<Row>,
    /// A script that counts in Redis and forgets.
    redis: Option<Sample>,
}

#[derive(Serialize)]
struct Row {
    database: String,
    /// Distinct keys by the library and over HTTP; the median of the rounds.
    http: Ratio,
    /// Few keys by the library and over gRPC.
    grpc: Ratio,
    /// Of all that was asked of a hot key over HTTP and over gRPC, how much was allowed.
    hot_allowed: [usize; 2],
    hot_limit: i64,
    /// Checks that were answered, rows that the audit read, and faults that it found.
    answered: u64,
    verified: u64,
    faults: u64,
}

#[derive(Serialize)]
struct Ratio {
    library: Sample,
    served: Sample,
    ratio: f64,
}

pub async fn run(options: &Http, place: &Place, machine: Machine) -> Result<Report> {
    let mut rows = Vec::new();
    for engine in [Engine::Sqlite, Engine::Postgres, Engine::MySql, Engine::MariaDb] {
        if options.has(engine.into()) {
            eprintln!("http: {engine}");
            rows.push(row(options, place, engine).await.with_context(|| engine.to_string())?);
        }
    }
    let redis = if options.has(Family::Redis) { Some(redis(options, place).await?) } else { None };
    Ok(Report { machine, callers: options.callers, keys: options.keys, rounds: options.rounds, rows, redis })
}

async fn row(options: &Http, place: &Place, engine: Engine) -> Result<Row> {
    let load = load(options, place, &engine.to_string())?;
    let (url, _server) = match engine {
        Engine::Sqlite => (format!("sqlite:{}/http.db", load.directory.display()), None),
        _ => {
            let server = server::start(engine, place).await?;
            Wire::open(engine, &server.url).await?.execute("create database http").await?;
            (format!("{}/http", server.url), Some(server))
        }
    };
    Migrator::new(&url)?.apply().await?;
    let limiter = Limiter::connect(&url).await?;
    let set = async |zone, policy| limiter.operator().set_zone(zone, &policy, None, "comparison").await;
    for zone in [ZONE, HTTP_ZONE] {
        set(zone, Policy::sliding_log(RATE, WINDOW)?).await?;
    }
    for zone in [FEW_ZONE, GRPC_ZONE] {
        set(zone, Policy::token_bucket(FEW_RATE, WINDOW, None)?).await?;
    }
    for zone in HOT_ZONES {
        set(zone, Policy::sliding_log(HOT_RATE, WINDOW)?).await?;
    }
    let (served, stop, serving) = serve(&load, url).await?;

    let [mut library, mut http, mut few, mut grpc] = [const { Vec::new() }; 4];
    for _ in 0..options.rounds {
        library.push(direct(&limiter, &load, ZONE, options.keys).await?);
        http.push(load.wrk(&served.http, HTTP_ZONE, options.keys).await?);
        few.push(direct(&limiter, &load, FEW_ZONE, FEW_KEYS).await?);
        grpc.push(load.h2load(&served.grpc, GRPC_ZONE, FEW_KEYS).await?);
    }
    let [http_zone, grpc_zone] = HOT_ZONES;
    let hot = [load.wrk(&served.http, http_zone, 1).await?, load.h2load(&served.grpc, grpc_zone, 1).await?];
    stop.send(()).ok().context("the server ended by itself")?;
    serving.await??;

    let all = [&library[..], &http, &few, &grpc, &hot];
    let answered = all.into_iter().flatten().map(|sample| sample.answered).sum();
    let mut hot_allowed = [0; 2];
    for (allowed, zone) in hot_allowed.iter_mut().zip(HOT_ZONES) {
        let asked = History::default().zone(zone).blocked(false).limit(10_000);
        *allowed = limiter.auditor().history(&asked).await?.rows.len();
    }
    let verified = limiter.auditor().verify(&Verify::default(), |_| {}).await?;
    Ok(Row {
        database: engine.to_string(),
        http: Ratio::of(library, http),
        grpc: Ratio::of(few, grpc),
        hot_allowed,
        hot_limit: HOT_RATE,
        answered,
        verified: verified.rows,
        faults: verified.faults,
    })
}

struct Served {
    http: String,
    grpc: String,
}

type Serving = tokio::task::JoinHandle<Result<(), tallygate_server::Failure>>;

async fn serve(load: &Load, url: String) -> Result<(Served, oneshot::Sender<()>, Serving)> {
    let file = load.directory.join("envoy.toml");
    mapping(&file, &[GRPC_ZONE, HOT_ZONES[1]])?;
    let mut config = Config::default();
    config.listen = "127.0.0.1:0".to_owned();
    config.envoy = Some(Envoy { listen: "127.0.0.1:0".to_owned(), mapping: file });
    config.database.app = url;
    config.stopping.notice_s = 0;
    let server = Server::bind(config).await?;
    let grpc = server.envoy_address().context("gRPC is not offered")?;
    let served = Served { http: server.address(), grpc };
    let (stop, stopped) = oneshot::channel();
    Ok((served, stop, tokio::spawn(server.run(async { stopped.await.unwrap_or_default() }))))
}

/// The same number of callers in this process.
async fn direct(limiter: &Limiter, load: &Load, zone: &'static str, keys: usize) -> Result<Sample> {
    let (began, time) = (Instant::now(), load.time);
    let callers = (0..load.connections).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut took = Histogram::<u64>::new(3)?;
            while began.elapsed() < time {
                let asked = Instant::now();
                limiter.check(Check::new(zone, fastrand::usize(1..=keys).to_string())).await?;
                took.record(u64::try_from(asked.elapsed().as_micros())?)?;
            }
            anyhow::Ok(took)
        })
    });
    let mut all = Histogram::<u64>::new(3)?;
    for caller in callers.collect::<Vec<_>>() {
        all.add(caller.await??)?;
    }
    Ok(Sample::of(&all, began.elapsed()))
}

async fn redis(options: &Http, place: &Place) -> Result<Sample> {
    let load = load(options, place, "redis")?;
    let server = Redis::start("everysec", place).await?;
    let mut samples = Vec::new();
    for _ in 0..options.rounds {
        samples.push(load.redis_benchmark(server.port, options.keys).await?);
    }
    server.stop().await;
    Ok(median(samples))
}

fn load(options: &Http, place: &Place, name: &str) -> Result<Load> {
    let directory = place.directory(&format!("load-{name}"))?;
    Ok(Load { directory, connections: options.callers, time: Duration::from_secs_f64(options.seconds) })
}

fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.checks_per_s.total_cmp(&b.checks_per_s));
    samples[samples.len() / 2]
}

impl Ratio {
    fn of(library: Vec<Sample>, served: Vec<Sample>) -> Self {
        let (library, served) = (median(library), median(served));
        Self { library, served, ratio: served.checks_per_s / library.checks_per_s }
    }
}

impl Report {
    /// An error where a limit was not kept, an answer is no row, or the ledger is not whole.
    pub fn judge(&self) -> Result<()> {
        for row in &self.rows {
            let Row { database, hot_allowed, hot_limit, answered, verified, faults, .. } = row;
            let exact = hot_allowed.iter().all(|allowed| i64::try_from(*allowed).ok() == Some(*hot_limit));
            ensure!(exact, "{database}: hot keys got {hot_allowed:?} of {hot_limit}");
            ensure!(verified >= answered, "{database}: of {answered} answers {verified} are rows");
            ensure!(*faults == 0, "{database}: the audit found {faults} faults");
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, callers, keys, rounds, rows, redis } = self;
        writeln!(
            f,
            "{}\n\n{callers} callers or connections, the median of {rounds} rounds in turns\n\
            HTTP: wrk, {keys} keys; gRPC: h2load, {FEW_KEYS} keys\n\n\
            {:<12}{:<6}{:>11}{:>9}{:>9}{:>11}{:>9}{:>9}{:>7}",
            machine.lines(),
            "",
            "",
            "library/s",
            "p50 µs",
            "p99 µs",
            "served/s",
            "p50 µs",
            "p99 µs",
            "ratio"
        )?;
        for row in rows {
            for (way, Ratio { library, served, ratio }) in [("HTTP", &row.http), ("gRPC", &row.grpc)] {
                write!(f, "{:<12}{way:<6}", row.database)?;
                for Sample { checks_per_s, p50_us, p99_us, .. } in [library, served] {
                    write!(f, "{checks_per_s:>11.0}{p50_us:>9.0}{p99_us:>9.0}")?;
                }
                writeln!(f, "{ratio:>7.2}")?;
            }
        }
        if let Some(Sample { checks_per_s, p50_us, p99_us, .. }) = redis {
            let counting = "Redis by redis-benchmark, a counter and its end";
            writeln!(f, "{counting:<47}{checks_per_s:>11.0}{p50_us:>9.0}{p99_us:>9.0}")?;
        }
        rows.iter().try_for_each(|row| {
            let Row { database, hot_allowed: [http, grpc], hot_limit, answered, verified, faults, .. } = row;
            writeln!(
                f,
                "{database}: hot keys got {http} and {grpc} of {hot_limit}; {answered} answers, {verified} rows, {faults} faults"
            )
        })
    }
}
