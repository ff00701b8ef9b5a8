//! Other processes: this program, started again with a work to do instead of tests to run.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tallygate::{Check, Config, Isolation, Limiter};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::db::{Told, told};

const VARIABLE: &str = "TALLYGATE_TEST_CHILD";

/// What a child does: its clients make their calls, and each decision is printed when it is had.
#[derive(Serialize, Deserialize)]
pub struct Work {
    pub url: String,
    pub zone: String,
    /// What each call checks, in one batch when there are several.
    pub keys: Vec<String>,
    pub serializable: bool,
    pub clients: usize,
    pub calls: usize,
}

/// The work that this process was started for, if it is a child.
pub fn work_of_this_process() -> Option<Work> {
    let work = std::env::var(VARIABLE).ok()?;
    Some(serde_json::from_str(&work).expect("the work of a child"))
}

impl Work {
    /// Says when it is ready, waits for a line, and works.
    pub async fn run(self) {
        let isolation = if self.serializable { Isolation::Serializable } else { Isolation::RowLock };
        let config = Config {
            isolation,
            connections: 4,
            deadline: Duration::from_secs(60),
            attempts: 1000,
            ..Config::default()
        };
        let limiter = Limiter::connect_with(&self.url, config).await.unwrap();
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let client = async || {
            for _ in 0..self.calls {
                let mut checks: Vec<_> = self.keys.iter().map(|key| Check::new(&self.zone, key)).collect();
                let decisions = match checks.len() {
                    1 => vec![limiter.check(checks.remove(0)).await.unwrap()],
                    _ => limiter.check_many(checks).await.unwrap(),
                };
                for decision in &decisions {
                    println!("{}", told(decision));
                }
            }
        };
        join_all((0..self.clients).map(|_| client())).await;
    }
}

/// A child as its parent sees it; killed when dropped.
pub struct Child {
    process: tokio::process::Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process and waits until it is ready.
    pub async fn start(work: &Work) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .env(VARIABLE, serde_json::to_string(work).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        Self { process, stdin, lines }
    }

    pub async fn go(&mut self) {
        self.stdin.write_all(b"go\n").await.unwrap();
    }

    /// What it printed until it ended well.
    pub async fn answers(&mut self) -> Vec<Told> {
        let mut answers = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        assert!(self.process.wait().await.unwrap().success(), "a child failed");
        answers
    }

    /// What it printed until it is killed (SIGKILL), some time after the first of it.
    pub async fn answers_until_killed(&mut self, after: Duration) -> Vec<Told> {
        let first = self.lines.next_line().await.unwrap().expect("a first answer");
        let mut answers = vec![serde_json::from_str(&first).unwrap()];
        let kill = tokio::time::sleep(after);
        tokio::pin!(kill);
        let mut killed = false;
        loop {
            tokio::select! {
                () = &mut kill, if !killed => {
                    self.process.start_kill().unwrap();
                    killed = true;
                }
                line = self.lines.next_line() => match line.unwrap() {
                    // A line that was cut off by the kill is no answer.
                    Some(line) => answers.extend(serde_json::from_str::<Told>(&line)),
                    None => break,
                },
            }
        }
        assert!(!self.process.wait().await.unwrap().success(), "it was killed while it worked");
        answers
    }
}
