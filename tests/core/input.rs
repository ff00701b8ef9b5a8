//! The input: policies of every algorithm and size, and steps that come to their edges.

use std::time::Duration;

use proptest::prelude::*;
use tallygate::Policy;
use tallygate::decide::{Charge, Event, Outcome, Undo};
use tallygate::policy::{Algorithm, BanFrom, BanRule, Calendar, CalendarUnit, UNITS_MAX};

use crate::book::{Asked, Book, ask, charge};

pub const WINDOW_US_MAX: i64 = 315_576_000_000_000;

/// A way to count that has tests of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    SlidingLog,
    FixedWindow,
    Calendar,
    /// With so many slots; None for any number.
    SlidingCounter(Option<i32>),
    TokenBucket,
    LeakyBucket,
    LeakyQueue,
    Uniform,
    Distinct,
    Concurrency,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::SlidingLog,
        Self::FixedWindow,
        Self::Calendar,
        Self::SlidingCounter(Some(1)),
        Self::SlidingCounter(Some(3)),
        Self::SlidingCounter(None),
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::LeakyQueue,
        Self::Uniform,
        Self::Distinct,
        Self::Concurrency,
    ];

    pub fn algorithm(self) -> Algorithm {
        match self {
            Self::SlidingLog => Algorithm::SlidingLog,
            Self::FixedWindow | Self::Calendar => Algorithm::FixedWindow,
            Self::SlidingCounter(_) => Algorithm::SlidingCounter,
            Self::TokenBucket => Algorithm::TokenBucket,
            Self::LeakyBucket => Algorithm::LeakyBucket,
            Self::LeakyQueue => Algorithm::LeakyQueue,
            Self::Uniform => Algorithm::Uniform,
            Self::Distinct => Algorithm::Distinct,
            Self::Concurrency => Algorithm::Concurrency,
        }
    }
}

pub fn is_level(policy: &Policy) -> bool {
    use Algorithm::{LeakyBucket, LeakyQueue, TokenBucket, Uniform};
    matches!(policy.algorithm(), TokenBucket | LeakyBucket | LeakyQueue | Uniform)
}

pub fn is_window(policy: &Policy) -> bool {
    use Algorithm::{FixedWindow, SlidingCounter, SlidingLog};
    matches!(policy.algorithm(), FixedWindow | SlidingCounter | SlidingLog)
}

/// 1 to `most`, small ones as often as large ones.
pub fn up_to(most: i64) -> impl Strategy<Value = i64> {
    let bits = 63 - most.leading_zeros();
    (0..=bits).prop_flat_map(move |bits| 1..=(1i64 << bits).saturating_mul(2).min(most))
}

/// Any policy that is accepted, without options; half of them so small that windows and levels come to their edges.
pub fn bare(kind: Kind) -> impl Strategy<Value = Policy> {
    let any = (up_to(UNITS_MAX), up_to(WINDOW_US_MAX), proptest::option::of(up_to(UNITS_MAX)));
    let small = (1..8i64, 1..60i64, proptest::option::of(1..12i64));
    (prop_oneof![any, small], 1..30i64, calendar()).prop_map(
        move |((rate, window_us, burst), slots, calendar)| {
            let burst =
                burst.filter(|_| matches!(kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue));
            let make = |window_us: i64, burst| {
                Policy::new(kind.algorithm(), rate, Duration::from_micros(window_us as u64), burst)
            };
            match kind {
                Kind::Calendar => Policy::calendar(rate, calendar.unit, calendar.time_zone).unwrap(),
                Kind::SlidingCounter(fixed) => {
                    let slots = fixed.map_or(slots, i64::from);
                    // A whole number of slots.
                    let window_us = (window_us / slots).max(1) * slots;
                    make(window_us, None).unwrap().with_slots(Some(slots as i32))
                }
                // A policy that does not fit in 63 bits has a largest burst that does.
                _ => make(window_us, burst).unwrap_or_else(|_| {
                    let divisor = gcd(rate, window_us);
                    let largest = (i64::MAX - rate / divisor) / (window_us / divisor);
                    match kind {
                        Kind::Uniform => Policy::new(Algorithm::Uniform, rate, Duration::from_secs(1), None),
                        _ => make(window_us, Some(burst.unwrap_or(rate).min(largest))),
                    }
                    .unwrap()
                }),
            }
        },
    )
}

