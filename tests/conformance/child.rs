//! Other processes: this program, started again with a work to do instead of tests to run.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tallygate::queue::Take;
use tallygate::{Charged, Check, Config, Isolation, Limiter, LocalJournal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::cut::Task;
use crate::db::{Connected, Engine, Told, connected, told};
use crate::engine::sql_check;
use crate::server::PATIENCE;

const VARIABLE: &str = "TALLYGATE_TEST_CHILD";

/// The work of a child. Each decision is printed when it is had.
#[derive(Serialize, Deserialize)]
pub enum Work {
    Calls(Calls),
    Caller(Caller),
    Local(LocalCaller),
    Worker(Worker),
    Mover(Mover),
    /// At a database.
    Task(Task, String),
}

/// Its clients make their calls.
#[derive(Serialize, Deserialize)]
pub struct Calls {
    pub url: String,
    pub zone: String,
    /// The keys that each call checks, in one batch when there are several.
    pub keys: Vec<String>,
    pub serializable: bool,
    pub clients: usize,
    pub calls: usize,
}

/// One caller, who checks one of three keys at a time until it is told to end, and whom nothing keeps from asking again.
#[derive(Serialize, Deserialize)]
pub struct Caller {
    pub url: String,
    pub zone: String,
    /// By the routine; null is printed for each answer then. Else by the library, which takes some charges back.
    pub by_sql: Option<Engine>,
}

/// The time after which a session that answers nothing is given up.
const SILENT: Duration = Duration::from_secs(30);

/// Two callers, who check a key of some zones until they are told to end, mostly by themselves; in one that is scarce now and then.
#[derive(Serialize, Deserialize)]
pub struct LocalCaller {
    pub url: String,
    pub zones: Vec<String>,
    pub journal: std::path::PathBuf,
}

/// A worker of a queue, until nothing is left in it.
#[derive(Serialize, Deserialize)]
pub struct Worker {
    pub url: String,
    pub zone: String,
    pub queue: String,
    /// The time for which it takes what it takes.
    pub visible: Duration,
}

/// One who moves buckets from one database to another.
#[derive(Serialize, Deserialize)]
pub struct Mover {
    pub urls: [String; 2],
    /// Those of the two databases.
    pub names: [String; 2],
    pub zone: String,
    pub keys: Vec<String>,
}

/// The work that this process was started for, if it is a child.
pub fn work_of_this_process() -> Option<Work> {
    let work = std::env::var(VARIABLE).ok()?;
    Some(serde_json::from_str(&work).expect("the work of a child"))
}

impl Work {
    /// Says when it is ready, waits for a line, and works.
    pub async fn run(self) {
        match self {
            Self::Calls(calls) => calls.run().await,
            Self::Caller(caller) => caller.run().await,
            Self::Local(caller) => caller.run().await,
            Self::Worker(worker) => worker.run().await,
            Self::Mover(mover) => mover.run().await,
            Self::Task(task, url) => {
                begin();
                task.run(&url).await.unwrap();
            }
        }
    }
}

fn begin() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// True once it is told to end.
fn told_to_end() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            std::io::stdin().read_line(&mut String::new()).ok();
            over.store(true, Ordering::Relaxed);
        }
    });
    over
}

