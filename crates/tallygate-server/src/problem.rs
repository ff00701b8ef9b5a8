//! The answer to a request that was not done: a problem document (RFC 9457) with a stable code.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tallygate::{Error, ErrorKind};

/// An answer with a status and why.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

/// The request that was not done, and why.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    /// Stable, for programs.
    code: &'a str,
    /// The fault and the remedy, for people.
    detail: &'a str,
}

/// Each status of a problem with its codes, and what it means.
pub(crate) const MEANINGS: [(u16, &[&str], &str); 10] = [
    (400, &["invalid"], "The request is wrong; nothing was written."),
    (401, &["unknown_caller"], "No token, or one that nobody has."),
    (403, &["forbidden"], "The token is not for this, or not for this zone."),
    (404, &["not_found"], "What is to be read is not there."),
    (408, &["invalid"], "The body did not come in time."),
    (409, &["conflict"], "The transaction was another one before, or there is nothing to undo."),
    (413, &["invalid"], "The body is too long."),
    (415, &["invalid"], "The body is not of the type that is read here."),
    (
        500,
        &["unknown_zone", "schema", "refused", "database"],
        "A check names a zone that nobody made, or the database cannot do it.",
    ),
    (
        503,
        &["transient", "leaving"],
        "Not now; send it again after Retry-After, with the same Idempotency-Key.",
    ),
];

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    /// The request itself is wrong.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// Nobody knows who asks.
    pub fn unknown_caller(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unknown_caller", detail)
    }

    /// The caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The thing that is asked for is not there.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The server is about to end.
    pub fn leaving() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "leaving", "the server is about to end; ask another one")
    }

    /// Of a request that names a zone to look at, and not to decide in: that it is not there is the answer.
    pub fn of_read(error: Error) -> Self {
        if error.is_unknown_zone() { Self::not_found(error.to_string()) } else { error.into() }
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// The caller is told what he can mend. The rest is the operator's, and stands in the log.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, is_told) = match error.kind() {
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, true),
            ErrorKind::Conflict => (StatusCode::CONFLICT, true),
            ErrorKind::UnknownZone => (StatusCode::INTERNAL_SERVER_ERROR, true),
            ErrorKind::Transient => (StatusCode::SERVICE_UNAVAILABLE, false),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, false),
        };
        if is_told {
            return Self::new(status, error.code(), error.to_string());
        }
        tracing::error!(code = error.code(), %error, "a request could not be done");
        let detail = match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                "the database did not finish it now; try again with the same Idempotency-Key, under which it is done once"
            }
            _ => "the database cannot do this; the server's log says why",
        };
        Self::new(status, error.code(), detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Not done"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        };
        let mut response = (self.status, serde_json::to_vec(&document).unwrap_or_default()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
