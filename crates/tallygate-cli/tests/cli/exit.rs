//! The end of a command as scripts read it.

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

#[test]
fn the_help_has_them_all() {
    let help = Program::new().ok(&["--help"]);
    for code in 0..=7 {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {code}  "))), "{code} is not in {help}");
    }
}
