//! The list of clients/conformance, asked as Envoy asks.

#[path = "../../../clients/conformance/steps.rs"]
mod steps;

use std::collections::{BTreeSet, HashMap};

use prost_types::value::Kind;
use serde_json::{Map, Value, json};
use tallygate::uuid::Uuid;
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::rate_limit_response::Code;
use tallygate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tallygate_envoy::{Mapping, RateLimits};
use tonic::Request;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use crate::steps::Step;

/// The reasons of steps that Envoy has no way to say, or that mean something else where it says them.
const RESERVES: &str = "Envoy reserves nothing";
const MEMBERS: &str = "Envoy names no members";
const CRITICAL: &str = "Envoy does not say who may take from the reserve";
const NEGATIVE: &str = "hits are not negative";
const EMPTY: &str = "an empty value has a bucket";
const LONG: &str = "a long value is hashed";
const TWICE: &str = "the same bucket twice is asked for the sum";

/// A limit for each zone that a step names, whose buckets are of the key of the step.
fn mapping() -> Mapping {
    let checks = steps::list().steps.into_iter().flat_map(|step| step.checks());
    let zones: BTreeSet<_> = checks.map(|check| check["zone"].as_str().unwrap().to_owned()).collect();
    let limit =
        |zone| format!("[[limit]]\ndomain = 'list'\nentries = ['zone={zone}', 'key']\nzone = '{zone}'\n");
    let limits: String = zones.iter().map(limit).collect();
    Mapping::read(&format!("transaction = 'x-request-id'\n{limits}")).unwrap()
}

/// The request of a step, or why it cannot be asked so. `costs` are those of earlier steps, by their
/// transaction.
fn request(step: &Step, costs: &HashMap<Uuid, u64>) -> Result<RateLimitRequest, &'static str> {
    let gives_back = match &*step.call {
        "check" | "check-all" | "peek" => false,
        "refund" | "release" => true,
        _ => return Err(RESERVES),
    };
    let (mut descriptors, mut buckets) = (Vec::new(), BTreeSet::new());
    for check in step.checks() {
        let text = |name: &str| check[name].as_str().unwrap().to_owned();
        let (zone, key) = (text("zone"), text("key"));
        match check {
            _ if check.contains_key("member") => return Err(MEMBERS),
            _ if check.contains_key("critical") => return Err(CRITICAL),
            _ if key.is_empty() => return Err(EMPTY),
            _ if key.len() > 255 => return Err(LONG),
            _ if !buckets.insert((zone.clone(), key.clone())) => return Err(TWICE),
            _ => {}
        }
        let hits = match step.txn() {
            None => 0,
            Some(txn) if gives_back => costs[&txn],
            Some(_) => cost(&check).ok_or(NEGATIVE)?,
        };
        let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
        descriptors.push(RateLimitDescriptor {
            entries: vec![entry("zone", zone), entry("key", key)],
            hits_addend: Some(hits),
            is_negative_hits: gives_back,
            limit: None,
        });
    }
    Ok(RateLimitRequest { domain: "list".to_owned(), descriptors, hits_addend: 0 })
}

fn cost(check: &Map<String, Value>) -> Option<u64> {
    check.get("cost").map_or(Some(1), Value::as_u64)
}

/// The part of an expected answer that Envoy is told about its buckets: the code, the limit, what is left.
fn statuses(step: &Step, expected: &Value) -> Vec<Value> {
    let each = match expected.get("decisions") {
        Some(decisions) => decisions.as_array().unwrap().clone(),
        None => vec![expected.clone()],
    };
    let is_over = |one: &Value| match &*step.call {
        // The next one would not pass.
        "peek" => one["remaining"] == 0,
        "check-all" => one["blocked"] == true && one["reason"] != "held_back",
        _ => one["blocked"] == true,
    };
    let status = |one: &Value| {
        let mut status = json!({ "zone": one["zone"], "over": is_over(one), "remaining": one["remaining"] });
        // Of what is given back the list says no limit.
        if let Some(limit) = one.get("limit") {
            status["limit"] = limit.clone();
        }
        status
    };
    each.iter().map(status).collect()
}

