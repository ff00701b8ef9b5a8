//! Answers as a terminal shows them, and as programs read them.

use super::program::{Program, Ran};

/// Zones with and without much to say, and decisions in them.
fn busy() -> Program {
    let program = Program::with_login();
    let ban = [
        "--ban-after",
        "10",
        "--ban-within",
        "1h",
        "--ban-for",
        "15m",
        "--ban-factor",
        "2",
        "--ban-max",
        "24h",
    ];
    let payments = [
        "zone",
        "set",
        "payments",
        "--rate",
        "50000",
        "--per",
        "24h",
        "--description",
        "cents per card and day",
    ];
    program.ok(&[&payments[..], &ban].concat());
    for key in ["user:42", "ip:2001:db8:85a3::8a2e:370:7334", "user:42", "user:42"] {
        program.run(&["check", "login", key, "--cost", "2"]);
    }
    program.ok(&[
        "override",
        "set",
        "login",
        "ip:198.51.100.7",
        "--no-ban",
        "--note",
        "the gateway of the office",
    ]);
    program
}

const TABLES: [&[&str]; 5] = [
    &["history"],
    &["zone", "list"],
    &["zone", "show", "payments"],
    &["override", "list", "login"],
    // Of a time that does not end now: that is another second in the next report.
    &["audit", "report", "--since", "2020-01-01T00:00:00Z", "--until", "2100-01-01T00:00:00Z"],
];

#[test]
fn tables_fit_the_terminal_and_their_words_stay_whole() {
    let program = busy();
    for table in TABLES {
        let piped = program.ok(table);
        for columns in [100, 80, 60, 40] {
            let mut command = program.command(table);
            let shown = Ran::from(command.env("COLUMNS", columns.to_string()).output().unwrap());
            assert_eq!(shown.code, 0, "{}", shown.err);
            let widest = shown.out.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{table:?} in {columns} columns has {widest}:\n{}", shown.out);
            let words: Vec<&str> = shown.out.split_whitespace().collect();
            for word in piped.split_whitespace().filter(|word| word.contains([':', '-'])) {
                assert!(
                    words.contains(&word),
                    "{word} of {table:?} is cut in {columns} columns:\n{}",
                    shown.out
                );
            }
        }
    }
}

#[test]
fn a_list_is_text_json_or_csv_and_the_two_for_programs_have_the_same_fields() {
    let program = busy();
    program.ok(&["zone", "set", "render", "--algorithm", "capacity", "--rate", "9", "--per", "60s"]);
    program.ok(&["lease", "get", "render", "gpu", "--client", "w", "--wants", "5"]);
    program.ok(&["token", "add", "web", "--role", "app", "--zones", "login*"]);
    for list in [
        &["zone", "list"][..],
        &["override", "list", "login"],
        &["lease", "list", "render", "gpu"],
        &["token", "list"],
    ] {
        let json = program.run(&[list, &["--format", "json"]].concat()).json();
        let csv = program.ok(&[list, &["--format", "csv"]].concat());
        let mut fields: Vec<_> = csv.lines().next().unwrap().split(',').collect();
        fields.sort_unstable();
        assert_eq!(json[0].as_object().unwrap().keys().collect::<Vec<_>>(), fields, "{list:?}");
        assert_eq!(csv.lines().count(), json.as_array().unwrap().len() + 1, "{csv}");
        assert_eq!(program.ok(&[list, &["--format", "text"]].concat()), program.ok(list));
    }
}

#[test]
fn what_is_no_list_has_no_csv_and_says_so() {
    let program = Program::with_login();
    for answer in [&["check", "login", "42"][..], &["zone", "show", "login"], &["audit", "verify"], &["demo"]]
    {
        let refused = program.run(&[answer, &["--format", "csv"]].concat());
        refused.assert_refused("--format csv is for lists, and this answer is none; use text or json");
    }
    program
        .run(&["check", "login", "42", "--format", "table"])
        .assert_refused("[possible values: text, json]");
    program.run(&["zone", "list", "--format", "table"]).assert_refused("[possible values: text, json, csv]");
    assert_eq!(program.rows(), 0);
}

#[test]
fn a_log_has_no_colours_in_a_file_and_is_json_when_it_is_asked_for() {
    let program = Program::with_login().env("RUST_LOG", "tallygate=debug");
    let text = program.run(&["check", "login", "42"]);
    assert!(text.err.contains("decided") && !text.err.contains('\x1b'), "{:?}", text.err);
    let json = program.run(&["check", "login", "42", "--log-format", "json"]);
    let lines: Vec<serde_json::Value> =
        json.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"), "{}", json.err);
    program
        .run(&["check", "login", "42", "--log-format", "xml"])
        .assert_refused("[possible values: text, json]");
}

#[test]
fn who_is_quiet_tells_the_answer_and_errors() {
    let program = Program::new();
    let loud = program.run(&["demo"]);
    assert!(loud.err.contains(" blocked"), "{}", loud.err);
    let quiet = program.run(&["demo", "--quiet"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    program.run(&["--quiet", "zone", "list"]).assert_ends(4, "there is no database");
}
