//! From a driver's error to ours: which are the caller's, which pass, and what to do about the others.

use std::error::Error as _;

use crate::error::Error;
use crate::shard::told_elsewhere;

/// The meaning of a database's own code.
pub(super) enum Fault {
    /// The request is wrong; the database's message says how.
    Invalid,
    /// There is no such zone.
    UnknownZone,
    /// The transaction was decided with another cost.
    Conflict,
    /// Another database has the bucket.
    Elsewhere,
    /// Trying again may help.
    Transient,
    /// Tables or routines are missing.
    Unmigrated,
    /// The database turned us away: wrong password, no such database, no right.
    Refused,
    /// Anything else.
    Other,
}

/// Translates, with `judge` reading the codes of one database.
pub(super) fn translate(
    error: sqlx::Error,
    judge: impl Fn(&dyn sqlx::error::DatabaseError) -> Fault,
) -> Error {
    let translated = match &error {
        sqlx::Error::Database(database) => {
            let message = database.message();
            match judge(&**database) {
                Fault::Invalid => Error::invalid(message),
                Fault::UnknownZone => Error::unknown_zone(message),
                Fault::Conflict => Error::conflict(message),
                Fault::Elsewhere => return told_elsewhere(message),
                Fault::Transient => {
                    Error::transient(format!("the database could not finish now: {message}; try again"))
                }
                Fault::Unmigrated => unmigrated(),
                Fault::Refused => {
                    Error::refused(format!("the database refused: {message}{}", remedy(message)))
                }
                Fault::Other => Error::database(format!("the database failed: {message}")),
            }
        }
        sqlx::Error::Io(io) => Error::transient(format!(
            "the connection to the database failed: {io}; check that the server runs and can be reached"
        )),
        sqlx::Error::PoolTimedOut => Error::transient(
            "no connection to the database was free in time; try again, or allow more connections",
        ),
        sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::PoolClosed
        | sqlx::Error::BeginFailed => {
            Error::transient(format!("the connection to the database broke: {error}; try again"))
        }
        sqlx::Error::Tls(tls) => Error::database(format!("no secure connection to the database: {tls}")),
        // Parsing a URL can fail with the URL in the message, and with it the password.
        sqlx::Error::Configuration(_) => {
            return Error::invalid(
                "the database URL cannot be read; it looks like postgres://user:password@host:5432/name",
            );
        }
        _ => Error::database(format!("the database's answer could not be used: {error}")),
    };
    translated.caused_by(error)
}

/// The role that a user lacks, by what the database says that it may not do.
fn remedy(message: &str) -> String {
    let names = |part: &str| message.contains(part);
    let role = match () {
        () if !["permission denied for", "denied to user", "to database"].iter().any(|part| names(part)) => {
            return String::new();
        }
        () if names("zone_engine_") => "app",
        // It is read before a zone is set.
        () if names("zone_clock_view") => "operator",
        () if names("_view") => "auditor",
        () if ["zone_operator_", "zone_master", "zone_version", "zone_calendar"]
            .iter()
            .any(|part| names(part)) =>
        {
            "operator"
        }
        () if names("for function") || names("for routine") => "caller",
        () if names("for table") => "owner",
        // To the whole schema: whichever role its work needs.
        () => "app|caller|auditor|operator|owner",
    };
    format!("; let an owner run: tallygate grant {role} USER")
}

/// The error of who is no operator.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn no_operator() -> Error {
    Error::refused(
        "bans and overrides take the role operator; let an owner run: tallygate grant operator USER",
    )
}

/// True of what passes when the server itself told it, and so took the call back. The fate of a call whose connection
/// broke is not known.
pub(crate) fn was_taken_back(error: &Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    // A class of its own are connections that broke behind a pooler.
    let told =
        |said: &dyn sqlx::error::DatabaseError| !said.code().is_some_and(|code| code.starts_with("08"));
    error.is_transient() && matches!(source, Some(sqlx::Error::Database(said)) if told(&**said))
}

/// True of what another server of the same data may not answer: this one is gone, ends, only reads, or has lost the others.
pub(super) fn is_of_the_server(error: &Error) -> bool {
    match error.source().and_then(|source| source.downcast_ref()) {
        Some(sqlx::Error::Database(said)) => {
            let of_class = |code: &str| code.starts_with("08") || code.starts_with("57P") || code == "25006";
            said.code().is_some_and(|code| of_class(&code)) || is_of_a_node(&**said)
        }
        Some(sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut) => true,
        Some(sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed) => true,
        _ => false,
    }
}

/// True of what a server said, other than of itself: so it is there.
pub(super) fn is_told(error: &Error) -> bool {
    !error.is_transient() || error.source().is_some() && !is_of_the_server(error)
}

#[cfg(feature = "mysql")]
fn is_of_a_node(said: &dyn sqlx::error::DatabaseError) -> bool {
    // The server ends, is read only, has left its group or does not catch up with it.
    [1053, 1290, 1836, 1927, 3100, 3796, 3797].contains(&super::mysql::number_of(said))
}

#[cfg(not(feature = "mysql"))]
fn is_of_a_node(_: &dyn sqlx::error::DatabaseError) -> bool {
    false
}

/// The error of every call on a database without our tables and routines.
pub(super) fn unmigrated() -> Error {
    Error::schema("the database has no tallygate schema; run: tallygate migrate")
}
