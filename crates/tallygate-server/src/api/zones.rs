//! Zones, and what a person sets in them. Who it was is the name of the token.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Deserializer, Serialize};
use tallygate::Recorded;
use tallygate::audit::Bucket;
use tallygate::policy::{Limit, Overridden, Override, Terms, Zone, ZoneVersion, parse_duration};

use super::body::Asked;
use super::read::{path, query};
use crate::app::App;
use crate::caller::{Caller, Right};
use crate::problem::Problem;

#[derive(Serialize)]
pub(crate) struct Zones {
    zones: Vec<Zone>,
}

#[derive(Serialize)]
pub(crate) struct Shown {
    zone: Zone,
    versions: Vec<ZoneVersion>,
}

#[derive(Serialize)]
pub(crate) struct Bans {
    bans: Vec<Bucket>,
}

#[derive(Serialize)]
pub(crate) struct Overrides {
    overrides: Vec<Overridden>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ban {
    #[serde(rename = "for", deserialize_with = "span")]
    time: Duration,
    note: String,
}

/// A limit of its own for a bucket, or none and no bans.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetOverride {
    rate: Option<i64>,
    #[serde(default, deserialize_with = "span_if")]
    per: Option<Duration>,
    burst: Option<i64>,
    #[serde(default)]
    ban_exempt: bool,
    #[serde(default, rename = "for", deserialize_with = "span_if")]
    time: Option<Duration>,
    note: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    note: String,
}

type Named<T> = Result<Path<T>, PathRejection>;
type Noted = Result<Query<Note>, QueryRejection>;

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Zones>, Problem> {
    caller.must(Right::Auditor)?;
    let mut zones = app.zones().zones().await?;
    zones.retain(|zone| caller.sees(&zone.name));
    Ok(Json(Zones { zones }))
}

pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    name: Named<String>,
) -> Result<Json<Shown>, Problem> {
    let name = path(name)?;
    caller.may(Right::Auditor, &name)?;
    let zone = app.zones().zone(&name).await.map_err(Problem::of_read)?;
    let zone = zone.ok_or_else(|| Problem::not_found(format!("there is no zone {name:?}")))?;
    let versions = app.zones().zone_versions(&zone).await?;
    Ok(Json(Shown { zone, versions }))
}

pub(crate) async fn set(
    State(app): State<App>,
    caller: Caller,
    name: Named<String>,
    Asked { what: terms, .. }: Asked<Terms>,
) -> Result<Json<Zone>, Problem> {
    let name = path(name)?;
    caller.may(Right::Operator, &name)?;
    let (policy, description) = (terms.policy()?, terms.description.as_deref());
    Ok(Json(app.operator().set_zone(&name, &policy, description, caller.name()).await?))
}

pub(crate) async fn bans(
    State(app): State<App>,
    caller: Caller,
    zone: Named<String>,
) -> Result<Json<Bans>, Problem> {
    let zone = path(zone)?;
    caller.may(Right::Auditor, &zone)?;
    Ok(Json(Bans { bans: app.auditor().bans(&zone).await.map_err(Problem::of_read)? }))
}

pub(crate) async fn ban(
    State(app): State<App>,
    caller: Caller,
    bucket: Named<(String, String)>,
    Asked { what: Ban { time, note }, .. }: Asked<Ban>,
) -> Result<Json<Recorded>, Problem> {
    let (zone, key) = path(bucket)?;
    caller.may(Right::Operator, &zone)?;
    Ok(Json(app.operator().ban(&zone, &key, time, &note, caller.name()).await?))
}

pub(crate) async fn unban(
    State(app): State<App>,
    caller: Caller,
    bucket: Named<(String, String)>,
    note: Noted,
) -> Result<Json<Recorded>, Problem> {
    let (zone, key) = path(bucket)?;
    caller.may(Right::Operator, &zone)?;
    Ok(Json(app.operator().unban(&zone, &key, &query(note)?.note, caller.name()).await?))
}

pub(crate) async fn overrides(
    State(app): State<App>,
    caller: Caller,
    zone: Named<String>,
) -> Result<Json<Overrides>, Problem> {
    let zone = path(zone)?;
    caller.may(Right::Auditor, &zone)?;
    Ok(Json(Overrides { overrides: app.zones().overrides(&zone).await.map_err(Problem::of_read)? }))
}

pub(crate) async fn set_override(
    State(app): State<App>,
    caller: Caller,
    bucket: Named<(String, String)>,
    Asked { what: SetOverride { rate, per, burst, ban_exempt, time, note }, .. }: Asked<SetOverride>,
) -> Result<Json<Recorded>, Problem> {
    let (zone, key) = path(bucket)?;
    caller.may(Right::Operator, &zone)?;
    let limit = match (rate, per) {
        (Some(rate), Some(per)) => Some(Limit::new(rate, per, burst)?),
        (None, None) if burst.is_none() => None,
        _ => {
            return Err(Problem::invalid(
                "a limit is a rate and its window; send both, as in {\"rate\":50,\"per\":\"60s\"}",
            ));
        }
    };
    let for_us = time.map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    let over = Override { limit, ban_exempt, for_us };
    Ok(Json(app.operator().set_override(&zone, &key, over, &note, caller.name()).await?))
}

pub(crate) async fn remove_override(
    State(app): State<App>,
    caller: Caller,
    bucket: Named<(String, String)>,
    note: Noted,
) -> Result<Json<Recorded>, Problem> {
    let (zone, key) = path(bucket)?;
    caller.may(Right::Operator, &zone)?;
    Ok(Json(app.operator().remove_override(&zone, &key, &query(note)?.note, caller.name()).await?))
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn span_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    span(deserializer).map(Some)
}
