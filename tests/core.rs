//! Properties of the pure core, over its whole domain and without a database. What proptest finds it shrinks,
//! and keeps in `tests/core.proptest-regressions`.

use std::time::Duration;

use proptest::prelude::*;
use tallygate::{Algorithm, Head, Outcome, Policy, Probe, Reason, UNITS_MAX, Version, Window, decide, probe};

const WINDOW_US_MAX: i64 = 315_576_000_000_000;

/// A bucket with its whole ledger in memory.
#[derive(Clone, Default)]
struct Bucket {
    versions: Vec<Version>,
    head: Head,
    rows: Vec<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    at_us: i64,
    spent: i64,
    spent_total: i64,
}

impl Bucket {
    fn new(policy: Policy) -> Self {
        let mut bucket = Self::default();
        bucket.set(policy, 0);
        bucket
    }

    fn set(&mut self, policy: Policy, changed_us: i64) {
        self.versions.push(Version { version: self.versions.len() as i32 + 1, policy, changed_us });
    }

    fn policy(&self) -> Policy {
        self.versions.last().unwrap().policy
    }

    /// What a check would be told.
    fn ask(&self, cost: i64, now_us: i64) -> Outcome {
        let window = probe(&self.policy(), &self.head, cost, now_us).map(|probe| self.window(probe));
        let from = if self.head.seq == 0 { self.versions.len() } else { self.head.zone_version as usize };
        decide(&self.versions[from - 1..], &self.head, window, cost, now_us).unwrap()
    }

    fn window(&self, probe: Probe) -> Window {
        let first = self.rows.iter().find(|row| row.at_us > probe.after_us);
        let reached = self.rows.iter().find(|row| row.spent_total >= probe.total);
        Window {
            base: first.map_or(self.head.spent_total, |row| row.spent_total - row.spent),
            reached_us: reached.map(|row| row.at_us),
        }
    }

    fn check(&mut self, cost: i64, now_us: i64) -> Outcome {
        let outcome = self.ask(cost, now_us);
        let Outcome { decided_us: at_us, spent, .. } = outcome;
        self.rows.push(Row { at_us, spent, spent_total: outcome.head.spent_total });
        self.head = outcome.head;
        outcome
    }

    /// What was spent in `(from_us, to_us]`.
    fn spent(&self, from_us: i64, to_us: i64) -> i64 {
        let inside = self.rows.iter().filter(|row| row.at_us > from_us && row.at_us <= to_us);
        inside.map(|row| row.spent).sum()
    }
}

/// A token bucket by its definition: in units of 1/window of a token, wide enough for any product.
struct Tokens {
    level: i128,
    at_us: i64,
}

impl Tokens {
    fn full(policy: &Policy) -> Self {
        Self { level: i128::from(policy.limit()) * i128::from(policy.window_us()), at_us: i64::MIN }
    }

    /// True when the cost was there, and is taken.
    fn take(&mut self, policy: &Policy, cost: i64, now_us: i64) -> bool {
        let elapsed_us = i128::from(now_us) - i128::from(self.at_us);
        let flowed = self.level + elapsed_us * i128::from(policy.rate());
        self.level = flowed.min(Self::full(policy).level);
        self.at_us = now_us;
        let price = i128::from(cost) * i128::from(policy.window_us());
        let fits = price <= self.level;
        if fits {
            self.level -= price;
        }
        fits
    }
}

// ---- what goes in ----

/// 1 to `most`, small ones as often as large ones.
fn up_to(most: i64) -> impl Strategy<Value = i64> {
    let bits = 63 - most.leading_zeros();
    (0..=bits).prop_flat_map(move |bits| 1..=(1i64 << bits).saturating_mul(2).min(most))
}

