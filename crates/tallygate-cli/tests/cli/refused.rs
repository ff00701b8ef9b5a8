//! Bad input: one clear error line, exit code 2, nothing written.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use super::program::{Program, Ran};

#[test]
fn a_bad_check_is_one_error_line_and_writes_nothing() {
    let program = Program::with_login();
    program.ok(&["check", "login", "42"]);
    let before = program.contents();
    let (long, long_zone) = ("k".repeat(256), "z".repeat(101));
    for (args, because) in [
        (&["login", ""][..], "bucket key is empty"),
        (&["login", &long], "256 bytes"),
        (&["login", "a\nb"], "control character"),
        (&["login", "a\u{7f}"], "control character"),
        (&["login", "a\u{85}b"], "control character"),
        (&["login", "42", "--cost", "-1"], "cost -1"),
        (&["login", "42", "--cost", "9223372036854775808"], "9223372036854775808"),
        (&["login", "42", "--cost", "9223372036854775807"], "cost 9223372036854775807"),
        (&["login", "42", "--cost", "1.5"], "1.5"),
        (&["login", "42", "--cost", ""], "--cost"),
        (&["login", "42", "--txn", "00000000-0000-0000-0000-000000000000"], "nil UUID"),
        (&["login", "42", "--txn", "not-a-uuid"], "'not-a-uuid'"),
        (&["nowhere", "42"], "\"nowhere\""),
        (&["", "42"], "zone name is empty"),
        (&[&long_zone, "42"], "101 characters"),
        (&["login"], "<KEY>"),
        (&[], "<ZONE>"),
        (&["login", "42", "43"], "'43'"),
        (&["login", "42", "--stdin"], "--stdin"),
        (&["login", "42", "--format", "xml"], "xml"),
        (&["--stdin", "--format", "text"], "--format text"),
        (&["--stdin", "--concurrency", "0"], "'0'"),
        (&["login", "42", "--nosuch"], "--nosuch"),
    ] {
        program.run(&[&["check"], args].concat()).assert_refused(because);
    }
    assert_eq!(program.contents(), before);
}

#[test]
fn what_is_no_id_of_a_transaction_is_told_how_one_looks() {
    let program = Program::with_login();
    for args in [
        &["refund", "abc"][..],
        &["history", "--txn", "abc"],
        &["audit", "explain", "abc"],
        &["check", "login", "42", "--txn", "abc"],
        &["queue", "redrive", "mail", "out", "--txn", "abc"],
        &["lease", "get", "gpu", "a100", "--client", "worker", "--wants", "1", "--txn", "abc"],
    ] {
        program.run(args).assert_refused("a UUID, as 0198f6a0-");
    }
}

#[test]
fn a_bad_zone_is_one_error_line_and_writes_nothing() {
    let program = Program::with_login();
    let before = program.contents();
    let (long, essay) = ("z".repeat(101), "e".repeat(1001));
    for (args, because) in [
        (&["login", "--rate", "-1", "--per", "60s"][..], "rate -1"),
        (&["login", "--rate", "0", "--per", "60s", "--algorithm", "token-bucket"], "rate 0"),
        (&["login", "--rate", "9223372036854775808", "--per", "60s"], "9223372036854775808"),
        (&["login", "--rate", "5", "--per", "0s"], "window of 0"),
        (&["login", "--rate", "5", "--per", "60"], "with its unit"),
        (&["login", "--rate", "5", "--per", "-60s"], "with its unit"),
        (&["login", "--rate", "5", "--per", "11y"], "10 years"),
        (&["login", "--rate", "5", "--per", "1 fortnight"], "fortnight"),
        (
            &["login", "--rate", "5", "--per", "1M"],
            "use 1m for a minute, 30d for thirty days, or a fixed window",
        ),
        (
            &[
                "login",
                "--rate",
                "5",
                "--per",
                "1h",
                "--ban-after",
                "2",
                "--ban-within",
                "1h",
                "--ban-for",
                "1month",
            ],
            "30d",
        ),
        (&["login", "--rate", "5"], "--per"),
        (&["login", "--per", "60s"], "--rate"),
        (&["login", "--rate", "5", "--per", "60s", "--burst", "9"], "token-bucket"),
        (&["login", "--rate", "5", "--per", "60s", "--algorithm", "leaky"], "leaky"),
        (
            &["a", "--rate", "7", "--per", "10y", "--algorithm", "token-bucket", "--burst", "1099511627776"],
            "the largest burst is",
        ),
        (&["", "--rate", "5", "--per", "60s"], "zone name is empty"),
        (&[" a", "--rate", "5", "--per", "60s"], "cannot be used"),
        (&[&long, "--rate", "5", "--per", "60s"], "101 characters"),
        (&["a", "--rate", "5", "--per", "60s", "--description", &essay], "1001 characters"),
    ] {
        program.run(&[&["zone", "set"], args].concat()).assert_refused(because);
    }
    program.run(&["zone", "show", "nowhere"]).assert_refused("nowhere");
    assert_eq!(program.contents(), before);
}

