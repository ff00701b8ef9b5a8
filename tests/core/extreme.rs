//! Any time, any total, any level, any answer of a ledger: an outcome or an error, never a panic.

use std::time::Duration;

use proptest::prelude::*;
use tallygate::Policy;
use tallygate::decide::{
    Ask, Bucket, Carried, Charge, Event, Exception, Head, Hold, Ledger, Need, Undo, Version, decide, happen,
    take_units,
};
use tallygate::policy::{Limit, Override, UNITS_MAX};

use crate::cases;
use crate::changes::changing;
use crate::input::{WINDOW_US_MAX, up_to};

/// The answers that a ledger could give that has lost rows.
#[derive(Clone, Copy, Debug)]
struct Answers {
    total: i64,
    reached_us: Option<i64>,
    strikes: i64,
}

impl Ledger for Answers {
    fn total_before(&self, _: i64) -> Result<i64, Need> {
        Ok(self.total)
    }

    fn reached(&self, _: i64) -> Result<Option<i64>, Need> {
        Ok(self.reached_us)
    }

    fn strikes_before(&self, _: i64) -> Result<i64, Need> {
        Ok(self.strikes)
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
        1_600_000_000_000_000..2_000_000_000_000_000i64,
        any::<i64>()
    ]
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(i64::MAX), up_to(i64::MAX), up_to(UNITS_MAX)]
}

fn head() -> impl Strategy<Value = Head> {
    let level = proptest::option::of(extreme());
    let bucket = (prop_oneof![Just(0), up_to(i64::MAX - 2)], extreme(), amount(), level);
    let carried = proptest::option::of((extreme(), amount(), amount(), amount()));
    let ban = (amount(), amount(), proptest::option::of(extreme()), 0..i32::MAX);
    let exception = proptest::option::of((limit(), any::<bool>(), proptest::option::of(extreme())));
    (bucket, carried, ban, exception).prop_map(
        |((seq, last_us, spent_total, level), carried, ban, exception)| {
            let (strikes, ban_strikes, banned_until_us, bans) = ban;
            Head {
                seq,
                last_us,
                spent_total,
                level,
                zone_version: 1,
                carried: carried.map(|(at_us, amount, total, seq)| Carried {
                    at_us,
                    amount,
                    total: total.min(spent_total),
                    seq,
                }),
                strikes,
                banned_until_us,
                bans,
                ban_strikes: ban_strikes.min(strikes),
                exception: exception.map(|(limit, ban_exempt, until_us)| Exception {
                    seq: 1,
                    limit,
                    ban_exempt,
                    until_us,
                }),
            }
        },
    )
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    let limit = (up_to(UNITS_MAX), up_to(WINDOW_US_MAX), proptest::option::of(up_to(UNITS_MAX)));
    proptest::option::of(limit.prop_map(|(rate, window_us, burst)| {
        Limit::new(rate, Duration::from_micros(window_us as u64), burst)
            .unwrap_or_else(|_| Limit::new(1, Duration::from_micros(window_us as u64), Some(1)).unwrap())
    }))
}

fn holds() -> impl Strategy<Value = Vec<Hold>> {
    let hold = (amount(), extreme(), extreme(), amount(), proptest::option::of(0..3u8));
    let hold = hold.prop_map(|(seq, charged_us, ends_us, amount, member)| Hold {
        seq,
        charged_us,
        amount,
        ends_us,
        member: member.map(|n| n.to_string()),
    });
    proptest::collection::vec(hold, 0..6)
}

fn events() -> impl Strategy<Value = Event> {
    let undo = prop_oneof![
        Just(Undo::Refund),
        Just(Undo::Cancel),
        Just(Undo::Release),
        Just(Undo::Settle(0)),
        Just(Undo::Settle(UNITS_MAX)),
        up_to(UNITS_MAX).prop_map(Undo::Settle),
        prop_oneof![Just(i64::MIN), Just(-1), 0..=UNITS_MAX].prop_map(Undo::Used)
    ];
    let charge = (extreme(), 0..=UNITS_MAX, any::<[bool; 4]>(), proptest::option::of(extreme()));
    let charge = charge.prop_map(|(at_us, spent, [blocked, reserved, taken, member], ends_us)| Charge {
        seq: 1,
        at_us,
        spent,
        blocked,
        reserved,
        taken,
        member,
        ends_us,
    });
    let over = (limit(), any::<bool>(), proptest::option::of(up_to(WINDOW_US_MAX)));
    let over = over.prop_map(|(limit, ban_exempt, for_us)| Override { limit, ban_exempt, for_us });
    prop_oneof![
        (undo, charge).prop_map(|(undo, charge)| Event::Undo(undo, charge)),
        up_to(WINDOW_US_MAX).prop_map(Event::Ban),
        Just(Event::Unban),
        proptest::option::of(over).prop_map(Event::Override),
        Just(Event::Unchecked(7))
    ]
}

