//! The list of clients/conformance: the library is what it is made of, and HTTP says the same.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tallygate::policy::zone_file;
use tallygate::{Charged, Check, Limiter};
use uuid::Uuid;

use crate::client::Serving;

#[derive(Deserialize)]
struct List {
    zones: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    call: String,
    body: Value,
    answer: Option<Value>,
    error: Option<String>,
}

fn list() -> List {
    serde_json::from_str(include_str!("../../../../clients/conformance/steps.json")).unwrap()
}

/// What the list says of an answer is so.
fn says(answer: &Value, expected: &Value) -> bool {
    match (answer, expected) {
        (Value::Object(answer), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| answer.get(name).is_some_and(|answer| says(answer, value)))
        }
        (Value::Array(answer), Value::Array(expected)) => {
            answer.len() == expected.len() && answer.iter().zip(expected).all(|(one, other)| says(one, other))
        }
        _ => answer == expected,
    }
}

#[tokio::test]
async fn the_library_answers_what_the_list_says() {
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap();
    let List { zones, steps } = list();
    limiter.operator().set_zones(zone_file(&zones).unwrap(), "test").await.unwrap();
    for (n, Step { call, body, answer, error }) in steps.into_iter().enumerate() {
        match (ask(&limiter, &call, body).await, answer, error) {
            (Ok(told), Some(expected), None) => assert!(says(&told, &expected), "step {n}: {told}"),
            (Err(told), None, Some(expected)) => assert_eq!(told.code(), expected, "step {n}"),
            (told, ..) => panic!("step {n}: {told:?}"),
        }
    }
}

async fn ask(limiter: &Limiter, call: &str, body: Value) -> tallygate::Result<Value> {
    let check = |body: Value| serde_json::from_value::<Check>(body).unwrap();
    let of = |body: &Map<String, Value>| {
        let name = |name: &str| body[name].as_str().unwrap().to_owned();
        Charged::by(name("txn").parse().unwrap()).in_bucket(name("zone"), name("key"))
    };
    let Value::Object(body) = body else { panic!("{body}") };
    let recorded = match call {
        "check" | "reserve" => return Ok(json!(limiter.check(check(body.into())).await?)),
        "peek" => return Ok(json!(limiter.check(check(body.into()).cost(0)).await?)),
        "check-all" => {
            let txn: Uuid = body["txn"].as_str().unwrap().parse().unwrap();
            let checks = body["checks"].as_array().unwrap().iter().cloned().map(|body| check(body).txn(txn));
            return Ok(json!(limiter.check_all(checks.collect()).await?));
        }
        "settle" => limiter.settle(of(&body), body["cost"].as_i64().unwrap()).await?,
        "cancel" => limiter.cancel(of(&body)).await?,
        "refund" => limiter.refund(of(&body)).await?,
        "release" => limiter.release(of(&body)).await?,
        _ => panic!("{call}"),
    };
    Ok(json!(recorded[0]))
}

#[tokio::test]
async fn http_answers_what_the_list_says() {
    let serving = Serving::start("").await;
    let List { zones, steps } = list();
    std::fs::write(serving.file("zones.toml"), zones).unwrap();
    serving.reload.files().await.unwrap();
    for (n, Step { call, body, answer, error }) in steps.into_iter().enumerate() {
        let told = serving.post(&format!("/v1/{call}"), body).await;
        match (answer, error) {
            (Some(expected), None) => {
                let told = told.json();
                let one = told.get("recorded").map_or(&told, |recorded| &recorded[0]);
                assert!(says(one, &expected), "step {n}: {told}");
            }
            (None, Some(expected)) => assert_eq!(told.problem().1, expected, "step {n}"),
            _ => panic!("step {n} says an answer or an error"),
        }
    }
}
