//! Bodies of requests: whole, bounded in size and in time, and of JSON.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;

use crate::app::{App, single};
use crate::config::Limits;
use crate::problem::Problem;

/// A body, as it was read.
pub(crate) struct Asked<T>(pub T);

/// A value that is read from an object, and not from an array of its values without their names.
pub(crate) struct Object<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Asked<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        expect(request.headers(), "application/json")?;
        let body = whole(request.into_body(), app.limits()).await?;
        let Object(what) =
            serde_json::from_slice(&body).map_err(|error| Problem::invalid(format!("the body: {error}")))?;
        Ok(Self(what))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Named(PhantomData))
    }
}

/// A body that is read at once.
pub(crate) async fn whole(body: Body, limits: &Limits) -> Result<Bytes, Problem> {
    let read =
        timeout(Duration::from_secs(limits.body_s), Limited::new(body, limits.body_bytes).collect()).await;
    let read = read.map_err(|_| too_slow())?.map_err(|error| unread(&*error, limits.body_bytes))?;
    Ok(read.to_bytes())
}

/// A page of another site cannot send this type without asking first.
pub(crate) fn expect(headers: &HeaderMap, kind: &str) -> Result<(), Problem> {
    let value = single(headers, CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let told = value.split(';').next().unwrap_or_default().trim();
    if told.eq_ignore_ascii_case(kind) {
        return Ok(());
    }
    let detail = format!("the body is to be of the type {kind}; send Content-Type: {kind}");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid", detail))
}

pub(crate) fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "invalid", "the body did not come in time")
}

fn unread(error: &(dyn std::error::Error + 'static), most: usize) -> Problem {
    if error.is::<LengthLimitError>() { too_large(most) } else { Problem::invalid("the body broke off") }
}

pub(crate) fn too_large(most: usize) -> Problem {
    let detail = format!("it is longer than {most} bytes; send less at a time, or raise limits.body_bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid", detail)
}