#[test]
fn a_bad_question_to_the_ledger_is_one_error_line() {
    let program = Program::with_login();
    for (args, because) in [
        (&["--zone", "nowhere"][..], "nowhere"),
        (&["--key", ""], "key"),
        (&["--limit", "0"], "'0'"),
        (&["--limit", "-1"], "-1"),
        (&["--since", "noon"], "yesterday"),
        (&["--since", "10"], "like 15m"),
        (&["--since", "2026-03-29 02:30", "--time-zone", "Europe/Berlin"], "was left out"),
        (&["--time-zone", "Mars"], "Europe/Berlin"),
        (&["--since", "1h", "--until", "2h"], "swap them"),
        (&["--blocked", "--allowed"], "--allowed"),
        (&["--txn", "7"], "--txn"),
    ] {
        program.run(&[&["history", "--format", "json"], args].concat()).assert_refused(because);
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused() {
    let program = Program::with_login();
    let key = OsStr::from_bytes(b"a\xffb");
    program.run(&[OsStr::new("check"), OsStr::new("login"), key]).assert_refused("UTF-8");
    assert_eq!(program.rows(), 0);
}

#[test]
fn an_unknown_command_is_one_error_line_with_a_suggestion() {
    Program::new().run(&["chekc"]).assert_refused("'check'");
}

#[test]
fn bad_input_does_not_even_make_the_default_database() {
    let program = Program::new();
    program.run(&["check", "login", ""]).assert_refused("empty");
    program.run(&["zone", "set", "login", "--rate", "-1", "--per", "60s"]).assert_refused("-1");
    assert!(!program.path("tallygate.db").exists());
}

#[test]
fn a_database_that_cannot_be_used_is_one_error_line() {
    let program = Program::new();
    std::fs::write(program.path("text.db"), "This is not a database. ".repeat(100)).unwrap();
    for (url, because) in [
        ("oracle://db/app", "\"oracle\""),
        ("nonsense", "no scheme"),
        ("", "no scheme"),
        ("sqlite:no/such/directory/a.db", "no/such/directory/a.db"),
        ("sqlite:text.db", "not a database"),
    ] {
        for command in [&["check", "login", "42"][..], &["zone", "list"], &["migrate"]] {
            let ran = program.run(&[&["--database", url], command].concat());
            let code = if ran.err.contains("there is no database") { 4 } else { 2 };
            ran.assert_ends(code, because);
        }
    }
}

/// The reader goes away, as `| head -1` does, or `| grep -q`. Without a verdict by then nobody may take it for done.
#[test]
fn who_goes_away_before_the_end_is_not_told_that_all_is_well() {
    let program = Program::with_login();
    let unread = |args: &[&str]| {
        let mut child = program.command(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        child.wait().unwrap().code().unwrap()
    };
    for _ in 0..5 {
        assert_eq!(unread(&["check", "login", "42"]), 0);
    }
    assert_eq!(unread(&["check", "login", "42"]), 1, "it was blocked");
    assert_eq!(unread(&["audit", "verify"]), 0);
    let edit = "update zone_txn set remaining = 3 where seq = 1";
    program.tamper(edit);
    for format in ["text", "json"] {
        assert_eq!(unread(&["audit", "verify", "--format", format]), 5, "{edit}");
    }
    assert_eq!(unread(&["migrate", "--check"]), 0);
    assert_eq!(unread(&["migrate", "--check", "--database", "sqlite:new.db"]), 4);
    for told in [&["zone", "list"][..], &["history", "--format", "json"], &["audit", "report"], &["--help"]] {
        assert_eq!(unread(told), 141, "{told:?}");
    }
}

/// A connection is accepted by the system, and never answered.
#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let program = Program::new();
    let mut children = Vec::new();
    for scheme in ["postgres", "mysql"] {
        let url = format!("{scheme}://app@{}/app", silent.local_addr().unwrap());
        for command in [&["check", "login", "42"][..], &["migrate", "--check"], &["migrate"]] {
            let mut command = program.command(&[command, &["--database", &url]].concat());
            children.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        }
    }
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).assert_ends(3, "did not answer in time");
    }
}

