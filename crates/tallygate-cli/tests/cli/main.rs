//! The command line, driven as a user drives it: arguments and stdin in, output and exit code out.

mod audit;
mod backtest;
mod bench;
mod check;
mod completions;
mod demo;
mod erase;
mod evidence;
mod exit;
mod explain;
mod history;
mod maintain;
mod migrate;
#[cfg(feature = "otlp")]
mod otlp;
mod past;
mod policies;
mod program;
mod questions;
mod refused;
mod reports;
mod secrets;
mod serve;
mod sharded;
mod simulate;
mod stdin;
mod terminal;
mod whatif;
mod zone;

use std::process::Stdio;

use program::Program;

#[test]
fn every_command_explains_itself_with_examples() {
    let program = Program::new();
    for command in [
        &["--help"][..],
        &["migrate", "--help"],
        &["grant", "--help"],
        &["zone", "set", "--help"],
        &["zone", "list", "--help"],
        &["zone", "show", "--help"],
        &["zone", "remove", "--help"],
        &["apply", "--help"],
        &["check", "--help"],
        &["reserve", "--help"],
        &["settle", "--help"],
        &["cancel", "--help"],
        &["refund", "--help"],
        &["release", "--help"],
        &["ban", "--help"],
        &["unban", "--help"],
        &["override", "set", "--help"],
        &["override", "list", "--help"],
        &["override", "remove", "--help"],
        &["history", "--help"],
        &["backtest", "--help"],
        &["simulate", "--help"],
        &["audit", "report", "--help"],
        &["audit", "explain", "--help"],
        &["audit", "verify", "--help"],
        &["audit", "export", "--help"],
        &["audit", "checkpoint", "--help"],
        &["audit", "prove", "--help"],
        &["audit", "check-proof", "--help"],
        &["audit", "key", "--help"],
        &["erase", "--help"],
        &["demo", "--help"],
        &["bench", "--help"],
        &["serve", "--help"],
        &["token", "add", "--help"],
        &["import", "envoy-ratelimit", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
    ] {
        let ran = program.run(command);
        assert_eq!(ran.code, 0, "{command:?}");
        assert!(ran.out.contains("Examples:\n  "), "{command:?}\n{}", ran.out);
    }
}

#[test]
fn help_does_not_show_the_database_of_the_environment() {
    let program = Program::new().env("TALLYGATE_DATABASE_URL", "postgres://alice:s3cret@db/app");
    for command in [&["--help"][..], &["check", "--help"], &["check", "-h"]] {
        assert!(!program.run(command).out.contains("s3cret"));
    }
}

#[test]
fn the_flag_goes_before_the_variable_and_the_variable_before_the_default() {
    let program = Program::new();
    program.ok(&["migrate"]);
    assert!(program.path("tallygate.db").exists());
    let program = program.env("TALLYGATE_DATABASE_URL", "sqlite:variable.db");
    program.ok(&["migrate"]);
    assert!(program.path("variable.db").exists());
    program.ok(&["migrate", "--database", "sqlite:flag.db"]);
    assert!(program.path("flag.db").exists());
}

#[test]
fn logs_are_written_to_stderr_and_only_when_asked_for() {
    let program = Program::new();
    program.ok(&["zone", "set", "login", "--rate", "5", "--per", "60s"]);
    let quiet = program.run(&["check", "login", "42", "--format", "json"]);
    assert_eq!(quiet.err, "");
    let program = program.env("RUST_LOG", "tallygate=debug");
    let loud = program.run(&["check", "login", "42", "--format", "json"]);
    assert!(loud.err.contains("decided"), "{}", loud.err);
    assert_eq!(loud.json()["remaining"], 3);
}

#[test]
fn many_programs_may_make_the_same_new_database_at_once() {
    for _ in 0..5 {
        let program = Program::new();
        let start = |_| {
            let mut command = program.command(&["zone", "set", "login", "--rate", "5", "--per", "60s"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for child in (0..8).map(start).collect::<Vec<_>>() {
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        }
        assert_eq!(program.run(&["zone", "show", "login", "--format", "json"]).json()["version"], 1);
    }
}