/// Any policy that is accepted; half of them so small that windows and levels come to their edges.
fn policy(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    let any = (up_to(UNITS_MAX), up_to(WINDOW_US_MAX), proptest::option::of(up_to(UNITS_MAX)));
    let small = (1..8i64, 1..60i64, proptest::option::of(1..12i64));
    prop_oneof![any, small].prop_map(move |(rate, window_us, burst)| {
        let window = Duration::from_micros(window_us as u64);
        match algorithm {
            Algorithm::SlidingLog => Policy::sliding_log(rate, window).unwrap(),
            Algorithm::TokenBucket => Policy::token_bucket(rate, window, burst).unwrap_or_else(|_| {
                let divisor = gcd(rate, window_us);
                let largest = (i64::MAX - rate / divisor) / (window_us / divisor);
                Policy::token_bucket(rate, window, Some(burst.unwrap_or(rate).min(largest))).unwrap()
            }),
        }
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![policy(Algorithm::SlidingLog), policy(Algorithm::TokenBucket)]
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What time passes before a check, and what it asks for, both told in parts of its policy.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: u8,
    cost: u8,
    part: u16,
}

impl Step {
    fn elapsed_us(self, window_us: i64) -> i64 {
        match self.time {
            0..3 => 0,
            3 => 1,
            4..8 => window_us / 16 * i64::from(self.part % 16) + i64::from(self.part % 3),
            8 => window_us - 1,
            9 => window_us,
            10 => window_us + 1,
            _ => window_us * 3,
        }
    }

    fn cost(self, limit: i64) -> i64 {
        match self.cost {
            0..4 => 1,
            4..7 => (limit / 16 * i64::from(self.part % 16) + i64::from(self.part % 5)).min(limit),
            7 => limit,
            8 => limit + 1,
            9 => UNITS_MAX,
            _ => limit / 2 + 1,
        }
        .min(UNITS_MAX)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..12u8, 0..12u8, any::<u16>()).prop_map(|(time, cost, part)| Step { time, cost, part });
    proptest::collection::vec(step, 1..40)
}

/// Now, long ago, and as near to the ends of time as a few windows allow.
fn start() -> impl Strategy<Value = i64> {
    let far = 200 * WINDOW_US_MAX;
    prop_oneof![Just(1_800_000_000_000_000), Just(0), Just(-far), Just(i64::MIN + far), Just(i64::MAX - far)]
}

// ---- what must come out ----

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_promised_wait_is_the_least_that_passes(policy in any_policy(), steps in steps(), start_us in start()) {
        let mut bucket = Bucket::new(policy);
        let mut now_us = start_us;
        for step in steps {
            now_us += step.elapsed_us(policy.window_us());
            let cost = step.cost(policy.limit());
            let outcome = bucket.check(cost, now_us);
            prop_assert_eq!(outcome.blocked, outcome.reason != Reason::WithinLimit);
            prop_assert_eq!(outcome.retry_after_us.is_some(), outcome.reason == Reason::OverLimit);
            prop_assert_eq!(cost > policy.limit(), outcome.reason == Reason::ExceedsLimit);
            if let Some(wait_us) = outcome.retry_after_us {
                prop_assert!(wait_us > 0);
                // An empty bucket may fill only after the end of time.
                let Some(then_us) = now_us.checked_add(wait_us) else { continue };
                let early = bucket.ask(cost, then_us - 1);
                prop_assert!(early.blocked, "passed before {} µs", wait_us);
                prop_assert_eq!(early.retry_after_us, Some(1));
                prop_assert!(!bucket.ask(cost, then_us).blocked, "blocked after {} µs", wait_us);
            }
        }
    }

    #[test]
    fn a_sliding_log_blocks_if_and_only_if_the_window_is_full(
        policy in policy(Algorithm::SlidingLog), steps in steps(), start_us in start()
    ) {
        let mut bucket = Bucket::new(policy);
        let mut now_us = start_us;
        for step in steps {
            now_us += step.elapsed_us(policy.window_us());
            let cost = step.cost(policy.limit());
            let spent = bucket.spent(now_us - policy.window_us(), now_us);
            let outcome = bucket.check(cost, now_us);
            prop_assert_eq!(outcome.blocked, spent + cost > policy.limit());
            let kept = if outcome.blocked { 0 } else { cost };
            prop_assert_eq!(outcome.remaining, policy.limit() - spent - kept);
        }
        // A window is fullest where it ends with a charge.
        for end_us in bucket.rows.iter().map(|row| row.at_us) {
            prop_assert!(bucket.spent(end_us - policy.window_us(), end_us) <= policy.limit());
        }
    }

    #[test]
    fn a_token_bucket_blocks_if_and_only_if_the_tokens_are_not_there(
        policy in policy(Algorithm::TokenBucket), steps in steps(), start_us in start()
    ) {
        let mut bucket = Bucket::new(policy);
        let mut tokens = Tokens::full(&policy);
        let mut now_us = start_us;
        for step in steps {
            now_us += step.elapsed_us(policy.window_us());
            let cost = step.cost(policy.limit());
            let outcome = bucket.check(cost, now_us);
            prop_assert_eq!(!outcome.blocked, tokens.take(&policy, cost, now_us));
            let whole = tokens.level / i128::from(policy.window_us());
            prop_assert_eq!(i128::from(outcome.remaining), whole);
        }
        // Between any two charges: no more than was there and what flowed in.
        let wide = |n: i64| i128::from(n);
        for (n, first) in bucket.rows.iter().enumerate() {
            let mut spent = 0;
            for last in &bucket.rows[n..] {
                spent += wide(last.spent);
                let flowed = wide(policy.rate()) * (wide(last.at_us) - wide(first.at_us));
                let most = wide(policy.limit()) * wide(policy.window_us()) + flowed;
                prop_assert!(spent * wide(policy.window_us()) <= most);
            }
        }
    }

    #[test]
    fn a_peek_spends_nothing_and_is_always_allowed(policy in any_policy(), steps in steps()) {
        let mut bucket = Bucket::new(policy);
        let mut now_us = 0;
        for step in steps {
            now_us += step.elapsed_us(policy.window_us());
            let outcome = bucket.check(step.cost(policy.limit()), now_us);
            let peek = bucket.ask(0, now_us);
            prop_assert!(!peek.blocked);
            prop_assert_eq!((peek.spent, peek.remaining), (0, outcome.remaining));
            prop_assert_eq!(peek.head.spent_total, bucket.head.spent_total);
            prop_assert_eq!(peek.head.level, bucket.head.level);
        }
    }

    #[test]
    fn the_same_events_always_lead_to_the_same_head(
        policies in proptest::collection::vec(any_policy(), 1..4), steps in steps(), start_us in start()
    ) {
        let fold = || {
            let mut bucket = Bucket::new(policies[0]);
            let (mut now_us, mut heads) = (start_us, Vec::new());
            for (n, step) in steps.iter().enumerate() {
                if n % 5 == 4 {
                    bucket.set(policies[n % policies.len()], now_us);
                }
                now_us += step.elapsed_us(bucket.policy().window_us());
                heads.push(bucket.check(step.cost(bucket.policy().limit()), now_us));
            }
            heads
        };
        let (once, twice) = (fold(), fold());
        prop_assert_eq!(&once, &twice);
        for (n, pair) in once.windows(2).enumerate() {
            prop_assert_eq!(pair[1].head.seq, n as i64 + 2);
            prop_assert!(pair[1].head.last_us >= pair[0].head.last_us);
            prop_assert_eq!(pair[1].head.spent_total - pair[0].head.spent_total, pair[1].spent);
        }
    }

    #[test]
    fn a_clock_that_goes_backwards_stands_still(policy in any_policy(), steps in steps(), back_us in up_to(i64::MAX)) {
        let mut bucket = Bucket::new(policy);
        let mut now_us = 0;
        for step in steps {
            now_us += step.elapsed_us(policy.window_us());
            let cost = step.cost(policy.limit());
            bucket.check(cost, now_us);
            prop_assert_eq!(bucket.ask(cost, now_us - back_us), bucket.ask(cost, now_us));
        }
    }

    #[test]
    fn a_change_of_policy_keeps_whole_tokens_up_to_the_new_capacity(
        policies in proptest::collection::vec(policy(Algorithm::TokenBucket), 2..5), steps in steps()
    ) {
        let mut bucket = Bucket::new(policies[0]);
        let mut now_us = 0;
        for (n, step) in steps.iter().enumerate() {
            now_us += step.elapsed_us(bucket.policy().window_us());
            bucket.check(step.cost(bucket.policy().limit()), now_us);
            if n % 3 == 2 {
                now_us += steps[n - 1].elapsed_us(bucket.policy().window_us());
                let before = bucket.ask(0, now_us).remaining;
                bucket.set(policies[n % policies.len()], now_us);
                let after = bucket.ask(0, now_us);
                prop_assert_eq!(after.remaining, before.min(bucket.policy().limit()));
            }
        }
    }

    #[test]
    fn a_level_never_exceeds_its_capacity(
        policies in proptest::collection::vec(any_policy(), 2..6), steps in steps(), changes_us in any::<[i64; 8]>()
    ) {
        let mut bucket = Bucket::new(policies[0]);
        let mut now_us = 0;
        for (n, step) in steps.iter().enumerate() {
            if n % 4 == 3 {
                // Whenever a change claims to have been made, past and future included.
                bucket.set(policies[n % policies.len()], changes_us[n % 8]);
            }
            let policy = bucket.policy();
            now_us += step.elapsed_us(policy.window_us());
            let outcome = bucket.check(step.cost(policy.limit()), now_us);
            prop_assert!((0..=policy.limit()).contains(&outcome.remaining));
            let per_token = policy.window_us() / gcd(policy.rate(), policy.window_us());
            prop_assert!(outcome.head.level.is_none_or(|level| (0..=policy.limit() * per_token).contains(&level)));
            prop_assert_eq!(outcome.head.level.is_some(), policy.algorithm() == Algorithm::TokenBucket);
        }
    }

    /// Any time, any total, any level, any answer of a ledger: an outcome or an error, never a panic.
    #[test]
    fn no_input_is_too_extreme(
        policies in proptest::collection::vec((any_policy(), extreme()), 1..4),
        (seq, last_us, now_us) in (up_to(i64::MAX - 1), extreme(), extreme()),
        (total, base, reached_us) in (0..=i64::MAX, 0..=i64::MAX, proptest::option::of(extreme())),
        level in proptest::option::of(prop_oneof![Just(0), Just(i64::MAX), up_to(i64::MAX)]),
        cost in prop_oneof![Just(0), Just(UNITS_MAX), up_to(UNITS_MAX)],
    ) {
        let versions: Vec<Version> = policies
            .iter()
            .zip(1..)
            .map(|(&(policy, changed_us), version)| Version { version, policy, changed_us })
            .collect();
        let policy = &versions.last().unwrap().policy;
        for seq in [0, seq] {
            // A bucket that was never checked has no level.
            let level = level.filter(|_| seq > 0);
            let head = Head { seq, last_us, spent_total: total, level, zone_version: 1 };
            let window = probe(policy, &head, cost, now_us).map(|_| Window { base: base.min(total), reached_us });
            match decide(&versions, &head, window, cost, now_us) {
                Ok(outcome) => {
                    prop_assert!((0..=policy.limit()).contains(&outcome.remaining));
                    prop_assert_eq!(outcome.decided_us, if seq == 0 { now_us } else { now_us.max(last_us) });
                    prop_assert_eq!(outcome.head.spent_total - total, outcome.spent);
                }
                Err(error) => {
                    prop_assert!(error.is_invalid());
                    prop_assert!(total.checked_add(cost).is_none());
                }
            }
        }
    }
}

fn extreme() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(i64::MIN),
        Just(i64::MIN + 1),
        Just(-1),
        Just(0),
        Just(i64::MAX - 1),
        Just(i64::MAX),
        any::<i64>()
    ]
}
