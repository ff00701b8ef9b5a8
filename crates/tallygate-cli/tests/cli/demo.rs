use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::Program;

const LOGINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/ssh_logins.csv");

#[test]
fn the_demo_shows_a_storm_what_the_ledger_says_and_commands_that_work() {
    let program = Program::new();
    let began = Instant::now();
    let ran = program.run(&["demo"]);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("362/362  31 allowed  331 blocked"), "{}", ran.err);
    for part in [
        "ip:203.0.113.66       260        5      255",
        "No key was ever let through more than 5 times in 60s",
        "recomputed from 362 ledger rows",
    ] {
        assert!(ran.out.contains(part), "{}", ran.out);
    }
    let next = ran.out.split("Try next\n").nth(1).unwrap();
    assert!(next.lines().count() >= 4);
    let script = next.lines().map(|line| format!("{line} || echo exit $?\n")).collect::<String>();
    let shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(shell.stdout).unwrap();
    let err = String::from_utf8(shell.stderr).unwrap();
    assert!(err.lines().all(|line| line.starts_with("There are older rows.")), "{err}");
    assert!(out.starts_with("blocked  login ip:203.0.113.66  over_limit"), "{out}");
    assert!(out.contains("exit 1") && !out.contains("exit 2"), "{out}");
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
fn real_events_are_sent_now_and_counted() {
    let program = Program::new();
    let ran = program.run(&["demo", "--events", LOGINS, "--key-column", "ip"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("81 allowed, 447 blocked"), "{}", ran.out);
    assert!(ran.out.contains("All fell in one window"), "{}", ran.out);
    assert!(ran.out.contains("not at the time in the file"), "{}", ran.out);
}

#[test]
fn bad_events_are_one_error_line_that_names_the_place_and_nothing_is_sent() {
    let program = Program::new();
    let long = format!("at,key\n2016-12-10T06:55:48Z,{}\n", "k".repeat(256));
    for (text, because) in [
        ("at,ip\n2016-12-10T06:55:48Z,1\n", "--key-column: at, ip"),
        ("when,key\n2016-12-10T06:55:48Z,1\n", "--at-column: when, key"),
        ("at,key\n2016-12-10T06:55:48Z,1\nnoon,2\n", "line 3: \"noon\""),
        ("at,key\n2016-12-10T06:55:48Z,\n", "line 2: bucket key is empty"),
        ("at,key\n2016-12-10T06:55:48Z,1,2\n", "line: 2"),
        ("at,key\n", "no event"),
        ("", "no column"),
        (&long, "256 bytes"),
    ] {
        std::fs::write(program.path("events.csv"), text).unwrap();
        program.run(&["demo", "--events", "events.csv"]).assert_refused(because);
    }
    std::fs::write(program.path("events.csv"), b"at,key\n2016-12-10T06:55:48Z,a\xff\n").unwrap();
    program.run(&["demo", "--events", "events.csv"]).assert_refused("UTF-8");
    program.run(&["demo", "--events", "missing.csv"]).assert_refused("No such file");
    program.run(&["demo", "--key-column", "ip"]).assert_refused("--events");
    assert!(!program.path("tallygate-demo.db").exists());
}
