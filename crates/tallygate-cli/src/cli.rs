//! The command line: its commands, and the modules that run them.

mod action;
mod apply;
mod audit;
mod backtest;
mod bench;
mod check;
mod clock;
mod completions;
mod decision;
mod demo;
mod duration;
mod erase;
mod exit;
mod failure;
mod grant;
mod history;
mod import;
mod layout;
mod lease;
mod lines;
mod logs;
mod maintain;
mod man;
mod migrate;
mod moment;
mod most;
mod output;
mod pager;
mod predict;
mod private;
mod progress;
mod queue;
mod relocate;
mod serve;
mod simulate;
mod spreadsheet;
mod stream;
mod terminal;
mod token;
mod zone;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand};
use tallygate::{Config, Limiter};

pub use completions::answer as answer_shell;
use failure::Failure;
use logs::LogFormat;

/// The end of every command: an exit code, or one line that says what went wrong.
type Result<T = ExitCode, E = Failure> = std::result::Result<T, E>;

const URL_VARIABLE: &str = "TALLYGATE_DATABASE_URL";
const URL_DEFAULT: &str = "sqlite:tallygate.db";

const EXAMPLES: &str = "\
Examples:
  tallygate demo                                    watch a login storm being limited
  tallygate zone set login --rate 5 --per 60s       make a zone: 5 logins per minute
  tallygate check login user:42                     may user 42 log in now?
  tallygate refund TXN                              give an attempt back
  tallygate apply zones.toml --dry-run              zones as code
  tallygate history --zone login --blocked          who was blocked, and when
  tallygate backtest FILE --rate 5 --per 60s        what would this policy have blocked?
  tallygate simulate --shape border --rate 5 --per 60s   what gets through?
  tallygate grant app web --database URL            the rights of a service, and no more
  tallygate audit report --since 7d --html week.html   what happened, with charts
  tallygate audit explain TXN                       why was it decided so?
  tallygate maintain --keep 400d                    partitions ahead, old rows away
  tallygate erase login user:42 --note REASON  personal data away, proofs stay
  tallygate move                                    give a database that was added its buckets
  tallygate bench --database URL                    how many decisions does it carry?
  tallygate serve                                   the same for every language, over HTTP

";

