use sqlx::{Connection, Executor};

use super::program::Program;

fn fields(json: &serde_json::Value) -> Vec<&str> {
    json.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_json_has_stable_fields_and_its_proof_holds() {
    let program = Program::new();
    let ran =
        program.run(&["bench", "--seconds", "1", "--keys", "500", "--callers", "8", "--format", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let json = ran.json();
    assert_eq!(
        fields(&json).join(", "),
        "allowed, blocked, decisions_per_s, errors, ledger, p50_us, p95_us, p99_us, retries, rows, settings, took_us"
    );
    assert_eq!(fields(&json["ledger"]).join(", "), "agrees, exact, most_in_any_window, rows");
    assert_eq!(
        fields(&json["settings"]).join(", "),
        "batch, callers, connections, cost, database, keys, rate, run, seconds, window_us, zone"
    );
    assert_eq!((&json["ledger"]["agrees"], &json["ledger"]["exact"]), (&true.into(), &true.into()));
    assert_eq!((&json["errors"], &json["retries"]), (&0.into(), &0.into()));
    let rows = program.rows();
    assert!(rows > 0);
    assert_eq!((&json["rows"], &json["ledger"]["rows"]), (&rows.into(), &rows.into()));
    let count = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(count("allowed") + count("blocked"), count("rows"));
    assert!(count("p50_us") > 0 && count("p50_us") <= count("p95_us") && count("p95_us") <= count("p99_us"));
    assert_eq!((&json["settings"]["keys"], &json["settings"]["batch"]), (&500.into(), &true.into()));
}

#[test]
fn a_hot_key_is_let_through_exactly_to_its_limit_and_runs_do_not_meet() {
    let program = Program::new();
    for _ in 0..2 {
        let run = ["bench", "--seconds", "1", "--hot", "--cost", "9", "--no-batch", "--format", "json"];
        let json = program.run(&run).json();
        // 11 times 9 are 99 of 100.
        assert_eq!((&json["allowed"], &json["ledger"]["most_in_any_window"]), (&11.into(), &99.into()));
        assert_eq!((&json["ledger"]["agrees"], &json["ledger"]["exact"]), (&true.into(), &true.into()));
        assert!(json["blocked"].as_u64().unwrap() > 0);
        assert_eq!(json["settings"]["batch"], false);
    }
    let zone = program.run(&["zone", "show", "tallygate bench", "--format", "json"]).json();
    assert_eq!((&zone["rate"], &zone["version"]), (&100.into(), &1.into()));
}

#[test]
fn the_text_says_how_many_and_that_they_are_right() {
    let out = Program::new().ok(&["bench", "--seconds", "1", "--database", "sqlite:secret-place.db"]);
    for part in [" decisions a second", "latency  p50 ", "0 retries", "✓ The ledger agrees", "sqlite, zone "]
    {
        assert!(out.contains(part), "{out}");
    }
    assert!(!out.contains("secret-place"), "{out}");
}

#[test]
fn a_ledger_that_lost_a_row_ends_with_7_and_one_line() {
    let program = Program::with_login();
    let url = format!("sqlite:{}", program.path("tallygate.db").display());
    let forget = "create trigger forget after insert on zone_txn when new.seq = 3 \
                  begin delete from zone_txn where id = new.id; end";
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        connection.execute(forget).await.unwrap();
    });
    let ran = program.run(&["bench", "--seconds", "1", "--hot", "--format", "json"]);
    assert_eq!((ran.code, ran.err.lines().count()), (7, 1), "{ran:?}");
    assert!(ran.err.starts_with("the proof failed: before row 4 of bucket "), "{}", ran.err);
    let json = ran.json();
    assert_eq!(json["ledger"]["agrees"], false);
    assert_eq!(json["ledger"]["rows"].as_u64().unwrap() + 1, json["rows"].as_u64().unwrap());
}

#[test]
fn a_ledger_that_is_in_use_is_written_into_only_by_who_says_so() {
    let program = Program::with_login();
    let bench = ["bench", "--seconds", "1", "--callers", "2"];
    // A ledger whose zones have no decisions is not in use.
    program.ok(&bench);
    program.ok(&bench);
    program.ok(&["check", "login", "42"]);
    let before = program.rows();
    program.run(&bench).assert_refused("this ledger is in use");
    assert_eq!(program.rows(), before);
    program.ok(&[&bench[..], &["--yes"]].concat());
    assert!(program.rows() > before);
}

#[test]
fn a_bad_benchmark_is_one_error_line_and_makes_nothing() {
    let program = Program::new();
    for (args, because) in [
        (&["--seconds", "0"][..], "'0'"),
        (&["--seconds", "-1"], "-1"),
        (&["--callers", "0"], "'0'"),
        (&["--connections", "0"], "'0'"),
        (&["--keys", "0"], "'0'"),
        (&["--keys", "1000001"], "1000001"),
        (&["--hot", "--keys", "9"], "--keys"),
        (&["--cost", "0"], "0 is not in 1..=100"),
        (&["--cost", "101"], "101 is not in 1..=100"),
        (&["--cost", "-1"], "-1"),
        (&["--format", "xml"], "xml"),
        (&["login"], "'login'"),
        (&["--database", "oracle://db/app"], "\"oracle\""),
    ] {
        program.run(&[&["bench"], args].concat()).assert_refused(because);
    }
    assert!(!program.path("tallygate.db").exists());
}
