//! The answer to a client where nothing was granted.

use tallygate::{Error, ErrorKind};
use tonic::Status;

/// The status of an error of the limiter about a resource.
pub(crate) fn failed(error: &Error, resource: &str) -> Status {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::UnknownZone => {
            tracing::debug!(code = error.code(), "nothing was granted");
        }
        _ => tracing::error!(code = error.code(), %error, "nothing was granted"),
    }
    match error.kind() {
        ErrorKind::Invalid => Status::invalid_argument(format!("resource {resource:?}: {error}")),
        ErrorKind::UnknownZone => unknown(resource),
        ErrorKind::Conflict => Status::aborted(format!("resource {resource:?}: {error}")),
        ErrorKind::Transient => Status::unavailable(format!(
            "resource {resource:?}: the database did not answer in time; try again, and see the log of the service"
        )),
        ErrorKind::Schema => Status::failed_precondition(
            "the database has not the schema of this program; run: tallygate migrate, or install the newer program",
        ),
        ErrorKind::Refused => Status::failed_precondition(
            "the database refuses the service; give it the role with: tallygate grant app",
        ),
        _ => Status::internal("the database failed; see the log of the service"),
    }
}

pub(crate) fn unknown(resource: &str) -> Status {
    Status::not_found(format!(
        "resource {resource:?} is of no zone; make one of that name with: tallygate zone set, or a template that fits it"
    ))
}
