//! A server as it is seen from outside: its metrics, its log, and the files that watch it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tallygate::sqlx::{Connection, SqliteConnection, query};
use tallygate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tallygate_server::Right;
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

use crate::client::{Serving, login};
use crate::envoy::{channel, request};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The metrics of the tables of docs/operations.md, each with its labels.
fn told() -> BTreeMap<String, BTreeSet<String>> {
    let document = include_str!("../../../../docs/operations.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `tallygate_"));
    rows.map(|row| {
        let name = row.split('`').next().unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.trim_end_matches('}').split(", ").filter(|label| !label.is_empty());
        (format!("tallygate_{name}"), labels.map(str::to_owned).collect())
    })
    .collect()
}

/// The metrics of an answer, each with the labels of its series; a histogram's own `le` is left out.
fn exposed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut of = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ") {
            of = name.split(' ').next().unwrap().to_owned();
        } else if line.starts_with(&of) && !of.is_empty() {
            // No value of a label has a comma or a quotation mark in it.
            let labels = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels =
                labels.map_or("", |(labels, _)| labels).split(',').filter_map(|label| label.split_once('='));
            let labels = labels.map(|(label, _)| label.to_owned()).filter(|label| label != "le");
            found.entry(of.clone()).or_default().extend(labels);
        }
    }
    found
}

