//! The rights of each caller.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tallygate_server::{Config, Right, Server, Tokens};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::client::{Serving, address_of, login, read, request};
use crate::openapi::Document;

/// Each route with a body that is good, and the right that it takes.
fn routes() -> Vec<(&'static str, String, Option<Value>, Right)> {
    let txn = Uuid::now_v7();
    let (app, auditor, operator) = (Right::App, Right::Auditor, Right::Operator);
    let of = || Some(json!({ "txn": txn, "zone": "login", "key": "a" }));
    let to = |path: &str| path.to_owned();
    let taken = |more: Value| {
        let mut said = json!({ "zone": "login", "queue": "a", "receipt": format!("1-{txn}") });
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        said
    };
    vec![
        ("POST", to("/v1/check"), Some(login("a")), app),
        ("POST", to("/json"), Some(json!({ "domain": "shop", "descriptors": [] })), app),
        ("POST", to("/v1/check-all"), Some(json!({ "checks": [login("a")] })), app),
        ("POST", to("/v1/peek"), Some(login("a")), app),
        ("POST", to("/v1/reserve"), Some(json!({ "zone": "login", "key": "a", "ttl_us": 1_000_000 })), app),
        (
            "POST",
            to("/v1/reserve-predicted"),
            Some(json!({ "shape": "a", "check": { "zone": "login", "key": "a", "ttl_us": 1_000_000 } })),
            app,
        ),
        ("POST", to("/v1/predict"), Some(json!({ "zone": "login", "key": "a", "shape": "a" })), app),
        ("POST", to("/v1/settle"), Some(json!({ "txn": txn, "zone": "login", "key": "a", "cost": 1 })), app),
        ("POST", to("/v1/cancel"), of(), app),
        ("POST", to("/v1/refund"), of(), app),
        ("POST", to("/v1/release"), of(), app),
        ("POST", to("/v1/queue/offer"), Some(json!({ "zone": "login", "queue": "a" })), app),
        ("POST", to("/v1/queue/take"), Some(json!({ "zone": "login", "queue": "a", "visible_us": 1 })), app),
        ("POST", to("/v1/queue/extend"), Some(taken(json!({ "visible_us": 1 }))), app),
        ("POST", to("/v1/queue/done"), Some(taken(json!({}))), app),
        ("POST", to("/v1/queue/release"), Some(taken(json!({}))), app),
        ("POST", to("/v1/queue/redrive"), Some(json!({ "zone": "login", "queue": "a", "txn": txn })), app),
        ("GET", to("/v1/queue/login/a"), None, app),
        ("GET", to("/v1/queue/login/a/dead"), None, app),
        ("GET", format!("/v1/queue/login/a/{txn}"), None, app),
        ("POST", to("/v1/lease"), Some(json!({ "zone": "login", "resource": "a", "wants": 1 })), app),
        ("GET", to("/v1/history"), None, auditor),
        ("GET", to("/v1/history?zone=login"), None, auditor),
        ("GET", format!("/v1/transactions/{txn}"), None, auditor),
        ("GET", format!("/v1/transactions/{txn}/explanation"), None, auditor),
        ("GET", to("/v1/buckets?key=a"), None, auditor),
        ("GET", to("/v1/zones"), None, auditor),
        ("GET", to("/v1/zones/login"), None, auditor),
        ("GET", to("/v1/zones/login/buckets/a"), None, auditor),
        ("GET", to("/v1/zones/login/bans"), None, auditor),
        ("GET", to("/v1/zones/login/overrides"), None, auditor),
        ("PUT", to("/v1/zones/login"), Some(json!({ "rate": 1, "per": "1s" })), operator),
        ("PUT", to("/v1/zones/login/bans/a"), Some(json!({ "for": "1s", "note": "x" })), operator),
        ("DELETE", to("/v1/zones/login/bans/a?note=x"), None, operator),
        (
            "PUT",
            to("/v1/zones/login/overrides/a"),
            Some(json!({ "rate": 1, "per": "1s", "note": "x" })),
            operator,
        ),
        ("DELETE", to("/v1/zones/login/overrides/a?note=x"), None, operator),
    ]
}

