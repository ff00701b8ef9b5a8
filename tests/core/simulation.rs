//! The requests that get through, counted again without any cleverness.

use std::time::Duration;

use tallygate::Policy;
use tallygate::backtest::{Request, Shape, Simulation, Traffic, simulate};
use tallygate::decide::Ask;
use tallygate::policy::Algorithm;

use crate::naive::Naive;

const SECOND_US: i64 = 1_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const RATE: i64 = 12;

fn traffic(shape: Shape) -> Traffic {
    let window_us = 60 * SECOND_US;
    Traffic { shape, rate: 2 * RATE, window_us, length_us: 6 * window_us, members: 20, seed: 1 }
}

fn requests(shape: Shape) -> Vec<Request> {
    traffic(shape).requests().unwrap()
}

fn policy(algorithm: Algorithm) -> Policy {
    Policy::new(algorithm, RATE, MINUTE, None).unwrap()
}

fn checked() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .iter()
        .copied()
        .filter(|algorithm| !matches!(algorithm, Algorithm::Capacity | Algorithm::Queue))
}

fn through(algorithm: Algorithm, shape: Shape) -> Simulation {
    simulate(policy(algorithm), &requests(shape)).unwrap()
}

/// When each that passed had its turn, by the naive core, and how long it waited for that. A queue serves one in 5 s.
fn by_hand(policy: Policy, requests: &[Request]) -> (Vec<i64>, Vec<i64>) {
    let mut naive = Naive::new(policy);
    let mut turns: Vec<(i64, i64)> = Vec::new();
    for (seq, request) in (1..).zip(requests) {
        let member = request.member.as_deref().filter(|_| policy.algorithm() == Algorithm::Distinct);
        let told = naive.check(&Ask { cost: 1, member, ..Ask::default() }, request.at_us, seq);
        if told.reason.allows() {
            let free_us = turns.last().map_or(0, |last| last.0 + 5 * SECOND_US);
            let queue = policy.algorithm() == Algorithm::LeakyQueue;
            let turn_us = if queue { free_us.max(request.at_us) } else { request.at_us };
            turns.push((turn_us, turn_us - request.at_us));
        }
    }
    turns.into_iter().unzip()
}

/// For each turn, all that were in the time that ends with it.
fn most_within(turns_us: &[i64], window_us: i64) -> i64 {
    let within =
        |end: &i64| turns_us.iter().filter(|at| **at <= *end && **at > end - window_us).count() as i64;
    turns_us.iter().map(within).max().unwrap_or(0)
}

#[test]
fn the_figures_are_those_of_a_naive_count() {
    for shape in Shape::ALL.iter().copied() {
        let requests = requests(shape);
        for algorithm in checked() {
            let found = simulate(policy(algorithm), &requests).unwrap();
            let (turns_us, waits_us) = by_hand(policy(algorithm), &requests);
            let about = format!("{algorithm}, {shape}");
            assert_eq!(found.offered, requests.len() as i64, "{about}");
            assert_eq!(found.offered, found.passed + found.blocked, "{about}");
            assert_eq!(found.passed, turns_us.len() as i64, "{about}");
            assert_eq!(found.delayed, waits_us.iter().filter(|wait| **wait > 0).count() as i64, "{about}");
            assert_eq!(found.longest_wait_us, waits_us.iter().copied().max().unwrap_or(0), "{about}");
            assert_eq!(found.worst_window, most_within(&turns_us, 60 * SECOND_US), "{about}");
            assert_eq!(found.peak_per_second, most_within(&turns_us, SECOND_US), "{about}");
            assert_eq!(
                found.curve.iter().map(|point| point.passed).max(),
                Some(found.worst_window),
                "{about}"
            );
            assert!(found.curve.len() <= 501, "{about}");
        }
    }
}

#[test]
fn a_log_keeps_its_promise_in_any_window_and_a_fixed_window_breaks_it_at_a_border() {
    for shape in Shape::ALL {
        assert!(through(Algorithm::SlidingLog, *shape).worst_window <= RATE, "{shape}");
    }
    assert_eq!(through(Algorithm::SlidingLog, Shape::Border).worst_window, RATE);
    assert_eq!(through(Algorithm::FixedWindow, Shape::Border).worst_window, 2 * RATE);
    // The burst, and what flows in until just before a window is over.
    assert_eq!(through(Algorithm::TokenBucket, Shape::Flood).worst_window, 2 * RATE - 1);
}