fn calendar() -> impl Strategy<Value = Calendar> {
    let zones =
        ["UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Tokyo"];
    let unit = proptest::sample::select(CalendarUnit::ALL);
    (unit, proptest::sample::select(zones.to_vec()))
        .prop_map(|(unit, zone)| Calendar { unit, time_zone: zone.parse().unwrap() })
}

/// A policy with a soft limit, a reserve, bans and blocked checks that count, each in half of the cases.
pub fn dressed(kind: Kind) -> impl Strategy<Value = Policy> {
    let options = (any::<u64>(), any::<u64>(), any::<(bool, bool, bool, bool)>(), ban());
    (bare(kind), options).prop_map(|(policy, (soft, reserve, (softly, keeps, counts, bans), ban))| {
        let below = |n: u64| (n % policy.limit() as u64) as i64;
        let (after, factor, from, [within, length, longest]) = ban;
        let part = |sixteenths: i64| (policy.window_us() / 16 * sixteenths).clamp(1, WINDOW_US_MAX);
        let rule = BanRule {
            after,
            within_us: part(within),
            for_us: part(length),
            factor,
            longest_us: part(length.max(longest)),
            from,
        };
        policy
            .with_soft_rate(softly.then(|| below(soft)))
            .with_reserve(if keeps { below(reserve) } else { 0 })
            .with_count_blocked(counts && is_window(&policy))
            .with_ban(bans.then_some(rule))
    })
}

fn ban() -> impl Strategy<Value = (i32, i32, BanFrom, [i64; 3])> {
    let from = prop_oneof![Just(BanFrom::Block), Just(BanFrom::Window)];
    (1..5i32, 1..4i32, from, [1..40i64, 1..40, 1..150])
}

pub fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(&Kind::ALL[..])
}

pub fn any_policy() -> impl Strategy<Value = Policy> {
    any_kind().prop_flat_map(bare)
}

pub fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A step: the time that passes before it, and what is done then, all told in parts of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    time: u8,
    cost: u8,
    pub deed: u8,
    pub part: u16,
}

impl Step {
    /// `promised_us` is the wait that was promised last.
    pub fn elapsed_us(self, window_us: i64, promised_us: Option<i64>) -> i64 {
        match self.time {
            0..3 => 0,
            3 => 1,
            4..8 => window_us / 16 * i64::from(self.part % 16) + i64::from(self.part % 3),
            8 => window_us - 1,
            9 => window_us,
            10 => window_us + 1,
            11 => window_us * 3,
            _ => promised_us.filter(|&us| us <= 3 * window_us).unwrap_or(1) - i64::from(self.time == 12),
        }
    }

    pub fn cost(self, limit: i64) -> i64 {
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

    /// A check as it can be asked of the policy.
    pub fn ask(self, policy: &Policy) -> Asked {
        let ask = ask(self.cost(policy.limit()));
        if policy.algorithm() == Algorithm::Distinct {
            let members =
                ["ada", "bob", "cleo", "dan", "eve", "fay", "gil", "hal", "ivy", "jo", "kim", "lou"];
            return Asked {
                cost: ask.cost.min(1),
                member: Some(members[usize::from(self.part) % members.len()]),
                ..ask
            };
        }
        ask
    }

    fn ttl_us(self, window_us: i64) -> i64 {
        (window_us / 8 * i64::from(self.part % 20)).clamp(1, WINDOW_US_MAX)
    }
}

/// Checks and nothing else.
pub fn checks() -> impl Strategy<Value = Vec<Step>> {
    steps_of(0..1)
}

/// Checks and all that happens besides.
pub fn deeds() -> impl Strategy<Value = Vec<Step>> {
    steps_of(0..20)
}

/// Checks in a number at which the first ones leave every window.
pub fn long_checks() -> impl Strategy<Value = Vec<Step>> {
    steps(0..12, 1..200)
}

fn steps_of(deeds: std::ops::Range<u8>) -> impl Strategy<Value = Vec<Step>> {
    steps(deeds, 1..40)
}

fn steps(deeds: std::ops::Range<u8>, length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..16u8, 0..12u8, deeds, any::<u16>());
    let step = step.prop_map(|(time, cost, deed, part)| Step { time, cost, deed, part });
    proptest::collection::vec(step, length)
}

