//! The bounds of a queue: its backlog, and the number of times that an item is taken.

use serde::{Deserialize, Serialize};

use super::UNITS_MAX;
use crate::error::{Error, Result};

/// The most takes after which an item can be dead.
const TAKES_MAX: i32 = 1_000;

/// The bounds of the queues of a zone, besides their pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Queueing {
    /// The most units that wait in a queue or are taken: 1 to 2^40.
    pub backlog: i64,
    /// The number of times that an item is taken before it is dead: 1 to 1,000.
    pub max_takes: i32,
}

impl Queueing {
    /// A backlog of so many units, and five takes.
    #[must_use]
    pub fn new(backlog: i64) -> Self {
        Self { backlog, max_takes: 5 }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let Self { backlog, max_takes } = *self;
        if !(1..=UNITS_MAX).contains(&backlog) {
            return Err(Error::invalid(format!("backlog {backlog} is out of range; use 1 to {UNITS_MAX}"))
                .of("backlog"));
        }
        if !(1..=TAKES_MAX).contains(&max_takes) {
            return Err(Error::invalid(format!("{max_takes} takes are out of range; use 1 to {TAKES_MAX}"))
                .of("max_takes"));
        }
        Ok(())
    }
}
