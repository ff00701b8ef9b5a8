//! After exactly the promised wait the same passes, and one microsecond earlier it is blocked, if nothing else arrives.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use tallygate::decide::{Ask, Hold, Ledger, Need, Outcome, decide};
use tallygate::{Policy, Reason};

use crate::book::{Asked, Book, ask};
use crate::cases;
use crate::input::{Done, Play, Step};

macro_rules! waits_exactly {
    ($kind:expr) => {
        use proptest::prelude::*;

        use crate::input::{bare, checks, deeds, dressed, start_of};

        proptest! {
            #![proptest_config(crate::cases(600))]

            #[test]
            fn the_promised_wait_is_the_least_that_passes(
                policy in bare($kind), steps in checks(), start_us in start_of($kind)
            ) {
                super::play(policy, &steps, start_us)?;
            }

            #[test]
            fn the_promised_wait_is_the_least_that_passes_whatever_has_happened(
                policy in dressed($kind), steps in deeds(), start_us in start_of($kind)
            ) {
                super::play(policy, &steps, start_us)?;
            }
        }
    };
}
crate::each_kind!(waits_exactly);

fn play(policy: Policy, steps: &[Step], start_us: i64) -> Result<(), TestCaseError> {
    let mut play = Play::new(policy, start_us);
    for &step in steps {
        if let Done::Checked(ask, outcome) = play.step(step) {
            waits(&play.book, &ask, &outcome)?;
        }
    }
    Ok(())
}

fn waits(book: &Book, ask: &Ask<'_>, outcome: &Outcome) -> Result<(), TestCaseError> {
    let waits = matches!(outcome.reason, Reason::OverLimit | Reason::Banned);
    prop_assert_eq!(outcome.retry_after_us.is_some(), waits, "{:?}", outcome);
    prop_assert_eq!(ask.cost > outcome.limit, outcome.reason == Reason::ExceedsLimit);
    let Some(wait_us) = outcome.retry_after_us else { return Ok(()) };
    prop_assert!(wait_us > 0);
    // A level may be back only after the end of time.
    let then_us = outcome.decided_us.saturating_add(wait_us);
    if then_us == i64::MAX {
        return Ok(());
    }
    let again = |at_us| book.ask(&Ask { held_back: false, ..*ask }, at_us);
    prop_assert!(again(then_us - 1).blocked, "passed before {} µs", wait_us);
    prop_assert!(!again(then_us).blocked, "blocked after {} µs", wait_us);
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    /// Versions that follow each other, and what they carry over.
    #[test]
    fn the_promised_wait_is_exact_after_changes_of_policy(
        policies in proptest::collection::vec(crate::changes::changing(), 1..4),
        steps in crate::input::deeds(),
        start_us in crate::input::start_of(crate::input::Kind::Calendar)
    ) {
        let mut play = Play::new(policies[0], start_us);
        for (n, step) in steps.into_iter().enumerate() {
            if n % 5 == 4 {
                play.book.set(policies[n % policies.len()], play.now_us);
            }
            if let Done::Checked(ask, outcome) = play.step(step) {
                waits(&play.book, &ask, &outcome)?;
            }
        }
    }
}

/// Counts what is asked of a ledger.
struct Counted<'b>(&'b Book, Cell<usize>);

impl Counted<'_> {
    fn count<T>(&self, answer: T) -> T {
        self.1.set(self.1.get() + 1);
        answer
    }
}

impl Ledger for Counted<'_> {
    fn total_before(&self, at_us: i64) -> Result<i64, Need> {
        self.count(self.0.total_before(at_us))
    }

    fn reached(&self, total: i64) -> Result<Option<i64>, Need> {
        self.count(self.0.reached(total))
    }

    fn strikes_before(&self, at_us: i64) -> Result<i64, Need> {
        self.count(self.0.strikes_before(at_us))
    }
}

/// Each question goes with a look at all that ends in the window.
#[test]
fn a_wait_among_a_thousand_refunds_or_reservations_takes_a_few_dozen_questions() {
    let hour = Duration::from_secs(3600);
    let policies = [
        Policy::sliding_log(2_000, hour),
        Policy::fixed_window(2_000, hour),
        Policy::sliding_counter(2_000, hour, 60),
    ];
    for policy in policies.map(Result::unwrap) {
        for reserved in [false, true] {
            let mut book = Book::new(policy);
            for n in 0..1_000 {
                let ttl_us = reserved.then_some(1_000_000_000 + n % 7 * 1_000_000 - n);
                book.check(&Asked { ttl_us, ..ask(1) }, n);
            }
            if !reserved {
                let charges = book.rows.iter().enumerate();
                let refunds = charges.map(|(n, row)| Hold {
                    seq: n as i64 + 1,
                    charged_us: row.at_us,
                    amount: 1,
                    ends_us: 1_000,
                    member: None,
                });
                book.holds = refunds.collect();
            }
            book.spend(book.peek(1_000).remaining, 1_000);
            let counted = Counted(&book, Cell::new(0));
            let check = ask(if reserved { 500 } else { 1 });
            let outcome = decide(book.view(), &counted, &check, 2_000).unwrap();
            waits(&book, &check, &outcome).unwrap();
            assert!(counted.1.get() <= 48, "{policy:?}: {} questions", counted.1.get());
        }
    }
}
