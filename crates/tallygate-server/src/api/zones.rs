//! Zones, and what a person sets in them. The name of the token is recorded with it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use tallygate::Recorded;
use tallygate::audit::Bucket;
use tallygate::policy::{Limit, Overridden, Override, Terms, Zone, ZoneVersion, parse_duration};

use super::body::Asked;
use super::head::{By, InBucket, InZone, Queried, There, role};
use crate::app::App;
use crate::problem::Problem;

/// Zones that the caller may look at.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Zones {
    zones: Vec<Zone>,
}

/// A zone, and how it came to be so.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    zone: Zone,
    versions: Vec<ZoneVersion>,
}

/// Buckets that are banned now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bans {
    bans: Vec<Bucket>,
}

/// Limits of buckets' own that are in force.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Overrides {
    overrides: Vec<Overridden>,
}

/// A ban: for how long, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ban {
    /// With its unit: 15m, 30d.
    #[serde(rename = "for", deserialize_with = "span")]
    #[schemars(with = "String")]
    time: Duration,
    note: String,
}

/// A limit of its own for a bucket, or none and no bans.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetOverride {
    /// Goes with `per`.
    rate: Option<i64>,
    /// The window, with its unit: 60s, 24h.
    #[serde(default, deserialize_with = "span_if")]
    #[schemars(with = "String")]
    per: Option<Duration>,
    burst: Option<i64>,
    #[serde(default)]
    ban_exempt: bool,
    /// With its unit; without it, for ever.
    #[serde(default, rename = "for", deserialize_with = "span_if")]
    #[schemars(with = "String")]
    time: Option<Duration>,
    note: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// Why, for whoever reads the ledger.
    note: String,
}

type Answer<T> = Result<Json<T>, Problem>;
type Audited = There<role::Auditor, InZone>;
type Operated<P> = There<role::Operator, P>;

pub(crate) async fn list(State(app): State<App>, caller: By<role::Auditor>) -> Answer<Zones> {
    let mut zones = app.zones().zones().await?;
    zones.retain(|zone| caller.sees(&zone.name));
    Ok(Json(Zones { zones }))
}

pub(crate) async fn show(
    State(app): State<App>,
    There { place: InZone { zone: name }, .. }: Audited,
) -> Answer<Shown> {
    let zone = app.zones().zone(&name).await.map_err(Problem::of_read)?;
    let zone = zone.ok_or_else(|| Problem::not_found(format!("there is no zone {name:?}")))?;
    let versions = app.zones().zone_versions(&zone).await?;
    Ok(Json(Shown { zone, versions }))
}

pub(crate) async fn set(
    State(app): State<App>,
    There { caller, place: InZone { zone } }: Operated<InZone>,
    Asked(terms): Asked<Terms>,
) -> Answer<Zone> {
    let (policy, description) = (terms.policy()?, terms.description.as_deref());
    Ok(Json(app.operator().set_zone(&zone, &policy, description, caller.name()).await?))
}

pub(crate) async fn bans(
    State(app): State<App>,
    There { place: InZone { zone }, .. }: Audited,
) -> Answer<Bans> {
    Ok(Json(Bans { bans: app.auditor().bans(&zone).await.map_err(Problem::of_read)? }))
}

pub(crate) async fn ban(
    State(app): State<App>,
    There { caller, place: InBucket { zone, key } }: Operated<InBucket>,
    Asked(Ban { time, note }): Asked<Ban>,
) -> Answer<Recorded> {
    Ok(Json(app.operator().ban(&zone, &key, time, &note, caller.name()).await?))
}

pub(crate) async fn unban(
    State(app): State<App>,
    There { caller, place: InBucket { zone, key } }: Operated<InBucket>,
    Queried(Note { note }): Queried<Note>,
) -> Answer<Recorded> {
    Ok(Json(app.operator().unban(&zone, &key, &note, caller.name()).await?))
}

pub(crate) async fn overrides(
    State(app): State<App>,
    There { place: InZone { zone }, .. }: Audited,
) -> Answer<Overrides> {
    Ok(Json(Overrides { overrides: app.zones().overrides(&zone).await.map_err(Problem::of_read)? }))
}

pub(crate) async fn set_override(
    State(app): State<App>,
    There { caller, place: InBucket { zone, key } }: Operated<InBucket>,
    Asked(SetOverride { rate, per, burst, ban_exempt, time, note }): Asked<SetOverride>,
) -> Answer<Recorded> {
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
    There { caller, place: InBucket { zone, key } }: Operated<InBucket>,
    Queried(Note { note }): Queried<Note>,
) -> Answer<Recorded> {
    Ok(Json(app.operator().remove_override(&zone, &key, &note, caller.name()).await?))
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn span_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    span(deserializer).map(Some)
}
