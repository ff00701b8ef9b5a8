use super::program::Program;

const TXN: &str = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11";

#[test]
fn the_exit_code_says_whether_it_may_pass() {
    let program = Program::with_login();
    let codes: Vec<_> = (0..7).map(|_| program.run(&["check", "login", "42"]).code).collect();
    assert_eq!(codes, [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(program.run(&["check", "login", "43"]).code, 0);
}

#[test]
fn the_text_is_one_line_for_a_person() {
    let program = Program::with_login();
    let allowed = program.run(&["check", "login", "42", "--txn", TXN]).out;
    assert_eq!(allowed, format!("allowed  login 42  4 of 5 left  txn {TXN}\n"));
    let again = program.run(&["check", "login", "42", "--txn", TXN]).out;
    assert_eq!(again, format!("allowed  login 42  4 of 5 left  decided before  txn {TXN}\n"));
    let blocked = program.run(&["check", "login", "42", "--cost", "5"]).out;
    assert!(blocked.starts_with("blocked  login 42  over_limit  try again in "), "{blocked}");
    assert!(blocked.contains("s  4 of 5 left  txn "), "{blocked}");
    let never = program.run(&["check", "login", "42", "--cost", "6"]).out;
    assert!(never.starts_with("blocked  login 42  exceeds_limit  can never pass"), "{never}");
}

#[test]
fn the_json_has_these_fields_in_this_order() {
    let program = Program::with_login();
    let ran = program.run(&["check", "login", "42", "--format", "json", "--cost", "2", "--txn", TXN]);
    let fields: Vec<_> = ran
        .out
        .split(['{', ','])
        .filter_map(|field| Some(field.split_once("\":")?.0.trim_matches('"')))
        .collect();
    assert_eq!(
        fields.join(", "),
        "zone, key, txn_id, blocked, reason, limit, remaining, retry_after_us, delay_us, ends_at, seq, zone_version, decided_at, replayed"
    );
    let json = ran.json();
    assert_eq!((&json["txn_id"], &json["remaining"], &json["seq"]), (&TXN.into(), &3.into(), &1.into()));
    assert!(json["retry_after_us"].is_null());
}

#[test]
fn a_blocked_check_says_how_long_to_wait_in_microseconds() {
    let program = Program::with_login();
    program.ok(&["check", "login", "42", "--cost", "5"]);
    let json = program.run(&["check", "login", "42", "--format", "json"]).json();
    let wait = json["retry_after_us"].as_i64().unwrap();
    assert!((50_000_000..=60_000_000).contains(&wait), "{wait}");
}

#[test]
fn the_same_transaction_is_charged_once_and_with_another_cost_refused() {
    let program = Program::with_login();
    for _ in 0..3 {
        assert_eq!(program.run(&["check", "login", "42", "--txn", TXN]).code, 0);
    }
    assert_eq!(program.rows(), 1);
    program.run(&["check", "login", "42", "--txn", TXN, "--cost", "2"]).assert_refused(TXN);
    assert_eq!(program.rows(), 1);
}

#[test]
fn a_peek_is_answered_and_leaves_no_row() {
    let program = Program::with_login();
    let json = program.run(&["check", "login", "42", "--cost", "0", "--format", "json"]).json();
    assert_eq!((&json["remaining"], json["seq"].is_null()), (&5.into(), true));
    assert_eq!(program.rows(), 0);
}

#[test]
fn meta_characters_of_sql_and_of_shells_are_plain_data() {
    let program = Program::new();
    for name in ["x'; drop table zone_txn; --", "\"%_\\", "$(reboot) `id` *", "日本 🦀"] {
        program.ok(&["zone", "set", name, "--rate", "1", "--per", "60s"]);
        let json = program.run(&["check", name, name, "--format", "json"]).json();
        assert_eq!((&json["zone"], &json["key"]), (&name.into(), &name.into()));
        let rows = program.run(&["history", "--zone", name, "--key", name, "--format", "json"]).json();
        assert_eq!(rows.as_array().unwrap().len(), 1);
    }
    assert_eq!(program.rows(), 4);
}

#[test]
fn a_reservation_of_a_shape_costs_what_those_before_it_came_to() {
    let program = Program::new();
    program.ok(&["zone", "set", "llm", "--rate", "9000", "--per", "1h"]);
    let reserve = || {
        program
            .run(&[
                "reserve", "llm", "t", "--shape", "chat", "--cost", "500", "--ttl", "1m", "--format", "json",
            ])
            .json()
    };
    let unknown = program.ok(&["predict", "llm", "t", "chat"]);
    assert_eq!(unknown, "chat  nothing is known: none was settled within 15 minutes\n");
    let first = reserve();
    assert_eq!((&first["cost"], &first["remaining"]), (&500.into(), &8_500.into()));
    program.ok(&["settle", first["txn_id"].as_str().unwrap(), "--cost", "120"]);
    assert!(
        program
            .ok(&["predict", "llm", "t", "chat"])
            .starts_with("chat  cost 120  from 1 settlements, the last at ")
    );
    let second = reserve();
    assert_eq!(second["cost"], 120);
    let txn = second["txn_id"].as_str().unwrap();
    let why = program.ok(&["audit", "explain", txn]);
    let said =
        "It asked to reserve 120. That was predicted from 1 settlement of the shape chat, the last of them ";
    assert!(why.contains(said), "{why}");
    assert!(why.contains("the same."), "{why}");
    let why = program.ok(&["audit", "explain", first["txn_id"].as_str().unwrap()]);
    assert!(
        why.contains("Of the shape chat nothing was known, so that was the cost that the caller gave."),
        "{why}"
    );
    assert_eq!(program.run(&["audit", "verify"]).code, 0);
    program
        .run(&["reserve", "llm", "t", "--shape", "*", "--ttl", "1m"])
        .assert_refused("stands for all that are not kept apart");
    // The recorded attempts can be played again, though the shapes stand where members would.
    assert_eq!(program.run(&["backtest", "--from-ledger", "llm", "--rate", "5", "--per", "1h"]).code, 0);
}

#[test]
fn a_band_says_in_another_word_what_critical_says() {
    let program = Program::new();
    program.ok(&["zone", "set", "api", "--rate", "5", "--per", "1h", "--reserve", "2"]);
    let check = |flags: &[&str]| program.run(&[&["check", "api", "a", "--cost", "5"], flags].concat());
    for flags in [&[][..], &["--band", "1"], &["--band", "sheddable"]] {
        assert_eq!(check(flags).code, 1, "{flags:?}");
    }
    check(&["--critical", "--band", "critical"])
        .assert_refused("a check of band 1 is not critical, which is band 0");
    check(&["--band", "256"]).assert_refused("band \"256\" cannot be used");
    assert_eq!(check(&["--critical", "--band", "0"]).code, 0);
    assert_eq!(program.run(&["check", "api", "b", "--cost", "5", "--band", "critical-plus"]).code, 0);
}
