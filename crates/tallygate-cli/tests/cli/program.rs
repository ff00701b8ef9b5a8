//! Runs the program in a directory of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sqlx::{Connection, Executor};
use tempfile::TempDir;

/// The program, in an empty directory that goes away with it.
pub struct Program {
    dir: TempDir,
    variables: Vec<(&'static str, String)>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Program {
    pub fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), variables: Vec::new() }
    }

    /// A program with a zone `login`: 5 in 60 s.
    pub fn with_login() -> Self {
        let program = Self::new();
        program.ok(&["zone", "set", "login", "--rate", "5", "--per", "60s"]);
        program
    }

    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tallygate"));
        command.args(args).current_dir(self.dir.path()).env("HOME", self.dir.path());
        command.env_remove("TALLYGATE_DATABASE_URL").env_remove("RUST_LOG").env_remove("COLUMNS");
        command.env_remove("XDG_CACHE_HOME").env("USER", "tester");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A line of a shell in which the program is called by its name.
    pub fn shell(&self, line: &str) -> Command {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_tallygate"));
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders = program.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&folders));
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(self.dir.path())
            .env("PATH", std::env::join_paths(folders).unwrap());
        command.env_remove("TALLYGATE_DATABASE_URL").env_remove("RUST_LOG").env_remove("COLUMNS");
        command.env("USER", "tester");
        command
    }

    /// The end of a line of shell, all of whose programs there are.
    pub fn told(&self, line: &str) -> Output {
        let output = self.shell(line).output().unwrap();
        assert_ne!(output.status.code(), Some(127), "{line}: {output:?}");
        output
    }

    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        self.command(args).stdin(Stdio::null()).output().unwrap().into()
    }

    /// Runs a command that must end with 0, and returns its output.
    pub fn ok(&self, args: &[impl AsRef<OsStr>]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
        ran.out
    }

    /// Runs with this input.
    pub fn feed(&self, args: &[&str], input: impl Into<Vec<u8>>) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.into());
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let ran = child.wait_with_output().unwrap().into();
        writer.join().unwrap().ok();
        ran
    }

    /// Rows of the ledger.
    pub fn rows(&self) -> usize {
        self.ok(&["history", "--limit", "1000000", "--format", "csv"]).lines().count() - 1
    }

    /// Changes the ledger behind the program's back.
    pub fn tamper(&self, sql: &'static str) {
        let url = format!("sqlite:{}", self.path("tallygate.db").display());
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            connection.execute(sql).await.unwrap();
        });
    }

    /// Everything that a refused command must leave as it was.
    pub fn contents(&self) -> (usize, String) {
        (self.rows(), self.ok(&["zone", "list", "--format", "json"]))
    }
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that it was wrong usage: exit code 2, and the rest as with every error.
    #[track_caller]
    pub fn assert_refused(&self, because: &str) {
        self.assert_ends(2, because);
    }

    /// Asserts that this is how errors look: their exit code, one line on stderr, nothing on stdout.
    #[track_caller]
    pub fn assert_ends(&self, code: i32, because: &str) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.ends_with('\n'), "{}", self.err);
        assert!(self.err.contains(because), "{:?} does not say {because:?}", self.err);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
