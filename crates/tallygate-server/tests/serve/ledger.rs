//! Decisions, and what is told of them.

use std::os::unix::fs::PermissionsExt;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tallygate::sqlx::{Connection, SqliteConnection, query};
use tallygate_server::Right;
use uuid::Uuid;

use crate::client::{Answer, Serving, login, request};

#[tokio::test]
async fn a_check_is_decided_recorded_and_explained() {
    let serving = Serving::start("").await;
    let mut last = Value::Null;
    for n in 1..=4 {
        let answer = serving.post("/v1/check", login("user:42")).await;
        last = answer.json();
        assert_eq!((answer.status, last["allowed"].as_bool()), (200, Some(n < 4)));
        assert_eq!(last["seq"], n);
    }
    assert_eq!((&last["reason"], &last["blocked"]), (&json!("over_limit"), &json!(true)));
    let txn = last["txn_id"].as_str().unwrap();

    let page = serving.get("/v1/history?zone=login&blocked=true").await.json();
    assert_eq!(page["rows"].as_array().unwrap().len(), 1);
    assert_eq!(page["rows"][0]["txn_id"], txn);
    let rows = serving.get(&format!("/v1/transactions/{txn}")).await.json();
    assert_eq!(rows["rows"], page["rows"]);
    let why = serving.get(&format!("/v1/transactions/{txn}/explanation?charges=2")).await.json();
    assert_eq!((&why["rows"][0]["reproduced"], &why["rows"][0]["left_before"]), (&json!(true), &json!(0)));
    assert_eq!(why["binding"], json!({ "zone": "login", "key": "user:42" }));

    // Page by page it is the same, and the last page says that it is.
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = serving.get(&format!("/v1/history?zone=login&key=user:42&limit=3{before}")).await.json();
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_i64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(seen, [4, 3, 2, 1]);

    let standing = serving.get("/v1/zones/login/buckets/user:42").await.json();
    assert_eq!((&standing["limit"], &standing["remaining"]), (&json!(3), &json!(0)));
    let found = serving.get("/v1/buckets?key=user%3A42").await.json();
    assert_eq!(found["buckets"][0]["zone"], "login");
    assert_eq!(serving.get("/v1/zones/login/buckets/nobody").await.problem(), (404, "not_found".to_owned()));
    assert_eq!(serving.get("/v1/zones/nowhere/buckets/x").await.problem(), (404, "not_found".to_owned()));
    let nothing = format!("/v1/transactions/{}", Uuid::now_v7());
    assert_eq!(serving.get(&nothing).await.problem(), (404, "not_found".to_owned()));

    // A look spends nothing and leaves no row.
    let look = serving.post("/v1/peek", login("user:7")).await.json();
    assert_eq!((&look["allowed"], &look["remaining"], &look["seq"]), (&json!(true), &json!(3), &Value::Null));
}

#[tokio::test]
async fn who_wants_a_status_gets_429_and_the_time_to_wait() {
    let serving = Serving::start("").await;
    for _ in 0..3 {
        assert_eq!(serving.post("/v1/check?status", login("a")).await.status, 200);
    }
    let blocked = serving.post("/v1/check?status", login("a")).await;
    assert_eq!(blocked.status, 429);
    let wait_us = blocked.json()["retry_after_us"].as_i64().unwrap();
    let wait_s = wait_us.div_euclid(1_000_000) + i64::from(wait_us % 1_000_000 > 0);
    assert!(blocked.head.contains(&format!("\r\nretry-after: {wait_s}\r\n")), "{}", blocked.head);
    assert!(blocked.head.contains("cache-control: no-store"));
    assert_eq!(serving.post("/v1/check", login("a")).await.status, 200);

    // The wait of what is told again was true when it was decided: the same key is never let in by waiting.
    let again = json!({ "zone": "login", "key": "a", "txn": blocked.json()["txn_id"] });
    let one = serving.post("/v1/check?status", again.clone()).await;
    let all = serving.post("/v1/check-all?status", json!({ "checks": [again] })).await;
    for told in [one, all] {
        assert!(told.status == 429 && !told.head.contains("retry-after"), "{}", told.head);
    }
}

