//! `tallygate migrate`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use tallygate::policy::TimeZoneName;
use tallygate::schema::{Migration, Migrator};

use super::exit::Exit;
use super::failure::verdict;
use super::output::{dim, green, red};
use super::{Failure, Result, open, terminal};

const EXAMPLES: &str = "\
Examples:
  tallygate migrate                                       make or upgrade the schema
  tallygate migrate --check || echo \"not up to date\"      for a health check
  tallygate --database postgres://db/app migrate --print  the SQL, to be read, or run by psql -f
  tallygate migrate --distribute citus                    and spread it over the nodes of Citus
  tallygate migrate --test-clock                          make an empty database one of tests
  tallygate migrate --database eu-1=postgres://one/app --database eu-2=postgres://two/app

Any number may run at once: one works, the others wait and find nothing to do. The role that \
migrates needs the right to create tables and routines; the role that checks needs only EXECUTE.";

const TEST_CLOCK: &str = "a database of tests: its clock is set by hand";

/// Makes or upgrades the schema of the database
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print the SQL that makes the schema, for psql -f, mysql or sqlite3; connects to nothing
    #[arg(long, conflicts_with_all = ["check", "distribute"])]
    print: bool,
    /// Change nothing, and end with 4 when there is something to migrate
    #[arg(long)]
    check: bool,
    /// Spread the schema over the nodes of this extension of PostgreSQL, at its coordinator; buckets by their keys
    #[arg(long, value_name = "EXTENSION")]
    distribute: Option<Extension>,
    /// Make an empty database one of tests, for good: its owner sets its clock
    #[arg(long, conflicts_with_all = ["check", "distribute"])]
    test_clock: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Extension {
    Citus,
}

pub async fn run(url: &str, args: Args) -> Result {
    let (mut code, mut gone) = (ExitCode::SUCCESS, false);
    let each = Migrator::each(url)?;
    let several = each.len() > 1;
    for (name, migrator) in each {
        if let Some(name) = name {
            gone |= writeln!(stdout(), "{}", dim(&format!("-- {name}"))).is_err();
        }
        let migrator = if args.test_clock { migrator.with_test_clock()? } else { migrator };
        match one(&migrator, &args).await {
            // The databases behind it are brought up to date all the same.
            Err(Failure::ReaderGone) => gone = true,
            ended => code = Some(ended?).filter(|ended| *ended != ExitCode::SUCCESS).unwrap_or(code),
        }
    }
    if several && !args.print && !args.check {
        open(url).await?.owner().bring_zones().await?;
    }
    if gone && code == ExitCode::SUCCESS { Err(Failure::ReaderGone) } else { Ok(code) }
}

async fn one(migrator: &Migrator, args: &Args) -> Result {
    if args.print {
        return print(migrator);
    }
    // Before anything is changed: fails where that cannot be.
    let undistributed = match args.distribute {
        Some(Extension::Citus) => migrator.undistributed().await?,
        None => Vec::new(),
    };
    match args.check {
        true => check(migrator, &undistributed).await,
        false => apply(migrator, args.distribute).await,
    }
}

async fn apply(migrator: &Migrator, distribute: Option<Extension>) -> Result {
    let applied = migrator.apply().await?;
    let distributed = match distribute {
        Some(Extension::Citus) => migrator.distribute().await?,
        None => Vec::new(),
    };
    let test_clock = migrator.has_test_clock().await?;
    let mut out = stdout().lock();
    for migration in &applied {
        writeln!(out, "{}  V{} {}", green("applied"), migration.version, migration.name)?;
    }
    for object in &distributed {
        writeln!(out, "{}  {object}", green("distributed"))?;
    }
    if !applied.is_empty() {
        writeln!(out, "time zones are set {}", by_tzdata())?;
    }
    if applied.is_empty() && distributed.is_empty() {
        writeln!(out, "nothing to do: {}", up_to_date(migrator))?;
    }
    if test_clock {
        writeln!(out, "{TEST_CLOCK}")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(migrator: &Migrator, undistributed: &[String]) -> Result {
    let pending = migrator.pending().await?;
    if pending.is_empty() && undistributed.is_empty() {
        let test_clock =
            if migrator.has_test_clock().await? { format!("\n{TEST_CLOCK}") } else { String::new() };
        let told = writeln!(stdout(), "{}{test_clock}", up_to_date(migrator));
        return verdict(told.map_err(Failure::from), Exit::Good);
    }
    let line =
        |migration: &Migration| format!("{}  V{} {}\n", red("unapplied"), migration.version, migration.name);
    let mut lines: String = pending.iter().map(line).collect();
    lines.extend(undistributed.iter().map(|object| format!("{}  {object}\n", red("undistributed"))));
    let run = if undistributed.is_empty() {
        "run: tallygate migrate"
    } else {
        "run: tallygate migrate --distribute citus"
    };
    let hint = if terminal::is_quiet() { String::new() } else { dim(run) + "\n" };
    let told = write!(stdout(), "{lines}{hint}");
    verdict(told.map_err(Failure::from), Exit::ToMigrate)
}

fn print(migrator: &Migrator) -> Result {
    stdout().write_all(migrator.script().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn up_to_date(migrator: &Migrator) -> String {
    let migrations = migrator.migrations().len();
    format!("the schema is up to date ({migrations} migrations), time zones are set {}", by_tzdata())
}

/// The rules that zones with a calendar get.
fn by_tzdata() -> String {
    format!("by tzdata {}", TimeZoneName::latest_release())
}
