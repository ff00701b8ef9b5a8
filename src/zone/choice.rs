//! What a policy chooses, each by its name.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// How a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// At most `rate` units in any window, exactly: what was spent at t is free again at t + window.
    SlidingLog,
    /// A store of `burst` tokens that fills at `rate` per window; a check takes its cost from it.
    TokenBucket,
}

/// How long an answer waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Until the decision is on the disk.
    #[default]
    Durable,
    /// Not at all: a crash of the server can forget the last decisions together with what they spent.
    Relaxed,
}

/// What a flood of blocked checks leaves in the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockedRows {
    /// A row for every check.
    #[default]
    Each,
    /// One row may stand for many checks.
    Coalesced,
}

/// The names of a choice in SQL, in JSON and on the command line.
macro_rules! names {
    ($choice:ident, $what:literal, $($value:ident $name:literal),+) => {
        impl $choice {
            /// Its name in SQL, in JSON and on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl fmt::Display for $choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $choice {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(Self::$value),)+
                    _ => {
                        let names = [$($name),+].join(" and ");
                        Err(Error::invalid(format!("unknown {} {name:?}; there are {names}", $what)))
                    }
                }
            }
        }

        impl Serialize for $choice {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

names!(Algorithm, "algorithm", SlidingLog "sliding-log", TokenBucket "token-bucket");
names!(Durability, "durability", Durable "durable", Relaxed "relaxed");
names!(BlockedRows, "choice of blocked rows", Each "each", Coalesced "coalesced");
