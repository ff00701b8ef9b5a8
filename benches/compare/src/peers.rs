//! Those who do not record: Redis, and limiters in memory.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use limitador::limit::{Limit, Namespace};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};

use crate::database::{RATE, WINDOW};
use crate::measure::{Answer, Caller, Contestant};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    SlidingWindow,
    TokenBucket,
}

/// A script in Redis, over one connection that all callers share, or over one for each.
pub struct InRedis {
    algorithm: Algorithm,
    connections: Vec<MultiplexedConnection>,
    callers: usize,
    script: Arc<Script>,
    charges: Arc<AtomicU64>,
}

impl InRedis {
    pub async fn connect(
        client: &Client,
        algorithm: Algorithm,
        connections: usize,
        callers: usize,
    ) -> Result<Self> {
        let script = match algorithm {
            Algorithm::SlidingWindow => include_str!("../sql/redis/sliding_window.lua"),
            Algorithm::TokenBucket => include_str!("../sql/redis/token_bucket.lua"),
        };
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let mut all = Vec::new();
        for _ in 0..connections {
            all.push(client.get_multiplexed_async_connection_with_config(&patient).await?);
        }
        let script = Arc::new(Script::new(script));
        Ok(Self { algorithm, connections: all, callers, script, charges: Arc::default() })
    }
}

impl Contestant for InRedis {
    type Caller = RedisCaller;

    fn callers(&self) -> usize {
        self.callers
    }

    fn caller(&self, number: usize) -> RedisCaller {
        RedisCaller {
            algorithm: self.algorithm,
            connection: self.connections[number % self.connections.len()].clone(),
            script: Arc::clone(&self.script),
            charges: Arc::clone(&self.charges),
            // Told apart from those of other contestants in the same server.
            client: uuid::Uuid::now_v7().as_u64_pair().1,
        }
    }
}

pub struct RedisCaller {
    algorithm: Algorithm,
    connection: MultiplexedConnection,
    script: Arc<Script>,
    charges: Arc<AtomicU64>,
    client: u64,
}

impl Caller for RedisCaller {
    async fn call(&mut self, keys: &[&'static str]) -> Result<Answer> {
        let prefix = match self.algorithm {
            Algorithm::SlidingWindow => "window",
            Algorithm::TokenBucket => "tokens",
        };
        let mut invocation = self.script.key(format!("{prefix}:{}", keys[0]));
        invocation.arg(RATE).arg(WINDOW.as_micros() as u64);
        if self.algorithm == Algorithm::SlidingWindow {
            invocation.arg(format!("{:x}-{:x}", self.client, self.charges.fetch_add(1, Ordering::Relaxed)));
        }
        let (allowed, _, _): (i64, i64, i64) = invocation.invoke_async(&mut self.connection).await?;
        Ok(Answer::one(allowed == 1))
    }
}

/// governor's keyed limiter: a number per key in this process.
pub struct Governor {
    limiter: Arc<Keyed>,
    callers: usize,
}

type Keyed = RateLimiter<&'static str, DashMapStateStore<&'static str>, DefaultClock>;

impl Governor {
    pub fn new(callers: usize) -> Result<Self> {
        let rate = NonZeroU32::new(u32::try_from(RATE)?).context("a rate")?;
        let quota = Quota::with_period(WINDOW / rate.get()).context("a period")?.allow_burst(rate);
        Ok(Self { limiter: Arc::new(RateLimiter::dashmap(quota)), callers })
    }
}

impl Contestant for Governor {
    type Caller = GovernorCaller;

    fn callers(&self) -> usize {
        self.callers
    }

    fn caller(&self, _: usize) -> GovernorCaller {
        GovernorCaller(Arc::clone(&self.limiter))
    }
}

pub struct GovernorCaller(Arc<Keyed>);

impl Caller for GovernorCaller {
    async fn call(&mut self, keys: &[&'static str]) -> Result<Answer> {
        Ok(Answer::one(self.0.check_key(&keys[0]).is_ok()))
    }
}

/// limitador with its storage in memory: a counter per key and fixed window in this process.
pub struct Limitador {
    limiter: Arc<limitador::RateLimiter>,
    callers: usize,
}

const NAMESPACE: &str = "login";

impl Limitador {
    pub fn new(callers: usize, keys: usize) -> Result<Self> {
        // Room for every key, so that none is forgotten.
        let limiter = limitador::RateLimiter::new(2 * keys as u64 + 1_000);
        let key = "key".try_into().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        limiter.add_limit(Limit::new(NAMESPACE, RATE as u64, WINDOW.as_secs(), vec![], vec![key]));
        Ok(Self { limiter: Arc::new(limiter), callers })
    }
}

impl Contestant for Limitador {
    type Caller = LimitadorCaller;

    fn callers(&self) -> usize {
        self.callers
    }

    fn caller(&self, _: usize) -> LimitadorCaller {
        LimitadorCaller { limiter: Arc::clone(&self.limiter), namespace: NAMESPACE.into() }
    }
}

pub struct LimitadorCaller {
    limiter: Arc<limitador::RateLimiter>,
    namespace: Namespace,
}

impl Caller for LimitadorCaller {
    async fn call(&mut self, keys: &[&'static str]) -> Result<Answer> {
        let context = HashMap::from([("key".to_owned(), keys[0].to_owned())]).into();
        let result = self
            .limiter
            .check_rate_limited_and_update(&self.namespace, &context, 1)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(Answer::one(!result.limited))
    }
}
