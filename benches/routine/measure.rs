//! One column of a table: some clients, all busy for some time in each of the ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Way};
use crate::processor::Processor;
use crate::site::{BUCKETS, Site, bucket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Distinct,
    Hot,
    /// Each of a bucket that is not there.
    New,
}

pub struct Column {
    pub keys: Keys,
    pub clients: usize,
    pub rates: Vec<(Way, Rate)>,
}

/// The measurement.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_s: f64,
    pub median: Duration,
    /// Processor time that the server's sessions spent on one, where the server tells it.
    pub server_us: Option<f64>,
}

/// The ways take turns this often, so that what else happens on the machine meets them alike.
pub const TURNS: u32 = 5;

/// Decisions of each client and way before the time starts: statements are prepared, plans are made.
pub const WARM_UP: usize = 10;

/// The rate of each way is the median of its turns.
pub async fn column(site: &Site, keys: Keys, clients: usize, time: Duration) -> Column {
    let callers = Callers::new(keys, clients);
    let ways = Way::ALL.into_iter().filter(|way| way.exists_on(site.engine, keys)).collect::<Vec<_>>();
    let mut team = Vec::new();
    for _ in 0..clients {
        team.push(Client::connect(site).await);
    }
    for &way in &ways {
        (team, _) = callers.run(team, way, |done, _| done >= WARM_UP).await;
    }
    let mut turns = vec![Vec::new(); ways.len()];
    let mut took = vec![Vec::new(); ways.len()];
    let mut spent = vec![Vec::new(); ways.len()];
    let mut clock = Processor::of(site).await;
    for _ in 0..TURNS {
        for (index, &way) in ways.iter().enumerate() {
            let before_us = clock.spent_us().await;
            let begin = Instant::now();
            let this;
            (team, this) = callers.run(team, way, move |_, elapsed| elapsed >= time / TURNS).await;
            turns[index].push(this.len() as f64 / begin.elapsed().as_secs_f64());
            let spent_us = clock.spent_us().await.zip(before_us).map(|(after, before)| after - before);
            spent[index].extend(spent_us.map(|us| us / this.len() as f64));
            took[index].extend(this);
        }
    }
    let mut rates = Vec::new();
    for (((way, turns), took), spent) in ways.into_iter().zip(turns).zip(took).zip(spent) {
        rates.push((
            way,
            Rate {
                per_s: median(turns, f64::total_cmp),
                median: median(took, Ord::cmp),
                server_us: (!spent.is_empty()).then(|| median(spent, f64::total_cmp)),
            },
        ));
    }
    Column { keys, clients, rates }
}

pub struct Callers {
    keys: Keys,
    number: usize,
    counter: Arc<AtomicI64>,
}

impl Callers {
    pub fn new(keys: Keys, number: usize) -> Self {
        // Starts at the clock: no two rows of a bucket, of this column or another, get the same number.
        let counter = Arc::new(AtomicI64::new(chrono::Utc::now().timestamp_micros()));
        Self { keys, number, counter }
    }

    /// Every client decides until `enough` of its number of decisions and its time; returns how long each
    /// decision took.
    pub async fn run(
        &self,
        team: Vec<Client>,
        way: Way,
        enough: impl Fn(usize, Duration) -> bool + Copy + Send + 'static,
    ) -> (Vec<Client>, Vec<Duration>) {
        let tasks = team.into_iter().map(|mut client| {
            let (keys, number, counter) = (self.keys, self.number, Arc::clone(&self.counter));
            tokio::spawn(async move {
                let begin = Instant::now();
                let mut took = Vec::new();
                while !enough(took.len(), begin.elapsed()) {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    let key = match keys {
                        Keys::Distinct => bucket(usize::try_from(n).expect("a number") % BUCKETS),
                        Keys::Hot => bucket(BUCKETS + number),
                        Keys::New => format!("new:{n}"),
                    };
                    let before = Instant::now();
                    client.decide(way, key, n).await;
                    took.push(before.elapsed());
                }
                (client, took)
            })
        });
        let mut team = Vec::new();
        let mut all = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            let (client, took) = task.await.expect("a client that ends well");
            team.push(client);
            all.extend(took);
        }
        (team, all)
    }
}

pub fn median<T: Copy>(mut of: Vec<T>, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    of.sort_unstable_by(order);
    of[of.len() / 2]
}
