//! The JSON of protocol buffers: requests as they are read, answers as they are written.

use prost_types::value::Kind;
use prost_types::{Duration, Struct};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value, json};
use tonic::Status;

use crate::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use crate::proto::rate_limit_response::rate_limit::Unit;
use crate::proto::rate_limit_response::{Code, DescriptorStatus};
use crate::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};

/// Reads a request. Names are in either form, numbers may be texts, null is as if it were not there.
pub(crate) fn request(body: &[u8]) -> Result<RateLimitRequest, Status> {
    let request: RequestSaid = serde_json::from_slice(body)
        .map_err(|error| Status::invalid_argument(format!("no RateLimitRequest as JSON: {error}")))?;
    Ok(RateLimitRequest {
        domain: request.domain.unwrap_or_default(),
        descriptors: list(request.descriptors),
        hits_addend: request.hits_addend.unwrap_or_default().0,
    })
}

/// Writes an answer; what is as it is by itself is left out.
pub(crate) fn response(response: &RateLimitResponse) -> String {
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), code(response.overall_code));
    fields.insert("statuses".to_owned(), response.statuses.iter().map(status).collect());
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), structure(metadata));
    }
    Value::Object(fields).to_string()
}

/// Writes why there is no answer.
pub(crate) fn failure(status: &Status) -> String {
    json!({ "code": i32::from(status.code()), "message": status.message() }).to_string()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequestSaid {
    domain: Option<String>,
    descriptors: Option<Vec<DescriptorSaid>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DescriptorSaid {
    entries: Option<Vec<EntrySaid>>,
    limit: Option<OverrideSaid>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntrySaid {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OverrideSaid {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Whole<u32>>,
    unit: Option<UnitSaid>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UnitSaid {
    Name(String),
    Number(i32),
}

/// A whole number, which may be a text.
#[derive(Clone, Copy, Default)]
struct Whole<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = Value::deserialize(deserializer)?;
        let number = match &said {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) => text.parse::<Number>().ok(),
            _ => None,
        };
        let whole = number.and_then(|number| number.as_u64().or_else(|| whole(number.as_f64()?)));
        let wrong = || {
            D::Error::invalid_value(Unexpected::Other("something else"), &"a whole number that is in range")
        };
        whole.and_then(|whole| T::try_from(whole).ok()).map(Self).ok_or_else(wrong)
    }
}

/// `1.0` and `1e3` are whole numbers; beyond 2^53 nobody knows which.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is looked at before")]
fn whole(number: f64) -> Option<u64> {
    let is_whole = (0.0..=9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
    is_whole.then_some(number as u64)
}

fn list<T: Into<U>, U>(said: Option<Vec<T>>) -> Vec<U> {
    said.into_iter().flatten().map(Into::into).collect()
}

impl From<DescriptorSaid> for RateLimitDescriptor {
    fn from(said: DescriptorSaid) -> Self {
        Self {
            entries: list(said.entries),
            limit: said.limit.map(Into::into),
            hits_addend: said.hits_addend.map(|hits| hits.0),
            is_negative_hits: said.is_negative_hits.unwrap_or_default(),
        }
    }
}

impl From<EntrySaid> for Entry {
    fn from(said: EntrySaid) -> Self {
        Self { key: said.key.unwrap_or_default(), value: said.value.unwrap_or_default() }
    }
}

impl From<OverrideSaid> for RateLimitOverride {
    fn from(said: OverrideSaid) -> Self {
        // Which unit it is does not matter: it is not looked at.
        let unit = match said.unit {
            Some(UnitSaid::Name(name)) => RateLimitUnit::from_str_name(&name).unwrap_or_default().into(),
            Some(UnitSaid::Number(number)) => number,
            None => 0,
        };
        Self { requests_per_unit: said.requests_per_unit.unwrap_or_default().0, unit }
    }
}

fn status(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), code(status.code));
    if let Some(limit) = &status.current_limit {
        let mut told = Map::new();
        told.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
        if limit.unit != 0 {
            let unit = Unit::try_from(limit.unit).unwrap_or_default();
            told.insert("unit".to_owned(), unit.as_str_name().into());
        }
        told.insert("name".to_owned(), limit.name.as_str().into());
        fields.insert("currentLimit".to_owned(), told.into());
    }
    if status.limit_remaining != 0 {
        fields.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(Duration { seconds, .. }) = status.duration_until_reset {
        fields.insert("durationUntilReset".to_owned(), format!("{seconds}s").into());
    }
    fields.into()
}

fn code(code: i32) -> Value {
    Code::try_from(code).unwrap_or_default().as_str_name().into()
}

fn structure(of: &Struct) -> Value {
    of.fields.iter().map(|(name, field)| (name.clone(), value(field.kind.as_ref()))).collect()
}

fn value(kind: Option<&Kind>) -> Value {
    match kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(is_so)) => (*is_so).into(),
        Some(Kind::StructValue(of)) => structure(of),
        Some(Kind::ListValue(list)) => list.values.iter().map(|item| value(item.kind.as_ref())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_a_request_is_read() {
        let said = r#"{"domain":"shop","hitsAddend":"2","descriptors":[
            {"entries":[{"key":"path","value":"/login"},{"key":"user"}],"hits_addend":3,"isNegativeHits":true},
            {"limit":{"requestsPerUnit":1e1,"unit":"MINUTE"},"hitsAddend":null,"entries":null},
            {"limit":{"requests_per_unit":7.0,"unit":4}}]}"#;
        let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
        let limit = |requests_per_unit, unit| RateLimitDescriptor {
            limit: Some(RateLimitOverride { requests_per_unit, unit }),
            ..RateLimitDescriptor::default()
        };
        let expected = RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![
                RateLimitDescriptor {
                    entries: vec![entry("path", "/login"), entry("user", "")],
                    limit: None,
                    hits_addend: Some(3),
                    is_negative_hits: true,
                },
                limit(10, 2),
                limit(7, 4),
            ],
            hits_addend: 2,
        };
        assert_eq!(request(said.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for said in [
            "",
            "[]",
            "{",
            r#"{"domain":1}"#,
            r#"{"domian":"shop"}"#,
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":1.5}"#,
            r#"{"hitsAddend":4294967296}"#,
            r#"{"hitsAddend":true}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"descriptors":[null]}"#,
            r#"{"descriptors":[{"hitsAddend":"1e400"}]}"#,
            "{\"domain\":\"\u{ff}",
        ] {
            let status = request(said.as_bytes()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{said}: {status}");
        }
    }

    proptest! {
        #![proptest_config(crate::tests::cases())]

        #[test]
        fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\":,a-z0-9.eE+-]{0,80}") {
            drop(request(&bytes));
            drop(request(text.as_bytes()));
        }
    }
}
