//! Capacity: its shares against a naive count in fractions, and its leases over a long life.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use tallygate::Policy;
use tallygate::decide::{Bucket, Claim, Exception, Granted, Head, Hold, Standing, Version, lease, shares};
use tallygate::policy::{Limit, RunningBuckets, Share, Sharing};

use crate::book::NoLedger;

fn sharing(share: Share, guaranteed: Option<i64>) -> Sharing {
    Sharing { guaranteed, ..Sharing::every(share, Duration::from_secs(5)) }
}

fn claims<'c>(names: &'c [String], wants: &[i64], weights: &[i32], bands: &[u8]) -> Vec<Claim<'c>> {
    let of = |n: usize| Claim {
        client: &names[n],
        wants: wants[n],
        weight: weights.get(n).copied().unwrap_or(1),
        band: bands.get(n).copied().unwrap_or(0),
    };
    (0..wants.len()).map(of).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("client {n:03}")).collect()
}

/// The figures of Doorman's tests and documents, where all that is wanted is known first. Its mistakes are put right:
/// `35, 50, 5` of 100, and two thirds of 100 for a client that stands for two of three.
#[test]
fn published_shares() {
    use Share::{Bands, Fair, None, Proportional, Static};
    let names = names(4);
    // The rule, the capacity, what each wants, its weight, its band, and what it gets.
    type Case<'c> = (Share, i64, &'c [i64], &'c [i32], &'c [u8], &'c [i64]);
    let cases: &[Case<'_>] = &[
        (Fair, 120, &[1000, 60, 10], &[], &[], &[55, 55, 10]),
        (Fair, 120, &[1000, 50, 10], &[], &[], &[60, 50, 10]),
        (Fair, 120, &[1000, 500, 200], &[6, 4, 2], &[], &[60, 40, 20]),
        (Fair, 1000, &[2000, 500, 700], &[10, 10, 30], &[], &[200, 200, 600]),
        (Fair, 100, &[1000], &[15], &[], &[100]),
        (Fair, 100, &[35, 50, 5], &[], &[], &[35, 50, 5]),
        (Fair, 100, &[150, 35], &[2, 1], &[], &[67, 33]),
        (Proportional, 120, &[60, 60, 10], &[], &[], &[55, 55, 10]),
        (Proportional, 120, &[65, 45, 20], &[3, 2, 1], &[], &[60, 40, 20]),
        // 6760/97 and 3910/97: the one unit that is left over goes to the first.
        (Proportional, 120, &[1000, 50, 10], &[], &[], &[70, 40, 10]),
        (Static, 100, &[100, 10, 120], &[], &[], &[100, 10, 100]),
        (None, 0, &[10, 100], &[], &[], &[10, 100]),
        (Bands, 120, &[80, 100, 100, 10], &[], &[0, 1, 1, 1], &[80, 15, 15, 10]),
    ];
    for (share, capacity, wants, weights, bands, expected) in cases {
        let claims = claims(&names, wants, weights, bands);
        assert_eq!(
            shares(&sharing(*share, Option::None), *capacity, &claims),
            *expected,
            "{share} {wants:?}"
        );
    }
    // Without a guarantee the low band starves; with one it has that, before the first band has more.
    let claims = claims(&names, &[500, 500, 30], &[], &[0, 1, 2]);
    assert_eq!(shares(&sharing(Bands, Option::None), 100, &claims), [100, 0, 0]);
    assert_eq!(shares(&sharing(Bands, Some(20)), 100, &claims), [60, 20, 20]);
    assert_eq!(shares(&sharing(Bands, Some(60)), 100, &claims), [10, 60, 30]);
}

/// A fraction that is not negative.
#[derive(Clone, Copy)]
struct Fraction(i128, i128);

