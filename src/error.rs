//! The one error of this crate.

use std::error::Error as StdError;
use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A failure, in one line that names the value and the remedy.
///
/// A blocked check is not an error: it is a [`Decision`](crate::Decision). Callers tell errors apart
/// with the predicates below, never by their text.
///
/// ```
/// use tallygate::Check;
/// let error = Check::new("login", "").validate().unwrap_err();
/// assert_eq!(error.code(), "invalid");
/// assert_eq!(error.to_string(), "bucket key is empty; a key is 1 to 255 bytes");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// That of the setting that is wrong.
    column: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of errors, by whose fault one is and what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's: the request itself is wrong (an empty key, a negative cost, no such transaction, …). Nothing was
    /// written, and trying again does not help. HTTP would say 400.
    Invalid,
    /// The caller's: the transaction was decided before with another cost or member, or a charge was ended otherwise.
    /// Nothing was written. HTTP would say 409.
    Conflict,
    /// The operator's: there is no zone of this name. Nothing was written. HTTP would say 500, since whoever logs in
    /// cannot help it.
    UnknownZone,
    /// The database's, and it passes: a deadline, a lock that was not had, a broken connection. HTTP would say 503.
    Transient,
    /// The operator's: the schema is missing, older or newer than this program.
    Schema,
    /// The operator's: the database turned the program away, for want of a right or a password, or because the bucket was
    /// moved to another database.
    Refused,
    /// The database's, or the machine's: anything else.
    Database,
}

impl ErrorKind {
    /// Its stable name, for logs, labels and answers to programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::UnknownZone => "unknown_zone",
            Self::Transient => "transient",
            Self::Schema => "schema",
            Self::Refused => "refused",
            Self::Database => "database",
        }
    }
}

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable name of its kind: `invalid`, `conflict`, `unknown_zone`, `transient`, `schema`, `refused`, `database`.
    pub fn code(&self) -> &'static str {
        self.kind.as_str()
    }

    /// True when the request itself is wrong (empty key, negative cost, no such transaction, …): nothing was
    /// written, and trying again will not help.
    pub fn is_invalid(&self) -> bool {
        self.kind == ErrorKind::Invalid
    }

    /// True when there is no zone of this name, which the operator forgot and no caller can mend.
    pub fn is_unknown_zone(&self) -> bool {
        self.kind == ErrorKind::UnknownZone
    }

    /// True when the transaction was decided before with another cost or member: nothing was written.
    pub fn is_conflict(&self) -> bool {
        self.kind == ErrorKind::Conflict
    }

    /// True when the same call may succeed later: a deadline passed, a lock was not had, a connection broke.
    /// Asking again with the same transaction id tells what became of the check.
    pub fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Transient
    }

    /// True when the database's schema is missing, older or newer than this program.
    pub fn is_schema(&self) -> bool {
        self.kind == ErrorKind::Schema
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn unknown_zone(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::UnknownZone, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub(crate) fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, message)
    }

    pub(crate) fn schema(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Schema, message)
    }

    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Database, message)
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the setting that is wrong, by its column.
    pub(crate) fn of(self, column: &'static str) -> Self {
        Self { column: Some(column), ..self }
    }

    /// The same of a setting that was read, and that no program stores.
    pub(crate) fn stored(self) -> Self {
        let place = self.column.map(|column| format!("{column:?}: ")).unwrap_or_default();
        Self::database(place + &self.message)
    }

    /// Names the place that the error came from.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same in other words.
    pub(crate) fn told(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), column: None, source: None }
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

/// `{"code":"conflict","message":"transaction … was decided with cost 1, not 2; use a new id"}`.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Error", 2)?;
        fields.serialize_field("code", self.code())?;
        fields.serialize_field("message", &self.message)?;
        fields.end()
    }
}
