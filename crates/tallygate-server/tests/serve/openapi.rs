//! The OpenAPI document: it is what the server serves, each route is in it, and every answer of these tests is as it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};
use tallygate_server::Right;
use uuid::Uuid;

use crate::client::{Answer, Serving, login};

/// The document that is committed, and what it says of each route.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::read().unwrap());

pub struct Document {
    pub routes: Vec<Route>,
    schemas: Schemas,
}

pub struct Route {
    pub method: String,
    /// With its names in braces.
    pub path: String,
    pub role: Option<String>,
    body: Option<SchemaIndex>,
    /// By status and type.
    answers: BTreeMap<u16, BTreeMap<String, SchemaIndex>>,
}

fn committed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

impl Route {
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Document {
    pub fn get() -> &'static Self {
        &DOCUMENT
    }

    fn read() -> Result<Self, Box<dyn std::error::Error>> {
        let document: Value = serde_json::from_str(&std::fs::read_to_string(committed())?)?;
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.enable_format_assertions();
        compiler.add_resource("file:///openapi.json", document.clone())?;
        let mut content = |place: String| {
            let content = document.pointer(&place).and_then(Value::as_object).unwrap();
            let compiled = content.keys().map(|kind| {
                let at = format!("file:///openapi.json#{place}/{}/schema", kind.replace('/', "~1"));
                let schema = compiler.compile(&at, &mut schemas);
                (kind.clone(), schema.unwrap_or_else(|error| panic!("{at}: {error}")))
            });
            compiled.collect::<BTreeMap<_, _>>()
        };
        let mut routes = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let place = format!("/paths/{}/{method}", path.replace('/', "~1"));
                let body = operation.get("requestBody");
                let body = body.and_then(|_| content(format!("{place}/requestBody/content")).pop_first());
                let body = body.map(|(_, schema)| schema);
                let answers = operation["responses"].as_object().unwrap().iter().map(|(status, answer)| {
                    let place = match answer.get("$ref").and_then(Value::as_str) {
                        Some(shared) => shared.trim_start_matches('#').to_owned(),
                        None => format!("{place}/responses/{status}"),
                    };
                    (status.parse().unwrap(), content(format!("{place}/content")))
                });
                let answers = answers.collect();
                let role = operation["security"][0]["token"][0].as_str().map(str::to_owned);
                routes.push(Route { method: method.to_uppercase(), path: path.clone(), role, body, answers });
            }
        }
        Ok(Self { routes, schemas })
    }

    pub fn route(&self, method: &str, target: &str) -> Option<&Route> {
        let path = target.split('?').next().unwrap_or_default();
        let is_same = |route: &&Route| {
            let (told, asked): (Vec<_>, Vec<_>) =
                (route.path.split('/').collect(), path.split('/').collect());
            let fits =
                |(told, asked): (&&str, &&str)| told == asked || told.starts_with('{') && !asked.is_empty();
            route.method == method && told.len() == asked.len() && told.iter().zip(&asked).all(fits)
        };
        self.routes.iter().find(is_same)
    }

    /// That an answer is one that the document tells, and what was done had a body that it tells, too.
    pub fn holds(&self, request: &[u8], answer: &Answer) {
        let Ok(request) = std::str::from_utf8(request) else { return };
        let mut line = request.lines().next().unwrap_or_default().split(' ');
        let (method, target) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let Some(route) = self.route(method, target) else { return };
        // Without a body it was no request that reached a route.
        if answer.body.is_empty() || answer.head.contains("transfer-encoding") {
            return;
        }
        let place = format!("{method} {target}: {} {}", answer.status, answer.body);
        let told = route.answers.get(&answer.status).unwrap_or_else(|| panic!("not told: {place}"));
        let is_of = |kind: &str| answer.head.contains(&format!("content-type: {kind}"));
        let told = told.iter().find(|(kind, _)| is_of(kind));
        let (kind, schema) = told.unwrap_or_else(|| panic!("not of this type: {place}"));
        let values: Vec<Value> = match kind.as_str() {
            "text/plain" => vec![json!(answer.body)],
            "application/x-ndjson" => {
                answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            }
            _ => vec![answer.json()],
        };
        for value in values {
            self.schemas.validate(&value, *schema).unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        let (_, body) = request.split_once("\r\n\r\n").unwrap_or_default();
        if let (200, Some(schema), Ok(body)) = (answer.status, route.body, serde_json::from_str(body)) {
            self.schemas.validate(&body, schema).unwrap_or_else(|error| panic!("{place} to {body}: {error}"));
        }
    }
}

/// With `TALLYGATE_GENERATE` set what is served takes the place of what is committed.
#[tokio::test]
async fn what_is_committed_is_what_is_served() {
    let (serving, _) = Serving::start_with(&[("web", &[Right::App], "*")]).await;
    let served = serving.get("/v1/openapi.json").await.json();
    if std::env::var_os("TALLYGATE_GENERATE").is_some() {
        std::fs::write(committed(), format!("{served:#}\n")).unwrap();
    }
    let kept = std::fs::read_to_string(committed()).unwrap_or_default();
    let hint = "docs/openapi.json is out of date: run this test once with TALLYGATE_GENERATE=1";
    assert!(serde_json::from_str::<Value>(&kept).is_ok_and(|kept| kept == served), "{hint}");
}