/// Water-filling as it is told: a level rises; whoever has what it wants takes no more. In fractions, round by round.
fn filled(capacity: i64, claims: &[Claim<'_>]) -> Vec<Fraction> {
    let mut full = vec![false; claims.len()];
    loop {
        let left = i128::from(capacity)
            - claims
                .iter()
                .zip(&full)
                .filter(|(_, full)| **full)
                .map(|(c, _)| i128::from(c.wants))
                .sum::<i128>();
        let weight: i128 =
            claims.iter().zip(&full).filter(|(_, full)| !**full).map(|(c, _)| i128::from(c.weight)).sum();
        let fits = |claim: &Claim<'_>| i128::from(claim.wants) * weight <= left * i128::from(claim.weight);
        let Some(next) = (0..claims.len()).find(|&n| !full[n] && fits(&claims[n])) else {
            return claims
                .iter()
                .zip(&full)
                .map(|(claim, full)| match full {
                    true => Fraction(claim.wants.into(), 1),
                    false => Fraction(left * i128::from(claim.weight), weight),
                })
                .collect();
        };
        full[next] = true;
    }
}

#[test]
fn a_hundred_thousand_random_shares_are_those_of_naive_water_filling() {
    let (mut rng, names) = (Rng::with_seed(41), names(12));
    for round in 0..100_000 {
        let count = rng.usize(1..=12);
        let most = *rng.choice(&[3, 100, 1 << 40]).unwrap();
        let wants: Vec<i64> = (0..count).map(|_| rng.i64(0..=most)).collect();
        let weights: Vec<i32> =
            (0..count).map(|_| rng.i32(1..=*rng.clone().choice(&[1, 4, 1_000_000]).unwrap())).collect();
        let bands: Vec<u8> = (0..count).map(|_| rng.u8(0..3)).collect();
        let capacity = rng.i64(0..=most * 6).min(1 << 40);
        let claims = claims(&names, &wants, &weights, &bands);
        let wanted: i128 = wants.iter().map(|&wants| i128::from(wants)).sum();
        let told = shares(&sharing(Share::Fair, None), capacity, &claims);
        for (got, Fraction(part, of)) in told.iter().zip(filled(capacity, &claims)) {
            let off = i128::from(*got) * of - part;
            assert!(off.abs() <= of, "round {round}: {told:?} of {capacity} for {wants:?} by {weights:?}");
        }
        for share in [Share::Fair, Share::Proportional, Share::Bands] {
            let guaranteed = (share == Share::Bands && rng.bool()).then(|| rng.i64(0..=capacity));
            let told = shares(&sharing(share, guaranteed), capacity, &claims);
            let sum: i128 = told.iter().map(|&share| i128::from(share)).sum();
            assert_eq!(sum, wanted.min(capacity.into()), "{share}: {told:?} of {capacity} for {wants:?}");
            assert!(
                told.iter().zip(&wants).all(|(got, wants)| (0..=*wants).contains(got)),
                "{share}: {told:?}"
            );
        }
        let strict = shares(&sharing(Share::Bands, None), capacity, &claims);
        let lacks = |n: usize| strict[n] < wants[n];
        let jumps = |n: usize| (0..count).any(|m| bands[m] > bands[n] && strict[m] > 0);
        assert!(
            (0..count).all(|n| !(lacks(n) && jumps(n))),
            "a lower band has what a higher one lacks: {strict:?}"
        );
    }
}

/// A resource as a database keeps it.
struct Resource {
    versions: Vec<Version>,
    head: Head,
    leases: Vec<Standing>,
}

impl Resource {
    fn new(policy: Policy) -> Self {
        let versions = vec![Version { version: 1, policy, changed_us: 0 }];
        Self { versions, head: Head::default(), leases: Vec::new() }
    }

    fn grant(&mut self, claim: Claim<'_>, now_us: i64) -> Granted {
        let holds: Vec<Hold> = Vec::new();
        let from = self.versions.partition_point(|version| version.version < self.head.zone_version);
        let from = if self.head.seq == 0 { self.versions.len() - 1 } else { from };
        let bucket = Bucket { versions: &self.versions[from..], head: &self.head, holds: &holds };
        let granted = lease(bucket, &self.leases, &NoLedger, claim, now_us).unwrap();
        self.head = granted.head;
        self.leases.retain(|lease| lease.client != claim.client);
        self.leases.extend(granted.hold(claim.client).map(|hold| Standing {
            seq: hold.seq,
            since_us: granted.since_us,
            client: claim.client.to_owned(),
            wants: claim.wants,
            weight: claim.weight,
            band: claim.band,
            has: hold.amount,
            ends_us: hold.ends_us,
        }));
        granted
    }

    fn held(&self, at_us: i64) -> i64 {
        self.leases.iter().filter(|lease| lease.ends_us > at_us).map(|lease| lease.has).sum()
    }
}

fn claim(client: &str, wants: i64) -> Claim<'_> {
    Claim { client, wants, weight: 1, band: 0 }
}

