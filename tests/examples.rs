//! The examples assert what they show, so to run them is to test them.

use std::path::Path;
use std::process::Command;

fn run(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap_or(Path::new("")).join("examples").join(name);
    assert!(example.exists(), "{} is not built; run: cargo build --examples", example.display());
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example).env("TMPDIR", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_login_looks_at_no_more_guesses_than_the_limit_and_a_blocked_address_locks_nobody_out() {
    assert!(run("login").contains(
        "4 of 10 guesses were looked at; the others were told when to come back, and locked nobody out"
    ));
}

#[test]
fn an_exporter_that_is_set_up_as_documented_tells_what_the_alerts_ask_for() {
    let page = run("metrics");
    for counted in [
        "tallygate_checks_total{zone=\"login\",outcome=\"blocked\",reason=\"over_limit\"} 2",
        "tallygate_check_seconds_bucket{le=\"0.25\"} 7",
        "tallygate_call_checks_bucket{le=\"1\"} 7",
        "tallygate_retries_total 0",
        "tallygate_ahead_total 0",
    ] {
        assert!(page.lines().any(|line| line == counted), "no {counted} in {page}");
    }
    assert!(!page.contains("quantile"), "{page}");
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
}

#[test]
fn the_payment_and_its_limits_are_committed_and_reversed_together() {
    assert!(run("payment").contains("paid 5000 cents"));
}