#[tokio::test]
async fn each_route_takes_its_right_and_no_other() {
    let rights = [Right::App, Right::Auditor, Right::Operator, Right::Metrics];
    let (serving, tokens) = Serving::start_with(&[
        ("app", &rights[..1], "*"),
        ("auditor", &rights[1..2], "*"),
        ("operator", &rights[2..3], "*"),
        ("scraper", &rights[3..], "*"),
    ])
    .await;
    let routes = routes();
    // The document tells each route and its role; the lines have a test of their own.
    let document = Document::get();
    let told = routes.iter().map(|(method, path, _, right)| (document.route(method, path), right.as_str()));
    let told: BTreeSet<_> =
        told.map(|(route, right)| (route.unwrap().name(), Some(right.to_owned()))).collect();
    let documented =
        document.routes.iter().filter(|route| route.role.is_some() && route.path != "/v1/checks");
    assert_eq!(told, documented.map(|route| (route.name(), route.role.clone())).collect());
    for (method, path, body, right) in routes {
        for (token, has) in tokens.iter().zip(rights) {
            let answer = serving.ask(method, &path, Some(token), body.clone()).await;
            match has == right {
                true => assert!(![401, 403].contains(&answer.status), "{method} {path}: {}", answer.body),
                false => {
                    assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{method} {path} as {has:?}")
                }
            }
        }
        for token in [None, Some("tg_0"), Some("")] {
            let answer = serving.ask(method, &path, token, body.clone()).await;
            assert_eq!(answer.problem(), (401, "unknown_caller".to_owned()), "{method} {path} as {token:?}");
            assert!(answer.head.contains("www-authenticate: bearer"));
        }
    }
    assert_eq!(serving.get("/metrics").await.status, 401);
    assert_eq!(serving.ask("GET", "/metrics", Some(&tokens[3]), None).await.status, 200);
    assert_eq!((serving.get("/livez").await.status, serving.get("/readyz").await.status), (200, 200));
    let twice = format!("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}", tokens[0]);
    assert_eq!(serving.check_with(&twice, &login("a")).await.problem().0, 401);
    let basic = format!("Authorization: Basic {}", tokens[0]);
    assert_eq!(serving.check_with(&basic, &login("a")).await.problem().0, 401);
}

/// Each that could be charged twice honours it; no other keeps quiet about it.
#[tokio::test]
async fn no_route_ignores_the_key_of_what_is_posted() {
    let (serving, tokens) = Serving::start_with(&[("app", &[Right::App], "*")]).await;
    for (method, path, body, _) in routes().into_iter().filter(|(method, ..)| *method == "POST") {
        let asked = request(method, &path, Some(&tokens[0]), body);
        let asked = asked.replacen("\r\n", "\r\nIdempotency-Key: 42\r\n", 1);
        assert_eq!(serving.send(asked).await.problem(), (400, "invalid".to_owned()), "{path}");
    }
    let lines =
        "POST /v1/checks HTTP/1.0\r\nContent-Type: application/x-ndjson\r\nIdempotency-Key: 42\r\n\r\n";
    let lines = lines.replacen("\r\n", &format!("\r\nAuthorization: Bearer {}\r\n", tokens[0]), 1);
    assert_eq!(serving.send(lines).await.problem().0, 400);
    // The end of a charge is named by the charge.
    let charged = serving.ask("POST", "/v1/check", Some(&tokens[0]), Some(login("a"))).await.json();
    let (txn, other) = (charged["txn_id"].as_str().unwrap(), Uuid::now_v7().to_string());
    let refund = json!({ "txn": txn, "zone": "login", "key": "a" });
    let refund = request("POST", "/v1/refund", Some(&tokens[0]), Some(refund));
    for (key, status) in [(other.as_str(), 400), (txn, 200)] {
        let refund = refund.replacen("\r\n", &format!("\r\nIdempotency-Key: {key}\r\n"), 1);
        assert_eq!(serving.send(refund).await.status, status, "{key}");
    }
}