/// The figures of clients who arrive one by one.
#[test]
fn published_orders_of_arrival() {
    let capacity = Policy::capacity(120, Duration::from_secs(60)).unwrap();
    let by = |share| capacity.with_sharing(Some(sharing(share, None)));
    let run = |share, asked: &[(&str, i64, i32)]| -> Vec<i64> {
        let mut resource = Resource::new(by(share));
        let mut grant = |(n, &(client, wants, weight)): (usize, &(&str, i64, i32))| {
            resource.grant(Claim { weight, ..claim(client, wants) }, n as i64).has
        };
        asked.iter().enumerate().map(&mut grant).collect()
    };
    use Share::{Fair, Proportional};
    let four = [("c0", 1000, 1), ("c1", 1000, 1), ("c0", 1000, 1), ("c1", 1000, 1)];
    assert_eq!(run(Fair, &four), [120, 0, 60, 60]);
    let five = [("c0", 1000, 1), ("c1", 10, 1), ("c0", 1000, 1), ("c1", 10, 1), ("c0", 1000, 1)];
    assert_eq!(run(Fair, &five), [120, 0, 110, 10, 110]);
    let three = [("a", 60, 1), ("b", 75, 1), ("c", 10, 1)];
    assert_eq!(run(Proportional, &three), [60, 60, 0]);
    // The next rounds: 560/11 and 650/11, and the unit that is left over to the first.
    let again = [three, three, three].concat();
    assert_eq!(run(Proportional, &again)[3..], [51, 59, 10, 51, 59, 10]);
    let weighed = [("a", 65, 3), ("b", 45, 2), ("c", 20, 1)];
    assert_eq!(run(Proportional, &weighed), [65, 45, 10]);
    assert_eq!(run(Proportional, &[weighed, weighed].concat())[3..], [60, 40, 20]);
    // A lease that has ended counts for nothing, from its very end on.
    let mut resource = Resource::new(by(Fair));
    resource.grant(claim("a", 100), 0);
    assert_eq!(resource.grant(claim("b", 100), 59_999_999).has, 20);
    assert_eq!(resource.grant(claim("b", 100), 60_000_000).has, 100);

    // The safe capacity: the capacity by the clients, or as it is configured.
    let mut resource = Resource::new(by(Fair));
    resource.grant(claim("a", 1), 0);
    assert_eq!(resource.grant(claim("b", 1), 0).safe_capacity, 60);
    let told = Sharing { safe_capacity: Some(10), ..sharing(Fair, None) };
    assert_eq!(Resource::new(capacity.with_sharing(Some(told))).grant(claim("a", 1), 0).safe_capacity, 10);
}