#[tokio::test]
async fn several_limits_pass_together_or_not_at_all() {
    let serving = Serving::start("").await;
    let ask = async |user: &str| {
        let checks = json!([login(user), { "zone": "address", "key": "203.0.113.7", "cost": 2 }]);
        serving.post("/v1/check-all", json!({ "checks": checks })).await.json()
    };
    assert_eq!(ask("a").await["allowed"], true);
    assert_eq!(ask("b").await["allowed"], true);
    let third = ask("c").await;
    assert_eq!((&third["allowed"], &third["binding"]), (&json!(false), &json!("address")));
    assert_eq!(third["decisions"][0]["reason"], "held_back");
    let ids: Vec<_> = third["decisions"].as_array().unwrap().iter().map(|one| &one["txn_id"]).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(serving.post("/v1/peek", login("c")).await.json()["remaining"], 3);
}

#[tokio::test]
async fn what_is_sent_again_is_charged_once() {
    let serving = Serving::start("").await;
    let txn = Uuid::now_v7();
    let header = format!("Idempotency-Key: {txn}");
    let first = serving.check_with(&header, &login("a")).await.json();
    let again = serving.check_with(&header, &login("a")).await.json();
    assert_eq!((&first["replayed"], &again["replayed"]), (&json!(false), &json!(true)));
    assert_eq!(again["txn_id"], txn.to_string());
    assert_eq!((&again["seq"], &again["remaining"]), (&first["seq"], &first["remaining"]));
    // In the body it is the same name.
    let quoted = format!("Idempotency-Key: \"{txn}\"");
    assert_eq!(serving.check_with(&quoted, &login("a")).await.json()["replayed"], true);
    let named = json!({ "zone": "login", "key": "a", "txn": txn });
    assert_eq!(serving.post("/v1/check", named.clone()).await.json()["replayed"], true);
    assert_eq!(serving.check_with(&header, &named).await.json()["replayed"], true);

    let dearer = json!({ "zone": "login", "key": "a", "cost": 2 });
    assert_eq!(serving.check_with(&header, &dearer).await.problem(), (409, "conflict".to_owned()));
    let other = format!("Idempotency-Key: {}", Uuid::now_v7());
    for wrong in [other.as_str(), "Idempotency-Key: 42", &format!("{header}\r\n{header}")] {
        assert_eq!(serving.check_with(wrong, &named).await.problem(), (400, "invalid".to_owned()), "{wrong}");
    }
    assert_eq!(serving.get("/v1/history?zone=login").await.json()["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_sent_by_many_connections_at_once_is_charged_once() {
    let serving = Serving::start("").await;
    let header = format!("Idempotency-Key: {}", Uuid::now_v7());
    let body = login("a");
    let answers = join_all((0..16).map(|_| serving.check_with(&header, &body))).await;
    let answers: Vec<_> = answers.iter().map(Answer::json).collect();
    assert!(answers.iter().all(|answer| answer["remaining"] == 2 && answer["seq"] == 1), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer["replayed"] == false).count(), 1);
}

#[tokio::test]
async fn nothing_is_decided_in_a_file_that_has_lost_its_name() {
    let serving = Serving::start("").await;
    let (name, away) = (serving.file("tallygate.db"), serving.file("away.db"));
    assert_eq!(serving.post("/v1/check", login("a")).await.status, 200);
    std::fs::rename(&name, &away).unwrap();
    for replacement in [None, Some("something else")] {
        if let Some(text) = replacement {
            std::fs::write(&name, text).unwrap();
        }
        assert_eq!(serving.post("/v1/check", login("a")).await.problem(), (500, "database".to_owned()));
        assert_eq!(serving.get("/readyz").await.problem(), (500, "database".to_owned()));
    }
    std::fs::rename(&away, &name).unwrap();
    assert_eq!(serving.post("/v1/check", login("a")).await.json()["seq"], 2, "it is there again");
}

#[tokio::test]
async fn a_charge_is_settled_cancelled_given_back_and_released() {
    let serving = Serving::start("").await;
    let charge = async |path: &str, check: Value| serving.post(path, check).await.json()["txn_id"].clone();
    let left = async |zone: &str| {
        serving.post("/v1/peek", json!({ "zone": zone, "key": "a" })).await.json()["remaining"].clone()
    };
    let reservation = json!({ "zone": "payments", "key": "a", "cost": 400, "ttl_us": 60_000_000 });

    let txn = charge("/v1/reserve", reservation.clone()).await;
    let settled = serving.post("/v1/settle", json!({ "txn": txn, "cost": 150 })).await.json();
    assert_eq!((&settled["recorded"][0]["kind"], &left("payments").await), (&json!("settle"), &json!(850)));
    let txn = charge("/v1/reserve", reservation).await;
    let cancelled = serving.post("/v1/cancel", json!({ "txn": txn, "zone": "payments", "key": "a" })).await;
    assert_eq!((cancelled.status, left("payments").await), (200, json!(850)));
    let txn = charge("/v1/check", json!({ "zone": "payments", "key": "a", "cost": 50 })).await;
    let refund = json!({ "txn": txn });
    assert_eq!(serving.post("/v1/refund", refund.clone()).await.json()["recorded"][0]["replayed"], false);
    assert_eq!(serving.post("/v1/refund", refund).await.json()["recorded"][0]["replayed"], true);
    assert_eq!(left("payments").await, 850);
    let txn = charge("/v1/check", json!({ "zone": "slots", "key": "a" })).await;
    assert_eq!(left("slots").await, 1);
    assert_eq!(serving.post("/v1/release", json!({ "txn": txn })).await.status, 200);
    assert_eq!(left("slots").await, 2);

    for (path, body, code) in [
        ("/v1/refund", json!({ "txn": Uuid::now_v7() }), "invalid"),
        ("/v1/refund", json!({ "txn": txn, "zone": "slots" }), "invalid"),
        ("/v1/settle", json!({ "txn": txn }), "invalid"),
        ("/v1/reserve", login("a"), "invalid"),
    ] {
        assert_eq!(serving.post(path, body).await.problem(), (400, code.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn an_operator_sets_zones_bans_and_overrides_under_its_name() {
    let everything = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("ops", &everything, "*")]).await;
    let ask = async |method: &str, path: &str, body: Option<Value>| {
        let answer = serving.ask(method, path, Some(&tokens[0]), body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.json()
    };
    ask("PUT", "/v1/zones/login", Some(json!({ "rate": 9, "per": "1h", "description": "logins" }))).await;
    let shown = ask("GET", "/v1/zones/login", None).await;
    assert_eq!((&shown["zone"]["rate"], &shown["zone"]["version"]), (&json!(9), &json!(2)));
    assert_eq!(shown["versions"][1]["changed_by"], "ops");
    assert_eq!(ask("GET", "/v1/zones", None).await["zones"].as_array().unwrap().len(), 6);

    // A key with a slash and a space is one part of the path.
    let bucket = "/v1/zones/login/bans/a%2Fb%20c";
    let ban = ask("PUT", bucket, Some(json!({ "for": "15m", "note": "stolen" }))).await;
    assert_eq!((&ban["kind"], &ban["key"]), (&json!("ban"), &json!("a/b c")));
    assert_eq!(ask("POST", "/v1/check", Some(login("a/b c"))).await["reason"], "banned");
    assert_eq!(ask("GET", "/v1/zones/login/bans", None).await["bans"][0]["key"], "a/b c");
    ask("DELETE", &format!("{bucket}?note=it%20was%20found"), None).await;
    assert_eq!(ask("POST", "/v1/check", Some(login("a/b c"))).await["allowed"], true);
    let rows = ask("GET", "/v1/history?zone=login", None).await;
    let unban = rows["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "unban").unwrap();
    assert_eq!((&unban["actor"], &unban["note"]), (&json!("ops"), &json!("it was found")));

    let bucket = "/v1/zones/login/overrides/vip";
    ask("PUT", bucket, Some(json!({ "rate": 500, "per": "1h", "for": "30d", "note": "a fair" }))).await;
    assert_eq!(ask("POST", "/v1/peek", Some(login("vip"))).await["remaining"], 500);
    assert_eq!(ask("GET", "/v1/zones/login/overrides", None).await["overrides"][0]["set_by"], "ops");
    ask("DELETE", &format!("{bucket}?note=over"), None).await;
    assert_eq!(ask("POST", "/v1/peek", Some(login("vip"))).await["remaining"], 9);

    for (method, path, body) in [
        ("PUT", "/v1/zones/login", json!({ "rate": 9 })),
        ("PUT", "/v1/zones/login", json!({ "rate": 9, "per": "1h", "color": "red" })),
        ("PUT", "/v1/zones/login/bans/x", json!({ "for": "soon", "note": "" })),
        ("PUT", "/v1/zones/login/overrides/x", json!({ "rate": 5, "note": "" })),
        ("PUT", "/v1/zones/login/overrides/x", json!({ "note": "nothing" })),
        ("DELETE", "/v1/zones/login/overrides/x", json!({})),
    ] {
        let answer = serving.ask(method, path, Some(&tokens[0]), Some(body)).await;
        assert_eq!(answer.problem(), (400, "invalid".to_owned()), "{method} {path}");
    }
}

#[tokio::test]
async fn what_is_counted_names_routes_and_no_keys() {
    let serving = Serving::start("").await;
    for n in 0..4 {
        serving.post("/v1/check", login(&format!("secret-key-{n}"))).await;
        serving.get(&format!("/v1/zones/login/buckets/secret-key-{n}")).await;
        serving.get(&format!("/secret-path-{n}")).await;
    }
    let metrics = serving.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    for line in [
        "# HELP tallygate_checks_total Checks that were decided",
        "# TYPE tallygate_request_seconds histogram",
        "route=\"/v1/zones/{zone}/buckets/{key}\"",
        "route=\"none\"",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
    assert!(!metrics.body.contains("secret"), "{}", metrics.body);
}

#[tokio::test]
async fn a_lease_is_taken_refreshed_and_given_back() {
    let everything = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("ops", &everything, "*")]).await;
    let token = Some(tokens[0].as_str());
    let terms = json!({ "rate": 100, "per": "60s", "algorithm": "capacity" });
    let made = serving.ask("PUT", "/v1/zones/render", token, Some(terms)).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let ask = async |more: Value| {
        let mut want = json!({ "zone": "render", "resource": "gpu", "wants": 80 });
        want.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serving.ask("POST", "/v1/lease", token, Some(want)).await
    };
    let first = ask(json!({ "client": "a" })).await.json();
    assert_eq!((&first["has"], &first["capacity"], &first["band"]), (&json!(80), &json!(100), &json!(0)));
    let second = ask(json!({ "client": "b", "band": 3, "weight": 2 })).await.json();
    assert_eq!((&second["has"], &second["reason"]), (&json!(20), &json!("over_limit")));
    let refreshed = ask(json!({ "client": "a", "after": first["seq"] })).await.json();
    assert_eq!(refreshed["has"], 34, "a third, by weight, and the unit that is left over");
    assert_eq!(ask(json!({ "client": "a", "after": first["seq"] })).await.problem().0, 409);
    let back = ask(json!({ "client": "a", "wants": 0 })).await.json();
    assert_eq!((&back["has"], &back["length_us"]), (&json!(0), &json!(0)));
    // A client that does not say who it is goes by the name of its token.
    assert_eq!(ask(json!({})).await.json()["client"], "ops");
    for wrong in
        [json!({ "wants": -1 }), json!({ "weight": 0 }), json!({ "band": 256 }), json!({ "client": "" })]
    {
        assert_eq!(ask(wrong.clone()).await.status, 400, "{wrong}");
    }
    let txn = second["txn_id"].as_str().unwrap();
    let why = serving.ask("GET", &format!("/v1/transactions/{txn}/explanation"), token, None).await.json();
    let leased = &why["rows"][0]["leased"];
    assert_eq!((&leased["share"], &leased["others"][0]["client"]), (&json!(66), &json!("ops/a")));
    assert_eq!(why["rows"][0]["reproduced"], true);
}

#[tokio::test]
async fn a_cost_is_predicted_from_what_was_settled() {
    let everything = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("ops", &everything, "*")]).await;
    let token = Some(tokens[0].as_str());
    let made = json!({ "rate": 10_000, "per": "60s" });
    assert_eq!(serving.ask("PUT", "/v1/zones/llm", token, Some(made)).await.status, 200);
    let reserve = async |shape: &str| {
        let check = json!({ "zone": "llm", "key": "tenant:7", "cost": 1_000, "ttl_us": 30_000_000 });
        let asked = json!({ "shape": shape, "check": check });
        serving.ask("POST", "/v1/reserve-predicted", token, Some(asked)).await
    };
    let look = async || {
        let asked = json!({ "zone": "llm", "key": "tenant:7", "shape": "chat" });
        serving.ask("POST", "/v1/predict", token, Some(asked)).await.json()
    };
    let first = reserve("chat").await.json();
    assert_eq!(
        (&first["allowed"], &first["cost"], &look().await["cost"]),
        (&json!(true), &json!(1_000), &Value::Null)
    );
    let settled = json!({ "txn": first["txn_id"], "cost": 240 });
    assert_eq!(serving.ask("POST", "/v1/settle", token, Some(settled)).await.status, 200);
    let told = look().await;
    assert_eq!((&told["cost"], &told["samples"], &told["shared"]), (&json!(240), &json!(1), &json!(false)));
    let second = reserve("chat").await.json();
    assert_eq!(second["cost"], 240);
    let txn = second["txn_id"].as_str().unwrap();
    let why = serving.ask("GET", &format!("/v1/transactions/{txn}/explanation"), token, None).await.json();
    assert_eq!(
        (&why["rows"][0]["predicted"]["cost"], &why["rows"][0]["reproduced"]),
        (&json!(240), &json!(true))
    );
    for wrong in ["", "*"] {
        assert_eq!(reserve(wrong).await.status, 400, "{wrong:?}");
    }
    let timeless = json!({ "shape": "chat", "check": { "zone": "llm", "key": "a" } });
    assert_eq!(serving.ask("POST", "/v1/reserve-predicted", token, Some(timeless)).await.status, 400);
}

#[tokio::test]
async fn an_item_is_offered_taken_and_worked_off() {
    let everything = [Right::App, Right::Auditor, Right::Operator];
    let (serving, tokens) = Serving::start_with(&[("ops", &everything, "*")]).await;
    let token = Some(tokens[0].as_str());
    let terms = json!({ "rate": 100, "per": "1s", "algorithm": "queue", "backlog": 5, "max-takes": 2 });
    let made = serving.ask("PUT", "/v1/zones/mail", token, Some(terms)).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let ask = async |what: &str, more: Value| {
        let mut asked = json!({ "zone": "mail", "queue": "out" });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serving.ask("POST", &format!("/v1/queue/{what}"), token, Some(asked)).await
    };
    let first =
        ask("offer", json!({ "cost": 4, "band": 2, "payload": { "to": 42 }, "deadline_us": 60_000_000 }))
            .await
            .json();
    assert_eq!((&first["blocked"], &first["remaining"]), (&json!(false), &json!(1)));
    let full = ask("offer", json!({ "cost": 2, "band": 2 })).await;
    assert_eq!((full.status, &full.json()["reason"]), (200, &json!("over_limit")));
    let taken = ask("take", json!({ "most": 3, "visible_us": 60_000_000 })).await.json();
    let work = &taken["items"][0];
    assert_eq!((&work["payload"], &work["txn_id"]), (&json!({ "to": 42 }), &first["txn_id"]));
    let receipt = json!({ "receipt": work["receipt"] });
    assert_eq!(
        ask("extend", json!({ "receipt": work["receipt"], "visible_us": 90_000_000 })).await.status,
        200
    );
    let back = ask("release", receipt.clone()).await.json();
    assert_eq!(back["state"], "waiting");
    assert_eq!(ask("done", receipt.clone()).await.problem().0, 409);
    let again = ask("take", json!({ "visible_us": 60_000_000, "worker": "w1" })).await.json();
    let done = ask("done", json!({ "receipt": again["items"][0]["receipt"] })).await.json();
    assert_eq!((&done["state"], &done["remaining"]), (&json!("done"), &json!(5)));
    let txn = first["txn_id"].as_str().unwrap();
    let item = serving.ask("GET", &format!("/v1/queue/mail/out/{txn}"), token, None).await.json();
    assert_eq!((&item["state"], &item["takes"]), (&json!("done"), &json!(2)));
    let nobody = format!("/v1/queue/mail/out/{}", uuid::Uuid::now_v7());
    assert_eq!(serving.ask("GET", &nobody, token, None).await.status, 404);
    for payload in [r#"{"a":1,"a":2}"#, r#"{"n":[18446744073709551616]}"#] {
        let body = format!(r#"{{"zone":"mail","queue":"out","payload":{payload}}}"#);
        let offer = request("POST", "/v1/queue/offer", token, None).replace(
            "Content-Length: 0\r\n\r\n",
            &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        );
        assert_eq!(serving.send(offer).await.problem().0, 400, "{payload} would change");
    }
    let long = "x".repeat(9_000);
    for (what, wrong) in [
        ("offer", json!({ "cost": -1 })),
        ("offer", json!({ "band": 256 })),
        ("offer", json!({ "payload": long })),
        ("take", json!({ "visible_us": -1 })),
        ("take", json!({ "visible_us": 1, "most": 101 })),
        ("done", json!({ "receipt": "7" })),
    ] {
        assert_eq!(ask(what, wrong).await.status, 400, "{what}");
    }
    let why = serving.ask("GET", &format!("/v1/transactions/{txn}/explanation"), token, None).await.json();
    let rows = why["rows"].as_array().unwrap();
    assert!(rows.len() == 6 && rows.iter().all(|row| row["reproduced"] == true && row["queued"].is_object()));
}

#[tokio::test]
async fn what_is_decided_locally_has_its_line_in_the_local_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("local.jsonl");
    let serving = Serving::start(&format!("local_journal = '{}'", journal.display())).await;
    let busy = json!({ "zone": "busy", "key": "a" });
    // It is decided locally as soon as the server has seen that the key is busy.
    let local = loop {
        let answer = serving.post("/v1/check", busy.clone()).await.json();
        if answer["local"].is_string() {
            break answer;
        }
    };
    assert_eq!((&local["allowed"], &local["seq"]), (&json!(true), &Value::Null));
    let mode = std::fs::metadata(&journal).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "keys are in it");
    let lines = std::fs::read_to_string(journal).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&line["zone"], &line["key"], &line["txn"]), (&json!("busy"), &json!("a"), &local["txn_id"]));
    assert_eq!(line["take"], local["local"]);
}

