//! `tallygate grant`.

use std::io::{Write, stdout};
use std::process::ExitCode;

use serde::Serialize;
use tallygate::schema::{Migrator, Role};

use super::Result;
use super::output::{Answer, green};

const EXAMPLES: &str = "\
Examples:
  tallygate grant app web --database postgres://owner@db/app
  tallygate grant auditor 'alice@10.0.0.%' --database mysql://root@db/app
  tallygate grant operator ops --dry-run            read the SQL before it runs

Roles:
  app       a program with the library: decides and appends; reads and writes no table
  caller    SQL alone: checks, takes tokens and refunds by the routines, which decide
  auditor   reads everything, by views, and writes nothing
  operator  makes and changes zones, bans, sets overrides; does not see the ledger
  owner     migrates an empty schema, and gives the other roles

Make the user or role yourself, with its password; it may have several of these roles. Each migration grants them again, with \
what is new. On MySQL and MariaDB a role must be active: set default role, or name the user as NAME@HOST.";

/// Gives a user or role of the database the rights of an app, a caller, an auditor, an operator or the owner
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The role that it gets
    #[arg(value_enum)]
    role: Role,
    /// The user: a role or a user that is there; on MySQL and MariaDB a user is NAME@HOST
    #[arg(value_name = "NAME")]
    name: String,
    /// Print the SQL; change nothing
    #[arg(long)]
    dry_run: bool,
    /// The form of the answer
    #[arg(long, default_value = "text")]
    format: Answer,
}

#[derive(Serialize)]
struct Granted {
    role: Role,
    name: String,
    dry_run: bool,
    statements: Vec<String>,
}

pub async fn run(url: &str, args: Args) -> Result {
    let Args { role, name, dry_run, format } = args;
    let mut statements = Vec::new();
    for (_, migrator) in Migrator::each(url)? {
        statements.extend(if dry_run {
            migrator.grant_statements(role, &name).await?
        } else {
            migrator.grant(role, &name).await?
        });
    }
    let mut out = stdout().lock();
    match format {
        Answer::Json => {
            writeln!(out, "{}", serde_json::to_string(&Granted { role, name, dry_run, statements })?)?;
        }
        Answer::Text if dry_run => {
            for statement in statements {
                writeln!(out, "{statement};")?;
            }
        }
        Answer::Text => writeln!(out, "{}  {role} to {name}", green("granted"))?,
    }
    Ok(ExitCode::SUCCESS)
}
