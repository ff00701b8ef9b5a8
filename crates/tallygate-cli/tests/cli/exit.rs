//! The end of a command as scripts read it.

use std::process::Stdio;

use super::program::Program;

/// Each number means one thing. Faults (5), proofs (6) and benchmarks (7) are where ledgers are changed: in `audit`,
/// `evidence` and `bench`.
#[test]
fn exit_codes_are_told_apart() {
    let program = Program::new();
    program.run(&["check", "login", "42"]).assert_ends(4, "tallygate migrate");
    program.ok(&["zone", "set", "login", "--rate", "1", "--per", "60s"]);
    assert_eq!(program.run(&["check", "login", "42"]).code, 0);
    assert_eq!(program.run(&["check", "login", "42"]).code, 1);
    program.run(&["check", "lgoin", "42"]).assert_ends(2, "lgoin");
    let nobody = "postgres://app@127.0.0.1:1/app";
    for command in [&["check", "login", "42"][..], &["migrate", "--check"], &["audit", "verify"]] {
        let ran = program.run(&[command, &["--database", nobody]].concat());
        ran.assert_ends(3, "127.0.0.1");
    }
}

/// The words beside an answer are worth less than the end of the command.
#[test]
fn a_command_ends_the_same_where_nobody_reads_what_it_says() {
    let program = Program::with_login();
    program.ok(&["check", "login", "42"]);
    program.ok(&["check", "login", "42"]);
    let theirs = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 1 }\n  \
                  - key: card\n    value: \"4*\"\n    rate_limit: { unit: day, requests_per_unit: 1 }\n";
    std::fs::write(program.path("theirs.yaml"), theirs).unwrap();
    for (command, code) in [
        (&["check", "lgoin", "42"][..], 2),
        (&["check", "login", "42", "--database", "sqlite:nowhere.db"], 4),
        (&["check"], 2),
        (&["audit"], 2),
        (&["history", "--limit", "1"], 0),
        (&["demo"], 0),
        #[cfg(feature = "serve")]
        (&["import", "envoy-ratelimit", "theirs.yaml"], 0),
        #[cfg(feature = "serve")]
        (&["serve", "--listen", "nowhere"], 2),
    ] {
        let said = program.run(command);
        assert!(said.code == code && !said.err.is_empty(), "{command:?}: {said:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut unread = program.command(command);
        let unread = unread.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(unread.code(), Some(code), "{command:?}");
    }
}

/// Each example of each command's help. Those that reach a server, serve, measure or write where the user's files are, are left out.
#[test]
fn no_command_dies_where_nobody_reads_it() {
    let program = Program::with_login().env("COLUMNS", "400");
    let (mut commands, mut run) = (vec![Vec::new()], 0);
    while let Some(command) = commands.pop() {
        let help = program.ok(&[&command[..], &["--help".to_owned()]].concat());
        let listed =
            help.split("Options:").next().unwrap().lines().filter_map(|line| line.strip_prefix("  "));
        let names = listed.filter_map(|line| line.split(' ').next());
        let below =
            names.filter(|name| name.starts_with(|first: char| first.is_lowercase()) && *name != "help");
        commands.extend(below.map(|name| [&command[..], &[name.to_owned()]].concat()));
        let examples = help.lines().map(str::trim_start).filter(|line| line.starts_with("tallygate "));
        for line in examples.map(|line| line.split("   ").next().unwrap().split(" > ").next().unwrap()) {
            if ["://", " /", "tallygate serve", "tallygate bench"].iter().any(|left| line.contains(left)) {
                continue;
            }
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut unread = program.shell(line);
            unread.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
            let code = unread.env("HOME", program.path("")).status().unwrap().code();
            assert!(matches!(code, Some(0..=7 | 141)), "{line}: {code:?}");
            run += 1;
        }
    }
    assert!(run > 99, "{run}");
}

#[test]
fn the_help_has_them_all() {
    let help = Program::new().ok(&["--help"]);
    for code in 0..=7 {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {code}  "))), "{code} is not in {help}");
    }
}
