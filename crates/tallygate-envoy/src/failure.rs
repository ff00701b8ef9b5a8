//! The answer to Envoy where nothing was decided. It names zones and remedies, and never a bucket's key.

use http::StatusCode;
use tallygate::policy::Algorithm;
use tallygate::{Error, ErrorKind, Policy};
use tonic::{Code, Status};

/// The status of an error of the limiter about these zones.
pub(crate) fn failed(error: &Error, zones: &str) -> Status {
    // Of what a client did wrong only that he did, since it would name his key.
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Conflict => {
            tracing::debug!(code = error.code(), zones, "a request was not decided");
        }
        _ => tracing::error!(code = error.code(), zones, %error, "a request was not decided"),
    }
    match error.kind() {
        ErrorKind::Transient => Status::unavailable(
            "the database of the limits did not answer in time; try again, and see the log of the service",
        ),
        ErrorKind::UnknownZone => Status::failed_precondition(format!(
            "a zone of {zones} is not there; make it with: tallygate zone set, or take it out of the mapping"
        )),
        ErrorKind::Conflict => Status::aborted(format!(
            "the transaction was decided before in zones of {zones}, with another cost or together with other limits, or \
             its charge has ended; name another one"
        )),
        ErrorKind::Invalid => Status::invalid_argument(format!(
            "the request cannot be counted in the zones {zones}; look at their policies and at the mapping"
        )),
        ErrorKind::Schema => Status::failed_precondition(
            "the database has not the schema of this program; run: tallygate migrate, or install the newer program",
        ),
        ErrorKind::Refused => Status::failed_precondition(
            "the database refuses the service; give it those of an application with: tallygate grant app",
        ),
        _ => Status::internal("the database failed; see the log of the service"),
    }
}

/// The part of a zone that Envoy has no use for.
pub(crate) fn unfit(zone: &str, policy: &Policy) -> Option<String> {
    let why = match policy.algorithm() {
        Algorithm::Distinct => "counts members, of which Envoy names none; use sliding-log",
        Algorithm::LeakyQueue => "gives turns to wait for, and Envoy does not wait; use leaky-bucket",
        _ => return None,
    };
    Some(format!("zone {zone:?} {why}"))
}

/// The same by HTTP.
pub(crate) fn as_http(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::Aborted => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
