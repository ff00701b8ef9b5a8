use serde_json::Value;
use uuid::Uuid;

use super::program::{Program, Ran};

/// A zone of 2 an hour with a ban after 2 blocked checks; a check under each transaction.
fn checked(txns: &[Uuid]) -> Program {
    let program = Program::new();
    let ban = ["--ban-after", "2", "--ban-within", "1h", "--ban-for", "15m"];
    program.ok(&[&["zone", "set", "login", "--rate", "2", "--per", "1h", "--by", "ops"], &ban[..]].concat());
    for txn in txns {
        program.run(&["check", "login", "user:42", "--txn", &txn.to_string()]);
    }
    program
}

fn explain(program: &Program, txn: Uuid, more: &[&str]) -> Ran {
    program.run(&[&["audit", "explain", &txn.to_string()], more].concat())
}

#[track_caller]
fn assert_says(ran: &Ran, all: &[&str]) {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for words in all {
        assert!(ran.out.contains(words), "{words:?} is not in\n{}", ran.out);
    }
}

#[test]
fn an_explanation_reads_as_a_person_would_tell_it() {
    let txns: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    let program = checked(&txns);
    let refunded = txns[0].to_string();
    program.ok(&["refund", &refunded]);
    let allowed = explain(&program, txns[0], &[]);
    assert_says(
        &allowed,
        &[
            &format!("Transaction {refunded}\n"),
            "\nlogin / user:42  ALLOWED  ",
            "  Policy: 2 per 1h, ban for 15m after 2 blocked in 1h, sliding-log; version 1, by ops since ",
            "  It asked for 1.\n",
            "0 of 2 counted, from 0 charges.\n",
            "  It passed: 2 were left, and after it 1.\n",
            "\nlogin / user:42  REFUND  ",
            "was refunded: 1 given back.\n",
            "  Derived again from the rows before it: the same.\n",
        ],
    );
    let blocked = explain(&program, txns[2], &["--limit", "1"]);
    assert_says(
        &blocked,
        &[
            "BLOCKED",
            "2 of 2 counted, from 2 charges.\n",
            "  It was blocked, since nothing was left.\n",
            "  The same would have passed at ",
            &format!("{}\n    and 1 older; list more with --limit\n", txns[1]),
        ],
    );
    assert!(!blocked.out.contains(&refunded), "{}", blocked.out);
    let banned = explain(&program, txns[4], &[]);
    let cause = format!("the bucket was banned: brought about by transaction {} at ", txns[3]);
    assert_says(&banned, &[&cause]);
}