/// Windows into which much fits.
pub fn wide() -> impl Strategy<Value = Policy> {
    let kind =
        proptest::sample::select(vec![Kind::SlidingLog, Kind::FixedWindow, Kind::SlidingCounter(None)]);
    (kind, 20..400i64, 1..100u64, 1..9i32).prop_map(|(kind, rate, slot_us, slots)| {
        let window = Duration::from_micros(slot_us * slots.unsigned_abs() as u64 * 12);
        let slots = matches!(kind, Kind::SlidingCounter(_)).then_some(slots);
        Policy::new(kind.algorithm(), rate, window, None).unwrap().with_slots(slots)
    })
}

/// Many reservations and what ends them, one soon after the other, and checks among them that may have to wait.
pub fn crowd() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![2 => Just(0), 6 => Just(3), 1 => 4..8u8];
    let deed = prop_oneof![6 => (0..1u8, 14..15u8), 3 => (0..8u8, 15..18u8), 3 => (0..12u8, 12..13u8)];
    let step = (time, deed, any::<u16>());
    let step = step.prop_map(|(time, (cost, deed), part)| Step { time, cost, deed, part });
    proptest::collection::vec(step, 100..300)
}

/// Now, long ago, and as near to the ends of time as a few windows allow.
pub fn start() -> impl Strategy<Value = i64> {
    let far = 200 * WINDOW_US_MAX;
    prop_oneof![
        4 => Just(1_800_000_000_000_000),
        2 => 1_774_500_000_000_000..1_775_000_000_000_000i64, // The clocks of Europe are set forward.
        2 => 1_792_600_000_000_000..1_793_600_000_000_000i64, // And back, those of America a week later.
        1 => Just(0),
        1 => Just(-far),
        1 => Just(i64::MIN + far),
        1 => Just(i64::MAX - far)
    ]
}

/// Calendars are known for times that have a date.
pub fn start_of(kind: Kind) -> BoxedStrategy<i64> {
    match kind {
        Kind::Calendar => (1_774_500_000_000_000..1_794_000_000_000_000i64).boxed(),
        _ => start().boxed(),
    }
}

/// The result of a step.
#[derive(Clone, Debug)]
pub enum Done {
    Checked(Asked, Box<Outcome>),
    /// Of the charge so much was kept, and so much was charged beyond it.
    Ended {
        seq: i64,
        kept: i64,
        extra: i64,
    },
    Banned(i64),
    Unbanned,
    Nothing,
}

/// A bucket, its time, and what of its charges can still be ended by their callers.
pub struct Play {
    pub book: Book,
    pub now_us: i64,
    pub promised_us: Option<i64>,
    charges: Vec<Charge>,
}

impl Play {
    pub fn new(policy: Policy, start_us: i64) -> Self {
        Self { book: Book::new(policy), now_us: start_us, promised_us: None, charges: Vec::new() }
    }