#[tokio::test]
async fn a_token_has_no_say_in_what_another_took() {
    let everything = [Right::App, Right::Auditor, Right::Operator];
    let app = [Right::App];
    let (serving, tokens) =
        Serving::start_with(&[("one", &everything, "*"), ("two", &app, "*"), ("on", &app, "*")]).await;
    let ask = async |token: usize, method: &str, path: &str, body: Value| {
        serving.ask(method, path, Some(&tokens[token]), Some(body)).await
    };
    let gpu = json!({ "rate": 100, "per": "60s", "algorithm": "capacity" });
    let mail = json!({ "rate": 100, "per": "1s", "algorithm": "queue", "backlog": 5 });
    for (path, terms) in [("/v1/zones/gpu", gpu), ("/v1/zones/mail", mail)] {
        let made = ask(0, "PUT", path, terms).await;
        assert_eq!(made.status, 200, "{}", made.body);
    }
    let lease = async |token: usize, client: Option<&str>, wants: i64| {
        let wanted = json!({ "zone": "gpu", "resource": "h100", "wants": wants, "client": client });
        let lease = ask(token, "POST", "/v1/lease", wanted).await.json();
        (lease["client"].as_str().unwrap().to_owned(), lease["has"].as_i64().unwrap())
    };
    assert_eq!(lease(0, Some("host:1"), 60).await, ("one/host:1".to_owned(), 60));
    assert_eq!(lease(0, None, 10).await, ("one".to_owned(), 10));
    // Another's clients are not given back by their names.
    for client in ["one/host:1", "one", "host:1"] {
        assert_eq!(lease(1, Some(client), 0).await, (format!("two/{client}"), 0));
    }
    assert_eq!(lease(1, None, 100).await, ("two".to_owned(), 30));

    let of = |more: Value| {
        let mut said = json!({ "zone": "mail", "queue": "out" });
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        said
    };
    ask(0, "POST", "/v1/queue/offer", of(json!({}))).await;
    let taken =
        ask(0, "POST", "/v1/queue/take", of(json!({ "visible_us": 60_000_000, "worker": "w" }))).await;
    let receipt = &taken.json()["items"][0]["receipt"];
    for (path, more) in [
        ("/v1/queue/extend", json!({ "receipt": receipt, "visible_us": 60_000_000 })),
        ("/v1/queue/release", json!({ "receipt": receipt })),
        ("/v1/queue/done", json!({ "receipt": receipt })),
    ] {
        // Nor is the word of one believed whose name begins like the other's.
        for other in [1, 2] {
            let told = ask(other, "POST", path, of(more.clone())).await;
            assert_eq!(told.problem(), (409, "conflict".to_owned()), "{path}");
        }
    }
    let done = ask(0, "POST", "/v1/queue/done", of(json!({ "receipt": receipt }))).await;
    assert_eq!(done.json()["state"], "done", "{}", done.body);
    let rows = serving.ask("GET", "/v1/history?zone=mail", Some(&tokens[0]), None).await.json();
    let take = rows["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "take").unwrap();
    assert_eq!(take["member"], "one/w", "its row says who");
}

#[tokio::test]
async fn a_token_of_some_zones_neither_sees_nor_spends_another() {
    let all = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("web", &all, "log*"), ("root", &all, "*")]).await;
    let ask = async |token: usize, method: &str, path: &str, body: Option<Value>| {
        serving.ask(method, path, Some(&tokens[token]), body).await
    };
    let payment = json!({ "zone": "payments", "key": "a", "cost": 10 });
    let checks = json!({ "checks": [login("a"), payment] });
    let decided = ask(1, "POST", "/v1/check-all", Some(checks.clone())).await.json();
    let txn = decided["decisions"][0]["txn_id"].as_str().unwrap().to_owned();

    for (method, path, body) in [
        ("POST", "/v1/check", payment.clone()),
        ("POST", "/v1/check-all", checks),
        ("POST", "/v1/peek", json!({ "zone": "payments", "key": "a" })),
        ("POST", "/v1/reserve", json!({ "zone": "payments", "key": "a", "ttl_us": 1_000_000 })),
        (
            "POST",
            "/v1/reserve-predicted",
            json!({ "shape": "a", "check": { "zone": "payments", "key": "a", "ttl_us": 1_000_000 } }),
        ),
        ("POST", "/v1/predict", json!({ "zone": "payments", "key": "a", "shape": "a" })),
        ("POST", "/v1/settle", json!({ "txn": txn, "zone": "payments", "key": "a", "cost": 1 })),
        ("POST", "/v1/cancel", json!({ "txn": txn, "zone": "payments", "key": "a" })),
        ("POST", "/v1/refund", json!({ "txn": txn, "zone": "payments", "key": "a" })),
        ("POST", "/v1/release", json!({ "txn": txn, "zone": "payments", "key": "a" })),
        ("POST", "/v1/queue/offer", json!({ "zone": "payments", "queue": "a" })),
        ("POST", "/v1/queue/take", json!({ "zone": "payments", "queue": "a", "visible_us": 1 })),
        (
            "POST",
            "/v1/queue/done",
            json!({ "zone": "payments", "queue": "a", "receipt": format!("1-{txn}") }),
        ),
        ("POST", "/v1/lease", json!({ "zone": "payments", "resource": "a", "wants": 1 })),
        // By its name alone it would be given back there too.
        ("POST", "/v1/refund", json!({ "txn": txn })),
        ("POST", "/json", json!({ "domain": "shop", "descriptors": [] })),
        ("PUT", "/v1/zones/payments", json!({ "rate": 1, "per": "1s" })),
        ("PUT", "/v1/zones/payments/bans/a", json!({ "for": "1s", "note": "x" })),
        ("PUT", "/v1/zones/payments/overrides/a", json!({ "rate": 1, "per": "1s", "note": "x" })),
    ] {
        assert_eq!(ask(0, method, path, Some(body)).await.problem(), (403, "forbidden".to_owned()), "{path}");
    }
    for (method, path) in [
        ("GET", "/v1/zones/payments"),
        ("GET", "/v1/zones/payments/buckets/a"),
        ("GET", "/v1/zones/payments/bans"),
        ("GET", "/v1/zones/payments/overrides"),
        ("GET", "/v1/history?zone=payments"),
        ("DELETE", "/v1/zones/payments/bans/a?note=x"),
        ("DELETE", "/v1/zones/payments/overrides/a?note=x"),
        // The same zone by other letters.
        ("GET", "/v1/zones/%70ayments"),
    ] {
        assert_eq!(ask(0, method, path, None).await.problem(), (403, "forbidden".to_owned()), "{path}");
    }
    for path in ["/v1/history", "/v1/buckets?key=a", "/v1/zones", &format!("/v1/transactions/{txn}")] {
        let seen = ask(0, "GET", path, None).await.body;
        assert!(seen.contains("login") && !seen.contains("payments"), "{path}: {seen}");
    }
    let why = ask(0, "GET", &format!("/v1/transactions/{txn}/explanation"), None).await.body;
    assert!(why.contains("login") && !why.contains("payments"), "{why}");
    // Nor is it told what bound where it may not look.
    let dear = json!({ "zone": "payments", "key": "a", "cost": 5_000 });
    let both = json!({ "checks": [login("a"), dear] });
    let bound = ask(1, "POST", "/v1/check-all", Some(both)).await.json();
    assert_eq!(bound["binding"], "payments");
    let bound = bound["decisions"][0]["txn_id"].as_str().unwrap();
    let why = ask(0, "GET", &format!("/v1/transactions/{bound}/explanation"), None).await.body;
    assert!(why.contains("held_back") && !why.contains("payments"), "{why}");
    // A transaction that touched nothing that it sees is not there at all.
    let txn = ask(1, "POST", "/v1/check", Some(payment)).await.json()["txn_id"].as_str().unwrap().to_owned();
    for path in [format!("/v1/transactions/{txn}"), format!("/v1/transactions/{txn}/explanation")] {
        assert_eq!(ask(0, "GET", &path, None).await.problem(), (404, "not_found".to_owned()));
    }
    // Nothing was spent by all that.
    let look = json!({ "zone": "payments", "key": "a" });
    assert_eq!(ask(1, "POST", "/v1/peek", Some(look)).await.json()["remaining"], 980);
    let refund = json!({ "txn": decided["decisions"][0]["txn_id"], "zone": "login", "key": "a" });
    assert_eq!(ask(0, "POST", "/v1/refund", Some(refund)).await.status, 200);
}

