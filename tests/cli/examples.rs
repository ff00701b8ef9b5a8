//! The examples assert what they show, so to run them is to test them.

use std::process::Command;

use super::program::Program;

fn run(name: &str) -> String {
    let program = Program::new();
    let example = program.neighbour("examples").join(name);
    assert!(example.exists(), "{} is not built; run: cargo build --examples", example.display());
    let output = Command::new(example).env("TMPDIR", program.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_login_looks_at_no_more_guesses_than_the_limit() {
    assert!(run("login").contains("4 of 10"));
}

#[test]
fn the_payment_and_its_limit_are_committed_together() {
    assert!(run("payment").contains("paid 9000 cents"));
}