/// A wrong name or directory would otherwise be found out late: an empty ledger has nothing wrong with it.
#[test]
fn what_reads_or_acts_in_zones_makes_no_database() {
    let program = Program::new();
    let txn = "0197a8c2-7a55-7c1e-9d0b-3f6f5a1e2b11";
    std::fs::write(program.path("zones.toml"), "[zone.login]\nrate = 5\nper = \"60s\"\n").unwrap();
    for file in ["none.db", "empty.db"] {
        for command in [
            &["check", "login", "42"][..],
            &["check", "login", "42", "--cost", "0"],
            &["check", "login", "42", "--also", "login=43"],
            &["check", "--stdin"],
            &["reserve", "login", "42", "--ttl", "1m"],
            &["refund", txn],
            &["ban", "login", "42", "--for", "1h", "--note", "spam"],
            &["override", "list", "login"],
            &["history"],
            &["zone", "list"],
            &["zone", "show", "login"],
            &["apply", "zones.toml", "--dry-run"],
            &["audit", "verify"],
            &["audit", "explain", txn],
            &["audit", "report"],
            &["audit", "checkpoint"],
            &["audit", "export", "--as", "csv", "--to", "exported"],
            &["backtest", "--from-ledger", "login", "--rate", "5", "--per", "60s"],
            &["maintain"],
            &["erase", "login", "42", "--note", "asked"],
        ] {
            if file == "empty.db" {
                std::fs::write(program.path(file), "").unwrap();
            }
            let ran = program.run(&[command, &["--database", &format!("sqlite:{file}")]].concat());
            ran.assert_ends(4, &format!("there is no database in the file {file:?}"));
            assert!(ran.err.contains(&format!("tallygate migrate --database sqlite:{file}")), "{}", ran.err);
            let size = std::fs::metadata(program.path(file)).map(|file| file.len()).ok();
            assert_eq!(size, (file == "empty.db").then_some(0), "{command:?} made the file");
        }
    }
}

#[test]
fn a_ledger_without_zones_is_not_called_verified() {
    let program = Program::new();
    program.ok(&["migrate"]);
    for format in ["text", "json"] {
        program
            .run(&["audit", "verify", "--format", format])
            .assert_refused("\"tallygate.db\" holds no zones");
    }
    program.ok(&["zone", "set", "login", "--rate", "5", "--per", "60s"]);
    assert!(program.ok(&["audit", "verify"]).contains("0 rows of 0 buckets in 1 zone"));
}

#[test]
fn an_unreadable_log_filter_is_one_error_line() {
    Program::new().env("RUST_LOG", "a=b=c").run(&["zone", "list"]).assert_refused("RUST_LOG");
}