#[tokio::test]
async fn metrics_are_at_their_own_address_where_they_have_one_and_nothing_else_is() {
    let token = Tokens::make("web", &[Right::App, Right::Auditor], &["*".to_owned()]).unwrap();
    let serving = Serving::begin("admin = '127.0.0.1:0'", &[token.entry]).await;
    let secret = Some(token.secret.as_str());
    let admin = address_of(serving.admin.as_deref().unwrap());
    let ask = async |at: SocketAddr, path: &str, token: Option<&str>| {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request("GET", path, token, None).as_bytes()).await.unwrap();
        read(&mut stream).await
    };
    for path in ["/livez", "/readyz"] {
        assert_eq!(
            (ask(admin, path, None).await.status, serving.get(path).await.status),
            (200, 200),
            "{path}"
        );
    }
    assert_eq!(serving.ask("GET", "/v1/zones", secret, None).await.status, 200);
    assert!(ask(admin, "/metrics", secret).await.body.contains("/v1/zones"));
    assert_eq!(ask(admin, "/metrics", None).await.problem().0, 401);
    // It is not what the document tells of a server without such an address.
    assert_eq!(ask(serving.at, "/metrics", secret).await.problem().0, 404);
    assert_eq!(ask(admin, "/v1/zones", secret).await.problem().0, 404);
}

