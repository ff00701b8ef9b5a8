//! The price of the chain of hashes: the same checks on a database whose routines make no hashes, in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use tallygate::{BatchConfig, Config};

use crate::client::{Client, Way};
use crate::measure::{Callers, Keys, TURNS, WARM_UP, median};
use crate::server::Engine;
use crate::site::Site;

const CLIENTS: usize = 64;

/// Prints checks a second with the chain and without, and their ratio.
pub async fn print(engine: Engine, time: Duration) {
    let together = Config { connections: 64, batch: Some(BatchConfig::default()), ..Config::default() };
    let with = Site::make(engine, "with", together).await;
    let without = Site::make(engine, "without", together).await;
    for (routine, text) in without_hashes(engine) {
        assert!(!text.contains("sha2"), "{routine} makes hashes still");
        without.execute(&text).await;
    }
    println!("{engine}: {}; {CLIENTS} clients", with.settings().await);
    for (way, told) in [(Way::Routine, "one call each"), (Way::Limiter, "in batches")] {
        for keys in [Keys::Distinct, Keys::Hot] {
            let callers = Callers::new(keys, CLIENTS);
            let mut teams = [team(&with).await, team(&without).await];
            let mut rates = [Vec::new(), Vec::new()];
            for turn in 0..=TURNS {
                for (team, rates) in teams.iter_mut().zip(&mut rates) {
                    let begin = Instant::now();
                    let enough = move |done, elapsed| {
                        if turn == 0 { done >= WARM_UP } else { elapsed >= time / TURNS }
                    };
                    let (again, took) = callers.run(std::mem::take(team), way, enough).await;
                    *team = again;
                    if turn > 0 {
                        rates.push(took.len() as f64 / begin.elapsed().as_secs_f64());
                    }
                }
            }
            let [with, without] = rates.map(|rates| median(rates, f64::total_cmp));
            println!(
                "  {told:<14} {:<14} {with:>8.0}/s with, {without:>8.0}/s without: {:.2} ×",
                format!("{keys:?} keys"),
                with / without
            );
        }
    }
    with.remove().await;
    without.remove().await;
}

async fn team(site: &Site) -> Vec<Client> {
    let mut team = Vec::new();
    for _ in 0..CLIENTS {
        team.push(Client::connect(site).await);
    }
    team
}

/// The texts of the routines on the way of an ordinary check, with something constant in place of each hash.
fn without_hashes(engine: Engine) -> Vec<(&'static str, String)> {
    let folder = if engine == Engine::Postgres { "sql/postgres" } else { "sql/mysql" };
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name).with_extension("sql");
        let text = std::fs::read_to_string(&path).expect("a routine");
        text.replace("create function", "create or replace function")
    };
    let text = read("zone_decide");
    let text = match engine {
        Engine::Postgres => cut(&text, "sha256(", "));", "zone_txn_bytes", "row_hash;"),
        _ => cut(&text, "call zone_txn_hash(", ");\n", "v_kind", ""),
    };
    vec![("zone_decide", text)]
}

/// A text with the first part from `from` to `to` that holds `holds` replaced.
fn cut(text: &str, from: &str, to: &str, holds: &str, by: &str) -> String {
    let parts = text.match_indices(from).filter_map(|(start, _)| {
        let end = start + text[start..].find(to)? + to.len();
        text[start..end].contains(holds).then_some(start..end)
    });
    let part = parts.last().expect("a part that makes a hash");
    format!("{}{by}{}", &text[..part.start], &text[part.end..])
}
