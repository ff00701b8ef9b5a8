//! The head of a request: who asks, what the path names, what the query adds.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::app::App;
use crate::caller::{Caller, Right};
use crate::problem::Problem;

/// The rights as types: what a handler takes is what its route is told to take.
pub(crate) mod role {
    use super::Right;

    pub(crate) trait Role: Send + Sync {
        const RIGHT: Right;
    }

    pub(crate) enum App {}
    pub(crate) enum Auditor {}
    pub(crate) enum Operator {}

    impl Role for App {
        const RIGHT: Right = Right::App;
    }

    impl Role for Auditor {
        const RIGHT: Right = Right::Auditor;
    }

    impl Role for Operator {
        const RIGHT: Right = Right::Operator;
    }
}

use role::Role;

/// A caller of this role, in whatever zones.
pub(crate) struct By<R>(Caller, PhantomData<R>);

/// A caller who may do this in the zone that the path names.
pub(crate) struct There<R, P> {
    pub caller: By<R>,
    pub place: P,
}

/// The transaction that the header `Idempotency-Key` names.
pub(crate) struct Idempotency(pub Option<Uuid>);

/// The names in the path.
pub(crate) struct Named<T>(pub T);

/// The values of the query.
pub(crate) struct Queried<T>(pub T);

/// A transaction of a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Transaction {
    pub txn: Uuid,
}

/// A zone of a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct InZone {
    pub zone: String,
}

/// A bucket of a path.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct InBucket {
    pub zone: String,
    pub key: String,
}

pub(crate) trait Place: DeserializeOwned + Send {
    fn zone(&self) -> &str;
}

impl Place for InZone {
    fn zone(&self) -> &str {
        &self.zone
    }
}

impl Place for InBucket {
    fn zone(&self) -> &str {
        &self.zone
    }
}

impl Idempotency {
    pub const HEADER: &str = "Idempotency-Key";
}

/// Refuses the header where nothing is done once by it: whoever sends it would rely on that.
pub(crate) async fn unnamed(request: Request, next: Next) -> Result<Response, Problem> {
    if request.headers().contains_key(Idempotency::HEADER) {
        let detail = "Idempotency-Key counts for nothing here; leave it out, and look what was done before you ask again";
        return Err(Problem::invalid(detail));
    }
    Ok(next.run(request).await)
}

impl<R> Deref for By<R> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl<R: Role> FromRequestParts<App> for By<R> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = app.identify(head)?;
        caller.must(R::RIGHT)?;
        Ok(Self(caller, PhantomData))
    }
}

impl<R: Role, P: Place> FromRequestParts<App> for There<R, P> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = By::from_request_parts(head, app).await?;
        let Named(place) = Named::<P>::from_request_parts(head, app).await?;
        caller.within(place.zone())?;
        Ok(Self { caller, place })
    }
}

impl FromRequestParts<App> for Idempotency {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Problem> {
        let mut keys = head.headers.get_all(Self::HEADER).iter();
        let Some(key) = keys.next() else { return Ok(Self(None)) };
        let key = key.to_str().ok().filter(|_| keys.next().is_none()).map(str::trim);
        // As a string of a structured field it is in quotes.
        let key = key.map(|key| key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key));
        let key = key.and_then(|key| key.parse().ok());
        let unreadable = "Idempotency-Key is not one UUID; a new one names a new transaction";
        key.map(|key| Self(Some(key))).ok_or_else(|| Problem::invalid(unreadable))
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(named) =
            Path::from_request_parts(head, app).await.map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(named))
    }
}

impl<T: DeserializeOwned> FromRequestParts<App> for Queried<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Problem> {
        // A text that is no UTF-8 would be read as something else.
        let query = head.uri.query().unwrap_or_default();
        if query.contains('+') {
            // A form has it for a space, and a key that begins with one is not found.
            return Err(Problem::invalid("the query has a \"+\"; write %2B for it, and %20 for a space"));
        }
        percent_decode_str(query)
            .decode_utf8()
            .map_err(|_| Problem::invalid("the query is no UTF-8; percent-encode it as that"))?;
        let Query(said) = Query::from_request_parts(head, app)
            .await
            .map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(said))
    }
}