#[tokio::test]
async fn this_machine_needs_no_token_but_a_page_in_its_browser_does() {
    let serving = Serving::start("").await;
    let check = |host: &str, kind: &str| {
        let body = login("a").to_string();
        format!(
            "POST /v1/check HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for host in ["localhost", "localhost:7411", "127.0.0.1:7411", "[::1]:7411", "LOCALHOST"] {
        assert_eq!(serving.send(check(host, "application/json")).await.status, 200, "{host}");
    }
    // A name of a stranger that leads here, and a form that a browser sends without asking.
    for host in [
        "attacker.example",
        "attacker.example:7411",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "a b",
    ] {
        let status = serving.send(check(host, "application/json")).await.status;
        assert!([400, 403].contains(&status), "{host}: {status}");
    }
    assert_eq!(serving.send(check("localhost", "text/plain")).await.problem(), (415, "invalid".to_owned()));
    // It checks and reads; what it sets would be nobody's.
    let set = serving.ask("PUT", "/v1/zones/login", None, Some(json!({ "rate": 1, "per": "1s" }))).await;
    assert_eq!(set.problem(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn others_are_answered_only_by_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::read("listen = '0.0.0.0:0'").unwrap();
    config.database.app = format!("sqlite:{}", folder.path().join("tallygate.db").display());
    let refused = Server::bind(config.clone()).await.err().unwrap().to_string();
    assert!(refused.contains("without tokens") && refused.contains("tallygate token add"), "{refused}");
    let file = folder.path().join("tokens.toml");
    std::fs::write(&file, Tokens::make("web", &[Right::App], &["*".to_owned()]).unwrap().entry).unwrap();
    let mut metrics = config.clone();
    (metrics.listen, metrics.admin) = ("127.0.0.1:0".to_owned(), Some("0.0.0.0:0".to_owned()));
    let refused = Server::bind(metrics).await.err().unwrap().to_string();
    assert!(refused.contains("without tokens"), "{refused}");
    config.tokens = Some(file);
    Server::bind(config).await.unwrap();
}

#[tokio::test]
async fn tokens_and_zones_are_read_again_and_a_bad_file_changes_nothing() {
    let (serving, tokens) = Serving::start_with(&[("old", &[Right::App], "*")]).await;
    let check =
        async |token: &str| serving.ask("POST", "/v1/check", Some(token), Some(login("a"))).await.json();
    assert_eq!(check(&tokens[0]).await["limit"], 3);
    let new = Tokens::make("new", &[Right::App], &["*".to_owned()]).unwrap();
    std::fs::write(serving.file("tokens.toml"), &new.entry).unwrap();
    std::fs::write(serving.file("zones.toml"), "zone.login = { rate = 'many' }").unwrap();
    let refused = serving.reload.files().await.unwrap_err().to_string();
    assert!(refused.contains("zones.toml"), "{refused}");
    assert_eq!(check(&tokens[0]).await["limit"], 3);
    std::fs::write(serving.file("zones.toml"), "zone.login = { rate = 8, per = '60s' }").unwrap();
    serving.reload.files().await.unwrap();
    assert_eq!(check(&tokens[0]).await["code"], "unknown_caller");
    assert_eq!(check(&new.secret).await["limit"], 8);
}

/// A caller may say how important its requests are: by the band of its token, whichever way it says so.
#[tokio::test]
async fn a_token_claims_no_band_that_is_more_important_than_its_own() {
    let made = |name: &str| Tokens::make(name, &[Right::App, Right::Operator], &["*".to_owned()]).unwrap();
    let [any, batch] = ["any", "batch"].map(made);
    let named = format!("{}band = \"sheddable-plus\"\n", made("named").entry);
    let entries = [any.entry.clone(), Tokens::up_to(2, &batch.entry), named];
    let serving = Serving::begin("", &entries).await;
    let [any, batch] = [any, batch].map(|token| token.secret);
    let ask = async |token: &str, path: &str, body: Value| {
        let answer = serving.ask("POST", path, Some(token), Some(body)).await;
        if answer.status == 403 {
            assert!(answer.body.contains("may claim bands from 2 on"), "{}", answer.body);
        }
        answer.status
    };
    let render = json!({ "rate": 100, "per": "60s", "algorithm": "capacity" });
    assert_eq!(serving.ask("PUT", "/v1/zones/render", Some(&any), Some(render)).await.status, 200);
    let check = |more: Value| {
        let mut check = json!({ "zone": "login", "key": "a", "ttl_us": 1_000 });
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    let lease = |band: u8| json!({ "zone": "render", "resource": "gpu", "wants": 1, "band": band });
    for (claims, of_any, of_batch) in [
        (json!({}), 200, 200),
        (json!({ "critical": true }), 200, 403),
        (json!({ "band": 0 }), 200, 403),
        (json!({ "band": 1 }), 200, 403),
        (json!({ "band": 2 }), 200, 200),
        (json!({ "critical": true, "band": 0 }), 200, 403),
        (json!({ "critical": true, "band": 2 }), 400, 403),
    ] {
        for path in ["/v1/check", "/v1/reserve"] {
            let check =
                if path == "/v1/check" { json!({ "zone": "login", "key": "a" }) } else { check(json!({})) };
            let mut asked = check;
            asked.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
            let told = (ask(&any, path, asked.clone()).await, ask(&batch, path, asked.clone()).await);
            assert_eq!(told, (of_any, of_batch), "{path} {claims}");
            let together = json!({ "checks": [asked] });
            assert_eq!(ask(&batch, "/v1/check-all", together).await == 403, of_batch == 403, "{claims}");
        }
        let shaped = json!({ "shape": "chat", "check": check(claims.clone()) });
        assert_eq!(ask(&batch, "/v1/reserve-predicted", shaped).await, of_batch, "{claims}");
    }
    assert_eq!(ask(&any, "/v1/lease", lease(0)).await, 200);
    assert_eq!(
        (ask(&batch, "/v1/lease", lease(1)).await, ask(&batch, "/v1/lease", lease(2)).await),
        (403, 200)
    );
    let mail = json!({ "rate": 100, "per": "60s", "algorithm": "queue" });
    assert_eq!(serving.ask("PUT", "/v1/zones/mail", Some(&any), Some(mail)).await.status, 200);
    let item = |band: u8| json!({ "zone": "mail", "queue": "out", "band": band });
    let offer = "/v1/queue/offer";
    assert_eq!(ask(&any, offer, item(0)).await, 200);
    assert_eq!((ask(&batch, offer, item(1)).await, ask(&batch, offer, item(2)).await), (403, 200));
    // A caller that says nothing is as important as it may be.
    let silent = json!({ "zone": "render", "resource": "gpu", "wants": 1 });
    let bands =
        [&any, &batch].map(|token| serving.ask("POST", "/v1/lease", Some(token), Some(silent.clone())));
    for (lease, band) in bands.into_iter().zip([0, 2]) {
        assert_eq!(lease.await.json()["band"], band);
    }
    let wrong = format!("{}band = 256\n", made("wrong").entry);
    assert!(Tokens::read(&wrong).unwrap_err().to_string().contains("band \"256\" cannot be used"));
}