/// The first policies as they came, in force since whenever.
fn versions(policies: &[(Policy, i64)]) -> Vec<Version> {
    let versions = policies.iter().zip(1..);
    versions.map(|(&(policy, changed_us), version)| Version { version, policy, changed_us }).collect()
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn no_input_is_too_extreme(
        policies in proptest::collection::vec((changing(), extreme()), 1..4), head in head(), holds in holds(),
        now_us in extreme(), event in events(),
        (total, reached_us, strikes) in (amount(), proptest::option::of(extreme()), amount()),
        (cost, critical, ttl_us) in (prop_oneof![Just(0), Just(UNITS_MAX), up_to(UNITS_MAX)], any::<bool>(),
            proptest::option::of(up_to(WINDOW_US_MAX))),
        member in proptest::option::of(Just("1")), held_back in any::<bool>(),
        local in proptest::option::of(up_to(WINDOW_US_MAX)),
    ) {
        let mut versions = versions(&policies);
        for version in &mut versions {
            let local = local.map(|us| Duration::from_micros(us.unsigned_abs()));
            let policy = version.policy.with_local(local);
            prop_assert_eq!(policy.asked().limit(), version.policy.limit());
            version.policy = if policy.validate().is_ok() { policy } else { version.policy };
        }
        let policy = &versions.last().unwrap().policy;
        let bucket = Bucket { versions: &versions, head: &head, holds: &holds };
        let answers = Answers { total: total.min(head.spent_total), reached_us, strikes: strikes.min(head.strikes) };
        let ask = Ask { cost, critical, member, ttl_us, held_back };
        let decided_us = if head.seq == 0 { now_us } else { now_us.max(head.last_us) };
        match decide(bucket, &answers, &ask, now_us) {
            Ok(outcome) => {
                prop_assert!(outcome.remaining >= 0);
                // More can only be left where more was given back than was spent.
                let sound = holds.is_empty() && head.carried.is_none();
                prop_assert!(!sound || outcome.remaining <= outcome.limit);
                prop_assert!(outcome.head.exception.is_some() || outcome.limit <= policy.limit());
                prop_assert_eq!(outcome.decided_us, decided_us);
                prop_assert_eq!(outcome.head.spent_total - head.spent_total, outcome.spent);
                prop_assert!(outcome.retry_after_us.is_none_or(|wait_us| wait_us >= 0));
            }
            Err(Need::Failed(error)) => prop_assert!(error.is_invalid()),
            Err(need) => prop_assert!(false, "{:?}", need),
        }
        match take_units(bucket, &answers, cost, now_us) {
            Ok(None) => {}
            Ok(Some(taken)) => {
                prop_assert!(taken.units >= 2 && taken.units <= cost);
                prop_assert!(taken.ends_us >= taken.decided_us);
                prop_assert_eq!(taken.head.spent_total - head.spent_total, taken.units);
            }
            Err(Need::Failed(error)) => prop_assert!(error.is_invalid()),
            Err(need) => prop_assert!(false, "{:?}", need),
        }
        match happen(bucket, &answers, event, now_us) {
            Ok(happened) => {
                prop_assert_eq!(happened.at_us, decided_us);
                prop_assert_eq!(happened.head.seq, head.seq + 1);
                prop_assert_eq!(happened.head.spent_total - head.spent_total, happened.spent);
            }
            Err(Need::Failed(error)) => prop_assert!(error.is_invalid() || error.is_conflict()),
            Err(need) => prop_assert!(false, "{:?}", need),
        }
    }
}
