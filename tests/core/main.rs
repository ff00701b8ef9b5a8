//! Properties of the pure core, over its whole domain and without a database. An input that proptest finds it shrinks,
//! and keeps in `tests/proptest-regressions`.

mod backtest;
mod bans;
mod book;
mod bounds;
mod capacity;
mod changes;
mod definition;
mod extreme;
mod input;
mod local;
mod naive;
mod options;
mod pictures;
mod prediction;
mod published;
mod queue;
mod real;
mod simulation;
mod suggested;
mod undo;
mod waiting;

use proptest::prelude::ProptestConfig;

/// Runs this number of cases of each property; an eighth of them in the first ring.
fn cases(all: u32) -> ProptestConfig {
    let cases = if std::env::var_os("TALLYGATE_TEST_ALL").is_some() { all } else { all.div_ceil(8) };
    ProptestConfig { cases, ..ProptestConfig::default() }
}

/// The same tests for each way to count, in a module of its name.
macro_rules! each_kind {
    ($test:ident) => {
        crate::each_kind! { $test:
            sliding_log SlidingLog, fixed_window FixedWindow, calendar Calendar,
            sliding_counter_of_one_slot SlidingCounter(Some(1)), sliding_counter_of_three_slots SlidingCounter(Some(3)),
            sliding_counter SlidingCounter(None), token_bucket TokenBucket, leaky_bucket LeakyBucket,
            leaky_queue LeakyQueue, uniform Uniform, distinct Distinct, concurrency Concurrency
        }
    };
    ($test:ident: $($name:ident $kind:ident $(($slots:expr))?),+) => {$(
        mod $name {
            $test!(crate::input::Kind::$kind $(($slots))?);
        }
    )+};
}
use each_kind;
