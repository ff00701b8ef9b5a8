use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::program::Program;

#[test]
fn decisions_come_in_the_order_of_the_input() {
    let program = Program::with_login();
    let keys: Vec<_> = (0..500).map(|n| format!("user:{}", n * 7919 % 500)).collect();
    let input: String =
        keys.iter().map(|key| format!("{{\"zone\":\"login\",\"key\":\"{key}\"}}\n")).collect();
    let ran = program.feed(&["check", "--stdin"], input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let answered: Vec<_> =
        ran.json_lines().iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(answered, keys);
    assert_eq!(program.rows(), 500);
}

#[test]
fn a_bad_line_is_answered_in_its_place_and_the_rest_goes_on() {
    let program = Program::with_login();
    let txn = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11";
    let good = |key: &str| format!("{{\"zone\":\"login\",\"key\":\"{key}\"}}").into_bytes();
    let long = format!("{{\"zone\":\"login\",\"key\":\"{}\"}}", "x".repeat(256));
    let huge = format!("{{\"zone\":\"login\",\"key\":\"{}\"}}", "x".repeat(300_000));
    let first = format!(r#"{{"zone":"login","key":"t","txn":"{txn}"}}"#);
    let conflict = format!(r#"{{"zone":"login","key":"t","cost":2,"txn":"{txn}"}}"#);
    let lines: Vec<(Vec<u8>, &str)> = vec![
        (good("first"), ""),
        (b"{".into(), "EOF"),
        (b"not json".into(), "not a JSON object"),
        (br#"["login","a",1,null]"#.into(), "not a JSON object"),
        (b"{\"zone\":\"login\",\"key\":\"a\xff\"}".into(), "UTF-8"),
        (b"   ".into(), "blank"),
        (br#"{"zone":"login","key":"a","cots":1}"#.into(), "`cots`"),
        (br#"{"zone":"login"}"#.into(), "`key`"),
        (br#"{"key":"a"}"#.into(), "`zone`"),
        (br#"{"zone":"login","key":"a","cost":-1}"#.into(), "cost -1"),
        (br#"{"zone":"login","key":"a","cost":9223372036854775808}"#.into(), "9223372036854775808"),
        (br#"{"zone":"login","key":"a","cost":1.5}"#.into(), "1.5"),
        (br#"{"zone":"login","key":""}"#.into(), "empty"),
        (br#"{"zone":"login","key":"a\u0000"}"#.into(), "control character"),
        (long.into(), "256 bytes"),
        (huge.into(), "longer than 65536 bytes"),
        (br#"{"zone":"nowhere","key":"a"}"#.into(), "nowhere"),
        (br#"{"zone":"login","key":"a","txn":"x"}"#.into(), "UUID"),
        (br#"{"zone":"login","key":"a","txn":"00000000-0000-0000-0000-000000000000"}"#.into(), "nil UUID"),
        (first.into(), ""),
        (conflict.into(), txn),
        (b"".into(), "blank"),
        (good("last"), ""),
    ];
    let input = lines.iter().flat_map(|(line, _)| [line.as_slice(), b"\n"].concat()).collect::<Vec<_>>();
    let ran = program.feed(&["check", "--stdin", "--concurrency", "1"], input);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    let answers = ran.json_lines();
    let expected: Vec<_> = lines.iter().enumerate().filter(|(_, (_, why))| *why != "blank").collect();
    assert_eq!(answers.len(), expected.len());
    for (answer, (index, (_, why))) in answers.iter().zip(expected) {
        if why.is_empty() {
            assert_eq!(answer["blocked"], false, "{answer}");
        } else {
            assert_eq!(answer["line"], index + 1);
            assert!(answer["error"].as_str().unwrap().contains(why), "{answer} does not say {why}");
            assert_eq!(answer.as_object().unwrap().len(), 2);
        }
    }
    assert_eq!(program.rows(), 3);
}

#[test]
fn blocked_lines_are_no_errors() {
    let program = Program::with_login();
    let ran =
        program.feed(&["check", "--stdin"], "{\"zone\":\"login\",\"key\":\"42\",\"cost\":2}\n".repeat(9));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.json_lines().iter().filter(|line| line["blocked"] == true).count(), 7);
}

#[test]
fn one_transaction_on_many_lines_is_charged_once() {
    let program = Program::with_login();
    let line = "{\"zone\":\"login\",\"key\":\"42\",\"txn\":\"0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11\"}\n";
    let ran = program.feed(&["check", "--stdin"], line.repeat(200));
    assert_eq!(ran.code, 0);
    let replayed = ran.json_lines().iter().filter(|line| line["replayed"] == true).count();
    assert_eq!((replayed, program.rows()), (199, 1));
}

#[test]
fn an_answer_does_not_wait_for_the_next_question() {
    let program = Program::with_login();
    let mut child =
        program.command(&["check", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut questions = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for left in (0..5).rev() {
        questions.write_all(b"{\"zone\":\"login\",\"key\":\"42\"}\n").unwrap();
        let answer = answers.next().unwrap().unwrap();
        assert!(answer.contains(&format!("\"remaining\":{left}")), "{answer}");
    }
    drop(questions);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_empty_input_is_no_error() {
    let ran = Program::with_login().feed(&["check", "--stdin"], "");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
}

#[test]
fn of_528_real_logins_81_are_allowed_and_the_ledger_shows_it() {
    let program = Program::with_login();
    let attempts = include_str!("../../../../tests/data/ssh_logins.csv").lines().skip(1);
    let input: String = attempts
        .map(|line| format!("{{\"zone\":\"login\",\"key\":\"{}\"}}\n", line.split(',').nth(1).unwrap()))
        .collect();
    let ran = program.feed(&["check", "--stdin"], input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let blocked = ran.json_lines().iter().filter(|line| line["blocked"] == true).count();
    assert_eq!((ran.json_lines().len(), blocked), (528, 447));
    let rows =
        |flag| program.ok(&["history", flag, "--limit", "1000", "--format", "csv"]).lines().count() - 1;
    assert_eq!((rows("--allowed"), rows("--blocked")), (81, 447));
}

/// SQLite takes a transaction back by itself when it cannot write, and the driver does not notice.
#[test]
fn a_disk_that_could_not_be_written_once_ends_no_later_decision() {
    let program = Program::with_login();
    // A file that may not grow is as good as a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    let check = program.command(&["check", "--stdin", "--concurrency", "1"]);
    command.arg(check.get_program()).args(check.get_args()).current_dir(program.path(""));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut recorded = 0;
    let mut ask = |recorded: usize| {
        writeln!(stdin, "{{\"zone\":\"login\",\"key\":\"user:{recorded}\"}}").unwrap();
        answers.next().unwrap().unwrap()
    };
    let pid = child.id().to_string();
    let may_grow_to = |bytes: &str| {
        let fsize = format!("--fsize={bytes}:unlimited");
        assert!(Command::new("prlimit").args(["--pid", &pid, &fsize]).status().unwrap().success());
    };
    for bytes in ["600000", "1200000"] {
        may_grow_to(bytes);
        let failed = loop {
            let answer = ask(recorded);
            if answer.contains("error") {
                break answer;
            }
            recorded += 1;
        };
        assert!(failed.contains("disk"), "{failed}");
        may_grow_to("unlimited");
        for _ in 0..20 {
            let answer = ask(recorded);
            assert!(answer.contains("decided_at"), "{answer}");
            recorded += 1;
        }
    }
    drop(stdin);
    child.wait().unwrap();
    assert_eq!(program.rows(), recorded);
}
