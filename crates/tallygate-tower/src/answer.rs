//! The answer to a request that does not reach the service.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;
use tallygate::{Combined, Decision, Error, ErrorKind, Reason};

use crate::ConfigError;
use crate::fields::retry_after_s;

/// The decisions about a request: an extension of the request, for the service, and of the answer, for layers outside. A handler
/// that checks by itself makes it of what it was told.
#[derive(Clone, Debug)]
pub struct Decided(Arc<[Decision]>);

/// The answers to a request that was blocked.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnBlocked {
    /// 429 with a problem document (RFC 9457): which limits, which transaction, how long to wait.
    #[default]
    Problem,
    /// 429 with a line of text.
    Text,
    /// 303 to another place, which [`redirect`](Self::redirect) makes.
    Redirect(Target),
    /// It passes, and the service does less for it: [`Decided::is_blocked`] is true of the request's extension, and the
    /// header `tallygate-reduced: 1` says so to a service behind.
    Reduce,
    /// The answer that a closure makes of it. Header fields are added.
    With(Answering),
}

/// The answer of a closure.
pub type Answering = Arc<dyn Fn(&Decided) -> Response<Bytes> + Send + Sync>;

/// The address that blocked requests are sent to.
#[derive(Clone, Debug)]
pub struct Target {
    location: HeaderValue,
    /// The path, where it is of this service.
    pub(crate) path: Option<Arc<str>>,
}

impl OnBlocked {
    /// 303 to a page that explains, or asks for a proof that somebody is human. Requests for a path are never limited by this
    /// layer, so that nobody is sent in circles; a URL is taken to be of another service.
    ///
    /// # Errors
    /// It is no URI.
    pub fn redirect(uri: &str) -> Result<Self, ConfigError> {
        let wrong =
            || ConfigError::new(format!("{uri:?} is no URI to redirect to; use a path as /slow or a URL"));
        let parsed: http::Uri = uri.parse().map_err(|_| wrong())?;
        let location = HeaderValue::from_str(uri).map_err(|_| wrong())?;
        let path = parsed.authority().is_none().then(|| parsed.path().into());
        Ok(Self::Redirect(Target { location, path }))
    }

    /// Answers with what a closure makes of it.
    pub fn with(answer: impl Fn(&Decided) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        Self::With(Arc::new(answer))
    }
}

impl fmt::Debug for OnBlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Problem => "Problem",
            Self::Text => "Text",
            Self::Redirect(_) => "Redirect",
            Self::Reduce => "Reduce",
            Self::With(_) => "With",
        })
    }
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        Self([decision].into())
    }
}

impl From<Combined> for Decided {
    fn from(combined: Combined) -> Self {
        Self(combined.decisions.into())
    }
}

/// The answer to a request that a handler refuses: what the layer answers by [`OnBlocked::Problem`] to one that is blocked, and what
/// it answers where nothing could be decided. With the feature `axum` it is a response of axum's.
///
/// ```
/// use tallygate::{Check, Limiter};
/// use tallygate_tower::{Decided, Refused};
///
/// async fn login(limiter: &Limiter, user: &str) -> Result<&'static str, Refused> {
///     let decision = limiter.check(Check::new("login", format!("user:{user}"))).await?;
///     Decided::from(decision).passed()?;
///     Ok("welcome")
/// }
/// ```
#[derive(Debug)]
pub struct Refused(Box<Response<Bytes>>);

impl Refused {
    /// As a response of HTTP.
    pub fn into_inner(self) -> Response<Bytes> {
        *self.0
    }
}

/// Nothing was decided.
impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(failed(status, &error))
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refused {
    fn into_response(self) -> axum::response::Response {
        self.into_inner().map(axum::body::Body::from)
    }
}

impl Decided {
    pub(crate) fn new(decisions: Vec<Decision>) -> Self {
        Self(decisions.into())
    }

    /// One for each limit that was about the request, in their order.
    pub fn decisions(&self) -> &[Decision] {
        &self.0
    }

    /// True when one of them blocked it.
    pub fn is_blocked(&self) -> bool {
        self.0.iter().any(|decision| decision.blocked)
    }

    /// Passes, unless one of them blocks the request.
    ///
    /// # Errors
    /// The answer to it: 429 with a problem document, and `Retry-After` where a wait helps.
    pub fn passed(&self) -> Result<(), Refused> {
        let wait_s = retry_after_s(self.0.iter().map(|decision| (decision, None)));
        match refusal(&OnBlocked::Problem, self, wait_s).filter(|_| self.is_blocked()) {
            Some(response) => Err(Refused(Box::new(response))),
            None => Ok(()),
        }
    }

    /// True when one of them warns: it passed beyond its soft limit.
    pub fn is_warned(&self) -> bool {
        self.0.iter().any(|decision| decision.reason == Reason::Soft)
    }