#[test]
fn what_a_queue_lets_go_on_is_never_steeper_than_its_rate() {
    for shape in Shape::ALL {
        let requests = requests(*shape);
        let found = simulate(policy(Algorithm::LeakyQueue), &requests).unwrap();
        let (turns_us, _) = by_hand(policy(Algorithm::LeakyQueue), &requests);
        // One in each twelfth of the minute; a turn is told to the microsecond after it.
        assert!(turns_us.windows(2).all(|pair| pair[1] - pair[0] >= 5 * SECOND_US - 1), "{shape}");
        assert!(found.worst_window <= RATE, "{shape}");
        assert_eq!(found.peak_per_second, 1, "{shape}");
        assert!(found.delayed > 0 && found.longest_wait_us <= 60 * SECOND_US, "{shape}");
    }
}

#[test]
fn two_clients_share_one_bucket_and_the_greedy_one_gets_more() {
    let found = through(Algorithm::SlidingLog, Shape::TwoClients);
    let [greedy, polite] = ["greedy", "polite"].map(|name| found.clients[name]);
    assert_eq!(greedy.offered, 4 * polite.offered);
    assert_eq!(greedy.passed + polite.passed, found.passed);
    assert!(greedy.passed > polite.passed);
    let (a, b) = (greedy.passed as f64, polite.passed as f64);
    assert!((found.fairness.unwrap() - (a + b).powi(2) / (2.0 * (a * a + b * b))).abs() < 1e-12);
    assert!(through(Algorithm::SlidingLog, Shape::Steady).fairness.is_none());
}

#[test]
fn the_same_seed_makes_the_same_traffic_and_another_one_another() {
    for shape in Shape::ALL {
        let again = Traffic { seed: 2, ..traffic(*shape) };
        assert_eq!(requests(*shape), requests(*shape), "{shape}");
        assert_ne!(requests(*shape), again.requests().unwrap(), "{shape}");
    }
}

#[test]
fn each_shape_is_what_it_is_called() {
    let per_10_s = |shape| {
        let mut counts = [0; 36];
        requests(shape).iter().for_each(|request| counts[(request.at_us / (10 * SECOND_US)) as usize] += 1);
        counts
    };
    assert_eq!(per_10_s(Shape::Steady), [4; 36]);
    let flood = per_10_s(Shape::Flood);
    assert_eq!((flood[11], flood[12], flood[23], flood[24]), (4, 40, 40, 4));
    let burst = per_10_s(Shape::Burst);
    assert_eq!((burst[0], burst[12], burst[24], burst.iter().sum::<i64>()), (48, 48, 48, 144));
    let border = per_10_s(Shape::Border);
    assert_eq!((border[5], border[6], border[17], border[18], border[7]), (24, 24, 24, 24, 0));
    let sine = per_10_s(Shape::Sine);
    assert!(
        sine[1..5].iter().all(|count| *count >= 4) && sine[7..11].iter().all(|count| *count <= 4),
        "{sine:?}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_value_and_a_remedy() {
    let good = traffic(Shape::Steady);
    for (traffic, said) in [
        (Traffic { rate: 0, ..good }, "rate is 0; use 1 to 1000000"),
        (Traffic { rate: -5, ..good }, "rate is -5; use 1 to"),
        (Traffic { rate: i64::MAX, ..good }, "rate is 9223372036854775807; use 1 to"),
        (Traffic { length_us: i64::MAX, ..good }, "length in microseconds is 9223372036854775807; use 1 to"),
        (Traffic { window_us: i64::MAX, ..good }, "window in microseconds is 9223372036854775807; use 1 to"),
        (Traffic { window_us: 0, ..good }, "window in microseconds is 0; use 1 to"),
        (Traffic { members: 0, ..good }, "number of members is 0; use 1 to"),
        (Traffic { rate: 400_000, ..good }, "use a lower rate or a shorter time, for up to 1000000"),
        (Traffic { window_us: 1, ..good }, "use a lower rate or a shorter time"),
    ] {
        let error = traffic.requests().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(said), "{error}");
    }
    assert_eq!(simulate(policy(Algorithm::SlidingLog), &[]).unwrap().curve, []);
}

