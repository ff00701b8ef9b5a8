use std::process::{Command, Stdio};

use super::program::Program;

const LOGINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/ssh_logins.csv");

#[test]
fn the_demo_shows_a_storm_a_decision_explained_a_report_and_commands_that_work() {
    let program = Program::new().env("COLUMNS", "80");
    let ran = program.run(&["demo"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("362/362  31 allowed  331 blocked"), "{}", ran.err);
    for part in [
        "ip:203.0.113.66       260        5      255",
        "No key was ever let through more than 5 times in 60s",
        "counted from 362 ledger rows",
        "Why was ip:203.0.113.66 blocked?\nTransaction ",
        "5 of 5 counted",
        "Derived again from the rows before it: the same.",
        ".cache/tallygate/demo.html",
    ] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    let page = std::fs::read_to_string(program.path(".cache/tallygate/demo.html")).unwrap();
    assert!(page.contains("ip:203.0.113.67") && page.contains("Derived again from the rows"));

    let (told, next) = ran.out.split_once("Try next\n").unwrap();
    for line in told.lines() {
        // A path is as long as it is.
        assert!(line.chars().count() <= 80 || line.contains("/.cache/tallygate/"), "{line}");
    }
    assert!(next.lines().count() >= 4);
    let script = next.lines().map(|line| format!("{line} || echo exit $?\n")).collect::<String>();
    let shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(shell.stdout).unwrap();
    let err = String::from_utf8(shell.stderr).unwrap();
    assert!(err.lines().all(|line| line.starts_with("There are older rows.")), "{err}");
    assert!(out.starts_with("blocked  login ip:203.0.113.66  over_limit"), "{out}");
    assert!(out.contains("exit 1") && !out.contains("exit 2"), "{out}");
    assert!(out.contains("Your request of ") && out.contains("\nverified  "), "{out}");
}

#[cfg(unix)]
#[test]
fn the_demo_writes_where_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt;

    let program = Program::new();
    program.run(&["demo", "--quiet"]);
    let mode = |name: &str| std::fs::metadata(program.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(".cache/tallygate"), mode(".cache/tallygate/demo.html")), (0o700, 0o600));
    let program = program.env("HOME", "").env("XDG_CACHE_HOME", "/dev/null/none");
    program.run(&["demo"]).assert_ends(2, "--database sqlite:FILE");
}

#[test]
fn the_demo_gives_the_same_numbers_every_time() {
    let program = Program::new();
    for _ in 0..2 {
        let json = program.run(&["demo", "--format", "json"]).json();
        assert_eq!((&json["attempts"], &json["allowed"]), (&362.into(), &31.into()));
        assert_eq!((&json["blocked"], &json["most_in_any_window"]), (&331.into(), &5.into()));
    }
}

#[test]
fn the_demo_leaves_the_users_own_zones_and_database_alone() {
    let program = Program::with_login();
    let program = program.env("TALLYGATE_DATABASE_URL", "sqlite:tallygate.db");
    let before = program.contents();
    assert_eq!(program.run(&["demo"]).code, 0);
    assert_eq!(program.contents(), before);
    assert_eq!(program.run(&["demo", "--database", "sqlite:tallygate.db"]).code, 0);
    let zones = program.run(&["zone", "list", "--format", "json"]).json();
    assert_eq!((&zones[0]["name"], &zones[1]["name"]), (&"demo-login".into(), &"login".into()));
}

#[test]
fn real_events_are_played_at_their_own_times_as_a_back_test_plays_them() {
    let program = Program::new();
    let ran = program.run(&["demo", "--events", LOGINS, "--key-column", "ip"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in ["A back-test of ", "nothing is written", "2016-12-10 06:55:48", "backtest "] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    let backtest =
        program.ok(&["backtest", LOGINS, "--key-column", "ip", "--rate", "5", "--per", "60s", "--quiet"]);
    assert!(ran.out.contains(&backtest), "{backtest}\n{}", ran.out);
    let json = program.run(&["demo", "--events", LOGINS, "--key-column", "ip", "--format", "json"]).json();
    let backtest =
        ["backtest", LOGINS, "--key-column", "ip", "--rate", "5", "--per", "60s", "--format", "json"];
    assert_eq!(json, program.run(&backtest).json());
    assert!(!program.path(".cache").exists());

    let next = ran.out.split("Try next\n").nth(1).unwrap();
    let shell =
        Command::new("sh").args(["-ec", next]).current_dir(program.path("")).stdin(Stdio::null()).output();
    let shell = shell.unwrap();
    assert_eq!(shell.status.code(), Some(0), "{}", String::from_utf8_lossy(&shell.stderr));
    assert!(program.path("backtest.html").exists());
}

#[test]
fn a_file_name_cannot_write_over_the_terminal() {
    let program = Program::new();
    let name = "x\u{1b}[31m\u{202e}y.csv";
    std::fs::write(program.path(name), "at,key\n2016-12-10T06:55:48Z,a\n").unwrap();
    let told = program.ok(&["demo", "--events", name]);
    assert!(told.contains("Try next") && !told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
}

#[test]
fn bad_events_are_one_error_line_that_names_the_place_and_nothing_is_sent() {
    let program = Program::new();
    let long = format!("at,key\n2016-12-10T06:55:48Z,{}\n", "k".repeat(256));
    for (text, because) in [
        ("at,ip\n2016-12-10T06:55:48Z,1\n", "only at, ip; name the right one with --key-column"),
        ("when,key\n2016-12-10T06:55:48Z,1\n", "only when, key; name the right one with --at-column"),
        ("at,key\nnoon,1\nnight,2\n", "line 2: column at: \"noon\""),
        ("at,key\n2016-12-10T06:55:48Z,\n", "line 2: column key: bucket key is empty"),
        ("at,key\n2016-12-10T06:55:48Z,1,2\n", "line 2: 3 columns"),
        ("", "is empty"),
        (&long, "256 bytes"),
    ] {
        std::fs::write(program.path("events.csv"), text).unwrap();
        program.run(&["demo", "--events", "events.csv"]).assert_refused(because);
    }
    std::fs::write(program.path("events.csv"), b"at,key\n2016-12-10T06:55:48Z,a\xff\n").unwrap();
    program.run(&["demo", "--events", "events.csv"]).assert_refused("UTF-8");
    program.run(&["demo", "--events", "missing.csv"]).assert_refused("No such file");
    program.run(&["demo", "--key-column", "ip"]).assert_refused("--events");
    program
        .run(&["demo", "--events", LOGINS, "--key-column", "ip", "--database", "sqlite:demo.db"])
        .assert_refused("leave out --database");
    assert!(!program.path(".cache").exists() && !program.path("demo.db").exists());
}
