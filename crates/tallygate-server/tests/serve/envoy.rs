//! Questions of Envoy, at the server that everybody asks.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::json;
use tallygate_envoy::proto::kuadrant_service_client::RateLimitServiceClient as KuadrantClient;
use tallygate_envoy::proto::rate_limit_descriptor::Entry;
use tallygate_envoy::proto::rate_limit_response::Code;
use tallygate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tallygate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tallygate_server::Right;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::client::{Answer, Serving};

pub async fn channel(serving: &Serving) -> Channel {
    Endpoint::from_shared(serving.grpc.clone()).unwrap().connect().await.unwrap()
}

/// Of a login from an address.
pub fn request(token: Option<&str>) -> Request<RateLimitRequest> {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry("path", "/login"), entry("remote_address", "203.0.113.7")];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let mut request =
        Request::new(RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

pub async fn ask(channel: &Channel, token: Option<&str>) -> Result<Code, Status> {
    let answer = RateLimitServiceClient::new(channel.clone()).should_rate_limit(request(token)).await?;
    Ok(answer.into_inner().overall_code())
}

async fn ask_json(serving: &Serving, token: Option<&str>) -> Answer {
    let entries =
        json!([{ "key": "path", "value": "/login" }, { "key": "remote_address", "value": "203.0.113.7" }]);
    let asked = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
    serving.ask("POST", "/json", token, Some(asked)).await
}

#[tokio::test]
async fn it_is_answered_over_grpc_and_as_json_from_one_bucket() {
    let serving = Serving::start("").await;
    let channel = channel(&serving).await;
    for _ in 0..2 {
        assert_eq!(ask(&channel, None).await.unwrap(), Code::Ok);
        assert_eq!(ask_json(&serving, None).await.status, 200);
    }
    assert_eq!(ask(&channel, None).await.unwrap(), Code::Ok);
    assert_eq!(ask(&channel, None).await.unwrap(), Code::OverLimit);
    let over = ask_json(&serving, None).await;
    assert_eq!((over.status, &over.json()["overallCode"]), (429, &json!("OVER_LIMIT")));
    let rows = serving.get("/v1/history?zone=address&key=remote_address%3D203.0.113.7").await.json();
    assert_eq!(rows["rows"].as_array().unwrap().len(), 7);
    assert_eq!(serving.post("/json", json!({ "domain": 5 })).await.status, 400);
    let metrics = serving.get("/metrics").await.body;
    assert!(metrics.contains("envoy.service.ratelimit.v3.RateLimitService"), "{metrics}");
}

#[tokio::test]
async fn it_takes_a_token_to_check_in_every_zone() {
    let (serving, tokens) = Serving::start_with(&[
        ("envoy", &[Right::App], "*"),
        ("web", &[Right::App], "address"),
        ("auditor", &[Right::Auditor], "*"),
    ])
    .await;
    let channel = channel(&serving).await;
    assert_eq!(ask(&channel, Some(&tokens[0])).await.unwrap(), Code::Ok);
    assert_eq!(ask_json(&serving, Some(&tokens[0])).await.status, 200);
    for token in &tokens[1..] {
        assert_eq!(ask(&channel, Some(token)).await.unwrap_err().code(), tonic::Code::PermissionDenied);
        assert_eq!(ask_json(&serving, Some(token)).await.problem().0, 403);
    }
    for token in [None, Some("tg_0")] {
        assert_eq!(ask(&channel, token).await.unwrap_err().code(), tonic::Code::Unauthenticated);
        assert_eq!(ask_json(&serving, token).await.problem().0, 401);
    }
    // Kuadrant asks at the same place, on the same terms.
    let mut kuadrant = KuadrantClient::new(channel.clone());
    let left =
        kuadrant.report(request(Some(&tokens[0]))).await.unwrap().into_inner().statuses[0].limit_remaining;
    assert_eq!(left, 2);
    let refused = kuadrant.report(request(Some(&tokens[2]))).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    // Whether it is there is told to everybody.
    let service = "ratelimit".to_owned();
    HealthClient::new(channel).check(HealthCheckRequest { service }).await.unwrap();
}

#[tokio::test]
async fn it_is_told_that_the_server_ends_and_then_nothing_more_is_accepted() {
    let serving = Serving::start("stopping = { drain_s = 3600 }").await;
    let channel = channel(&serving).await;
    let mut health = HealthClient::new(channel.clone());
    let service = String::new();
    let mut told = health.watch(HealthCheckRequest { service }).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().status, 1);
    let at = serving.grpc_at();
    let (_folder, served) = serving.stop();
    assert_eq!(told.message().await.unwrap().unwrap().status, 2);
    // A watcher does not hold it up.
    tokio::time::timeout(Duration::from_secs(120), served).await.expect("it ends").unwrap().unwrap();
    assert!(TcpStream::connect(at).await.is_err());
}

#[tokio::test]
async fn what_is_no_grpc_is_let_go_and_delays_nobody() {
    let serving = Serving::start("limits = { head_s = 2 }").await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    // A client that asked once is not let go, however long nothing more is said.
    let health = async || HealthClient::new(channel(&serving).await);
    let service = String::new();
    let mut told = health().await.watch(HealthCheckRequest { service }).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().status, 1);
    let mut strangers = Vec::new();
    for bytes in [
        // Nothing, no more than a preface, and one who is there and never asks.
        &b""[..],
        preface,
        &[&preface[..], settings].concat(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        // A frame longer than any may be, and one that is cut off.
        &[&preface[..], b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat(),
        &[&preface[..], b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x09\x01"].concat(),
    ] {
        let mut stream = TcpStream::connect(serving.grpc_at()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        strangers.push(stream);
    }
    assert_eq!(ask(&channel(&serving).await, None).await.unwrap(), Code::Ok);
    let ended = join_all(strangers.iter_mut().map(until_closed));
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("they are let go");
    assert!(told.message().now_or_never().is_none(), "nothing is told, nor is it over");
}

/// Reads frames, and says each time that it is asked that it is there.
async fn until_closed(stream: &mut TcpStream) {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let mut rest = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        if stream.read_exact(&mut rest).await.is_err() {
            return;
        }
        // A ping that is none of ours.
        if (head[3], head[4]) == (6, 0) {
            head[4] = 1;
            stream.write_all(&[&head[..], &rest].concat()).await.ok();
        }
    }
}