/// Rate limits in your SQL database: every decision exact, recorded and explained.
#[derive(Parser)]
#[command(name = "tallygate", version, after_help = format!("{EXAMPLES}{}", exit::MEANINGS))]
struct Cli {
    /// postgres://…, mysql://…, mariadb://… or sqlite:FILE. Several servers of the same data are named together:
    /// postgres://user@one:5432,two:5432/name?target=primary (or replica, any). A SQLite file is made by
    /// migrate, zone set, apply and bench. Databases that decide together are given each as NAME=URL, by this flag once for
    /// each, or with white space between them [env: TALLYGATE_DATABASE_URL] [default: sqlite:tallygate.db]
    #[arg(long, global = true, value_name = "URL")]
    database: Vec<String>,
    /// Tell only what was asked for, and errors: no hints and no progress
    #[arg(long, short, global = true)]
    quiet: bool,
    /// The form of the log, which goes to stderr where RUST_LOG asks for it
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Migrate(migrate::Args),
    Grant(grant::Args),
    #[command(subcommand)]
    Zone(zone::Command),
    Apply(apply::Args),
    Check(check::Args),
    Reserve(check::ReserveArgs),
    Predict(predict::Args),
    Settle(action::Settle),
    Cancel(action::Cancel),
    Refund(action::Refund),
    Release(action::Release),
    #[command(subcommand)]
    Lease(lease::Command),
    #[command(subcommand)]
    Queue(queue::Command),
    Ban(action::Ban),
    Unban(action::Unban),
    #[command(subcommand)]
    Override(action::Overrides),
    History(history::Args),
    Backtest(Box<backtest::Args>),
    Simulate(Box<simulate::Args>),
    #[command(subcommand)]
    Audit(audit::Command),
    Maintain(maintain::Args),
    Erase(erase::Args),
    Move(relocate::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Serve(serve::Args),
    #[command(subcommand)]
    Token(token::Command),
    #[command(subcommand)]
    Import(import::Command),
    Completions(completions::Args),
    Man(man::Args),
}

/// Reads the arguments and runs what they ask for.
pub async fn run() -> Result {
    if SystemTime::now() < SystemTime::UNIX_EPOCH {
        return Err(Failure::new("the clock of this host is before 1970; set it"));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    terminal::hush(cli.quiet);
    if !matches!(cli.command, Command::Serve(_)) {
        logs::begin(cli.log_format)?;
    }
    let database = list(cli.database)?;
    match cli.command {
        Command::Migrate(args) => migrate::run(&url(database)?, args).await,
        Command::Grant(args) => grant::run(&url(database)?, args).await,
        Command::Zone(command) => zone::run(&url(database)?, command).await,
        Command::Apply(args) => apply::run(&url(database)?, args).await,
        Command::Check(args) => check::run(&url(database)?, args).await,
        Command::Reserve(args) => check::reserve(&url(database)?, args).await,
        Command::Predict(args) => predict::run(&url(database)?, args).await,
        Command::Settle(args) => action::settle(&url(database)?, args).await,
        Command::Cancel(args) => action::cancel(&url(database)?, args).await,
        Command::Refund(args) => action::refund(&url(database)?, args).await,
        Command::Release(args) => action::release(&url(database)?, args).await,
        Command::Lease(command) => lease::run(&url(database)?, command).await,
        Command::Queue(command) => queue::run(&url(database)?, command).await,
        Command::Ban(args) => action::ban(&url(database)?, args).await,
        Command::Unban(args) => action::unban(&url(database)?, args).await,
        Command::Override(command) => action::overrides(&url(database)?, command).await,
        Command::History(args) => history::run(&url(database)?, args).await,
        Command::Backtest(args) => backtest::run(database, *args).await,
        Command::Simulate(args) => simulate::run(*args),
        Command::Audit(command) => audit::run(&url(database)?, command).await,
        Command::Maintain(args) => maintain::run(&url(database)?, args).await,
        Command::Erase(args) => erase::run(&url(database)?, args).await,
        Command::Move(args) => relocate::run(&url(database)?, args).await,
        Command::Demo(args) => demo::run(database, args).await,
        Command::Bench(args) => bench::run(&url(database)?, args).await,
        Command::Serve(args) => serve::run(named_url(database)?, cli.log_format, args).await,
        Command::Token(command) => token::run(command),
        Command::Import(command) => import::run(command),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// One URL, or one text of all that were named.
fn list(mut flags: Vec<String>) -> Result<Option<String>> {
    if flags.len() < 2 {
        return Ok(flags.pop());
    }
    let named = |flag: &String| flag.split_once('=').is_some_and(|(name, _)| !name.contains(':'));
    match flags.iter().position(|flag| !named(flag)) {
        None => Ok(Some(flags.join(" "))),
        Some(place) => Err(Failure::new(format!(
            "--database number {} has no name; databases that decide together are given each as NAME=URL",
            place + 1
        ))),
    }
}

/// The flag, or the variable, or the default.
fn url(flag: Option<String>) -> Result<String> {
    Ok(named_url(flag)?.unwrap_or_else(|| URL_DEFAULT.to_owned()))
}

/// The flag, or the variable. Read here and not by clap, whose help would show the value.
fn named_url(flag: Option<String>) -> Result<Option<String>> {
    let variable = || {
        let url = std::env::var_os(URL_VARIABLE)?;
        Some(url.into_string().map_err(|_| Failure::new(format!("{URL_VARIABLE} is not valid UTF-8"))))
    };
    flag.map(Ok).or_else(variable).transpose()
}

/// Connects to a database that is there: a command that reads, or acts in zones, makes none.
async fn open(url: &str) -> Result<Limiter> {
    open_with(url, Config::default()).await
}

async fn open_with(url: &str, config: Config) -> Result<Limiter> {
    let limiter = Limiter::connect_with(url, Config { create: false, ..config }).await?;
    if url.contains("target=replica") && !terminal::is_quiet() {
        eprintln!("{}", replica(limiter.auditor().behind().await?));
    }
    Ok(limiter)
}

/// A warning of how far the answers of a replica may be behind.
fn replica(behind: Option<Duration>) -> String {
    match behind {
        Some(Duration::ZERO) => "read at a replica that shows all that it was sent".to_owned(),
        Some(behind) => {
            let us = i64::try_from(behind.as_micros()).unwrap_or(i64::MAX);
            format!("read at a replica that is {} behind", duration::show_wait(us))
        }
        None => "read at a replica that does not tell how far it is behind".to_owned(),
    }
}

/// The person who does it, for the history: the flag, or the user's name.
fn who(flag: Option<String>) -> String {
    flag.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".to_owned())
}