#[tokio::test]
async fn a_check_is_answered_by_the_deadline_of_the_settings() {
    let serving = Serving::start("database = { deadline_s = 1 }").await;
    let ledger = format!("sqlite:{}", serving.file("tallygate.db").display());
    let mut holder = SqliteConnection::connect(&ledger).await.unwrap();
    query("begin immediate").execute(&mut holder).await.unwrap();
    // By the default it would wait for longer than that.
    let release = async {
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        query("rollback").execute(&mut holder).await.unwrap();
    };
    let (held, ()) = tokio::join!(serving.post("/v1/check", login("a")), release);
    assert_eq!(held.problem(), (503, "transient".to_owned()));
    assert_eq!(serving.post("/v1/check", login("a")).await.json()["allowed"], true);
}

#[tokio::test]
async fn a_shield_blocks_before_the_ledger_and_leaves_no_row() {
    let serving = Serving::start("shield = { per_second = 1, burst = 2 }").await;
    let answers = join_all((0..9).map(|_| serving.post("/v1/check", login("a")))).await;
    let reasons = answers.iter().map(|answer| answer.json()["reason"].as_str().unwrap().to_owned());
    let shielded = reasons.filter(|reason| reason == "local_limit").count();
    assert!((1..=7).contains(&shielded), "{shielded} of 9");
    let rows = serving.get("/v1/history?zone=login&key=a").await.json()["rows"].as_array().unwrap().len();
    assert_eq!(rows, 9 - shielded);
    // Of another key it knows nothing.
    assert_eq!(serving.post("/v1/check", login("b")).await.json()["reason"], "within_limit");
}
