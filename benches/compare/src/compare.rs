//! The contestants, and the rounds.

use std::time::Duration;

use anyhow::{Context, Result};
use tallygate::{Config, Limiter};
use tokio::time::timeout;

use crate::calls::Calls;
use crate::database::{Engine, Site};
use crate::ledger::{Rival, Tallygate, Way};
use crate::machine::{self, Machine};
use crate::measure::{Contest, Keys, Sample, Times, names};
use crate::options::{Compare, Family};
use crate::peers::{Algorithm, Governor, InRedis, Limitador};
use crate::results::{Group, Results, Role, Row, Terms, Title};
use crate::server::{Place, Redis};

/// Of the measured time.
const WARM_UP: f64 = 0.2;

/// Those who do without batches.
const SINGLE_CALLERS: usize = 64;

/// Those who decide beside each other.
const PROCESSES: usize = 4;

/// The longest that it may take until a database is ready.
const PREPARATION: Duration = Duration::from_secs(600);

struct Entry {
    title: Title,
    contest: Box<dyn Contest>,
}

impl Entry {
    fn new(
        group: Group,
        role: Role,
        family: impl ToString,
        name: impl ToString,
        contest: impl Contest + 'static,
    ) -> Self {
        let title = Title { group, role, family: family.to_string(), name: name.to_string(), client: None };
        Self { title, contest: Box::new(contest) }
    }

    fn called(mut self, client: &str) -> Self {
        self.title.client = Some(client.to_owned());
        self
    }
}

pub async fn run(options: &Compare, place: &Place, machine: Machine) -> Result<Results> {
    let names = names(options.keys);
    let calls = Calls::listen()?;
    let mut entries = Vec::new();
    let mut settings = Vec::new();
    for (family, engine) in [
        (Family::Postgres, Engine::Postgres),
        (Family::Mysql, Engine::MySql),
        (Family::Mariadb, Engine::MariaDb),
        (Family::Sqlite, Engine::Sqlite),
    ] {
        if options.has(family) {
            eprintln!("compare: starting {engine}");
            let site = timeout(PREPARATION, Site::make(engine, place, names)).await;
            let site = site.with_context(|| format!("{engine} is not ready after {PREPARATION:?}"))??;
            settings.push(site.settings.clone());
            entries.extend(ledgers(&site, options).await?);
        }
    }
    // Alive until the rounds are over.
    let mut servers = Vec::new();
    if options.has(Family::Redis) {
        eprintln!("compare: starting Redis");
        for appendfsync in ["always", "everysec"] {
            let server = Redis::start(appendfsync, place).await?;
            entries.extend(scripts(&server, appendfsync, options.callers).await?);
            servers.push(server);
        }
        settings.push(format!(
            "Redis {}, appendonly=yes, save=''; crate redis {}",
            servers[0].version().await?,
            version("redis")
        ));
    }
    if options.has(Family::Memory) {
        settings.push(format!(
            "governor {}, limitador {}, in memory",
            version("governor"),
            version("limitador")
        ));
        let peer = |name: &str| (Group::Memory, Role::Peer, name.to_owned());
        let (group, role, family) = peer("governor");
        entries.push(Entry::new(group, role, family, "keyed GCRA", Governor::new(options.callers)?));
        let (group, role, family) = peer("limitador");
        entries.push(Entry::new(
            group,
            role,
            family,
            "fixed windows",
            Limitador::new(options.callers, options.keys)?,
        ));
    }
    machine::settle(&place.scratch);
    let rows = rounds(&entries, options, names, &calls).await;
    for server in servers {
        server.stop().await;
    }
    let Compare { seconds, rounds, callers, keys, batch, .. } = *options;
    let terms = Terms { seconds, rounds, callers, keys, batch };
    Ok(Results { machine, settings, terms, rows }.relate())
}

