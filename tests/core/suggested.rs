//! The policies that are suggested are those that a naive search finds: each event decided by definition, each policy
//! compared with each.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chrono::DateTime;
use tallygate::Policy;
use tallygate::backtest::{Backtest, Grid, Outcomes, front};

use crate::book::ask;
use crate::naive::Naive;

struct Attempt {
    at_us: i64,
    key: String,
    legitimate: bool,
}

fn suggested(policies: &[Policy], attempts: &[Attempt]) -> (Vec<Outcomes>, Vec<usize>) {
    let judged = |policy: &Policy| {
        let mut test = Backtest::new(*policy).unwrap();
        let mut outcomes = Outcomes::default();
        for Attempt { at_us, key, legitimate } in attempts {
            let outcome = test.check(key, &ask(1), *at_us).unwrap();
            outcomes.add(*legitimate, !outcome.reason.allows());
        }
        outcomes
    };
    let found: Vec<Outcomes> = policies.iter().map(judged).collect();
    let places = front(&found);
    (found, places)
}

/// Of each policy how many legitimate attempts it hits, and how many attacks it stops.
fn by_definition(policies: &[Policy], attempts: &[Attempt]) -> Vec<(u64, u64)> {
    let judged = |policy: &Policy| {
        let mut buckets: HashMap<&str, Naive> = HashMap::new();
        let (mut hit, mut stopped) = (0, 0);
        for (seq, Attempt { at_us, key, legitimate }) in (1..).zip(attempts) {
            let naive = buckets.entry(key).or_insert_with(|| Naive::new(*policy));
            if !naive.check(&ask(1), *at_us, seq).reason.allows() {
                *(if *legitimate { &mut hit } else { &mut stopped }) += 1;
            }
        }
        (hit, stopped)
    };
    policies.iter().map(judged).collect()
}

#[track_caller]
fn agree(attempts: &[Attempt]) -> Vec<(u64, u64)> {
    let grid = Grid {
        rates: vec![1, 2, 5, 10, 20],
        windows: [60, 600, 3_600].map(Duration::from_secs).to_vec(),
        ..Grid::default()
    };
    let policies = grid.policies().unwrap();
    let (found, places) = suggested(&policies, attempts);
    let naive = by_definition(&policies, attempts);
    let told = found.iter().map(|one| (one.legitimate_hit, one.attacks_stopped));
    assert_eq!(told.collect::<Vec<_>>(), naive);
    let is_better = |a: (u64, u64), b: (u64, u64)| a != b && a.0 <= b.0 && a.1 >= b.1;
    let best = (0..naive.len()).filter(|&n| !naive.iter().any(|&other| is_better(other, naive[n])));
    assert_eq!(places.iter().copied().collect::<BTreeSet<_>>(), best.collect());
    let mut points: Vec<_> = places.into_iter().map(|place| naive[place]).collect();
    assert!(points.is_sorted());
    points.dedup();
    points
}

#[test]
fn of_real_logins_the_front_is_that_of_a_naive_search() {
    for key in [1, 2] {
        let lines = include_str!("../data/ssh_logins.csv").lines().skip(1);
        let attempts: Vec<Attempt> = lines
            .map(|line| {
                let columns: Vec<&str> = line.split(',').collect();
                let at_us = DateTime::parse_from_rfc3339(columns[0]).unwrap().timestamp_micros();
                Attempt { at_us, key: columns[key].to_owned(), legitimate: columns[3] == "accepted" }
            })
            .collect();
        assert_eq!(attempts.len(), 528);
        let points = agree(&attempts);
        assert!(points.iter().any(|(_, stopped)| *stopped > 400), "{points:?}");
    }
}

/// Thirty people log in now and then, and mistype. Four attackers try: one as fast as it can, one in bursts, one every 20 seconds, and
/// one as seldom as people do. Ten people share the address of the second.
#[test]
fn of_known_attackers_the_front_is_that_of_a_naive_search() {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut attempts = Vec::new();
    let second_us = 1_000_000;
    let mut attempt = |second: i64, key: String, legitimate: bool| {
        attempts.push(Attempt { at_us: 1_790_000_000_000_000 + second * second_us, key, legitimate });
    };
    for person in 0..30 {
        let key = if person < 10 { "office".to_owned() } else { format!("person {person}") };
        for _ in 0..4 {
            let at = rng.i64(0..7_200);
            (0..rng.i64(1..4)).for_each(|again| attempt(at + 5 * again, key.clone(), true));
        }
    }
    (0..400).for_each(|n| attempt(1_000 + n, "fast".to_owned(), false));
    (0..10).for_each(|n| (0..12).for_each(|m| attempt(700 * n + m, "office".to_owned(), false)));
    (0..360).for_each(|n| attempt(20 * n, "steady".to_owned(), false));
    (0..8).for_each(|n| attempt(900 * n, "seldom".to_owned(), false));
    attempts.sort_by_key(|attempt| attempt.at_us);
    let points = agree(&attempts);
    assert!(points.len() > 3, "there is something to choose: {points:?}");
}
