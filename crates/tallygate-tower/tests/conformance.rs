//! The list of clients/conformance, asked by requests through the layer.

#[path = "../../../clients/conformance/steps.rs"]
mod steps;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, response};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};
use tallygate::Limiter;
use tallygate::ledger::{Entry, History};
use tallygate::uuid::Uuid;
use tallygate_tower::who::Subject;
use tallygate_tower::{After, Body, Decided, Limit, RateLimit};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt, service_fn};

use crate::steps::Step;

/// The reasons of steps that the layer has no way to say.
const NAMED: &str = "what a client named stays charged, since he could come again with it";
const ONCE: &str = "a request has one answer, and settles once";

/// The things that a request took and still has.
enum Held {
    /// A slot, until the body of the answer ends.
    Body(#[expect(dead_code, reason = "it is held, and then dropped")] Box<Body<Full<Bytes>>>),
    /// A reservation, until the service answers.
    Request(oneshot::Sender<After>),
}

/// The question of a step to a bucket, as a limit of the layer.
fn limit(step: &Step, check: &Map<String, Value>) -> Limit {
    let text = |name: &str| check.get(name).map(|value| value.as_str().unwrap().to_owned());
    let of = |key: String| move |_: &Parts| Subject::Key(key.clone());
    let mut limit = Limit::new(text("zone").unwrap()).by(of(text("key").unwrap()));
    if let Some(member) = text("member") {
        limit = limit.member(of(member));
    }
    if check.contains_key("critical") {
        limit = limit.critical(|_| true);
    }
    if let Some(ttl_us) = check.get("ttl_us") {
        limit = limit.reserved_for(Duration::from_micros(ttl_us.as_u64().unwrap()));
    }
    match check.get("cost").and_then(Value::as_i64).or((step.call == "peek").then_some(0)) {
        Some(cost) => limit.cost(move |_| cost),
        None => limit,
    }
}

/// Asks, and tells what was decided. A service behind says so at once where it waits, and answers what is to become of it.
async fn ask(limiter: &Limiter, step: &Step, held: &mut HashMap<Uuid, Held>) -> Result<Value, String> {
    let limits: Vec<_> = step.checks().iter().map(|check| limit(step, check)).collect();
    let after = |answer: &response::Parts| *answer.extensions.get::<After>().unwrap();
    let layer = RateLimit::of(limiter.clone(), limits).idempotent().after(after);
    let (reached, is_reached) = oneshot::channel();
    let (answers, answer) = oneshot::channel();
    let once = Arc::new(Mutex::new(Some((reached, answer))));
    let service = layer.layer(service_fn(move |request: Request<()>| {
        let (reached, answer) = once.lock().unwrap().take().unwrap();
        async move {
            reached.send(request.extensions().get::<Decided>().unwrap().clone()).ok();
            let mut response = Response::new(Full::new(Bytes::from("welcome")));
            response.extensions_mut().insert(answer.await.unwrap_or(After::Keep));
            Ok::<_, Infallible>(response)
        }
    }));
    let mut request = Request::new(());
    if let Some(txn) = step.txn() {
        request.headers_mut().insert("idempotency-key", txn.to_string().parse().unwrap());
    }
    let decided = |decided: &Decided| match (decided.decisions(), &*step.call) {
        (decisions, "check-all") => json!({ "blocked": decided.is_blocked(), "decisions": decisions }),
        (decisions, _) => json!(decisions[0]),
    };
    let response = tokio::spawn(service.oneshot(request));
    if step.call == "reserve" {
        held.insert(step.txn().unwrap(), Held::Request(answers));
        return Ok(decided(&is_reached.await.unwrap()));
    }
    drop(answers);
    let response = response.await.unwrap().unwrap();
    let status = response.status().as_u16();
    if let Some(told) = response.extensions().get::<Decided>().cloned() {
        assert_eq!(status, if told.is_blocked() { 429 } else { 200 });
        if step.body.get("zone") == Some(&json!("faces-slots")) && !told.is_blocked() {
            held.insert(step.txn().unwrap(), Held::Body(Box::new(response.into_body())));
        }
        return Ok(decided(&told));
    }
    let problem = response.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&problem).unwrap();
    let code = problem["code"].as_str().unwrap().to_owned();
    assert_eq!(
        status,
        match &*code {
            "conflict" => 409,
            "invalid" if !step.body.contains_key("checks") => 400,
            // A zone that is not there, and limits of one bucket, are the operator's fault.
            _ => 500,
        }
    );
    Err(code)
}

/// The row that the transaction wrote into the ledger last, once that is of this kind.
async fn written(limiter: &Limiter, txn: Uuid, kind: &str) -> Value {
    for _ in 0..500 {
        let history = History { txn: Some(txn), ..History::default() };
        let rows = limiter.auditor().history(&history).await.unwrap().rows;
        let row = rows.iter().max_by_key(|row| row.seq).unwrap();
        if row.kind.as_str() == kind {
            let Entry { zone, key, cost, spent, remaining, .. } = row;
            return json!({
                "zone": zone, "key": key, "kind": kind, "cost": cost, "spent": spent, "remaining": remaining, "replayed": false
            });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{txn} never wrote a {kind}");
}

#[tokio::test]
async fn the_layer_answers_what_the_list_says() {
    let limiter = steps::limiter().await;
    let mut held = HashMap::new();
    let left_out = steps::run(&limiter, str::to_owned, async |step| {
        match &*step.call {
            "refund" | "cancel" => return Err(NAMED),
            "release" | "settle" => {
                let txn = step.txn().unwrap();
                match held.remove(&txn) {
                    Some(Held::Request(answers)) => {
                        answers.send(After::Charge(step.body["cost"].as_i64().unwrap())).unwrap();
                    }
                    Some(body) => drop(body),
                    None => return Err(ONCE),
                }
                step.assert_said(Ok(written(&limiter, txn, &step.call).await));
            }
            _ => step.assert_said(ask(&limiter, step, &mut held).await),
        }
        Ok(())
    });
    let expected = [
        (11, "refund", NAMED),
        (12, "refund", NAMED),
        (14, "refund", NAMED),
        (28, "settle", ONCE),
        (31, "cancel", NAMED),
    ];
    assert_eq!(left_out.await, expected.map(|(number, call, why)| (number, call.to_owned(), why)));
}