async fn ledgers(site: &Site, options: &Compare) -> Result<Vec<Entry>> {
    let &Compare { callers, batch, .. } = options;
    let entry = |role, name: &str, contest| Entry::new(Group::Recorded, role, site.engine, name, contest);
    let rival = |way| Rival::of(site, way, callers, batch);
    let tallygate = Tallygate { limiters: vec![site.limiter.clone()], callers };
    let mut limiters = Vec::new();
    for _ in 0..PROCESSES {
        limiters.push(Limiter::connect_with(&site.url, Config::default()).await?);
    }
    let spread = Tallygate { limiters, callers };
    let single = Config { batch: None, ..Config::default() };
    let single = Tallygate {
        limiters: vec![Limiter::connect_with(&site.url, single).await?],
        callers: SINGLE_CALLERS,
    };
    let name = format!("Tallygate without batching, {SINGLE_CALLERS} callers");
    Ok(vec![
        Entry::new(Group::Recorded, Role::Tallygate, site.engine, "Tallygate", tallygate),
        Entry::new(Group::Recorded, Role::Spread, site.engine, format!("{PROCESSES} of Tallygate"), spread),
        Entry::new(Group::Recorded, Role::Single, site.engine, name, single),
        entry(Role::Seed, "lock, count, insert", rival(Way::Seed)),
        entry(Role::Bare, "bare two statements, nothing decided", rival(Way::Bare)),
        entry(Role::Floor, &format!("bare, in batches of {batch}, nothing decided"), rival(Way::BareMany)),
    ])
}

async fn scripts(server: &Redis, appendfsync: &str, callers: usize) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let durable = appendfsync == "always";
    let group = if durable { Group::Durable } else { Group::NotDurable };
    for algorithm in [Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let (role, title) = match algorithm {
            Algorithm::SlidingWindow if durable => (Role::Reference, "sliding window"),
            Algorithm::SlidingWindow => (Role::Peer, "sliding window"),
            Algorithm::TokenBucket => (Role::Peer, "token bucket"),
        };
        let name = format!("{title}, fsync {appendfsync}");
        for (connections, client) in [(1, "one connection"), (callers, "one each")] {
            let contest = InRedis::connect(&server.client, algorithm, connections, callers).await?;
            entries.push(Entry::new(group, role, "Redis", &name, contest).called(client));
        }
    }
    Ok(entries)
}

/// Every contestant in every round, so that what else happens on the machine meets them alike.
async fn rounds(entries: &[Entry], options: &Compare, names: &'static [String], calls: &Calls) -> Vec<Row> {
    let times = Times {
        warm_up: Duration::from_secs_f64(options.seconds * WARM_UP),
        measured: Duration::from_secs_f64(options.seconds),
    };
    let cells = || {
        [Keys::Distinct, Keys::Hot]
            .into_iter()
            .flat_map(|keys| entries.iter().map(move |entry| (keys, entry)))
    };
    let mut found: Vec<(Vec<Sample>, Option<String>)> = cells().map(|_| (Vec::new(), None)).collect();
    let count = found.len();
    eprintln!(
        "compare: {} rounds of {count} measurements of {} s, some {:.0} minutes",
        options.rounds,
        options.seconds,
        f64::from(options.rounds) * count as f64 * options.seconds * (1.0 + WARM_UP) / 60.0
    );
    for round in 0..options.rounds as usize {
        let mut order = cells().enumerate().collect::<Vec<_>>();
        // Another neighbour each time: what one leaves to do in the background is not always met by the same one.
        fastrand::shuffle(&mut order);
        for (done, (cell, (keys, entry))) in order.into_iter().enumerate() {
            calls.take_mean();
            let mut sample = entry.contest.round(names, keys, times).await;
            if let Ok(sample) = &mut sample {
                sample.checks_per_call = calls.take_mean();
            }
            let place = format!("round {} of {}, {:>3} of {count}", round + 1, options.rounds, done + 1);
            match sample {
                Ok(sample) => {
                    eprintln!(
                        "{place}  {:<54} {keys:<8} {:>9.0}/s",
                        entry.title.to_string(),
                        sample.decisions_per_s
                    );
                    found[cell].0.push(sample);
                }
                Err(error) => {
                    eprintln!("{place}  {:<54} {keys:<8} {error:#}", entry.title.to_string());
                    found[cell].1 = Some(format!("{error:#}"));
                }
            }
        }
    }
    let rows = cells().zip(found);
    rows.map(|((keys, entry), (samples, failed))| Row::new(entry.title.clone(), keys, samples, failed))
        .collect()
}

/// The version of a crate that this program was built with.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next()).unwrap_or("?")
}
