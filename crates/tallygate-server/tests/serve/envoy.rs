//! What Envoy asks, at the server that everybody asks.

use std::time::Duration;

use serde_json::json;
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

async fn channel(serving: &Serving) -> Channel {
    Endpoint::from_shared(serving.grpc.clone()).unwrap().connect().await.unwrap()
}

async fn ask(channel: &Channel, token: Option<&str>) -> Result<Code, Status> {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry("path", "/login"), entry("remote_address", "203.0.113.7")];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let mut request =
        Request::new(RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let answer = RateLimitServiceClient::new(channel.clone()).should_rate_limit(request).await?;
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
    // Whether it is there is told to everybody.
    let service = "ratelimit".to_owned();
    HealthClient::new(channel).check(HealthCheckRequest { service }).await.unwrap();
}

#[tokio::test]
async fn it_is_told_that_the_server_ends_and_then_nothing_more_is_accepted() {
    let serving = Serving::start("").await;
    let channel = channel(&serving).await;
    let mut health = HealthClient::new(channel.clone());
    let service = String::new();
    let mut told = health.watch(HealthCheckRequest { service }).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().status, 1);
    let at = serving.grpc.strip_prefix("http://").unwrap().to_owned();
    let (_folder, served) = serving.stop();
    assert_eq!(told.message().await.unwrap().unwrap().status, 2);
    drop((told, health, channel));
    served.await.unwrap().unwrap();
    assert!(TcpStream::connect(at).await.is_err());
}

#[tokio::test]
async fn what_is_no_grpc_is_let_go_and_delays_nobody() {
    let serving = Serving::start("limits = { head_s = 1 }").await;
    let at = serving.grpc.strip_prefix("http://").unwrap().to_owned();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        // A frame longer than any may be, and one that is cut off.
        &[&preface[..], b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat(),
        &[&preface[..], b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x09\x01"].concat(),
    ] {
        let mut stream = TcpStream::connect(&at).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
        ended.expect("it is let go").ok();
        assert_eq!(ask(&channel(&serving).await, None).await.unwrap(), Code::Ok);
    }
}