/// Of one capacity the polite client has what it wants, whatever the greedy one asks for; through a log it has what is left.
#[test]
fn leases_give_each_client_its_share() {
    let requests = requests(Shape::TwoClients);
    let play = |policy: Policy| simulate(policy, &requests).unwrap();
    let leased = play(Policy::capacity(RATE, MINUTE).unwrap());
    let logged = play(policy(Algorithm::SlidingLog));
    let of = |simulation: &Simulation, client: &str| simulation.clients[client];
    let [polite, greedy] = ["polite", "greedy"].map(|client| of(&leased, client));
    assert_eq!((polite.offered, leased.blocked), (36, leased.offered - polite.passed - greedy.passed));
    assert_eq!(polite.passed, 36);
    assert!(of(&logged, "polite").passed < 30, "{:?}", logged.clients);
    assert!(leased.fairness > logged.fairness);
    // Evenly, and no more than was saved up besides.
    assert!(leased.passed <= 7 * RATE && leased.worst_window <= 2 * RATE, "{leased:?}");
    assert!(leased.passed >= 5 * RATE, "{leased:?}");

    // Alone it has all of it, and nothing after it wanted nothing for a lease.
    let alone = |at_s: i64| Request { at_us: at_s * SECOND_US, client: None, ..requests[0].clone() };
    let seldom: Vec<_> = (0..10).map(|n| alone(n * 600)).collect();
    assert_eq!(simulate(Policy::capacity(1, MINUTE).unwrap(), &seldom).unwrap().passed, 10);
    let negative = [Request { cost: -1, ..alone(0) }];
    let error = simulate(Policy::capacity(1, MINUTE).unwrap(), &negative).unwrap_err();
    assert!(error.to_string().contains("cost -1 is out of range"), "{error}");
}

/// Served one in 5 s, first come, first served; what finds the backlog full is blocked. Counted by lists.
#[test]
fn a_queue_is_worked_off_at_its_pace_in_order() {
    let queue = Policy::new(Algorithm::Queue, RATE, MINUTE, Some(1)).unwrap();
    for shape in Shape::ALL {
        let requests = requests(*shape);
        let found = simulate(queue, &requests).unwrap();
        let mut turns_us: Vec<i64> = Vec::new();
        let mut waits_us = Vec::new();
        for Request { at_us, .. } in &requests {
            let waiting = turns_us.iter().filter(|turn_us| *turn_us > at_us).count() as i64;
            if waiting < RATE {
                let turn_us = turns_us.last().map_or(*at_us, |last_us| (last_us + 5 * SECOND_US).max(*at_us));
                turns_us.push(turn_us);
                waits_us.push(turn_us - at_us);
            }
        }
        assert_eq!((found.passed, found.blocked), count(&requests, &turns_us), "{shape}");
        assert_eq!(found.delayed, waits_us.iter().filter(|wait_us| **wait_us > 0).count() as i64, "{shape}");
        assert_eq!(found.longest_wait_us, waits_us.into_iter().max().unwrap(), "{shape}");
        assert_eq!(found.worst_window, most_within(&turns_us, 60 * SECOND_US), "{shape}");
    }
}

fn count(requests: &[Request], turns_us: &[i64]) -> (i64, i64) {
    (turns_us.len() as i64, (requests.len() - turns_us.len()) as i64)
}

/// A critical request goes first, and takes the place of one that is not where there is no room.
#[test]
fn what_is_critical_overtakes_and_evicts_in_a_queue() {
    let queue = Policy::queue(1, Duration::from_secs(1), 2).unwrap();
    let request = |at_us, critical, client: &str| Request {
        at_us,
        critical,
        client: Some(client.to_owned()),
        ..requests(Shape::Steady)[0].clone()
    };
    let all = ["taken", "waits", "evicted"].map(|client| request(0, false, client));
    let told =
        simulate(queue, &[&all[..], &[request(1, true, "critical"), request(2, false, "late")]].concat());
    let told = told.unwrap();
    let passed: Vec<&str> =
        told.clients.iter().filter(|(_, got)| got.passed > 0).map(|(name, _)| name.as_str()).collect();
    assert_eq!(passed, ["critical", "taken", "waits"]);
    // The critical one at the first second, the other at the next.
    assert_eq!((told.delayed, told.longest_wait_us, told.blocked), (2, 2 * SECOND_US, 2));
    for (cost, said) in [(-1, "cost -1 is out of range"), (0, "cost 0 cannot wait; use 1 to")] {
        let error = simulate(queue, &[Request { cost, ..all[0].clone() }]).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(said), "{error}");
    }
    // Its turn would be after the year 9999.
    let slow = Policy::new(Algorithm::Queue, 1, Duration::from_secs(315_360_000), Some(1)).unwrap();
    let many = vec![all[0].clone(); 1_000];
    let slow = slow.with_queueing(Some(tallygate::policy::Queueing::new(1_000)));
    assert_eq!(simulate(slow, &many).unwrap().passed, 804);
}
