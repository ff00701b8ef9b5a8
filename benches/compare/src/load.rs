//! Load made by programs that no one here wrote: wrk over HTTP, h2load over gRPC, redis-benchmark. They take their share of the
//! same cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use prost::Message;
use serde::Serialize;
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tokio::process::Command;

use crate::database::WINDOW;

/// The domain of Envoy's descriptors, which have one entry, named after its zone.
pub const DOMAIN: &str = "compare";

/// Keys at random, and a line at the end that is read here.
const WRK: &str = r#"
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

/// A counter and its end, as limiters on Redis have them.
const FIXED_WINDOW: &str =
    "local n = redis.call('incrby', KEYS[1], 1) redis.call('expire', KEYS[1], ARGV[1]) return n";

/// One way of asking, for a while.
#[derive(Clone, Copy, Serialize)]
pub struct Sample {
    /// Checks that were answered.
    #[serde(skip)]
    pub answered: u64,
    pub checks_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Sample {
    pub fn of(took: &Histogram<u64>, elapsed: Duration) -> Self {
        Self {
            answered: took.len(),
            checks_per_s: took.len() as f64 / elapsed.as_secs_f64(),
            p50_us: took.value_at_quantile(0.5) as f64,
            p99_us: took.value_at_quantile(0.99) as f64,
        }
    }
}

/// Many connections at once, for some time.
pub struct Load {
    pub directory: PathBuf,
    pub connections: usize,
    pub time: Duration,
}

impl Load {
    /// Checks of keys at random by `POST /v1/check`.
    pub async fn wrk(&self, address: &str, zone: &str, keys: usize) -> Result<Sample> {
        let script = self.directory.join("wrk.lua");
        fs::write(&script, WRK)?;
        let text = Command::new("wrk")
            .args(["--threads", &self.connections.min(2).to_string()])
            .args(["--connections", &self.connections.to_string(), "--duration", &self.seconds()])
            .args(["--timeout", "10s", "--script"])
            .arg(&script)
            .args([&format!("{address}/v1/check"), "--", zone, &keys.to_string()])
            .told()
            .await?;
        let told = text.lines().find_map(|line| line.strip_prefix("told ")).context("wrk told nothing")?;
        let told = told.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [requests, us, p50_us, p99_us, failed] = told[..] else { bail!("wrk told {told:?}") };
        ensure!(failed == 0.0, "{failed} requests were not answered with 200");
        Ok(Sample { answered: requests as u64, checks_per_s: requests / us * 1e6, p50_us, p99_us })
    }

    /// Checks by Envoy's call. Each h2load sends one message again and again, so there is one for each key.
    pub async fn h2load(&self, address: &str, zone: &str, keys: usize) -> Result<Sample> {
        let each = self.connections.div_ceil(keys).to_string();
        let url = format!("{address}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        let ask = async |key: usize| {
            let [message, log] = ["message", "log"].map(|name| self.directory.join(format!("{name}-{key}")));
            fs::write(&message, framed(zone, key))?;
            // It adds to a file that is there.
            fs::write(&log, "")?;
            let text = Command::new("h2load")
                .args(["--clients", &each, "--duration", &self.seconds(), "--header", "te: trailers"])
                .args(["--header", "content-type: application/grpc", "--data"])
                .arg(&message)
                .arg(format!("--log-file={}", log.display()))
                .arg(&url)
                .told()
                .await?;
            ensure!(text.contains(" 0 failed, 0 errored, 0 timeout"), "h2load: {text}");
            anyhow::Ok(log)
        };
        let logs = futures_util::future::try_join_all((1..=keys).map(ask)).await?;
        let mut took = Histogram::<u64>::new(3)?;
        let (mut first, mut last) = (u64::MAX, 0);
        for log in logs {
            for line in fs::read_to_string(&log)?.lines() {
                let numbers = line.split('\t').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
                let [began, 200, us] = numbers[..] else { bail!("h2load logged {line:?}") };
                took.record(us)?;
                (first, last) = (first.min(began), last.max(began + us));
            }
        }
        ensure!(first < last, "h2load logged nothing");
        Ok(Sample::of(&took, Duration::from_micros(last - first)))
    }

    /// Counts of a fixed window.
    pub async fn redis_benchmark(&self, port: u16, keys: usize) -> Result<Sample> {
        let requests = 20_000 * self.time.as_secs().max(1);
        let text = Command::new("redis-benchmark")
            .args(["-p", &port.to_string(), "-c", &self.connections.to_string(), "-r", &keys.to_string()])
            .args(["-n", &requests.to_string(), "--precision", "3", "--csv"])
            .args(["eval", FIXED_WINDOW, "1", "key:__rand_int__", &WINDOW.as_secs().to_string()])
            .told()
            .await?;
        let told = text.lines().last().context("redis-benchmark told nothing")?;
        let told = told.rsplit(',').map(|field| field.trim_matches('"').parse::<f64>());
        let told = told.take(7).collect::<Result<Vec<_>, _>>()?;
        let [_, p99_ms, _, p50_ms, _, _, checks_per_s] = told[..] else {
            bail!("redis-benchmark told {text:?}")
        };
        Ok(Sample { answered: requests, checks_per_s, p50_us: p50_ms * 1e3, p99_us: p99_ms * 1e3 })
    }

    fn seconds(&self) -> String {
        format!("{}s", self.time.as_secs().max(1))
    }
}

/// A message as gRPC sends it: not compressed, its length, and itself.
fn framed(zone: &str, key: usize) -> Vec<u8> {
    let entry = Entry { key: zone.to_owned(), value: key.to_string() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let message =
        RateLimitRequest { domain: DOMAIN.to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
    let message = message.encode_to_vec();
    [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat()
}

/// The mapping by which each of these zones is an entry of its name.
pub fn mapping(path: &Path, zones: &[&str]) -> Result<()> {
    let limits = zones
        .iter()
        .map(|zone| format!("[[limit]]\ndomain = \"{DOMAIN}\"\nentries = [\"{zone}\"]\nzone = \"{zone}\"\n"));
    Ok(fs::write(path, limits.collect::<String>())?)
}

trait Told {
    async fn told(&mut self) -> Result<String>;
}

impl Told for Command {
    /// Its output, where it ends well; it ends with this program.
    async fn told(&mut self) -> Result<String> {
        let name = self.as_std().get_program().to_string_lossy().into_owned();
        let output = self.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.with_context(|| format!("{name} does not run"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
        Ok(text)
    }
}