    /// The decisions of a layer outside, and those of this one.
    pub(crate) fn joined(outer: Option<&Self>, inner: &Self) -> Self {
        Self(outer.into_iter().chain([inner]).flat_map(|decided| decided.0.iter().cloned()).collect())
    }

    fn violated(&self) -> impl Iterator<Item = &Decision> {
        self.0.iter().filter(|decision| decision.blocked && decision.reason != Reason::HeldBack)
    }
}

/// The answer to a blocked request; None where it passes all the same.
pub(crate) fn refusal(
    on_blocked: &OnBlocked,
    decided: &Decided,
    wait_s: Option<i64>,
) -> Option<Response<Bytes>> {
    let is_told_again = decided.violated().all(|decision| decision.replayed);
    let wait = || match wait_s {
        Some(1) => "try again in 1 second".to_owned(),
        Some(seconds) => format!("try again in {seconds} seconds"),
        None if is_told_again => "it was blocked before; another Idempotency-Key asks anew".to_owned(),
        None => "the request can never pass as it is".to_owned(),
    };
    let mut response = match on_blocked {
        OnBlocked::Problem => {
            let is_banned = decided.violated().any(|decision| decision.reason == Reason::Banned);
            let kind = if is_banned { "abnormal-usage-detected" } else { "quota-exceeded" };
            problem(
                StatusCode::TOO_MANY_REQUESTS,
                &json!({
                    "type": format!("https://iana.org/assignments/http-problem-types#{kind}"),
                    "title": "Too many requests",
                    "status": 429,
                    "detail": wait(),
                    "violated-policies": decided.violated().map(|decision| &decision.zone).collect::<Vec<_>>(),
                    "transaction": decided.0.first().map(|decision| decision.txn_id),
                }),
            )
        }
        OnBlocked::Text => {
            let text = format!("Too many requests: {}.\n", wait());
            answer(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text.into())
        }
        OnBlocked::Redirect(target) => {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::SEE_OTHER;
            response.headers_mut().insert(LOCATION, target.location.clone());
            // A time to wait would be one before it is followed (RFC 9110, 10.2.3).
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            return Some(response);
        }
        OnBlocked::Reduce => return None,
        OnBlocked::With(answer) => answer(decided),
    };
    if let Some(seconds) = wait_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}

/// The answer where nothing could be decided. The fault is for the operator, and is not told.
fn failure(status: StatusCode, error: &Error) -> Response<Bytes> {
    let title = match status {
        StatusCode::BAD_REQUEST => "What the request says cannot be counted",
        StatusCode::CONFLICT => "The transaction was another one before",
        StatusCode::SERVICE_UNAVAILABLE => "Nothing can be decided now",
        _ => "Nothing can be decided",
    };
    let mut response = refused(status, title, Some(error.code()));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// For the operator: of what a client did wrong only that he did, since it would name his key.
pub(crate) fn failed(status: StatusCode, error: &Error) -> Box<Response<Bytes>> {
    if status.is_server_error() {
        tracing::error!(code = error.code(), %error, "a request was not decided");
    } else {
        tracing::debug!(code = error.code(), "a request was not decided");
    }
    Box::new(failure(status, error))
}

/// An answer with a status and why.
pub(crate) fn refused(status: StatusCode, title: &str, code: Option<&str>) -> Response<Bytes> {
    let mut document = json!({ "type": "about:blank", "title": title, "status": status.as_u16() });
    if let (Some(code), Some(members)) = (code, document.as_object_mut()) {
        members.insert("code".to_owned(), code.into());
    }
    let mut response = problem(status, &document);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The same for a client that speaks gRPC: the status is in the header fields, and there is no body. The code is
/// RESOURCE_EXHAUSTED of what was blocked, UNAVAILABLE where nothing could be decided now.
pub(crate) fn as_grpc(response: Response<Bytes>) -> Response<Bytes> {
    let (mut parts, _) = response.into_parts();
    let status = match parts.status {
        StatusCode::BAD_REQUEST => "3",
        StatusCode::UNAUTHORIZED => "16",
        StatusCode::FORBIDDEN => "7",
        StatusCode::CONFLICT => "10",
        StatusCode::SERVICE_UNAVAILABLE => "14",
        status if status.is_server_error() => "13",
        _ => "8",
    };
    parts.status = StatusCode::OK;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    parts.headers.insert("grpc-status", HeaderValue::from_static(status));
    let wait_s =
        parts.headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse::<i64>().ok());
    if let Some(wait_s) = wait_s {
        parts.headers.insert("grpc-retry-pushback-ms", HeaderValue::from(wait_s.saturating_mul(1000)));
    }
    Response::from_parts(parts, Bytes::new())
}

fn problem(status: StatusCode, document: &serde_json::Value) -> Response<Bytes> {
    answer(status, "application/problem+json", document.to_string().into())
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