/// Each route does what it is for, and each answer that a route is told to give, for it is in the table of routes and not in a
/// type, is given.
#[tokio::test]
async fn each_route_gives_the_answers_that_it_is_told_to_give() {
    let all = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("ops", &all, "*")]).await;
    let [none, spent, paid, dear, slot, item] = [0; 6].map(|_| Uuid::now_v7());
    let lasting = |txn: Uuid, cost: u32| json!({ "zone": "payments", "key": "a", "txn": txn, "cost": cost, "ttl_us": 60_000_000 });
    let shaped = |shape: &str, cost: u32| json!({ "shape": shape, "check": lasting(Uuid::now_v7(), cost) });
    let of = |txn: Uuid| json!({ "txn": txn });
    let named =
        |zone: &str, txn: Uuid, cost: u32| json!({ "zone": zone, "key": "a", "txn": txn, "cost": cost });
    let together = |txn: Uuid, cost: u32| json!({ "checks": [named("address", txn, cost)] });
    let vip =
        json!({ "rate": 9, "per": "1h", "burst": 9, "ban_exempt": true, "for": "30d", "note": "a fair" });
    let policy = json!({ "rate": 5, "per": "1h", "ban-after": 3, "ban-within": "1m", "ban-for": "1h", "mode": "shadow" });
    let asked = json!({ "domain": "shop", "descriptors": [{ "entries": [
        { "key": "path", "value": "/login" }, { "key": "remote_address", "value": "203.0.113.7" },
    ] }] });
    let get = Value::Null;
    let taken = |seq: i64, more: Value| {
        let mut said = json!({ "zone": "mail", "queue": "out", "receipt": format!("{seq}-{item}") });
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        said
    };
    let mut given = BTreeSet::new();
    for (status, method, path, body) in [
        (200, "POST", "/v1/check", named("login", spent, 3)),
        (409, "POST", "/v1/check", named("login", spent, 2)),
        (429, "POST", "/v1/check?status", login("a")),
        (200, "POST", "/v1/check-all", together(paid, 5)),
        (409, "POST", "/v1/check-all", together(paid, 4)),
        (429, "POST", "/v1/check-all?status=1", together(none, 1)),
        (200, "POST", "/v1/peek", json!({ "zone": "login", "key": "b" })),
        (200, "POST", "/v1/reserve", lasting(dear, 900)),
        (409, "POST", "/v1/reserve", lasting(dear, 90)),
        (429, "POST", "/v1/reserve?status", lasting(Uuid::now_v7(), 900)),
        (200, "POST", "/v1/reserve-predicted", shaped("chat", 5)),
        (429, "POST", "/v1/reserve-predicted?status", shaped("chat", 90_000)),
        (409, "POST", "/v1/reserve-predicted", json!({ "shape": "chat", "check": lasting(dear, 900) })),
        (200, "POST", "/v1/predict", json!({ "zone": "payments", "key": "a", "shape": "chat" })),
        (200, "POST", "/v1/settle", json!({ "txn": dear, "cost": 800, "zone": "payments", "key": "a" })),
        (409, "POST", "/v1/settle", json!({ "txn": dear, "cost": 700, "zone": "payments", "key": "a" })),
        (409, "POST", "/v1/cancel", of(dear)),
        (200, "POST", "/v1/reserve", lasting(none, 1)),
        (200, "POST", "/v1/cancel", of(none)),
        (200, "POST", "/v1/refund", of(spent)),
        (409, "POST", "/v1/refund", of(dear)),
        (200, "POST", "/v1/check", named("slots", slot, 1)),
        (200, "POST", "/v1/release", of(slot)),
        (409, "POST", "/v1/release", of(spent)),
        (200, "PUT", "/v1/zones/mail", json!({ "rate": 9, "per": "1s", "algorithm": "queue" })),
        (200, "POST", "/v1/queue/offer", json!({ "zone": "mail", "queue": "out", "txn": item, "cost": 5 })),
        (409, "POST", "/v1/queue/offer", json!({ "zone": "mail", "queue": "out", "txn": item, "cost": 4 })),
        (200, "POST", "/v1/queue/take", json!({ "zone": "mail", "queue": "out", "visible_us": 60_000_000 })),
        (200, "POST", "/v1/queue/extend", taken(2, json!({ "visible_us": 60_000_000 }))),
        (409, "POST", "/v1/queue/extend", taken(7, json!({ "visible_us": 60_000_000 }))),
        (200, "POST", "/v1/queue/release", taken(2, json!({ "delay_us": 60_000_000 }))),
        (409, "POST", "/v1/queue/release", taken(7, json!({}))),
        (409, "POST", "/v1/queue/done", taken(2, json!({}))),
        (200, "POST", "/v1/queue/offer", json!({ "zone": "mail", "queue": "other", "txn": item })),
        (
            200,
            "POST",
            "/v1/queue/take",
            json!({ "zone": "mail", "queue": "other", "visible_us": 60_000_000 }),
        ),
        (
            200,
            "POST",
            "/v1/queue/done",
            json!({ "zone": "mail", "queue": "other", "receipt": format!("2-{item}") }),
        ),
        (409, "POST", "/v1/queue/redrive", json!({ "zone": "mail", "queue": "out", "txn": item })),
        (
            200,
            "PUT",
            "/v1/zones/once",
            json!({ "rate": 9, "per": "1s", "algorithm": "queue", "max-takes": 1 }),
        ),
        (200, "POST", "/v1/queue/offer", json!({ "zone": "once", "queue": "a", "txn": item })),
        (200, "POST", "/v1/queue/take", json!({ "zone": "once", "queue": "a", "visible_us": 60_000_000 })),
        (
            200,
            "POST",
            "/v1/queue/release",
            json!({ "zone": "once", "queue": "a", "receipt": format!("2-{item}") }),
        ),
        (200, "POST", "/v1/queue/redrive", json!({ "zone": "once", "queue": "a", "txn": item })),
        (200, "GET", &format!("/v1/queue/mail/out/{item}"), get.clone()),
        (404, "GET", &format!("/v1/queue/mail/out/{}", Uuid::now_v7()), get.clone()),
        (200, "PUT", "/v1/zones/render", json!({ "rate": 9, "per": "60s", "algorithm": "capacity" })),
        (200, "POST", "/v1/lease", json!({ "zone": "render", "resource": "gpu", "client": "a", "wants": 5 })),
        (
            409,
            "POST",
            "/v1/lease",
            json!({ "zone": "render", "resource": "gpu", "client": "a", "wants": 5, "after": 7 }),
        ),
        (
            200,
            "GET",
            "/v1/history?zone=login&key=a&blocked=false&since=2020-01-01T00:00:00Z&limit=5",
            get.clone(),
        ),
        (404, "GET", "/v1/history?zone=nowhere", get.clone()),
        (200, "GET", &format!("/v1/transactions/{spent}"), get.clone()),
        (404, "GET", &format!("/v1/transactions/{}", Uuid::now_v7()), get.clone()),
        (200, "GET", &format!("/v1/transactions/{spent}/explanation?charges=3"), get.clone()),
        (404, "GET", &format!("/v1/transactions/{}/explanation", Uuid::now_v7()), get.clone()),
        (200, "GET", "/v1/buckets?key=a", get.clone()),
        (200, "GET", "/v1/zones", get.clone()),
        (200, "PUT", "/v1/zones/new", policy),
        (200, "GET", "/v1/zones/new", get.clone()),
        (404, "GET", "/v1/zones/nowhere", get.clone()),
        (200, "PUT", "/v1/zones/login/bans/a", json!({ "for": "15m", "note": "stolen" })),
        (200, "GET", "/v1/zones/login/bans", get.clone()),
        (404, "GET", "/v1/zones/nowhere/bans", get.clone()),
        (200, "DELETE", "/v1/zones/login/bans/a?note=found", get.clone()),
        (409, "DELETE", "/v1/zones/login/bans/a?note=again", get.clone()),
        (200, "PUT", "/v1/zones/login/overrides/a", vip),
        (200, "GET", "/v1/zones/login/overrides", get.clone()),
        (404, "GET", "/v1/zones/nowhere/overrides", get.clone()),
        (200, "GET", "/v1/zones/login/buckets/a", get.clone()),
        (404, "GET", "/v1/zones/login/buckets/nobody", get.clone()),
        (200, "DELETE", "/v1/zones/login/overrides/a?note=over", get.clone()),
        (409, "DELETE", "/v1/zones/login/overrides/a?note=over", get.clone()),
        (200, "POST", "/json", asked.clone()),
        (200, "POST", "/json", asked.clone()),
        (200, "POST", "/json", asked.clone()),
        (200, "POST", "/json", asked.clone()),
        (200, "POST", "/json", asked.clone()),
        (429, "POST", "/json", asked),
        (200, "GET", "/v1/openapi.json", get.clone()),
        (200, "GET", "/v1/queue/mail/out", get.clone()),
        (200, "GET", "/v1/queue/mail/out/dead?limit=5", get.clone()),
        (200, "GET", "/metrics", get.clone()),
        (200, "GET", "/livez", get.clone()),
        (200, "GET", "/readyz", get.clone()),
    ] {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = serving.ask(method, path, Some(&tokens[0]), body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        given.insert((Document::get().route(method, path).unwrap().name(), status));
    }
    let told: BTreeSet<_> = Document::get()
        .routes
        .iter()
        .flat_map(|route| route.answers.keys().map(|status| (route.name(), *status)))
        .filter(|(_, status)| [200, 404, 409, 429].contains(status))
        // Lines are other bodies, and Envoy's service is offered here.
        .filter(|(name, status)| name != "POST /v1/checks" && (name.as_str(), *status) != ("POST /json", 404))
        .collect();
    assert_eq!(given, told);
}
