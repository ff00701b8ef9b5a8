//! Real attempts, by the command line: 528 logins at an SSH server (see `tests/data/README.md`).

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use tallygate::schema::Role;

use crate::db::Db;
use crate::program;

/// All arrive within one window, so each address gets its first five.
pub async fn of_528_logins_by_address_81_are_allowed_and_447_blocked(db: Db) {
    let tallygate = |role, arguments: &[&str]| {
        let mut command = program::tallygate(&db.url_as(role));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let zone = tallygate(Role::Operator, &["zone", "set", "login", "--rate", "5", "--per", "60s"])
        .output()
        .await
        .unwrap();
    assert!(zone.status.success(), "{}", String::from_utf8_lossy(&zone.stderr));
    let attempts = include_str!("../data/ssh_logins.csv").lines().skip(1);
    let line =
        |line: &str| format!("{{\"zone\":\"login\",\"key\":\"{}\"}}\n", line.split(',').nth(1).unwrap());
    let input: String = attempts.map(line).collect();

    let start = Instant::now();
    let mut check = tallygate(Role::App, &["check", "--stdin"]).spawn().unwrap();
    let mut stdin = check.stdin.take().unwrap();
    let feed = tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
    let output = check.wait_with_output().await.unwrap();
    feed.await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(start.elapsed() < Duration::from_secs(60), "this machine is too slow for one window of 60 s");
    let decisions: Vec<serde_json::Value> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    let blocked = decisions.iter().filter(|decision| decision["blocked"] == true).count();
    assert_eq!((decisions.len() - blocked, blocked), (81, 447));

    for (flag, count) in [("--allowed", 81), ("--blocked", 447)] {
        let mut history = tallygate(
            Role::Auditor,
            &["history", flag, "--zone", "login", "--limit", "1000", "--format", "csv"],
        );
        let history = history.output().await.unwrap();
        let rows = String::from_utf8(history.stdout).unwrap().lines().count() - 1;
        assert_eq!(rows, count, "the ledger shows it: {flag}");
    }
    db.assert_ledger_is_whole().await;
}