    /// Lets time pass, and does what the step says.
    pub fn step(&mut self, step: Step) -> Done {
        let policy = self.book.policy();
        self.now_us += step.elapsed_us(policy.window_us(), self.promised_us);
        let ask = step.ask(&policy);
        let held = matches!(policy.algorithm(), Algorithm::Distinct | Algorithm::Concurrency);
        match step.deed {
            12 | 13 => self.check(Asked { critical: true, ..ask }),
            14 if !held => self.check(Asked { ttl_us: Some(step.ttl_us(policy.window_us())), ..ask }),
            15 | 16 => self.end(step, false),
            17 => self.end(step, true),
            18 => self.check(Asked { held_back: true, ..ask }),
            19 if step.part.is_multiple_of(2) => {
                let for_us = step.ttl_us(policy.window_us());
                self.book.happen(Event::Ban(for_us), self.now_us).unwrap();
                Done::Banned(for_us)
            }
            19 => self.book.happen(Event::Unban, self.now_us).map_or(Done::Nothing, |_| Done::Unbanned),
            _ => self.check(ask),
        }
    }

    fn check(&mut self, ask: Asked) -> Done {
        let outcome = self.book.check(&ask, self.now_us);
        if outcome.spent > 0 && !outcome.blocked {
            self.charges.push(charge(&ask, &outcome));
        }
        self.promised_us = outcome.retry_after_us.or(self.promised_us);
        Done::Checked(ask, Box::new(outcome))
    }

    /// Ends one of the charges, if there is one that can be ended so.
    fn end(&mut self, step: Step, settle: bool) -> Done {
        if self.charges.is_empty() {
            return Done::Nothing;
        }
        let charge = self.charges.swap_remove(usize::from(step.part) % self.charges.len());
        let policy = self.book.policy();
        // A debt so deep that 63 bits cannot climb out of it is cut short.
        let deep = is_level(&policy) && i128::from(policy.limit()) * i128::from(policy.window_us()) > 1 << 50;
        let cost = step.cost(policy.limit()).min(policy.limit().saturating_mul(2));
        let undo = match charge {
            Charge { reserved: true, .. } if settle && !deep => Undo::Settle(cost),
            Charge { reserved: true, .. } => Undo::Cancel,
            Charge { ends_us: Some(_), member: false, .. } => Undo::Release,
            _ => Undo::Refund,
        };
        match self.book.happen(Event::Undo(undo, charge), self.now_us) {
            Ok(happened) => {
                let back = happened.hold.map_or(0, |hold| hold.amount);
                Done::Ended { seq: charge.seq, kept: charge.spent - back, extra: happened.spent }
            }
            Err(error) => {
                assert!(error.is_conflict() && charge.ends_us.is_some_and(|us| us <= self.now_us), "{error}");
                Done::Nothing
            }
        }
    }
}

/// The values that programs exchange: as JSON and back they are the same, and what no constructor would make
/// is refused.
mod json {
    use super::*;
    use crate::cases;

    proptest! {
        #![proptest_config(cases(500))]

        #[test]
        fn a_policy_comes_back_as_it_was(policy in any_policy()) {
            let text = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy, "{}", text);
        }
    }

    #[test]
    fn a_policy_that_cannot_be_is_refused_with_the_words_of_the_library() {
        for (text, because) in [
            (r#"{"algorithm":"token-bucket","rate":0,"window_us":1}"#, "rate 0 is out of range; use 1 to"),
            (r#"{"algorithm":"sliding-log","rate":-1,"window_us":1}"#, "rate -1 is out of range; use 0 to"),
            (r#"{"algorithm":"sliding-log","rate":5}"#, "neither a window nor a calendar"),
            (r#"{"algorithm":"token","rate":5,"window_us":1}"#, "unknown algorithm \"token\""),
            (
                r#"{"algorithm":"uniform","rate":5,"window_us":1,"count_blocked":true}"#,
                "cannot count blocked checks",
            ),
            (r#"{"algorithm":"sliding-log","rate":5,"window_us":1,"brust":3}"#, "unknown field `brust`"),
        ] {
            let error = serde_json::from_str::<Policy>(text).unwrap_err().to_string();
            assert!(error.contains(because), "{error:?} does not say {because:?}");
        }
    }
}
