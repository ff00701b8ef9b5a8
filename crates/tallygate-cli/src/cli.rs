//! The command line: its commands, and the modules that run them.

mod action;
mod apply;
mod audit;
mod backtest;
#[cfg(feature = "bench")]
mod bench;
mod check;
mod clock;
#[cfg(feature = "shell")]
mod completions;
mod decision;
mod demo;
mod duration;
mod erase;
mod exit;
mod failure;
mod grant;
mod history;
#[cfg(feature = "serve")]
mod import;
mod layout;
mod lease;
#[cfg(not(all(feature = "bench", feature = "serve", feature = "shell")))]
mod left_out;
mod lines;
mod logs;
mod maintain;
#[cfg(feature = "shell")]
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
#[cfg(feature = "serve")]
mod serve;
mod simulate;
mod spreadsheet;
mod stream;
mod terminal;
#[cfg(feature = "serve")]
mod token;
mod txn;
mod zone;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{CommandFactory, Parser, Subcommand};
use tallygate::{Config, Limiter};

#[cfg(feature = "shell")]
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
  tallygate simulate --shape border --rate 5 --per 60s
                                                    what gets through?
  tallygate grant app web --database URL            the rights of a service, and no more
  tallygate audit report --since 7d --html week.html
                                                    what happened, with charts
  tallygate audit explain TXN                       why was it decided so?
  tallygate maintain --keep 400d                    partitions ahead, old rows away
  tallygate erase login user:42 --note REASON       personal data away, proofs stay
  tallygate move                                    give a database that was added its buckets
  tallygate bench --database URL                    how many decisions does it carry?
  tallygate serve                                   the same for every language, over HTTP

Several databases: servers of the same data are named together,
postgres://user@one:5432,two:5432/name?target=primary (or replica, any). Databases that decide
together are given each as NAME=URL, by --database once for each, or with white space between
them. A SQLite file is made by migrate, zone set, apply and bench.

";

/// The commands by what they are for, as the help lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Begin", &["demo", "migrate", "zone", "apply", "import", "grant"]),
    ("Decide", &["check", "reserve", "settle", "cancel", "refund", "release", "lease", "queue", "predict"]),
    ("Step in", &["ban", "unban", "override"]),
    ("Ask and prove", &["history", "audit"]),
    ("Plan", &["backtest", "simulate", "bench"]),
    ("Run", &["serve", "token", "maintain", "erase", "move", "completions", "man"]),
];

const HELP: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

/// Rate limits in your SQL database: every decision exact, recorded and explained.
#[derive(Parser)]
#[command(name = "tallygate", version, after_help = format!("{EXAMPLES}{}", exit::MEANINGS))]
struct Cli {
    /// postgres://…, mysql://…, mariadb://… or sqlite:FILE; of several, see tallygate --help
    /// [env: TALLYGATE_DATABASE_URL] [default: sqlite:tallygate.db]
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
    #[cfg(feature = "bench")]
    Bench(bench::Args),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Token(token::Command),
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Import(import::Command),
    /// Answers checks over HTTP, for programs in any language (left out of this build)
    #[cfg(not(feature = "serve"))]
    Serve(left_out::Args),
    /// The tokens of a server's callers (left out of this build)
    #[cfg(not(feature = "serve"))]
    Token(left_out::Args),
    /// Rules of other limiters, in the words of this one (left out of this build)
    #[cfg(not(feature = "serve"))]
    Import(left_out::Args),
    /// Measures how many decisions the database carries, and proves from the ledger that they are right (left out of this build)
    #[cfg(not(feature = "bench"))]
    Bench(left_out::Args),
    /// Prints completions for a shell (left out of this build)
    #[cfg(not(feature = "shell"))]
    Completions(left_out::Args),
    /// Writes manual pages into a folder (left out of this build)
    #[cfg(not(feature = "shell"))]
    Man(left_out::Args),
    #[cfg(feature = "shell")]
    Completions(completions::Args),
    #[cfg(feature = "shell")]
    Man(man::Args),
}

/// The command line, with the commands in groups: clap has one list.
fn grouped() -> clap::Command {
    let line = Cli::command();
    let header = line.get_styles().get_header();
    let group = |(title, names): &(&str, &[&str])| {
        let mut group = layout::table(&["", ""]);
        let commands = names.iter().filter_map(|name| line.find_subcommand(name));
        let about =
            |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        group.add_rows(commands.map(|command| [format!("{:11}", command.get_name()), about(command)]));
        format!("{header}{title}:{header:#}\n{}\n", layout::render_more(&group, 2))
    };
    let groups: String = GROUPS.iter().map(group).collect();
    line.help_template(HELP).before_help(groups)
}

/// Reads the arguments and runs what they ask for.
pub async fn run() -> Result {
    if SystemTime::now() < SystemTime::UNIX_EPOCH {
        return Err(Failure::new("the clock of this host is before 1970; set it"));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // It may be the help.
        Err(error) => return failure::usage(&grouped().try_get_matches().err().unwrap_or(error)),
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
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(&url(database)?, args).await,
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(named_url(database)?, cli.log_format, args).await,
        #[cfg(feature = "serve")]
        Command::Token(command) => token::run(command),
        #[cfg(feature = "serve")]
        Command::Import(command) => import::run(command),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) | Command::Token(_) | Command::Import(_) => left_out::refuse("serve"),
        #[cfg(not(feature = "bench"))]
        Command::Bench(_) => left_out::refuse("bench"),
        #[cfg(not(feature = "shell"))]
        Command::Completions(_) | Command::Man(_) => left_out::refuse("shell"),
        #[cfg(feature = "shell")]
        Command::Completions(args) => completions::run(&args),
        #[cfg(feature = "shell")]
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
        terminal::tell(replica(limiter.auditor().behind().await?));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_each_command_once() {
        let line = Cli::command();
        let mut commands: Vec<_> = line.get_subcommands().map(clap::Command::get_name).collect();
        let mut listed = GROUPS.map(|(_, names)| names).concat();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, commands);
    }
}