fn told(response: &RateLimitResponse) -> Vec<Value> {
    let statuses = response.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().unwrap();
        json!({
            "zone": limit.name, "over": status.code() == Code::OverLimit, "remaining": status.limit_remaining,
            "limit": limit.requests_per_unit,
        })
    });
    statuses.collect()
}

fn reason(response: &RateLimitResponse) -> String {
    let told = &response.dynamic_metadata.as_ref().unwrap().fields["tallygate"];
    let Some(Kind::StructValue(told)) = &told.kind else { panic!("{told:?}") };
    let Some(Kind::StringValue(reason)) = &told.fields["reason"].kind else { panic!("{told:?}") };
    reason.clone()
}

async fn assert_said(client: &mut RateLimitServiceClient<Channel>, step: &Step, asked: RateLimitRequest) {
    let mut request = Request::new(asked);
    if let Some(txn) = step.txn() {
        request.metadata_mut().insert("x-request-id", txn.to_string().parse().unwrap());
    }
    let answered = client.should_rate_limit(request).await.map(tonic::Response::into_inner);
    let (response, expected) = match (answered, &step.answer, step.error.as_deref()) {
        (Ok(response), Some(expected), None) => (response, expected),
        (Err(status), None, Some(error)) => {
            let code = match (error, &*step.call) {
                ("conflict", "check") => tonic::Code::Aborted,
                // The transaction has taken nothing.
                ("conflict", "refund") => tonic::Code::InvalidArgument,
                ("unknown_zone", _) => tonic::Code::FailedPrecondition,
                _ => panic!("{step:?}: {status}"),
            };
            assert_eq!(status.code(), code, "{step:?}: {status}");
            return;
        }
        (told, ..) => panic!("{step:?}: {told:?}"),
    };
    let (told, expected_statuses) = (json!(told(&response)), json!(statuses(step, expected)));
    assert!(steps::says(&told, &expected_statuses), "{step:?}: {told}");
    let is_over = expected_statuses.as_array().unwrap().iter().any(|status| status["over"] == true);
    let code = if is_over { Code::OverLimit } else { Code::Ok };
    assert_eq!(response.overall_code(), code, "{step:?}");
    if let Some(expected) = expected.get("reason") {
        assert_eq!(*expected, reason(&response), "{step:?}");
    }
}

#[tokio::test]
async fn envoy_is_answered_what_the_list_says() {
    let limiter = steps::limiter().await;
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let limits = RateLimits::new(limiter.clone(), mapping()).into_service();
    tokio::spawn(Server::builder().add_service(limits).serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let (mut client, mut costs) = (RateLimitServiceClient::new(channel), HashMap::new());
    let key = |key: &str| format!("key={}", key.replace('%', "%25"));
    let left_out = steps::run(&limiter, key, async |step| {
        let asked = request(step, &costs)?;
        if let (Some(txn), Some(cost)) = (step.txn(), cost(&step.body)) {
            costs.entry(txn).or_insert(cost);
        }
        assert_said(&mut client, step, asked).await;
        Ok(())
    });
    let expected = [
        (16, "check", EMPTY),
        (17, "check", LONG),
        (18, "check", NEGATIVE),
        (24, "check-all", TWICE),
        (25, "reserve", RESERVES),
        (27, "settle", RESERVES),
        (28, "settle", RESERVES),
        (30, "reserve", RESERVES),
        (31, "cancel", RESERVES),
        (37, "check", MEMBERS),
        (38, "check", MEMBERS),
        (39, "check", MEMBERS),
        (40, "check", MEMBERS),
        (55, "check", CRITICAL),
    ];
    assert_eq!(left_out.await, expected.map(|(number, call, why)| (number, call.to_owned(), why)));
}