impl LocalCaller {
    async fn run(self) {
        let config = Config { connections: 8, deadline: PATIENCE, ..Config::default() };
        let limiter = Limiter::connect_with(&self.url, config).await.unwrap();
        let limiter = limiter.with_local_journal(LocalJournal::open(&self.journal).unwrap());
        begin();
        let over = told_to_end();
        let caller = async || {
            for cycle in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                for zone in self.zones.iter().filter(|zone| *zone != "scarce" || cycle % 20 == 0) {
                    let decision = match limiter.check(Check::new(zone, "key")).await {
                        // A database with much else to do may not answer in time; the ledger tells what it decided.
                        Err(error) if error.is_transient() => continue,
                        decision => decision.unwrap(),
                    };
                    if decision.blocked {
                        let wait = decision.retry_after().unwrap_or_default();
                        tokio::time::sleep(wait.min(Duration::from_millis(20))).await;
                    }
                    // A check that is decided in memory waits for nothing; the other has its turn.
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::join!(caller(), caller());
        // Units that are left are given back, or count as spent.
        limiter.close().await.or_else(|error| error.is_transient().then_some(()).ok_or(error)).unwrap();
    }
}

impl Calls {
    async fn run(self) {
        let isolation = if self.serializable { Isolation::Serializable } else { Isolation::RowLock };
        let config =
            Config { isolation, connections: 4, deadline: PATIENCE, attempts: 1000, ..Config::default() };
        let limiter = Limiter::connect_with(&self.url, config).await.unwrap();
        begin();
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

impl Caller {
    async fn run(self) {
        let config = Config { connections: 2, attempts: 1000, deadline: PATIENCE, ..Config::default() };
        let limiter = Limiter::connect_with(&self.url, config).await.unwrap();
        begin();
        let over = told_to_end();
        let mut session = None;
        while !over.load(Ordering::Relaxed) {
            let key = format!("key {}", fastrand::u8(..3));
            let told = match self.by_sql {
                None => {
                    let decision = limiter.check(Check::new(&self.zone, &key)).await.ok();
                    if let Some(decision) = decision.as_ref().filter(|_| fastrand::u8(..20) == 0) {
                        limiter.refund(Charged::by(decision.txn_id)).await.ok();
                    }
                    decision.as_ref().map(told)
                }
                Some(engine) => {
                    let sql = sql_check(engine, &self.zone, &key, 1);
                    let ask = async {
                        let mut open = match session.take() {
                            Some(open) => open,
                            None => Connected::open(engine, &self.url).await?,
                        };
                        open.try_number(&sql).await?;
                        session = Some(open);
                        Ok::<_, sqlx::Error>(Told::Null)
                    };
                    // A server that was killed may leave a session that hears no more.
                    tokio::time::timeout(SILENT, ask).await.ok().and_then(Result::ok)
                }
            };
            match told {
                Some(told) => println!("{told}"),
                // The server is away, or the session was killed.
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

impl Worker {
    async fn run(self) {
        let config = Config { connections: 1, attempts: 1000, deadline: PATIENCE, ..Config::default() };
        let queues = Limiter::connect_with(&self.url, config).await.unwrap().queues();
        begin();
        loop {
            let take = Take::new(&self.zone, &self.queue, self.visible).most(fastrand::u32(1..20));
            let works = queues.next(take, Duration::from_secs(1)).await.unwrap().items;
            for work in &works {
                match fastrand::u8(..20) {
                    0 => drop(queues.release(&self.zone, &self.queue, work.receipt, Duration::ZERO).await),
                    // It forgets some.
                    1 => {}
                    _ => match queues.done(&self.zone, &self.queue, work.receipt).await {
                        Ok(_) => {}
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    },
                }
            }
            if works.is_empty() {
                let size = queues.size(&self.zone, &self.queue).await.unwrap();
                if size.waiting == 0 && size.away == 0 {
                    return;
                }
            }
        }
    }
}

impl Mover {
    async fn run(self) {
        let [from, to] = &self.urls;
        let (from, to) = (connected(from).await, connected(to).await);
        begin();
        for key in &self.keys {
            let names = (&*self.names[0], &*self.names[1]);
            from.owner().move_bucket(&to.owner(), &self.zone, key, names).await.unwrap();
        }
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

    /// Kills it (SIGKILL).
    pub async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Does it end well within a time? Else it is killed (SIGKILL).
    pub async fn ends_within(mut self, time: Duration) -> bool {
        match tokio::time::timeout(time, self.process.wait()).await {
            Ok(ended) => assert!(ended.unwrap().success(), "a child failed"),
            Err(_) => {
                self.kill().await;
                return false;
            }
        }
        true
    }

    /// Waits until it has ended well.
    pub async fn end(mut self) {
        assert!(self.process.wait().await.unwrap().success(), "a child failed");
    }

    /// The lines that it printed until it ended well.
    pub async fn answers(&mut self) -> Vec<Told> {
        self.answers_until(std::future::pending()).await
    }

    /// The lines that it printed until it ended well, which it is told to when something is over.
    pub async fn answers_until(&mut self, over: impl Future<Output = ()>) -> Vec<Told> {
        let answers = self.read(over, false).await;
        assert!(self.process.wait().await.unwrap().success(), "a child failed");
        answers
    }

    /// The lines that it printed until it is killed (SIGKILL), some time after the first of them.
    pub async fn answers_until_killed(&mut self, after: Duration) -> Vec<Told> {
        let first = self.lines.next_line().await.unwrap().expect("a first answer");
        let mut answers = vec![serde_json::from_str(&first).unwrap()];
        answers.extend(self.read(tokio::time::sleep(after), true).await);
        assert!(!self.process.wait().await.unwrap().success(), "it was killed while it worked");
        answers
    }

    /// The lines that it prints until it ends: it is killed, or told to, when something is over.
    async fn read(&mut self, over: impl Future<Output = ()>, kill: bool) -> Vec<Told> {
        let (mut answers, mut is_over) = (Vec::new(), false);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over, if !is_over => {
                    is_over = true;
                    match kill {
                        true => self.process.start_kill().unwrap(),
                        false => self.stdin.write_all(b"end\n").await.unwrap(),
                    }
                }
                line = self.lines.next_line() => match line.unwrap() {
                    // A line that was cut off by the kill is no answer.
                    Some(line) if kill => answers.extend(serde_json::from_str::<Told>(&line)),
                    Some(line) => answers.push(serde_json::from_str(&line).unwrap()),
                    None => return answers,
                },
            }
        }
    }
}
