//! All migrations as one text for the database's own client.

use std::fmt::Write;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::plan::{HISTORY_TABLE, Plan};
use crate::store::Engine;

/// It ends at its first error, and on PostgreSQL and SQLite leaves nothing then. Where there is a schema already that is its first
/// statement.
pub(super) fn of(engine: Engine, plan: &Plan) -> String {
    let mut text = match engine {
        Engine::Postgres => {
            concat!("\\set ON_ERROR_STOP on\nbegin;\n", include_str!("session/postgres.sql")).to_owned()
        }
        Engine::MySql => concat!("set names utf8mb4;\n", include_str!("session/mysql.sql")).to_owned(),
        Engine::Sqlite => ".bail on\nbegin immediate;\n".to_owned(),
    };
    text += &HISTORY_TABLE.replace(" if not exists", "");
    text.push('\n');
    let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
    for migration in plan.migrations() {
        let (version, name, checksum) = (migration.version(), migration.name(), migration.checksum());
        let _ = writeln!(text, "\n-- V{version} {name}\n");
        for part in plan.parts(migration.sql().unwrap_or_default()) {
            let sql = part.sql.trim_end();
            let _ = match engine {
                // The bodies of routines hold semicolons, where the client would cut them. It takes no comment for a statement.
                Engine::MySql if !part.is_empty() => writeln!(text, "delimiter $$\n{sql}\n$$\ndelimiter ;\n"),
                Engine::MySql | Engine::Postgres | Engine::Sqlite => writeln!(text, "{sql}\n"),
            };
        }
        let _ = writeln!(
            text,
            "insert into tallygate_schema_history (version, name, applied_on, checksum)\n\
             values ({version}, '{name}', '{now}', '{checksum}');"
        );
    }
    if engine != Engine::MySql {
        text += "commit;\n";
    }
    text
}
