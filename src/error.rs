//! The one error of this crate.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, in one line that names the value and the remedy.
///
/// A blocked check is not an error: it is a [`Decision`](crate::Decision). Callers tell errors apart
/// with the predicates below, never by their text.
///
/// ```
/// use tallygate::Check;
/// let error = Check::new("login", "").validate().unwrap_err();
/// assert!(error.is_invalid());
/// assert_eq!(error.to_string(), "bucket key is empty; a key is 1 to 255 bytes");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Invalid,
    Conflict,
    Transient,
    Schema,
    Database,
}

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// True when the request itself is wrong (unknown zone, empty key, negative cost, …): nothing was
    /// written, and trying again will not help.
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }

    /// True when the transaction was decided before with another cost: nothing was written.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    /// True when the same call may succeed later: a deadline passed, a lock was not had, a connection
    /// broke. What became of the check is learned by asking again with the same transaction id.
    pub fn is_transient(&self) -> bool {
        self.kind == Kind::Transient
    }

    /// True when the database's schema is missing, older or newer than this program.
    pub fn is_schema(&self) -> bool {
        self.kind == Kind::Schema
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    pub(crate) fn transient(message: impl Into<String>) -> Self {
        Self::new(Kind::Transient, message)
    }

    pub(crate) fn schema(message: impl Into<String>) -> Self {
        Self::new(Kind::Schema, message)
    }

    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self::new(Kind::Database, message)
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the place that the error came from.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
