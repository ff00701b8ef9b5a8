//! The end of a command as scripts read it.

use std::process::ExitCode;

use tallygate::ErrorKind;

/// The end of a command. Each number means one thing, whatever the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It is done, allowed, or as it should be.
    Good = 0,
    /// A check was blocked, a queue had no room, or nothing waited in it.
    Blocked = 1,
    /// The command was used wrongly, or failed.
    Error = 2,
    /// It cannot be told: the database does not answer now, another upkeep is at work, or upkeep dropped the rows that would tell it.
    Unknown = 3,
    /// The schema is missing, or is not the one of this program.
    ToMigrate = 4,
    /// The ledger is not as it was left.
    Faults = 5,
    /// A proof does not prove what it should, or a checkpoint was changed or is not signed by the key that it should be.
    Unproven = 6,
    /// The ledger of a benchmark does not say what its callers were told.
    Disagrees = 7,
}

/// The meanings of all exit codes, for the help.
pub const MEANINGS: &str = "\
Exit codes:
  0  it is done, allowed, or as it should be
  1  a check was blocked, a queue had no room, or nothing waited in it
  2  the command was used wrongly, or failed
  3  it cannot be told: the database does not answer now, another maintain is at work, or upkeep dropped the rows that
     would tell it
  4  the schema is missing or is not the one of this program: tallygate migrate
  5  the ledger is not as it was left: audit verify, audit checkpoint --check, audit explain
  6  a proof does not prove what it should, or a checkpoint was changed or lacks the signature: audit check-proof,
     --public-key
  7  the ledger does not say what callers were told: bench
  141  nobody read the answer to its end; a verdict that was reached goes before";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// The end of a command that failed.
    pub fn of(error: &tallygate::Error) -> Self {
        match error.kind() {
            ErrorKind::Transient => Self::Unknown,
            ErrorKind::Schema => Self::ToMigrate,
            _ => Self::Error,
        }
    }

    /// The end of a command that decides.
    pub fn of_blocked(blocked: bool) -> Self {
        if blocked { Self::Blocked } else { Self::Good }
    }
}