#[tokio::test]
async fn what_is_exposed_is_what_the_document_lists() {
    let journal = tempfile::tempdir().unwrap();
    let serving = Serving::start(&format!("journal = '{}'", journal.path().join("journal").display())).await;
    let seen = json!({ "zone": "seen", "key": "a" });
    for _ in 0..3 {
        assert_eq!(serving.post("/v1/check", seen.clone()).await.status, 200);
    }
    // The flood is answered from memory, and its row can no longer be written.
    let ledger = format!("sqlite:{}", serving.file("tallygate.db").display());
    let mut connection = SqliteConnection::connect(&ledger).await.unwrap();
    query("drop table zone_txn").execute(&mut connection).await.unwrap();
    assert_eq!(serving.post("/v1/check", login("b")).await.problem(), (500, "schema".to_owned()));
    let metrics = loop {
        let metrics = serving.get("/metrics").await.body;
        // Checks that are not counted at all end this by the time limit of whoever runs it.
        if metrics.contains("tallygate_unrecorded_total{zone=\"seen\"} ") {
            break metrics;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let exposed = exposed(&metrics);
    assert_eq!(exposed, told());
    for (name, _) in exposed {
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    for series in [
        "tallygate_checks_total{zone=\"seen\",outcome=\"allowed\",reason=\"within_limit\"} 1",
        "tallygate_checks_total{zone=\"seen\",outcome=\"blocked\",reason=\"over_limit\"} 2",
        "tallygate_checks_total{zone=\"login\",outcome=\"error\",reason=\"schema\"} ",
        "tallygate_connections_limit{role=\"app\"} 16",
    ] {
        assert!(metrics.contains(series), "no {series} in {metrics}");
    }
    assert!(!metrics.contains("tallygate_call_errors_total{code=\"schema\"} 0"), "{metrics}");
}

/// A stranger's choice makes no series, and nothing secret is in one.
#[tokio::test]
async fn zones_that_there_are_not_and_whatever_is_sent_make_no_labels() {
    let (serving, tokens) = Serving::start_with(&[("web", &[Right::App, Right::Auditor], "*")]).await;
    let txn = Uuid::now_v7();
    for n in 0..40 {
        let check = json!({ "zone": format!("nowhere-{n}"), "key": "secret", "txn": txn });
        let asked = serving.ask("POST", "/v1/check", Some(&tokens[0]), Some(check)).await;
        assert_eq!(asked.problem(), (500, "unknown_zone".to_owned()));
        serving.ask("GET", &format!("/v1/zones/nowhere-{n}"), Some(&tokens[0]), None).await;
        serving.ask("GET", &format!("/nowhere-{n}"), Some(&tokens[0]), None).await;
        serving.ask(&format!("NOWHERE{n}"), "/v1/check", Some(&tokens[0]), None).await;
    }
    let check = json!({ "zone": "login", "key": "secret", "txn": txn });
    assert_eq!(serving.ask("POST", "/v1/check", Some(&tokens[0]), Some(check)).await.status, 200);
    let metrics = serving.ask("GET", "/metrics", Some(&tokens[0]), None).await.body;
    assert!(metrics.contains("code=\"unknown_zone\"") && metrics.contains("zone=\"login\""), "{metrics}");
    for secret in ["nowhere", "NOWHERE", "secret", &txn.to_string(), &tokens[0]] {
        assert!(!metrics.contains(secret), "{secret} is in {metrics}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_use_what_there_is() {
    let dashboard = include_str!("../../../../docs/monitoring/dashboard.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut used: BTreeSet<String> =
        targets.flat_map(|target| names(target["expr"].as_str().unwrap())).collect();
    let told = told();
    assert_eq!(used, told.keys().cloned().collect(), "each is in the dashboard");
    let alerts = include_str!("../../../../docs/monitoring/alerts.yml");
    used = names(alerts).collect();
    assert!(used.len() >= 7 && used.iter().all(|name| told.contains_key(name)), "{used:?}");

    let document = include_str!("../../../../docs/operations.md");
    let listed: Vec<_> =
        document.lines().filter_map(|line| line.strip_prefix("| `Tallygate")?.split('`').next()).collect();
    let there: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: Tallygate")).collect();
    assert_eq!(listed, there);
    let tests = include_str!("../../../../docs/monitoring/alerts_test.yml");
    for alert in there {
        let seen = tests.lines().filter(|line| line.trim() == format!("alertname: Tallygate{alert}")).count();
        assert!(seen > 0, "nothing shows that {alert} ever comes");
    }
}

/// The metrics that a text names, without what Prometheus adds to the name of a histogram.
fn names(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("tallygate_")).map(|word| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    })
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_line_of_the_log_leads_to_the_ledger_and_to_the_trace() {
    let log = Log::default();
    let lines = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(lines);
    // One subscriber alone is not asked about a line that another thread comes to first, and would never see it.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    let last = |path: &str| {
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        said.lines().rfind(|line| line.contains(path)).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let serving = Serving::start("").await;
    let traced = |trace: &str| format!("traceparent: 00-{trace}-00f067aa0ba902b7-01");
    let decided = serving.check_with(&traced(TRACE), &login("secret")).await.json();
    let txn = decided["txn_id"].as_str().unwrap();
    let line = last("/v1/check");
    assert!(line.contains(&format!("request{{trace_id=\"{TRACE}\"}}")), "{line}");
    assert!(line.contains("status=200") && line.contains(&format!("txn={txn}")), "{line}");
    let both = serving.post("/v1/check-all", json!({ "checks": [login("secret")] })).await.json();
    let line = last("/v1/check-all");
    assert!(line.contains(&format!("txn={}", both["decisions"][0]["txn_id"].as_str().unwrap())), "{line}");
    assert_eq!(serving.post("/v1/refund", json!({ "txn": txn })).await.status, 200);
    let line = last("/v1/refund");
    assert!(line.contains(&format!("txn={txn}")) && !line.contains("trace_id"), "{line}");
    // A text that is no id of a trace is in no line, and hinders nobody.
    for bad in ["4BF92F3577B34DA6A3CE929D0E0E4736", "0", "00000000000000000000000000000000", "x\\n\"forged"] {
        assert_eq!(serving.check_with(&traced(bad), &login("secret")).await.status, 200);
        let line = last("/v1/check\"");
        assert!(!line.contains("trace_id") && !line.contains("forged"), "{line}");
    }

    let mut request = request(None);
    request.metadata_mut().insert("traceparent", traced(TRACE)[13..].parse().unwrap());
    RateLimitServiceClient::new(channel(&serving).await).should_rate_limit(request).await.unwrap();
    let rows = serving.get("/v1/history?zone=address").await.json();
    let line = last("RateLimitService");
    assert!(line.contains(&format!("txn={}", rows["rows"][0]["txn_id"].as_str().unwrap())), "{line}");
    assert!(line.contains(TRACE), "{line}");
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!said.contains("secret") && !said.contains("203.0.113"), "{said}");
}
