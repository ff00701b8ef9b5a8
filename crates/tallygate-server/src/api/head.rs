//! The head of a request: who asks, what the path names, what the query adds.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
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
        let key = key.to_str().ok().filter(|_| keys.next().is_none()).and_then(|key| key.trim().parse().ok());
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
        let query = percent_decode_str(head.uri.query().unwrap_or_default());
        query
            .decode_utf8()
            .map_err(|_| Problem::invalid("the query is no UTF-8; percent-encode it as that"))?;
        let Query(said) = Query::from_request_parts(head, app)
            .await
            .map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(said))
    }
}