#[test]
fn an_explanation_as_json_has_what_it_was_decided_from() {
    let txns: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    let program = checked(&txns);
    program.ok(&["refund", &txns[1].to_string()]);
    let explained = explain(&program, txns[2], &["--format", "json"]).json();
    let fields: Vec<_> = explained.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["binding", "for_customer", "in_words", "rows", "txn_id"]);
    let row = &explained["rows"][0];
    for (field, value) in [
        ("zone", Value::from("login")),
        ("key", "user:42".into()),
        ("blocked", true.into()),
        ("reason", "over_limit".into()),
        ("limit", 2.into()),
        ("left_before", 0.into()),
        ("reproduced", true.into()),
        ("missing", Value::Null),
        ("ban", Value::Null),
    ] {
        assert_eq!(row[field], value, "{field} of {row}");
    }
    assert_eq!(row["policy"]["rate"], 2);
    assert_eq!(row["counted"]["used"], 2);
    assert_eq!(row["counted"]["charges"][1]["txn_id"], txns[1].to_string());
    assert_eq!(explained["binding"]["zone"], "login");
    assert_eq!(explained["in_words"][0][2], "It was blocked, since nothing was left.");
    let banned = explain(&program, txns[4], &["--format", "json"]).json();
    assert_eq!(banned["rows"][0]["ban"]["txn_id"], txns[3].to_string());
    assert_eq!(banned["rows"][0]["ban"]["actor"], Value::Null);
    let banned = explain(&program, txns[3], &["--format", "json"]).json();
    assert_eq!(banned["rows"][1]["kind"], "ban");
    let refunded = explain(&program, txns[1], &["--format", "json"]).json();
    assert_eq!(refunded["rows"][1]["kind"], "refund");
    assert_eq!(refunded["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn a_level_is_explained_by_what_flowed_in() {
    let program = Program::new();
    program.ok(&["zone", "set", "api", "--rate", "2", "--per", "1h", "--algorithm", "token-bucket"]);
    let txns: Vec<Uuid> = (0..3).map(|_| Uuid::now_v7()).collect();
    for txn in &txns {
        program.run(&["check", "api", "a", "--txn", &txn.to_string()]);
    }
    assert_says(&explain(&program, txns[0], &[]), &["It began full, with 2 of 2. After it: 1.\n"]);
    assert_says(&explain(&program, txns[2], &[]), &[" of 2; ", " flowed in since; so there were 0.0"]);
    let level = &explain(&program, txns[1], &["--format", "json"]).json()["rows"][0]["level_was"];
    let number = |field: &str| level[field].as_i64().unwrap();
    assert_eq!(number("before") + number("flowed_in"), number("now"));
    assert_eq!(number("now") - number("after"), number("per_token"));
    assert_eq!(number("capacity"), 2 * number("per_token"));
}

#[test]
fn a_transaction_that_is_not_in_the_ledger_is_one_clear_error() {
    let program = checked(&[]);
    explain(&program, Uuid::now_v7(), &[]).assert_refused("is not in the ledger");
    program.run(&["audit", "explain", "no-uuid"]).assert_refused("no-uuid");
}

#[test]
fn a_ledger_is_verified_and_a_changed_row_is_named() {
    let txns: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    let program = checked(&txns);
    let well = program.run(&["audit", "verify"]);
    assert_says(
        &well,
        &["verified  6 rows of 1 bucket in 1 zone (1 part planned, 1 walked): each row is where it was"],
    );
    let well = program.run(&["audit", "verify", "--format", "json", "--jobs", "3"]);
    assert_eq!(well.code, 0);
    assert_eq!(
        well.json(),
        serde_json::json!({
            "zones": 1, "buckets": 1, "rows": 6, "parts": 1, "faults": 0, "found": [], "dropped": 0,
            "not_derivable": 0, "not_derivable_buckets": 0, "ahead": 0, "test_clock": false
        })
    );
    program.tamper("update zone_txn set remaining = 2 where seq = 2");
    let changed = program.run(&["audit", "verify"]);
    assert_eq!((changed.code, changed.err.as_str()), (5, ""), "{}", changed.out);
    let expected = format!(
        "edited  login / user:42  row 2  txn {}: remaining is 2, the rows before it lead to 0\n\
         faults  1 found in 6 rows of 1 bucket in 1 zone (1 part planned, 1 walked)\n",
        txns[1]
    );
    assert_eq!(changed.out, expected);
    let changed = program.run(&["audit", "verify", "--format", "json"]);
    assert_eq!(changed.code, 5);
    let found = &changed.json()["found"][0];
    assert_eq!(
        *found,
        serde_json::json!({
            "zone": "login",
            "key": "user:42",
            "seq": 2,
            "txn_id": txns[1],
            "what": "edited",
            "detail": "remaining is 2, the rows before it lead to 0",
        })
    );
    let explained = explain(&program, txns[1], &[]);
    assert_eq!(explained.code, 5);
    assert!(explained.out.contains("NOT the same when derived again"), "{}", explained.out);
}

/// The clock of a host was an hour ahead.
#[test]
fn rows_for_which_it_is_not_time_yet_are_told() {
    let program = checked(&[Uuid::now_v7()]);
    program.tamper("update zone_txn set created_at = created_at + 3600000000");
    let ahead = program.run(&["audit", "verify"]);
    assert!(ahead.out.contains("ahead  login: its rows go up to "), "{ahead:?}");
    assert_eq!(program.run(&["audit", "verify", "--format", "json"]).json()["ahead"], 1);
}

#[test]
fn the_faults_behind_what_cannot_be_read_are_told() {
    let program = checked(&[Uuid::now_v7()]);
    program.ok(&["zone", "set", "other", "--rate", "5", "--per", "60s"]);
    program.ok(&["check", "other", "user:42"]);
    program.tamper(
        "update zone_txn set created_at = 9223372036854775807 where zone_id = 1;
         update zone_txn set remaining = 77 where zone_id = 2",
    );
    let text = program.run(&["audit", "verify"]);
    let json = program.run(&["audit", "verify", "--format", "json"]);
    for told in [&text, &json] {
        assert!(told.code == 2 && told.err.contains("created_at"), "{told:?}");
    }
    assert!(text.out.contains("edited  other / user:42  row 1"), "{text:?}");
    assert_eq!(json.json()["found"][0]["zone"], "other", "{json:?}");
}

#[test]
fn a_verification_goes_on_behind_a_bucket() {
    let program = checked(&[]);
    for key in ["a", "b", "c=d"] {
        program.ok(&["check", "login", key]);
    }
    let rows = |args: &[&str]| {
        let ran = program.run(&[&["audit", "verify", "--format", "json"], args].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        ran.json()["rows"].as_u64().unwrap()
    };
    assert_eq!(rows(&[]), 3);
    assert_eq!(rows(&["--after", "login=a"]), 2);
    assert_eq!(rows(&["--after", "login=c=d"]), 0);
    assert_eq!(rows(&["--zone", "login", "--key", "b"]), 1);
    program.run(&["audit", "verify", "--after", "login"]).assert_refused("a bucket is ZONE=KEY");
    program.run(&["audit", "verify", "--zone", "none"]).assert_refused("there is no zone");
    let nobody = ["audit", "verify", "--zone", "login", "--key", "nobody"];
    program.run(&nobody).assert_refused(r#"there is no bucket "nobody""#);
}
