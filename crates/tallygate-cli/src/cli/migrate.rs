//! `tallygate migrate`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use tallygate::schema::{Migration, Migrator};

use super::exit::Exit;
use super::failure::verdict;
use super::output::{dim, green, red};
use super::{Failure, Result, open, terminal};

const EXAMPLES: &str = "\
Examples:
  tallygate migrate                                       make or upgrade the schema
  tallygate migrate --check || echo \"not up to date\"      for a health check
  tallygate --database postgres://db/app migrate --print  read the SQL before it runs
  tallygate migrate --distribute citus                    and spread it over the nodes of Citus
  tallygate migrate --database eu-1=postgres://one/app --database eu-2=postgres://two/app

Any number may run at once: one works, the others wait and find nothing to do. The role that \
migrates needs the right to create tables and routines; the role that checks needs only EXECUTE.";

/// Makes or upgrades the schema of the database
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print the SQL of every migration for this database; connects to nothing
    #[arg(long, conflicts_with_all = ["check", "distribute"])]
    print: bool,
    /// Change nothing, and end with 4 when there is something to migrate
    #[arg(long)]
    check: bool,
    /// Spread the schema over the nodes of this extension of PostgreSQL, at its coordinator; buckets by their keys
    #[arg(long, value_name = "EXTENSION")]
    distribute: Option<Extension>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Extension {
    Citus,
}

pub async fn run(url: &str, args: Args) -> Result {
    let mut code = ExitCode::SUCCESS;
    let each = Migrator::each(url)?;
    for (name, migrator) in &each {
        if let Some(name) = name {
            writeln!(stdout(), "{}", dim(&format!("-- {name}")))?;
        }
        let ended = one(migrator, &args).await?;
        code = if ended == ExitCode::SUCCESS { code } else { ended };
    }
    if each.len() > 1 && !args.print && !args.check {
        open(url).await?.owner().bring_zones().await?;
    }
    Ok(code)
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
    let mut out = stdout().lock();
    for migration in &applied {
        writeln!(out, "{}  V{} {}", green("applied"), migration.version, migration.name)?;
    }
    for object in &distributed {
        writeln!(out, "{}  {object}", green("distributed"))?;
    }
    if applied.is_empty() && distributed.is_empty() {
        writeln!(out, "nothing to do: {}", up_to_date(migrator))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(migrator: &Migrator, undistributed: &[String]) -> Result {
    let pending = migrator.pending().await?;
    if pending.is_empty() && undistributed.is_empty() {
        let told = writeln!(stdout(), "{}", up_to_date(migrator));
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

/// The SQL as a client of that database takes it: `tallygate migrate --print | mysql app` works too.
fn print(migrator: &Migrator) -> Result {
    let mysql = migrator.is_for_mysql();
    let mut out = stdout().lock();
    for migration in migrator.migrations() {
        writeln!(out, "-- V{} {}\n", migration.version, migration.name)?;
        let sql = migration.sql.trim_end();
        if mysql {
            // The bodies of routines hold semicolons, where the mysql client would cut them.
            writeln!(out, "delimiter $$\n{sql}\n$$\ndelimiter ;\n")?;
        } else {
            writeln!(out, "{sql}\n")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn up_to_date(migrator: &Migrator) -> String {
    format!("the schema is up to date ({} migrations)", migrator.migrations().len())
}