/// A million steps: clients that come, ask again, crash, wake up late and want something else; a clock that is set back
/// and forth; a capacity that rises and falls; overrides and bans. The leases that have not ended are never more than
/// the capacity, but for what was granted before that fell; and no client reckons with a lease for longer than the
/// database does.
#[test]
fn a_million_steps_never_hand_out_more_than_there_is() {
    let mut rng = Rng::with_seed(7);
    for share in [Share::Fair, Share::Proportional, Share::Bands] {
        let length_us = 60_000_000;
        let guaranteed = (share == Share::Bands).then_some(10);
        let policy = |capacity: i64| {
            let of = Policy::capacity(capacity, Duration::from_micros(length_us as u64)).unwrap();
            of.with_sharing(Some(sharing(share, guaranteed)))
        };
        let mut resource = Resource::new(policy(100));
        let (mut now_us, mut short) = (1_000_000_000_i64, 0);
        // The units that each client may use until when, by a clock of its own that begins anywhere.
        let mut clients: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for _ in 0..333_334 {
            now_us += match rng.u8(..20) {
                0 => rng.i64(0..2 * length_us),
                1 => -rng.i64(0..length_us),
                _ => rng.i64(0..1_000_000),
            };
            let at_us = if resource.head.seq == 0 { now_us } else { now_us.max(resource.head.last_us) };
            match rng.u16(..400) {
                0 => {
                    let last = *resource.versions.last().unwrap();
                    let policy = policy(rng.i64(10..300)).with_running_buckets(RunningBuckets::AsIs);
                    resource.versions.push(Version { version: last.version + 1, policy, changed_us: at_us });
                }
                1 => {
                    let seq = resource.head.seq;
                    let limit =
                        Limit::new(rng.i64(1..200), Duration::from_micros(length_us as u64), None).unwrap();
                    let until_us = Some(at_us + rng.i64(1..length_us));
                    resource.head.exception =
                        Some(Exception { seq, limit: Some(limit), ban_exempt: false, until_us });
                }
                2 => resource.head.banned_until_us = Some(at_us + rng.i64(1..length_us)),
                _ => {}
            }
            let client = format!("client {}", rng.u8(..9));
            let wants = *rng.choice(&[0, 1, 7, 40, 1_000]).unwrap();
            let before = resource.held(at_us);
            let (weight, band) = (rng.i32(1..4), rng.u8(..3));
            let granted = resource.grant(Claim { client: &client, wants, weight, band }, now_us);
            let held = resource.held(granted.decided_us);
            assert!(held <= granted.limit.max(before), "{held} of {}", granted.limit);
            assert!(granted.has <= wants && granted.ends_us <= granted.decided_us + length_us);
            let own = granted.head.exception.and_then(|own| own.until_us);
            assert!(own.is_none_or(|until_us| granted.ends_us <= until_us), "it outlasts what it is part of");
            short += u32::from(granted.has < wants);
            // The client sent its question before the database decided, and reckons from then on.
            let sent_us = granted.decided_us - rng.i64(0..5_000_000);
            let until_us = sent_us + (granted.ends_us - granted.decided_us);
            let ours = resource.leases.iter().find(|lease| lease.client == client);
            assert_eq!(ours.map_or(0, |lease| lease.has), granted.has);
            assert!(ours.is_none_or(|lease| until_us <= lease.ends_us), "the client stops first");
            clients.insert(client, (granted.has, until_us));
            if rng.u8(..8) == 0 {
                clients.pop_first();
            }
        }
        assert!(short > 10_000, "{short} were short");
    }
}

/// Three levels, each a resource whose capacity is what the one above has leased to it. The root shrinks; within one length of
/// a lease all below have come to it, and at no time does a level hand out more than it has by then.
#[test]
fn a_tree_whose_root_shrinks_follows_within_a_length_of_a_lease() {
    let length = Duration::from_secs(60);
    let policy =
        |capacity| Policy::capacity(capacity, length).unwrap().with_sharing(Some(sharing(Share::Fair, None)));
    let mut levels = [Resource::new(policy(120)), Resource::new(policy(1)), Resource::new(policy(1))];
    let mut handed = Vec::new();
    for second in 0..200_i64 {
        let now_us = second * 1_000_000;
        if second == 60 {
            let shrunk = Version { version: 2, policy: policy(30), changed_us: now_us };
            levels[0].versions.push(shrunk);
        }
        if second % 5 == 0 {
            for level in 1..3 {
                let granted = levels[level - 1].grant(claim("below", 1_000), now_us);
                let limit = Limit::new(granted.has.max(1), length, None).unwrap();
                let (seq, until_us) = (levels[level].head.seq, Some(granted.ends_us));
                levels[level].head.exception =
                    Some(Exception { seq, limit: Some(limit), ban_exempt: false, until_us });
            }
            for client in ["a", "b", "c"] {
                let granted = levels[2].grant(claim(client, 50), now_us);
                let above = levels[2].head.exception.unwrap();
                assert!(
                    granted.ends_us <= above.until_us.unwrap(),
                    "a lease outlasts the one that it is part of"
                );
            }
        }
        handed.push(levels[2].held(now_us));
    }
    assert_eq!(handed[59], 120, "all of it while it is there");
    assert!(handed[120..].iter().all(|&held| held <= 30), "{:?}", &handed[60..125]);
}
