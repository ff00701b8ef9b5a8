//! Never stricter than the definition, and never laxer: the core and a naive count of all events agree in each decision,
//! its reason, what it leaves and how long it says to wait.

use proptest::prelude::*;
use tallygate::Policy;
use tallygate::decide::Outcome;

use crate::input::{Done, Play, Step};
use crate::naive::{Naive, Told};

macro_rules! decides_as_defined {
    ($kind:expr) => {
        use proptest::prelude::*;

        use crate::input::{bare, checks, deeds, dressed, start_of};

        proptest! {
            #![proptest_config(crate::cases(600))]

            #[test]
            fn checks_are_decided_as_defined(
                policy in bare($kind), steps in checks(), start_us in start_of($kind)
            ) {
                super::agree(policy, &steps, start_us)?;
            }

            #[test]
            fn checks_are_decided_as_defined_whatever_else_happens(
                policy in dressed($kind), steps in deeds(), start_us in start_of($kind)
            ) {
                super::agree(policy, &steps, start_us)?;
            }
        }
    };
}
crate::each_kind!(decides_as_defined);

proptest! {
    #![proptest_config(crate::cases(100))]

    #[test]
    fn checks_are_decided_as_defined_among_many_reservations_and_refunds(
        policy in crate::input::wide(), counts in any::<bool>(), steps in crate::input::crowd()
    ) {
        agree(policy.with_count_blocked(counts), &steps, 1_800_000_000_000_000)?;
    }
}

fn agree(policy: Policy, steps: &[Step], start_us: i64) -> Result<(), TestCaseError> {
    let mut play = Play::new(policy, start_us);
    let mut naive = Naive::new(policy);
    for &step in steps {
        let done = play.step(step);
        let seq = play.book.head.seq;
        match done {
            Done::Checked(ask, outcome) => {
                let seq = seq - i64::from(outcome.banned_until_us.is_some());
                let told = naive.check(&ask, play.now_us, seq);
                prop_assert_eq!(told_by(&outcome), told, "{:?} at {}", ask, play.now_us);
                prop_assert_eq!(outcome.blocked, !told.reason.allows());
                prop_assert!((0..=outcome.limit).contains(&outcome.remaining));
            }
            Done::Ended { seq: charge, kept, extra } => naive.end(charge, kept, extra, play.now_us, seq),
            Done::Banned(for_us) => naive.ban(play.now_us + for_us),
            Done::Unbanned => naive.unban(),
            Done::Nothing => {}
        }
    }
    Ok(())
}

fn told_by(outcome: &Outcome) -> Told {
    Told {
        reason: outcome.reason,
        spent: outcome.spent,
        remaining: outcome.remaining,
        retry_after_us: outcome.retry_after_us,
    }
}
