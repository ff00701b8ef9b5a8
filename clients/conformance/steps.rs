//! The list as tests in Rust run it: `#[path]` brings this file into those of each face.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tallygate::ledger::{Entry, History};
use tallygate::policy::zone_file;
use tallygate::uuid::Uuid;
use tallygate::{Charged, Check, Limiter};

#[derive(Deserialize)]
pub struct List {
    pub zones: String,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub call: String,
    pub body: Map<String, Value>,
    pub answer: Option<Value>,
    pub error: Option<String>,
}

pub fn list() -> List {
    serde_json::from_str(include_str!("steps.json")).unwrap()
}

/// Is everything that the list says of an answer so?
pub fn says(answer: &Value, expected: &Value) -> bool {
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

impl Step {
    /// It was answered as the list says: with an answer, or the code of an error.
    pub fn assert_said(&self, told: Result<Value, String>) {
        match (told, &self.answer, &self.error) {
            (Ok(told), Some(expected), None) => assert!(says(&told, expected), "{self:?}: {told}"),
            (Err(told), None, Some(expected)) => assert_eq!(told, *expected, "{self:?}"),
            (told, ..) => panic!("{self:?}: {told:?}"),
        }
    }

    /// The checks of the step, one for each bucket.
    pub fn checks(&self) -> Vec<Map<String, Value>> {
        match self.body.get("checks") {
            Some(checks) => serde_json::from_value(checks.clone()).unwrap(),
            None => vec![self.body.clone()],
        }
    }

    pub fn txn(&self) -> Option<Uuid> {
        Some(self.body.get("txn")?.as_str().unwrap().parse().unwrap())
    }

    /// Asks the library.
    pub async fn ask(&self, limiter: &Limiter) -> Result<Value, String> {
        let told = self.decided(limiter).await;
        told.map_err(|error| error.code().to_owned())
    }

    async fn decided(&self, limiter: &Limiter) -> tallygate::Result<Value> {
        let check = |body: &Map<String, Value>| {
            let check: Check = serde_json::from_value(body.clone().into()).unwrap();
            match self.txn() {
                Some(txn) => check.txn(txn),
                None => check,
            }
        };
        let body = &self.body;
        let charged = || {
            let name = |name: &str| body[name].as_str().unwrap();
            Charged::by(self.txn().unwrap()).in_bucket(name("zone"), name("key"))
        };
        let recorded = match &*self.call {
            "check" | "reserve" => return Ok(json!(limiter.check(check(body)).await?)),
            "peek" => return Ok(json!(limiter.check(check(body).cost(0)).await?)),
            "check-all" => {
                return Ok(json!(limiter.check_all(self.checks().iter().map(check).collect()).await?));
            }
            "settle" => limiter.settle(charged(), body["cost"].as_i64().unwrap()).await?,
            "cancel" => limiter.cancel(charged()).await?,
            "refund" => limiter.refund(charged()).await?,
            "release" => limiter.release(charged()).await?,
            call => panic!("{call}"),
        };
        Ok(json!(recorded[0]))
    }
}

/// A limiter with the zones of the list, in memory.
pub async fn limiter() -> Limiter {
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap();
    limiter.operator().set_zones(zone_file(&list().zones).unwrap(), "test").await.unwrap();
    limiter
}

/// Has a face answer each step, which is about the bucket of `key` of the step's key, and compares the ledger then with the one
/// that the library writes.
///
/// A face that cannot say a step tells why, and the library does it in its place, so that the next ones find what they
/// expect. These are told: the number of the step, its call, and why.
pub async fn run<'w>(
    limiter: &Limiter,
    key: impl Fn(&str) -> String,
    mut face: impl AsyncFnMut(&Step) -> Result<(), &'w str>,
) -> Vec<(usize, String, &'w str)> {
    let (library, mut left_out) = (self::limiter().await, Vec::new());
    for (number, step) in list().steps.into_iter().enumerate() {
        step.assert_said(step.ask(&library).await);
        if let Err(why) = face(&step).await {
            // A step that ends in an error writes nothing.
            if step.answer.is_some() {
                let mut step = step.clone();
                step.body["key"] = key(step.body["key"].as_str().unwrap()).into();
                step.ask(limiter).await.unwrap();
            }
            left_out.push((number, step.call, why));
        }
    }
    let expected = ledger(&library).await.into_iter().map(|row| Entry { key: key(&row.key), ..row });
    assert_eq!(told(ledger(limiter).await), told(expected.collect()));
    left_out
}

async fn ledger(limiter: &Limiter) -> Vec<Entry> {
    let everything = History { limit: 1_000, ..History::default() };
    limiter.auditor().history(&everything).await.unwrap().rows
}

/// The text of the rows of every run, by bucket.
fn told(mut rows: Vec<Entry>) -> Vec<String> {
    rows.sort_by(|a, b| (&a.zone, &a.key, a.seq).cmp(&(&b.zone, &b.key, b.seq)));
    let row = |row: &Entry| {
        let Entry { zone, key, seq, txn_id, kind, blocked, reason, cost, spent, remaining, .. } = row;
        format!("{zone} {key} {seq} {txn_id} {kind:?} {blocked} {reason:?} {cost} {spent} {remaining}")
    };
    rows.iter().map(row).collect()
}
